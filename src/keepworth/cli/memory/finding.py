"""`keepworth memory search`, `list`, `show` and `history`."""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from keepworth.cli.memory.group import READ, app
from keepworth.cli.memory.opening import (
    DEFAULT,
    POLICY,
    Agent,
    Encoder,
    File,
    Id,
    Json,
    Session,
    User,
    Where,
    mark,
    opened,
    print_item,
    tell_nothing,
)
from keepworth.cli.output import say, say_json
from keepworth.episodes.text import one_line

if TYPE_CHECKING:
    from keepworth.memory.search.search import Hit


@app.command(
    rich_help_panel=READ,
    examples="""
    keepworth memory search "what to cook" --user ana
    keepworth memory search tofu --top-k 3 --explain
    keepworth memory search tofu --where kind=recipe --json
    """,
)
def search(
    query: Annotated[str, typer.Argument(help="What to look for.")],
    file: File = DEFAULT,
    user: User = "",
    agent: Agent = "",
    session: Session = "",
    top_k: Annotated[int, typer.Option("--top-k", "-k", metavar="N", min=1, help="How many.")] = 10,
    mode: Annotated[
        str, typer.Option(help="hybrid, lexical or dense; by default hybrid where there is an encoder.")
    ] = "",
    as_of: Annotated[str, typer.Option(metavar="TIME", help="What was held true then (ISO 8601).")] = "",
    where: Where = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say what every score is made of.")] = False,
    encoder: Encoder = "default",
    as_json: Json = False,
) -> None:
    """Find what was remembered, best first, in the order that rewards taught. Nothing is logged, and nothing is tried out.

    `keepworth memory episode search` finds as an agent does: rewards reach what was shown."""
    from keepworth.memory.search.where import from_texts

    wanted = from_texts(where or (), place="--where")
    with ExitStack() as stack:
        memory = stack.enter_context(opened(file, encoder, policy=POLICY, log="off"))
        if memory.policy != POLICY:  # one that was promoted may find items by itself
            memory = stack.enter_context(opened(file, encoder))
        hits = memory.search(
            query,
            explore=False,
            top_k=top_k,
            user_id=user,
            agent_id=agent,
            session_id=session,
            mode=mode or None,
            as_of=as_of,
            explain=explain,
            where=wanted,
        )
        for hit in hits:
            print_hit(hit, as_json, explain)
        if not hits:
            tell_nothing(memory, file, narrowed=bool(user or agent or session or where or as_of))


_NUMBER = re.compile(r"\d+\.\d+(?:e[+-]?\d+)?")


def print_hit(hit: Hit, as_json: bool, explain: bool = False) -> None:
    if as_json:
        print_item(hit.item, True, score=hit.score, span=hit.span, conflicts=hit.conflicts)
        return
    other = f"  (otherwise: {', '.join(hit.conflicts)})" if hit.conflicts else ""
    say(f"{hit.score:8.4f}  {hit.id:>6}  {one_line(hit.passage)}{other}")
    if hit.why is not None and hit.why.learned:
        say(f"          {hit.why.learned}")
    if explain and hit.why is not None:
        terms = ", ".join(f"{term} {part:.3f}" for term, part in hit.why.terms.items())
        cosine = "not found" if hit.dense is None else f"cosine {hit.dense:.4f}"
        formula = _NUMBER.sub(lambda number: f"{float(number[0]):.3g}", hit.why.formula)
        say(f"          = {formula}; words: {terms or 'not found'}; meaning: {cosine}")


@app.command(
    "list",
    rich_help_panel=READ,
    examples="""
    keepworth memory list --user ana
    keepworth memory list --all --limit 20 --after m17
    keepworth memory list --where '{"year": {"$gte": 2020}}' --json
    """,
)
def list_(
    file: File = DEFAULT,
    user: User = "",
    agent: Agent = "",
    session: Session = "",
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, help="At most this many.")] = 100,
    after: Annotated[str, typer.Option(metavar="ID", help="Go on after this id.")] = "",
    everything: Annotated[bool, typer.Option("--all", help="Superseded, deleted and held back items too.")] = False,
    where: Where = None,
    as_json: Json = False,
) -> None:
    """List items in order of writing."""
    from keepworth.memory.search.where import from_texts

    wanted = from_texts(where or (), place="--where")
    with opened(file, "none") as memory:
        items = memory.get_all(
            user_id=user,
            agent_id=agent,
            session_id=session,
            limit=limit,
            after=after,
            all_states=everything,
            where=wanted,
        )
        for item in items:
            print_item(item, as_json)
        if not items:
            tell_nothing(memory, file, narrowed=bool(user or agent or session or where or after))


@app.command(rich_help_panel=READ, examples="keepworth memory show m17")
def show(id: Id, file: File = DEFAULT, as_json: Json = False) -> None:
    """Show everything about an item."""
    from keepworth.memory.item import to_record

    with opened(file, "none") as memory:
        record = to_record(memory.get(id))
        if as_json:
            say_json(record)
            return
        for name, value in record.items():
            if isinstance(value, dict) and name in ("scope", "provenance"):
                value = ", ".join(f"{part} {each}" for part, each in value.items() if each not in ("", -1))
            say(f"{name:>14}  {one_line(str(value))}")


@app.command(rich_help_panel=READ, examples="keepworth memory history m17")
def history(id: Id, file: File = DEFAULT, as_json: Json = False) -> None:
    """Show what happened to an item, oldest first."""
    from keepworth.memory.item import to_record

    with opened(file, "none") as memory:
        for revision in memory.history(id):
            after = revision.after
            if as_json:
                record = {name: getattr(revision, name) for name in ("seq", "at", "kind", "episode", "source")}
                states = {"before": revision.before, "after": after}
                say_json({**record, **{name: each and to_record(each) for name, each in states.items()}})
                continue
            state = "(gone)" if after is None else f"{one_line(after.text)}{mark(after)}"
            origin = one_line(revision.episode or revision.source)
            where = f"  [{origin}]" if origin else ""
            say(f"{revision.at}  {revision.kind:<9}  {state}{where}  (entry {revision.seq})")
