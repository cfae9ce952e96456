"""Every table of docs/experience.md is made from the JSON files of the benchmarks, and no mark of a draft is left in it."""

from __future__ import annotations

import json
import math
import re

import pytest

from benchmarks.streams import page
from benchmarks.streams.tune import RIVALS
from keepworth.environments.streams import KIND_NAMES
from keepworth.evaluation.stream_claims import METHOD

TEXT = "\n".join(each.read_text() for each in page.PAGES)
FILES = sorted({name for each in re.findall(r"results/([\w-]+)\.json", TEXT) for name in [each]})


def test_the_page_holds_what_was_measured() -> None:
    assert page.rendered(TEXT) == TEXT


def test_no_table_stands_outside_the_marks_with_numbers_of_its_own() -> None:
    outside = re.sub(r"<!-- ([\w-]+) -->.*?<!-- /\1 -->", "", TEXT, flags=re.DOTALL)
    assert not re.findall(r"^\|.*\| *`?[+-]?\d{1,3}\.\d.*\|$", outside, flags=re.MULTILINE)
    assert "@@" not in TEXT


@pytest.mark.parametrize("name", FILES)
def test_results_say_how_they_were_made(name: str) -> None:
    found = json.loads((page.RESULTS / f"{name}.json").read_text())
    if name.startswith("overhead"):
        return
    if name.startswith("labelled"):
        assert found["split"] == "held-out"
        assert found["fixed_at"]
        assert all(each["seeds"] >= 10 for each in found["streams"])
        return
    assert found["plan"]["split"] in ("dev", "held-out")
    assert found["seeds"] >= 1
    for each in found["claims"].get("against_rivals", []):
        assert each["seeds_needed"] > 1
        assert (each["verdict"] == "too few seeds") == (each["clusters"] < each["seeds_needed"])
        assert each["low"] <= each["difference"] <= each["high"]
        assert not math.isnan(each["p"])


def test_rivals_have_the_better_of_published_and_tuned_settings_for_every_kind() -> None:
    """Those that stand in a table. A policy that was added since need not be tuned until it is measured there."""
    tuned = json.loads((page.RESULTS.parent / "tuned.json").read_text())
    shown = {arm for name in page.MEASURED for arms in page.of(name)["table"].values() for arm in arms}
    assert set(tuned) == set(KIND_NAMES)
    for methods in tuned.values():
        assert set(methods) >= (shown & set(RIVALS)) - {METHOD}
        assert all(each["objective"] >= each["published_objective"] for each in methods.values())
