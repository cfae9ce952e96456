"""`keepworth memory search` to `rollback`: commands that find, write, correct and undo."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Annotated, Any

import typer

from keepworth.base.text import one_line
from keepworth.cli.command import argument, option
from keepworth.cli.memory.group import (
    OWN_ENCODER,
    POLICY,
    READ,
    UNDO,
    WRITE,
    Agent,
    Id,
    Limit,
    Line,
    Lines,
    NoteLine,
    Session,
    Snapshot,
    Source,
    TopK,
    User,
    Where,
    Yes,
    again,
    command,
    every_page,
    item_line,
    mark,
    nothing_found,
    opened,
    plain,
    read_lines,
)
from keepworth.cli.output import confirm
from keepworth.memory.place import MemoryPlace

if TYPE_CHECKING:
    from keepworth.memory.item import Item
    from keepworth.memory.memory import Memory
    from keepworth.memory.search.search import Hit
    from keepworth.memory.store.purge import Erased


@command(
    READ,
    examples="""
    keepworth memory search "what to cook" --user ana
    keepworth memory search tofu --top-k 3 --explain
    keepworth memory search tofu --where kind=recipe --json
    """,
    bounds=True,
    encoder=True,
    policy=POLICY,
    log="off",
)
def search(
    memory: Memory,
    file: MemoryPlace,
    bounds: dict[str, Any],
    encoder: str,
    query: Annotated[str, argument("", "What to look for.")],
    top_k: TopK = 10,
    mode: Annotated[str, option("", "hybrid, lexical or dense; by default hybrid where there is an encoder.")] = "",
    as_of: Annotated[str, option("TIME", "What was held true then (ISO 8601).")] = "",
    where: Where = None,
    explain: Annotated[bool, option("--explain", "Say how each score comes about.")] = False,
) -> Lines:
    """Find what was remembered, best first, in the order that rewards taught. Nothing is logged, and nothing is tried out.

    `keepworth memory episode search` finds as an agent does: rewards reach what was shown."""
    from keepworth.memory.search.where import from_texts

    options: dict[str, Any] = {"mode": mode or None, "as_of": as_of, "where": from_texts(where or (), place="--where")}
    hits = memory.search(query, explore=False, top_k=top_k, explain=explain, **options, **bounds)
    yield from (Line(plain(item), f"{'always':>8}  {item.id:>6}  {one_line(item.text)}") for item in hits.core)
    always = {item.id for item in hits.core}
    yield from (hit_line(hit, explain) for hit in hits if hit.id not in always)
    if not hits and not hits.core:
        yield nothing_found(memory, file, narrowed=bool(any(bounds.values()) or where or as_of))


def hit_line(hit: Hit, explain: bool = False) -> Line:
    other = f"  (otherwise: {', '.join(hit.conflicts)})" if hit.conflicts else ""
    text = f"{hit.score:8.4f}  {hit.id:>6}  {one_line(hit.passage)}{other}"
    if hit.why.learned:
        text += f"\n          {hit.why.learned}"
    if explain:
        terms = ", ".join(f"{term} {part:.3f}" for term, part in hit.why.terms.items())
        cosine = "not found" if hit.dense is None else f"cosine {hit.dense:.4f}"
        text += f"\n          words: {terms or 'not found'}; meaning: {cosine}"
    return Line({**plain(hit.item), "score": hit.score, "span": hit.span, "conflicts": hit.conflicts}, text)


@command(
    READ,
    "list",
    examples="""
    keepworth memory list --user ana
    keepworth memory list --all --limit 20 --after m17
    keepworth memory list --where '{"year": {"$gte": 2020}}' --json
    """,
    bounds=True,
)
def list_(
    memory: Memory,
    file: MemoryPlace,
    bounds: dict[str, Any],
    limit: Limit = 100,
    after: Annotated[str, option("ID", "Go on after this id.")] = "",
    everything: Annotated[bool, option("--all", "Superseded, deleted and held back items too.")] = False,
    where: Where = None,
) -> Lines:
    """List items in order of writing."""
    from keepworth.memory.search.where import from_texts

    matching = from_texts(where or (), place="--where")
    items = memory.get_all(limit=limit + 1, after=after, all_states=everything, where=matching, **bounds)
    yield from map(item_line, items[:limit])
    if len(items) > limit:
        yield NoteLine(f"There are more: go on with --after {items[limit - 1].id}, or with a larger --limit.")
    if not items:
        yield nothing_found(memory, file, narrowed=bool(any(bounds.values()) or where or after))


@command(READ, examples="keepworth memory show m17")
def show(memory: Memory, id: Id) -> Lines:
    """Show everything about an item."""
    record = plain(memory.get(id))
    shown = []
    for name, value in record.items():
        if isinstance(value, dict) and name in ("scope", "provenance"):
            value = ", ".join(f"{part} {name}" for part, name in value.items() if name not in ("", -1))
        shown.append(f"{name:>14}  {one_line(str(value))}")
    yield Line(record, "\n".join(shown))


@command(READ, examples="keepworth memory history m17")
def history(memory: Memory, id: Id) -> Lines:
    """Show what happened to an item, oldest first."""
    for revision in memory.history(id):
        after, origin = revision.after, one_line(revision.episode or revision.source)
        state = "(gone)" if after is None else f"{one_line(after.text)}{mark(after)}"
        where = f"  [{origin}]" if origin else ""
        record = plain(revision)
        yield Line(record, f"{record['at']}  {revision.kind:<9}  {state}{where}  (entry {revision.seq})")


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
            "Keep what TEXT states, and facts by OPENAI_MODEL at OPENAI_BASE_URL if it is set. It may correct items.",
        ),
    ] = False,
) -> Lines:
    """Remember a text as it stands, or what it states."""
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
            existed = item.id not in stored
            yield item_line(item, known=existed)
            if existed:
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
    text: Annotated[str | None, argument("TEXT", "What it says from now on.")] = None,
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
    keepworth memory put diet "eats no meat" --user ana
    keepworth memory put diet --user ana
    """,
    bounds=True,
    encoder=True,
)
def put(
    memory: Memory,
    bounds: dict[str, Any],
    name: Annotated[str, argument("", "Under which there is one text, as `name` in the metadata.")],
    text: Annotated[str | None, argument("TEXT", "What is there from now on; without it, what is there goes.")] = None,
    source: Source = "command line",
) -> Lines:
    """Store a text under a name in place of what is there, or delete that."""
    item = memory.put(text, name={"name": name}, source=source, **bounds)
    yield Line(None) if item is None else item_line(item)


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
    ids: Annotated[list[str] | None, argument("ID", "Items to forget.")] = None,
    purge: Annotated[bool, option("--purge", "Erase for good: journal, indexes and vectors too.")] = False,
    older_than: Annotated[
        float | None, option("--older-than DAYS", "In place of ids: what was written more days ago than this.")
    ] = None,
    yes: Yes = False,
) -> Lines:
    """Delete items, which `rollback` brings back. With --purge, erase them, which nothing brings back; asks before.

    --older-than takes items of a person, an agent, a session or everybody: for a retention rule that cron runs."""
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
    """Returns the ids of items that were written at least `days` ago; with `everything` also of superseded or deleted ones."""
    from datetime import datetime, timedelta

    until = (datetime.now(UTC).replace(tzinfo=None) - timedelta(days=days)).isoformat()
    pages = every_page(lambda after: memory.get_all(limit=1000, after=after, all_states=everything))
    return [item.id for item in pages if item.written_at <= until]


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
        counted = f"{len(erased.ids)} items and {erased.queries} logged queries"
        message = f"Erased {counted}. Backups and exports are not touched."
        if erased.nobody:
            message = f"Nothing in {file} was ever of {whose}: nothing was erased. `keepworth memory list --json` says who is."
        yield Line({"erased": erased.ids, "queries": erased.queries, "nobody": erased.nobody}, message)
        yield from _log_notes(erased)


