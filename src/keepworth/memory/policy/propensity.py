"""A choice in which a few candidates are withheld, or shown all the same, by draws of their own.

A slate is the ordered tuple of candidates that are shown, as positions in their list. So each of those under test has a
probability of being shown that is known by itself, which is what its effect is estimated from (`ledger`), and the slate has
the product of them.
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

    order: positions among the candidates, all of them. known: (position, probability of being withheld) of those that may be
    withheld where they would be shown; down: (position, probability of being shown) of those that may be shown where they would
    not be. Both in the order in which they are put to the test, at most `together` of all of them. drawn: of those that chance
    decided about earlier in the same episode, the probability of being shown that they had then, and whether they are: it is
    not drawn again. Those that were seen there without a draw have the probability 1: they are put to the test no more. What
    is shown though it would not be stands first; what takes the place of the withheld is never under test.
    challengers: (position, probability) of those that may come before all others, one at a time; nothing is under test meanwhile.
    """

    order: Slate
    k: int
    known: tuple[tuple[int, float], ...] = ()
    down: tuple[tuple[int, float], ...] = ()
    together: int = 1
    drawn: Mapping[int, tuple[float, bool]] = field(default_factory=dict)
    challengers: tuple[tuple[int, float], ...] = ()

    @cached_property
    def odds(self) -> dict[int, float]:
        """The probability of being shown, of each candidate under test."""
        if self.challengers:
            main = self.order[: self.k]
            outside = {place: p for place, p in self.challengers if place not in main}
            hidden = sum(outside.values())
            if hidden < LEAST_CHANCE:
                return {}
            return {main[-1]: 1.0 - hidden, **{place: p for place, p in outside.items() if p >= LEAST_CHANCE}}
        own, found = self.order[: self.k], dict[int, float]()
        if self.drawn:
            lower = {place for place, _ in self.down}
            tested = {place: p for place, (p, _) in self.drawn.items() if p < 1.0}
            before = {place: p for place, p in tested.items() if place in own}
            before |= {place: p for place, p in tested.items() if place in lower and place not in own}
            # As many as there are places: what is tried takes the place of something that is not under test.
            found = dict(list(before.items())[: self.k])
        for tests, shown in ((self.known, True), (self.down, False)):
            for place, rate in tests:
                if len(found) >= min(self.together, self.k):
                    return found
                if rate > 0.0 and (place in own) == shown and place not in self.drawn:
                    found[place] = 1.0 - rate if shown else rate
        return found

    def draw(self, generator: np.random.Generator) -> tuple[Slate, str]:
        """The slate, and "main" where it is the policy's own choice, "withheld" where something is left out, "challenged" where
        a challenger comes first, else "tried"."""
        if self.challengers:
            chance = generator.random()
            for place, p in self.challengers:
                chance -= p
                if chance < 0.0:
                    return self._challenged(place), "challenged"
            return self.order[: self.k], "main"
        odds = self.odds
        shown = {
            place: self.drawn[place][1] if place in self.drawn else bool(generator.random() < p)
            for place, p in odds.items()
        }
        slate, main = self.slate(shown), self.order[: self.k]
        if slate == main:
            return slate, "main"
        return slate, "withheld" if any(place in main for place, there in shown.items() if not there) else "tried"

    def _challenged(self, challenger: int) -> Slate:
        return (challenger, *(place for place in self.order if place != challenger))[: self.k]

    def slate(self, shown: Mapping[int, bool]) -> Slate:
        """What is shown where chance decided so of each candidate under test."""
        main = self.order[: self.k]
        if all(there == (place in main) for place, there in shown.items()):
            return main
        tried = [place for place, there in shown.items() if there and place not in main]
        rest = [place for place in main if shown.get(place, True)]
        free = (place for place in self.order[self.k :] if place not in shown)
        rest += [place for place in free if place not in self.drawn or self.drawn[place][0] == 1.0][: self.k]
        for place in [place for place in reversed(rest) if place not in shown][
            : max(0, len(tried) + len(rest) - self.k)
        ]:
            rest.remove(place)
        return (*tried, *rest)

    def probability(self, slate: Sequence[int]) -> float:
        """Of showing exactly `slate` in this order: the product over the candidates under test, drawn before or not."""
        if self.challengers:
            if tuple(slate) == self.order[: self.k]:
                return 1.0 - sum(p for _, p in self.challengers)
            first = slate[0] if slate else -1
            return sum(p for place, p in self.challengers if place == first and self._challenged(place) == tuple(slate))
        odds = self.odds
        if self.slate({place: place in slate for place in odds}) != tuple(slate):
            return 0.0
        return math.prod(p if place in slate else 1.0 - p for place, p in odds.items())

    def certain(self) -> Independent:
        return replace(self, known=(), down=(), drawn={}, challengers=())

    def at_most(self, k: int) -> Independent:
        return replace(self, k=min(k, self.k))

    def given(self, drawn: Mapping[int, tuple[float, bool]]) -> Independent:
        """Later in an episode: nothing that was seen or drawn there before is challenged, or challenges, and a challenge brings
        back nothing that was withheld."""
        if not drawn:
            return self
        main = self.order[: self.k]
        again = {place for place, _ in self.challengers} | set(main[-1:])
        again |= {place for place in main if not drawn.get(place, (1.0, True))[1]}
        return replace(self, drawn=drawn, challengers=() if again & set(drawn) else self.challengers)
