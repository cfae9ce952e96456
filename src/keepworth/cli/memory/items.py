"""What the commands `keepworth memory search` to `rollback` print: those that find, write, correct and undo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from keepworth.base.text import one_line
from keepworth.cli.memory.group import (
    Call,
    Line,
    Lines,
    NoteLine,
    again,
    beginning,
    every_page,
    item_line,
    mark,
    nothing_found,
    plain,
    prints,
    read_lines,
)
from keepworth.cli.output import confirm
from keepworth.serving import verbs

if TYPE_CHECKING:
    from keepworth.memory.item import Item
    from keepworth.memory.memory import Memory
    from keepworth.memory.search.search import Hit
    from keepworth.memory.store.purge import Erased


@prints(verbs.search)
def _search(call: Call) -> Lines:
    hits = call(explore=False)
    yield from (Line(plain(item), f"{'always':>8}  {item.id:>6}  {beginning(item.text)}") for item in hits.core)
    always = {item.id for item in hits.core}
    yield from (hit_line(hit, call.values["explain"]) for hit in hits if hit.id not in always)
    if not hits and not hits.core:
        yield nothing_found(call.memory, call.file, narrowed=call.narrowed("where", "as_of"))


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


@prints(verbs.list_items)
def _list(call: Call) -> Lines:
    limit = call.values["limit"]
    items = call(limit=limit + 1)
    yield from map(item_line, items[:limit])
    if len(items) > limit:
        yield NoteLine(f"There are more: go on with --after {items[limit - 1].id}, or with a larger --limit.")
    if not items:
        yield nothing_found(call.memory, call.file, narrowed=call.narrowed("where", "after"))


@prints(verbs.get_item)
def _show(call: Call) -> Lines:
    record = plain(call())
    lines = []
    for name, value in record.items():
        if isinstance(value, dict) and name in ("scope", "provenance"):
            value = ", ".join(f"{part} {name}" for part, name in value.items() if name not in ("", -1))
        lines.append(f"{name:>14}  {one_line(str(value))}")
    yield Line(record, "\n".join(lines))


@prints(verbs.item_history)
def _history(call: Call) -> Lines:
    for revision in call():
        after, origin = revision.after, one_line(revision.episode or revision.source)
        state = "(gone)" if after is None else f"{beginning(after.text)}{mark(after)}"
        where = f"  [{origin}]" if origin else ""
        record = plain(revision)
        yield Line(record, f"{record['at']}  {revision.kind:<9}  {state}{where}  (entry {revision.seq})")


@prints(verbs.add_items)
def _add(call: Call) -> Lines:
    content, infer = call.values.pop("content"), call.values["infer"]
    texts = read_lines() if content == "-" else [content]
    with call.opened(make=True, writer=infer):
        before = call.memory.store.head()
        if infer:
            added = call(content=[{"role": "user", "content": text} for text in texts])
        else:
            added = call(texts=texts)
        stored = set(call.memory.store.changed_since(before))
        for item in added:
            existed = item.id not in stored
            yield item_line(item, known=existed)
            if existed:
                yield NoteLine(f"{item.id} says that already: nothing was stored.")
        if not added:
            yield NoteLine("The writer found nothing to keep.")


@prints(verbs.put_item)
def _put(call: Call) -> Lines:
    item = call(name={"name": call.values["name"]})
    yield Line(None) if item is None else item_line(item)


@prints(verbs.forget_items)
def _forget(call: Call) -> Lines:
    ids, purge, older_than, yes = (call.values.pop(name) for name in ("ids", "purge_history", "older_than", "yes"))
    if bool(ids) == (older_than is not None):
        raise typer.BadParameter("give ids, or --older-than DAYS")
    if older_than is not None and not 0 <= older_than <= 100_000:
        raise typer.BadParameter(f"--older-than takes a number of days from 0 to 100,000, got {older_than:g}")
    if ids and any(call.bounds.values()):
        raise typer.BadParameter("--user, --agent and --session go with --older-than: an id names one item")
    if yes and not purge:
        raise typer.BadParameter("--yes goes with --purge: what is deleted can be brought back, and nothing is asked")
    with call.opened():
        chosen = ids or _older(call.memory, older_than or 0.0, everything=purge)
        if purge and chosen:
            for id in ids or ():
                call.memory.get(id)
            what = ", ".join(chosen) if ids else f"{len(chosen):,} items"
            confirm(f"Erase {what} of {call.file}, for good?", yes)
        erased = call(ids=chosen, purge_history=purge) if chosen else None
        done = "Erased" if purge else "Deleted"
        yield Line({done.lower(): chosen}, f"{done} {', '.join(chosen)}." if ids else f"{done} {len(chosen)} items.")
        yield from _log_notes(erased)


def _older(memory: Memory, days: float, *, everything: bool) -> Sequence[str]:
    """Returns the ids of items that were written at least `days` ago; with `everything` also of superseded or deleted ones."""
    from datetime import UTC, datetime, timedelta

    until = (datetime.now(UTC).replace(tzinfo=None) - timedelta(days=days)).isoformat()
    pages = every_page(lambda after: memory.get_all(limit=1000, after=after, all_states=everything))
    return [item.id for item in pages if item.written_at <= until]


@prints(verbs.erase)
def _erase(call: Call) -> Lines:
    whose = ", ".join(f"{bound.removesuffix('_id')} {name!r}" for bound, name in call.bounds.items() if name)
    if not whose:
        raise typer.BadParameter("say whose memory is erased: --user, --agent or --session")
    with call.opened():
        confirm(f"Erase everything of {whose} in {call.file}, for good?", call.values["yes"])
        erased = call()
        counted = f"{len(erased.ids)} items and {erased.queries} logged queries"
        message = f"Erased {counted}. Backups and exports are not touched."
        if erased.nobody:
            message = f"Nothing in {call.file} was ever of {whose}: nothing was erased."
            message += " `keepworth memory list --json` says who is."
        yield Line({"erased": erased.ids, "queries": erased.queries, "nobody": erased.nobody}, message)
        yield from _log_notes(erased)


def _log_notes(erased: Erased | None) -> Lines:
    if erased is not None and not erased.log_emptied:
        yield NoteLine("Another process is reading: run `keepworth memory compact` when it is done.")


@prints(verbs.snapshot)
def _snapshot(call: Call) -> Lines:
    name = call()
    yield Line({"snapshot": name}, name)


@prints(verbs.diff)
def _diff(call: Call) -> Lines:
    differences = call()
    for difference in differences:
        states = (("-", difference.before), ("+", difference.after))
        lines = [f"{sign} {difference.id:>6}  {_state(item)}" for sign, item in states if item is not None]
        yield Line(plain(difference), "\n".join(lines))
    if not differences:
        yield NoteLine("Nothing differs.")


def _state(item: Item) -> str:
    """Formats the state of an item, with what distinguishes two states of the same text."""
    count = f", shown {item.values.shown} times" if item.values.shown else ""
    return f"{beginning(item.text)}{mark(item)}{count}"


@prints(verbs.rollback)
def _rollback(call: Call) -> Lines:
    result = call()
    lines = [
        f"{result.cancelled} journal entries no longer count, {result.restored} count again; "
        f"{len(result.changed)} items changed. Undo this with: {again(call.file, 'rollback', result.id)}",
        *(f"  entry {seq} no longer applies: {reason}" for seq, reason in result.no_ops),
    ]
    yield Line(plain(result), "\n".join(lines))
