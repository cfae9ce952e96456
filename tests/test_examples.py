"""Every file in examples/ runs as it stands, in an empty folder and without a key, and ends with the line that its README has."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
ROW = re.compile(r"^\| \[([\w.]+)\]\(\1\) \|[^|]+\|([^|]*)\| `(.+)` \|$", re.M)
ROWS = ROW.findall((EXAMPLES / "README.md").read_text(encoding="utf-8"))
HEAVY = {"evaluate.py"}
"""Seconds of a core; left to `make test-all`."""


def test_every_file_has_its_row() -> None:
    files = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".sh")}
    assert {name for name, _, _ in ROWS} == files - {"stand_in.py"}


def missing(file: Path) -> str:
    """What it imports, or calls, and is not here."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".sh":
        return "" if shutil.which("curl") else "curl"
    named = re.findall(r"^(?:from|import) (\w+)", text, re.M)
    return ", ".join(name for name in named if name != "stand_in" and importlib.util.find_spec(name) is None)


@pytest.mark.parametrize(
    ("name", "last"),
    [pytest.param(name, last, marks=[pytest.mark.slow] * (name in HEAVY), id=name) for name, _, last in ROWS],
)
def test_it_ends_as_its_row_says(name: str, last: str, tmp_path: Path) -> None:
    if lacking := missing(EXAMPLES / name):
        pytest.skip(f"needs {lacking}: pip install '.[examples]'")
    keys = ("OPENAI_", "ANTHROPIC_", "KEEPWORTH_")
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = {key: value for key, value in os.environ.items() if not key.startswith(keys)} | {"PATH": path}
    command = [sys.executable if name.endswith(".py") else "sh", str(EXAMPLES / name)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    expected = ".*".join(map(re.escape, last.split("...")))
    assert re.fullmatch(expected, done.stdout.strip().splitlines()[-1]), done.stdout
