"""IGL-Nav: a map that grows with every view, and the goal's view matched with it at every pose ("IGL-Nav: incremental 3D Gaussian
localization for image-goal navigation", arXiv 2508.00823).

    map: mean colour of every cell that was seen, and whether it is a wall
    coarse: score(pose) = sum over cells that both see of 1 - |goal - map|^2 / 0.5;   p = softmax over poses and "elsewhere"
    fine: of the five best poses the one with the smallest mean |goal - map|^2
    walk to the pose where p >= threshold, else to the nearest frontier; a pose that was visited is not tried again

The goal is the view from some pose of a scene of `keepworth.methods.studies._rooms`. One turns or goes a cell in a step, stops
where the view is the goal's, and has succeeded if that is within one cell of it. All know their pose, plan by breadth-first
search over the cells they saw, and stop by the same rule:

    map memory             as above
    views one by one       the same, but every past view is matched alone; what joining them adds
    episodic memory        attention by histograms of colour: it goes back to the view nearest the goal, and matches what it sees
    current view alone     the same without going back
    without localisation   frontiers, until the view from its pose is the goal's
    random walk; oracle    the least and the most

Eight goals follow one another in a scene, each from a start of its own, with the memory forgotten or kept in between.

The verdict, fixed before the scenes that are measured (thresholds were chosen for each arm on scenes from 1000): *held* where, by
paired intervals over scenes, (a) in new scenes the SPL of map memory is above that of all other arms, and (b) with memory kept it
needs fewer steps to the eighth goal than when forgotten, and than all others that keep theirs; *held in part* where one of the
two is so, or both but for views one by one; else *not held*.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from keepworth.base.arrays import Floats
from keepworth.evaluation.study import Rows, Study, arms_of, differences, rows_of
from keepworth.methods.studies._rooms import Goal, Mask, Pose, RoomMap, RoomScene, RoomView, draw_goals, follow, reach
from keepworth.methods.studies._rooms import cells_ahead as ahead
from keepworth.registry import Method

SCALE, FEW = 0.5, 5
"""The squared error at which a cell does not change a pose's score; number of poses that the fine step compares."""
THRESHOLD, TOLERANCE, SIMILARITY = 0.5, 0.05, 0.98
"""Least probability of a pose to go there; squared error, beyond that of noise, of equal views; least product of histograms."""
NOISE = 0.1
"""The standard deviation of a seen colour."""
GOALS = (1, 3, 8)
"""Goals whose steps are reported; the last is the number of goals in a scene."""
KEPT = ("map memory", "views one by one", "episodic memory")
ARMS = (*KEPT, "current view alone", "without localisation", "random walk")
ELSEWHERE = dict(zip(ARMS, (0.75, 0.6, 0.25, 0.25), strict=False))
"""For each arm, the score of "the goal is at no seen pose", as a share of the cells of its view."""


def correlate(colours: Floats, seen: Mask, goal: RoomView) -> tuple[Floats, Floats]:
    """Returns, for every pose, the sum of squared errors between a goal's view and a map, and the number of compared cells: both
    [4, rows, columns].

    |g - m|^2 = |g|^2 - 2 g m + |m|^2, so that it is a convolution of the map with the view at four rotations. A cell that the map
    or the goal has not seen is in neither sum.

    Args:
        colours: The map's colours, of shape [rows, columns, channels].
        seen: The cells of the map that were seen.
        goal: The view at the goal.
    """
    k, (rows, columns) = len(goal.seen), seen.shape
    m = np.where(seen[..., None], colours, 0.0)
    features = np.pad(np.stack([seen, (m**2).sum(-1), *np.moveaxis(m, -1, 0)]), ((0, 0), (k, k), (k, k)))
    g = goal.colours[goal.seen]
    kernel = np.concatenate([(g**2).sum(1, keepdims=True), np.ones((len(g), 1)), -2 * g], axis=1)
    by_cell = np.stack(
        [np.tensordot(kernel, features, 1), np.broadcast_to(features[0], (len(g), *features[0].shape))], 1
    )
    sums = np.zeros((4, 2, rows, columns))
    for heading, offsets in enumerate(ahead(k)):
        for cell, (dy, dx) in enumerate((offsets[goal.seen] + k).tolist()):
            sums[heading] += by_cell[cell, :, dy : dy + rows, dx : dx + columns]
    return sums[:, 0], sums[:, 1]


