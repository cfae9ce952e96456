"""Environments of other libraries, played as ours are. Those of TRL and Gymnasium are plain classes: here are some."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from keepworth.agents.agent import Action, Caller
from keepworth.environments.bridges import UnplayableEnvironment, adapted, playable
from keepworth.environments.environment import Environment, Step
from keepworth.environments.question import Question
from keepworth.episodes.episode import Episode, Observation, StopReason, Task
from keepworth.episodes.errors import UnknownName
from keepworth.rollouts.driver import Limits, run_episode
from keepworth.tasks.own import own_tasks

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


def played(
    environment: Environment, says: list[str], task: Task = TASKS[0], turns: int = 9
) -> tuple[Episode, list[str]]:
    """An episode in which the model says these, and what it was told."""
    agent = Says(says)
    episode = asyncio.run(run_episode(task, environment, agent, limits=Limits(max_turns=turns)))
    return episode, agent.seen


# TRL's.


def test_a_tool_is_called_by_the_name_of_its_argument_or_not_at_all() -> None:
    class Looks:
        def __init__(self) -> None:
            self.seen: list[str] = []

        def reset(self, **row: Any) -> None: ...

        def look(self, where: str) -> str:
            """Look there.

            Args:
                where: the place
            """
            self.seen.append(where)
            return f"{where} is empty."

        def get_reward(self) -> float:
            return float(len(self.seen))

    world = Looks()
    calls = [
        'look: {"wher": "x"}',
        "look: {}",
        'lokk: {"where": "x"}',
        'look: {"where": "x"}',
        "look: y",
        "answer: done",
    ]
    episode, seen = played(playable(world), calls)
    assert world.seen == ["x", "y"]
    assert seen[1] == seen[2] == 'Error: look takes {"where": ...}'
    assert seen[3] == "Error: there is no tool 'lokk': look"
    assert (episode.reward, episode.answer) == (2.0, "done")


class Guessing:
    """A number is to be found; what `_` begins is no tool."""

    made = 0

    def __init__(self) -> None:
        type(self).made += 1
        self.closest = 0.0

    def reset(self, *, number: int, **row: Any) -> str:
        self._number, self.closest = number, 0.0
        return " It is below 10."

    def guess(self, number: int, why: str = "") -> str:
        """
        Guess the number.

        Args:
            number: The guess.
            why: Why it should be that.
        """
        self.closest = max(self.closest, 1.0 - abs(self._number - number) / 10)
        return "Right." if number == self._number else "Too low." if number < self._number else "Too high."

    async def hint(self, about: str) -> str:
        """
        Ask something.

        Args:
            about: What.
        """
        if about != "parity":
            raise ValueError("only parity")
        return "odd" if self._number % 2 else "even"

    def _helper(self) -> None: ...

    def get_reward(self) -> float:
        return self.closest


def test_a_class_of_trl_is_played_with_its_tools() -> None:
    episode, seen = played(
        adapted(Guessing, TASKS[0])(TASKS[0]),
        [
            "hint: parity",
            "hint: size",
            'guess: {"number": 5, "why": "odd"}',
            'guess: {"number": 3}',
            "answer: It is 3.",
        ],
    )
    assert seen == ["Find the number. It is below 10.", "odd", "Error: only parity", "Too high.", "Right."]
    assert (episode.reward, episode.stop, episode.answer) == (1.0, StopReason.COMPLETED, "It is 3.")
    assert [term.name for term in episode.rewards] == ["Guessing"]
    assert "hint" in episode.errors[0]


def test_an_episode_of_trl_whose_turns_are_used_up_has_what_it_earned() -> None:
    episode, _ = played(adapted(Guessing, TASKS[0])(TASKS[0]), ['guess: {"number": 5}', "guess: {}"], turns=2)
    assert (episode.reward, episode.stop) == (pytest.approx(0.8), StopReason.MAX_TURNS)


def test_tools_of_trl_are_described_by_docstrings_and_hints() -> None:
    observation = asyncio.run(playable(Guessing()).reset(TASKS[0], 0))
    guess, hint = observation.tools
    assert (hint.name, hint.argument, hint.does, hint.parameters) == ("hint", "about", "Ask something.", {})
    assert guess.parameters["required"] == ["number"]
    assert guess.parameters["properties"]["why"] == {"type": "string", "description": "Why it should be that."}
    assert observation.messages[-1]["content"] == "Find the number. It is below 10."
    assert TASKS[0].row["prompt"][0]["content"] == "Find the number.", "the row stays as it was"


def test_each_episode_has_an_object_of_its_own() -> None:
    make, before = adapted(Guessing, TASKS[0]), Guessing.made
    one, other = make(TASKS[0]), make(TASKS[1])
    assert one is not other
    assert Guessing.made == before + 2
    kept = Guessing()
    make, before = adapted(kept, TASKS[0]), Guessing.made
    played(make(TASKS[0]), ['guess: {"number": 3}', "done"])
    assert (kept.closest, Guessing.made) == (0.0, before), "a copy was played"


def test_a_row_names_one_of_several_environments() -> None:
    rows = [{"prompt": "Find it.", "number": 4, "environment": "guessing"}, {"prompt": "2?", "environment": "plain"}]
    guessing, plain = (own_tasks([row] * 1).all[0] for row in rows)
    make = adapted({"guessing": Guessing, "plain": lambda task: Question(lambda task, answer: 0.5)}, guessing)
    assert played(make(guessing), ["4"], guessing)[0].rewards[0].name == "Guessing"
    assert played(make(plain), ["4"], plain)[0].reward == 0.5
    with pytest.raises(UnknownName, match="guessing"):
        make(TASKS[0])


def test_asynchronous_tools_share_one_loop_for_as_long_as_the_program_runs() -> None:
    loops = set()

    class Keeping(Guessing):
        async def hint(self, about: str) -> str:
            """
            Ask something.

            Args:
                about: What.
            """
            loops.add(asyncio.get_running_loop())
            return "odd"

    for _ in range(2):
        played(playable(Keeping()), ["hint: parity", "3"])
    (loop,) = loops
    assert loop.is_running()


def test_an_environment_that_says_nothing_of_an_episode_fails_it() -> None:
    class Silent(Guessing):
        def get_reward(self) -> Any:
            return None

    episode, _ = played(playable(Silent()), ["3"])
    assert episode.stop is StopReason.ENVIRONMENT_ERROR


# Gymnasium's.


@dataclass
class Discrete:
    n: int
    start: int = 0


@dataclass
class Text:
    max_length: int = 100


@dataclass
class Walk:
    """To the right end of a line; the seed says how long it is."""

    action_space: Any = field(default_factory=lambda: Discrete(2, 1))
    observation_space: Any = field(default_factory=Text)
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
    _, seen = played(
        playable(Walk(render_mode="ansi", observation_space=Discrete(3), action_names=None)), ["1"], turns=1
    )
    assert seen == ["Find the number.\n\n[0]12\nActions: 0, 1"]
    without = own_tasks([{"prompt": "Walk."}]).all[0]
    worlds = {played(playable(Walk()), ["left"], without, turns=1)[1][0] for _ in range(3)}
    assert len(worlds) == 1


def test_a_real_world_of_gymnasium_is_played_to_its_goal() -> None:
    import gymnasium

    rows = [
        {"prompt": "Reach G. H is a hole.", "seed": seed, "actions": ["left", "down", "right", "up"]} for seed in (0, 1)
    ]
    task = own_tasks(rows).all[0]
    make = adapted(lambda: gymnasium.make("FrozenLake-v1", render_mode="ansi", is_slippery=False), task)
    episode, seen = played(make(task), ["down", "down", "right", "right", "down", "right"], task)
    assert "[S]FFF\nFHFH\nFFFH\nHFFG" in seen[0], "where one stands is marked in brackets"
    assert (episode.stop, episode.reward, len(seen)) == (StopReason.COMPLETED, 1.0, 6)
    episode, seen = played(make(task), ["right", "down"], task)
    assert (episode.stop, episode.reward, len(seen)) == (StopReason.COMPLETED, 0.0, 2), "a hole"


def test_a_world_whose_states_have_no_words_is_refused_with_the_way_out() -> None:
    import gymnasium

    with pytest.raises(UnplayableEnvironment, match="TransformObservation"):
        adapted(lambda: gymnasium.make("CartPole-v1"), TASKS[0])


def test_texts_and_listed_actions() -> None:
    class Typed(Walk):
        def step(self, action: Any) -> Any:
            return f"You say {action}.", 1.0, action == "bye", False, {"admissible_commands": ["hello", "bye"]}

    episode, seen = played(playable(Typed(action_space=Text(), action_names=None)), ["hello", "bye"])
    assert seen[1] == "You say hello.\nActions: hello, bye"
    assert episode.reward == 2.0


# What else may be handed over.


def test_a_function_that_returns_one_object_is_refused() -> None:
    game = Walk()
    with pytest.raises(UnplayableEnvironment, match="returns the same object each time"):
        adapted(lambda: game, TASKS[0])


def test_ours_are_played_as_they_are() -> None:
    question = Question(lambda task, answer: 1.0)
    assert playable(question) is question

    class Plain:
        def reset(self, task: Task, seed: int) -> Observation:
            return Observation(task.input)

        def step(self, action: str) -> Step:
            return Step(stop=StopReason.COMPLETED, answer=action)

        def close(self) -> None: ...

    assert played(adapted(Plain, TASKS[0])(TASKS[0]), ["yes"])[0].answer == "yes"
    assert adapted(lambda task: Plain(), TASKS[0])(TASKS[0]) is not None
    assert adapted(Plain, TASKS[0]).__qualname__.endswith("Plain"), "a run has its name on file"


class NoReward:
    def reset(self, **row: Any) -> None: ...

    def look(self) -> str:
        """Look."""
        return ""


class NoWords(Guessing):
    def look(self, where):  # type: ignore[no-untyped-def]
        return ""


@pytest.mark.parametrize(
    ("handed", "said"),
    [
        (3, "3 is no environment"),
        (lambda: object(), "object cannot be played: it has nothing"),
        (NoReward, "NoReward has no get_reward"),
        (NoWords, "'look' cannot be described"),
        (Walk(action_space=SimpleNamespace(shape=(3,))), "actions of Walk-v0 are"),
        (Walk(observation_space=Discrete(4)), "seen in Walk-v0 is Discrete"),
        (lambda task: 1 / 0, "cannot be made for rows/1: ZeroDivisionError"),
        ({"one": 3}, "3 is no environment"),
    ],
)
def test_what_cannot_be_played_is_named(handed: Any, said: str) -> None:
    with pytest.raises(UnplayableEnvironment, match=said) as caught:
        adapted(handed, TASKS[0])
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
    assert {split for split in twice.by_split for task in twice.by_split[split] if task.row["seed"] == 0} in (
        {"train"},
        {"dev"},
        {"test"},
    )
