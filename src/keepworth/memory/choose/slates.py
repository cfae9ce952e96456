"""The probability of an ordered slate, for the ways in which published policies explore.

Samplers, each with the exact probability of what it drew:

* Gumbel top-k: add independent Gumbel noise to scores and keep the k largest. The order has the Plackett-Luce
  probability ("Stochastic Beams and Where to Find Them", arXiv 1903.06059, section 2).
* Thompson, slot by slot: for every slot draw each remaining candidate afresh from its normal posterior and take the
  largest. Fresh draws make each slot a one-dimensional integral, the integral of one density times the others'
  distribution functions. A `floor` stands for showing nothing more: when no draw exceeds it the slate ends.

Indices are positions in the candidate list. Probabilities are plain floats; 0.0 means that it cannot happen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from keepworth.base.arrays import Bools, Floats
from keepworth.memory.choose.propensity import Slate
from keepworth.memory.errors import InvalidPolicy

# Beyond this many deviations a normal density is below 1e-14 of its peak.
_REACH = 8.0
_NODES = 16
_BORDERS = np.array([-8.0, -4.0, 0.0, 4.0, 8.0])
KINDS = {"thompson": "means", "gumbel": "log-weights", "greedy": "scores"}
"""What the first array of a `Mixture` of each kind is."""


def ndtr(x: Floats | float) -> Floats:
    """P(a standard normal draw is below x), element by element, in the shape of x."""
    scaled = np.asarray(x, dtype=np.float64) * -math.sqrt(0.5)
    return 0.5 * np.fromiter(map(math.erfc, scaled.ravel().tolist()), np.float64, scaled.size).reshape(scaled.shape)


def gumbel_top_k(scores: Floats, k: int, generator: np.random.Generator) -> Slate:
    """Draws candidates in order.

    Args:
        scores: Log-weights, such as similarity / temperature.
        k: How many are drawn, at most len(scores).
        generator: The source of chance.
    """
    noisy = np.asarray(scores, dtype=np.float64) + generator.gumbel(size=len(scores))
    return tuple(int(i) for i in np.argsort(-noisy, kind="stable")[:k])


def plackett_luce(scores: Floats, slate: Sequence[int]) -> float:
    """Returns the probability that `gumbel_top_k(scores, len(slate))` draws exactly `slate`, in that order."""
    _check_slate(len(scores), slate)
    return float(np.exp(sum(log_plackett_luce(scores, slate))))


def log_plackett_luce(scores: Floats, slate: Sequence[int]) -> list[float]:
    """Returns for each place of `slate` the logarithm of the probability of its candidate, given those before it."""
    left, logs = np.array(scores, dtype=np.float64), list[float]()
    for index in slate:
        top = left.max()
        logs.append(float(left[index] - top - np.log(np.exp(left - top).sum())))
        left[index] = -np.inf
    return logs


def thompson_slate(
    means: Floats,
    deviations: Floats,
    k: int,
    generator: np.random.Generator,
    floor: float = -np.inf,
    conflicts: Bools | None = None,
) -> Slate:
    """Draws candidates: for each slot the largest of fresh normal draws, until none exceeds the floor.

    Args:
        means, deviations: Those of each candidate's value, of shape (n,).
        k: The most that are drawn.
        generator: The source of chance.
        floor: The value that a draw has to exceed.
        conflicts: Of shape (n, n): a candidate that conflicts with one already chosen is not drawn any more.
    """
    draws = means + deviations * generator.standard_normal((min(k, len(means)), len(means)))
    slate: list[int] = []
    out = np.zeros(len(means), dtype=bool)
    for row in draws:
        row[out] = -np.inf
        best = int(row.argmax())
        if not row[best] > floor:
            break
        slate.append(best)
        out[best] = True
        if conflicts is not None:
            out |= conflicts[best]
    return tuple(slate)


def thompson(
    means: Floats,
    deviations: Floats,
    slate: Sequence[int],
    k: int,
    floor: float = -np.inf,
    conflicts: Bools | None = None,
) -> float:
    """Returns the probability that `thompson_slate` draws exactly this slate, accurate to about 1e-8, however different
    the deviations are.

    Args:
        means, deviations: Those of each candidate's value. Deviations must be positive: a point mass belongs in
            `floor`.
        slate: The places of the candidates, in order.
        k: The most that are drawn.
        floor: The value that a draw has to exceed.
        conflicts: Of shape (n, n): a candidate that conflicts with one already chosen is not drawn any more.
    """
    means = np.asarray(means, dtype=np.float64)
    deviations = np.asarray(deviations, dtype=np.float64)
    _check_slate(len(means), slate)
    if len(deviations) and not float(deviations.min()) > 0.0:
        raise InvalidPolicy(
            f"a Thompson policy was given a standard deviation of {deviations.min()}.",
            "Deviations must be positive; a value that is known exactly belongs in `floor`.",
        )
    if len(slate) > k:
        return 0.0
    probability = 1.0
    left = np.ones(len(means), dtype=bool)
    for index in slate:
        if not left[index]:
            return 0.0
        left[index] = False
        probability *= _wins(means[index], deviations[index], means[left], deviations[left], floor)
        if conflicts is not None:
            left &= ~conflicts[index]
    if len(slate) < min(k, len(means)):
        probability *= _none_exceeds(means[left], deviations[left], floor)
    return probability


@dataclass(frozen=True, slots=True)
class Mixture:
    """A distribution over slates: the parameters of one logged choice, from which its probability can be computed.

    With probability `explore` a uniform permutation of the candidates is cut at `k`; else `kind` decides: "thompson" (first:
    means, second: deviations, above 0), "gumbel" (first: log-weights) or "greedy" (first: scores). A score or log-weight of minus
    infinity keeps its candidate out.
    """

    kind: str
    first: Floats
    second: Floats
    k: int
    floor: float = -np.inf
    explore: float = 0.0
    conflicts: Bools | None = None

    def draw(self, generator: np.random.Generator) -> tuple[Slate, str]:
        """Returns a drawn slate and the part of the mixture that drew it: "explore" or "main"."""
        chance = generator.random()
        if chance < self.explore:
            size = min(self.k, len(self.first))
            return tuple(int(i) for i in generator.permutation(len(self.first))[:size]), "explore"
        return self._main(generator), "main"

    def certain(self) -> Mixture:
        """Returns the same preferences without any exploration, which a frozen memory shows."""
        return Mixture("greedy", self.first, self.second, self.k, self.floor, conflicts=self.conflicts)

    def at_most(self, k: int) -> Mixture:
        """Returns the same preferences with at most `k` places."""
        return self if k >= self.k else replace(self, k=k)

    def given(self, drawn: Mapping[int, tuple[float, bool]]) -> Mixture:
        """Returns the same preferences: every choice of an episode is drawn by itself."""
        return self

    @property
    def odds(self) -> Mapping[int, float]:
        """Returns nothing: chance draws whole slates."""
        return {}

    def _main(self, generator: np.random.Generator) -> Slate:
        if not len(self.first):
            return ()
        if self.kind == "thompson":
            return thompson_slate(self.first, self.second, self.k, generator, self.floor, self.conflicts)
        if self.kind == "gumbel":
            return gumbel_top_k(self.first, self.k, generator)
        return _greedy(self.first, self.k, self.floor, self.conflicts)

    def probability(self, slate: Sequence[int]) -> float:
        """Returns the probability of exactly `slate` in this order, over both parts of the mixture."""
        n = len(self.first)
        size = min(self.k, n)
        uniform = 0.0
        if len(slate) == size:
            uniform = float(np.prod([1.0 / (n - index) for index in range(size)]))
        if not n:
            main = 1.0 if not slate else 0.0
        elif self.kind == "thompson":
            main = thompson(self.first, self.second, slate, self.k, self.floor, self.conflicts)
        elif self.kind == "gumbel":
            main = plackett_luce(self.first, slate) if len(slate) == size else 0.0
        else:
            main = 1.0 if tuple(slate) == _greedy(self.first, self.k, self.floor, self.conflicts) else 0.0
        return self.explore * uniform + (1.0 - self.explore) * main


def _greedy(scores: Floats, k: int, floor: float = -np.inf, conflicts: Bools | None = None) -> Slate:
    """Returns the `k` largest scores above `floor` that do not conflict, best first; the earlier candidate wins a tie."""
    slate: list[int] = []
    for index in np.argsort(-scores, kind="stable"):
        if len(slate) == k or not scores[index] > floor:
            break
        if conflicts is None or not any(conflicts[index, other] for other in slate):
            slate.append(int(index))
    return tuple(slate)


def _wins(mean: float, deviation: float, means: Floats, deviations: Floats, floor: float) -> float:
    """Returns P(one draw exceeds `floor` and the draws of all the others).

    Gauss-Legendre quadrature on panels no wider than four deviations of whatever changes there: the draw's own density, and the
    others' distribution functions around their means.
    """
    low = max(float(floor), mean - _REACH * deviation)
    high = mean + _REACH * deviation
    if len(means):
        # Below this the others almost surely exceed the draw, so the integrand vanishes.
        low = max(low, float((means - _REACH * deviations).max()))
    if low >= high:
        return 0.0
    narrow = deviations < deviation
    around = means[narrow, None] + deviations[narrow, None] * _BORDERS
    scores = mean + deviation * _BORDERS
    edges = np.unique(np.clip(np.concatenate([around.ravel(), scores, [low, high]]), low, high))
    nodes, weights = _legendre()
    halves = np.diff(edges) / 2.0
    points = ((edges[:-1] + halves)[:, None] + halves[:, None] * nodes).ravel()
    z = (points - mean) / deviation
    density = np.exp(-0.5 * z * z) / (deviation * np.sqrt(2.0 * np.pi))
    if len(means):
        density = density * ndtr((points - means[:, None]) / deviations[:, None]).prod(axis=0)
    return float(min(1.0, halves @ (density.reshape(len(halves), -1) @ weights)))


def _none_exceeds(means: Floats, deviations: Floats, floor: float) -> float:
    return float(ndtr((floor - means) / deviations).prod()) if len(means) else 1.0


@lru_cache(maxsize=1)
def _legendre() -> tuple[Floats, Floats]:
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return nodes, weights


def _check_slate(n: int, slate: Sequence[int]) -> None:
    if len(set(slate)) != len(slate) or any(not 0 <= index < n for index in slate):
        raise InvalidPolicy(
            f"the slate {tuple(slate)} is not an ordered choice among {n} candidates.",
            "Indices must be distinct and lie in [0, n).",
        )
