"""What MR.Rec (arXiv 2510.14629) remembers: of one user by aspect, and of one scenario over all training users."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from keepworth.methods.studies._ratings import RatedItem, Rating, Ratings

SHRINK = 3.0
"""Ratings of the user's usual size that each pattern begins with."""


@dataclass(frozen=True, slots=True)
class RecommendationRequest:
    """history: what the user rated before. wanted: the item that they then rated above their usual (hidden). candidates: items of
    the scenario that they had not rated, `wanted` among them."""

    user: str
    scenario: str
    history: tuple[Rating, ...]
    wanted: str
    candidates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """count: ratings of items that have an aspect. stance: by how much they lie above the user's usual rating, shrunk."""

    count: int
    stance: float


class LocalMemory:
    """What is remembered of one user: what they rated; their stance on each aspect within a scenario (the pattern of a category);
    and over all scenarios (the profile), to which a pattern is shrunk, as the profile is to 0."""

    def __init__(self, history: Sequence[Rating], items: Mapping[str, RatedItem]) -> None:
        self._history, self._items = history, items
        self.usual = sum(rating.rating for rating in history) / len(history) if history else 0.0
        names = sorted({name for rating in history for name in items[rating.item].categories})
        self.profile = {name: self._pattern(name, "", 0.0) for name in names}

    def _pattern(self, aspect: str, scenario: str, usual: float) -> Pattern:
        gaps = [rating.rating - self.usual for rating in self._of(aspect, scenario)]
        return Pattern(len(gaps), (sum(gaps) + SHRINK * usual) / (len(gaps) + SHRINK))

    def _of(self, aspect: str, scenario: str) -> list[Rating]:
        """The ratings of items that have an aspect, of a scenario where one is named."""
        ratings = []
        for rating in self._history:
            categories = self._items[rating.item].categories
            if aspect in categories and (not scenario or categories[0] == scenario):
                ratings.append(rating)
        return ratings

    def pattern(self, aspect: str, scenario: str) -> Pattern:
        return self._pattern(aspect, scenario, self.profile[aspect].stance if aspect in self.profile else 0.0)

    def holds(self, aspect: str) -> bool:
        """Whether asking for an aspect finds anything: the user rated something that has it."""
        return aspect in self.profile


class GlobalMemory:
    """Which aspects decide in a scenario, from requests of training users: for each the mean over requests of the user's stance
    on it times how much oftener the chosen item has it than those not chosen, shrunk by ten requests without a say. popularity:
    how often training users had rated an item before they asked."""

    def __init__(self, training: Sequence[RecommendationRequest], ratings: Ratings) -> None:
        self.popularity = Counter(rating.item for request in training for rating in request.history)
        sums: dict[str, dict[str, float]] = {}
        many = Counter(request.scenario for request in training)
        for request in training:
            local, total = LocalMemory(request.history, ratings.items), sums.setdefault(request.scenario, {})
            chosen = set(ratings.items[request.wanted].categories)
            others = [set(ratings.items[id].categories) for id in request.candidates if id != request.wanted]
            for aspect in sorted(chosen.union(*others) - {request.scenario}):
                share = sum(aspect in other for other in others) / len(others)
                total[aspect] = total.get(aspect, 0.0) + local.pattern(aspect, request.scenario).stance * (
                    (aspect in chosen) - share
                )
        self.decides = {
            scenario: {aspect: value / (many[scenario] + 10.0) for aspect, value in total.items()}
            for scenario, total in sums.items()
        }
