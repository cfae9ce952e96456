"""LangGraph's `BaseStore` over a memory: `graph.compile(store=as_langgraph_store(memory))`.

A value that is put again supersedes the old one, which stays in the history. Needs the package `langgraph-checkpoint`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from typing import Any

from keepworth.memory.errors import InvalidFilter, InvalidText, MemoryProblem, UnknownItem
from keepworth.memory.item import LONGEST_NAME, LONGEST_TEXT, Item, later, now, plain_metadata, text_problem
from keepworth.memory.memory import Memory
from keepworth.memory.search.search import Ask, Hit, Hits, checked_query
from keepworth.memory.search.where import RANGES, parsed

AGENT = "langgraph"
WIDE = 1000
"""Candidates of a search, among which those under a prefix that meet a filter are looked for."""
LONGEST_INDEXED = 100_000
"""Characters of a text that searches read."""
TRIES = 5
"""How often a put is tried where another took the item away meanwhile."""
Namespace = tuple[str, ...]
Found = list[tuple[Item, float | None]]
TextsAt = Callable[[Any, str], list[str]]
"""(value, path) -> the texts that a path such as "m.text" or "c[*].t" leads to."""


def as_langgraph_store(
    memory: Any, *, fields: Sequence[str] | None = None, ttl: Mapping[str, Any] | None = None
) -> Any:
    """A store whose items live in `memory` under agent_id "langgraph", one session per namespace.

    memory: a `Memory`, or a `Client` of one that is served. Of two processes that put one key for the first time at the same
    moment the later one's item stays. A search with a filter looks among the 1,000 nearest.
    fields: paths of what searches read where a put names none, as in LangGraph's index configuration; None: the whole value.
    ttl: LangGraph's `TTLConfig`: "default_ttl" in minutes, "refresh_on_read"."""
    try:
        base: Any = import_module("langgraph.store.base")
    except ImportError as error:
        raise MemoryProblem("the LangGraph store needs LangGraph: pip install langgraph-checkpoint") from error

    class KeepworthStore(base.BaseStore):  # type: ignore[misc]  # the package is optional
        supports_ttl = True

        def __init__(self) -> None:
            self.ttl_config = None if ttl is None else dict(ttl)
            self._entries = _Entries(memory, base.get_text_at_path, fields)

        def batch(self, ops: Iterable[Any]) -> list[Any]:
            """What each operation gives, in order. As in LangGraph's own stores, all is read before anything is put, and of
            several puts of one key the last counts."""
            results: list[Any] = []
            puts: dict[tuple[Namespace, str], Put] = {}
            for op in ops:
                if isinstance(op, base.PutOp):
                    put = Put(tuple(op.namespace), op.key, op.value, op.ttl, op.index)
                    puts.pop((put.namespace, put.key), None)
                    puts[put.namespace, put.key] = put
                    results.append(None)
                else:
                    results.append(self._read(op))
            if puts:
                self._entries.put(list(puts.values()))
            return results

        async def abatch(self, ops: Iterable[Any]) -> list[Any]:
            return await asyncio.to_thread(self.batch, list(ops))

        def _read(self, op: Any) -> Any:
            if isinstance(op, base.GetOp):
                found = self._entries.get(tuple(op.namespace), op.key, refresh=op.refresh_ttl)
                return None if found is None else base.Item(**_record(found))
            if isinstance(op, base.SearchOp):
                prefix, filter = tuple(op.namespace_prefix), op.filter or {}
                ranked = self._entries.search(prefix, op.query, filter, op.limit, op.offset, refresh=op.refresh_ttl)
                return [base.SearchItem(**_record(item), score=score) for item, score in ranked]
            if isinstance(op, base.ListNamespacesOp):
                return self._entries.namespaces(op.match_conditions or (), op.max_depth, op.limit, op.offset)
            raise InvalidFilter(f"{type(op).__name__} is not an operation this store knows")

    return KeepworthStore()


@dataclass(frozen=True, slots=True)
class Put:
    """value: None deletes; ttl: minutes, None for ever; index: paths of what searches read, None for the store's, False for
    nothing."""

    namespace: Namespace
    key: str
    value: Mapping[str, Any] | None
    ttl: float | None = None
    index: Sequence[str] | bool | None = None


