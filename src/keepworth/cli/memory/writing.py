"""`keepworth memory add`, `update`, `supersede`, `forget` and `erase`."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Annotated, Any

import typer

from keepworth.cli.memory.group import WRITE, app
from keepworth.cli.memory.opening import (
    DEFAULT,
    Agent,
    Encoder,
    File,
    Id,
    Json,
    Session,
    User,
    Yes,
    lines_given,
    opened,
    print_item,
)
from keepworth.cli.output import confirm, say, say_json

if TYPE_CHECKING:
    from keepworth.memory.item import Item
    from keepworth.memory.memory import Memory
    from keepworth.memory.store.purge import Erased


@app.command(
    rich_help_panel=WRITE,
    examples="""
    keepworth memory add "Ana likes tofu" --user ana
    keepworth memory add "I moved to Bergen" --user ana --infer
    cat facts.txt | keepworth memory add - --source facts.txt
    """,
)
def add(
    text: Annotated[str, typer.Argument(help="What to remember; - reads one text per line.")],
    file: File = DEFAULT,
    user: User = "",
    agent: Agent = "",
    session: Session = "",
    kind: Annotated[str, typer.Option(help="fact, episode, case, skill, lesson or core.")] = "fact",
    at: Annotated[str, typer.Option("--at", metavar="TIME", help="When it happened (ISO 8601).")] = "",
    source: Annotated[str, typer.Option(help="Where it came from; one can roll back by it.")] = "command line",
    infer: Annotated[
        bool,
        typer.Option(
            "--infer",
            help="Let the writer say what to keep: rules, or the model OPENAI_MODEL at OPENAI_BASE_URL. It may correct items.",
        ),
    ] = False,
    encoder: Encoder = "default",
    as_json: Json = False,
) -> None:
    """Remember a text as it stands, or what it says."""
    texts = lines_given() if text == "-" else [text]
    with opened(file, encoder, make=True, writer=infer) as memory:
        options: dict[str, Any] = {
            "user_id": user,
            "agent_id": agent,
            "session_id": session,
            "kind": kind,
            "event_time": at,
            "source": source,
        }
        before = memory.store.head()
        if infer:
            messages = [{"role": "user", "content": each} for each in texts]
            kept = memory.add(messages, infer=True, **options)
        else:
            kept = memory.add_many(texts, **options)
        stored = set(memory.store.changed_since(before).ids)
        for item in kept:
            known = item.id not in stored
            print_item(item, as_json, **({"known": known} if as_json else {}))
            if known and not as_json:
                say(f"{item.id} says that already: nothing was stored.", error=True)
        if not kept:
            say("The writer found nothing to keep.", error=True)


@app.command(
    rich_help_panel=WRITE,
    examples="""
    keepworth memory update m17 "Ana likes smoked tofu"
    keepworth memory update m17 --trust 0.5
    """,
)
def update(
    id: Id,
    text: Annotated[str | None, typer.Argument(metavar="[TEXT]", help="What it says from now on.")] = None,
    file: File = DEFAULT,
    trust: Annotated[float | None, typer.Option(metavar="NUMBER", help="From 0 to 1.")] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="TIME", help="When it is hidden (ISO 8601).")
    ] = None,
    encoder: Encoder = "default",
    as_json: Json = False,
) -> None:
    """Word an item better: same id, same time. Where the fact changed, use `supersede`."""
    with opened(file, encoder) as memory:
        print_item(memory.update(id, text, trust=trust, expires_at=expires), as_json)


@app.command(rich_help_panel=WRITE, examples='keepworth memory supersede m17 "Ana lives in Bergen" --at 2026-06-01')
def supersede(
    id: Id,
    text: Annotated[str, typer.Argument(help="What is true now.")],
    file: File = DEFAULT,
    at: Annotated[str, typer.Option("--at", metavar="TIME", help="Since when (ISO 8601).")] = "",
    source: Annotated[str, typer.Option(help="Where it came from; one can roll back by it.")] = "command line",
    encoder: Encoder = "default",
    as_json: Json = False,
) -> None:
    """Say that a fact changed: searches find the new one, and the old one with --as-of."""
    with opened(file, encoder) as memory:
        print_item(memory.supersede(id, text, event_time=at, source=source), as_json)


@app.command(
    rich_help_panel=WRITE,
    examples="""
    keepworth memory forget m17 m18
    keepworth memory forget --older-than 90 --user ana --purge --yes
    """,
)
def forget(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID...]", help="Items to forget.")] = None,
    file: File = DEFAULT,
    purge: Annotated[bool, typer.Option("--purge", help="Erase for good: journal, indexes and vectors too.")] = False,
    older_than: Annotated[
        float | None,
        typer.Option("--older-than", metavar="DAYS", help="In the place of ids: all that was written so long ago."),
    ] = None,
    user: User = "",
    agent: Agent = "",
    session: Session = "",
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete items, which `rollback` brings back. With --purge, erase them, which nothing brings back; asks before.

    With --older-than, those of a person, an agent or a session, or of all: what a rule of retention asks for, by cron."""
    if bool(ids) == (older_than is not None):
        raise typer.BadParameter("give ids, or --older-than DAYS")
    if older_than is not None and not 0 <= older_than <= 100_000:
        raise typer.BadParameter(f"--older-than takes a number of days from 0 to 100,000, got {older_than:g}")
    if ids and (user or agent or session):
        raise typer.BadParameter("--user, --agent and --session go with --older-than: an id names one item")
    if yes and not purge:
        raise typer.BadParameter("--yes goes with --purge: what is deleted can be brought back, and nothing is asked")
    with opened(file, "none", user_id=user, agent_id=agent, session_id=session) as memory:
        chosen = ids or _older(memory, older_than or 0.0, everything=purge)
        if purge and chosen:
            for id in ids or ():
                memory.get(id)
            what = ", ".join(chosen) if ids else f"{len(chosen):,} items"
            confirm(f"Erase {what} of {file}, for good?", yes)
        erased = memory.forget(*chosen, purge_history=purge) if chosen else None
        done = "Erased" if purge else "Deleted"
        if as_json:
            say_json({done.lower(): chosen})
        else:
            say(f"{done} {', '.join(chosen)}." if ids else f"{done} {len(chosen)} items.")
        _tell_of_log(erased)


