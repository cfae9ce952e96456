"""Which traces of OpenTelemetry the episodes and searches of a memory are part of, so that what is said of a trace reaches them.

Whoever calls a memory within a trace says so by W3C's trace context: the header `traceparent` of a call to a server, or the span
that is open in this process. `within` holds it while a call is carried out, and what is begun or logged meanwhile is noted under
it, in the same transaction. A note names an id and says nothing else; it is kept for a month, and goes when its episode or its
search is erased.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from keepworth.memory.item import later, timestamp
from keepworth.memory.store.connection import AMONG, AnyConnection, among, select
from keepworth.memory.store.notes import BEGINNING, BLOCK_SECONDS, beginning, drop, drop_over, fact, keep

MEMBER, TRACE, ANSWER = "trace ", "traced ", "answer "
"""The kinds of notes: under a trace and an id that is part of it; under such an id, with its trace; and under the id of a model's
answer, with its episode."""
LONGEST_ID = 200
"""The most characters of the id of an answer."""
MOST = 10_000
"""The most episodes and searches of one trace that are looked at."""
_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}(?:-.*)?")


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A trace, and the spans of it in which something happens, in hexadecimal digits."""

    trace: str
    spans: tuple[str, ...] = ()


def read_traceparent(header: str) -> TraceContext | None:
    """Read the header `traceparent` of W3C's trace context; None where it is not valid, which is as if there were none."""
    match = _PARENT.fullmatch(header.strip())
    return None if match is None else TraceContext(match[1], (match[2],))


_CURRENT: ContextVar[TraceContext | None] = ContextVar("trace", default=None)


def current() -> TraceContext | None:
    """Return the trace within which the present call is carried out, else that of the span that is open here; None if there is
    none."""
    trace, api = _CURRENT.get(), sys.modules.get("opentelemetry.trace")
    if trace is not None or api is None or not hasattr(api, "get_current_span"):
        return trace
    span = api.get_current_span().get_span_context()
    return TraceContext(f"{span.trace_id:032x}", (f"{span.span_id:016x}",)) if span.is_valid else None


@contextmanager
def within(trace: TraceContext | None) -> Iterator[None]:
    """Inside this context, episodes and searches become part of a trace; with None, of the one that is current already."""
    if trace is None:
        yield
        return
    reset = _CURRENT.set(trace)
    try:
        yield
    finally:
        _CURRENT.reset(reset)


def join(connection: AnyConnection, trace: TraceContext, id: str, time: str) -> None:
    """Note that an episode or a search is part of a trace.

    Args:
        connection: A connection to the memory.
        trace: The trace, with its spans around this.
        id: The id of the episode or the decision.
        time: The present, as ISO 8601.
    """
    until = later(timestamp(time), BLOCK_SECONDS)
    under = f"{trace.trace} {id}"
    keep(connection, MEMBER + under, json.dumps({"until": until, "spans": trace.spans}))
    keep(connection, TRACE + id, json.dumps({"until": until, "trace": trace.trace}))
    drop_over(connection, MEMBER, under, time)
    drop_over(connection, TRACE, id, time)


def trace_of(connection: AnyConnection, id: str) -> str:
    """Return the trace of an episode or a search; "" if it is part of none that is known."""
    note = fact(connection, TRACE + id)
    return "" if note is None else str(json.loads(note)["trace"])


def members(connection: AnyConnection, trace: str, span: str = "") -> list[str]:
    """Return what is part of a trace: its episodes, and those of its searches that are in none of them.

    Args:
        connection: A connection to the memory.
        trace: Its id.
        span: If something happened right within this span, only that is returned.
    """
    query = f"SELECT name, value FROM facts_of_file WHERE {BEGINNING} ORDER BY name LIMIT {MOST}"
    start = f"{MEMBER}{trace} "
    listed = {
        name.removeprefix(start): json.loads(value) for name, value in select(connection, query, beginning(start))
    }
    ids = [id for id, note in listed.items() if span in note["spans"]] or list(listed)
    query = f"SELECT id, episode FROM decisions WHERE id {AMONG}"
    inside = {id for id, episode in select(connection, query, (among(ids),)) if episode in ids}
    return [id for id in ids if id not in inside]


def note_answer(connection: AnyConnection, answer: str, episode: str, time: str) -> None:
    """Note the id of an answer that a model gave in an episode. Some servers draw ids from few: one that was in two episodes
    names none of them.

    Args:
        connection: A connection to the memory.
        answer: The id of the answer.
        episode: The id of the episode.
        time: The present, as ISO 8601.
    """
    if 0 < len(answer) <= LONGEST_ID:
        until, before = later(timestamp(time), BLOCK_SECONDS), fact(connection, ANSWER + answer)
        there = episode if before is None else json.loads(before)["episode"]
        noted = {"until": until, "episode": episode if there == episode else ""}
        keep(connection, ANSWER + answer, json.dumps(noted))
        drop_over(connection, ANSWER, answer, time)


def episode_of_answer(connection: AnyConnection, answer: str) -> str:
    """Return the episode in which a model gave the answer with this id; "" if none is known, or several are."""
    note = fact(connection, ANSWER + answer) if answer else None
    return "" if note is None else str(json.loads(note)["episode"])


def forget_traces(connection: AnyConnection, homes: Sequence[int]) -> None:
    """Delete the notes of all episodes and searches in scopes that are erased, by the ids of these. The rows are still there."""
    for table in ("decisions", "episodes"):
        query = f"SELECT f.name, f.value FROM facts_of_file f JOIN {table} t ON f.name = '{TRACE}' || t.id WHERE t.scope {AMONG}"
        drop(connection, _names(select(connection, query, (among(homes),))))
    episodes = f"SELECT id FROM episodes WHERE scope {AMONG}"
    query = f"SELECT name FROM facts_of_file WHERE {BEGINNING} AND json_extract(value, '$.episode') IN ({episodes})"
    drop(connection, [name for (name,) in select(connection, query, (*beginning(ANSWER), among(homes)))])


def _names(listed: Iterable[tuple[str, str]]) -> Iterator[str]:
    for name, value in listed:
        yield from (name, f"{MEMBER}{json.loads(value)['trace']} {name.removeprefix(TRACE)}")
