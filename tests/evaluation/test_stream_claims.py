"""Claims name the best of all rivals, and say where there are too few seeds to claim anything."""

from __future__ import annotations

import numpy as np
import pytest

from keepworth.evaluation.stream import Results, StreamRow
from keepworth.evaluation.stream_claims import claims, rivals, seeds_needed

ARMS = {
    "none": 0.3,
    "memrl": 0.5,
    "kernel-mean": 0.78,
    "exprag+published": 0.55,
    "advantage": 0.7,
    "advantage+shuffled": 0.3,
}


def rows(seeds: int, arms: dict[str, float] = ARMS, spread: float = 0.02) -> Results:
    generator = np.random.default_rng(0)

    def bits(mean: float, shared: float) -> str:
        return "".join(
            "1" if place < 100 * (mean + shared + generator.normal(0, spread)) else "0" for place in range(100)
        )

    found = []
    for seed in range(seeds):
        shared = float(generator.normal(0.0, 0.05))
        for arm, mean in arms.items():
            held = bits(mean, shared)
            found.append(
                StreamRow("near-miss", "random", seed, arm, bits(mean, shared), held, 1, 0, 0, 0, 0, 0, 0, 0.0, 0.0)
            )
    return Results(found)


def test_rivals_are_all_arms_that_learn_and_are_not_ours() -> None:
    assert rivals(rows(3)) == ["memrl", "kernel-mean", "exprag+published"]


def test_the_best_rival_is_found_and_a_lead_is_one_over_all() -> None:
    found = claims(rows(12))
    stream, frozen = found["best_rival"]
    assert (stream["measure"], frozen["measure"]) == ("stream", "frozen")
    assert stream["rival"] == "kernel-mean"
    assert stream["verdict"] == "behind"
    assert stream["counts"] == {"ahead": 2, "behind": 1}
    assert not stream["leads"]
    alone = claims(rows(12, {name: mean for name, mean in ARMS.items() if name != "kernel-mean"}))
    assert alone["best_rival"][0]["rival"] == "exprag+published"
    assert alone["best_rival"][0]["leads"]
    assert [each["holds"] for each in alone["gain_left_when_permuted"]] == [True, True]


def test_too_few_seeds_is_a_verdict_of_its_own() -> None:
    found = claims(rows(4))
    assert {each["verdict"] for each in found["against_rivals"]} == {"too few seeds"}
    assert all(each["seeds_needed"] == 8 for each in found["against_rivals"])  # six comparisons: 2^-7 < 0.05 / 6
    assert not found["best_rival"][0]["leads"]


@pytest.mark.parametrize(("comparisons", "seeds"), [(1, 6), (2, 7), (6, 8), (128, 13)])
def test_seeds_that_a_family_needs(comparisons: int, seeds: int) -> None:
    assert seeds_needed(comparisons) == seeds
    assert 2.0 ** (1 - seeds) * comparisons < 0.05 <= 2.0 ** (2 - seeds) * comparisons


def test_what_cannot_be_told_apart_says_how_many_seeds_would() -> None:
    found = claims(rows(12, {"memrl": 0.695, "advantage": 0.7}, spread=0.05))["against_rivals"]
    assert found[0]["verdict"] == "cannot be told apart"
    assert found[0]["seeds_for_this"] > 12
