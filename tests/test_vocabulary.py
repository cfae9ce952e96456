"""One word for one thing: words that names had before, and that none has now."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import keepworth

SOURCE = Path(keepworth.__file__).parent
DOCS = SOURCE.parent.parent / "docs"

GONE = {"likeness", "moment", "upkeep", "tape", "tapes", "steering", "masters", "mend", "shelf", "ticket", "tickets"}
"""Parts of names: similarity, timestamp, maintenance, call log, curriculum, master weights, fix, overlay, group index."""
VAGUE = {"found", "kept", "said", "told", "held", "ours"}
"""Whole names of what others use: of a function or a class, of its parameters and its fields."""


SHARED = {"Config", "Memory"}
"""Class names of several files: every recipe has a `Config`, and the adapter of mem0 has the name that mem0 gave its memory."""


def names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                yield name


def public(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef():
                yield node.name
                yield from (
                    each.target.id
                    for each in node.body
                    if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
                )
            case ast.FunctionDef() | ast.AsyncFunctionDef() if not node.name.startswith("_") or node.name == "__init__":
                yield node.name
                yield from (each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs))
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr


def test_no_name_holds_a_word_of_before() -> None:
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert [name for name in names(tree) if GONE & set(name.lower().split("_"))] == [], path
        assert [name for name in public(tree) if name.lower().strip("_") in VAGUE] == [], path


def test_the_name_of_a_class_stands_for_one_thing() -> None:
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))]
    named = [node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    assert {name for name in named if named.count(name) > 1 and not name.startswith("_")} == SHARED


def test_pages_use_the_words_of_today() -> None:
    """But for the page on upgrading, which says what things were called."""
    for path in sorted(DOCS.glob("*.md")):
        if path.name != "upgrading.md":
            text = path.read_text(encoding="utf-8").lower()
            assert re.findall(r"\b(likeness|upkeep|tapes?|steering|masters|shelf|tickets?)\b", text) == [], path
