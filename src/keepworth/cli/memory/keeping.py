"""`keepworth memory stats`, `check`, `compact`, `reembed` and `read-again`: the file, and what is derived from it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from keepworth.cli.command import argument, option
from keepworth.cli.memory.group import FILE, Line, Lines, Yes, command
from keepworth.cli.output import confirm, working
from keepworth.episodes.text import terminal
from keepworth.memory.place import MemoryPlace

if TYPE_CHECKING:
    from keepworth.memory.memory import Memory


@command(FILE, examples="keepworth memory stats --json")
def stats(memory: Memory) -> Lines:
    """Say what is in the file."""
    from keepworth.memory.store.maintenance import statistics

    figures = {**asdict(statistics(memory.store)), "snapshot": memory.snapshot()}
    shown = (
        f"{name.replace('_', ' '):>14}  {value:,}" if isinstance(value, int) else f"{name:>14}  {value}"
        for name, value in figures.items()
    )
    yield Line(figures, "\n".join(shown))


@command(
    FILE,
    examples="""
    keepworth memory check
    keepworth memory check --quick --json
    """,
)
def check(memory: Memory, quick: Annotated[bool, option("--quick", "Do not replay the journal.")] = False) -> Lines:
    """Check the file, its indexes, and that the journal leads to what the memory says. Exits with 2 where it does not."""
    from keepworth.memory.store.maintenance import check as check_store

    with working("checking"):
        problems = check_store(memory.store, deep=not quick)
    yield Line({"sound": not problems, "problems": problems}, "\n".join(problems or ["Sound."]))
    if problems:
        raise typer.Exit(2)


@command(
    FILE,
    examples="""
    keepworth memory compact
    keepworth memory compact --keep-decisions 10000 --yes
    """,
)
def compact(
    memory: Memory,
    file: MemoryPlace,
    keep_decisions: Annotated[
        int | None, option("N", "Drop the candidate lists of all but the newest N decisions; asks.", min=0)
    ] = None,
    yes: Yes = False,
) -> Lines:
    """Give back space. Never changes what the memory says."""
    from keepworth.memory.store.maintenance import compact as compact_store

    if yes and keep_decisions is None:
        raise typer.BadParameter("--yes goes with --keep-decisions: nothing else is asked")
    if keep_decisions is not None:
        confirm(f"Drop the candidates of all but the newest {keep_decisions:,} decisions of {file}, for good?", yes)
    with working("compacting"):
        before, after = compact_store(memory.store, keep_decisions=keep_decisions)
    yield Line({"bytes_before": before, "bytes": after}, f"{before / 1e6:.1f} MB before, {after / 1e6:.1f} MB now.")


@command(FILE, examples="keepworth memory reembed minilm")
def reembed(
    memory: Memory,
    file: MemoryPlace,
    name: Annotated[str, argument("ENCODER", "minilm, hashing, hashing:DIMENSION, a folder, or URL#MODEL.")],
) -> Lines:
    """Make every vector anew with another encoder; with the same one, those that are missing.

    It can be interrupted, and goes on where it stopped. Files of earlier versions lack the vectors of parts of long texts."""
    from rich.progress import Progress

    from keepworth.memory.store.maintenance import reembed as make_again
    from keepworth.models.encoders import encoder

    with Progress(console=terminal(stderr=True), transient=True) as bar:
        job = bar.add_task("vectors", total=None)
        for done, everything in make_again(memory.store, encoder(name)):
            bar.update(job, completed=done, total=everything)
    yield Line({"file": str(file), "encoder": name}, f"{file} now has vectors of {name}.")
