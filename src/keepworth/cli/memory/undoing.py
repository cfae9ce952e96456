"""`keepworth memory snapshot`, `diff` and `rollback`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from keepworth.cli.command import argument, option
from keepworth.cli.memory.group import UNDO, Line, Lines, NoteLine, Snapshot, again, command, mark, plain
from keepworth.episodes.text import one_line
from keepworth.memory.place import MemoryPlace

if TYPE_CHECKING:
    from keepworth.memory.item import Item
    from keepworth.memory.memory import Memory
    from keepworth.memory.store.undo import Rollback


@command(UNDO, examples="keepworth memory snapshot")
def snapshot(memory: Memory) -> Lines:
    """Print the name of the present state, for `diff` and `rollback --since`."""
    name = memory.snapshot()
    yield Line({"snapshot": name}, name)


@command(
    UNDO,
    examples="""
    keepworth memory diff s12
    keepworth memory diff s12 s20 --json
    """,
)
def diff(
    memory: Memory,
    one: Snapshot,
    other: Annotated[str, argument("[SNAPSHOT]", "The later one; now if not given.")] = "",
) -> Lines:
    """List the items that differ between two states, or between one and now."""
    differences = memory.diff(one, other)
    for difference in differences:
        states = (("-", difference.before), ("+", difference.after))
        shown = [f"{sign} {difference.id:>6}  {_state(item)}" for sign, item in states if item is not None]
        yield Line(plain(difference), "\n".join(shown))
    if not differences:
        yield NoteLine("Nothing differs.")


def _state(item: Item) -> str:
    """With what tells two states of one text apart, too."""
    shown = f", shown {item.values.shown} times" if item.values.shown else ""
    return f"{one_line(item.text)}{mark(item)}{shown}"


@command(
    UNDO,
    examples="""
    keepworth memory rollback e4f0c1
    keepworth memory rollback --source facts.txt
    keepworth memory rollback --since s12
    """,
)
def rollback(
    memory: Memory,
    file: MemoryPlace,
    target: Annotated[str, argument("[EPISODE|ROLLBACK]", "An episode's or a rollback's id.")] = "",
    source: Annotated[str, option("", "Undo everything from this source.")] = "",
    since: Annotated[str, option("SNAPSHOT", "Undo everything since this state (see `snapshot`).")] = "",
    rewarder: Annotated[str, option("NAME", "Undo everything that follows from the rewards of this person.")] = "",
    entry: Annotated[int, option("N", "Undo one change, by its number in `history`.", min=0)] = 0,
) -> Lines:
    """Undo an episode, a source, one change, a person's rewards, or everything since a state. Can be undone itself."""
    yield _report(memory.rollback(target, source=source, since=since, rewarder=rewarder, entry=entry), file)


def _report(result: Rollback, file: MemoryPlace) -> Line:
    lines = [
        f"{result.cancelled} journal entries no longer count, {result.restored} count again; "
        f"{len(result.changed)} items changed. Undo this with: {again(file, 'rollback', result.id)}",
        *(f"  entry {seq} no longer applies: {reason}" for seq, reason in result.no_ops),
    ]
    return Line(plain(result), "\n".join(lines))
