"""What is measured of methods has one form, and stands beside a method that there is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from keepworth.registry import KINDS, methods

FILES = sorted((Path(__file__).parents[2] / "benchmarks" / "methods").glob("*.json"))
FIELDS = {
    *("name", "command", "revision", "machine", "model", "n", "seeds", "unit"),
    *("arms", "comparisons", "controls", "verdict", "sentence"),
}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_evidence_has_its_form_and_its_method(file: Path) -> None:
    measured = json.loads(file.read_text(encoding="utf-8"))
    assert set(measured) >= FIELDS
    assert measured["name"] == file.stem
    assert any(file.stem in methods(kind) for kind in KINDS)
    assert measured["verdict"] in ("held", "held in part", "not held", "not reachable here")
    assert measured["controls"]
    assert all({"name", "mean", "interval", "n"} == set(arm) for arm in measured["arms"])
    assert all({"against", "mean", "interval"} == set(gap) for gap in measured["comparisons"])
