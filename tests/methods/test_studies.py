"""Every study of the registry runs at its smallest size, and says what it measured with intervals."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from typer.testing import CliRunner

from keepworth.cli.methods import app
from keepworth.registry import methods

SMALL: Mapping[str, Mapping[str, Any]] = {
    "context_evolve": {"rounds": 3, "length": 8, "budget": 2},
    "memory_t1": {"limit": 6, "distractors": 3, "encoder": "none", "epochs": 1},
    "mr_rec": {"users": 60},
}
"""What makes a study small; one that is not here runs as it is."""


@pytest.mark.parametrize("name", methods("study"))
def test_it_runs_at_its_smallest_size(name: str) -> None:
    words = [word for key, value in SMALL.get(name, {}).items() for word in ("--set", f"{key}={value}")]
    ran = CliRunner().invoke(app, ["run", name, "--json", *words], catch_exceptions=False)
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(rows) >= 3
    assert len({row["arm"] for row in rows}) == len(rows)
    assert all(row["low"] <= row["mean"] <= row["high"] and row["n"] and row["unit"] for row in rows)
