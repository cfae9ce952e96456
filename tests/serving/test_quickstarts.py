"""The quick starts of the documentation: as short as it says, and those that speak to a server do what they say; and the
closed loop in short: the unmodified SDK, real HTTP, a user who corrects and rewards."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("openai")

from benchmarks.agents.closed_loop import LIKED, Loop, Reader, bolder
from benchmarks.agents.closed_loop import upstream as answering
from benchmarks.agents.quickstarts import FACT, proven, quickstarts
from keepworth.serving.memory_server import MemoryServer
from tests.serving.scripted_upstream import Script, upstream


def test_five_quick_starts_have_at_most_two_commands_and_ten_lines() -> None:
    found = quickstarts()
    assert list(found) == ["openai", "langgraph", "mcp", "python", "curl"]
    for commands, kind, block in found.values():
        assert 1 <= len(commands) <= 2
        assert commands[0].startswith("pip install ")
        assert len([line for line in block.splitlines() if line.strip()]) <= 10
        assert kind == "bash" or ast.parse(block)


@pytest.mark.parametrize("name", ["openai", "curl"])
def test_a_quick_start_ends_with_its_proof(name: str, tmp_path: Path) -> None:
    _, kind, block = quickstarts()[name]
    script, file = Script(), tmp_path / "agent.mem"
    with upstream(script) as model, MemoryServer(file, encoder="hashing", upstream=f"{model.url}/v1") as server:
        text = block.replace("8000", server.url.rsplit(":", 1)[1]).replace("kw_...", server.token)
        command = [sys.executable, "-c", text] if kind == "python" else ["bash", "-c", text]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ, timeout=120)
    assert done.returncode == 0, done.stderr
    assert proven(name, done.stdout, script), done.stdout
    if name == "openai":
        assert not proven(name, done.stdout.replace(FACT, "Rome"), script), "what the block printed is read"
        script.sent[-1].content = script.sent[-1].content.replace(FACT.encode(), b"Rome")
        assert not proven(name, done.stdout, script), "and what was sent"


@pytest.mark.parametrize("arm", ["bolder", "none", "oracle"])
def test_corrections_are_recalled_and_present_in_the_sent_bytes(arm: str, tmp_path: Path) -> None:
    reader = Reader()
    with answering(reader) as url, bolder(url, tmp_path / "agent.mem") as server:
        played = Loop(server.url, arm, 0, 24, reader).played()
    if arm == "oracle":
        assert played["success"] == 1.0
    elif arm == "none":
        assert played["success"] < 1.0
        assert played["chosen"] == 0
    else:
        assert played["chosen"] == played["shown"] > 0
        assert played["favourites"] > 1.0 / len(LIKED["tea"]), "what was corrected is known in the next conversation"