@dataclass(frozen=True, slots=True)
class _Stored:
    """What a value is as an item. text: the value as JSON; key: what searches read of it."""

    text: str
    key: str
    metadata: dict[str, Any]


class _Entries:
    """Values by namespace and key, over verbs that `Memory` and `Client` have alike."""

    def __init__(self, memory: Any, texts_at: TextsAt, fields: Sequence[str] | None = None) -> None:
        self._memory, self._texts_at, self._fields = memory, texts_at, fields

    def get(self, namespace: Namespace, key: str, *, refresh: bool = False) -> Item | None:
        found = self._listed(_space(namespace), {"key": key}).get((namespace, key))
        if refresh and found is not None:
            self._refresh([found])
        return found

    def put(self, puts: Sequence[Put]) -> None:
        stored = [None if put.value is None else _stored(put, self._texts_at, self._fields) for put in puts]
        for put, new in zip(puts, stored, strict=True):
            for tries in range(1, TRIES + 1):
                try:
                    self._put(put, new)
                    break
                except UnknownItem:
                    if tries == TRIES:
                        raise

    def _put(self, put: Put, new: _Stored | None) -> None:
        old = self.get(put.namespace, put.key)
        if new is None:
            if old is not None:
                self._memory.delete(old.id)
            return
        end = "" if put.ttl is None else later(now(), 60.0 * put.ttl)
        if old is None:
            given: dict[str, Any] = {"key": new.key, "metadata": new.metadata, "expires_at": end}
            self._memory.add(new.text, repeat=True, **given, **_space(put.namespace))
            self._tidy(put)
            return
        same = (old.text, old.key) == (new.text, new.key)
        metadata = {**new.metadata, **_created(old, same)}
        if same:
            self._memory.update(old.id, expires_at=end, metadata=metadata)
        else:
            self._memory.supersede(old.id, new.text, key=new.key, metadata=metadata, expires_at=end)

    def _tidy(self, put: Put) -> None:
        """Another process may have put the same key for the first time meanwhile: the item that was written last stays. Whoever
        looks after the later of two writes sees both."""
        listed = self._memory.get_all(limit=100, where={"key": put.key}, **_space(put.namespace))
        same = [item for item in listed if _entry(item) == (put.namespace, put.key)]
        for item in same[:-1]:
            with contextlib.suppress(UnknownItem):  # the other process does the same
                self._memory.delete(item.id)

    def search(
        self,
        prefix: Namespace,
        query: str | None,
        filter: Mapping[str, Any],
        limit: int,
        offset: int,
        *,
        refresh: bool = False,
    ) -> Found:
        """With a query the nearest first, and last what searches do not read; without one the last put first."""
        wanted = _wanted(prefix, filter)
        below: dict[str, Any] = {"$and": [{"namespace": {"$contains": part}} for part in prefix]} if prefix else {}
        found: Found = []
        if query:
            hits = self._hits(checked_query(_readable(query)), below)
            found = [(hit.item, _similarity(hit)) for hit in hits if wanted(hit.item) and _texts(hit.item) != []]
            found.sort(key=lambda pair: -(pair[1] or 0.0))
            below = {"$and": [below, {"texts": []}]} if below else {"texts": []}
        if len(found) < offset + limit:
            listed = reversed(self._listed({"agent_id": AGENT}, below).values())
            found += [(item, None) for item in listed if wanted(item)]
        found = found[offset : offset + max(0, limit)]
        if refresh:
            self._refresh([item for item, _ in found])
        return found

    def _hits(self, query: str, where: Mapping[str, Any]) -> Iterable[Hit]:
        """Without the policy of a memory that is here: callers give no rewards."""
        how: dict[str, Any] = {"top_k": WIDE, "agent_id": AGENT, "where": where}
        if not isinstance(self._memory, Memory):
            served: Hits = self._memory.search(query, **how)
            return served
        (hits,) = self._memory.answer([Ask(query, plain=True)], **how)
        return hits

    def namespaces(self, conditions: Iterable[Any], depth: int | None, limit: int, offset: int) -> list[Namespace]:
        spaces = {space for space, _ in self._listed({"agent_id": AGENT}, {})}
        return _matching(spaces, conditions, depth)[offset : offset + limit]

    def _refresh(self, items: Sequence[Item]) -> None:
        for id, end in _prolonged(items, now()).items():
            with contextlib.suppress(UnknownItem):
                self._memory.update(id, expires_at=end)

    def _listed(self, scope: Mapping[str, str], where: Mapping[str, Any]) -> dict[tuple[Namespace, str], Item]:
        """By namespace and key, in order of writing: the item that was written last counts."""
        listed: dict[tuple[Namespace, str], Item] = {}
        clock = now()
        for item in self._memory.get_all(limit=1_000_000, where=where or None, **scope):
            entry = _entry(item)
            if entry is not None and item.visible(clock):
                listed.pop(entry, None)
                listed[entry] = item
        return listed


