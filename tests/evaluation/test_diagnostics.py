"""Diagnostics on cases that were worked out by hand."""

from __future__ import annotations

import math

import pytest

from keepworth.evaluation.diagnostics import recall_at, stage, where_points_go

ALL = frozenset({"a", "b", "c"})


@pytest.mark.parametrize(
    ("written", "kept", "candidates", "shown", "name"),
    [
        ("bc", "bc", "bc", "b", "never written"),
        ("abc", "bc", "bc", "b", "lost"),
        ("abc", "abc", "bc", "b", "not retrieved"),
        ("abc", "abc", "abc", "b", "not selected"),
        ("abc", "abc", "abc", "ab", "not used"),
        (None, "bc", "bc", "b", "lost"),
        (None, None, None, "b", "not shown"),
        (None, None, None, "abc", "not used"),
    ],
)
def test_the_first_place_where_evidence_goes_missing(
    written: str | None, kept: str | None, candidates: str | None, shown: str, name: str
) -> None:
    assert stage("ab", shown=shown, candidates=candidates, kept_items=kept, written=written) == name
    assert stage("", shown=shown, candidates=candidates) == "no evidence marked"


def test_points_add_up() -> None:
    stages = ["lost", "not used", "not used", "not retrieved", "no evidence marked"]
    found = where_points_go(stages, [0.0, 0.25, 1.0, 0.75, 0.5])
    lost = {"lost": 0.2, "not used": 0.15, "not retrieved": 0.05, "no evidence marked": 0.1}
    assert found == {"scored": 0.5, **lost}
    assert math.fsum(found.values()) == 1.0
    with pytest.raises(ValueError, match=r"1\.5 is not in"):
        where_points_go(["lost"], [1.5])


def test_evidence_recall_by_turn_and_by_session() -> None:
    ranked = ["s1/1", "s2/4", "s1/2", "s3/1", "s2/5"]
    evidence = ["s2/4", "s2/5", "s3/1"]
    assert [recall_at(ranked, evidence, depth) for depth in (1, 3, 5)] == [0.0, 1 / 3, 1.0]

    def session(id: str) -> str:
        return id.split("/")[0]

    # Sessions in order of their best turn: s1, s2, s3.
    assert recall_at(ranked, evidence, 2, of=session) == 0.5
    assert recall_at(ranked, evidence, 3, of=session) == 1.0
    assert recall_at(ranked, [], 3) is None
