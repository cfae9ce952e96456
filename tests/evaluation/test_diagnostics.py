"""Diagnostics on cases that were worked out by hand."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from keepworth.episodes.errors import KeepworthError
from keepworth.evaluation.diagnostics import (
    Recall,
    Retention,
    abstention,
    by_tier,
    cross_domain,
    crossing,
    pass_at,
    pass_curve,
    recall_at,
    recognition,
    retained,
    retention,
    stage,
    tier,
    transfer,
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
    ids = [str(each) for each in range(50)]
    shares = [recall_at(list(generator.permutation(ids)), ["3", "7"], 10) for _ in range(2000)]
    assert np.mean([each.share for each in shares if each]) == pytest.approx(0.2, abs=0.02)
    # k of 50 hold at least one of two with 1 - C(48, 10) / C(50, 10): the same numbers as pass@k.
    assert np.mean([each.any for each in shares if each]) == pytest.approx(pass_at(50, 2, 10), abs=0.03)
    assert recognition(generator.normal(size=2000).tolist(), generator.normal(size=2000).tolist()) == pytest.approx(
        0.5, abs=0.03
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


def test_pass_at_k_by_hand_and_by_counting() -> None:
    assert pass_at(4, 1, 1) == 0.25
    assert pass_at(4, 1, 2) == 0.5
    assert pass_at(5, 2, 2) == 0.7  # 1 - 3/10
    assert pass_at(10, 3, 5) == 1 - 21 / 252
    assert pass_at(64, 0, 64) == 0.0
    assert pass_at(64, 60, 5) == 1.0
    for n, c, k in ((6, 2, 3), (7, 1, 4), (5, 5, 1)):
        draws = list(combinations(range(n), k))
        assert pass_at(n, c, k) == sum(min(draw) < c for draw in draws) / len(draws)
    with pytest.raises(ValueError, match="k=5"):
        pass_at(4, 1, 5)


def test_pass_at_k_has_no_bias() -> None:
    generator = np.random.default_rng(0)
    right = generator.binomial(16, 0.1, size=4000)
    assert np.mean([pass_at(16, int(c), 4) for c in right]) == pytest.approx(1 - 0.9**4, abs=0.01)


def test_curves_cross_where_the_tuned_model_only_sharpened_the_base() -> None:
    # Tuned: half of the problems always, the others never. Base: all problems, one sample in four. By hand: pass@1 1/2 against
    # 1/4, pass@2 1/2 against 1 - C(6,2)/C(8,2) = 13/28, pass@3 1/2 against 1 - C(6,3)/C(8,3) = 9/14.
    tuned, base = [8] * 10 + [0] * 10, [2] * 20
    found = crossing(tuned, base, 8, resamples=200)
    assert (found.k, found.first_ahead, found.only_first, found.only_second) == (3, "first", 0, 10)
    assert found.share > 0.95
    assert 1 <= found.low <= 3 <= found.high
    curve = pass_curve(base, 8)
    assert curve.mean[:3] == pytest.approx((0.25, 13 / 28, 9 / 14), abs=1e-15)
    assert curve.coverage == 1.0
    assert (curve.low[0], curve.high[0]) == (0.25, 0.25)
    never = crossing([4] * 5, [1] * 5, 8, resamples=50)
    assert (never.k, never.share, never.high) == (None, 0.0, math.inf)


CASES = [("i1", "t1", "f1"), ("i2", "t1", "f1"), ("i3", "t2", "f1"), ("i4", "t3", "f2")]


def test_tiers_of_generalisation() -> None:
    practised = [CASES[0]]
    tiers = [tier(*case, practised) for case in CASES]
    assert tiers == ["instance", "template", "family", "new"]
    found = by_tier([("i5", "t1", "f1"), ("i6", "t1", "f1"), ("i7", "t4", "f1")], ["template"] * 3, [1.0, 0.0, 1.0])
    assert found["template"].mean == 0.75  # two templates count once each, however many instances they have
    assert found["template"].n == 2


def test_gains_from_one_domain_to_another() -> None:
    base = {"a": [0.0, 0.0, 1.0, 0.0], "b": [1.0, 0.0, 0.0, 0.0]}
    scores = {
        ("a", "a"): [1.0, 1.0, 1.0, 0.0],
        ("a", "b"): [0.0, 0.0, 0.0, 0.0],
        ("a+b", "b"): [1.0, 1.0, 0.0, 1.0],
    }
    found = cross_domain(scores, base)
    assert {name: {on: each.difference for on, each in row.items()} for name, row in found.items()} == {
        "a": {"a": 0.5, "b": -0.25},
        "a+b": {"b": 0.5},
    }
    assert transfer(found) == (0.5, -0.25)
    with pytest.raises(KeepworthError, match="a was tested on 3 questions of b, and the base on 4"):
        cross_domain({("a", "b"): [1.0] * 3}, base)


def test_what_weights_and_a_store_retain() -> None:
    rows = [
        Retention(arm, f"i{item}", 1, delay, float(arm == "store" or delay == 0 or item == 0))
        for arm in ("weights", "store")
        for delay in (0, 100)
        for item in range(4)
    ]
    cells = retention(rows)
    assert {cell: each.mean for cell, each in cells.items()} == {
        ("store", 1, 0): 1.0,
        ("store", 1, 100): 1.0,
        ("weights", 1, 0): 1.0,
        ("weights", 1, 100): 0.25,
    }
    gaps = retained(rows, "store", "weights")
    assert {cell: each.difference for cell, each in gaps.items()} == {(1, 0): 0.0, (1, 100): 0.75}
    assert recognition([3.0, 2.0], [2.0, 1.0]) == 0.875  # of four pairs three are won and one is a tie
