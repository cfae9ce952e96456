"""The memories of MR.Rec (arXiv 2510.14629): of one user by aspect, and of one scenario over all training users."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from keepworth.methods.studies._ratings import Rating, Ratings

SHRINK = 3.0
"""Number of prior ratings, equal to the prior mean, in each pattern."""


@dataclass(frozen=True, slots=True)
class RecommendationRequest:
    """A request. history: the user's earlier ratings. wanted: the item that the user then rated above their mean (hidden).
    candidates: items of the scenario without an earlier rating, `wanted` among them."""

    user: str
    scenario: str
    history: tuple[Rating, ...]
    wanted: str
    candidates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """A user's ratings of one aspect. count: their number. stance: their mean minus the user's mean rating, shrunk."""

    count: int
    stance: float


class LocalMemory:
    """The memory of one user: their ratings; their stance on each aspect within a scenario (the pattern of a category), which is
    shrunk to the one over all scenarios (the profile), which is shrunk to 0."""

    def __init__(self, history: Sequence[Rating], items: Mapping[str, tuple[str, ...]]) -> None:
        self._rated = [(rating.rating, items[rating.item]) for rating in history]
        self.usual = sum(rating for rating, _ in self._rated) / len(history)
        names = sorted({name for _, categories in self._rated for name in categories})
        self.profile = {name: self._pattern(name, "", 0.0) for name in names}

    def _pattern(self, aspect: str, scenario: str, usual: float) -> Pattern:
        """Returns the pattern of an aspect, within a scenario if one is named."""
        rated = [(rating, of) for rating, of in self._rated if aspect in of and scenario in ("", of[0])]
        gaps = [rating - self.usual for rating, _ in rated]
        return Pattern(len(gaps), (sum(gaps) + SHRINK * usual) / (len(gaps) + SHRINK))

    def pattern(self, aspect: str, scenario: str) -> Pattern:
        return self._pattern(aspect, scenario, self.profile[aspect].stance if aspect in self.profile else 0.0)

    def holds(self, aspect: str) -> bool:
        """Returns whether the user rated an item that has the aspect, so that asking for it finds something."""
        return aspect in self.profile


class GlobalMemory:
    """The aspects that decide in a scenario, from requests of training users: for each the mean over requests of the user's
    stance on it, times how much more often the chosen item has it than the others, shrunk by ten requests of value 0. popularity:
    how often training users had rated an item before their request."""

    def __init__(self, training: Sequence[RecommendationRequest], ratings: Ratings) -> None:
        self.popularity = Counter(rating.item for request in training for rating in request.history)
        sums: dict[str, dict[str, float]] = {}
        many = Counter(request.scenario for request in training)
        for request in training:
            local, total = LocalMemory(request.history, ratings.items), sums.setdefault(request.scenario, {})
            chosen = set(ratings.items[request.wanted])
            others = [set(ratings.items[id]) for id in request.candidates if id != request.wanted]
            for aspect in sorted(chosen.union(*others) - {request.scenario}):
                share = sum(aspect in other for other in others) / len(others)
                total[aspect] = total.get(aspect, 0.0) + local.pattern(aspect, request.scenario).stance * (
                    (aspect in chosen) - share
                )
        self.decides = {
            scenario: {aspect: value / (many[scenario] + 10.0) for aspect, value in total.items()}
            for scenario, total in sums.items()
        }
