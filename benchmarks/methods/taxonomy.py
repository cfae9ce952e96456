"""The page docs/taxonomy.md: where every method stands among the forms, functions and stages of memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from benchmarks.tables import DOCS, markdown
from keepworth.registry import KINDS, TAGS, Method, methods

PAGE = DOCS / "taxonomy.md"
TOP = """# Kinds of memory

Here you find the methods for the kind of memory that you need. `keepworth methods --tag experiential` lists those with a
tag, and [methods](methods.md) describes each. `python -m benchmarks.pages methods` makes this page from the methods' files.

The terms are those of "Memory in the age of AI agents" (arXiv 2512.13564). The *form* of a memory: **token**, texts that a
model reads; **parametric**, weights that change; **latent**, vectors inside a network. Its *function*: **factual**, what is true;
**experiential**, what worked; **working**, what the current task needs. Its *dynamics*, the stages that a method
changes: **formation**, what is written; **evolution**, what is merged, revised or forgotten; **retrieval**, what is read. A
method may have several functions and stages. Objectives, and recipes without a memory, have no tags.

## Forms and functions

{}

## Stages and functions

{}

## Worlds and benchmarks for each function

{}

## Object, form and time

The survey "From human memory to AI memory" divides memories by object (a person's or the system's), form (weights or not) and
time. The table counts factual memory as personal and long, experiential memory as the system's and long, and working memory as
the system's and short:

{}

Except `starling` and `openclaw_rl`, no method here stores facts or experience in weights: recipes train skills, such as how a
model writes, reads and answers. The context of a dialogue, which is personal and short, is left to the agent.
"""
OBJECTS = {
    "factual": ("personal", "long"),
    "experiential": ("system", "long"),
    "working": ("system", "short"),
}
"""Object and time of a function, in the words of the survey "From human memory to AI memory"."""
ASKING = ("world", "benchmark")
"""Kinds that ask for a memory; the others are one or change one."""


def rendered() -> str:
    tagged = [method for kind in KINDS for method in methods(kind).values() if method.tags]
    memories = [method for method in tagged if method.kind not in ASKING]
    columns = TAGS["function"]
    tables = []
    for rows in ("form", "dynamics"):
        cells = [[names_with(memories, tag, column) for column in columns] for tag in TAGS[rows]]
        named = [[f"**{tag}**", *row] for tag, row in zip(TAGS[rows], cells, strict=True)]
        tables.append(markdown([rows, *columns], named, left=4))
    tests = [method for method in tagged if method.kind in ASKING]
    asked = markdown(["function", "worlds and benchmarks"], [[tag, names_with(tests, tag)] for tag in columns], left=2)
    thing = markdown(["object", "form", "time", "methods"], quadrants(memories), left=3)
    return TOP.format(*tables, asked, thing)


def names_with(candidates: Iterable[Method], *tags: str) -> str:
    """Names, in order, of those that have all these tags."""
    return ", ".join(sorted({f"`{method.name}`" for method in candidates if {*tags} <= {*method.tags}})) or "none"


def quadrants(memories: Iterable[Method]) -> list[list[str]]:
    """How many memories are of each object, form and time."""
    counts = Counter(
        place
        for method in memories
        for place in {(OBJECTS[tag], "parametric" in method.tags) for tag in method.tags if tag in OBJECTS}
    )
    return [
        [thing, "parametric" if weights else "non-parametric", time, str(counts[(thing, time), weights])]
        for thing in ("personal", "system")
        for weights in (False, True)
        for time in ("short", "long")
    ]
