"""The page docs/kit.md: every name of `keepworth.kit` with its docstring, by the kind of method that needs it, and examples."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from benchmarks.tables import DOCS, ROOT
from keepworth import kit
from keepworth.registry import KINDS as KINDS_OF_METHODS
from keepworth.registry import TAGS
from keepworth.worlds.streams import KIND_NAMES
from keepworth.worlds.verifiers import VERIFIERS

PAGE = DOCS / "kit.md"
EXAMPLE = ROOT / "examples" / "keepworth_example"
LONGEST = 500
"""Characters of a signature that is shown; a longer one is that of a model of settings."""
TOP = """# The kit

Here you find the names that a method of your own is made of, with what each kind has to do and a whole example of it. A method in
a package of your own has the same doors as one of this package. `python -m benchmarks.pages methods` makes this page from
`keepworth.kit`.

{about}

## A package

[`examples/keepworth_example`](../examples/keepworth_example/pyproject.toml) is a package with a method of each kind. Its entry
points are all that names them:

```toml
{entry_points}
```

After `pip install` (`pip install --editable` while you write) `keepworth methods show NAME` prints the method, with dashes or
underscores in its name. Until something was measured, its label is "unmeasured". The tests of its kind, in a checkout of this
repository, run on it as on ours: `.venv/bin/pytest tests/methods -k NAME`.
"""
KINDS = {
    "every method": (
        "Every method",
        """\
The file ends with `METHOD`, or several `METHODS`. It imports nothing heavy at its top, so that all methods are
listed in half a second: what needs torch is imported inside functions.""",
        "",
    ),
    "policy": (
        "A policy",
        """\
`make` takes settings by name and returns a `Policy` of slots: a keyer, a retriever (None to choose among the hits
of the memory's own search), a valuer that estimates and learns, a selector that returns a distribution over slates,
and a presenter. Filters, scopes, stages, propensities and the log are the memory's. A policy that keeps cases also
has a writer; `of_cases` makes one. `Memory(policy=NAME)`, or `Memory(policy=make)`. Tests: the better of two notes,
or of two actions, comes first after rewards; propensities are probabilities; a rollback makes it forget.""",
        "policy",
    ),
    "writer": (
        "A writer",
        """\
`make` returns a function from a `Finished` to operations, or to `Advice` of a policy of cases.
`finished.transcript` are messages, or what happened in an episode. `Memory(writer=NAME)`, then `add(messages,
infer=True)`. Tests: it raises for no text whatever, and what it wrote can be taken back.""",
        "writer",
    ),
    "stage": (
        "A stage",
        """\
`make` takes settings by name and returns a function `(request, hits) -> hits` that leaves hits out or puts them
into another order. `Memory(stages=[NAME])`, or the function itself. Tests: filters hold, and the explanation names
it.""",
        "stage",
    ),
    "adapter": (
        "An adapter",
        """\
An adapter speaks another library's interface over a `Memory`. The program that uses it imports it, so it is no
`Method` and has no entry point. It imports the library inside functions. With `memory.answer(Ask(query,
plain=True))` a search leaves the policy out, where the host can give no rewards.""",
        "adapter",
    ),
    "world": (
        "A world",
        """\
`make` is a `World`: a function that opens a `Stream` of tasks for a split, a seed and an order, and what a memory
has to do in it. Each task makes an environment with `reset`, `step`, `close` and its current scene; `Course` plays
scenes one after the other. `keepworth eval stream --streams NAME`. Tests: who does what is right gets 1 in every
task, who draws does not; one seed, one world.""",
        "world",
    ),
    "benchmark": (
        "A benchmark",
        """\
`make` is a `Benchmark`, whose `load(split)` returns `Task`s with their sessions. `keepworth eval run NAME`. Tests:
splits share nothing, the oracle scores 1, random answers are at chance.""",
        "",
    ),
    "objective": (
        "An objective, or a part of one",
        """\
`preset_method` makes the `METHOD` of an `Objective` of parts. A new part is one class, decorated with `part`, that
derives from the class of its axis and has that axis's function; its name then works in configurations and on the
command line. `keepworth train RECIPE --set objective=NAME`. Tests: the gradient is a finite difference, and no two
objectives make the same update.""",
        "objective",
    ),
    "recipe": (
        "A recipe",
        """\
`make` is a `Recipe`, or a function without arguments that returns one. `recipe_of` makes one of rows and a reward.
For several agents, tools or controls of your own, `Recipe(Config, system)` has a `Config` derived from `Settings`
and a function from it to a `System`. `keepworth train NAME`. Tests: two updates on a tiny model; killed and
continued, it ends with the same weights.""",
        "recipe",
    ),
    "memory_module": (
        "A memory inside a network",
        """\
`make(input_size, width, blocks=...)` returns a `SequenceMemory`; import torch inside it. `keepworth control
--memory NAME`. Tests: a step equals running over time, resets isolate, gradients reach the first input.""",
        "",
    ),
    "system": (
        "A training system of a paper",
        """\
`make` is a `PaperSystem`: what of the system is in this package, and the command that runs with it. If the
project decided against the system, there is no command, and the evidence names the revision that holds the numbers.
Tests: the command's settings are taken.""",
        "",
    ),
    "study": (
        "A study",
        """\
`make` is a `Study`: a function of settings by name that returns the rows of a table, each with its interval, and
the unit of its numbers. `keepworth methods run NAME --set SETTING=VALUE`. Tests: it runs at its smallest size.""",
        "study",
    ),
}
"""Of each kind a heading, what it has to do, and the file of the example package that shows it."""

