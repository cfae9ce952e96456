"""The page needs nothing but itself, holds every episode, and nothing a model wrote can break it."""

from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepworth.charts import embed_json
from keepworth.charts.charts import nice_ticks
from keepworth.training.run_folder import RunFolder
from keepworth.training.watch.report import write_report
from tests.evaluation.sample_run import sample_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return sample_run(tmp_path_factory.mktemp("runs") / "demo", steps=6)


@pytest.fixture(scope="module")
def page(run: RunFolder) -> str:
    return write_report(run).read_text(encoding="utf-8")


class Balance(HTMLParser):
    """Checks that tags close in order."""

    VOID = ("meta", "input", "br", "circle", "line", "polygon", "polyline")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def require_whole(page: str) -> Balance:
    """It is well formed and loads nothing."""
    balance = Balance()
    balance.feed(page)
    assert balance.open == []
    assert re.findall(r"(?:src|href)\s*=|url\(|@import|https?://|fetch\(", page) == []
    return balance


def test_report_is_well_formed_and_self_contained(page: str) -> None:
    assert require_whole(page).seen.count("script") == page.count("<figure") + 2


def test_the_page_shows_tables_curves_and_settings(page: str) -> None:
    numbers = ("0.620", "[0.54, 0.71]", "Seconds by phase", "answerer.learning_rate", "prefers-color-scheme: dark")
    for text in ("A made-up run", "trained, another question&#39;s memory", *numbers):
        assert text in page, text


def test_every_episode_is_there(run: RunFolder, page: str) -> None:
    data = json.loads(re.search(r'id="episodes">(.*?)</script>', page, re.S).group(1))  # type: ignore[union-attr]
    stored = list(run.episodes())
    assert len(data["episodes"]) == len(stored)
    for record, each in zip(data["episodes"], stored, strict=True):
        assert data["texts"][record["question"]] == each.episode.question
        assert record["answer"] == each.episode.answer
        assert [data["texts"][text] for _, _, text in record["shown"]] == [shown.text for shown in each.episode.shown]


def test_report_states_omitted_episodes(run: RunFolder) -> None:
    page = write_report(run, episode_limit=5).read_text(encoding="utf-8")
    assert "The latest 5 of 32 episodes" in page
    write_report(run)


def test_report_survives_nan_and_infinity(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "r", {}) as run:
        for step, loss in enumerate((0.1, math.nan, math.inf), 1):
            with (run.path / "metrics.jsonl").open("a") as lines:  # as earlier versions wrote them
                lines.write(json.dumps({"step": step, "time": 0.0, "loss": loss, "reward": math.nan}) + "\n")
        page = write_report(run).read_text(encoding="utf-8")
    found = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.S)
    data = [json.loads(each, parse_constant=lambda name: pytest.fail(name)) for each in found]
    assert [0.1, "nan", "inf"] in [series["values"] for datum in data for series in datum["series"]]


def test_single_point_series_is_a_number_without_a_chart(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "r", {}) as run:
        run.append_metrics(1, {"loss": 0.25, "reward": 0.5})
        page = write_report(run).read_text(encoding="utf-8")
        assert "<figure" not in page
        assert "<span>Loss</span><code>0.250 at step 1</code>" in page
        assert "second step" in page
        run.append_metrics(2, {"loss": 0.5, "reward": 0.5})
        page = write_report(run).read_text(encoding="utf-8")
    assert page.count("<figure") == 2
    assert "Measured once" not in page


def test_the_result_comes_first(page: str) -> None:
    headings = re.findall(r"<h2>(.*?)</h2>", page)
    assert headings == ["What it can answer", "How it learned", "Every episode", "Configuration"]
    assert page.index("These numbers are invented") < page.index("What it can answer")


def test_empty_run_has_a_report(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "r", {"seed": 1}) as run:
        assert "Configuration" in write_report(run).read_text(encoding="utf-8")


@given(st.text())
def test_embedded_json_cannot_end_its_script(text: str) -> None:
    packed = embed_json({"text": text + "</script><!--"})
    assert "<" not in packed
    assert json.loads(packed)["text"] == text + "</script><!--"


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_cover_the_range_and_are_few(low: float, span: float) -> None:
    high = low + span
    if high <= low:
        return
    ticks = nice_ticks(low, high)
    assert ticks == sorted(set(ticks))
    assert ticks[0] <= low + 1e-6 * span
    assert ticks[-1] >= high - 1e-6 * span
    assert 2 <= len(ticks) <= 7


def test_ticks_are_round() -> None:
    assert nice_ticks(0.0, 0.7) == [0.0, 0.2, 0.4, 0.6, 0.8]
    assert nice_ticks(0, 45, 5) == [0, 10, 20, 30, 40, 50]


def test_the_name_of_an_axis_stands_below_its_numbers(page: str) -> None:
    labels = re.findall(r'<text class="tick" x="([\d.]+)" y="([\d.]+)" text-anchor="middle">([^<]+)</text>', page)
    names = [(x, float(y)) for x, y, text in labels if text == "step"]
    numbers = [float(y) for _, y, text in labels if text.isdigit()]
    assert names
    assert numbers
    assert min(y - max(number for number in numbers if number < y) for _, y in names) >= 10
