"""A point that finds its way through four rooms to one of four goals, and a guide who knows the shortest ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from keepworth.base.arrays import Bools, Floats

ROOMS = (
    "#############",
    "#.....#.....#",
    "#.....#.....#",
    "#...........#",
    "#.....#.....#",
    "#.....#.....#",
    "####.####.###",
    "#.....#.....#",
    "#.....#.....#",
    "#...........#",
    "#.....#.....#",
    "#.....#.....#",
    "#############",
)
GOALS = np.array([[2.0, 10.5], [10.5, 2.5], [7.5, 11.0], [11.0, 8.0]])
START, NEAR, FINE = np.array([1.5, 1.5]), 0.7, 4
"""Where episodes begin, how near a goal is reached, and how many nodes a cell has, along a side, for the length of ways."""
ANGLES = np.arange(8) * np.pi / 4.0
MOVES = 0.6 * np.stack([np.cos(ANGLES), np.sin(ANGLES)], 1)
SLIP, SLOPPY, HORIZON = 0.1, 0.3, 60
"""The deviation of what moves the point besides, the share of the guide's moves that are drawn, and the steps of an episode."""
SEEN = 12 + len(GOALS)
WALL = np.array([[cell == "#" for cell in row] for row in ROOMS])


def is_free(places: Floats) -> Bools:
    """Returns which places are in no wall. places: [..., 2]."""
    row, column = np.moveaxis(places.astype(int).clip(0, len(WALL) - 1), -1, 0)
    return np.asarray(~WALL[row, column])


def move(places: Floats, moves: np.ndarray, slips: Floats | float = 0.0) -> Floats:
    """Returns the places after moves, which a wall stops.

    Args:
        places: [..., 2].
        moves: Their numbers, [...].
        slips: What moves the point besides, [..., 2].
    """
    after = places + MOVES[moves] + slips
    return np.where(is_free(after)[..., None], after, places)


@cache
def lengths_of_ways() -> Floats:
    """Returns the length of the shortest way to each goal, [goals, nodes, nodes], in cells; infinite in walls."""
    wall = np.kron(WALL, np.ones((FINE, FINE), bool))
    nodes = (np.indices(wall.shape).transpose(1, 2, 0) + 0.5) / FINE
    ways = np.where(((nodes - GOALS[:, None, None]) ** 2).sum(-1) < NEAR**2, 0.0, np.inf)
    shifts = [(down, right) for down in (-1, 0, 1) for right in (-1, 0, 1) if down or right]
    for _ in range(wall.size):
        steps = [np.roll(ways, shift, (1, 2)) + np.hypot(*shift) / FINE for shift in shifts]
        nearer = np.where(wall, np.inf, np.minimum(ways, np.min(steps, 0)))
        if np.array_equal(nearer, ways):
            break
        ways = nearer
    return ways


def way(tasks: np.ndarray, places: Floats) -> Floats:
    """Returns the length of the ways from places, [..., 2], to the goals of tasks, [...]."""
    row, column = np.moveaxis((places * FINE).astype(int), -1, 0)
    return np.asarray(lengths_of_ways()[tasks, row, column])


def gains(tasks: np.ndarray, places: Floats) -> Floats:
    """Returns how much nearer each move brings a point to its goal, [..., moves]."""
    after = move(places[..., None, :], np.arange(len(MOVES)))
    return np.asarray(way(tasks, places)[..., None] - way(tasks[..., None], after))


def is_there(tasks: np.ndarray, places: Floats) -> Bools:
    """Returns which points are at their goals."""
    return np.asarray(((places - GOALS[tasks]) ** 2).sum(-1) < NEAR**2)


def see(tasks: np.ndarray, places: Floats) -> Floats:
    """Returns what is seen: waves of the place and which goal is asked for, [..., features]."""
    waves = np.concatenate([places * np.pi / 13.0 * often for often in (1.0, 2.0, 4.0)], -1)
    return np.concatenate([np.sin(waves), np.cos(waves), np.eye(len(GOALS))[tasks]], -1).astype(np.float32)


@dataclass
class Walk:
    """A walk of the guide: its task, its places, [steps + 1, 2], and its moves, [steps]."""

    task: int
    places: Floats
    moves: np.ndarray

    @property
    def observations(self) -> Floats:
        return see(np.full(len(self.places), self.task), self.places)


def guide(generator: np.random.Generator, many: int, first: Callable[[np.random.Generator], Floats]) -> list[Walk]:
    """Returns walks of a guide, some of whose moves are drawn.

    Args:
        generator: The source of the draws.
        many: Walks of each task.
        first: Draws the place where a walk begins.
    """
    walks = list[Walk]()
    while len(walks) < many * len(GOALS):
        task, places, moves = np.array(len(walks) // many), [first(generator)], list[int]()
        while len(moves) < HORIZON and not is_there(task, places[-1]):
            best, drawn = int(gains(task, places[-1]).argmax()), int(generator.integers(len(MOVES)))
            moves.append(drawn if generator.random() < SLOPPY else best)
            places.append(move(places[-1], np.array(moves[-1]), SLIP * generator.standard_normal(2)))
        if moves and is_there(task, places[-1]):
            walks.append(Walk(int(task), np.array(places), np.array(moves)))
    return walks


def begin(generator: np.random.Generator) -> Floats:
    """Draws a place near the start."""
    return START + generator.uniform(-0.4, 0.4, 2)


def anywhere(generator: np.random.Generator) -> Floats:
    """Draws a place in no wall."""
    while not is_free(place := generator.uniform(1.0, len(ROOMS) - 1.0, 2)):
        pass
    return np.asarray(place)


def trials(choose: Callable[[np.ndarray, Floats], np.ndarray], many: int, arms: int, seed: Sequence[int]) -> Floats:
    """Returns the share of trials in which each arm comes to the goal, [arms].

    Args:
        choose: Returns moves for tasks, [arms, trials], and places.
        many: Trials of each task.
        arms: How many are tried.
        seed: Of the trials, which are the same for all arms.
    """
    draw = np.random.default_rng(seed)
    tasks = np.tile(np.repeat(np.arange(len(GOALS)), many), (arms, 1))
    places = np.tile([begin(draw) for _ in range(tasks.shape[1])], (arms, 1, 1))
    there = np.zeros(tasks.shape, bool)
    for _ in range(HORIZON):
        places = move(places, choose(tasks, places), SLIP * draw.standard_normal(places.shape[1:]))
        there |= is_there(tasks, places)
    return np.asarray(there.mean(1))
