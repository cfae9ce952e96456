"""The wheel itself, alone in a fresh environment with an empty home: what `pip install keepworth` gives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FORBIDDEN = ("torch", "transformers", "scipy", "statsmodels", "matplotlib", "onnx", "pandas", "sympy", "gguf", "peft")
LEARNS = """
from keepworth import Memory

memory = Memory("agent.mem", seed=1)  # the default encoder, fetched
memory.add_many(["To reset the router hold the button.", "To reset the router pull the plug."])
plain = memory.search("how do I reset the router")[0].text
for _ in range(300):
    hits = memory.search("how do I reset the router", top_k=1)
    memory.reward(hits.decision, float(bool(hits) and hits[0].text != plain))
best = memory.search("how do I reset the router")[0]
assert (best.text != plain, best.why.moved) == (True, "up"), (plain, best)
memory.close()
"""

pytestmark = pytest.mark.slow


def run(command: list[str | Path], folder: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, dict[str, str]]:
    """The environment's programs, a folder to work in, and variables: pip's own settings and an empty home."""
    folder = tmp_path_factory.mktemp("wheel")
    home = folder / "home"
    home.mkdir()
    variables = {key: value for key, value in os.environ.items() if key.startswith(("PIP_", "SSL_", "HTTP", "http"))}
    variables |= {"PATH": os.environ["PATH"], "HOME": str(home)}
    wheel: list[str | Path] = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT]
    built = run([*wheel, "--no-build-isolation"] if find_spec("hatchling") else wheel, folder, variables)
    wheels = list(folder.glob("keepworth-*.whl"))
    if not wheels:
        pytest.skip(f"no wheel can be built here: {built.stderr[-200:]}")
    # With links, as `python -m venv` makes it: copies of the interpreter are no part of what is installed, and some have 20 MB.
    venv.create(folder / "venv", with_pip=True, symlinks=True)
    programs = folder / "venv" / "bin"
    got = run([programs / "pip", "install", "-q", "--no-cache-dir", wheels[0]], folder, variables)
    if got.returncode and "connect" in got.stderr.lower():
        pytest.skip("the package index cannot be reached")
    assert got.returncode == 0, got.stderr
    return programs, folder, variables


def test_wheel_installs_no_heavy_packages(installed: tuple[Path, Path, dict[str, str]]) -> None:
    programs, folder, variables = installed
    script = f"from importlib.util import find_spec; print(*(name for name in {FORBIDDEN} if find_spec(name)))"
    assert run([programs / "python", "-c", script], folder, variables).stdout.split() == []
    size = sum(path.stat().st_size for path in (folder / "venv").rglob("*") if path.is_file() and not path.is_symlink())
    assert size < 275e6, "at most 250 MB beyond an empty environment, whose pip and setuptools have 22"


def test_the_files_of_the_pages_come_with_it(installed: tuple[Path, Path, dict[str, str]]) -> None:
    (packed,) = installed[1].glob("keepworth-*.whl")
    held = set(zipfile.ZipFile(packed).namelist())
    for folder in ("serving/page", "charts", "training/watch/page"):
        inside = (ROOT / "src" / "keepworth" / folder).iterdir()
        there = {f"keepworth/{folder}/{path.name}" for path in inside if path.is_file()}
        assert there, folder
        assert there <= held, folder


def test_wheel_holds_methods_and_their_evidence(installed: tuple[Path, Path, dict[str, str]]) -> None:
    programs, folder, variables = installed
    shown = run([programs / "keepworth", "methods", "show", "memrl"], folder, variables).stdout
    measured = json.loads((ROOT / "benchmarks" / "methods" / "memrl.json").read_text())
    assert " ".join(measured["sentence"].split()[:5]) in " ".join(shown.split())


def test_the_readmes_lines_learn_with_the_default_encoder(installed: tuple[Path, Path, dict[str, str]]) -> None:
    programs, folder, variables = installed
    ran = run([programs / "python", "-c", LEARNS], folder, variables)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("command", ["--help", "doctor", "models list", "memory add tofu --file one.mem"])
def test_commands_of_a_light_install_work(command: str, installed: tuple[Path, Path, dict[str, str]]) -> None:
    programs, folder, variables = installed
    ran = run([programs / "keepworth", *command.split()], folder, variables)
    assert ran.returncode == 0, ran.stdout + ran.stderr