def _older(memory: Memory, days: float, *, everything: bool) -> list[str]:
    """Ids of what was written so long ago; everything: what is superseded or deleted, too."""
    from datetime import datetime, timedelta

    until = (datetime.now(UTC).replace(tzinfo=None) - timedelta(days=days)).isoformat()
    items: list[Item] = []
    while page := memory.get_all(limit=1000, after=items[-1].id if items else "", all_states=everything):
        items += page
    return [item.id for item in items if item.written_at <= until]


@app.command(rich_help_panel=WRITE, examples="keepworth memory erase --user ana")
def erase(
    file: File = DEFAULT,
    user: User = "",
    agent: Agent = "",
    session: Session = "",
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Erase a person, an agent or a session: all that was written, asked and learned there. Nothing brings it back."""
    bounds = {"user": user, "agent": agent, "session": session}
    whose = ", ".join(f"{part} {name!r}" for part, name in bounds.items() if name)
    if not whose:
        raise typer.BadParameter("say whose memory is erased: --user, --agent or --session")
    with opened(file, "none") as memory:
        confirm(f"Erase everything of {whose} in {file}, for good?", yes)
        erased = memory.erase(user_id=user, agent_id=agent, session_id=session)
        if as_json:
            say_json({"erased": erased.ids, "queries": erased.queries, "nobody": erased.nobody})
        elif erased.nobody:
            say(
                f"Nothing in {file} was ever of {whose}: nothing was erased. `keepworth memory show` lists who is there."
            )
        else:
            said = f"Erased {len(erased.ids)} items and {erased.queries} logged queries."
            say(f"{said} Backups and exports are not touched.")
        _tell_of_log(erased)


def _tell_of_log(erased: Erased | None) -> None:
    if erased is not None and not erased.log_emptied:
        say("Another process is reading: run `keepworth memory compact` when it is done.", error=True)
