"""A 2-D scene of coloured rooms, views of it from poses, and a map of the views.

Rooms have few floor colours and some odd cells. A view is k x k cells ahead of the viewer, without those hidden by walls, with
noise on its colours.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from keepworth.base.arrays import Floats

Pose = tuple[int, int, int]
"""Heading (north, east, south, west), row and column."""
Mask = NDArray[np.bool_]
Offsets = NDArray[np.int64]
AHEAD = ((-1, 0), (0, 1), (1, 0), (0, -1))
PALETTE = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1], [1, 0, 1]], dtype=float)
WALL = np.full(3, 0.5)
FAR, CELLS = 12, 15


def turn(offsets: Offsets) -> Offsets:
    """Returns offsets of one heading turned to all four, [4, ..., 2]. A right turn maps (row, column) to (column, -row)."""
    turned = [offsets]
    for _ in range(3):
        turned.append(np.stack([turned[-1][..., 1], -turned[-1][..., 0]], axis=-1))
    return np.stack(turned)


@cache
def cells_ahead(k: int) -> Offsets:
    """Returns the cells of a view relative to the viewer, who is in the middle of its last row: [4, k, k, 2]."""
    return turn(np.stack(np.meshgrid(np.arange(1 - k, 1), np.arange(k) - k // 2, indexing="ij"), axis=-1))


@cache
def lines_of_sight(k: int) -> Offsets:
    """Returns the cells between viewer and cell, [4, k, k, k - 2, 2]; where there are fewer, the viewer's own cell."""
    between = np.zeros((k, k, k - 2, 2), dtype=int)
    for row, column in np.ndindex(k, k):
        end = np.array([row - k + 1, column - k // 2])
        for step in range(1, length := int(abs(end).max())):
            between[row, column, step - 1] = np.round(end * step / length)
    return turn(between)


@dataclass(frozen=True)
class RoomView:
    """A view.

    Attributes:
        cells: The positions of its cells in the scene, [k, k, 2].
        colours, walls, seen: Colour of each cell, [k, k, 3]; whether it is a wall, and whether it is visible, [k, k].
    """

    cells: Offsets
    colours: Floats
    walls: Mask
    seen: Mask

    @property
    def there(self) -> tuple[Offsets, Offsets]:
        """Returns rows and columns, in the scene, of the visible cells."""
        rows, columns = self.cells[self.seen].T
        return rows, columns

    def equals(self, goal: RoomView, most: float) -> bool:
        """Returns whether both views have the same walls, and colours up to a mean squared error of `most`."""
        if not np.array_equal(self.seen, goal.seen) or not np.array_equal(self.walls, goal.walls):
            return False
        return bool(((self.colours - goal.colours) ** 2).sum(-1)[self.seen].mean() <= most)

    def histogram(self) -> Floats:
        """Returns square roots of the shares of colours, so that the product of two histograms is at most 1."""
        near = np.exp(-((self.colours[self.seen][:, None] - np.vstack([PALETTE, WALL])) ** 2).sum(-1) / 0.2)
        return np.asarray(np.sqrt((near / near.sum(1, keepdims=True)).mean(0)))


class RoomScene:
    """A scene of rooms x rooms connected rooms with doors. Outer walls are k cells thick, so that views stay inside."""

    def __init__(self, draw: np.random.Generator, noise: float, rooms: int = 4, inner: int = 5, k: int = 7) -> None:
        self.noise, self.k, self.ahead, self.lines = noise, k, cells_ahead(k), lines_of_sight(k)
        size, pitch = rooms * (inner + 1) + 1, inner + 1
        self.walls, self.floor = np.ones((size + 2 * k, size + 2 * k), dtype=bool), np.zeros((0, 2), dtype=int)
        while len(self.floor) == 0 or len(reach(~self.walls, self.draw_pose(draw))) < 4 * len(self.floor):
            walls, colours = np.ones((size, size), dtype=bool), np.tile(WALL, (size, size, 1))
            for row, column in np.ndindex(rooms, rooms):
                y, x = row * pitch + 1, column * pitch + 1
                odd = draw.random((inner, inner, 1)) < 0.15
                others, floor = PALETTE[draw.integers(6, size=(inner, inner))], PALETTE[draw.integers(6)]
                walls[y : y + inner, x : x + inner] = False
                colours[y : y + inner, x : x + inner] = np.where(odd, others, floor)
                for door in ((y + draw.integers(inner), x + inner), (y + inner, x + draw.integers(inner))):
                    if max(door) < size - 1 and draw.random() < 0.7:
                        walls[door], colours[door] = False, PALETTE[draw.integers(6)]
            self.walls = np.pad(walls, k, constant_values=True)
            self.colours = np.pad(colours, ((k, k), (k, k), (0, 0)), constant_values=WALL[0])
            self.floor = np.argwhere(~self.walls)

    def look(self, pose: Pose, draw: np.random.Generator) -> RoomView:
        """Returns the view from a pose."""
        position = np.array(pose[1:])
        cells, lines = position + self.ahead[pose[0]], position + self.lines[pose[0]]
        colours = self.colours[cells[..., 0], cells[..., 1]] + draw.normal(0.0, self.noise, (self.k, self.k, 3))
        seen = ~self.walls[lines[..., 0], lines[..., 1]].any(-1)
        return RoomView(cells, colours, self.walls[cells[..., 0], cells[..., 1]], seen)

    def draw_pose(self, draw: np.random.Generator) -> Pose:
        """Returns a random pose on the floor."""
        y, x = self.floor[draw.integers(len(self.floor))]
        return int(draw.integers(4)), int(y), int(x)


def follow(pose: Pose) -> tuple[Pose, Pose, Pose]:
    """Returns the poses after going ahead, and after turning left and right."""
    heading, y, x = pose
    return (heading, y + AHEAD[heading][0], x + AHEAD[heading][1]), ((heading - 1) % 4, y, x), ((heading + 1) % 4, y, x)


def reach(free: Mask, start: Pose, wanted: Mask | None = None) -> list[Pose]:
    """Returns the poses after the start of a shortest path over free cells to a wanted pose; nothing where there is none.

    Args:
        free: Cells that can be entered, [rows, columns].
        start: The start, which is never wanted.
        wanted: Poses, [4, rows, columns]; None returns all poses that can be reached, in no order.
    """
    before, waiting, free_rows = dict[Pose, Pose]({start: start}), deque([start]), free.tolist()
    ends = (
        set[Pose]()
        if wanted is None
        else set(zip(*(axis.tolist() for axis in np.nonzero(wanted)), strict=True)) - {start}
    )
    while waiting and (ends or wanted is None):
        pose = waiting.popleft()
        if pose in ends:
            way = [pose]
            while before[way[-1]] != start:
                way.append(before[way[-1]])
            return way[::-1]
        for after in follow(pose):
            if after not in before and free_rows[after[1]][after[2]]:
                before[after] = pose
                waiting.append(after)
    return list(before) if wanted is None else []


@dataclass(frozen=True)
class Goal:
    """A start, the pose to find, the view from there, and the length of the shortest path."""

    start: Pose
    end: Pose
    view: RoomView
    shortest: int

    def apart(self, pose: Pose) -> int:
        """Returns the distance of a pose in cells."""
        return abs(pose[1] - self.end[1]) + abs(pose[2] - self.end[2])


def draw_goals(scene: RoomScene, draw: np.random.Generator, count: int) -> list[Goal]:
    """Draws `count` goals, each at least `FAR` steps away, with at least `CELLS` visible cells in its view."""
    goals = list[Goal]()
    while len(goals) < count:
        start, end = scene.draw_pose(draw), scene.draw_pose(draw)
        view, wanted = scene.look(end, draw), np.zeros((4, *scene.walls.shape), dtype=bool)
        wanted[end] = True
        if view.seen.sum() >= CELLS and (shortest := len(reach(~scene.walls, start, wanted))) >= FAR:
            goals.append(Goal(start, end, view, shortest))
    return goals


class RoomMap:
    """A map: for each cell the mean colour, how often it was seen, and whether it is a wall; and the last view from every pose,
    with its histogram."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.sums, self.counts, self.walls = np.zeros((*shape, 3)), np.zeros(shape), np.zeros(shape, dtype=bool)
        self.views = dict[Pose, tuple[RoomView, Floats]]()

    def add(self, pose: Pose, view: RoomView) -> None:
        self.views[pose] = view, view.histogram()
        self.sums[view.there] += view.colours[view.seen]
        self.counts[view.there] += 1
        self.walls[view.there] = view.walls[view.seen]

    @property
    def colours(self) -> Floats:
        return np.asarray(self.sums / np.maximum(self.counts, 1)[..., None])

    @property
    def seen(self) -> Mask:
        return np.asarray(self.counts > 0)

    @property
    def free(self) -> Mask:
        return np.asarray(self.seen & ~self.walls)

    def frontiers(self, seen: Mask) -> Mask:
        """Returns poses on free cells that face a cell which is not in `seen`: [4, rows, columns]."""
        return np.stack([self.free & ~np.roll(seen, (-dy, -dx), (0, 1)) for dy, dx in AHEAD])
