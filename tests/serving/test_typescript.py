"""The client in TypeScript: its types are those of the server, and it remembers, finds and rewards."""

from __future__ import annotations

import shutil
import subprocess
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from keepworth.serving.memory_server import MemoryServer

CLIENT = Path(__file__).parents[2] / "clients" / "typescript"


def test_typescript_types_match_the_server_description() -> None:
    spec: Any = spec_from_file_location("describe", CLIENT / "describe.py")
    module: Any = module_from_spec(spec)
    spec.loader.exec_module(module)
    first = (CLIENT / "src" / "schema.d.ts").read_text(encoding="utf-8").partition("\n")[0]
    assert module.digest() in first, "the routes have changed: run make typescript"


@pytest.mark.slow
@pytest.mark.skipif(not (CLIENT / "dist").is_dir(), reason="the client is not built: make test-typescript builds it")
@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node.js")
def test_a_program_in_node_uses_a_memory(tmp_path: Path) -> None:
    with MemoryServer(tmp_path / "m.mem", encoder="hashing", seed=0) as server:
        command = ["node", str(CLIENT / "example.mjs"), server.url, server.token]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    shown, error = done.stdout.strip().split("\n")
    assert shown == "- To reset the router hold the button."
    assert error.startswith("true 404 no item 'm999'")
