"""RA-DT: what is found is what the formula says, and a new task is learned from its own earlier episodes alone."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from keepworth.control.dials import Transition
from keepworth.control.errors import SpaceError, WorldError
from keepworth.control.logs import rows_of
from keepworth.control.settings import SettingError
from keepworth.control.spaces import ActionSpace, ObservationSpace
from keepworth.methods.control._sub_trajectories import RetrievalSettings, RetrievalTrainer, cut, rank
from keepworth.registry import method
from tests.control.worlds import Slope

SMALL: dict[str, Any] = {
    "context": 4, "size": 2, "updates": 60, "every": 30, "batch": 32, "width": 16, "layers": 1, "heads": 2, "keys": 16,
    "candidates": 6, "learning_rate": 1e-2,
}  # fmt: skip


class Doors(gymnasium.Env[int, int]):
    """Three doors, of which that of the task pays 1 in the first of three steps."""

    observation_space = spaces.Discrete(4)
    action_space = spaces.Discrete(3)

    def __init__(self, door: int = 0) -> None:
        self.door = door

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        self.time = 0
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return self.time, float(self.time == 1 and action == self.door), self.time == 3, False, {}


def log(door: int, actions: list[int]) -> list[Transition]:
    return [
        (time, action, float(time == 0 and action == door), time + 1, time == 2) for time, action in enumerate(actions)
    ]


def logs(seed: int = 0) -> dict[str, list[list[Transition]]]:
    """For each door first steps at random, and later ones mostly to the door."""
    draw = np.random.default_rng(seed)

    def act(door: int, episode: int) -> list[int]:
        return [door if draw.random() < episode / 10 else int(draw.integers(3)) for _ in range(3)]

    return {f"door {door}": [log(door, act(door, episode)) for episode in range(12)] for door in range(3)}


def make(**settings: Any) -> RetrievalTrainer:
    made = method("control_agent", "ra_dt").make(Doors, logs=logs(), **{**SMALL, **settings})
    assert isinstance(made, RetrievalTrainer)
    return made


def test_an_episode_is_cut_with_the_steps_before_and_the_rewards_still_to_come() -> None:
    seen, done = ObservationSpace(Doors.observation_space), ActionSpace(Doors.action_space)
    columns = cut(rows_of(log(1, [1, 2, 2]), "It", seen, done), done, 2)
    assert columns["tokens"].tolist() == [
        [[1, 0, 0, 0, 0, 0, 0, 0, 1], [0, 1, 0, 0, 0, 1, 0, 1, 0]],
        [[0, 0, 1, 0, 0, 0, 1, 0, 0], [0] * 9],
    ]
    assert columns["reads"].tolist() == [
        [[1, 0, 0, 0, 0, 1, 0, 1, 1], [0, 1, 0, 0, 0, 0, 1, 0, 0]],
        [[0, 0, 1, 0, 0, 0, 1, 0, 0], [0] * 9],
    ]
    assert columns["done"].tolist() == [[1, 2], [2, 0]]
    assert columns["valid"].tolist() == [[True, True], [True, False]]


@pytest.mark.parametrize(("weights", "order"), [
    ((1.0, 0.0), [0, 2, 1]), ((0.0, 1.0), [1, 2, 0]), ((1.0, 2.0), [1, 2, 0]), ((2.0, 1.0), [0, 2, 1]), ((1.0, 1.0), [0, 1, 2]),
])  # fmt: skip
def test_candidates_are_ranked_by_the_weighted_sum_of_both_scaled_over_them(
    weights: tuple[float, float], order: list[int]
) -> None:
    assert rank(np.array([0.9, 0.5, 0.7]), np.array([0.0, 4.0, 2.0]), weights).tolist() == order
    assert rank(np.array([0.5, 0.5]), np.array([1.0, 1.0]), weights).tolist() == [0, 1]


class Plain:
    """An index that compares a query with all rows."""

    def __init__(self, size: int) -> None:
        self.rows: list[tuple[int, int, Any]] = []

    def put(self, numbers: Any, scopes: Any, vectors: Any) -> None:
        self.rows += zip(numbers, scopes, vectors, strict=True)

    def search(self, query: Any, count: int, scope: int, allowed: Any) -> list[tuple[int, float]]:
        inside = [row for row in self.rows if row[1] == scope and (allowed is None or allowed[row[0]])]
        return sorted(((number, float(query @ of)) for number, _, of in inside), key=lambda hit: -hit[1])[:count]


def test_readings_are_the_most_similar_of_the_same_task_of_another_episode_and_no_near_copies() -> None:
    trainer = make(context=4)
    memory, nearest = trainer.memory, trainer.neighbours.numpy()
    assert (nearest >= 0).mean() > 0.5
    for number, row in enumerate(nearest):
        context = memory.episodes[max(0, number - 1) : number + 1]
        hits = row[row >= 0]
        assert (memory.tasks[hits] == memory.tasks[number]).all()
        assert not np.isin(memory.episodes[hits], context).any()
    keys = memory.keys(memory.columns["reads"], memory.columns["valid"])
    number = 2 * 5 + 1  # the second half of an episode, whose query is the first half
    cosines = keys @ keys[number - 1]
    left = (memory.tasks == 0) & (memory.episodes != memory.episodes[number]) & (cosines <= 0.98)
    assert cosines[nearest[number, 0]] == pytest.approx(cosines[left].max(), abs=1e-5)
    plain = make(index=Plain).neighbours.numpy()
    worst = np.abs(np.where(plain >= 0, (keys[plain] * keys[nearest]).sum(-1), 1.0) - 1.0).max()
    assert worst < 1e-4  # equal but for the order of equal keys


def test_order_in_which_episodes_were_added_changes_no_reading() -> None:
    trainer = make()
    episodes = [cut(rows_of(log(0, actions), "It", trainer.observations, trainer.actions), trainer.actions, 2)
                for actions in ([0, 1, 2], [2, 2, 0], [1, 1, 0], [0, 0, 0])]  # fmt: skip
    read = []
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        memory = type(trainer.memory)(trainer.make_index(16), trainer.keys, trainer.settings)
        for at in order:
            memory.add(episodes[at], 0)
        queries = [trainer.keys(of["reads"], of["valid"])[0] for of in episodes]
        read.append(memory.read(torch.tensor([memory.find(query, 0, 1.0)[0] for query in queries])))
    assert torch.equal(read[0][0], read[1][0])
    assert torch.equal(read[0][1], read[1][1])


def test_output_without_an_earlier_episode_is_that_without_retrieval_and_no_later_step_reaches_it() -> None:
    trainer = make()
    tokens, valid = torch.randn(3, 4, 9), torch.ones(3, 4, dtype=torch.bool)
    valid[0, :2] = False
    absent = trainer.memory.read(torch.tensor([-1, -1, -1]))
    reading = trainer.memory.read(torch.tensor([4, 4, 4]))
    with torch.no_grad():
        plain = trainer.network(tokens, valid)
        torch.testing.assert_close(trainer.network(tokens, valid, absent), plain)
        assert not torch.allclose(trainer.network(tokens, valid, reading), plain)
        later = tokens.clone()
        later[:, 3] += 1.0
        torch.testing.assert_close(
            trainer.network(later, valid, reading)[:, :3], trainer.network(tokens, valid, reading)[:, :3]
        )
        masked = tokens.clone()
        masked[0, :2] += 1.0
        torch.testing.assert_close(trainer.network(masked, valid)[0, 2:], plain[0, 2:])


def test_each_reading_ends_with_the_episode() -> None:
    memory = make().memory
    _, valid = memory.read(torch.tensor([0, 1, -1]))
    assert valid.tolist() == [[True, True, True, False], [True, False, False, False], [False] * 4]


def test_a_new_task_is_learned_from_its_own_episodes_and_not_from_those_of_another() -> None:
    worlds = [Doors(task % 3) for task in range(30)]
    begun, learned, misled = list[float](), list[float](), list[float]()
    for seed in range(3):
        trainer = make(updates=300, temperature=0.5, layers=2, seed=seed)
        list(trainer.train())
        own, another = (trainer.play(worlds, 10, reads=reads, seed=1) for reads in ("own", "another"))
        begun.append(own[:, 0].mean())
        learned.append(own[:, 6:].mean())
        misled.append(another[:, 6:].mean())
    # Chance is a third: before an episode is there to be read, and below it where what is read is of another door.
    assert np.mean(begun) < 0.5
    assert np.mean(learned) > 0.5
    assert np.mean(misled) < 0.35
    assert np.mean(learned) - np.mean(misled) > 0.25


def test_a_run_that_was_stopped_goes_on_to_the_same_weights_and_plays_the_same() -> None:
    whole, first, second = make(), make(), make()
    list(whole.train())
    first.update()
    second.load(first.save())
    list(second.train())
    assert [{**row, "seconds": 0} for row in whole.curve] == [{**row, "seconds": 0} for row in second.curve]
    played = [trainer.play([Doors(0), Doors(1)], 3).tolist() for trainer in (whole, second)]
    assert played[0] == played[1]


@pytest.mark.parametrize(("bad", "says"), [
    ({"context": 3}, "context = 3 is no multiple of size = 2"),
    ({"heads": 3}, "width = 16 is no multiple of heads = 3"),
    ({"variety": 0}, "variety = 0 is less than 1"),
])  # fmt: skip
def test_settings_that_do_not_fit_are_named(bad: dict[str, int], says: str) -> None:
    with pytest.raises(SettingError, match=says):
        RetrievalSettings(**{**SMALL, **bad})


def test_logs_and_worlds_that_do_not_fit_are_named() -> None:
    agent = method("control_agent", "ra_dt")
    with pytest.raises(SettingError, match="task 'lone' has a single episode"):
        agent.make(Doors, logs={"lone": [log(0, [0, 1, 2])]}, **SMALL)
    with pytest.raises(SettingError, match="There is no log"):
        agent.make(Doors, logs={}, **SMALL)
    with pytest.raises(SpaceError, match="one choice at a time"):
        agent.make(Slope, logs=logs(), **SMALL)
    with pytest.raises(WorldError, match="Episode 0 of the log 'door 0' has an action 5"):
        agent.make(Doors, logs={"door 0": [[(0, 5, 0.0, 1, True)]] * 2}, **SMALL)
