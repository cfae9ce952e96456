"""Every benchmark still finds what it measures: a name that moved in the package fails here, not when the numbers are wanted."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted((ROOT / "benchmarks").rglob("*.py"))
    if path.name != "__init__.py"
]


@pytest.mark.parametrize("name", MODULES)
def test_it_can_be_imported(name: str) -> None:
    assert importlib.import_module(name).__doc__
