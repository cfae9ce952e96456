"""A goal's view on a map of five rows and columns, a scene's views, ways and maps, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from keepworth.methods.studies import _rooms as house
from keepworth.methods.studies.igl_nav import GoalSearch, correlate, localise

COLOURS = np.random.default_rng(0).random((5, 5, 3))
"""No two cells alike."""
EAST = [[(1, 3), (2, 3), (3, 3)], [(1, 2), (2, 2), (3, 2)], [(1, 1), (2, 1), (3, 1)]]
"""The cells of a 3 x 3 view of who stands at (2, 1) and looks east: the farthest row first, the left column first."""


def view_of(cells: list[list[tuple[int, int]]]) -> house.RoomView:
    at = np.array(cells)
    return house.RoomView(
        at, COLOURS[at[..., 0], at[..., 1]], np.zeros((3, 3), dtype=bool), np.ones((3, 3), dtype=bool)
    )


def test_goal_view_matches_exactly_one_pose() -> None:
    goal, seen = view_of(EAST), np.ones((5, 5), dtype=bool)
    errors, overlap = correlate(COLOURS, seen, goal)
    assert (errors[1, 2, 1], overlap[1, 2, 1]) == (pytest.approx(0.0, abs=1e-12), 9)
    assert overlap[0, 2, 1] == 9
    assert errors[0, 2, 1] == pytest.approx(((COLOURS[0:3, 0:3] - goal.colours) ** 2).sum())
    assert overlap[0, 0, 0] == 2, "of the view from a corner to the north only its last row, without the left cell"
    assert ((errors < 1e-9) & (overlap == 9)).sum() == 1
    place, odds = localise(COLOURS, seen, np.ones((4, 5, 5), dtype=bool), goal, 0.0, 0.6)
    assert place == (1, 2, 1)
    assert odds > 0.5


def test_a_cell_that_was_not_seen_never_counts() -> None:
    goal, seen = view_of(EAST), np.ones((5, 5), dtype=bool)
    seen[1:4, 3] = False
    before = correlate(COLOURS, seen, goal)
    assert before[1][1, 2, 1] == 6
    other = COLOURS.copy()
    other[1:4, 3] = np.nan
    for one, two in zip(before, correlate(other, seen, goal), strict=True):
        assert np.array_equal(one, two)
    blind = house.RoomView(goal.cells, goal.colours, goal.walls, goal.seen & (np.arange(9).reshape(3, 3) != 4))
    assert correlate(COLOURS, np.ones((5, 5), dtype=bool), blind)[1][1, 2, 1] == 8


def test_it_is_elsewhere_where_the_map_has_too_little_of_it_and_where_two_poses_are_alike() -> None:
    goal, seen, allowed = view_of(EAST), np.zeros((5, 5), dtype=bool), np.ones((4, 5, 5), dtype=bool)
    seen[:, :3] = True  # six of nine cells
    assert localise(COLOURS, seen, allowed, goal, 0.0, 0.0)[1] > 0.5
    assert localise(COLOURS, seen, allowed, goal, 0.0, 0.9)[1] < 0.2
    twice, whole = np.concatenate([COLOURS, COLOURS]), np.ones((10, 5), dtype=bool)
    assert localise(twice, whole, np.ones((4, 10, 5), dtype=bool), goal, 0.0, 0.3)[1] == pytest.approx(0.5, abs=0.05)


def test_the_fine_step_takes_the_smaller_error_of_poses_that_see_as_much() -> None:
    """Nine cells at an error of .02 score 8.64, eight without error 8; by mean error the eight are better."""
    colours, seen = np.concatenate([COLOURS, COLOURS]), np.ones((10, 5), dtype=bool)
    goal, allowed = view_of(EAST), np.zeros((4, 10, 5), dtype=bool)
    allowed[1, [2, 7], 1] = True
    colours[6:9, 1:4, 0] += 0.02**0.5
    seen[2, 3] = False
    assert localise(colours, seen, allowed, goal, 0.0, 0.0, few=1)[0] == (1, 7, 1)
    assert localise(colours, seen, allowed, goal, 0.0, 0.0)[0] == (1, 2, 1)


def test_views_rotate_and_respect_walls() -> None:
    assert house.cells_ahead(3)[1][0].tolist() == [[-1, 2], [0, 2], [1, 2]]
    assert house.lines_of_sight(3)[2, 0, 1].tolist() == [[1, 0]], "two cells to the south, over one"
    scene = house.RoomScene(np.random.default_rng(0), 0.0, rooms=1, inner=5, k=7)
    view = scene.look((0, 12, 10), np.random.default_rng(0))
    assert view.seen[1:, 1:6].all(), "the room and the wall ahead"
    assert not view.seen[0].any()
    assert np.array_equal(view.colours[2:, 1:6], scene.colours[8:13, 8:13])


def test_planned_way_is_shortest_and_frontiers_face_unknown_cells() -> None:
    free, wanted = np.zeros((4, 4), dtype=bool), np.zeros((4, 4, 4), dtype=bool)
    free[1, 1:3], wanted[3, 1, 2] = True, True
    assert house.reach(free, (0, 1, 1), wanted) == [(1, 1, 1), (1, 1, 2), (0, 1, 2), (3, 1, 2)]
    wanted[:] = False
    wanted[0, 2, 2] = True
    assert house.reach(free, (0, 1, 1), wanted) == []
    rooms = house.RoomMap((4, 4))
    rooms.counts[1:3, 1:3] = 1
    rooms.walls[2] = True
    assert np.argwhere(rooms.frontiers(rooms.seen)).tolist() == [[0, 1, 1], [0, 1, 2], [1, 1, 2], [3, 1, 1]]


def test_a_map_finds_the_second_goal_of_a_scene_without_a_detour() -> None:
    scene = house.RoomScene(np.random.default_rng(3), 0.0, rooms=2)
    first, second = house.draw_goals(scene, np.random.default_rng(1), 2)
    memory, draw = house.RoomMap(scene.walls.shape), np.random.default_rng(0)
    for pose in house.reach(~scene.walls, first.start):
        memory.add(pose, scene.look(pose, draw))
    for arm in ("map memory", "views one by one"):
        assert GoalSearch(scene, second.view, arm, memory, draw).run(second.start, 200) == (second.end, second.shortest)


@pytest.mark.parametrize("heading", range(4))
def test_a_pose_on_a_single_view_is_a_pose_in_the_scene(heading: int) -> None:
    scene, draw = house.RoomScene(np.random.default_rng(5), 0.0, rooms=1), np.random.default_rng(0)
    pose = (heading, 10, 10)
    memory, view = house.RoomMap(scene.walls.shape), scene.look(pose, draw)
    memory.add(pose, view)
    assert GoalSearch(scene, view, "current view alone", memory, draw).find(pose)[0] == pose
