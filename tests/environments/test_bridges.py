"""Environments of other libraries, played as ours are. Those of Gymnasium are plain classes: here are some."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import gymnasium
import pytest
from gymnasium.spaces import Discrete, Text

from keepworth.records.episode import Episode, Observation, StopReason, Task
from keepworth.worlds.agent import Action, Caller
from keepworth.worlds.bridges import UnplayableEnvironment, adapt, playable
from keepworth.worlds.driver import Limits, run_episode
from keepworth.worlds.environment import Environment, Step
from keepworth.worlds.own import own_tasks
from keepworth.worlds.question import Question

ROWS = [
    {"prompt": [{"role": "user", "content": "Find the number."}], "number": number, "seed": number, "split": split}
    for number, split in ((3, "train"), (5, "dev"), (7, "test"))
]
TASKS = own_tasks(ROWS, by_row=True).all


class Says:
    def __init__(self, says: list[str]) -> None:
        self.says, self.seen = says, list[str]()

    async def act(self, observation: Observation, model: Caller) -> Action:
        self.seen.append(observation.text)
        return Action(self.says[len(self.seen) - 1])


def played(world: Environment, says: list[str], task: Task = TASKS[0], turns: int = 9) -> tuple[Episode, list[str]]:
    """An episode in which the model says these, and what it was told."""
    agent = Says(says)
    episode = asyncio.run(run_episode(task, world, agent, limits=Limits(max_turns=turns)))
    return episode, agent.seen


@dataclass
class Walk:
    """To the right end of a line; the seed says how long it is."""

    action_space: Any = field(default_factory=lambda: Discrete(2, start=1))
    observation_space: Any = field(default_factory=lambda: Text(100))
    action_names: tuple[str, ...] | None = ("left", "right")
    render_mode: str | None = None
    spec: Any = field(default_factory=lambda: SimpleNamespace(id="Walk-v0"))
    closed: int = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        assert seed is not None
        self.place, self.end = 0, seed
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place += {1: -1, 2: 1}[action]
        return self._seen(), -0.25, self.place >= self.end, self.place < -1, {}

    def render(self) -> str:
        return "\n" + "".join(f"\x1b[41m{i}\x1b[0m" if i == self.place else str(i) for i in range(self.end))

    def close(self) -> None:
        self.closed += 1

    def _seen(self) -> Any:
        return self.place if self.render_mode else f"You are at {self.place} of {self.end}."


def test_a_game_of_gymnasium_is_played_by_the_names_of_its_actions() -> None:
    game = Walk()
    episode, seen = played(playable(game), ["right", "Left.", "jump", "right", "right", "right"])
    assert seen[0] == "Find the number.\n\nYou are at 0 of 3.\nActions: left, right"
    assert seen[3] == "There is no action 'jump'.\nActions: left, right"
    assert (episode.stop, episode.reward, game.closed) == (StopReason.COMPLETED, -1.25, 1)
    episode, _ = played(playable(Walk()), ["left", "left"])
    assert (episode.stop, episode.reward) == (StopReason.MAX_TURNS, -0.5), "truncated"


def test_a_game_is_seen_as_it_is_drawn_and_a_group_plays_one_world() -> None:
    drawn = Walk(render_mode="ansi", observation_space=Discrete(3), action_names=None)
    _, seen = played(playable(drawn), ["1"], turns=1)
    assert seen == ["Find the number.\n\n[0]12\nActions: 0, 1"]
    without = own_tasks([{"prompt": "Walk."}]).all[0]
    worlds = {played(playable(Walk()), ["left"], without, turns=1)[1][0] for _ in range(3)}
    assert len(worlds) == 1


def test_a_real_world_of_gymnasium_is_played_to_its_goal() -> None:
    row = {"prompt": "Reach G. H is a hole.", "seed": 0, "actions": ["left", "down", "right", "up"]}
    task = own_tasks([row, {**row, "seed": 1}]).all[0]
    make = adapt(lambda: gymnasium.make("FrozenLake-v1", render_mode="ansi", is_slippery=False), task)
    episode, seen = played(make(task), ["down", "down", "right", "right", "down", "right"], task)
    assert "[S]FFF\nFHFH\nFFFH\nHFFG" in seen[0], "where one stands is marked in brackets"
    assert (episode.stop, episode.reward, len(seen)) == (StopReason.COMPLETED, 1.0, 6)
    episode, seen = played(make(task), ["right", "down"], task)
    assert (episode.stop, episode.reward, len(seen)) == (StopReason.COMPLETED, 0.0, 2), "a hole"


def test_world_without_text_observations_is_refused_with_a_fix() -> None:
    with pytest.raises(UnplayableEnvironment, match="TransformObservation"):
        adapt(lambda: gymnasium.make("CartPole-v1"), TASKS[0])


def test_texts_and_listed_actions() -> None:
    class Typed(Walk):
        def step(self, action: Any) -> Any:
            return f"You say {action}.", 1.0, action == "bye", False, {"admissible_commands": ["hello", "bye"]}

    episode, seen = played(playable(Typed(action_space=Text(100), action_names=None)), ["hello", "bye"])
    assert seen[1] == "You say hello.\nActions: hello, bye"
    assert episode.reward == 2.0


def test_a_function_that_returns_one_object_is_refused() -> None:
    game = Walk()
    with pytest.raises(UnplayableEnvironment, match="returns the same object each time"):
        adapt(lambda: game, TASKS[0])


def test_ours_are_played_as_they_are() -> None:
    question = Question(lambda task, answer: 1.0)
    assert playable(question) is question

    class Plain:
        def reset(self, task: Task, seed: int) -> Observation:
            return Observation(task.input)

        def step(self, action: str) -> Step:
            return Step(stop=StopReason.COMPLETED, answer=action)

        def close(self) -> None: ...

    assert played(adapt(Plain, TASKS[0])(TASKS[0]), ["yes"])[0].answer == "yes"
    assert adapt(lambda task: Plain(), TASKS[0])(TASKS[0]) is not None
    assert adapt(Plain, TASKS[0]).__qualname__.endswith("Plain"), "a run has its name on file"


def test_each_episode_has_an_object_of_its_own() -> None:
    make = adapt(Walk, TASKS[0])
    assert make(TASKS[0]) is not make(TASKS[1])


@pytest.mark.parametrize(
    ("handed", "said"),
    [
        (3, "3 is no environment"),
        (Walk(), "Walk.* is no environment"),
        (lambda: object(), "object cannot be played: it has nothing"),
        (lambda: Walk(action_space=SimpleNamespace(shape=(3,))), "actions of Walk-v0 are"),
        (lambda: Walk(observation_space=Discrete(4)), "seen in Walk-v0 is Discrete"),
        (lambda task: 1 / 0, "cannot be made for rows/1: ZeroDivisionError"),
    ],
)
def test_unplayable_environment_is_named(handed: Any, said: str) -> None:
    with pytest.raises(UnplayableEnvironment, match=said) as caught:
        adapt(handed, TASKS[0])
    assert caught.value.fix


def test_names_of_actions_must_fit() -> None:
    episode, _ = played(playable(Walk(action_names=("left",))), ["left"])
    assert episode.stop is StopReason.ENVIRONMENT_ERROR
    assert "has 2 actions, and is given the names left" in episode.errors[0]


def test_rows_of_one_prompt_are_different_tasks_where_an_environment_makes_worlds_of_them() -> None:
    rows = [{"prompt": "Walk.", "seed": number} for number in range(9)]
    assert len(own_tasks(rows).by_split["train"]) == 9, "one question is on one side"
    assert all(own_tasks(rows, by_row=True).by_split.values())
    twice = own_tasks([*rows, rows[0]], by_row=True)
    assert len({split for split in twice.by_split for task in twice.by_split[split] if task.row["seed"] == 0}) == 1
