"""`keepworth memory snapshot`, `diff`, `rollback` and `restore`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from keepworth.cli.memory.group import UNDO, app
from keepworth.cli.memory.opening import DEFAULT, File, Json, mark, named, opened
from keepworth.cli.output import say, say_json
from keepworth.episodes.text import one_line
from keepworth.memory.place import MemoryPlace

if TYPE_CHECKING:
    from keepworth.memory.item import Item
    from keepworth.memory.store.undo import Rollback

Snapshot = Annotated[str, typer.Argument(metavar="SNAPSHOT", help="A state by name, such as s12: see `snapshot`.")]


@app.command(rich_help_panel=UNDO, examples="keepworth memory snapshot")
def snapshot(file: File = DEFAULT, as_json: Json = False) -> None:
    """Print the name of the present state, for `diff`, `restore` and `rollback --since`."""
    with opened(file, "none") as memory:
        name = memory.snapshot()
    if as_json:
        say_json({"snapshot": name})
    else:
        say(name)


@app.command(
    rich_help_panel=UNDO,
    examples="""
    keepworth memory diff s12
    keepworth memory diff s12 s20 --json
    """,
)
def diff(
    one: Snapshot,
    other: Annotated[str, typer.Argument(metavar="[SNAPSHOT]", help="The later one; now if not given.")] = "",
    file: File = DEFAULT,
    as_json: Json = False,
) -> None:
    """List the items that differ between two states, or between one and now."""
    from keepworth.memory.item import to_record

    with opened(file, "none") as memory:
        found = memory.diff(one, other)
        for each in found:
            if as_json:
                states = {"before": each.before, "after": each.after}
                say_json({"id": each.id, **{name: state and to_record(state) for name, state in states.items()}})
                continue
            for sign, state in (("-", each.before), ("+", each.after)):
                if state is not None:
                    say(f"{sign} {each.id:>6}  {one_line(state.text)}{_state(state)}")
        if not found:
            say("Nothing differs.", error=True)


def _state(item: Item) -> str:
    """What tells two states of one text apart, too."""
    shown = f", shown {item.values.shown} times" if item.values.shown else ""
    return f"{mark(item)}{shown}"


@app.command(
    rich_help_panel=UNDO,
    examples="""
    keepworth memory rollback e4f0c1
    keepworth memory rollback --source facts.txt
    keepworth memory rollback --since s12
    """,
)
def rollback(
    target: Annotated[str, typer.Argument(metavar="[EPISODE|ROLLBACK]", help="An episode's or a rollback's id.")] = "",
    file: File = DEFAULT,
    source: Annotated[str, typer.Option(help="Undo everything from this source.")] = "",
    since: Annotated[
        str, typer.Option(metavar="SNAPSHOT", help="Undo everything since this state (see `snapshot`).")
    ] = "",
    rewarder: Annotated[
        str, typer.Option(metavar="NAME", help="Undo everything that follows from the rewards of this person.")
    ] = "",
    entry: Annotated[int, typer.Option(metavar="N", min=0, help="Undo one change, by its number in `history`.")] = 0,
    as_json: Json = False,
) -> None:
    """Undo an episode, a source, one change, a person's rewards, or everything since a state. Can be undone itself."""
    with opened(file, "none") as memory:
        result = memory.rollback(target, source=source, since=since, rewarder=rewarder, entry=entry)
        _tell(result, file, as_json)


@app.command(rich_help_panel=UNDO, examples="keepworth memory restore s12")
def restore(snapshot: Snapshot, file: File = DEFAULT, as_json: Json = False) -> None:
    """Make the memory what it was at a state. Can be undone itself."""
    with opened(file, "none") as memory:
        _tell(memory.restore(snapshot), file, as_json)


def _tell(result: Rollback, file: MemoryPlace, as_json: bool) -> None:
    from dataclasses import asdict

    if as_json:
        say_json(asdict(result))
        return
    undo = ["keepworth", "memory", "rollback", result.id, *named(file)]
    say(
        f"{result.cancelled} journal entries no longer count, {result.restored} count again; "
        f"{len(result.changed)} items changed. Undo this with: {shlex.join(undo)}"
    )
    for seq, reason in result.no_ops:
        say(f"  entry {seq} no longer applies: {reason}")
