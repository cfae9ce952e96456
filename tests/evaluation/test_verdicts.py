"""One rule makes a verdict of a record: where an interval lies, how much room there was, and what the claim is about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.methods.ruling import Ruling, judge
from keepworth.evaluation.verdicts import command_gone


def record(*gaps: tuple[str, float, float], places: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A record whose comparisons have these ends, all of which are claimed at one place unless places are named."""
    rule = {"gain": 0.05, "near": 0.10, "range": 1.0, "places": places or {"": {"above": [name for name, *_ in gaps]}}}
    return {
        "command": "keepworth eval stream",
        "revision": "0123abc",
        "n": 20,
        "seeds": 20,
        "arms": [],
        "comparisons": [
            {"against": name, "mean": (low + high) / 2, "interval": [low, high]} for name, low, high in gaps
        ],
        "controls": ["permuted rewards"],
        **fields,
        "rule": {**rule, **fields.get("rule", {})},
    }


def verdict(*gaps: tuple[str, float, float], claim: str = "It gains.", **fields: Any) -> Ruling:
    return judge(record(*gaps, **fields), claim)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.01, 0.20, "held"),
        (-0.01, 0.20, "undecided"),
        (-0.20, 0.05, "undecided"),
        (0.01, 0.04, "not held"),
        (-0.20, 0.04, "not held"),
    ],
)
def test_where_the_interval_lies_is_the_verdict_and_its_upper_end_the_bound(
    low: float, high: float, expected: str
) -> None:
    ruling = verdict(("baseline", low, high))
    assert (ruling.verdict, ruling.bound) == (expected, high)
    assert f"[{low:+.3f}, {high:+.3f}] against baseline" in ruling.because


def test_a_gain_must_hold_against_the_baseline_and_against_its_control() -> None:
    gain = ("baseline", 0.1, 0.3)
    assert verdict(gain, ("permuted rewards", 0.1, 0.3)).verdict == "held"
    assert verdict(gain, ("permuted rewards", -0.1, 0.3)).verdict == "undecided"
    assert verdict(gain, ("permuted rewards", -0.1, 0.0)).verdict == "not held"


def test_an_empty_claim_cannot_be_held() -> None:
    assert verdict(("baseline", 0.1, 0.3), claim="").verdict == "held in part"


def test_one_seed_of_training_is_no_verdict_while_questions_of_a_set_are_one() -> None:
    assert verdict(("baseline", 0.1, 0.3), seeds=1).verdict == "recorded before the rule"
    assert verdict(("baseline", 0.1, 0.3), seeds=1, rule={"units": "questions"}).verdict == "held"


def test_without_a_control_there_is_no_verdict() -> None:
    assert verdict(("baseline", 0.1, 0.3), controls=["none was run"]).verdict == "recorded before the rule"


@pytest.mark.parametrize(("oracle", "expected"), [(0.95, "no room here"), (1.0, "not held")])
def test_there_is_no_room_where_the_best_simple_rule_is_near_the_oracle(oracle: float, expected: str) -> None:
    places = {"": {"above": ["baseline"], "room": [["best rule", oracle]]}}
    arms = [{"name": "best rule", "mean": 0.88}]
    assert verdict(("baseline", -0.1, 0.0), places=places, arms=arms).verdict == expected


def test_a_paper_may_name_another_gain_and_another_range() -> None:
    assert verdict(("baseline", -1.0, 3.0), rule={"range": 100.0}).verdict == "not held"
    assert verdict(("baseline", -0.01, 0.04), rule={"gain": 0.02}).verdict == "undecided"


def test_help_on_one_world_and_harm_over_all_are_both_said() -> None:
    places = {name: {"above": [f"baseline, {name}"]} for name in ("over all", "events", "drift")}
    gaps = (("baseline, over all", -0.1, -0.06), ("baseline, events", 0.05, 0.09), ("baseline, drift", -0.3, -0.2))
    ruling = verdict(*gaps, places=places)
    assert (ruling.verdict, ruling.where) == ("not held", "helps on events and harms over all")
    over_all = (("baseline, over all", -0.01, 0.03), *gaps[1:])
    assert verdict(*over_all, places=places).verdict == "held in part"


def test_intervals_of_single_worlds_are_widened_for_the_number_of_worlds() -> None:
    worlds = [f"world {number}" for number in range(9)]
    places = {name: {"above": [name]} for name in worlds}
    barely = [(worlds[0], 0.005, 0.085), *((name, -0.08, 0.0) for name in worlds[1:])]
    assert verdict(*barely, places=places).verdict == "undecided"
    clearly = [(worlds[0], 0.045, 0.125), *barely[1:]]
    assert verdict(*clearly, places=places).verdict == "held in part"


def test_claims_of_less_and_of_as_much_have_their_own_sides() -> None:
    less = {"": {"below": ["stale answers"]}}
    assert verdict(("stale answers", -0.3, -0.1), places=less).verdict == "held"
    assert verdict(("stale answers", -0.03, 0.1), places=less).verdict == "not held"
    level = {"": {"level": ["whole messages"]}}
    ends = {(-0.04, 0.02): "held", (-0.10, 0.02): "undecided", (-0.20, -0.06): "not held"}
    for (low, high), expected in ends.items():
        assert verdict(("whole messages", low, high), places=level).verdict == expected


def test_a_record_says_why_a_claim_was_not_reachable_and_why_a_mechanism_was_off() -> None:
    for field, expected in (("unreachable", "not reachable here"), ("off", "no room here")):
        ruling = verdict(("baseline", 0.1, 0.3), rule={field: "Its data is not here."})
        assert (ruling.verdict, ruling.because, ruling.bound) == (expected, "Its data is not here.", None)


def test_a_record_without_its_command_is_stale_and_keeps_its_numbers(tmp_path: Path) -> None:
    gone = record(("baseline", 0.1, 0.3), command="python -m benchmarks.elsewhere.gone --seeds 3")
    ruling = judge(gone, "It gains.", tmp_path)
    assert ruling.verdict == "stale"
    assert ruling.because.startswith("benchmarks.elsewhere.gone is gone. By its numbers: held. +0.200 [+0.100, +0.300]")
    assert (
        command_gone("git checkout 9c9be037; keepworth eval run", tmp_path) == "Its code is in revision 9c9be037 alone."
    )
