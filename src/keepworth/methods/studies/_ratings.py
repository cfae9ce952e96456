"""Generates ratings of items by users with a known rule, since no open set of ratings may be redistributed here.

In each of four scenarios two of twelve aspects decide; users differ in which of them they like. So a memory of a user is worth
querying, and a memory of what decides in a scenario is worth having. The data shows that the recipe learns what can be learned,
and nothing about people.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

SCENARIOS = ("film", "novel", "album", "game")
ASPECTS = ("slow", "funny", "dark", "short", "classic", "local", "strange", "warm", "loud", "cheap", "clever", "epic")
ITEMS, ASPECTS_OF_ITEM, RATED, DECIDING = 60, 4, 40, 2
STRONG, WEAK, NOISE, APPEAL = 1.2, 0.1, 0.5, 0.2


@dataclass(frozen=True, slots=True)
class Rating:
    """A rating: the higher the better."""

    user: str
    item: str
    rating: float


@dataclass(frozen=True, slots=True)
class Ratings:
    """Ratings of each user in the order of time, and the categories of each item: its scenario first, then its aspects."""

    items: Mapping[str, tuple[str, ...]]
    by_user: Mapping[str, tuple[Rating, ...]]


def make_ratings(users: int) -> Ratings:
    """Returns generated ratings. The last rating of a user is of their favourite among 60 items of a scenario, with noise."""
    draw = np.random.default_rng(0)
    weights = np.full((len(SCENARIOS), len(ASPECTS)), WEAK)
    for row in weights:
        row[draw.choice(len(ASPECTS), DECIDING, replace=False)] = STRONG
    kinds = np.repeat(np.arange(len(SCENARIOS)), ITEMS)
    has = np.zeros((len(kinds), len(ASPECTS)))
    for row in has:
        row[draw.choice(len(ASPECTS), ASPECTS_OF_ITEM, replace=False)] = 1.0
    appeal = draw.normal(size=len(kinds)) * APPEAL
    by_user = {}
    for user in range(users):
        taste = draw.normal(size=len(ASPECTS))
        value = appeal + (has * weights[kinds]) @ taste + NOISE * draw.normal(size=len(kinds))
        odds = np.exp(appeal)
        order = [int(item) for item in draw.choice(len(kinds), RATED, replace=False, p=odds / odds.sum())]
        scenario = int(draw.integers(len(SCENARIOS)))
        unrated = set(np.flatnonzero(kinds == scenario).tolist()) - set(order)
        order.append(max(unrated, key=lambda item: float(value[item])))
        by_user[f"u{user}"] = tuple(
            Rating(f"u{user}", f"i{item}", float(np.clip(round(3.0 + value[item]), 1, 5))) for item in order
        )
    items = {}
    for number, row in enumerate(has):
        aspects = (name for name, there in zip(ASPECTS, row, strict=True) if there)
        items[f"i{number}"] = (SCENARIOS[kinds[number]], *aspects)
    return Ratings(items, dict(sorted(by_user.items())))
