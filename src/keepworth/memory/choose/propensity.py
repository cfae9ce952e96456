"""A choice in which a few candidates are withheld, by draws of their own, or another is put first.

A slate is the ordered tuple of candidates that are shown, as positions in their list. So each of those under test has a
probability of being shown that is known by itself, which is what its effect is estimated from (`ledger`), and the slate has
the product of them. The policy states the probabilities: of withholding, the default policy those of `ledger.rate`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

Slate = tuple[int, ...]
LEAST_CHANCE = 0.05
"""A challenge with a smaller probability says too little of what it shows and hides to be part of the ledger."""


@dataclass(frozen=True)
class Independent:
    """One order, of which the first `k` are shown but for candidates under test, each of which has a draw of its own.

    order: positions among the candidates, all of them. up: (position, probability of being withheld) of those that may be
    withheld where they would be shown, in the order in which they are put to the test, at most `together` of them. drawn: of
    those that chance decided about earlier in the same episode, the probability of being shown that they had then, and whether
    they are: it is not drawn again. Those that were seen there without a draw have the probability 1: they are put to the test no
    more. What takes the place of the withheld is never under test.
    fills: whether something takes the place of the withheld.
    challengers: (position, probability) of those that may come before all others, one at a time. Chance decides about them first;
    if none of them comes first, it decides about those under test, unless challengers would hide too often what would be shown.
    """

    order: Slate
    k: int
    up: tuple[tuple[int, float], ...] = ()
    together: int = 1
    drawn: Mapping[int, tuple[float, bool]] = field(default_factory=dict)
    challengers: tuple[tuple[int, float], ...] = ()
    fills: bool = True

    @cached_property
    def _outside(self) -> dict[int, float]:
        """Return the challengers that would take the place of a candidate that is shown, if they come often enough for a test
        of their own."""
        outside = {index: p for index, p in self.challengers if index not in self.order[: self.k]}
        return outside if sum(outside.values()) >= LEAST_CHANCE else {}

    @cached_property
    def odds(self) -> dict[int, float]:
        """Return the probability of being shown of each candidate under test. Where no challenger takes another's place, it is
        the one that holds if none of them came first."""
        main = self.order[: self.k]
        if self._outside:
            likely = {index: p for index, p in self._outside.items() if p >= LEAST_CHANCE}
            return {main[-1]: 1.0 - sum(self._outside.values()), **likely}
        chances = {index: p for index, (p, _) in self.drawn.items() if p < 1.0 and index in main}
        for index, rate in self.up:
            if len(chances) < min(self.together, self.k) and rate > 0.0 and index in main and index not in self.drawn:
                chances[index] = 1.0 - rate
        return chances

    def draw(self, generator: np.random.Generator) -> tuple[Slate, str]:
        """Draw a slate. The second value says how it came about: "main" is the policy's own choice, "withheld" leaves something
        out, and "challenged" puts a challenger first."""
        if self.challengers:
            chance = generator.random()
            for index, p in self.challengers:
                chance -= p
                if chance < 0.0:
                    return self._challenged(index), "challenged"
        if self._outside:
            return self.order[: self.k], "main"
        shown = {
            index: self.drawn[index][1] if index in self.drawn else bool(generator.random() < p)
            for index, p in self.odds.items()
        }
        return self.slate(shown), "main" if all(shown.values()) else "withheld"

    def odds_of(self, part: str) -> dict[int, float]:
        """Return `odds` as far as chance decided by them. part: the second value of `draw`."""
        return self.odds if part != "challenged" or self._outside else {}

    def _challenged(self, challenger: int) -> Slate:
        return (challenger, *(index for index in self.order if index != challenger))[: self.k]

    def slate(self, shown: Mapping[int, bool]) -> Slate:
        """Return what is shown if chance decided so about each candidate under test."""
        listed = [index for index in self.order[: self.k] if shown.get(index, True)]
        if not self.fills:
            return tuple(listed)
        free = [index for index in self.order[self.k :] if self.drawn.get(index, (1.0, True))[0] == 1.0]
        return (*listed, *free[: self.k - len(listed)])

    def probability(self, slate: Sequence[int]) -> float:
        """Return the probability of showing exactly `slate` in this order, counting earlier draws as well."""
        first = slate[0] if slate else -1
        challenged = sum(
            p for index, p in self.challengers if index == first and self._challenged(index) == tuple(slate)
        )
        odds = {} if self._outside else self.odds
        if self.slate({index: index in slate for index in odds}) != tuple(slate):
            return challenged
        unchallenged = 1.0 - sum(p for _, p in self.challengers)
        return challenged + unchallenged * math.prod(p if index in slate else 1.0 - p for index, p in odds.items())

    def certain(self) -> Independent:
        return replace(self, up=(), drawn={}, challengers=())

    def at_most(self, k: int) -> Independent:
        return replace(self, k=min(k, self.k))

    def given(self, drawn: Mapping[int, tuple[float, bool]]) -> Independent:
        """Return the distribution later in the same episode: what was seen or drawn before is neither challenged nor a
        challenger. Where chance decided earlier about something that would be shown now, there is no challenge, whichever way it
        decided: so the episodes with an item and those without it differ in nothing else."""
        main = self.order[: self.k]
        again = {index for index, _ in self.challengers} | set(main[-1:])
        again |= {index for index in main if drawn.get(index, (1.0, True))[0] < 1.0}
        return replace(self, drawn=drawn, challengers=() if again & set(drawn) else self.challengers)
