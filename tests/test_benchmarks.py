"""Every benchmark still finds what it measures: a name that moved in the package fails here, not when the numbers are wanted."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.streams.memories import Table, controls, evidence
from benchmarks.streams.page import equal_rows
from keepworth.evaluation.stream import StreamRow
from keepworth.registry import methods

ROOT = Path(__file__).parents[1]
FILES = [path.relative_to(ROOT).with_suffix("") for path in sorted((ROOT / "benchmarks").rglob("*.py"))]
MODULES = [".".join(path.parts) for path in FILES if path.name != "__init__"]


@pytest.mark.parametrize("name", MODULES)
def test_it_can_be_imported(name: str) -> None:
    assert importlib.import_module(name).__doc__


def test_journeys_are_counted_of_each_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import journeys

    monkeypatch.setattr(sys, "argv", ["journeys", "--out", str(tmp_path / "journeys.json")])
    journeys.main()
    counted = json.loads((tmp_path / "journeys.json").read_text())
    assert list(counted) == ["Memory.add", "Memory.search", "Memory.reward", "gateway call", "training step"]
    assert all(counts["functions"] > 30 for counts in counted.values())


def told_of() -> list[str]:
    """The commands that pages and benchmarks name."""
    pages = [ROOT / "README.md", ROOT / "Makefile", *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/**/*.py")]
    found = (
        re.findall(r"python -m (benchmarks(?:\.\w+)+)(?![\w.]*\{)", page.read_text(encoding="utf-8")) for page in pages
    )
    return sorted({name for names in found for name in names})


@pytest.mark.parametrize("name", told_of())
def test_benchmark_commands_have_help(name: str, monkeypatch: Any, capsys: Any) -> None:
    module = importlib.import_module(name)
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    reads = r"\bArgumentParser\(|\b(takes_nothing|(?:cell_)?arguments)\(__doc__"
    assert re.search(reads, source), "it would begin to work"
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert not ended.value.code
    assert "usage" in capsys.readouterr().out


@pytest.mark.slow
def test_pages_match_the_benchmark_files(tmp_path: Path) -> None:
    for name in ("benchmarks", "docs", "examples", "src"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "README.md", tmp_path / "README.md")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path / 'src'}:{tmp_path}"}
    command = [sys.executable, "-m", "benchmarks.pages", "--check"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_ablated_policies_differ_from_their_originals() -> None:
    for name, declared in methods("policy").items():
        (first, *_) = controls(name, f"{name}+on" if declared.on else name)
        if first.endswith("+masked"):
            assert getattr(declared.make().valuer, "learns", True), f"{name} has no values that {first} could hide"


def test_equal_methods_on_a_stream_are_listed_together() -> None:
    rows = {"memrl+on": 0.5, "earm": 0.5, "earm+masked": 0.5, "amem": 0.5, "exprag": 0.4, "exprag+published": 0.4}
    learning = [{"arm": arm, "learning": {"key-door": {"mean": mean}}} for arm, mean in rows.items()]
    arms = [{**row, "frozen": {"key-door": {"mean": 0.2 if row["arm"] == "amem" else 0.1}}} for row in learning]
    lines = equal_rows({"streams": ["key-door"], "arms": arms}).splitlines()
    assert lines[2:] == ["| `memrl+on`, `earm` | `key-door` |"]


@pytest.mark.parametrize("measured", [("+on+masked", "+masked"), ("+masked",)])
def test_a_memory_is_compared_with_the_same_settings_without_its_values_where_they_were_run(measured: Any) -> None:
    others = ("exprag", "exprecent", "none", "random", "oracle", "nearest-mean", "memrl+on")
    names = (*others, *(f"memrl{change}" for change in measured))
    rows = [
        StreamRow("drift", "random", seed, arm, f"{seed % 2}101{number % 2}", "01", 1.0)
        for seed in range(8)
        for number, arm in enumerate(names)
    ]
    assert evidence(Table(rows), "memrl", "", "")["controls"][-1] == f"memrl{measured[0]}"
