"""Logs in: Minari's format, read and written; what is learned from logs alone, and from logs before the world; bad logs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from keepworth.cli.main import main
from keepworth.control import replay as replay_module
from keepworth.control.dials import Transition, behave
from keepworth.control.errors import WorldError
from keepworth.control.labels import fill_in
from keepworth.control.logs import LogError, SpacesOf, read_logs, write_logs
from keepworth.control.off_policy import OffPolicyTrainer
from keepworth.control.replay import PLAY
from keepworth.control.run import TrainedAgent, load_checkpoint, play, run
from keepworth.control.settings import OffPolicySettings, SettingError
from keepworth.registry import method
from tests.control.worlds import Chain, Recall, Slope
from tests.slow import slow_but_for

SMALL = {
    "world": "small", "memory": "mlp", "learner": "iql", "action_input": False, "steps": 0, "logged": 400, "every": 400,
    "width": 32, "batch": 16, "length": 6, "capacity": 300, "learning_rate": 3e-3, "tau": 0.05, "discount": 0.9,
}  # fmt: skip
VALUES = spaces.Dict(
    {
        "place": spaces.Box(-1.0, 1.0, (2,), np.float32),
        "both": spaces.Tuple([spaces.Discrete(4, start=1), spaces.MultiBinary(3)]),
    }
)


def small(**changed: Any) -> OffPolicySettings:
    return OffPolicySettings(**{**SMALL, **changed})


def play_chain(right: float, episodes: int, seed: int = 0) -> list[list[Transition]]:
    """Logs of going right with a probability."""
    draw = np.random.default_rng(seed)
    return list(behave(Chain(), "conservative", lambda seen: int(draw.random() < right), episodes, seed))


def acts_of(agent: TrainedAgent) -> list[int]:
    return [agent.predict(place)[0] for place in range(Chain.places)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of logs of a chain."""
    pytest.importorskip("h5py", reason="the extra control brings it")
    write_logs(tmp_path / "chain-v0", play_chain(0.5, 40), Chain.observation_space, Chain.action_space, by="a coin")
    return tmp_path / "chain-v0"


def test_the_better_of_two_actions_is_learned_from_logs_of_a_coin() -> None:
    """A coin goes left as often as right. Imitation cannot know which is better; what has values does."""
    logs = {"coin": play_chain(0.5, 60)}
    for changed in ({}, {"learner": "sac", "conservative": 0.5, "temperature": 0.1, "tune": False}):
        trainer = OffPolicyTrainer(small(**changed), Chain, logs)
        trainer.update()
        assert acts_of(TrainedAgent(trainer.network, trainer.worlds)) == [1, 1, 1, 1], changed
    trainer = OffPolicyTrainer(small(learner="bc"), Chain, logs)
    trainer.update()
    with torch.no_grad():
        x = torch.eye(4).unsqueeze(1)
        policy = trainer.network(x, trainer.network.memory.initial_state(4), torch.ones(4, 1).bool())
    assert np.allclose(policy[:, 0].softmax(-1), 0.5, atol=0.15)


def test_values_of_states_are_expectiles_over_logged_actions() -> None:
    """The last place ends with 1 by going right and pays -.1 by going left: the greater the expectile, the nearer to 1."""
    logs, values, wanted = {"coin": play_chain(0.5, 60)}, [], []
    paid = np.array([step[2] for episode in logs["coin"] for step in episode if step[0] == 3])
    for expectile in (0.5, 0.9):
        trainer = OffPolicyTrainer(small(expectile=expectile, discount=0.0, batch=64), Chain, logs)
        list(trainer.train())
        x, starts = torch.eye(4).unsqueeze(1), torch.ones(4, 1).bool()
        with torch.no_grad():
            memories = trainer.critics.remember(x, trainer.critics.memory.initial_state(4), starts)
            values.append(float(trainer.critics.state_values(memories)[3, 0]))
        weights = np.where(paid > 0, expectile, 1 - expectile)  # the expectile is between the two rewards
        wanted.append(float((weights * paid).sum() / weights.sum()))
    assert values == pytest.approx(wanted, abs=0.12)


