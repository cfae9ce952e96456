"""A world of ratings with a known rule, by seed: no open set of ratings may be passed on with this project.

In each of four scenarios two of twelve aspects decide; who likes which of them is each person's own. So a memory of a person is
worth asking, and a memory of what decides where is worth having. It shows that the recipe learns what can be learned, and
nothing about people.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np

SCENARIOS = ("film", "novel", "album", "game")
ASPECTS = ("slow", "funny", "dark", "short", "classic", "local", "strange", "warm", "loud", "cheap", "clever", "epic")
ITEMS, OWN, RATED, DECIDING = 60, 4, 40, 2
STRONG, WEAK, NOISE, APPEAL = 1.2, 0.1, 0.5, 0.2


def write(folder: Path, users: int = 600, seed: int = 0) -> Path:
    """ratings.csv and items.csv, and truth.json: by scenario the aspects that decide in it.

    The last rating of a user is of what they like most of 60 things of a scenario, with noise."""
    draw = np.random.default_rng(seed)
    weights = np.full((len(SCENARIOS), len(ASPECTS)), WEAK)
    for row in weights:
        row[draw.choice(len(ASPECTS), DECIDING, replace=False)] = STRONG
    kinds = np.repeat(np.arange(len(SCENARIOS)), ITEMS)
    has = np.zeros((len(kinds), len(ASPECTS)))
    for own in has:
        own[draw.choice(len(ASPECTS), OWN, replace=False)] = 1.0
    appeal = draw.normal(size=len(kinds)) * APPEAL
    rows: list[tuple[str, str, float, int]] = []
    for user in range(users):
        taste = draw.normal(size=len(ASPECTS))
        value = appeal + (has * weights[kinds]) @ taste + NOISE * draw.normal(size=len(kinds))
        odds = np.exp(appeal)
        order = list(draw.choice(len(kinds), RATED, replace=False, p=odds / odds.sum()))
        scenario = int(draw.integers(len(SCENARIOS)))
        order.append(max(set(np.flatnonzero(kinds == scenario)) - set(order), key=lambda each: float(value[each])))
        rows += [
            (f"u{user}", f"i{item}", float(np.clip(round(3.0 + value[item]), 1, 5)), time)
            for time, item in enumerate(order)
        ]
    folder.mkdir(parents=True, exist_ok=True)
    truth = {
        name: [ASPECTS[n] for n in np.flatnonzero(row == STRONG)] for name, row in zip(SCENARIOS, weights, strict=True)
    }
    (folder / "truth.json").write_text(json.dumps(truth))
    with (folder / "items.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(("item", "title", "categories"))
        for item, own in enumerate(has):
            named = [SCENARIOS[kinds[item]], *(name for name, it in zip(ASPECTS, own, strict=True) if it)]
            out.writerow((f"i{item}", f"Number {item}", "|".join(named)))
    with (folder / "ratings.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(("user", "item", "rating", "time"))
        out.writerows(rows)
    return folder
