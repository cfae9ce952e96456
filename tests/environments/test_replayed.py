from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from keepworth.environments.replayed import Replayed
from keepworth.environments.scene import Scene

PLAYED: Counter[str] = Counter()


class Game:
    """Three moves; every scene tells the moves so far."""

    def __init__(self) -> None:
        self.moves = ""

    def reset(self) -> Scene:
        PLAYED["reset"] += 1
        self.moves = ""
        return self._scene()

    def act(self, action: str) -> Scene:
        PLAYED["act"] += 1
        self.moves += action
        return self._scene()

    def _scene(self) -> Scene:
        done = len(self.moves) == 3
        return Scene("", self.moves, () if done else ("a", "b"), reward=float(self.moves == "aba"), done=done)


@given(st.lists(st.lists(st.sampled_from("ab"), min_size=3, max_size=3), max_size=12))
def test_every_course_shows_what_the_game_shows(courses: list[list[str]]) -> None:
    known: dict[tuple[str, ...], Scene] = {}
    for course in courses:
        kept, game = Replayed(Game, known), Game()
        assert kept.reset() == game.reset()
        for action in course:
            assert kept.act(action) == game.act(action)


def test_a_course_that_is_known_is_not_played_again() -> None:
    known: dict[tuple[str, ...], Scene] = {}
    for course in ("aba", "aba", "abb"):
        PLAYED.clear()
        world = Replayed(Game, known)
        world.reset()
        for action in course:
            scene = world.act(action)
        assert scene.observation == course
    assert PLAYED == {"reset": 1, "act": 3}  # the last course is new at its end, and played from the start
    PLAYED.clear()
    world = Replayed(Game, known)
    world.reset()
    assert [world.act(action).observation for action in "aba"] == ["a", "ab", "aba"]
    assert not PLAYED
