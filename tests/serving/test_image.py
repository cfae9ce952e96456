"""The Dockerfile: what it copies is there and is enough, and its command serves as a user who can write nothing but the data."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.pages import ROOT

STAGES: list[list[tuple[str, str]]] = []
"""The instructions of each stage, the first of which is FROM: (keyword, the rest of the line)."""
for line in (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
    keyword, _, rest = line.partition(" ")
    if keyword == "FROM":
        STAGES.append([])
    if keyword and keyword != "#" and STAGES:
        STAGES[-1].append((keyword, rest.strip()))
BUILD, SERVER = STAGES
COPIED = [source for keyword, rest in BUILD if keyword == "COPY" for source in rest.split()[:-1]]
TOKEN = "kw_test-token-1905"


def rest_of(keyword: str) -> str:
    """What the server's stage says behind a keyword that it has once."""
    (rest,) = (rest for name, rest in SERVER if name == keyword)
    return rest


def command_of(keyword: str) -> list[str]:
    words: list[str] = json.loads(
        rest_of(keyword).partition("CMD ")[2] if keyword == "HEALTHCHECK" else rest_of(keyword)
    )
    return words


def test_dockerfile_copies_exist_and_the_context_is_limited_to_them() -> None:
    assert COPIED
    assert [name for name in COPIED if not (ROOT / name).exists()] == []
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert lines[1] == "*"
    assert sorted(line[1:] for line in lines if line.startswith("!")) == sorted(COPIED)


def test_copied_files_build_the_whole_wheel(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, tmp_path / name)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "dist"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    assert {"keepworth/py.typed", "keepworth/evidence/memrl.json", "keepworth/serving/page/index.html"} <= held


def test_the_server_s_stage_has_a_user_without_rights_and_no_tool_to_build() -> None:
    assert rest_of("USER").isdecimal()
    assert int(rest_of("USER")) > 0
    keywords = [keyword for keyword, _ in SERVER]
    assert keywords.index("USER") < keywords.index("ENTRYPOINT")
    assert [rest for keyword, rest in SERVER if keyword == "COPY"] == ["--from=build /opt/keepworth /opt/keepworth"]
    assert "pip" not in "".join(rest for keyword, rest in SERVER if keyword == "RUN")


@pytest.fixture
def folders() -> Iterator[tuple[Path, Path]]:
    """A tree of the sources that nobody may write to, and a folder for the data; both can be reached by every user."""
    with tempfile.TemporaryDirectory() as name:
        tree, data = Path(name) / "src", Path(name) / "data"
        shutil.copytree(ROOT / "src", tree, ignore=shutil.ignore_patterns("__pycache__"))
        data.mkdir()
        for path in (Path(name), tree, *tree.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        yield tree, data
        for path in (Path(name), tree, *(path for path in tree.rglob("*") if path.is_dir())):
            path.chmod(0o755)


def caller_of_nothing(environment: dict[str, str], data: Path) -> tuple[str, dict[str, Any]]:
    """An interpreter, and options that make its process one of the image's user: none where that user cannot read it."""
    other: dict[str, Any] = {"user": int(rest_of("USER")), "group": int(rest_of("USER")), "extra_groups": []}
    for python in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}") if os.geteuid() == 0 else ():
        with suppress(OSError):
            reads = [python, "-c", "import apsw, starlette, keepworth.cli.main"]
            if subprocess.run(reads, env=environment, cwd=data, capture_output=True, **other).returncode == 0:
                return python, other
    return sys.executable, {}


def test_image_command_serves_unprivileged_from_a_read_only_tree(folders: tuple[Path, Path]) -> None:
    tree, data = folders
    packages = sysconfig.get_path("purelib")
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{tree}:{packages}",
        "HOME": str(data),
        "KEEPWORTH_API_KEY": TOKEN,
    }
    environment |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1", "KEEPWORTH_CACHE": str(data / "none")}
    python, other = caller_of_nothing(environment, data)
    if other:
        os.chown(data, other["user"], other["group"])
    before = sorted(tree.rglob("*"))
    assert command_of("ENTRYPOINT") == ["keepworth", "serve"]
    words = [word.replace("/data", str(data)) for word in command_of("CMD")]
    command = [python, "-m", "keepworth", "serve", *words, "--port", "0", "--encoder", "hashing"]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment, cwd=data, **pipes, **other) as server:
        assert server.stdout is not None
        lines = iter(server.stdout)
        port = next(line for line in lines if line.startswith("http://")).split()[0].rpartition(":")[2]
        url = f"http://127.0.0.1:{port}"
        health = [
            python,
            *command_of("HEALTHCHECK")[1:-1],
            command_of("HEALTHCHECK")[-1].replace(":8000", f":{port}"),
        ]
        checked = subprocess.run(health, env=environment, cwd=data, capture_output=True, text=True)
        client = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, trust_env=False, timeout=300)
        with client:
            written = client.post("/v1/memory/items", json={"content": "I live in Oslo."}).status_code
            tools = client.post("/mcp", json={}).status_code
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)
    down = subprocess.run(health, env=environment, cwd=data, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    assert down.returncode != 0, "a server that is gone is not healthy"
    assert written == 200
    assert tools != 404
    assert (data / "agent.mem").stat().st_uid == other.get("user", os.geteuid())
    assert sorted(tree.rglob("*")) == before