def test_conservative_values_of_actions_outside_the_logs_are_low() -> None:
    logs, gaps = {"right": play_chain(1.0, 40)}, []
    for weight in (0.0, 1.0):
        settings = small(learner="sac", conservative=weight)
        trainer = OffPolicyTrainer(settings, Chain, logs)
        trainer.update()
        x, starts = torch.eye(4).unsqueeze(1), torch.ones(4, 1).bool()
        with torch.no_grad():
            memories = trainer.critics.remember(x, trainer.critics.memory.initial_state(4), starts)
            values = trainer.critics.all_values(memories)[:, :, 0].mean(0)
        gaps.append(float((values[:, 1] - values[:, 0]).min()))
    assert gaps[1] > gaps[0] + 0.5


def test_numbers_are_learned_from_logs_by_every_learner() -> None:
    draw = np.random.default_rng(0)
    logs = {"noise": list(behave(Slope(), "conservative", lambda seen: draw.uniform(-2, 4, 1).astype("f4"), 200))}
    for changed in ({"sharpness": 10.0}, {"learner": "sac", "conservative": 0.1}):
        trainer = OffPolicyTrainer(small(logged=500, every=500, **changed), Slope, logs)
        trainer.update()
        agent = TrainedAgent(trainer.network, trainer.worlds)
        done = [float(agent.predict(place)[0][0]) for place in range(3)]
        assert done == pytest.approx(Slope.best, abs=0.8), changed


def test_logs_first_and_then_the_world() -> None:
    """Updates from logs come before the first step; the steps of the warm-up are those of the policy, not evenly drawn."""
    logs = {"right": play_chain(1.0, 20)}
    settings = small(learner="sac", clone=20.0, steps=200, warmup=200, every=200, logged=300,
        shares={PLAY: 1.0},
    )  # fmt: skip
    trainer = OffPolicyTrainer(settings, Chain, logs)
    rows = list(trainer.train())
    assert [(row["steps"], row["updates"]) for row in rows] == [(0, 200), (0, 300), (200, 300)]
    played = trainer.replay.columns["actions"][: int(trainer.replay._count[0]), 0]
    assert float(played.float().mean()) > 0.9
    dropped = OffPolicyTrainer(replace(settings, warmup=0), Chain, logs)
    assert [row["updates"] for row in dropped.train()] == [200, 300, 300 + 194]  # from the seventh step on


def test_a_run_from_logs_goes_on_to_the_same_weights_and_is_loaded_without_its_world(tmp_path: Path) -> None:
    logs, world = {"coin": play_chain(0.5, 20)}, SpacesOf(Chain.observation_space, Chain.action_space)
    settings = small(logged=300, every=100)
    list(run(settings, tmp_path / "whole", world, logs))
    half = OffPolicyTrainer(replace(settings, world="SpacesOf"), world, logs)
    half.update()
    resumed = OffPolicyTrainer(replace(settings, world="SpacesOf"), world, logs)
    resumed.load(half.save())
    list(resumed.train())
    whole = load_checkpoint(tmp_path / "whole")["network"]
    assert all(torch.equal(whole[name], value) for name, value in resumed.network.state_dict().items())
    assert set(acts_of(TrainedAgent.load(tmp_path / "whole"))) <= {0, 1}
    with pytest.raises(SettingError, match="steps = 10, and there is no world to play"):
        OffPolicyTrainer(replace(settings, steps=10), world, logs)


def test_an_agent_is_played_as_logs_with_its_memory() -> None:
    trainer = OffPolicyTrainer(small(memory="gru", reward_input=True), Recall, {"one": recall_logs()})
    rollouts = list(play(TrainedAgent(trainer.network, trainer.worlds), Recall(), 3, seed=5))
    assert [len(rollout) for rollout in rollouts] == [4, 4, 4]
    assert rollouts == list(play(TrainedAgent(trainer.network, trainer.worlds), Recall(), 3, seed=5))
    assert all(step[3] == after[0] for rollout in rollouts for step, after in pairwise(rollout))


def recall_logs() -> list[list[Transition]]:
    return list(behave(Recall(), "conservative", lambda seen: 1, 20))


