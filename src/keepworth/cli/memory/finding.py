"""`keepworth memory search`, `list`, `show` and `history`."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

from keepworth.cli.command import argument, option
from keepworth.cli.memory.group import (
    POLICY,
    READ,
    Id,
    Limit,
    Line,
    Lines,
    TopK,
    Where,
    command,
    item_line,
    mark,
    nothing_found,
    opened,
    plain,
)
from keepworth.episodes.text import one_line
from keepworth.memory.place import MemoryPlace

if TYPE_CHECKING:
    from keepworth.memory.memory import Memory
    from keepworth.memory.search.search import Hit


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
    explain: Annotated[bool, option("--explain", "Say what every score is made of.")] = False,
) -> Lines:
    """Find what was remembered, best first, in the order that rewards taught. Nothing is logged, and nothing is tried out.

    `keepworth memory episode search` finds as an agent does: rewards reach what was shown."""
    from keepworth.memory.search.where import from_texts

    options: dict[str, Any] = {"mode": mode or None, "as_of": as_of, "where": from_texts(where or (), place="--where")}
    with ExitStack() as stack:
        if memory.policy != POLICY:  # one that was promoted may find items by itself
            memory = stack.enter_context(opened(file, encoder))
        hits = memory.search(query, explore=False, top_k=top_k, explain=explain, **options, **bounds)
        yield from (hit_line(hit, explain) for hit in hits)
        if not hits:
            yield nothing_found(memory, file, narrowed=bool(any(bounds.values()) or where or as_of))


def hit_line(hit: Hit, explain: bool = False) -> Line:
    other = f"  (otherwise: {', '.join(hit.conflicts)})" if hit.conflicts else ""
    text = f"{hit.score:8.4f}  {hit.id:>6}  {one_line(hit.passage)}{other}"
    if hit.why is not None and hit.why.learned:
        text += f"\n          {hit.why.learned}"
    if explain and hit.why is not None:
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
    items = memory.get_all(limit=limit, after=after, all_states=everything, where=matching, **bounds)
    yield from map(item_line, items)
    if not items:
        yield nothing_found(memory, file, narrowed=bool(any(bounds.values()) or where or after))


@command(READ, examples="keepworth memory show m17")
def show(memory: Memory, id: Id) -> Lines:
    """Show everything about an item."""
    record = plain(memory.get(id))
    shown = []
    for name, value in record.items():
        if isinstance(value, dict) and name in ("scope", "provenance"):
            value = ", ".join(f"{part} {each}" for part, each in value.items() if each not in ("", -1))
        shown.append(f"{name:>14}  {one_line(str(value))}")
    yield Line(record, "\n".join(shown))


@command(READ, examples="keepworth memory history m17")
def history(memory: Memory, id: Id) -> Lines:
    """Show what happened to an item, oldest first."""
    for revision in memory.history(id):
        after, origin = revision.after, one_line(revision.episode or revision.source)
        state = "(gone)" if after is None else f"{one_line(after.text)}{mark(after)}"
        where = f"  [{origin}]" if origin else ""
        text = f"{revision.at}  {revision.kind:<9}  {state}{where}  (entry {revision.seq})"
        yield Line(plain(revision), text)