def localise(
    colours: Floats, seen: Mask, allowed: Mask, goal: RoomView, noise: float, elsewhere: float, few: int = FEW
) -> tuple[Pose, float]:
    """Returns the pose of the goal's view on a map, and the probability of the best pose.

    Args:
        colours, seen: The map.
        allowed: Possible poses, [4, rows, columns].
        goal, noise: The view, and the standard deviation of a colour.
        elsewhere: As `ELSEWHERE`.
        few: How many of the best poses the fine step compares; one for none.
    """
    errors, overlap = correlate(colours, seen, goal)
    errors = np.maximum(errors - 6 * noise**2 * overlap, 0.0)
    score = np.append(np.where(allowed, overlap - errors / SCALE, -np.inf), elsewhere * goal.seen.sum())
    best = np.argsort(-score[:-1], kind="stable")[:few]
    odds = np.exp(score - score.max())
    cells = overlap.ravel()[best]
    mean = np.where(cells >= 0.8 * cells.max(), errors.ravel()[best] / np.maximum(cells, 1.0), np.inf)
    heading, y, x = np.unravel_index(best[mean.argmin()], allowed.shape)
    return (int(heading), int(y), int(x)), float(odds[best[0]] / odds.sum())


class GoalSearch:
    """One episode of one arm."""

    def __init__(self, scene: RoomScene, goal: RoomView, arm: str, memory: RoomMap, draw: np.random.Generator) -> None:
        self.scene, self.goal, self.arm, self.memory, self.draw = scene, goal, arm, memory, draw
        shape = scene.walls.shape
        self.way, self.places, self.matched = list[Pose](), dict[Pose, float](), set[Pose]()
        self.seen, self.recalled, self.tried = *np.zeros((2, *shape), dtype=bool), np.zeros((4, *shape), dtype=bool)
        self.place: Pose | None = None
        self.odds, self.known = 0.0, 0

    def only(self, pose: Pose) -> Mask:
        wanted = np.zeros_like(self.tried)
        wanted[pose] = True
        return wanted

    def find(self, pose: Pose) -> tuple[Pose, float]:
        """Returns the most probable pose of the goal, and its probability."""
        rooms, noise = self.memory, self.scene.noise
        if self.arm == "map memory":
            if self.place is None or self.tried[self.place] or rooms.seen.sum() > self.known:
                new = (rooms.colours, rooms.seen, rooms.free & ~self.tried, self.goal, noise, ELSEWHERE[self.arm])
                (self.place, self.odds), self.known = localise(*new), int(rooms.seen.sum())
            return self.place, self.odds
        poses = rooms.views if self.arm == "views one by one" else [pose]
        self.places = self.places if self.arm == "views one by one" else {}
        for one in [one for one in poses if one not in self.matched or one == pose]:
            self.matched.add(one)
            view, _ = rooms.views[one]
            allowed = np.broadcast_to(view.seen & ~view.walls, (4, *view.seen.shape))
            (turned, row, column), odds = localise(
                view.colours, view.seen, allowed, self.goal, noise, ELSEWHERE[self.arm]
            )
            y, x = view.cells[row, column].tolist()
            place = (one[0] + turned) % 4, y, x
            self.places[place] = max(odds, self.places.get(place, 0.0))
        odds, place = max((0.0 if self.tried[at] else odds, at) for at, odds in self.places.items())
        return place, odds

    def options(self, pose: Pose) -> Iterator[Mask]:
        """Yields poses to go to, the best first."""
        rooms, arm, place, odds = self.memory, self.arm, pose, 0.0
        if arm != "without localisation":
            place, odds = self.find(pose)
        if odds >= THRESHOLD:
            yield self.only(place)
        if arm == "episodic memory":
            mine = self.goal.histogram()
            alike = {at: 0.0 if self.recalled[at[1:]] else of @ mine for at, (_, of) in rooms.views.items()}
            if alike[best := max(alike, key=alike.__getitem__)] >= SIMILARITY:
                yield self.only(best)
        yield rooms.frontiers(rooms.seen if arm in KEPT[:2] else self.seen)
        if odds > 0 and arm in KEPT[:2]:
            yield self.only(place)
        while True:
            yield self.only(self.way[-1] if self.way else self.scene.draw_pose(self.draw)) & rooms.free

    def run(self, pose: Pose, budget: int) -> tuple[Pose, int]:
        """Walks to the goal. Returns where it stops, and after how many steps; if the budget is spent, the current pose."""
        most = 6 * self.scene.noise**2 + TOLERANCE
        for steps in range(budget):
            view = self.scene.look(pose, self.draw)
            if view.equals(self.goal, most):
                return pose, steps
            self.memory.add(pose, view)
            self.seen[view.there] = self.tried[pose] = True
            if not self.way:
                self.recalled[pose[1] - 2 : pose[1] + 3, pose[2] - 2 : pose[2] + 3] = True
            pose = self.next_pose(pose)
        return pose, budget

    def next_pose(self, pose: Pose) -> Pose:
        if self.arm == "random walk":
            after = follow(pose)[self.draw.choice(3, p=(0.6, 0.2, 0.2))]
            return pose if self.scene.walls[after[1:]] else after
        for wanted in self.options(pose):
            if not (self.way and wanted[self.way[-1]]):
                self.way = reach(self.memory.free, pose, wanted)
            if self.way:
                break
        return self.way.pop(0)