def _session(namespace: Namespace) -> str:
    """The name of the session that holds a namespace."""
    name = json.dumps(namespace)
    return name if len(name) <= LONGEST_NAME else f"blake2b:{hashlib.blake2b(name.encode()).hexdigest()}"


def _space(namespace: Namespace) -> dict[str, str]:
    return {"agent_id": AGENT, "session_id": _session(namespace)}


def _stored(put: Put, texts_at: TextsAt, fields: Sequence[str] | None) -> _Stored:
    """Raises InvalidText for a value that is not plain data."""
    value = put.value
    if not isinstance(value, Mapping):
        raise InvalidText(f"the value of {put.key!r:.80} must be a dictionary, got {type(value).__name__}")
    try:
        value = dict(value)
        plain = json.dumps(value)
        readable = json.dumps(value, ensure_ascii=False)[:LONGEST_TEXT]
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidText(
            f"the value of {put.key!r:.80} is not plain data ({error}): give text, numbers, lists and dictionaries"
        ) from error
    metadata = plain_metadata({"namespace": list(put.namespace), "key": put.key})
    try:
        metadata |= plain_metadata({"value": value})
    except InvalidText:  # half a character, NaN, or deeper than metadata may be
        metadata["json"] = plain
    if put.ttl is not None:
        metadata["ttl"] = put.ttl
    texts = _searched(value, put.index, texts_at, fields)
    if len(texts) != 1:
        metadata["texts"] = texts
    text = readable if text_problem(readable) is None else plain[:LONGEST_TEXT]
    return _Stored(text, "\n".join(texts)[:LONGEST_INDEXED], metadata)


def _searched(
    value: Mapping[str, Any], index: Sequence[str] | bool | None, texts_at: TextsAt, fields: Sequence[str] | None
) -> list[str]:
    """The texts that searches read: those at the given paths, or the whole value as one."""
    if index is False:
        return []
    paths = fields if index is None or index is True else index
    if paths is None:
        chosen = ["\n".join(str(part) for part in value.values()).strip() or "{}"]
    else:
        chosen = [text for path in paths for text in texts_at(value, path)]
    readable = (_readable(text[:LONGEST_INDEXED]).strip() for text in chosen)
    return [text for text in readable if text]


_ODD = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


def _readable(text: str) -> str:
    """Without the characters that no memory takes."""
    return text if text.isprintable() else _ODD.sub(" ", text)


def _texts(item: Item) -> list[str] | None:
    """The texts that searches read; None where that is the key alone, or the text."""
    texts = item.metadata.get("texts")
    return texts if isinstance(texts, list) else None


def _prolonged(items: Iterable[Item], time: str) -> dict[str, str]:
    """New ends of those that were put for a while: as long from now as when they were put. An end that would move by less than a
    hundredth of that stays."""
    ends = {}
    for item in items:
        minutes = item.metadata.get("ttl")
        if item.expires_at and isinstance(minutes, (int, float)):
            end = later(time, 60.0 * minutes)
            if later(item.expires_at, 0.6 * minutes) <= end:
                ends[item.id] = end
    return ends


