"""Every benchmark still finds what it measures: a name that moved in the package fails here, not when the numbers are wanted."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
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


@pytest.mark.slow
def test_every_page_holds_what_the_files_of_the_benchmarks_say(tmp_path: Path) -> None:
    for name in ("benchmarks", "docs", "src"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "README.md", tmp_path / "README.md")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path / 'src'}:{tmp_path}"}
    command = [sys.executable, "-m", "benchmarks.pages", "--check"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
