"""Four worlds in which the effect of every item is planted, and the vectorised simulation of the ledger in them.

Each differs from the worlds on which the constants of `keepworth.memory.choose.ledger` were chosen (one world, success linear
in an even easiness, effects of 0.2). What an item adds to the chance of success is planted; a confounded item comes up in nine
of ten easy tasks and in one of ten hard ones, and nothing that a question says tells the two apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from keepworth.memory.choose import ledger

Array = np.ndarray[Any, Any]

LOW, HIGH = 0.02, 0.98
"""Chances of success stay between."""
EASE = 0.15
"""How much easier than usual an easy task is, and how much harder a hard one, where items are confounded."""
COMES_UP = {"easy": 0.9, "hard": 0.1}


@dataclass(frozen=True)
class World:
    """topic: how far two topics that questions name differ in success, from the mean of both; match: how much of an item's
    effect there is where the question is a near miss, as a share of that where it matches; steps: in an episode, whose reward
    is the share of steps that succeeded; drift: amplitude of success over 500 episodes."""

    name: str
    topic: float = 0.0
    near_miss: float = 1.0
    steps: int = 1
    drift: float = 0.0


WORLDS = (
    World("topics of unequal ease", topic=0.2),
    World("near misses", near_miss=0.25),
    World("three steps, one reward", steps=3),
    World("drifting base rate", drift=0.2),
)
EFFECTS = (0.2, 0.1, 0.0, -0.1, -0.2)
CONFOUNDED = (-0.2, 0.2)


@dataclass
class Outcome:
    """Per run and item, shape (runs, items) unless said otherwise. missed: whether the any-time interval missed the running
    mean effect at any look; at: by number of rows, (effect, mean of psi, fixed half width, truth); cost: rewards that draws
    cost per episode, shape (runs,); cleared: the episode at which the interval was clear of 0, or -1; counter, kernel: what a
    counter of successes and the mean by topic say the item adds."""

    missed: Array
    at: dict[int, tuple[Array, ...]]
    cost: dict[int, Array]
    cleared: Array
    counter: Array
    kernel: Array


def simulate(
    world: World,
    effects: tuple[float, ...],
    *,
    runs: int,
    length: int,
    seed: int,
    withhold: float = 0.1,
    budget: float | None = None,
    fade: bool = False,
    confounded: bool = False,
    by_odds: bool = False,
    looks: tuple[int, ...] = (200, 500, 2000),
) -> Outcome:
    """Episodes of `world`, all runs side by side. budget, fade: as the policy does; without them every item stays under test at
    `withhold`. by_odds: items are shown with probability 0.9 in easy tasks and 0.1 in hard ones, as where a policy moved them
    down. Formulas are those of the library."""
    rng = np.random.default_rng([11, seed])
    shape, every = (runs, len(effects)), np.arange(runs)
    size = np.array(effects)
    n1, n0, total, squares, inverse, residuals = (np.zeros(shape) for _ in range(6))
    weights, beyond, truth, w1, w0, r1, r0 = (np.zeros(shape) for _ in range(7))
    by_topic, counted = np.zeros((runs, 2)), np.zeros((runs, 2))
    shown_sum, shown_count = np.zeros((runs, len(effects), 2)), np.zeros((runs, len(effects), 2))
    missed, over, down = (np.zeros(shape, dtype=bool) for _ in range(3))
    cleared, spent = np.full(shape, -1), np.zeros(runs)
    at = {n: tuple(np.full(shape, np.nan) for _ in range(4)) for n in looks}
    cost: dict[int, Array] = {}
    phase, few = rng.random(runs), ledger.PRIOR / 10.0
    for t in range(length):
        topic = (rng.random(runs) < 0.5).astype(int)
        matches = rng.random(runs) < 0.5
        easy = rng.random(runs) < 0.5
        up = np.ones(shape, dtype=bool)
        base = 0.5 + world.topic * (2 * topic - 1) + world.drift * np.sin(2 * np.pi * (t / 500 + phase))
        if confounded or by_odds:
            base = base + EASE * (2 * easy - 1)
        if confounded:
            up = rng.random(shape) < np.where(easy, COMES_UP["easy"], COMES_UP["hard"])[:, None]
        # Effects average to what is planted, and success stays near one half.
        share = np.where(matches, 2 / (1 + world.near_miss), 2 * world.near_miss / (1 + world.near_miss))
        arm_size = size * share[:, None]
        base = base - (arm_size * np.where(up, 0.5, 0.0)).sum(1)
        n = n1 + n0
        open_ = up & ~over
        test = np.where(open_, n, np.inf).argmin(1)
        has = open_[every, test]
        chance = np.full(runs, withhold)
        if budget is not None:
            costs = ledger.expected_cost(n, total, 1.0)[every, test]
            chance = np.clip(budget / np.maximum(costs, 1e-12), withhold / 2.0, withhold)  # `ledger.rate` of each
        p = np.where(easy, 0.9, 0.1) if by_odds else 1.0 - chance
        a = (rng.random(runs) < p) | ~has
        shown = up & ~down
        shown[every, test] &= a
        others = base + (arm_size * shown).sum(1) - np.where(a & shown[every, test], arm_size[every, test], 0.0)
        with_it = np.clip(others + arm_size[every, test], LOW, HIGH)
        without = np.clip(others, LOW, HIGH)
        won = np.where(shown[every, test], with_it, without)
        y = rng.binomial(world.steps, won) / world.steps
        real = with_it - without
        spent += np.where(has & ~a, real, 0.0)
        # What is expected goes by the topic, which the question names, and by earlier rows of the item.
        usual = (by_topic.sum(1) + 0.5) / (counted.sum(1) + 1.0)
        f = (by_topic[every, topic] + usual) / (counted[every, topic] + 1.0)
        g = f + beyond[every, test] / (weights[every, test] + ledger.OFFSET_ROWS)
        g = np.clip(g, 0.0, 1.0)
        rows = every[has]
        cell = rows, test[has]
        ah, ph, yh = a[has].astype(float), p[has], y[has]
        psi = ledger.scores(ah, ph, yh, g[has])
        n1[cell] += ah
        n0[cell] += 1.0 - ah
        total[cell] += psi
        squares[cell] += psi * psi
        inverse[cell] += 1.0 / (ph * (1.0 - ph))
        residuals[cell] += (yh - g[has]) ** 2
        truth[cell] += real[has]
        w1[cell] += ah / ph
        w0[cell] += (1.0 - ah) / (1.0 - ph)
        r1[cell] += ah / ph * (yh - f[has])
        r0[cell] += (1.0 - ah) / (1.0 - ph) * (yh - f[has])
        w = np.minimum(np.where(ah > 0, (1 - ph) / ph, ph / (1 - ph)), ledger.LARGEST_WEIGHT)
        weights[cell] += w
        beyond[cell] += w * (yh - f[has])
        by_topic[every, topic] += y
        counted[every, topic] += 1.0
        shown_sum[every, :, topic] += shown * y[:, None]
        shown_count[every, :, topic] += shown
        # A look at what changed.
        n = n1[cell] + n0[cell]
        spread = ledger.deviation(n, total[cell], squares[cell], 0.25 * inverse[cell] / n)
        effect, real_mean = total[cell] / n, truth[cell] / n
        ready = np.minimum(n1[cell], n0[cell]) >= ledger.LEAST_EACH
        half = ledger.half_width(n, spread)
        missed[cell] |= ready & (np.abs(effect - real_mean) > half)
        clear = ready & (np.abs(effect) > half)
        first = clear & (cleared[cell] < 0)
        cleared[cell] = np.where(first, t + 1, cleared[cell])
        if fade:
            over[cell] |= clear | (ready & (np.abs(effect) + half <= ledger.NEGLIGIBLE))
            down[cell] |= clear & (effect < 0)
        for look, stored in at.items():
            here = n == look
            if here.any():
                index = cell[0][here], cell[1][here]
                # The variance of psi if rewards vary alike with the item and without; few rows are as far off as they can be.
                variance = (residuals[cell] + few / 4.0) / (n + few) * (inverse[cell] / n)
                fixed = 1.959964 * ledger.deviation(n, total[cell], squares[cell], variance) / np.sqrt(n)
                both = (w1[cell] > 0) & (w0[cell] > 0)
                beyond_1, beyond_0 = r1[cell] / np.maximum(w1[cell], 1e-9), r0[cell] / np.maximum(w0[cell], 1e-9)
                point = np.where(both, beyond_1 - beyond_0, effect)
                for target, value in zip(stored, (point, effect, fixed, real_mean), strict=True):
                    target[index] = value[here]
        if t + 1 in (600, 2000):
            cost[t + 1] = spent / (t + 1)
    everything = by_topic.sum(1) / counted.sum(1)
    counter = shown_sum.sum(2) / np.maximum(shown_count.sum(2), 1) - everything[:, None]
    means = shown_sum / np.maximum(shown_count, 1) - (by_topic / counted)[:, None, :]
    kernel = (means * shown_count).sum(2) / np.maximum(shown_count.sum(2), 1)
    return Outcome(missed, at, cost, cleared, counter, kernel)
