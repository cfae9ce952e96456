"""`keepworth memory stats`, `check`, `compact`, `reembed`, `index` and `read-again`: the file, and what is derived from it."""

from __future__ import annotations

from typing import Annotated

import typer

from keepworth.cli.memory.group import FILE, app
from keepworth.cli.memory.opening import DEFAULT, Encoder, File, Json, Yes, opened
from keepworth.cli.output import confirm, say, say_json, working
from keepworth.episodes.text import terminal


@app.command(rich_help_panel=FILE, examples="keepworth memory stats --json")
def stats(file: File = DEFAULT, as_json: Json = False) -> None:
    """Say what is in the file."""
    from dataclasses import asdict

    from keepworth.memory.store.maintenance import statistics

    with opened(file, "none") as memory:
        figures = {**asdict(statistics(memory.store)), "snapshot": memory.snapshot()}
        if as_json:
            say_json(figures)
        else:
            for name, value in figures.items():
                say(f"{name.replace('_', ' '):>14}  {value:,}" if isinstance(value, int) else f"{name:>14}  {value}")


@app.command(
    rich_help_panel=FILE,
    examples="""
    keepworth memory check
    keepworth memory check --quick --json
    """,
)
def check(
    file: File = DEFAULT,
    quick: Annotated[bool, typer.Option("--quick", help="Do not replay the journal.")] = False,
    as_json: Json = False,
) -> None:
    """Check the file, its indexes, and that the journal leads to what the memory says. Exits with 2 where it does not."""
    from keepworth.memory.store.maintenance import check as check_store

    with opened(file, "none") as memory, working("checking"):
        problems = check_store(memory.store, deep=not quick)
    if as_json:
        say_json({"sound": not problems, "problems": problems})
    else:
        for problem in problems or ["Sound."]:
            say(problem)
    if problems:
        raise typer.Exit(2)


@app.command(
    rich_help_panel=FILE,
    examples="""
    keepworth memory compact
    keepworth memory compact --keep-decisions 10000 --yes
    """,
)
def compact(
    file: File = DEFAULT,
    keep_decisions: Annotated[
        int | None,
        typer.Option(metavar="N", help="Drop the candidate lists of all but the newest N decisions; asks.", min=0),
    ] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Give back space. Never changes what the memory says."""
    from keepworth.memory.store.maintenance import compact as compact_store

    if yes and keep_decisions is None:
        raise typer.BadParameter("--yes goes with --keep-decisions: nothing else is asked")
    with opened(file, "none") as memory:
        if keep_decisions is not None:
            confirm(f"Drop the candidates of all but the newest {keep_decisions:,} decisions of {file}, for good?", yes)
        with working("compacting"):
            before, after = compact_store(memory.store, keep_decisions=keep_decisions)
        if as_json:
            say_json({"bytes_before": before, "bytes": after})
        else:
            say(f"{before / 1e6:.1f} MB before, {after / 1e6:.1f} MB now.")


@app.command(rich_help_panel=FILE, examples="keepworth memory reembed minilm")
def reembed(
    encoder: Annotated[str, typer.Argument(help="minilm, hashing, hashing:DIMENSION, a folder, or URL#MODEL.")],
    file: File = DEFAULT,
    as_json: Json = False,
) -> None:
    """Make every vector anew with another encoder; with the same one, those that are missing.

    It can be interrupted, and goes on where it stopped. Files of earlier versions lack the vectors of parts of long texts."""
    from rich.progress import Progress

    from keepworth.memory.store.maintenance import reembed as make_again
    from keepworth.models.encoders import encoder as named

    with opened(file, "none") as memory, Progress(console=terminal(stderr=True), transient=True) as bar:
        job = bar.add_task("vectors", total=None)
        for done, everything in make_again(memory.store, named(encoder)):
            bar.update(job, completed=done, total=everything)
    if as_json:
        say_json({"file": str(file), "encoder": encoder})
        return
    say(f"{file} now has vectors of {encoder}.")


@app.command("read-again", rich_help_panel=FILE, examples="keepworth memory read-again")
def read_again(file: File = DEFAULT, encoder: Encoder = "default", as_json: Json = False) -> None:
    """Ask the writer now about the messages that it failed at before."""
    with opened(file, encoder, writer=True) as memory:
        waiting = memory.unread["waiting"]
        with working("reading"):
            read = memory.read_again() if waiting else 0
        if as_json:
            say_json({"read": read, "waiting": memory.unread["waiting"]})
        elif waiting:
            say(f"{read} read, {memory.unread['waiting']} wait.")
        else:
            say("No message waits for a writer.", error=True)