def test_logs_are_read_as_they_were_written(folder: Path) -> None:
    logs = read_logs(folder)
    episodes = play_chain(0.5, 40)
    assert list(logs) == episodes
    assert logs[-2:] == episodes[-2:]
    assert (logs.by, logs.name, logs.steps) == ("a coin", "chain-v0", [len(episode) for episode in episodes])
    assert logs.paid == pytest.approx([sum(step[2] for step in episode) for episode in episodes])
    assert logs.terminated == [episode[-1][4] for episode in episodes]
    assert (logs.observation_space, logs.action_space) == (Chain.observation_space, Chain.action_space)
    assert len(read_logs(folder / "data", episodes=3)) == 3


def test_logs_of_nested_spaces_are_read_as_they_were_written(tmp_path: Path) -> None:
    pytest.importorskip("h5py", reason="the extra control brings it")
    VALUES.seed(0)
    seen = [VALUES.sample() for _ in range(4)]
    action = spaces.MultiDiscrete([2, 3])
    episode = [(before, np.array([1, 2]), 0.5, after, False) for before, after in pairwise(seen)]
    logs = write_logs(tmp_path / "nested", [episode], VALUES, action, by="a test")
    assert (logs.observation_space, logs.action_space) == (VALUES, action)
    for before, after in zip(episode, logs[0], strict=True):
        assert np.array_equal(before[0]["place"], after[0]["place"])
        assert before[0]["both"][0] == after[0]["both"][0]
        assert np.array_equal(before[0]["both"][1], after[0]["both"][1])
        assert VALUES.contains(after[0])


def test_training_from_a_folder_equals_training_from_the_episodes(folder: Path) -> None:
    weights = []
    for logs in (read_logs(folder), play_chain(0.5, 40)):
        trainer = OffPolicyTrainer(small(memory="gru", logged=20), Chain, {"logs": logs})
        list(trainer.train())
        weights.append(trainer.network.state_dict())
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())


