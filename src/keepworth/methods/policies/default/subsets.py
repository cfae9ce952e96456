"""Which notes a question needs: the smallest set that keeps the reward, for searches that decide how many notes they show.

Rewards of a question come with the set of notes that was shown. A *claim* says which sets suffice there: those with one certain
note, with one of two notes, with both of two, those in which one certain note comes first, or all of them, as no note matters.
If a claim is true, the mean reward has one level where the set suffices and a lower one where it does not. There are 111 claims
about ten notes, and 21 pairs of levels, so that the probability of each pair given the rewards is computed by enumeration
(`find_need`): no sampling, no approximation.

What follows from it:

1. **The set.** Of all subsets of the notes the one is shown that is expected to earn most, if each of its notes costs the share
   `PRICE` of that. So a note is dropped once it is unlikely to matter, and comes back where the rest fails.
2. **The tests.** Some notes of the set are left out by chance, each by a draw of its own with the probability `OUT`: the least
   likely ones first, as many as are expected to cost at most `COST` of a reward together. These are several while little
   depends on each, and one of them, more rarely, where few are left. A note that surely matters (`SURE`) is left out no more.
   So a hundred searches of a question cost at most 100 * `COST` rewards, as far as the probabilities are right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from keepworth.base.arrays import Floats

    Masks = npt.NDArray[np.int64]

MOST = 10
"""The most notes of which sets are compared."""
ONE, EITHER, BOTH, FIRST = 0.55, 0.15, 0.15, 0.15
"""Prior probabilities if notes matter: one does; either of two suffices; two only help together; one does where it is first."""
NONE = (0.1, 0.9)
"""The least and the largest prior probability that no note matters, which is that by the words of the question."""
LEVELS = (0.05, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95)
"""The mean rewards that are told apart."""
STEPS = {1: 0.05, 2: 0.3}
"""Prior weight of a pair of levels so many steps apart, beside 1 for others: small differences are rarer."""
PRICE = 0.02
"""What a note must add to be shown, as a share of the reward that is expected."""
OUT, COST = 0.8, 0.035
"""Probability with which a note under test is left out, and what all tests of a search may be expected to cost."""
FIRM = 0.5
"""So many rewards near a question are needed: with fewer its words decide."""
UNLIKELY, LEAST_LIKELY = 0.5, 0.02
"""How likely the notes answer whose words were not judged, as a share of the least of the judged ones; and the least of all."""
SURE = 0.99
"""A note that matters with this probability is tested no more."""

_PAIRS = [(high, low) for high, low in combinations(reversed(range(len(LEVELS))), 2)]
_HIGH, _LOW = (np.array([LEVELS[pair[side]] for pair in _PAIRS]) for side in (0, 1))
_APART = np.array([STEPS.get(high - low, 1.0) for high, low in _PAIRS])
_LEVELS = np.array(LEVELS)


@dataclass(frozen=True, slots=True)
class Need:
    """What a question needs, by the places of notes among the candidates.

    Attributes:
        notes: The set that is shown.
        tests: Those of its notes that are left out by chance, with the probability.
        expected: The reward that is expected with the set.
        cost: What the tests are expected to cost.
    """

    notes: tuple[int, ...]
    tests: tuple[tuple[int, float], ...]
    expected: float
    cost: float


@cache
def _tables(n: int) -> tuple[Floats, Floats]:
    """Return for each subset of `n` notes, whose number has a bit for each note, 1 for the notes that it holds, and 1 for the
    claims that it satisfies: those of one note, of either of two, and of both of two."""
    holds = (np.arange(1 << n)[:, None] >> np.arange(n) & 1).astype(np.float64)
    first, second = (holds[:, notes] for notes in _two_of(n))
    return holds, np.hstack([holds, np.maximum(first, second), first * second])


@cache
def _two_of(n: int) -> tuple[list[int], list[int]]:
    pairs = list(combinations(range(n), 2))
    return [first for first, _ in pairs], [second for _, second in pairs]


@dataclass(frozen=True, slots=True)
class SetRewards:
    """The rewards of a question, each column of shape (rewards,).

    Attributes:
        subsets: The number of the subset that was shown: bit i stands for note i.
        first: The note that stood first; -1 for none.
        counts: How much each reward counts.
        values: The rewards, from 0 to 1.
    """

    subsets: Masks
    first: Masks
    counts: Floats
    values: Floats


def find_need(rewards: SetRewards, order: Sequence[int], likely: Sequence[float], none: float) -> Need:
    """Return what a question needs.

    Args:
        rewards: Those of the question.
        order: All notes, at most `MOST`, in the order in which they are shown.
        likely: For each note how likely it answers, on any scale above 0.
        none: How probable it is that no note matters, before any reward.
    """
    n, alone = len(likely), np.asarray(likely, dtype=np.float64)
    holds, suffices = _tables(n)
    first, second = _two_of(n)
    alone, pairs = alone / alone.sum(), alone[first] * alone[second]
    pairs = pairs / (pairs.sum() or 1.0)
    none = min(max(none, NONE[0]), NONE[1])
    prior = (1.0 - none) * np.concatenate([ONE * alone, EITHER * pairs, BOTH * pairs, FIRST * alone])
    # How often each claim says that the set sufficed, and what was earned then.
    columns = (rewards.counts, rewards.counts * rewards.values)
    times, earned = (
        np.concatenate(
            [
                np.bincount(rewards.subsets, column, len(holds)) @ suffices,
                np.bincount(rewards.first + 1, column, n + 1)[1:],
            ]
        )
        for column in columns
    )
    all_times, all_earned = (float(column.sum()) for column in columns)
    first_of = np.where(holds.any(axis=1), np.asarray(order)[holds[:, order].argmax(axis=1)], -1)
    suffices = np.hstack([suffices, first_of[:, None] == np.arange(n)])
    claims, even = weigh_claims(prior, none, (times, earned), (all_times, all_earned))
    value = suffices @ (claims @ (_HIGH - _LOW)) + claims.sum(axis=0) @ _LOW + even @ _LEVELS
    best = int((value * (1.0 - PRICE * holds.sum(axis=1))).argmax())
    chances = claims.sum(axis=1)
    doubtful = [i for i in range(n) if holds[best, i] and _matters(i, best, suffices, chances) < SURE]
    tests, cost = _tests(best, doubtful, value)
    return Need(tuple(np.flatnonzero(holds[best]).tolist()), tests, float(value[best]), cost)


def weigh_claims(
    prior: Floats, none: float, satisfied: tuple[Floats, Floats], of_all: tuple[float, float]
) -> tuple[Floats, Floats]:
    """Return how probable rewards make each claim with each pair of levels, shape (claims, pairs), and each level if no claim is
    true; all of them sum to 1.

    Args:
        prior: How probable each claim is before any reward.
        none: How probable it is that none is true.
        satisfied: Number and sum of the rewards that satisfied each claim.
        of_all: Number and sum of all rewards.
    """
    (times, earned), (all_times, all_earned) = satisfied, of_all
    log = np.log(prior)[:, None] + np.log(_APART / _APART.sum())
    for level, of, won in ((_HIGH, times, earned), (_LOW, all_times - times, all_earned - earned)):
        log = log + np.outer(won, np.log(level)) + np.outer(of - won, np.log(1.0 - level))
    even = np.log(none / len(LEVELS)) + all_earned * np.log(_LEVELS) + (all_times - all_earned) * np.log(1.0 - _LEVELS)
    highest = max(log.max(initial=-np.inf), even.max())
    claims, even = np.exp(log - highest), np.exp(even - highest)
    total = claims.sum() + even.sum()
    return claims / total, even / total


def _matters(note: int, best: int, suffices: Floats, chances: Floats) -> float:
    """Return the probability that a set suffices with a note and not without it."""
    return float((suffices[best] - suffices[best & ~(1 << note)]).clip(0.0) @ chances)


def _tests(best: int, doubtful: Sequence[int], value: Floats) -> tuple[tuple[tuple[int, float], ...], float]:
    """Return which notes of a set are left out with which probability, and what that is expected to cost: one after the other
    the note that is missed the least, while all of them may be left out within `COST`."""
    out, left, cost = list[int](), list(doubtful), 0.0
    while left:
        losses = {note: float(value[best] - value[best & ~sum(1 << other for other in (*out, note))]) for note in left}
        note = min(left, key=losses.__getitem__)
        if OUT * losses[note] > COST:
            if not out:
                return ((note, COST / losses[note]),), COST
            break
        out, cost = [*out, note], OUT * losses[note]
        left.remove(note)
    return tuple((note, OUT) for note in out), cost
