"""The slots in TypeScript and the plugin of opencode, with Node and their real packages: `make test-hosts`.

The tests are in JavaScript, in `clients/typescript/test` and beside this file; here they get a server and the packages.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from keepworth.memory.headline import MARK
from keepworth.serving import hook
from keepworth.serving.memory_server import MemoryServer

ROOT = Path(__file__).parents[2]
CLIENT, BUILD = ROOT / "clients" / "typescript", ROOT / "build" / "typescript"
NODE = str(Path(sys.executable).with_name("node"))
Run = Callable[..., None]


@pytest.fixture(scope="module")
def build() -> Path:
    """The package with its sources of today, compiled where `make test-hosts` installed what it needs."""
    if not (Path(NODE).exists() and (BUILD / "node_modules" / "ai").is_dir()):
        pytest.skip("the npm packages are not installed: make test-hosts")
    for name in ("src", "test"):
        shutil.rmtree(BUILD / name, ignore_errors=True)
        shutil.copytree(CLIENT / name, BUILD / name)
    for name in ("package.json", "tsconfig.json"):
        shutil.copy(CLIENT / name, BUILD / name)
    subprocess.run([NODE, "node_modules/typescript/bin/tsc"], cwd=BUILD, check=True, timeout=280)
    return BUILD


@pytest.fixture
def run_node(build: Path, tmp_path: Path) -> Iterator[Run]:
    """Run Node's tests in a file, beside a server of their own."""
    with MemoryServer(tmp_path / "agent.mem", encoder="hashing", seed=0) as server:
        path = os.pathsep.join([str(Path(NODE).parent), os.environ["PATH"]])

        def run(file: Path, **variables: str) -> None:
            place = {"KEEPWORTH_URL": server.url, "KEEPWORTH_TOKEN": server.token, "PATH": path}
            command = [NODE, "--test", "--test-reporter=spec", str(file)]
            environment = {**os.environ, **place, **variables}
            done = subprocess.run(
                command, cwd=build, env=environment, capture_output=True, text=True, check=False, timeout=280
            )
            assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]

        yield run


def test_the_slots_keep_their_contract(run_node: Run) -> None:
    run_node(BUILD / "test" / "slots.test.mjs")


def test_the_lines_of_the_pages_are_typed_and_run(run_node: Run) -> None:
    pages = [CLIENT / "README.md", ROOT / "docs" / "adapters.md"]
    run_node(BUILD / "test" / "pages.test.mjs", KEEPWORTH_PAGES=":".join(map(str, pages)))


def test_the_headline_of_notes_is_the_same_in_both_languages() -> None:
    assert f'export const MARK = "{MARK}";' in (CLIENT / "src" / "turns.ts").read_text("utf-8")


def test_the_plugin_of_opencode(run_node: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    hook.install("opencode", [], write=True)
    file = tmp_path / hook.HOSTS["opencode"].settings
    types = ["--noEmit", "--allowJs", "--checkJs", "--skipLibCheck", "--module", "nodenext", "--target", "es2022"]
    place = BUILD / "plugin.js"  # where the packages are
    shutil.copy(file, place)
    command = [NODE, "node_modules/typescript/bin/tsc", *types, "--types", "node", str(place)]
    subprocess.run(command, cwd=BUILD, check=True, timeout=280)
    variables = {"KEEPWORTH_PLUGIN": str(place), "KEEPWORTH_HOOKS": str(tmp_path / "hooks"), "KEEPWORTH_USER": "ana"}
    run_node(Path(__file__).with_name("opencode.test.mjs"), **variables)
