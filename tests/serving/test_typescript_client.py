"""The TypeScript client is what its generator writes, and works under a real Node against a real server."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from keepworth import Client
from keepworth.serving.memory_routes import ROUTES
from keepworth.serving.memory_server import MemoryServer
from keepworth.serving.overview_routes import OVERVIEW_ROUTES, server_routes

FOLDER = Path(__file__).parents[2] / "clients" / "typescript"


def generator() -> Any:
    spec = importlib.util.spec_from_file_location("generate", FOLDER / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_is_what_the_document_of_today_says() -> None:
    text = (FOLDER / "keepworth.ts").read_text(encoding="utf-8")
    assert text == generator().written(), "python clients/typescript/generate.py writes it anew"
    methods = set(re.findall(r"^  (\w+)\(.*\): Promise<Answer> \{$", text, re.M))
    routes = (*ROUTES, *OVERVIEW_ROUTES, *server_routes({}))
    named = {re.sub(r"_(\w)", lambda found: found[1].upper(), route.name) for route in routes}
    assert named | {"addToken", "listTokens", "removeToken", "listAudit"} == methods


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "integer"}, "number"),
        ({"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "null"}]}, "string | number | null"),
        ({"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, "(string | null)[]"),
        ({"type": "array", "items": {"$ref": "#/components/schemas/X"}}, "X[]"),
        ({"type": "object"}, "Record<string, unknown>"),
    ],
)
def test_kinds_are_typescript_s(schema: dict[str, Any], says: str) -> None:
    assert generator().kind(schema) == says


NODE = shlex.split(os.environ.get("KEEPWORTH_NODE", ""))
TSC = shlex.split(os.environ.get("KEEPWORTH_TSC", shutil.which("tsc") or ""))


@pytest.mark.slow
@pytest.mark.skipif(not NODE, reason="npm install node@22, and set KEEPWORTH_NODE to it")
def test_it_works_under_node_with_a_real_server(tmp_path: Path) -> None:
    def run(url: str, token: str) -> subprocess.CompletedProcess[str]:
        command = [*NODE, str(FOLDER / "example.ts"), url, token]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    with MemoryServer(tmp_path / "agent.mem", encoder="hashing") as server:
        done = run(f"{server.url}/v1", server.token)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == {
            "added": "m1", "found": "Ana is allergic to peanuts", "listed": 1,
            "refused": {"status": 404, "fix": "take an id that a search or a list gave"},
        }  # fmt: skip
        with Client(server.url, server.token) as client:
            (id,) = client.episodes(user_id="ana")
            assert client.episode_record(id).reward == 1.0
        assert "The token is missing, wrong or expired. Send it as" in run(server.url, "kw_wrong").stderr
        url = server.url
    assert "gave no answer" in run(url, "kw_x").stderr


@pytest.mark.slow
@pytest.mark.skipif(not TSC, reason="npm install typescript @types/node, and set KEEPWORTH_TSC to tsc")
def test_the_compiler_takes_it_strictly(tmp_path: Path) -> None:
    for name in ("keepworth.ts", "example.ts"):
        shutil.copy(FOLDER / name, tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    wrong = 'import { Keepworth } from "./keepworth.ts";\nnew Keepworth("u", "t").search({ query: 5 });\n'
    options = ["--noEmit", "--strict", "--target", "es2022", "--module", "nodenext", "--allowImportingTsExtensions"]
    options += ["--types", os.environ.get("KEEPWORTH_NODE_TYPES", "node")]
    done = subprocess.run([*TSC, *options, "example.ts"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    (tmp_path / "wrong.ts").write_text(wrong)
    done = subprocess.run([*TSC, *options, "wrong.ts"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "Type 'number' is not assignable to type 'string'" in done.stdout
