"""The off-policy learner and its replay: windows are what was played, values are those of dynamic programming, runs go on
exactly, memory pays, bad input is named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from keepworth.base.errors import UnknownName
from keepworth.cli.main import main
from keepworth.control import replay as replay_module
from keepworth.control.dials import behave
from keepworth.control.errors import CheckpointError, SpaceError, WorldError
from keepworth.control.off_policy import OffPolicyTrainer, multi_step
from keepworth.control.replay import PLAY, SequenceReplay, run_lead
from keepworth.control.run import TrainedAgent, load_checkpoint, run
from keepworth.control.settings import LEARNERS, OffPolicySettings, PpoSettings, SettingError
from keepworth.control.spaces import BoundedActions
from keepworth.registry import method
from tests.control.worlds import BOX, Chain, Numbers, Recall, Slope
from tests.slow import slow_but_for

SMALL = OffPolicySettings(
    world="small", memory="gru", steps=400, every=100, warmup=60, ratio=0.2, width=16, batch=8, length=6, capacity=300
)


def make_rows(rings: int, size: int, steps: int) -> SequenceReplay:
    """Rows that are numbered in each ring. Episodes have five rows, of which the last is no step."""
    blank = {"number": torch.zeros(1), "starts": torch.zeros(1, dtype=torch.bool), "valid": torch.zeros(1).bool()}
    rows = SequenceReplay(blank, {PLAY: [size] * rings, "log": [size]})
    for step in range(steps):
        of = torch.full((rings + 1,), step)
        rows.write(range(rings + 1), {"number": of.float(), "starts": of % 5 == 0, "valid": of % 5 != 4})
    return rows


@pytest.mark.parametrize("steps", [17, 20, 31, 58])
def test_windows_are_consecutive_rows_with_those_of_their_episode_before(steps: int) -> None:
    replay = make_rows(rings=2, size=20, steps=steps)
    windows = replay.draw(200, 6, 100, {}, torch.Generator().manual_seed(0))
    number = replay.columns["number"]
    first = number[windows.rows[:, 0]]
    assert torch.equal(number[windows.rows], first.unsqueeze(1) + torch.arange(7))
    starts = replay.columns["starts"][windows.rows]
    assert torch.equal(number[windows.before][~starts], number[windows.rows][~starts] - 1)
    assert (int(first.min()), int(first.max())) == (max(0, steps - 20 + (steps >= 20)), steps - 7)
    whole = first - first % 5 > steps - 20  # the start of its episode is still there
    assert torch.equal(windows.lead_mask.sum(1)[whole], (first % 5).long()[whole])
    for lead, lead_before, mask, row in zip(
        windows.lead, windows.lead_before, windows.lead_mask, windows.rows[:, 0], strict=True
    ):
        assert number[lead[mask]].tolist() == list(range(int(number[row]) - int(mask.sum()), int(number[row])))
        going_on = mask & ~replay.columns["starts"][lead]
        assert torch.equal(number[lead_before][going_on], number[lead][going_on] - 1)


def test_shares_divide_a_batch_exactly() -> None:
    replay = make_rows(rings=3, size=20, steps=20)
    windows = replay.draw(10, 6, 0, {"log": 0.3, PLAY: 0.7}, torch.Generator().manual_seed(0))
    assert replay.columns["source"][windows.rows[:, 0]].tolist() == [1] * 3 + [0] * 7


@pytest.mark.parametrize("memory", ["gru", "lstm", "lru", "mlp", "frame_stack"])
def test_recomputed_states_are_those_that_were_stored_while_playing(memory: str) -> None:
    """As long as the network is the same, a window's state by the steps before it is the one that it was played with."""
    trainer = OffPolicyTrainer(replace(SMALL, memory=memory, hidden="stored", warmup=400, envs=2), lambda: Recall(9, 7))
    trainer.update()
    replay = trainer.replay
    windows = replay.draw(100, 6, 100, {}, torch.Generator().manual_seed(0))
    inputs = trainer.network.encoder(trainer._inputs(windows.lead, windows.lead_before))
    state = run_lead(trainer.network.memory, inputs, replay.columns["starts"][windows.lead], windows.lead_mask)
    assert int(windows.lead_mask.sum(1).max()) == 7  # at the last observation of an episode of seven steps
    x, starts = trainer._inputs(windows.rows, windows.before), replay.columns["starts"][windows.rows]
    stored = tuple(replay.columns[f"actor {i}"][windows.rows[:, 0]] for i in range(len(state)))
    torch.testing.assert_close(trainer.network(x, state, starts), trainer.network(x, stored, starts))


