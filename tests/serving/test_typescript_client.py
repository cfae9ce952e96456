"""The TypeScript client is what its generator writes, and works under a real Node against a real server."""

from __future__ import annotations

import importlib.util
import json
import re
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


NODE, NPM = shutil.which("node"), shutil.which("npm")


def done(command: list[str], folder: Path, ok: bool = True) -> subprocess.CompletedProcess[str]:
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert found.returncode == 0 or not ok, found.stdout + found.stderr
    return found


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of somebody who installed the package, as npm packs it."""
    if NODE is None or NPM is None:
        pytest.skip("there is no node and npm here")
    source, project = (tmp_path_factory.mktemp(name) for name in ("package", "project"))
    for name in ("keepworth.ts", "package.json", "tsconfig.json"):
        shutil.copy(FOLDER / name, source)
    built = done([NPM, "install", "--no-audit", "--no-fund"], source, ok=False)
    if "npm error network" in built.stderr or "E404" in built.stderr:
        pytest.skip("npm could not install typescript")
    assert built.returncode == 0, built.stderr
    packed = done([NPM, "pack", "--silent"], source).stdout.split()[-1]
    assert sorted(each.name for each in (source / "dist").iterdir()) == ["keepworth.d.ts", "keepworth.js"]
    (project / "package.json").write_text('{"type": "module"}')
    done([NPM, "install", "--no-audit", "--no-fund", str(source / packed)], project)
    shutil.copytree(source / "node_modules", project / "node_modules", dirs_exist_ok=True)  # the compiler
    shutil.copy(FOLDER / "example.mjs", project)
    return project


@pytest.mark.slow
def test_it_works_under_node_with_a_real_server(project: Path, tmp_path: Path) -> None:
    def run(url: str, token: str) -> subprocess.CompletedProcess[str]:
        return done([str(NODE), "example.mjs", url, token], project, ok=False)

    with MemoryServer(tmp_path / "agent.mem", encoder="hashing") as server:
        found = run(f"{server.url}/v1", server.token)
        assert found.returncode == 0, found.stderr
        assert json.loads(found.stdout) == {
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
def test_the_compiler_knows_its_types(project: Path) -> None:
    compiler = [str(NODE), "node_modules/typescript/bin/tsc", "--noEmit", "--strict", "--target", "es2022"]
    beginning = 'import { Keepworth } from "keepworth";\nconst memory = new Keepworth("u", "t");\n'
    (project / "right.ts").write_text(beginning + 'await memory.search({ query: "tea", top_k: 3 });\n')
    (project / "wrong.ts").write_text(beginning + "memory.search({ query: 5 });\n")
    done([*compiler, "--module", "nodenext", "right.ts"], project)
    refused = done([*compiler, "--module", "nodenext", "wrong.ts"], project, ok=False)
    assert "Type 'number' is not assignable to type 'string'" in refused.stdout