def _log_notes(erased: Erased | None) -> Lines:
    if erased is not None and not erased.log_emptied:
        yield NoteLine("Another process is reading: run `keepworth memory compact` when it is done.")


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
    other: Annotated[str, argument("SNAPSHOT", "The later one; now if not given.")] = "",
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
    """Formats the state of an item, with what distinguishes two states of the same text."""
    shown = f", shown {item.values.shown} times" if item.values.shown else ""
    return f"{one_line(item.text)}{mark(item)}{shown}"


@command(
    UNDO,
    examples="""
    keepworth memory rollback e4f0c1
    keepworth memory rollback --source facts.txt
    keepworth memory rollback --since s12
    """,
    opens=OWN_ENCODER,
)
def rollback(
    memory: Memory,
    file: MemoryPlace,
    target: Annotated[str, argument("EPISODE|ROLLBACK", "An episode's or a rollback's id.")] = "",
    source: Annotated[str, option("", "Undo everything from this source.")] = "",
    since: Annotated[str, option("SNAPSHOT", "Undo everything since this state (see `snapshot`).")] = "",
    rewarder: Annotated[str, option("NAME", "Undo everything that follows from the rewards of this person.")] = "",
    entry: Annotated[int, option("N", "Undo one change, by its number in `history`.", min=0)] = 0,
) -> Lines:
    """Undo an episode, a source, one change, a person's rewards, or everything since a state. Can be undone itself."""
    result = memory.rollback(target, source=source, since=since, rewarder=rewarder, entry=entry)
    lines = [
        f"{result.cancelled} journal entries no longer count, {result.restored} count again; "
        f"{len(result.changed)} items changed. Undo this with: {again(file, 'rollback', result.id)}",
        *(f"  entry {seq} no longer applies: {reason}" for seq, reason in result.no_ops),
    ]
    yield Line(plain(result), "\n".join(lines))
