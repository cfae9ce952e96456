"""The page over streams says what holds, and no more; it needs nothing but itself."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from keepworth.evaluation.stream_page import POINTS, curve_panels, verdict
from tests.evaluation.sample_streams import ARMS, sample_page, sample_rows, sample_summary
from tests.evaluation.test_report import require_whole

WORSE = {**ARMS, "memrl": 0.95}
ALIKE = {**ARMS, "exprag": 0.8, "memrl": 0.8}


def test_verdict_sentence_follows_the_comparisons() -> None:
    results = sample_rows({"near-miss": ARMS, "drift": WORSE, "benign": ALIKE})
    assert verdict(sample_summary(results)) == (
        "While learning, default is ahead of every rival on near-miss; behind at least one rival on drift; "
        "not told apart from the rival with the highest mean on benign."
    )
    assert "memrl is ahead of every rival on drift" in verdict(sample_summary(results, method="memrl"))


@pytest.mark.parametrize(
    ("arms", "seeds", "said"),
    [
        (ARMS, 1, "No verdict: a comparison needs at least 3 seeds. There is 1."),
        (ARMS, 4, "No verdict: 4 comparisons need 8 seeds. There are 4."),
        ({"none": 0.3, "default": 0.8}, 12, "No verdict: it takes two arms that learn from reward."),
        ({"none": 0.3, "exprag": 0.8}, 12, "No verdict: it takes two arms that learn from reward."),
    ],
)
def test_page_states_why_there_is_no_verdict(arms: dict[str, float], seeds: int, said: str, tmp_path: Path) -> None:
    results = sample_rows({"near-miss": arms}, seeds=seeds)
    assert verdict(sample_summary(results)) == said
    page = sample_page(tmp_path, results).read_text(encoding="utf-8")
    assert said in page
    assert ">held-out<" in page
    assert ">attacker<" not in page, "a column without numbers is left out"
    code = r"<style>.*?</style>|<script.*?</script>|Which memory learns best"
    assert "best" not in re.sub(code, "", page, flags=re.S)


def test_stream_page_lists_every_arm_and_is_self_contained(tmp_path: Path) -> None:
    page = sample_page(tmp_path, sample_rows({"near-miss": ARMS, "<b>drift</b>": WORSE}, attacked=True)).read_text()
    require_whole(page)
    assert "<b>drift" not in page
    for arm in ARMS:
        assert page.count(f">{arm}</td>") == 2, arm
    assert ">attacker<" in page
    data = re.findall(r'<script type="application/json">(.*?)</script>', page, re.DOTALL)
    assert [json.loads(datum)["along"] for datum in data] == ["task", "task"]


def test_long_curves_are_thinned_and_short_ones_omitted() -> None:
    long = sample_rows({"near-miss": ARMS}, seeds=3, length=1_000)
    (panel,) = curve_panels(long, sample_summary(long))
    assert all(len(each.steps) <= POINTS and len(each.steps) == len(each.values) for each in panel.series)
    labels = ["default", "memrl", "exprag", "default+shuffled", "none", "oracle"]
    assert [each.label for each in panel.series] == labels
    assert panel.series[0].steps[0] == 50
    short = sample_rows({"near-miss": ARMS}, seeds=3, length=40)
    assert curve_panels(short, sample_summary(short)) == []
