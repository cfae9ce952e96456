"""Is the whole memory, or one source, worth having? On and off in blocks of episodes, drawn by seed.

Episodes are numbered as they begin. `block` of them in a row are a block, and two blocks in a row are a pair, of which one,
drawn evenly, is on and the other off. So whatever drifts from pair to pair cancels. Chance decides for pairs, so pairs are
what is compared: the difference on - off of each, and its sign turned round in all ways there are (Fisher, "The Design of
Experiments", 1935; the interval holds the effects that this test does not reject). It assumes nothing about rewards but that
blocks do not reach into each other: what is written while it is on can be shown in a later block that is on, and that is part
of the effect.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from keepworth.memory.errors import InvalidPolicy

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

FEWEST = 6
"""Pairs before there can be a 95 % interval: five signs fall alike once in sixteen."""
MOST = 28
"""Pairs whose signs are turned one by one; beyond them neighbours are turned together, which is as exact and a little
blunter."""


@dataclass(frozen=True, slots=True)
class Trial:
    """source: what is switched; "" for the whole memory. block: episodes; seed: of the order in each pair. Raises
    InvalidPolicy."""

    source: str = ""
    block: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.source, str):
            raise InvalidPolicy(f"the source of the trial is {self.source!r:.40}.", 'Give its name, or "" for all.')
        for name, number, least in (("block", self.block, 1), ("seed", self.seed, 0)):
            if not isinstance(number, Integral) or isinstance(number, bool) or number < least:
                raise InvalidPolicy(
                    f"the {name} of the trial is {number!r:.40}.", f"Give a whole number of at least {least}."
                )

    def on(self, number: int) -> bool:
        """Whether it is switched on in the episode of this number."""
        block = number // self.block
        first = bool(np.random.default_rng([23, self.seed, block // 2]).integers(2))
        return first == (block % 2 == 0)

    def logged(self, number: int) -> list[Any]:
        """What is logged with each search of an episode: source, length of blocks, seed, number of the block, whether it is
        on."""
        return [self.source, self.block, self.seed, number // self.block, self.on(number)]


@dataclass(frozen=True, slots=True)
class Contrast:
    """What a trial came to. on, off: mean reward in blocks of each kind; pairs: that have rewards on both sides; episodes:
    with a reward; effect: mean over pairs of on - off; low, high: 95 %, infinite where there are too few pairs; p: of no
    effect, two-sided."""

    source: str
    block: int
    seed: int
    pairs: int
    episodes: int
    on: float
    off: float
    effect: float
    low: float
    high: float
    p: float

    @property
    def verdict(self) -> str:
        if self.pairs < FEWEST:
            return f"too few to say: {FEWEST - self.pairs} more pairs of blocks"
        if self.low > 0.0 or self.high < 0.0:
            return "helps" if self.low > 0.0 else "harms"
        return "not known yet"


def compared(rewards: Iterable[tuple[Sequence[Any], float]]) -> list[Contrast]:
    """Each trial of a log. rewards: what was logged (see `Trial.logged`) and the reward, of each episode."""
    found: dict[tuple[str, int, int], dict[int, dict[bool, list[float]]]] = {}
    for (source, block, seed, number, on), reward in rewards:
        pairs = found.setdefault((source, block, seed), {})
        pairs.setdefault(number // 2, {True: [], False: []})[bool(on)].append(reward)
    return [_comparison(*name, pairs) for name, pairs in sorted(found.items())]


def _comparison(source: str, block: int, seed: int, pairs: Mapping[int, Mapping[bool, Sequence[float]]]) -> Contrast:
    whole = [pairs[number] for number in sorted(pairs) if all(pairs[number].values())]
    means = np.array([[np.mean(pair[True]), np.mean(pair[False])] for pair in whole]).reshape(-1, 2)
    episodes = sum(len(rewards) for pair in pairs.values() for rewards in pair.values())
    if not len(means):
        return Contrast(source, block, seed, 0, episodes, math.nan, math.nan, math.nan, -math.inf, math.inf, 1.0)
    differences = means[:, 0] - means[:, 1]
    low, high = interval(differences)
    on, off = means.mean(0).tolist()
    p = min(1.0, 2.0 * min(one_sided(differences), one_sided(-differences)))
    return Contrast(source, block, seed, len(means), episodes, on, off, on - off, low, high, p)


def one_sided(differences: Floats) -> float:
    """The share of all ways to turn signs round in which the sum is at least the one that was seen. Exact: half of the signs
    are listed, and counted against the other half."""
    d = np.abs(differences)
    seen = float(differences.sum())
    while len(d) > MOST:  # neighbours are turned together
        differences = np.array([differences[place : place + 2].sum() for place in range(0, len(differences), 2)])
        d = np.abs(differences)
    left, right = (_sums(part) for part in (d[: len(d) // 2], d[len(d) // 2 :]))
    slack = 1e-12 * max(1.0, float(d.sum()))
    enough = np.searchsorted(right, seen - slack - left)
    return float((len(right) - enough).sum() / (len(left) * len(right)))


def _sums(sizes: Floats) -> Floats:
    """Of all signs, in order of size."""
    found = np.zeros(1)
    for size in sizes:
        found = np.concatenate([found - size, found + size])
    return np.sort(found)


def interval(differences: Floats, alpha: float = 0.05) -> tuple[float, float]:
    """The effects that are not rejected at `alpha` / 2 on either side; infinite where so few pairs can reject nothing."""
    if 0.5 ** len(differences) > alpha / 2.0:
        return -math.inf, math.inf
    return _bound(differences, alpha / 2.0), -_bound(-differences, alpha / 2.0)


def _bound(differences: Floats, level: float) -> float:
    """The least effect that is not rejected as too small: the share grows with the effect that is taken away."""
    low, high = float(differences.min()) - 1e-9, float(differences.mean())
    for _ in range(50):
        middle = (low + high) / 2.0
        if one_sided(differences - middle) > level:
            high = middle
        else:
            low = middle
    return high