WORDS = {
    "every method": f"Kinds: {', '.join(KINDS_OF_METHODS)}. Tags: {'; '.join(map(', '.join, TAGS.values()))}.",
    "world": f"Kinds of world: {'; '.join(f'`{name}`, {about}' for name, about in KIND_NAMES.items())}.",
    "recipe": f"Verifiers of a task: {', '.join(VERIFIERS)}.",
}
"""The words that something of a kind may say."""


def rendered() -> str:
    about = (kit.__doc__ or "").partition("\n\n")[2].strip()
    points = (EXAMPLE / "pyproject.toml").read_text(encoding="utf-8").partition("[project.entry-points")[2]
    parts = [TOP.format(about=about, entry_points=f"[project.entry-points{points}".strip())]
    for kind, homes in kit.NAMES.items():
        heading, contract, example = KINDS[kind]
        if kind in WORDS:
            contract += f"\n\n{WORDS[kind]}"
        parts.append(f"## {heading}\n\n{contract}\n")
        if example:
            file = EXAMPLE / "keepworth_example" / f"{example}.py"
            code = file.read_text(encoding="utf-8").strip()
            parts.append(f"<!-- runs in: tests/test_example_package.py -->\n```python\n{code}\n```\n")
        parts += [entry(name, home) for home, names in homes.items() for name in names.split()]
    return "\n".join(parts)


def entry(name: str, home: str) -> str:
    """A name with its signature and its docstring, and the methods of a class with their first sentences."""
    value = getattr(kit, name)
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        definition, about = alias(name, home)
        return f"**`{name}`** = `{definition}`\n\n{about}".strip() + "\n"
    lines = [f"**`{name}{signature(value)}`**", "", *paragraphs(inspect.cleandoc(value.__doc__ or ""))]
    for member, call, about in members(value) if inspect.isclass(value) else ():
        lines.append(f"* `.{member}{call}`{about and f': {about}'}")
    return "\n".join(lines).strip() + "\n"


def paragraphs(text: str) -> list[str]:
    """A docstring as markdown: sections such as `Args:` become lists."""
    lines: list[str] = []
    for line in text.splitlines():
        section = re.fullmatch(r"(Attributes|Args|Returns|Raises|Yields):", line.strip())
        item = re.match(r"    (\*{0,2}[\w, ]+): (.*)", line)
        if section:
            lines += [f"{section[1]}:", ""]
        elif item:
            lines.append(f"* `{item[1]}`: {item[2]}")
        else:
            lines.append(line.strip())
    return [*lines, ""]


def signature(value: Any) -> str:
    """The parameters of a function or a class, as they are written; those of a long one are left out."""
    if inspect.isclass(value) and (issubclass(value, Enum) or getattr(value, "_is_protocol", False)):
        return ""
    made = inspect.signature(value)
    parts = list[str]()
    for parameter in made.parameters.values():
        annotation = parameter.annotation if isinstance(parameter.annotation, str) else ""
        default = (
            "" if parameter.default is parameter.empty else f"{' = ' if annotation else '='}{default_of(parameter)}"
        )
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in "".join(part[:1] for part in parts):
            parts.append("*")
        if parameter.name != "self":
            parts.append(f"{stars}{parameter.name}{annotation and f': {annotation}'}{default}")
    text = f"({', '.join(parts)})"
    returned = made.return_annotation
    text += f" -> {returned}" if isinstance(returned, str) and returned != "None" and not inspect.isclass(value) else ""
    return text if len(text) <= LONGEST else "(...)"


def default_of(parameter: inspect.Parameter) -> str:
    if isinstance(parameter.default, Enum):
        return str(parameter.default)
    text = repr(parameter.default).replace("'", '"')
    return "..." if text.startswith("<") or len(text) > 60 else text


def members(owner: type) -> Iterator[tuple[str, str, str]]:
    """(name, signature, first sentence) of what a class has from the classes of this package, and of an enumeration's values."""
    if issubclass(owner, Enum):
        yield from ((f"{member.name}", "", "") for member in owner)
        return
    protocol = getattr(owner, "_is_protocol", False)
    for name, member in {name: member for base in reversed(owner.__mro__) for name, member in of_package(base)}.items():
        function = member.fget if isinstance(member, property) else member
        if not name.startswith("_") and inspect.isfunction(function) and (function.__doc__ or protocol):
            yield name, "" if isinstance(member, property) else signature(function), sentence(function)


def of_package(owner: type) -> list[tuple[str, Any]]:
    return list(vars(owner).items()) if owner.__module__.startswith("keepworth.") else []


def sentence(function: Any) -> str:
    text = " ".join((inspect.getdoc(function) or "").split())
    return re.match(r".*?[.](?= [A-Z`]|$)|.*", text)[0]  # type: ignore[index]


def alias(name: str, home: str) -> tuple[str, str]:
    """The definition of a type with a name of its own, and the text under it."""
    path = Path(kit.__file__).parent.joinpath(*home.split(".")).with_suffix(".py")
    body = ast.parse(path.read_text(encoding="utf-8")).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
            return ast.unparse(node.value), str(text)
    raise LookupError(f"{name} is not assigned in {path}")
