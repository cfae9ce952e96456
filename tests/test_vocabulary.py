"""One word for one thing: words that names had before, and that none has now."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.sources import SOURCE, files, nodes

DOCS = SOURCE.parent.parent / "docs"

GONE = {"likeness", "moment", "upkeep", "tape", "tapes", "steering", "masters", "mend", "shelf", "ticket", "tickets"}
"""Parts of names: similarity, timestamp, maintenance, call log, curriculum, master weights, fix, overlay, group index."""
VAGUE = {"found", "kept", "said", "told", "held", "ours"}
"""Whole names of what others use: of a function or a class, of its parameters and its fields."""


EMPTY = {"beside", "each", "found", "kept", "known", "own", "said", "told"}
"""Names of variables, which say nothing of what they hold."""
RIDDLES = {"anything", "everything", "nobody", "nothing", "somebody", "what", "whatever", "who", "whoever", "whose"}
"""Words that stand in names of tests for the subject, which the name should say."""
SHARED = {"AsyncMemory", "Config", "Memory"}
"""Class names of several files: every recipe has a `Config`, and the adapter of mem0 has the names of mem0."""


def names(tree: Sequence[ast.AST]) -> Iterator[str]:
    for node in tree:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                yield name


def public(tree: Sequence[ast.AST]) -> Iterator[str]:
    for node in tree:
        match node:
            case ast.ClassDef():
                yield node.name
                fields = (each.target for each in node.body if isinstance(each, ast.AnnAssign))
                yield from (field.id for field in fields if isinstance(field, ast.Name))
            case ast.FunctionDef() | ast.AsyncFunctionDef() if not node.name.startswith("_") or node.name == "__init__":
                yield node.name
                yield from (each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs))
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr


def test_no_name_holds_a_word_of_before() -> None:
    for path in files():
        tree = nodes(path)
        assert [name for name in names(tree) if GONE & set(name.lower().split("_"))] == [], path
        assert [name for name in public(tree) if name.lower().strip("_") in VAGUE] == [], path


def test_variables_have_specific_names() -> None:
    for path in files():
        stored = (node for node in nodes(path) if isinstance(node, ast.arg | ast.Name))
        names = [node.arg if isinstance(node, ast.arg) else node.id for node in stored]
        allowed = {"each"} if path.stem == "event_book" else set()  # a setting of that benchmark
        assert EMPTY & set(names) <= allowed, path


def test_the_name_of_a_class_stands_for_one_thing() -> None:
    modules = [nodes(path)[0] for path in files()]
    named = Counter(node.name for tree in modules for node in tree.body if isinstance(node, ast.ClassDef))  # type: ignore[attr-defined]
    assert {name for name, count in named.items() if count > 1 and not name.startswith("_")} == SHARED


def test_pages_use_the_words_of_today() -> None:
    for path in sorted(DOCS.rglob("*.md")):
        text = path.read_text(encoding="utf-8").lower()
        assert re.findall(r"\b(likeness|upkeep|tapes?|steering|masters|shelf|tickets?)\b", text) == [], path


def test_test_names_state_their_subject() -> None:
    for path in sorted(Path(__file__).parent.rglob("test_*.py")):
        names = re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8"))
        assert [name for name in names if RIDDLES & set(name.split("_"))] == [], path
