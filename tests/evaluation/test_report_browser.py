"""Reports in a browser: they scroll one way only, and what is in a card stays in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keepworth.training.watch.report import write_report
from tests.evaluation.sample_run import sample_run
from tests.evaluation.sample_streams import ARMS, sample_page, sample_rows
from tests.serving.chromium import browser, missing

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing())]

WIDTHS = (390, 830, 1280, 1920)
OUTSIDE = """[...document.querySelectorAll('.card, .chart')].flatMap(card => {
  const bounds = card.getBoundingClientRect();
  return [...card.querySelectorAll('*')].filter(each => {
    if (each.closest('svg, .browser') && each.tagName !== 'svg') return false;
    const own = each.getBoundingClientRect();
    return own.width && (own.right > bounds.right + 1 || own.left < bounds.left - 1);
  }).map(each => `${each.tagName}: ${(each.textContent ?? '').slice(0, 60)}`);
})"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("pages")
    names = ("demo", "another-run-with-a-name-that-is-rather-long-indeed")
    runs = [sample_run(folder / name, steps=8) for name in names]
    begun = sample_run(folder / "begun", steps=1, finished=False)
    arms = {**ARMS, "default-without-everything-that-can-be-left-out": 0.4}
    streams = dict.fromkeys(("near-miss", "similarity-mid", "a-stream-whose-name-has-no-end-in-sight"), arms)
    return [
        write_report(runs[0]),
        write_report(begun),
        write_report(runs[1]),
        sample_page(folder / "streams", sample_rows(streams, attacked=True)),
        sample_page(folder / "one", sample_rows({"near-miss": ARMS}, seeds=1)),
    ]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as opened:
        yield opened


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_pages_scroll_one_way_and_have_no_barrier(chromium: Any, pages: list[Path], width: int, scheme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    said: list[str] = []
    for path in pages:
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(path.as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        name = f"{path.parent.name}/{path.name}"
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert page.evaluate(OUTSIDE) == [], name
        found = Axe().run(page).response["violations"]
        assert [f"{each['id']}: {node['target']}" for each in found for node in each["nodes"]] == [], name
        page.close()
    assert said == []
    context.close()


def test_the_numbers_of_a_stream_are_under_the_pointer(chromium: Any, pages: list[Path]) -> None:
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    page.goto(pages[3].as_uri())
    chart = page.locator("figure.chart svg").first
    chart.scroll_into_view_if_needed()
    chart.hover()
    said = page.locator(".tip").first.inner_text()
    assert said.startswith("task ")
    assert "default" in said
    page.close()