def test_minari_reads_our_logs_and_we_read_its(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    minari = pytest.importorskip("minari", reason="make test-control brings it")
    theirs = minari.MinariDataset(folder / "data")
    episodes = play_chain(0.5, 40)
    assert (theirs.total_episodes, theirs.total_steps) == (40, sum(map(len, episodes)))
    for read, episode in zip(theirs, episodes, strict=True):
        before, done, paid, after, over = zip(*episode, strict=True)
        assert (*read.observations.tolist(), *read.actions.tolist()) == (*before, after[-1], *done)
        assert (read.rewards.tolist(), read.terminations.tolist()) == (list(paid), list(over))
        assert bool(read.truncations[-1]) is not over[-1]
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    world, buffers = gymnasium.make("CartPole-v1"), []
    for seed in range(3):
        seen, rows, over = [world.reset(seed=seed)[0]], list[tuple[Any, ...]](), False
        while not over:
            action = world.action_space.sample()
            after, paid, over, cut, _ = world.step(action)
            seen.append(after)
            rows.append((action, paid, over, cut))
        fields = zip(("actions", "rewards", "terminations", "truncations"), zip(*rows, strict=True), strict=True)
        columns = {name: list(column) for name, column in fields}
        buffers.append(minari.data_collector.EpisodeBuffer(observations=np.array(seen), **columns))
    made = minari.create_dataset_from_buffers(
        "cartpole/random-v0", buffers, env="CartPole-v1", algorithm_name="a random policy"
    )
    logs = read_logs(tmp_path / "minari" / "cartpole" / "random-v0")
    assert (len(logs), sum(logs.steps), logs.by) == (3, made.total_steps, "a random policy")
    assert (logs.world, logs.name) == ("CartPole-v1", "random-v0")
    for read, episode in zip(made, logs, strict=True):
        assert np.array_equal(read.observations[1:], [step[3] for step in episode])
        assert read.actions.tolist() == [step[1] for step in episode]


def change(folder: Path, of: Callable[[Any], None]) -> None:
    """Changes the file of logs."""
    import h5py

    with h5py.File(folder / "data" / "main_data.hdf5", "r+") as file:
        of(file)


def set_last(file: Any) -> None:
    file["episode_3/terminations"][-1] = file["episode_3/truncations"][-1] = False


def set_first(file: Any) -> None:
    file["episode_0/truncations"][0] = True


def shorten(file: Any) -> None:
    rows = file["episode_0/actions"][()]
    del file["episode_0/actions"]
    file["episode_0/actions"] = rows[:-1]


@pytest.mark.parametrize(("of", "says"), [
    (set_last, r"Episode 3 .* has no end: .* Set the last of truncations to true"),
    (set_first, r"Episode 0 .* goes on after step 0.* Begin another episode"),
    (shorten, r"Episode 0 .* has \d+ actions for \d+ steps"),
    (lambda file: file.pop("episode_1"), r"Episode 1 .* is missing.*without a gap"),
    (lambda file: file["episode_2"].pop("terminations"), r"Episode 2 .* has no terminations.*Mark where an episode ended"),
    (lambda file: file.clear(), r"have no episode.*Log some"),
])  # fmt: skip
def test_damaged_logs_are_named_with_the_fix(folder: Path, of: Callable[[Any], None], says: str) -> None:
    change(folder, of)
    with pytest.raises(LogError, match=says):
        read_logs(folder)


def test_logs_without_rewards_teach_imitation_alone(folder: Path) -> None:
    change(folder, lambda file: file["episode_4"].pop("rewards"))
    logs = {"chain": read_logs(folder)}
    assert np.isnan(logs["chain"].paid[4])
    with pytest.raises(WorldError, match=r"Episode 4 .* no finite number, at step 0.*learner to \"bc\""):
        OffPolicyTrainer(small(), Chain, logs)
    OffPolicyTrainer(small(learner="bc"), Chain, logs).update()


def test_logs_of_another_space_or_larger_than_memory_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = {"chain": read_logs(folder)}
    with pytest.raises(WorldError, match=r"'chain' has values of Discrete\(2\), and the world small of Box"):
        OffPolicyTrainer(small(), Slope, logs)
    monkeypatch.setattr(replay_module, "free_bytes", lambda: 10_000)
    with pytest.raises(SettingError, match=r"logs have \d+ rows of \d+ bytes.*have (\d+) rows or less: read_logs"):
        OffPolicyTrainer(small(capacity=100), Chain, logs)


def test_folders_that_are_no_logs_are_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"holds no logs.*below it: .*chain-v0"):
        read_logs(tmp_path)
    with pytest.raises(LogError, match=r"holds logs.*never written over"):
        write_logs(folder, play_chain(0.5, 1), Chain.observation_space, Chain.action_space, by="a coin")
    with pytest.raises(LogError, match="no episode to write"):
        write_logs(tmp_path / "empty", [], Chain.observation_space, Chain.action_space, by="a coin")
    with pytest.raises(LogError, match=r"actions such as 1, outside Discrete\(1\)"):
        write_logs(tmp_path / "other", play_chain(1.0, 1), Chain.observation_space, spaces.Discrete(1), by="a coin")
    about = folder / "data" / "metadata.json"
    metadata = json.loads(about.read_text())
    for name, value, says in (
        ("observation_space", json.dumps({"type": "Text"}), "space Text, which networks here do not take"),
        ("data_format", "arrow", "format 'arrow'.*data_format=\"hdf5\""),
        ("observation_space", None, "do not say their observation_space"),
    ):
        changed = {key: of for key, of in {**metadata, name: value}.items() if of is not None}
        about.write_text(json.dumps(changed))
        with pytest.raises(LogError, match=says):
            read_logs(folder)


@pytest.mark.parametrize(("bad", "says"), [
    ({"steps": 0, "logged": 0}, "steps = 0 and logged = 0 learn from no step"),
    ({"learner": "bc", "steps": 10}, "'bc' imitates logs, and steps = 10"),
    ({"learner": "bc", "steps": 0, "logged": 5, "clone": 1.0}, "clone and n_step have no effect with learner = 'bc'"),
    ({"learner": "td3", "conservative": 1.0}, "conservative has no effect with learner = 'td3'"),
    ({"learner": "sac", "expectile": 0.7}, "expectile has no effect with learner = 'sac'"),
    ({"learner": "iql", "expectile": 1.2}, r"expectile = 1.2 is not in \[0, 1\]"),
])  # fmt: skip
def test_settings_of_logs_that_do_not_fit_are_named(bad: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingError, match=says):
        OffPolicySettings(**bad)


