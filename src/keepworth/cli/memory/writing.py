"""`keepworth memory add`, `update`, `supersede`, `forget` and `erase`."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Annotated, Any

import typer

from keepworth.cli.command import argument, option
from keepworth.cli.memory.group import (
    WRITE,
    Agent,
    Id,
    Line,
    Lines,
    NoteLine,
    Session,
    Source,
    User,
    Yes,
    command,
    item_line,
    opened,
    read_lines,
)
from keepworth.cli.output import confirm
from keepworth.memory.place import MemoryPlace

if TYPE_CHECKING:
    from keepworth.memory.memory import Memory
    from keepworth.memory.store.purge import Erased


@command(
    WRITE,
    examples="""
    keepworth memory add "Ana likes tofu" --user ana
    keepworth memory add "I moved to Bergen" --user ana --infer
    cat facts.txt | keepworth memory add - --source facts.txt
    """,
    bounds=True,
    encoder=True,
    opens=None,
)
def add(
    file: MemoryPlace,
    bounds: dict[str, Any],
    encoder: str,
    text: Annotated[str, argument("", "What to remember; - reads one text per line.")],
    kind: Annotated[str, option("", "fact, episode, case, skill, lesson or core.")] = "fact",
    at: Annotated[str, option("--at TIME", "When it happened (ISO 8601).")] = "",
    source: Source = "command line",
    infer: Annotated[
        bool,
        option(
            "--infer",
            "Let the writer say what to keep: rules, or the model OPENAI_MODEL at OPENAI_BASE_URL. It may correct items.",
        ),
    ] = False,
) -> Lines:
    """Remember a text as it stands, or what it says."""

    texts = read_lines() if text == "-" else [text]
    options: dict[str, Any] = {"kind": kind, "event_time": at, "source": source, **bounds}
    with opened(file, encoder, make=True, writer=infer) as memory:
        before = memory.store.head()
        if infer:
            added = memory.add([{"role": "user", "content": text} for text in texts], infer=True, **options)
        else:
            added = memory.add_many(texts, **options)
        stored = set(memory.store.changed_since(before))
        for item in added:
            known = item.id not in stored
            yield item_line(item, known=known)
            if known:
                yield NoteLine(f"{item.id} says that already: nothing was stored.")
        if not added:
            yield NoteLine("The writer found nothing to keep.")


@command(
    WRITE,
    examples="""
    keepworth memory update m17 "Ana likes smoked tofu"
    keepworth memory update m17 --trust 0.5
    """,
    encoder=True,
)
def update(
    memory: Memory,
    id: Id,
    text: Annotated[str | None, argument("[TEXT]", "What it says from now on.")] = None,
    trust: Annotated[float | None, option("NUMBER", "From 0 to 1.")] = None,
    expires: Annotated[str | None, option("--expires TIME", "When it is hidden (ISO 8601).")] = None,
) -> Lines:
    """Word an item better: same id, same time. Where the fact changed, use `supersede`."""
    yield item_line(memory.update(id, text, trust=trust, expires_at=expires))


@command(WRITE, examples='keepworth memory supersede m17 "Ana lives in Bergen" --at 2026-06-01', encoder=True)
def supersede(
    memory: Memory,
    id: Id,
    text: Annotated[str, argument("", "What is true now.")],
    at: Annotated[str, option("--at TIME", "Since when (ISO 8601).")] = "",
    source: Source = "command line",
) -> Lines:
    """Say that a fact changed: searches find the new one, and the old one with --as-of."""
    yield item_line(memory.supersede(id, text, event_time=at, source=source))


@command(
    WRITE,
    examples="""
    keepworth memory forget m17 m18
    keepworth memory forget --older-than 90 --user ana --purge --yes
    """,
    bounds=True,
    opens=None,
)
def forget(
    file: MemoryPlace,
    bounds: dict[str, Any],
    ids: Annotated[list[str] | None, argument("[ID...]", "Items to forget.")] = None,
    purge: Annotated[bool, option("--purge", "Erase for good: journal, indexes and vectors too.")] = False,
    older_than: Annotated[
        float | None,
        option("--older-than DAYS", "In the place of ids: all that was written so long ago."),
    ] = None,
    yes: Yes = False,
) -> Lines:
    """Delete items, which `rollback` brings back. With --purge, erase them, which nothing brings back; asks before.

    With --older-than, those of a person, an agent or a session, or of all: what a rule of retention asks for, by cron."""

    if bool(ids) == (older_than is not None):
        raise typer.BadParameter("give ids, or --older-than DAYS")
    if older_than is not None and not 0 <= older_than <= 100_000:
        raise typer.BadParameter(f"--older-than takes a number of days from 0 to 100,000, got {older_than:g}")
    if ids and any(bounds.values()):
        raise typer.BadParameter("--user, --agent and --session go with --older-than: an id names one item")
    if yes and not purge:
        raise typer.BadParameter("--yes goes with --purge: what is deleted can be brought back, and nothing is asked")
    with opened(file, "none", **bounds) as memory:
        chosen = ids or _older(memory, older_than or 0.0, everything=purge)
        if purge and chosen:
            for id in ids or ():
                memory.get(id)
            what = ", ".join(chosen) if ids else f"{len(chosen):,} items"
            confirm(f"Erase {what} of {file}, for good?", yes)
        erased = memory.forget(*chosen, purge_history=purge) if chosen else None
        done = "Erased" if purge else "Deleted"
        yield Line({done.lower(): chosen}, f"{done} {', '.join(chosen)}." if ids else f"{done} {len(chosen)} items.")
        yield from _log_notes(erased)


def _older(memory: Memory, days: float, *, everything: bool) -> list[str]:
    """Ids of what was written so long ago; everything: what is superseded or deleted, too."""
    from datetime import datetime, timedelta

    until = (datetime.now(UTC).replace(tzinfo=None) - timedelta(days=days)).isoformat()
    chosen, after = [], ""
    while page := memory.get_all(limit=1000, after=after, all_states=everything):
        chosen += [item.id for item in page if item.written_at <= until]
        after = page[-1].id
    return chosen


@command(WRITE, examples="keepworth memory erase --user ana", opens=None)
def erase(file: MemoryPlace, user: User = "", agent: Agent = "", session: Session = "", yes: Yes = False) -> Lines:
    """Erase a person, an agent or a session: all that was written, asked and learned there. Nothing brings it back."""

    named = {"user": user, "agent": agent, "session": session}
    whose = ", ".join(f"{part} {name!r}" for part, name in named.items() if name)
    if not whose:
        raise typer.BadParameter("say whose memory is erased: --user, --agent or --session")
    with opened(file, "none") as memory:
        confirm(f"Erase everything of {whose} in {file}, for good?", yes)
        erased = memory.erase(user_id=user, agent_id=agent, session_id=session)
        told = (
            f"Erased {len(erased.ids)} items and {erased.queries} logged queries. Backups and exports are not touched."
        )
        if erased.nobody:
            told = f"Nothing in {file} was ever of {whose}: nothing was erased. `keepworth memory show` lists who is there."
        yield Line({"erased": erased.ids, "queries": erased.queries, "nobody": erased.nobody}, told)
        yield from _log_notes(erased)


def _log_notes(erased: Erased | None) -> Lines:
    if erased is not None and not erased.log_emptied:
        yield NoteLine("Another process is reading: run `keepworth memory compact` when it is done.")