def _navigate(
    scene: RoomScene, goals: list[Goal], arm: str, remembers: bool, seed: int, budget: int
) -> dict[str, float]:
    """Returns an arm's results for the goals of a scene; a failure counts as the whole budget."""
    memory, draw = RoomMap(scene.walls.shape), np.random.default_rng([72, seed])
    steps, success, spl = np.zeros((3, len(goals)))
    for number, goal in enumerate(goals):
        memory = memory if remembers else RoomMap(scene.walls.shape)
        stop, took = GoalSearch(scene, goal.view, arm, memory, draw).run(goal.start, budget)
        success[number] = took < budget and goal.apart(stop) <= 1
        steps[number] = took if success[number] else budget
        spl[number] = success[number] * goal.shortest / max(took, goal.shortest)
    return {"success": success.mean(), "SPL": spl.mean()} | {f"steps to goal {at}": steps[at - 1] for at in GOALS}


def track(scene: RoomScene, goals: list[Goal], seed: int) -> dict[str, float]:
    """Returns the distance in cells of the best pose from the goal, while a scene is explored from frontier to frontier.

    Args:
        scene: The rooms.
        goals: Where the goal's views were taken.
        seed: That of the noise in views.
    """
    rooms, draw, pose, way = RoomMap(scene.walls.shape), np.random.default_rng([73, seed]), goals[0].start, list[Pose]()
    errors, shares = dict[str, float](), [0.25, 0.5, 0.75, 1.0]
    forms = {"": (FEW, range(4)), ", no fine step": (1, range(4)), ", one rotation": (FEW, range(1))}
    while shares:
        rooms.add(pose, scene.look(pose, draw))
        frontiers = rooms.frontiers(rooms.seen)
        way = way if way and frontiers[way[-1]] else reach(rooms.free, pose, frontiers)
        if way and rooms.free.sum() < shares[0] * len(scene.floor):
            pose = way.pop(0)
            continue
        share = shares.pop(0)
        for form, (few, headings) in forms.items() if share == 1.0 else [("", forms[""])]:
            allowed = np.stack([rooms.free & (heading in headings) for heading in range(4)])
            given = [(rooms.colours, rooms.seen, allowed, goal.view, scene.noise, 0.0, few) for goal in goals]
            apart = [goal.apart(localise(*of)[0]) for goal, of in zip(goals, given, strict=True)]
            errors[f"error, {share:.0%} of the map{form}, noise {scene.noise:g}"] = float(np.mean(apart))
    return errors


def run(*, scenes: int = 24, first: int = 0, dial: str = "0,0.1,0.2,0.3", budget: int = 400) -> Rows:
    """Measures success, SPL and steps of all arms, and errors of localisation; means over scenes of means over their goals.

    Args:
        scenes, first: Number of scenes, and the number of the first.
        dial: Standard deviations of a seen colour at which localisation is measured, with commas.
        budget: Steps of an episode.
    """
    measured = []
    for seed in range(first, first + scenes):
        scene = RoomScene(np.random.default_rng([71, seed]), NOISE)
        goals = draw_goals(scene, np.random.default_rng([74, seed]), GOALS[-1])
        numbers: dict[str, float] = {"oracle, steps": float(np.mean([goal.shortest for goal in goals]))}
        for state, names in (("forgotten", ARMS), ("kept", KEPT)):
            for arm in names:
                of_arm = _navigate(scene, goals, arm, state == "kept", seed, budget)
                numbers |= {f"{arm}, {state}: {name}": number for name, number in of_arm.items()}
        for scene.noise in map(float, dial.split(",")):
            numbers |= track(scene, draw_goals(scene, np.random.default_rng([74, seed]), GOALS[-1]), seed)
        measured.append(numbers)
    arms, clusters = arms_of(measured), list(map(str, range(scenes)))
    rows: Rows = []
    for name, values in arms.items():
        rows += rows_of({name: values}, clusters, (0.0, 1.0) if name.endswith(("SPL", "success")) else None)
    mine, ends = ARMS[0], ("forgotten: SPL", "kept: steps to goal 8")
    pairs = [(f"{mine}, {ends[0]}", f"{other}, {ends[0]}") for other in ARMS[1:]]
    pairs += [(f"{mine}, {ends[1]}", f"{other}, {ends[1]}") for other in KEPT[1:]]
    pairs += [(f"{mine}, {ends[1]}", f"{mine}, forgotten: steps to goal 8")]
    return rows + differences(arms, pairs, clusters, within=None)


METHOD = Method(
    kind="study",
    name="igl_nav",
    title="IGL-Nav",
    paper="arXiv 2508.00823",
    about="Builds a map from views, finds a goal's view on it by correlation, and else goes to the nearest frontier",
    tags=("token", "factual", "working", "formation", "retrieval"),
    claim="It is far above the methods before it in image-goal navigation (no number checked).",
    differs=(
        "A 2-D analogue: a grid of colours with true poses replaces 3-D Gaussians, the best of five poses replaces "
        "optimisation through rendering; no Gaussian splatting, no network, no scenes of the paper."
    ),
    label="analogue",
    make=Study(run, "SPL and success: shares; steps of an episode; errors in cells"),
)