def test_an_episode_that_was_cut_off_ends_with_its_last_observation() -> None:
    trainer = OffPolicyTrainer(replace(SMALL, warmup=400), lambda: Recall(100, 3))
    trainer.update()
    columns, count = trainer.replay.columns, int(trainer.replay._count[0])
    assert columns["valid"][:count].tolist() == [True, True, True, False] * (count // 4) + [True] * (count % 4)
    assert columns["starts"][:count].tolist() == [row % 4 == 0 for row in range(count)]
    assert not columns["terminated"].any()


def test_returns_over_several_steps_are_those_computed_by_hand() -> None:
    rewards = torch.tensor([[1.0, 2.0, 4.0, 8.0]])
    following = torch.tensor([[10.0, 20.0, 30.0, 40.0]])
    goes_on = torch.tensor([[True, False, True, True]])
    inside = torch.tensor([[True, False, True, False]])
    by_steps = {
        1: [1 + 5.0, 2.0, 4 + 15.0, 8 + 20.0],
        2: [1 + 0.5 * 2, 2.0, 4 + 0.5 * (8 + 20.0), 8 + 20.0],
        3: [1 + 0.5 * 2, 2.0, 4 + 0.5 * (8 + 20.0), 8 + 20.0],
    }
    for steps, wanted in by_steps.items():
        computed = multi_step(rewards, following, goes_on, inside, 0.5, steps)
        torch.testing.assert_close(computed, torch.tensor([wanted]))
    cut = multi_step(rewards, following, goes_on | True, torch.tensor([[False, True, True, True]]), 0.5, 4)
    assert (
        cut[0, 0] == 1 + 0.5 * 10
    )  # the next row is of another episode: the value of the last observation ends the sum


def test_densities_of_bounded_actions_integrate_to_one() -> None:
    actions = BoundedActions(spaces.Box(-2.0, 6.0, (1,)), None)
    outputs = torch.tensor([0.4, -0.7]).double()
    a = torch.linspace(-0.998, 0.998, 4001).double().unsqueeze(1)
    density = actions.log_prob(outputs.expand(len(a), 2), a).exp()
    assert float(torch.trapezoid(density, a.squeeze(1))) == pytest.approx(1.0, abs=0.01)
    drawn, log_prob = actions.draw(outputs.expand(1000, 2), torch.Generator().manual_seed(0))
    torch.testing.assert_close(actions.log_prob(outputs.expand(1000, 2), drawn), log_prob)
    assert actions.to_world(torch.tensor([[-1.0], [0.5]]))[1] == pytest.approx(4.0)
    assert actions.from_world([np.array([4.0]), np.array([-2.0])]).tolist() == [[0.5], [-1.0]]


def test_soft_values_of_a_chain_are_those_of_dynamic_programming() -> None:
    """With a fixed temperature the critics' values converge to Q(s, a) = r + gamma tau log sum_b exp(Q(s', b) / tau)."""
    discount, temperature, places = 0.9, 0.2, Chain.places
    q = np.zeros((places, 2))
    for _ in range(200):
        soft = np.append(temperature * np.log(np.exp(q / temperature).sum(1)), 0.0)
        q[:, 1] = np.where(np.arange(places) == places - 1, 1.0, -0.1) + discount * soft[1:]
        q[:, 0] = -0.1 + discount * soft[[0, *range(places - 1)]]
    settings = replace(
        SMALL, memory="mlp", action_input=False, steps=2500, every=2500, warmup=200, ratio=0.4, batch=16, length=8,
        capacity=3000, width=32, learning_rate=3e-3, tau=0.05, discount=discount, temperature=temperature, tune=False,
        target_entropy=None,
    )  # fmt: skip
    trainer = OffPolicyTrainer(settings, Chain)
    trainer.update()
    x, starts = torch.eye(places).unsqueeze(1), torch.ones(places, 1, dtype=torch.bool)
    with torch.no_grad():
        critics = trainer.critics
        estimates = critics.all_values(critics.remember(x, critics.memory.initial_state(places), starts))[:, :, 0]
        policy = trainer.network(x, trainer.network.memory.initial_state(places), starts)[:, 0].softmax(-1)
    assert np.abs(estimates.numpy() - q).max() < 0.05
    wanted = np.exp(q / temperature) / np.exp(q / temperature).sum(1, keepdims=True)
    assert np.abs(policy.numpy() - wanted).max() < 0.1


@pytest.mark.parametrize("name", slow_but_for(["rtd3"], ["rdpg", "rtd3", "rsac"]))
def test_each_method_gets_the_best_actions_of_a_slope(name: str) -> None:
    trainer = method("control_agent", name).make(
        Slope, "mlp", action_input=False, steps=1500, every=1500, warmup=300, ratio=0.5, width=32, batch=16, length=6,
        learning_rate=2e-3, tau=0.05, discount=0.9, capacity=3000,
    )  # fmt: skip
    trainer.update()
    agent = TrainedAgent(trainer.network, trainer.worlds)
    done = [float(agent.predict(place)[0][0]) for place in range(3)]
    assert done == pytest.approx(Slope.best, abs=0.35)


def test_memory_learns_to_recall_and_its_absence_stays_at_chance() -> None:
    scores = {}
    for memory in ("gru", "mlp"):
        settings = replace(
            SMALL, memory=memory, action_input=False, steps=3000, every=3000, warmup=300, ratio=0.25, batch=16, length=8,
            capacity=4000, learning_rate=3e-3, tau=0.05, temperature=0.1, tune=False, target_entropy=None,
        )  # fmt: skip
        trainer = OffPolicyTrainer(settings, Recall)
        trainer.update()
        scores[memory] = np.mean(trainer.recent)
    assert scores["gru"] > 0.8
    assert abs(scores["mlp"]) < 0.35


def test_the_same_seed_gives_the_same_curve_and_another_does_not() -> None:
    curves = []
    for seed in (0, 0, 1):
        rows = list(OffPolicyTrainer(replace(SMALL, seed=seed), Recall).train())
        curves.append([{**row, "seconds": 0} for row in rows])
    assert curves[0] == curves[1] != curves[2]
    assert [row["steps"] for row in curves[0]] == [100, 200, 300, 400]


def logs_of(world: Any, episodes: int) -> dict[str, Any]:
    return {"good": list(behave(world, "conservative", lambda seen: 1, episodes))}


@pytest.mark.parametrize("hidden", slow_but_for(["zero", "stored"], ["zero", "stored", "burnt_in", "recomputed"]))
def test_a_run_that_was_stopped_goes_on_to_the_same_weights(hidden: str, tmp_path: Path) -> None:
    logs = {} if hidden == "stored" else logs_of(Chain(), 5)
    shares = {PLAY: 0.5, "good": 0.5} if logs else {}
    settings = replace(SMALL, hidden=hidden, shares=shares, n_step=2, envs=2)
    whole = list(run(settings, tmp_path / "whole", Chain, logs))
    list(run(replace(settings, steps=200), tmp_path / "parts", Chain, logs))
    rows = list(run(settings, tmp_path / "parts", Chain, logs))
    assert [{**row, "seconds": 0} for row in rows] == [{**row, "seconds": 0} for row in whole]
    one, other = (load_checkpoint(tmp_path / name) for name in ("whole", "parts"))
    for part in ("network", "critics"):
        assert all(torch.equal(one[part][name], other[part][name]) for name in one[part])
    assert json.loads((tmp_path / "parts" / "curve.json").read_text())["done"]


def test_new_episodes_after_a_stop_do_not_follow_the_old_ones(tmp_path: Path) -> None:
    """A world that cannot be saved begins anew, and the step before has no next observation."""
    trainer = OffPolicyTrainer(SMALL, Recall)
    trainer.update()
    saved = {**trainer.save(), "worlds": None}
    again = OffPolicyTrainer(SMALL, Recall)
    again.load(saved)
    newest = int(trainer.replay._count[0]) - 1
    assert trainer.replay.columns["valid"][newest]
    assert not again.replay.columns["valid"][newest]
    again.update()
    assert again.replay.columns["starts"][newest + 1]


def test_behaviour_cloning_imitates_the_log_that_it_names() -> None:
    """Going left is the worse action, and the log does nothing else."""
    logs = {"left": list(behave(Chain(), "conservative", lambda seen: 0, 10))}
    acts = {}
    for weight in (0.0, 100.0):
        settings = replace(
            SMALL, memory="mlp", steps=400, every=400, ratio=0.5, learning_rate=3e-3, clone=weight,
            clone_source="left" if weight else "", shares={PLAY: 0.5, "left": 0.5},
        )  # fmt: skip
        trainer = OffPolicyTrainer(settings, Chain, logs)
        trainer.update()
        acts[weight] = TrainedAgent(trainer.network, trainer.worlds).predict(0)[0]
    assert acts[100.0] == 0


def test_a_trained_agent_is_loaded_from_the_folder_and_exported(tmp_path: Path) -> None:
    list(run(replace(SMALL, learner="sac"), tmp_path, Slope))
    agent = TrainedAgent.load(tmp_path, Slope)
    action, state = agent.predict(0)
    assert Slope.action_space.contains(action)
    again, _ = agent.predict(1, state, reward=1.0)
    assert Slope.action_space.contains(again)
    agent.export(tmp_path / "policy.pt2")
    program = torch.export.load(tmp_path / "policy.pt2").module()
    outputs, _, after = program(torch.zeros(5, agent.network.input_size), [torch.zeros(5, 16)], torch.ones(5).bool())
    assert outputs.shape == (5, 2)
    assert after[0].shape == (5, 16)
    with pytest.raises(CheckpointError, match="run of sac, not of ppo"):
        list(run(PpoSettings(world="small", width=16), tmp_path, Slope))


def test_learners_name_the_worlds_and_actions_that_they_cannot_take() -> None:
    for learner in ("ddpg", "td3"):
        with pytest.raises(SpaceError, match=rf"'{learner}' gives numbers.*choices.*Set learner to \"sac\""):
            OffPolicyTrainer(OffPolicySettings(world="chain", learner=learner), Chain)
    with pytest.raises(SpaceError, match="one choice at a time"):
        OffPolicyTrainer(SMALL, lambda: Numbers(BOX, spaces.MultiDiscrete([2, 3])))
    with pytest.raises(SpaceError, match=r"no bounds.*RescaleAction"):
        OffPolicyTrainer(SMALL, lambda: Numbers(BOX, spaces.Box(-np.inf, np.inf, (1,))))


@pytest.mark.parametrize(("bad", "says"), [
    ({"learner": "sacc"}, "learner = 'sacc' is none of ddpg, td3, sac"),
    ({"hidden": "kept"}, "hidden = 'kept' is none of"),
    ({"learner": "td3", "temperature": 0.1}, "temperature has no effect with learner = 'td3'"),
    ({"noise": 0.1}, "noise has no effect with learner = 'sac'"),
    ({"burn_in": 3}, "burn_in has no effect with hidden = 'zero'"),
    ({"tune": False, "target_entropy": 1.0}, "target_entropy has no effect without tune"),
    ({"clone_source": "good"}, "clone_source has no effect without clone"),
    ({"n_step": 40}, "n_step = 40 is more than length = 32"),
    ({"every": 10, "envs": 4}, "every = 10 is no multiple of envs = 4"),
    ({"capacity": 40, "envs": 2}, "capacity = 40 leaves each of 2 worlds no sequence"),
    ({"shares": {"play": 0.5}}, "do not add up to 1"),
    ({"shares": {"play": 1.5, "good": -0.5}}, "play = 1.5"),
    ({"ratio": -1.0}, "ratio = -1.0 is less than 0"),
])  # fmt: skip
def test_settings_that_do_not_fit_are_named(bad: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingError, match=says):
        OffPolicySettings(**bad)


def test_a_share_of_no_source_and_logs_of_another_world_are_named() -> None:
    good = logs_of(Chain(), 5)
    with pytest.raises(UnknownName, match=r"source of the replay 'god'.*good"):
        OffPolicyTrainer(replace(SMALL, shares={PLAY: 0.5, "god": 0.5}), Chain, good)
    with pytest.raises(SettingError, match=r"share of 0.1 for 'good' gives it no sequence.*batch to 10"):
        OffPolicyTrainer(replace(SMALL, shares={PLAY: 0.9, "good": 0.1}), Chain, good)
    with pytest.raises(SettingError, match=r"log 'good' of .* steps has no sequence of 6"):
        OffPolicyTrainer(SMALL, Chain, {"good": [good["good"][0][-1:]]})
    with pytest.raises(SettingError, match="Logs store no hidden states"):
        OffPolicyTrainer(replace(SMALL, hidden="stored"), Chain, good)
    with pytest.raises(SettingError, match="PPO learns from nothing but what it plays"):
        list(run(PpoSettings(world="chain"), "nowhere", Chain, good))
    others = [[(9, 1, 0.0, 9, True)] * 8, [(0, 5, 0.0, 1, True)], [(0, 1, 0.0, 1, True)] * 2, [(0, 1, None, 1, True)]]
    says = ["observation 9 that is not of the world", "action 5", "goes on after its end", "no finite number"]
    for episode, words in zip(others, says, strict=True):
        with pytest.raises(WorldError, match=f"Episode 5 of the log 'good'.*{words}"):
            OffPolicyTrainer(SMALL, Chain, {"good": [*good["good"], episode]})


def test_a_replay_larger_than_memory_is_refused_with_the_size_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_module, "free_bytes", lambda: 1_000_000)
    with pytest.raises(SettingError, match=r"capacity = 10000000 makes a replay of .* GB .* Set capacity to (\d+) or"):
        OffPolicyTrainer(replace(SMALL, capacity=10_000_000), Chain)
    OffPolicyTrainer(replace(SMALL, capacity=10_000), Chain)


def test_the_command_trains_every_learner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["control", "train", "--world", "Pendulum-v1", "--steps", "200", "--memory", "gru"]
    for name in ("every=100", "warmup=100", "ratio=0.02", "width=8", "batch=4", "length=8"):
        command += ["--set", name]
    for learner in LEARNERS:
        assert main([*command, "--learner", learner, "--folder", str(tmp_path / learner)]) == 0
        assert "200 of 200 steps" in capsys.readouterr().out
    assert main(["control", "table", str(tmp_path)]) == 0
    capsys.readouterr()
    for words, hint in (
        (["--learner", "sacc"], "sac"),
        (["--learner", "td3", "--world", "CartPole-v1"], "gives numbers"),
        (["--learner", "sac", "--set", "rollout=8"], "rollout"),
        (["--learner", "sac", "--set", "noise=0.1"], "noise has no effect"),
    ):
        assert main([*command, *words, "--folder", str(tmp_path / "other")]) == 2
        assert hint in capsys.readouterr().err
        assert not (tmp_path / "other").exists()
