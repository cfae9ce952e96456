"""Rooms: "hall to attic" asks for a walk to the attic, one door a turn, and the reward comes at its end."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from keepworth.worlds.laboratory.composed import ComposedWorld, Composition, Exercise, Way

ROOMS = (
    "attic", "bath", "cell", "den", "entry", "forge", "gym", "hall", "inn", "jail", "kiln", "loft", "mill", "nook", "oven", "pub",
)  # fmt: skip
SIDE = 4
DOORS = {"n": (-1, 0), "e": (0, 1), "s": (1, 0), "w": (0, -1)}


def beyond(room: str, door: str) -> str:
    """Returns the room behind a door; the same room where there is none."""
    row, column = divmod(ROOMS.index(room), SIDE)
    down, right = DOORS.get(door, (0, 0))
    if 0 <= row + down < SIDE and 0 <= column + right < SIDE:
        return ROOMS[(row + down) * SIDE + column + right]
    return room


def distance(start: str, goal: str) -> int:
    """Returns the number of doors between two rooms."""
    (row, column), (other_row, other_column) = (divmod(ROOMS.index(room), SIDE) for room in (start, goal))
    return abs(row - other_row) + abs(column - other_column)


class RoomsWorld(ComposedWorld):
    """Sixteen rooms, four by four, always the same. An action is a door, and the world says which room is behind it. The walk is
    over in the goal, or after as many doors as lie between both rooms, and as many more as the level says. The quick way goes
    through doors by chance."""

    name = "rooms"
    about = "walk to a room, with the reward at the end"
    first = ROOMS
    then = ROOMS
    offsets = (2, 3, 5, 6, 7, 8, 9, 10, 11, 13, 14)  # rooms side by side are single skills
    taught = (2, 5, 8, 13)
    care = 0.25
    dials: ClassVar[tuple[int, ...]] = (2, 1, 0)
    dial = "doors more than are needed"
    turns = 8
    tokens = 3
    words = ("to", *ROOMS)

    def exercise(self, composition: Composition, draw: random.Random, level: int) -> Exercise:
        start, goal = composition[-1], composition[0]
        limit = max(1, distance(start, goal)) + level
        state = {"start": start, "goal": goal, "limit": limit}
        return Exercise(
            composition, f"{start} to {goal}", goal, self._walk(state, draw, 1.0), self._walk(state, draw, 0.0), state
        )

    def single(self, draw: random.Random) -> Exercise:
        """Draws a walk of one door, and what is behind it."""
        start = draw.choice(ROOMS)
        return self.exercise(
            (draw.choice([room for room in ROOMS if distance(start, room) == 1]), start), draw, self.usual
        )

    def reply(self, state: Mapping[str, Any], actions: Sequence[str]) -> str | None:
        at = state["start"]
        for action in actions:
            at = beyond(at, action)
        return None if at == state["goal"] or len(actions) >= state["limit"] else at

    def state_of(self, state: Mapping[str, Any], actions: Sequence[str]) -> str:
        """Returns the room, however the walk came there."""
        return str(self.reply(state, actions))

    def score(self, state: Mapping[str, Any], answer: str, actions: Sequence[str]) -> float:
        at = state["start"]
        for action in actions:
            at = beyond(at, action)
        return float(at == answer)

    def _walk(self, state: Mapping[str, Any], draw: random.Random, aim: float) -> Way:
        """Draws a walk.

        Args:
            state: That of the exercise.
            draw: What it is drawn with.
            aim: How probable it is that a door is one that leads nearer to the goal.
        """
        at, goal, actions = state["start"], state["goal"], list[str]()
        while not actions or self.reply(state, actions) is not None:
            doors = [door for door in DOORS if beyond(at, door) != at]
            if draw.random() < aim:
                doors = [door for door in doors if distance(beyond(at, door), goal) < distance(at, goal)]
            actions.append(draw.choice(doors))
            at = beyond(at, actions[-1])
        return Way(tuple(actions))

    def simple(self, exercise: Exercise, draw: random.Random) -> tuple[str, ...]:
        """Goes through doors by chance, never into a wall."""
        return self._walk(exercise.state, draw, 0.0).actions
