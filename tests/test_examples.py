"""Every file in examples/ runs as it stands, in an empty folder and without a key, and ends with the line that its README has."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from examples.stand_in import endpoint

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
ROW = re.compile(r"^\| \[([\w.]+)\]\(\1\) \|[^|]+\|([^|]*)\| `(.+)` \|$", re.M)
ROWS = ROW.findall((EXAMPLES / "README.md").read_text(encoding="utf-8"))
HEAVY = {"evaluate.py", "tiny_caller.py", "train_loop.py"}
"""Seconds of a core; left to `make test-all`."""


def test_every_file_has_its_row() -> None:
    files = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".sh")}
    assert {name for name, _, _ in ROWS} == files - {"stand_in.py"}


def test_the_stand_in_reads_messages_made_of_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    parts = [{"type": "text", "text": "Where do I live?"}, {"type": "image_url", "image_url": {"url": "data:,"}}]
    messages = [{"role": "system", "content": "- I live in Oslo."}, {"role": "user", "content": parts}]
    with endpoint() as (url, _, model):
        reply = httpx.post(f"{url}/chat/completions", json={"model": model, "messages": messages}).json()
    assert reply["choices"][0]["message"]["content"] == "I live in Oslo."


def missing(file: Path) -> str:
    """What it imports, or calls, and is not here."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".sh":
        return "" if shutil.which("curl") else "curl"
    named = re.findall(r"^(?:from|import) (\w+)", text, re.M)
    return ", ".join(name for name in named if name != "stand_in" and importlib.util.find_spec(name) is None)


COUNTS = {"server_curl.sh"}
"""Their last line counts what was done so far."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "last"),
    [pytest.param(name, last, marks=[pytest.mark.slow] * (name in HEAVY), id=name) for name, _, last in ROWS],
)
def test_it_ends_as_its_row_says(name: str, last: str, tmp_path: Path) -> None:
    assert_ends(name, last, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("name", "last"), [(name, last) for name, _, last in ROWS if name not in COUNTS])
def test_a_second_run_in_the_same_folder_ends_the_same(name: str, last: str, tmp_path: Path) -> None:
    for _ in range(2):
        assert_ends(name, last, tmp_path)


def assert_ends(name: str, last: str, folder: Path) -> None:
    if lacking := missing(EXAMPLES / name):
        pytest.skip(f"needs {lacking}: pip install '.[examples]'")
    keys = ("OPENAI_", "ANTHROPIC_", "KEEPWORTH_")
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = {key: value for key, value in os.environ.items() if not key.startswith(keys)} | {"PATH": path}
    command = [sys.executable if name.endswith(".py") else "sh", str(EXAMPLES / name)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    expected = ".*".join(map(re.escape, last.split("...")))
    assert re.fullmatch(expected, done.stdout.strip().splitlines()[-1]), done.stdout
