"""Bresa: a critic of risk that checks every small step of a robot, while its policy decides seldom ("Bio-inspired reflexive safe
reinforcement learning for contact-rich robotic tasks", arXiv 2503.21989).

A robot crosses a random field of `SIDE` x `SIDE` cells with holes. A decision is a direction, which is held for `HELD` small
steps; each of them slips to another direction with a probability of `SLIP`. The policy knows the holes and plans around them, but
believes that no step slips. The critic is learned from small steps in random directions, by the counts of where they led:

    Q_h(s, a) = E[hole(s') + (1 - hole(s')) Q_{h-1}(s', a)],  Q_0 = 0        the risk of a direction over its last h steps

At a decision the policy takes its best direction whose risk is at most eps, and stays where there is none. A reflex asks the same
critic before every small step, and stops until the next decision where the risk of the rest is above eps. The chances to reach
the goal and to fall into a hole within `DECISIONS` are exact, from the distribution over cells.

Arms, for each eps: "reflex"; "slow", the critic asked at decisions alone; and "reflex, cells permuted", the critic of other
cells. Beside them "none", without a critic, and "reflex, true risk", which knows the world."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from keepworth.base.arrays import Bools, Floats
from keepworth.evaluation.study import Rows, Study, differences, rows_of
from keepworth.registry import Method

SIDE, HOLES, HELD, DECISIONS = 8, 12, 3, 60
SLIP, SAMPLES = 0.1, 3000
MOVES = ((0, 1), (1, 0), (0, -1), (-1, 0))
BOUNDS = (0.1, 0.2, 0.3)
"""The risks eps that are allowed."""
CELLS = SIDE * SIDE


@dataclass(frozen=True)
class HoleField:
    """A field, in which one can reach the goal by held directions that do not slip.

    Attributes:
        holes: Which cells are holes, [cells]. The last cell is the goal, and the first one the start.
        moves: The chance of each next cell of a small step, [directions, cells, cells].
        plan: Decisions that the policy believes to need if it begins with a direction, [directions, cells].
    """

    holes: Bools
    moves: Floats
    plan: Floats


def neighbours() -> np.ndarray:
    """Returns the cell that each direction leads to, [directions, cells]; at the edge the cell itself."""
    rows, columns = np.divmod(np.arange(CELLS), SIDE)
    ends = [np.clip(rows + down, 0, SIDE - 1) * SIDE + np.clip(columns + right, 0, SIDE - 1) for right, down in MOVES]
    return np.stack(ends)


def draw_field(generator: np.random.Generator) -> HoleField:
    """Draws a field whose goal can be reached."""
    ends, every = neighbours(), np.arange(CELLS)
    sure = np.zeros((len(MOVES), CELLS, CELLS))
    for direction, cells in enumerate(ends):
        sure[direction, every, cells] = 1.0
    moves = (1.0 - SLIP) * sure + SLIP / len(MOVES) * sure.sum(0)
    while True:
        holes = np.zeros(CELLS, dtype=bool)
        holes[1 + generator.permutation(CELLS - 2)[:HOLES]] = True
        plan = plan_ways(ends, holes)
        if np.isfinite(plan[:, 0].min()):
            return HoleField(holes, moves, plan)


def plan_ways(ends: np.ndarray, holes: Bools) -> Floats:
    """Returns the decisions to the goal that each first direction needs if no step slips, [directions, cells].

    Args:
        ends: Where each direction leads, [directions, cells].
        holes: Which cells are holes, [cells].
    """
    needed = np.where(np.arange(CELLS) == CELLS - 1, 0.0, np.inf)
    plan = np.full(ends.shape, np.inf)
    for _ in range(CELLS):
        for direction, cells in enumerate(ends):
            place, fell, arrived = np.arange(CELLS), np.zeros(CELLS, dtype=bool), np.zeros(CELLS, dtype=bool)
            for _ in range(HELD):
                place = np.where(arrived, place, cells[place])
                fell |= holes[place]
                arrived |= place == CELLS - 1
            plan[direction] = np.where(fell, np.inf, 1.0 + needed[place])
        needed = np.where(np.arange(CELLS) == CELLS - 1, 0.0, plan.min(0))
    return plan


def risk_of(moves: Floats, holes: Bools) -> Floats:
    """Returns the risk of each direction over its last steps, from one to all, [steps, directions, cells].

    Args:
        moves: The chance of each next cell, [directions, cells, cells].
        holes: Which cells are holes, [cells].
    """
    risks = [np.zeros(moves.shape[:2])]
    goes_on = ~holes
    goes_on[-1] = False  # at the goal the decision is over
    for _ in range(HELD):
        risks.append(np.einsum("dcn,dn->dc", moves, holes + goes_on * risks[-1]))
    return np.stack(risks[1:])


def learn_risk(field: HoleField, generator: np.random.Generator, samples: int = SAMPLES) -> Floats:
    """Returns the risk by the counts of small steps from random cells in random directions; see `risk_of`.

    Args:
        field: Where they are tried.
        generator: Draws them.
        samples: How many there are.
    """
    counts = np.full(field.moves.shape, 1e-9)
    counts[:, np.arange(CELLS), np.arange(CELLS)] += 1e-6  # a direction that was never tried leads nowhere
    direction, cell = generator.integers(len(MOVES), size=samples), generator.integers(CELLS, size=samples)
    odds = field.moves[direction, cell].cumsum(1)
    after = (odds < generator.random(samples)[:, None]).sum(1).clip(max=CELLS - 1)
    np.add.at(counts, (direction, cell, after), 1.0)
    return risk_of(counts / counts.sum(2, keepdims=True), field.holes)


def cross(field: HoleField, risk: Floats | None, bound: float, fast: bool) -> tuple[float, float]:
    """Returns the chances to reach the goal and to fall into a hole.

    Args:
        field: Where the robot crosses, with the plan that it follows.
        risk: As of `risk_of`; None for no critic.
        bound: The greatest risk that is allowed.
        fast: Whether the critic is asked before every small step, and not at decisions alone.
    """
    allowed = np.ones((HELD, *field.plan.shape), dtype=bool) if risk is None else risk <= bound
    order = np.where(allowed[-1], field.plan, np.inf)
    choice, stays = order.argmin(0), ~np.isfinite(order.min(0))
    every = np.arange(CELLS)
    place, done, fallen = np.eye(CELLS)[0], 0.0, 0.0
    for _ in range(DECISIONS):
        moving = np.zeros((len(MOVES), CELLS))
        moving[choice, every] = np.where(stays, 0.0, place)
        place = np.where(stays, place, 0.0)
        for step in range(HELD):
            if fast and step:
                goes_on = allowed[HELD - step - 1]
                place = place + np.where(goes_on, 0.0, moving).sum(0)
                moving = np.where(goes_on, moving, 0.0)
            moving = np.einsum("dc,dcn->dn", moving, field.moves)
            fallen += float(moving[:, field.holes].sum())
            done += float(moving[:, -1].sum())
            moving[:, field.holes] = moving[:, -1] = 0.0
        place = place + moving.sum(0)
    return done, fallen


def run(*, seeds: int = 40, samples: int = SAMPLES, first_seed: int = 0) -> Rows:
    """Measures the chances to stay out of holes and to reach the goal.

    Args:
        seeds: Random fields.
        samples: Small steps that a critic learns from.
        first_seed: The first of the seeds.
    """
    scores: dict[str, list[float]] = {}
    for seed in range(first_seed, first_seed + seeds):
        generator = np.random.default_rng([11, seed])
        field = draw_field(generator)
        risk, true = learn_risk(field, generator, samples), risk_of(field.moves, field.holes)
        permuted = risk[..., generator.permutation(CELLS)]
        tried = {"none": cross(field, None, 0.0, False)}
        for bound in BOUNDS:
            tried[f"reflex, eps {bound}"] = cross(field, risk, bound, True)
            tried[f"slow, eps {bound}"] = cross(field, risk, bound, False)
            tried[f"reflex, cells permuted, eps {bound}"] = cross(field, permuted, bound, True)
            tried[f"reflex, true risk, eps {bound}"] = cross(field, true, bound, True)
        for arm, (done, fallen) in tried.items():
            scores.setdefault(f"no fall: {arm}", []).append(1.0 - fallen)
            scores.setdefault(f"goal reached: {arm}", []).append(done)
    clusters = [str(seed) for seed in range(seeds)]
    pairs = [
        (f"{score}: reflex, eps {bound}", f"{score}: {other}")
        for score in ("no fall", "goal reached")
        for bound in BOUNDS
        for other in (f"slow, eps {bound}", f"reflex, cells permuted, eps {bound}", "none")
    ]
    return rows_of(scores, clusters) + differences(scores, pairs, clusters)


METHOD = Method(
    kind="study",
    name="bresa",
    title="Bresa",
    paper="arXiv 2503.21989",
    about="Lets a critic of risk stop each small step of a robot, between the decisions of its policy",
    tags=("parametric", "experiential", "formation"),
    claim="A safety critic at the low level and a higher frequency than the policy means fewer collisions and as much success.",
    differs=(
        "A field of 64 cells in the place of a robot arm, a critic by counts in the place of a network, and stopping in the "
        "place of a lower stiffness; the policy is a planner that believes in sure steps. Chances are exact."
    ),
    label="small",
    make=Study(run, "chance not to fall, and to reach the goal"),
)
