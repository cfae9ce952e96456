"""Claims name the best of all rivals, and say where there are too few seeds to claim anything."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from keepworth.evaluation.stream import Results, StreamRow
from keepworth.evaluation.stream_claims import claims, plan_power, rivals

ARMS = {"none": 0.3, "memrl": 0.5, "kernel-mean": 0.78, "exprag+published": 0.55, "default": 0.7}
ARMS["default+shuffled"] = 0.3


def rows(seeds: int, arms: dict[str, float] = ARMS, spread: float = 0.02) -> Results:
    generator = np.random.default_rng(0)

    def bits(mean: float, shared: float) -> str:
        shares = (mean + shared + generator.normal(0, spread) for _ in range(100))
        return "".join("1" if place < 100 * share else "0" for place, share in enumerate(shares))

    found = []
    for seed in range(seeds):
        shared = float(generator.normal(0.0, 0.05))
        for arm, mean in arms.items():
            held = bits(mean, shared)
            found.append(StreamRow("near-miss", "random", seed, arm, bits(mean, shared), held, 1.0))
    return Results(found)


@cache
def said(seeds: int, left_out: str = "") -> dict[str, Any]:
    """The claims of so many seeds; their intervals are drawn once."""
    return claims(rows(seeds, {name: mean for name, mean in ARMS.items() if name != left_out}))


def test_rivals_are_all_arms_that_learn_and_are_not_ours() -> None:
    assert rivals(rows(3).arms) == ["memrl", "kernel-mean", "exprag+published"]


def test_the_best_rival_is_found_and_a_lead_is_one_over_all() -> None:
    stream, frozen = said(12)["best_rival"]
    assert (stream["measure"], frozen["measure"]) == ("stream", "frozen")
    assert stream["rival"] == "kernel-mean"
    assert stream["verdict"] == "behind"
    assert stream["counts"] == {"ahead": 2, "behind": 1}
    assert not stream["leads"]
    alone = said(12, "kernel-mean")
    assert alone["best_rival"][0]["rival"] == "exprag+published"
    assert alone["best_rival"][0]["leads"]
    assert [each["holds"] for each in alone["gain_left_when_permuted"]] == [True, True]


def test_too_few_seeds_is_a_verdict_of_its_own() -> None:
    found = said(4)
    assert {rival["verdict"] for rival in found["against_rivals"]} == {"too few seeds"}
    assert all(rival["seeds_needed"] == 8 for rival in found["against_rivals"])  # six comparisons: 2^-7 < 0.05 / 6
    assert not found["best_rival"][0]["leads"]


def test_any_arm_can_be_the_method() -> None:
    found = claims(rows(12), "kernel-mean")
    assert {rival["name"].split(" - ")[0] for rival in found["against_rivals"]} == {"kernel-mean"}
    assert "kernel-mean - default on near-miss, stream" in {rival["name"] for rival in found["against_rivals"]}
    assert {rival["verdict"] for rival in found["against_rivals"]} == {"ahead"}


def test_the_plan_has_the_size_of_the_family() -> None:
    aim = plan_power(["near-miss", "drift"], list(ARMS), 12)
    assert aim is not None
    assert (aim.comparisons, aim.sd, aim.have) == (12, 0.06, 12)
    assert plan_power(["near-miss"], list(ARMS), 1) is None
    assert plan_power(["near-miss"], ["none", "default"], 12) is None
