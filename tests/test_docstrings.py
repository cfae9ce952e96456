"""Public functions say of each parameter what a reader cannot see: its shape, its unit, what None stands for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.sources import SOURCE, files, nodes

ROOMS = (
    *("adapters", "base", "charts", "cli", "control", "encoders", "evaluation", "memory", "models", "records"),
    *("serving", "training", "worlds", "methods/benchmarks", "methods/control", "methods/objectives"),
    *("methods/policies", "methods/recipes", "methods/stages", "methods/studies", "methods/worlds", "methods/writers"),
)
"""The rooms whose public functions with `MANY` parameters have `Args:`: all of them."""
MANY = 3
DESCRIBING = {"verb", "tool", "command", "option", "argument"}
"""What makes an interface of a function, and describes its parameters to those who use it."""
FILLING = {"the", "a", "an", "of", "its", "this", "some"}
ENTRY = re.compile(r"^ {4}(\*{0,2}\w+(?:, \*{0,2}\w+)*): (.*(?:\n {8,}.*|\n(?=\n {8,}))*)", re.M)


class Documented(NamedTuple):
    """A function: where it stands, its parameters without self, and the entries of its `Args:`, by parameter."""

    place: str
    name: str
    parameters: tuple[str, ...]
    entries: dict[str, str]


def parameters_of(node: ast.FunctionDef | ast.AsyncFunctionDef, of_class: bool) -> tuple[str, ...]:
    arguments = node.args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    names += [each.arg for each in (arguments.vararg, arguments.kwarg) if each is not None]
    static = any(isinstance(each, ast.Name) and each.id == "staticmethod" for each in node.decorator_list)
    return tuple(names[1:] if of_class and not static else names)


def entries_of(docstring: str) -> dict[str, str]:
    section = re.split(r"^(?:Returns|Raises|Yields):", docstring.partition("Args:\n")[2], maxsplit=1, flags=re.M)[0]
    return {
        name.lstrip("*"): " ".join(text.split()) for names, text in ENTRY.findall(section) for name in names.split(", ")
    }


def is_interface(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether the docstring is the help of a command, a verb or a tool, whose annotations describe the parameters."""
    arguments = (*node.args.args, *node.args.kwonlyargs)
    parts = [*node.decorator_list, *(argument.annotation for argument in arguments if argument.annotation)]
    calls = [call for place in parts for call in ast.walk(place) if isinstance(call, ast.Call)]
    return any(isinstance(call.func, ast.Name) and call.func.id in DESCRIBING for call in calls)


def functions(path: Path, tree: ast.AST, inside: str = "", of_class: bool = False) -> Iterator[Documented]:
    """Every public function and method at the top of a file that others may import."""
    if any(re.match("_[a-z]", name) for name in path.relative_to(SOURCE).parts):
        return
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If | ast.Try):
            yield from functions(path, node, inside, of_class)
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from functions(path, node, f"{node.name}.", True)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            if is_interface(node):
                continue
            place = f"{path.relative_to(SOURCE).as_posix()}:{node.lineno} {inside}{node.name}"
            entries = entries_of(ast.get_docstring(node) or "")
            yield Documented(place, node.name, parameters_of(node, of_class), entries)


@cache
def public(room: str) -> tuple[Documented, ...]:
    return tuple(
        function for path in files() if room in ("", room_of(path)) for function in functions(path, nodes(path)[0])
    )


def room_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).parts
    return "/".join(parts[: 2 if parts[0] == "methods" else 1])


@pytest.mark.parametrize("room", ROOMS)
def test_a_public_function_with_many_parameters_describes_each_of_them(room: str) -> None:
    """One that overrides or implements another says nothing new: the other, with the same parameters, describes them."""
    described = {
        (function.name, function.parameters)
        for function in public("")
        if set(function.parameters) <= set(function.entries)
    }
    many = [function for function in public(room) if len(function.parameters) >= MANY]
    assert [function.place for function in many if (function.name, function.parameters) not in described] == []


@pytest.mark.parametrize("room", ROOMS)
def test_a_description_is_a_sentence_that_says_more_than_the_name(room: str) -> None:
    for function in public(room):
        for name, text in function.entries.items():
            assert re.search(r"[.?!](?:`|\")?$", text), f"{function.place}: {name}: {text}"
            words = set(re.findall(r"\w+", text.lower())) - FILLING - set(name.lower().split("_")) - {name.lower()}
            assert words, f"{function.place}: {name}: {text}"


def test_only_parameters_are_described() -> None:
    stale = [
        f"{function.place}: {name}"
        for function in public("")
        for name in function.entries
        if name not in function.parameters
    ]
    assert stale == []