def test_updates_from_logs_without_logs_are_named() -> None:
    with pytest.raises(SettingError, match=r"logged = 400 learns from logs.*--logs FOLDER"):
        OffPolicyTrainer(small(), Chain)


def test_the_command_writes_logs_learns_from_them_and_plays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("h5py", reason="the extra control brings it")
    small = [word for name in ("width=8", "batch=4", "length=8", "every=100") for word in ("--set", name)]
    teacher, logs, pupil = (str(tmp_path / name) for name in ("teacher", "cartpole", "pupil"))
    train = ["control", "train", "--memory", "gru", *small]
    first = [*train, "--world", "CartPole-v1", "--learner", "sac", "--steps", "200", "--set", "ratio=0.02"]
    assert main([*first, "--folder", teacher]) == 0
    assert main(["control", "play", teacher, "--episodes", "4", "--draw", "--logs", logs]) == 0
    assert main(["control", "logs", logs]) == 0
    out = capsys.readouterr().out
    assert "4 episodes in CartPole-v1" in out
    assert "by keepworth control, sac, returns" in out
    assert main([*train, "--logs", logs, "--updates", "150", "--folder", pupil]) == 0
    assert "150 of 150 updates from logs" in capsys.readouterr().out
    assert main(["control", "play", pupil, "--world", "CartPole-v1", "--episodes", "2", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["returns"]) == 2
    on = [*train, "--logs", logs, "--updates", "100", "--learner", "sac", "--share", "play=1"]
    assert main([*on, "--steps", "100", "--set", "warmup=50", "--folder", str(tmp_path / "on")]) == 0
    assert "100 of 100 steps" in capsys.readouterr().out
    for words, hint in (
        (["control", "play", pupil], "Give --world ID"),
        ([*train, "--updates", "5"], "have no effect without --logs"),
        ([*train, "--logs", logs, "--learner", "ppo"], "PPO learns from nothing but what it plays"),
        ([*train, "--logs", logs, "--learner", "sac", "--share", "play"], "no NAME=SHARE"),
        ([*train, "--logs", logs, "--logs", logs], "Two folders of logs are named 'cartpole'"),
        ([*train, "--logs", str(tmp_path)], "below it"),
        ([*train, "--logs", logs, "--world", "Pendulum-v1"], "Name the world that was logged"),
    ):
        assert main([*words, *(["--folder", str(tmp_path / "other")] if "train" in words else [])]) == 2
        assert hint in capsys.readouterr().err
        assert not (tmp_path / "other").exists()


class Drift(gymnasium.Env[Any, Any]):
    """A number that an action moves, with a push that is hidden; a step pays 1 minus the squared action."""

    observation_space = spaces.Box(-10.0, 10.0, (1,), np.float32)
    action_space: spaces.Space[Any] = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.time = self.np_random.uniform(-1, 1, 1).astype(np.float32), 0
        return self.place, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        moved = float(action[0]) if isinstance(self.action_space, spaces.Box) else float(action) - 1.0
        self.place = (0.9 * self.place + moved).astype(np.float32)
        return self.place, 1.0 - moved**2, False, self.time == 8, {}


class Stepped(Drift):
    """The same with three choices: back, nothing, forth."""

    action_space = spaces.Discrete(3)


def lacking(world: gymnasium.Env[Any, Any], labelled: int, of: int) -> tuple[list[Any], list[Any]]:
    """Logs of random actions: whole, and with the labels (1: actions, 2: rewards) of some episodes alone."""
    whole = list(behave(world, "conservative", lambda seen: world.action_space.sample(), 60))
    gaps = [
        [
            tuple(None if place == of and number >= labelled else value for place, value in enumerate(step))
            for step in log
        ]
        for number, log in enumerate(whole)
    ]
    return whole, gaps


@pytest.mark.parametrize("world", [Drift, Stepped])
@pytest.mark.parametrize(("of", "name"), [(1, "actions"), (2, "rewards")])
def test_labels_are_filled_in_from_those_of_a_few_episodes(world: Any, of: int, name: str) -> None:
    whole, gaps = lacking(world(), 10, of)
    filled = fill_in(gaps, world.observation_space, world.action_space)
    assert {"actions": filled.actions, "rewards": filled.rewards} == {"actions": 0, "rewards": 0, name: 50 * 8}
    assert filled.explained[name] > 0.8
    pairs = [(a, b) for log, made in zip(whole, filled.episodes, strict=True) for a, b in zip(log, made, strict=True)]
    assert all(step[:of] + step[of + 1 :] == made[:of] + made[of + 1 :] for step, made in pairs)
    assert all(step is not None and world.action_space.contains(made[1]) for step, made in pairs)
    errors = [abs(np.ravel(step[of])[0] - np.ravel(made[of])[0]) for step, made in pairs]
    assert np.mean(errors[: 10 * 8]) == 0.0  # what was known stays
    assert np.mean(errors) < 0.1


def test_labels_that_cannot_be_learned_are_named() -> None:
    whole, gaps = lacking(Drift(), 1, 2)
    with pytest.raises(LogError, match="1 episodes have rewards, and 2 are needed"):
        fill_in(gaps, Drift.observation_space, Drift.action_space)
    draw = np.random.default_rng(0)
    _, gaps = lacking(Drift(), 30, 2)
    noise = [[(a, b, c and draw.normal(), d, e) for a, b, c, d, e in log] for log in gaps]
    with pytest.raises(LogError, match=r"teach nothing of those held out.*raise past"):
        fill_in(noise, Drift.observation_space, Drift.action_space, updates=50)
    with pytest.raises(LogError, match="No step of the logs has an action"):
        fill_in(lacking(Drift(), 0, 1)[1], Drift.observation_space, Drift.action_space)
    untouched = fill_in(whole, Drift.observation_space, Drift.action_space)
    assert (untouched.rewards, untouched.actions, untouched.explained) == (0, 0, {})
    assert [[step[2] for step in log] for log in untouched.episodes] == [[step[2] for step in log] for log in whole]


@pytest.mark.parametrize("name", slow_but_for(["iql", "cql"], ["iql", "cql", "wsrl", "ss_orl"]))
def test_each_method_gets_the_best_actions_of_a_slope_from_logs(name: str) -> None:
    draw = np.random.default_rng(0)
    logs = list(behave(Slope(), "conservative", lambda seen: draw.uniform(-2, 4, 1).astype("f4"), 100))
    if name == "ss_orl":
        logs = [
            [(*step[:2], None if number >= 30 else step[2], *step[3:]) for step in log]
            for number, log in enumerate(logs)
        ]
    more = {"steps": 100, "warmup": 50, "conservative": 0.1} if name == "wsrl" else {}
    trainer = method("control_agent", name).make(
        Slope, "mlp", logs={"noise": logs}, action_input=False, updates=300, every=100, width=32, batch=16, length=6,
        learning_rate=3e-3, tau=0.05, discount=0.9, capacity=3000, **more,
    )  # fmt: skip
    list(trainer.train())
    agent = TrainedAgent(trainer.network, trainer.worlds)
    done = [float(agent.predict(place)[0][0]) for place in range(3)]
    assert done == pytest.approx(Slope.best, abs=0.9)  # chance is 1.7 away


def test_the_command_fills_in_rewards(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(folder, lambda file: [file[f"episode_{number}"].pop("rewards") for number in range(20, 40)])
    train = ["control", "train", "--logs", str(folder), "--memory", "mlp", "--updates", "20", "--set", "length=4"]
    train += ["--folder", str(tmp_path / "run")]
    assert main(train) == 2
    assert "no finite number" in capsys.readouterr().err
    assert main([*train, "--fill"]) == 0
    assert "rewards filled in, 100% explained" in capsys.readouterr().out


def test_the_example_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """The one of docs/offline.md: its logs are read back."""
    pytest.importorskip("h5py", reason="the extra control brings it")
    page = Path(__file__).parents[2] / "docs" / "offline.md"
    code = page.read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(page), "exec"), {})
    assert capsys.readouterr().out.startswith("20 the operators of the night shift 1.0")