def _created(old: Item, same: bool) -> dict[str, Any]:
    """When the key was first put. An item that stays the `same` says so itself."""
    created = old.metadata.get("created", "" if same else old.written_at)
    return {"created": created} if created else {}


def _matching(spaces: Iterable[Namespace], conditions: Iterable[Any], depth: int | None) -> list[Namespace]:
    conditions = list(conditions)
    return sorted(
        {
            space[:depth] if depth is not None else space
            for space in spaces
            if all(_matches(space, condition.match_type, condition.path) for condition in conditions)
        }
    )


def _similarity(hit: Hit) -> float:
    return hit.dense if hit.dense is not None else hit.score


def _record(item: Item) -> dict[str, Any]:
    created = item.metadata.get("created", item.written_at)
    return {
        "namespace": tuple(item.metadata["namespace"]),
        "key": item.metadata["key"],
        "value": _value(item),
        "created_at": datetime.fromisoformat(created + "+00:00"),
        "updated_at": datetime.fromisoformat(item.written_at + "+00:00"),
    }


def _value(item: Item) -> Any:
    plain = item.metadata.get("json")
    return json.loads(plain) if isinstance(plain, str) else item.metadata.get("value", {})


def _entry(item: Item) -> tuple[Namespace, str] | None:
    namespace, key = item.metadata.get("namespace"), item.metadata.get("key")
    if (
        not isinstance(namespace, list)
        or not all(isinstance(part, str) for part in namespace)
        or not isinstance(key, str)
    ):
        return None  # written under our agent by somebody else
    return tuple(namespace), key


def _wanted(prefix: Namespace, filter: Mapping[str, Any]) -> Callable[[Item], bool]:
    """Whether an item lies under `prefix` and its value meets the filter. Raises InvalidFilter."""
    for name in filter:
        # The stores of LangGraph that build queries of them refuse these, too.
        if isinstance(name, str) and re.search(r"[\"'`()\\]", name):
            raise InvalidFilter(f"Invalid filter key: {name!r:.80}. Give a name without quotes and brackets")
    asked = parsed(_asked(filter), place="filter", inside=("value",), partial=True)

    def admits(item: Item) -> bool:
        entry = _entry(item)
        if entry is None or entry[0][: len(prefix)] != prefix:
            return False
        return asked is None or asked.meets({"value": _value(item)})

    return admits


def _asked(filter: Mapping[str, Any]) -> dict[str, Any]:
    """A filter of LangGraph as one of ours. There, None also stands for what is missing, and bounds may be infinite."""
    return {"$and": [_condition(name, value) for name, value in filter.items()]} if filter else {}


def _condition(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping) and value:
        if all(isinstance(each, str) and each.startswith("$") for each in value):
            return {"$and": [_compared(name, operator, operand) for operator, operand in value.items()]}
        return {name: value}
    return _compared(name, "$eq", value)


def _compared(name: str, operator: str, operand: Any) -> dict[str, Any]:
    if operand is None and operator in ("$eq", "$ne"):
        missing = {"$or": [{name: {"$eq": None}}, {name: {"$exists": False}}]}
        return missing if operator == "$eq" else {"$not": missing}
    if isinstance(operand, float) and math.isnan(operand):
        return {name: {"$nin" if operator == "$ne" else "$in": []}}  # equal to nothing, and neither above nor below
    if isinstance(operand, float) and math.isinf(operand) and operator in RANGES:
        operand = int(math.copysign(1, operand)) * _BEYOND
    return {name: {operator: list(operand) if isinstance(operand, tuple) else operand}}


_BEYOND = 10**400
"""Above every float."""


def _matches(space: Namespace, kind: str, path: Namespace) -> bool:
    if kind not in ("prefix", "suffix"):
        raise InvalidFilter(f"namespaces are matched by 'prefix' or 'suffix', got {kind!r:.40}")
    if len(path) > len(space):
        return False
    part = space[: len(path)] if kind == "prefix" else space[len(space) - len(path) :]
    return all(pattern in ("*", name) for name, pattern in zip(part, path, strict=True))
