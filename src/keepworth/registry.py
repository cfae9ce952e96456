"""Methods by name, as files of `keepworth.methods` and entry points "keepworth.methods" of other packages declare them; and parts
that lower rooms ask for by name, so that they import none of the rooms above them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, Literal, get_args

from keepworth.base.errors import KeepworthError, UnknownName

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Kind = Literal[
    "policy",
    "writer",
    "stage",
    "objective",
    "recipe",
    "world",
    "benchmark",
    "memory_module",
    "control_agent",
    "study",
    "system",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
FOLDERS: dict[str, tuple[Kind, ...]] = {
    "policies": ("policy",),
    "writers": ("writer",),
    "stages": ("stage",),
    "objectives": ("objective",),
    "recipes": ("recipe", "writer"),
    "worlds": ("world",),
    "benchmarks": ("benchmark",),
    "control": ("memory_module", "control_agent"),
    "studies": ("study",),
    "systems": ("system",),
}
"""The folders of `keepworth.methods`, and the kinds of what their files declare."""
TAGS: dict[str, tuple[str, ...]] = {
    "form": ("token", "parametric", "latent"),
    "function": ("factual", "experiential", "working"),
    "dynamics": ("formation", "evolution", "retrieval"),
}
"""What can be said of a memory, by the survey "Memory in the age of AI agents", arXiv 2512.13564: what it is made of, what it is
for, and which stage of its life a method changes."""
GROUP = "keepworth.methods"
PACKAGE = Path(__file__).parent
PARTS = {
    "encoder": "keepworth.encoders.local:encoder",
    "encoder of vectors": "keepworth.encoders.local:encoder_of",
    "hosted encoder": "keepworth.encoders.hosted:HostedEncoder",
    "chat model": "keepworth.base.chat:ChatModel",
    "facts by rules": "keepworth.methods.writers.facts:Facts",
    "notes of statements": "keepworth.methods.writers.statements:Statements",
}
"""What the memory makes by name: "module:attribute"."""


@dataclass(frozen=True, slots=True)
class Method:
    """A published method, or one of this project: what its file declares as `METHOD`, or several as `METHODS`.

    Attributes:
        kind: What `make` returns; see `KINDS`.
        name: What it is called on the command line.
        title: Its name in words.
        about: What it does, in one line.
        make: Settings -> the thing of this kind.
        paper: Where it is published: "arXiv 2601.03192".
        claim: What the paper says it gains, with its number.
        differs: What is not as in the paper, and why.
        tags: Words of `TAGS`: of a memory its form, functions and stages, of a world or a benchmark the function that it asks
            for; none of what is no memory.
        label: "analogue", "protocol" or "small", where honesty asks for it; "unmeasured" until its evidence is there, which a
            release refuses.
        extra: The extra of this package that brings what it needs.
        parts: What `make` can leave out, `without=PART`; on the command line NAME-without-PART.
        on: Settings under which its mechanism decides something, where other settings may leave it without effect: a pool of at
            least three times what is shown, say. In a comparison of streams NAME+on.
        notes: Of a policy under which rewards do not change the order of plain notes: why not.
    """

    kind: Kind
    name: str
    title: str
    about: str
    make: Callable[..., Any]
    paper: str = ""
    claim: str = ""
    differs: str = ""
    label: str = ""
    tags: tuple[str, ...] = ()
    extra: str = ""
    parts: tuple[str, ...] = ()
    on: Mapping[str, Any] = field(default_factory=dict)
    notes: str = ""


@dataclass(frozen=True, slots=True)
class Broken:
    """A file that declares no method because it cannot be loaded."""

    path: str
    reason: str


def methods(kind: Kind | None = None) -> dict[str, Method]:
    """The methods of a kind by name, or those of all kinds.

    Raises:
        KeepworthError: Two files declare the same kind and name.
    """
    declared: dict[tuple[str, str], tuple[Method, str]] = {}
    for source in _sources(kind):
        for method in _load(source)[0]:
            if kind not in (None, method.kind):
                continue
            _, other = declared.setdefault((method.kind, method.name), (method, source))
            if other != source:
                raise KeepworthError(
                    f"the {method.kind} {method.name!r} is declared twice: in {_place(other)} and in {_place(source)}.",
                    "Rename one of them.",
                )
    return {method.name: method for method, _ in declared.values()}


def broken() -> list[Broken]:
    """The files that cannot be loaded; the others work."""
    return [Broken(_place(source), reason) for source in _sources() if (reason := _load(source)[1])]


def method(kind: Kind, name: str) -> Method:
    """The method of this kind and name, in which dashes and underscores count as the same.

    Raises:
        UnknownName: There is none. Names the nearest, and the files that cannot be loaded.
    """
    if (declared := _in_own_file(kind, name)) is not None:
        return declared
    named = methods(kind)
    for declared in named.values():
        if isinstance(name, str) and spelling(declared.name) == spelling(name):
            return declared
    unknown = UnknownName(kind, name, named)
    unknown.fix = f"{unknown.fix} {not_loaded()}".strip()
    raise unknown


def spelling(name: str) -> str:
    """A name with dashes, as names of methods are compared."""
    return name.replace("_", "-")


def _in_own_file(kind: Kind, name: str) -> Method | None:
    """The method, if a file of this package has its name: then no other file is loaded."""
    if not isinstance(name, str):
        return None
    file = name.replace("-", "_")
    for folder, of in FOLDERS.items():
        there = PACKAGE / "methods" / folder
        if kind in of and file.isidentifier() and ((there / f"{file}.py").is_file() or (there / file).is_dir()):
            declared, _ = _load(f"{GROUP}.{folder}.{file}")
            matching = (entry for entry in declared if entry.kind == kind and spelling(entry.name) == spelling(name))
            return next(matching, None)
    return None


def not_loaded() -> str:
    """The files that cannot be loaded, as a sentence; "" where all can."""
    files = "; ".join(f"{file.path}: {file.reason}" for file in broken())
    return f"Not loaded: {files}." if files else ""


def failed_entry(name: str) -> Broken | None:
    """The file of this name, or what an entry point of this name declares, if it cannot be loaded."""
    from importlib.metadata import entry_points

    files = [source for source in _sources() if spelling(source.rpartition(".")[2]) == spelling(name)]
    for source in (
        *files,
        *(entry.value for entry in entry_points(group=GROUP) if spelling(entry.name) == spelling(name)),
    ):
        if reason := _load(source)[1]:
            return Broken(_place(source), reason)
    return None


def file_of(kind: Kind, name: str) -> str:
    """The file that declares a method, or its entry point."""
    declares = (source for source in _sources(kind) if any((m.kind, m.name) == (kind, name) for m in _load(source)[0]))
    return next(map(_place, declares), "")


def part(name: str) -> Any:
    """A part by its name in `PARTS`."""
    module, _, attribute = PARTS[name].partition(":")
    return getattr(import_module(module), attribute)


def evidence(method: Method) -> dict[str, Any] | None:
    """What was measured of a method, None where nothing was: `benchmarks/methods/NAME.json`, in a wheel `evidence/NAME.json`.

    It is NAME.KIND.json where a method of another kind has the same name."""
    for folder in (PACKAGE / "evidence", PACKAGE.parent.parent / "benchmarks" / "methods"):
        for file in (folder / f"{method.name}.{method.kind}.json", folder / f"{method.name}.json"):
            if file.is_file():
                measured: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
                return {**measured, "file": file.name}
    return None


def _sources(kind: Kind | None = None) -> Iterator[str]:
    """Names of the modules that declare methods: "module", or "module:attribute" of an entry point."""
    for folder, of in FOLDERS.items():
        if (kind is None or kind in of) and (PACKAGE / "methods" / folder).is_dir():
            for module in iter_modules([str(PACKAGE / "methods" / folder)]):
                if not module.name.startswith("_"):
                    yield f"keepworth.methods.{folder}.{module.name}"
    from importlib.metadata import entry_points

    yield from _outside(entry_points, tuple(sys.path))


@cache
def _outside(entry_points: Callable[..., Iterable[EntryPoint]], path: tuple[str, ...]) -> tuple[str, ...]:
    """What packages on this path declare. Reading all their metadata takes longer than making most policies."""
    return tuple(entry.value for entry in entry_points(group=GROUP))


def _place(source: str) -> str:
    """The file of a source of this package; the entry point of another one's."""
    module = source.partition(":")[0]
    file = PACKAGE.parent.joinpath(*module.split(".")).with_suffix(".py")
    package = file.with_suffix("") / "__init__.py"
    return str(file) if file.is_file() else str(package) if package.is_file() else f"the entry point {source}"


@cache
def _load(source: str) -> tuple[tuple[Method, ...], str]:
    """The methods that a module declares, and why it cannot be loaded, "" where it can."""
    name, _, attribute = source.partition(":")
    try:
        module = import_module(name)
        declared = getattr(module, attribute or ("METHODS" if hasattr(module, "METHODS") else "METHOD"))
        return ((declared,) if isinstance(declared, Method) else tuple(declared)), ""
    except Exception as error:
        return (), f"{type(error).__name__}: {error}"
