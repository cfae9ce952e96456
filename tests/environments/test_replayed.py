from __future__ import annotations

import asyncio
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from keepworth.methods.worlds._replayed import Known, Replayed, Seat
from keepworth.records.episode import Observation, StopReason, Task
from keepworth.worlds.course import stream_task
from keepworth.worlds.environment import Step
from keepworth.worlds.scene import Scene, ends, goes_on
from tests.environments.game import Game, Met

PLAYED: Counter[str] = Counter()


class Three:
    """Three moves; every scene tells the moves so far."""

    def __init__(self) -> None:
        self.moves = ""

    @property
    def scene(self) -> Scene:
        return Scene("", self.moves, ("a", "b"))

    async def reset(self, task: Task, seed: int) -> Observation:
        PLAYED["reset"] += 1
        self.moves = ""
        return self.scene.seen

    async def step(self, action: str) -> Step:
        PLAYED["step"] += 1
        self.moves += action
        return ends(float(self.moves == "aba")) if len(self.moves) == 3 else goes_on(self.scene)

    async def close(self) -> None:
        PLAYED["close"] += 1


def replayed(known: Known) -> Game:
    return Game(stream_task("three", lambda: Replayed(Three, known), "", 0.5))


@given(st.lists(st.lists(st.sampled_from("ab"), min_size=3, max_size=3), max_size=12))
def test_replayed_courses_equal_the_game(courses: list[list[str]]) -> None:
    known: Known = {}
    for course in courses:
        kept, game = replayed(known), Game(stream_task("three", Three, "", 0.5))
        assert kept.reset() == game.reset()
        for action in course:
            assert kept.act(action) == game.act(action)


def test_a_course_that_is_known_is_not_played_again() -> None:
    known: Known = {}
    for course in ("aba", "aba", "abb"):
        PLAYED.clear()
        game = replayed(known)
        met: Met = game.reset()
        for action in course:
            met = game.act(action)
        assert met.observation == course
        asyncio.run(game.environment.close())
    assert PLAYED == {"reset": 1, "step": 3, "close": 1}  # the last is new at its end, and played from the start
    PLAYED.clear()
    game = replayed(known)
    game.reset()
    assert [game.act(action).observation for action in "aba"] == ["a", "ab", "aba"]
    assert not PLAYED


def test_games_that_take_turns_at_one_engine_do_not_disturb_each_other() -> None:
    class Engine:
        moves = ""

    class Shared(Three):
        """Its moves are the engine's."""

        @property
        def moves(self) -> str:
            return Engine.moves

        @moves.setter
        def moves(self, moves: str) -> None:
            Engine.moves = moves

    seat = Seat()
    one, other = (Game(stream_task("three", lambda: Replayed(Shared, {}, seat), "", 0.5)) for _ in range(2))
    one.reset()
    other.reset()
    for mine, yours in zip("aba", "bbb", strict=True):
        first, second = one.act(mine), other.act(yours)
    assert (first.observation, first.reward) == ("aba", 1.0)
    assert (second.observation, second.reward) == ("bbb", 0.0)


def test_an_impossible_action_loses_the_game_and_says_so() -> None:
    game = replayed({})
    game.reset()
    step = asyncio.run(game.environment.step("fly"))
    assert (step.stop, step.errors) == (StopReason.PARSE_ERROR, ("'fly' is not possible here",))
    assert [(term.name, term.value) for term in step.rewards] == [("progress", 0.0), ("success", 0.0)]
