"""Diagnostics on cases that were worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from keepworth.evaluation.diagnostics import (
    Recall,
    abstention,
    recall_at,
    stage,
    where_points_go,
)

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
    assert found.scored == 0.5
    assert found.lost == {"lost": 0.2, "not used": 0.15, "not retrieved": 0.05, "no evidence marked": 0.1}
    assert math.fsum([found.scored, *found.lost.values()]) == 1.0
    assert found.lucky == 0.2  # right, and its evidence was not retrieved
    with pytest.raises(ValueError, match=r"1\.5 is not in"):
        where_points_go(["lost"], [1.5])


def test_evidence_recall_by_turn_and_by_session() -> None:
    ranked = ["s1/1", "s2/4", "s1/2", "s3/1", "s2/5"]
    evidence = ["s2/4", "s2/5", "s3/1"]
    assert recall_at(ranked, evidence, 1) == Recall(0.0, 0.0, 0.0, 0.0)
    at3 = recall_at(ranked, evidence, 3)
    assert at3 is not None
    assert (at3.share, at3.any, at3.all) == (1 / 3, 1.0, 0.0)
    assert at3.ndcg == pytest.approx((1 / math.log2(3)) / (1 + 1 / math.log2(3) + 1 / 2))
    assert recall_at(ranked, evidence, 5) == Recall(1.0, 1.0, 1.0, pytest.approx(0.679731, abs=1e-6))

    def session(id: str) -> str:
        return id.split("/")[0]

    # Sessions in order of their best turn: s1, s2, s3.
    by_session = recall_at(ranked, evidence, 2, of=session)
    assert by_session is not None
    assert (by_session.share, by_session.all) == (0.5, 0.0)
    assert recall_at(ranked, evidence, 3, of=session).share == 1.0  # type: ignore[union-attr]
    assert recall_at(ranked, [], 3) is None


def test_a_random_system_is_at_chance() -> None:
    generator = np.random.default_rng(0)
    ids = [str(number) for number in range(50)]
    shares = [recall_at(list(generator.permutation(ids)), ["3", "7"], 10) for _ in range(2000)]
    assert np.mean([share.share for share in shares if share]) == pytest.approx(0.2, abs=0.02)
    # k of 50 hold at least one of two with 1 - C(48, 10) / C(50, 10).
    assert np.mean([share.any for share in shares if share]) == pytest.approx(
        1 - math.comb(48, 10) / math.comb(50, 10), abs=0.03
    )


def test_abstention_by_hand() -> None:
    abstained = [True, True, False, False, False, True]
    answerable = [False, True, True, True, False, False]
    found = abstention(abstained, answerable, [0.0, 0.0, 1.0, 0.5, 0.25, 0.0])
    assert found.precision is not None
    assert found.recall is not None
    assert found.refused is not None
    assert (found.precision.mean, found.recall.mean, found.refused.mean) == (2 / 3, 2 / 3, 1 / 3)
    assert found.answered_score == 0.75
    assert found.score == 3.5 / 6  # two right abstentions, 1, 1/2; the made-up answer and the refusal earn nothing
    assert abstention([False], [True], [1.0]).precision is None
