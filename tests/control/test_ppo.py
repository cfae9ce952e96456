"""The trainer: log-probabilities are consistent, memory pays and its absence does not, runs go on exactly, bad input is named."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from keepworth.base.errors import KeepworthError
from keepworth.control.errors import CheckpointError, SpaceError, UnknownWorld, WorldError
from keepworth.control.ppo import Trainer
from keepworth.control.run import CHECKPOINT, TrainedAgent, load_checkpoint, run
from keepworth.control.settings import BONUSES, PpoSettings, SettingError
from keepworth.control.spaces import ActionSpace, ObservationSpace
from keepworth.control.worlds import Worlds
from keepworth.registry import method
from tests.control.worlds import BOX, Numbers, Recall

SMALL = PpoSettings(world="recall", memory="gru", steps=1024, envs=8, rollout=16, chunk=16, width=16, minibatches=2)


def test_log_probabilities_computed_again_are_those_that_were_stored(name: str) -> None:
    """Resets fall into chunks, and chunks begin with states in the middle of episodes. Before anything is learned of a rollout
    only rounding may differ, in the second update as well."""
    trainer = Trainer(replace(SMALL, memory=name, chunk=4, learning_rate=1e-2), partial(Recall, 5))
    rows = [trainer.update() for _ in range(2)]
    assert all(float(row["mismatch"] or 0.0) < 1e-4 for row in rows)


def test_memory_learns_to_recall_and_its_absence_stays_at_chance() -> None:
    scores = {}
    for memory in ("gru", "mlp"):
        settings = replace(SMALL, memory=memory, steps=12_288, envs=16, learning_rate=5e-3)
        rows = list(Trainer(settings, Recall).train())
        scores[memory] = np.mean([row["return"] for row in rows[-10:]])
    assert scores["gru"] > 0.9
    assert abs(scores["mlp"]) < 0.25


def test_the_same_seed_gives_the_same_curve_and_another_does_not() -> None:
    curves = []
    for seed in (0, 0, 1):
        rows = list(Trainer(replace(SMALL, seed=seed), Recall).train())
        curves.append([{**row, "seconds": 0} for row in rows])
    assert curves[0] == curves[1] != curves[2]


@pytest.mark.parametrize(
    ("bonus", "predict"), [*((bonus, "none") for bonus in BONUSES), ("none", "observation"), ("none", "latent")]
)
def test_a_run_that_was_stopped_goes_on_to_the_same_weights(bonus: str, predict: str, tmp_path: Path) -> None:
    settings = replace(SMALL, bonus=bonus, predict=predict)
    whole = list(run(settings, tmp_path / "whole", Recall))
    list(run(replace(settings, steps=512), tmp_path / "parts", Recall))
    rows = list(run(settings, tmp_path / "parts", Recall))
    assert [row["return"] for row in rows] == [row["return"] for row in whole]
    one, other = (load_checkpoint(tmp_path / name) for name in ("whole", "parts"))
    assert all(torch.equal(one["network"][part], other["network"][part]) for part in one["network"])
    assert json.loads((tmp_path / "parts" / "curve.json").read_text())["done"]


def test_truncated_episode_bootstraps_from_its_value() -> None:
    """With values that are all 10, a step at which a limit of time cuts is paid its reward and the discounted value."""
    trainer = Trainer(replace(SMALL, discount=0.5), partial(Recall, 100, 3))
    with torch.no_grad():
        for parameter in trainer.network.value.parameters():
            parameter.zero_()
        trainer.network.value[-1].bias.fill_(10.0)  # type: ignore[union-attr, operator]
    rollout, _, _ = trainer._play()
    assert torch.equal(rollout.rewards, torch.where(rollout.ends, 5.0, 0.0))
    assert torch.equal(rollout.starts[:, 1:], rollout.ends[:, :-1])


def test_advantages_are_those_computed_by_hand() -> None:
    trainer = Trainer(replace(SMALL, envs=1, rollout=3, chunk=3, minibatches=1, discount=0.5, trace=0.5), Recall)
    rollout, _, _ = trainer._play()
    rollout.values.copy_(torch.tensor([[1.0, 2.0, 3.0]]))
    rollout.rewards.copy_(torch.tensor([[1.0, 0.0, 2.0]]))
    rollout.ends.copy_(torch.tensor([[False, True, False]]))
    rollout.last_value.fill_(4.0)
    # deltas: 1 + 0.5 * 2 - 1 = 1; 0 - 2 = -2; 2 + 0.5 * 4 - 3 = 1. The second step ends an episode.
    torch.testing.assert_close(trainer._advantages(rollout), torch.tensor([[1 + 0.25 * -2, -2.0, 1.0]]))


def test_an_agent_acts_as_it_was_trained_and_its_program_needs_torch_alone(tmp_path: Path) -> None:
    list(run(replace(SMALL, steps=8192, envs=16, learning_rate=5e-3), tmp_path, Recall))
    agent = TrainedAgent.load(tmp_path, Recall)
    world, paid = Recall(), []
    for seed in range(20):
        observation, _ = world.reset(seed=seed)
        state, over, reward = None, False, 0.0
        while not over:
            action, state = agent.predict(observation, state)
            observation, reward, over, _, _ = world.step(action)
        paid.append(reward)
    assert np.mean(paid) > 0.8
    seen = np.array([world.reset(seed=seed)[0] for seed in range(3)])
    assert list(agent.predict(seen, episode_start=[True] * 3)[0]) == [agent.predict(one)[0] for one in seen]
    agent.export(tmp_path / "policy.pt2")
    script = (
        "import sys, torch; m = torch.export.load(sys.argv[1]).module(); size = int(sys.argv[2])\n"
        "outputs, values, state = m(torch.zeros(5, size), [torch.zeros(5, 16)], torch.ones(5, dtype=torch.bool))\n"
        "print(tuple(outputs.shape), values.shape[0], len(state), 'keepworth' in sys.modules)"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "policy.pt2"), str(agent.network.input_size)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.stdout == "(5, 2) 5 1 False\n", ran.stderr


@pytest.mark.slow
def test_every_memory_is_exported_as_it_steps(name: str, tmp_path: Path) -> None:
    trainer = Trainer(replace(SMALL, memory=name), Recall)
    TrainedAgent(trainer.network, trainer.worlds).export(tmp_path / "policy.pt2")
    program = torch.export.load(tmp_path / "policy.pt2").module()
    state = trainer.network.memory.initial_state(5)
    for _ in range(3):
        x, starts = torch.randn(5, trainer.network.input_size), torch.rand(5) < 0.3
        outputs, values, parts = program(x, list(state), starts)
        expected = trainer.network.step(x, state, starts)
        torch.testing.assert_close((outputs, values, tuple(parts)), expected)
        state = expected[2]


@pytest.mark.parametrize("space", [
    spaces.Discrete(3, start=2),
    spaces.MultiDiscrete([2, 3], start=[1, 4]),
    spaces.MultiBinary(4),
    BOX,
    spaces.Box(0, 255, (3, 2), np.uint8),
    spaces.Box(-np.inf, np.inf, (2,)),
    spaces.Tuple([spaces.Discrete(2), BOX]),
    spaces.Dict(a=spaces.Discrete(2), b=spaces.Dict(c=BOX)),
])  # fmt: skip
@pytest.mark.parametrize(
    "action", [spaces.Discrete(3, start=1), spaces.MultiDiscrete([2, 3], start=[1, 4]), spaces.MultiBinary(2), BOX]
)
def test_numbers_and_categories_are_taken_and_acted(space: spaces.Space[Any], action: spaces.Space[Any]) -> None:
    world = Numbers(space, action)
    trainer = Trainer(replace(SMALL, envs=1, rollout=8, chunk=8, minibatches=1), lambda: world)
    row = trainer.update()
    assert np.isfinite(row["entropy"] or 0.0)
    assert all(action.contains(acted) for acted in world.acted)


def test_a_world_of_a_module_is_made_by_its_id() -> None:
    assert Worlds("tests.control.worlds:tests/Recall-v0", 1).observations.size == 3


def test_features_are_one_hot_or_scaled() -> None:
    assert ObservationSpace(spaces.Discrete(3, start=2)).encode([2, 4]).tolist() == [[1, 0, 0], [0, 0, 1]]
    assert ObservationSpace(spaces.MultiDiscrete([2, 3])).encode([[1, 2]]).tolist() == [[0, 1, 0, 0, 1]]
    assert ObservationSpace(spaces.MultiDiscrete([2, 3], start=[1, 4])).encode([[2, 4]]).tolist() == [[0, 1, 1, 0, 0]]
    assert ObservationSpace(spaces.Box(0.0, 4.0, (2,))).encode([[0.0, 3.0]]).tolist() == [[-1.0, 0.5]]


def test_probabilities_of_actions_match_their_frequencies() -> None:
    actions = ActionSpace(spaces.MultiDiscrete([2, 3]))
    outputs = torch.tensor([[0.3, -0.5, 1.0, 0.0, -1.0]]).expand(20_000, -1)
    drawn = actions.sample(outputs, torch.zeros(0), torch.Generator().manual_seed(0))
    log_prob, entropy = actions.judge(outputs, torch.zeros(0), drawn)
    share = (drawn == torch.tensor([0, 0])).all(1).float().mean()
    wanted = outputs[0, :2].softmax(0)[0] * outputs[0, 2:].softmax(0)[0]
    assert abs(float(share - wanted)) < 0.015
    assert abs(float(-log_prob.mean() - entropy[0])) < 0.02


def test_unsupported_spaces_are_named_with_a_fix() -> None:
    with pytest.raises(SpaceError, match=r"observation\['mission'\].*Text.*Wrap"):
        ObservationSpace(spaces.Dict(image=BOX, mission=spaces.Text(5)))
    with pytest.raises(SpaceError, match="Wrap"):
        ActionSpace(spaces.Text(5))
    given = {"finite": np.array([np.nan, 0.0]), "outside its space": np.zeros(3), "outside": "x", "reward": None}
    for what, gives in given.items():
        pays = np.nan if what == "reward" else 1.0
        worlds = Worlds(lambda gives=gives, pays=pays: Numbers(BOX, spaces.Discrete(2), gives, pays), 2)
        worlds.reset()
        with pytest.raises(WorldError, match=what):
            [worlds.step([0, 1]) for _ in range(4)]
    with pytest.raises(UnknownWorld, match="Did you mean 'CartPole-v1'"):
        Worlds("CartPol-v1", 1)
    with pytest.raises(UnknownWorld, match=r"needs a package.*no_package"):
        Worlds("tests/Lacking-v0", 1)
    with pytest.raises(KeepworthError, match="step of world 0 failed: AttributeError: 'Recall'"):
        Worlds(Recall, 1).step([0])
    for name, bad in {"chunk": 100, "discount": 2.0, "learning_rate": -1.0}.items():
        with pytest.raises(SettingError, match=rf"^{name} = {bad} .* Set"):
            PpoSettings(**{name: bad})  # type: ignore[arg-type]


def test_a_checkpoint_of_something_else_is_named_with_the_fix(tmp_path: Path) -> None:
    list(run(replace(SMALL, steps=128), tmp_path, Recall))
    with pytest.raises(CheckpointError, match="memory = 'gru', not 'lstm'"):
        list(run(replace(SMALL, memory="lstm"), tmp_path, Recall))
    with pytest.raises(CheckpointError, match=r"world = 'Recall', not 'test_.*lambda"):
        list(run(replace(SMALL, steps=128), tmp_path, lambda: Recall()))
    with pytest.raises(CheckpointError, match="is a file"):
        list(run(SMALL, tmp_path / CHECKPOINT))
    with pytest.raises(CheckpointError, match="do not fit"):
        TrainedAgent.load(tmp_path, lambda: Numbers(BOX, spaces.Discrete(2)))
    with pytest.raises(CheckpointError, match="holds no"):
        TrainedAgent.load(tmp_path / "nowhere")
    (tmp_path / CHECKPOINT).write_bytes(b"torn")
    with pytest.raises(CheckpointError, match="is no checkpoint"):
        TrainedAgent.load(tmp_path)


def test_the_agent_of_the_registry_beats_chance_in_its_smallest_world() -> None:
    settings = {"steps": 8192, "envs": 16, "rollout": 16, "chunk": 16, "width": 16, "learning_rate": 5e-3}
    trainer = method("control_agent", "recurrent_ppo").make(Recall, "lstm", **settings)
    assert list(trainer.train())[-1]["recent"] > 0.5
