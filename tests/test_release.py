"""What strangers install: metadata, the page on an index, licences, workflows. `make release-check` tries the wheel itself."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import lzma
import re
import shutil
import subprocess
import sys
import tomllib
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt

import keepworth
from keepworth.base.extras import EXTRAS
from tests.pages import ROOT

FIRST = {"train", "serve", "control", "all"}
"""The extras on the first page."""
SOMEWHERE = "https://example.org/somebody/keepworth"
README = (ROOT / "README.md").read_text(encoding="utf-8")
WORKFLOWS = {path.stem: path for path in sorted((ROOT / ".github/workflows").glob("*.yml"))}


def script(path: str) -> ModuleType:
    """A script of the repository that is no part of a package, as a module."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


pytest.importorskip("hatchling")
hook, check = script("hatch_build.py"), script("requirements/release_check.py")


def html(markdown: str) -> str:
    return MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown)


@pytest.fixture(scope="module")
def metadata() -> dict[str, Any]:
    command = [sys.executable, "-m", "hatchling", "metadata"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    fields: dict[str, Any] = json.loads(done.stdout)
    return fields


def test_the_version_is_written_in_one_place(metadata: dict[str, Any]) -> None:
    assert metadata["version"] == keepworth.__version__
    for name in ("pyproject.toml", "CITATION.cff", "Dockerfile"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert f'version = "{keepworth.__version__}"' not in text, name
        assert f"version: {keepworth.__version__}" not in text, name


def test_project_urls_follow_from_the_repository(metadata: dict[str, Any]) -> None:
    repository = re.findall(r'^repository = "(.*)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M)
    assert metadata.get("urls", {}) == hook.addresses(*repository, keepworth.__version__)
    assert hook.addresses("", "1.2.3") == {}
    made = hook.addresses(SOMEWHERE, "1.2.3")
    assert made["Repository"] == SOMEWHERE
    assert made["Documentation"] == f"{SOMEWHERE}/tree/v1.2.3/docs"
    assert all(
        (ROOT / link.rpartition("/")[2]).exists()
        for label, link in made.items()
        if label in ("Documentation", "Changelog")
    )


@pytest.mark.parametrize("repository", ["", SOMEWHERE])
def test_links_of_the_readme_work_on_an_index_page(repository: str) -> None:
    assert len(check.dead_links(html(README))) > 40, "in the repository they are relative"
    text = hook.index_page(README, repository, "1.2.3")
    page = html(text)
    assert check.dead_links(page) == []
    assert re.findall(r"```.*?```", text, re.S) == re.findall(r"```.*?```", README, re.S), "code stays as it is"
    targets = [target for target in check.Links(page).targets if target.startswith(SOMEWHERE)]
    assert bool(targets) == bool(repository)
    for target in targets:
        kind, _, path = target.removeprefix(f"{SOMEWHERE}/").partition("/v1.2.3/")
        assert kind == ("raw" if path.endswith(".png") else "blob")
        assert (ROOT / path.partition("#")[0]).exists(), target


def test_a_dead_link_is_seen() -> None:
    page = '<a href="docs/a.md">a</a> <img src="b.png"> <a href="http://x.org">c</a> <a href="#d">d</a> <a href="https://x.org">e</a>'
    assert check.dead_links(page) == ["docs/a.md", "b.png", "http://x.org"]


def test_every_licence_of_data_in_the_package_is_named(metadata: dict[str, Any]) -> None:
    globs = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["license-files"]
    named = {path for glob in globs for path in ROOT.glob(glob)}
    inside = {
        path for path in (ROOT / "src").rglob("*") if "licen" in path.name.lower() or path.name == "ATTRIBUTION.md"
    }
    assert named == inside | {ROOT / "LICENSE"}
    identifiers = set(metadata["license"].split(" AND "))
    assert identifiers == {"Apache-2.0", "MIT", "BSD-3-Clause"}
    texts = [path.read_text(encoding="utf-8") for path in sorted(named) if path.name != "ATTRIBUTION.md"]
    titles = {"Apache-2.0": "Apache License", "MIT": "MIT License", "BSD-3-Clause": "BSD 3-Clause License"}
    assert {name for name, title in titles.items() if any(title in text for text in texts)} == identifiers


def test_packaged_data_match_their_attribution() -> None:
    unpack = {".xz": lzma.decompress, ".gz": lambda packed: zlib.decompress(packed, 31)}
    for page in (ROOT / "src").rglob("ATTRIBUTION.md"):
        sums = set(re.findall(r"\b[0-9a-f]{64}\b", page.read_text(encoding="utf-8")))
        files = [path for path in page.parent.iterdir() if path.suffix in unpack]
        assert files
        for path in files:
            assert f"`{path.name}`" in page.read_text(encoding="utf-8")
            assert hashlib.sha256(unpack[path.suffix](path.read_bytes())).hexdigest() in sums, path


def test_the_first_page_has_four_extras_and_the_reference_each_of_them_once() -> None:
    installs = re.findall(r'pip install "\.\[(\w+)\]"', README.partition("## Install")[2].partition("## ")[0])
    assert set(installs) == FIRST
    page = (ROOT / "docs/upgrading.md").read_text(encoding="utf-8").partition("## In a container")[0]
    uses, parts = page.partition("| part | brings |")[::2]
    assert set(re.findall(r'^\| .* \| `pip install "\.\[(\w+)\]"` \|$', uses, re.M)) == FIRST
    names = [name for cell in re.findall(r"^\| (`.*?) \|", parts, re.M) for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(names) == sorted(set(EXTRAS) - FIRST)


def test_the_page_says_for_how_long_a_name_stays() -> None:
    text = (
        (ROOT / "docs/upgrading.md")
        .read_text(encoding="utf-8")
        .partition("## What changes, and when\n")[2]
        .partition("## ")[0]
    )
    assert "DeprecationWarning" in text
    assert len(re.findall(r"\.\s", text.replace("1.0", ""))) == 3


def test_release_check_refuses_unfilled_fields(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "CHANGELOG.md", "README.md", "src/keepworth/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    method = tmp_path / "src/keepworth/methods/policies/mine.py"
    method.parent.mkdir(parents=True)
    method.write_text('METHOD = Method(label="unmeasured")\n')
    for name, fixed in (
        ("CHANGELOG.md", "## 0.1.0 (unreleased)\n"),
        ("README.md", "pip install .\n"),
        ("pyproject.toml", '[tool.hatch.metadata.hooks.custom]\nrepository = ""\n'),
    ):
        (tmp_path / name).write_text(fixed)
    mistakes = list(check.unfilled(tmp_path, "v9.9.9"))
    for number, word in enumerate(("v9.9.9", "repository", "CHANGELOG.md", "README.md", "mine.py")):
        assert word in mistakes[number]
    (tmp_path / "CHANGELOG.md").write_text("## 0.1.0 (2026-12-24)\n")
    (tmp_path / "README.md").write_text("pip install keepworth\n")
    (tmp_path / "pyproject.toml").write_text(f'[tool.hatch.metadata.hooks.custom]\nrepository = "{SOMEWHERE}"\n')
    method.unlink()
    assert list(check.unfilled(tmp_path, f"v{keepworth.__version__}")) == []


def commands(workflow: dict[str, Any]) -> list[str]:
    return [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_workflows_run_make_targets_with_minimal_permissions(name: str) -> None:
    workflow = yaml.safe_load(WORKFLOWS[name].read_text(encoding="utf-8"))
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    made = [word for line in commands(workflow) for word in re.findall(r"^make ([\w-]+)", line, re.M)]
    assert made
    assert set(made) <= targets
    assert workflow["permissions"] == {"contents": "read"}
    assert all("timeout-minutes" in job for job in workflow["jobs"].values())
    assert "secrets." not in WORKFLOWS[name].read_text(encoding="utf-8")


def test_release_workflow_publishes_checked_builds_without_a_password() -> None:
    workflow = yaml.safe_load(WORKFLOWS["release"].read_text(encoding="utf-8"))
    jobs = workflow["jobs"]
    rights = {name: job["permissions"] for name, job in jobs.items() if "permissions" in job}
    assert rights == {"publish": {"id-token": "write"}}
    assert jobs["publish"]["needs"] == "build"
    assert jobs["publish"]["environment"] == "pypi"
    ran = [step.get("run", "") for step in jobs["build"]["steps"]]
    assert [line for line in ran if line] == ["make test-all", 'make release-check TAG="$GITHUB_REF_NAME"']
    assert workflow[True] == {"push": {"tags": ["v*"]}}, "YAML reads `on` as true"
    assert ["run" in step for step in jobs["publish"]["steps"]] == [False, False], (
        "nothing is built beside the rights to publish"
    )
