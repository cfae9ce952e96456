"""What is optional: one table, one error, and no file that imports an optional package without saying which extra it needs."""

from __future__ import annotations

import ast
import importlib
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from keepworth.base import extras, needs
from keepworth.base.errors import KeepworthError
from keepworth.base.extras import EXTRAS, MissingExtra, missing, require
from tests.sources import SOURCE, files, nodes

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DISTRIBUTIONS = {"mem0": "mem0ai", "langgraph": "langgraph-checkpoint-sqlite", "agents": "openai-agents"}
OPTIONAL = {module for name, extra in EXTRAS.items() if name != "dev" for module in extra.modules} | {"onnx"}


def brought(extra: str) -> set[str]:
    """Every package that an extra brings, those of the extras it includes too."""
    found: set[str] = set()
    for each in map(Requirement, PROJECT["optional-dependencies"][extra]):
        found |= {canonicalize_name(each.name)} if each.name != "keepworth" else set().union(*map(brought, each.extras))
    return found


def test_the_table_names_the_extras_that_can_be_installed() -> None:
    assert set(EXTRAS) == set(PROJECT["optional-dependencies"])


@pytest.mark.parametrize("name", EXTRAS)
def test_an_extra_brings_the_modules_it_promises(name: str) -> None:
    assert {canonicalize_name(DISTRIBUTIONS.get(module, module)) for module in EXTRAS[name].modules} <= brought(name)


def test_required_dependencies_are_light() -> None:
    always = {canonicalize_name(Requirement(dependency).name) for dependency in PROJECT["dependencies"]}
    assert not always & {canonicalize_name(DISTRIBUTIONS.get(each, each)) for each in OPTIONAL}


def test_missing_extra_is_named_with_its_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name in ("scipy", "torch") else object())
    needed = r"^keepworth eval needs torch and scipy, which are not installed\."
    with pytest.raises(MissingExtra, match=needed) as found:
        require("train", "keepworth eval")
    assert isinstance(found.value, KeepworthError)
    assert isinstance(found.value, ImportError), "or `try: import ... except ImportError` would not work around us"
    assert str(found.value).endswith('pip install "keepworth[train]"')
    with pytest.raises(MissingExtra, match=r"^An interval needs scipy, which is not installed\."):
        require("train", "An interval", "scipy")
    require("train", "A table", "statsmodels")
    assert missing("eval") == ["scipy"]


def test_a_module_that_needs_an_extra_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "torch" else object())
    monkeypatch.delitem(sys.modules, "keepworth.models.adapter", raising=False)
    with pytest.raises(MissingExtra, match=r"^A language model in this process needs torch.*keepworth\[llm\]"):
        importlib.import_module("keepworth.models.adapter")
    with pytest.raises(AttributeError):
        needs.needs_nothing  # noqa: B018


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_file_that_imports_an_optional_package_says_so_first(path: Path) -> None:
    gated = False
    module = nodes(path)[0]
    assert isinstance(module, ast.Module)
    for node in module.body:
        if isinstance(node, ast.ImportFrom) and node.module == "keepworth.base.needs":
            gated = gated or any(name.name.startswith("needs_") for name in node.names)
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [name.name for name in node.names] if isinstance(node, ast.Import) else []
        heavy = {name.split(".")[0] for name in names} & OPTIONAL
        assert gated or not heavy, f"add `from keepworth.base.needs import needs_...` before {', '.join(heavy)}"
