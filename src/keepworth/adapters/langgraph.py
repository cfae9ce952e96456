"""LangGraph's `BaseStore` over a memory: `graph.compile(store=as_langgraph_store(memory))`.

A value that is put again supersedes the old one, which stays in the history. Needs the package `langgraph-checkpoint`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from importlib import import_module
from typing import Any

from keepworth.memory.errors import InvalidFilter, InvalidText, MemoryProblem
from keepworth.memory.item import LONGEST_WORDING, Item, now, worded
from keepworth.memory.memory import Memory
from keepworth.memory.search.search import Ask, Hits, checked_query
from keepworth.memory.search.where import parsed

AGENT = "langgraph"
WIDE = 1000
"""How many of the items under a prefix that meet a filter are put in order of meaning, at least where a page ends before."""
Namespace = tuple[str, ...]
Found = list[tuple[Item, float | None]]
TextsAt = Callable[[Any, str], list[str]]
"""A function from a value and a path, such as "m.text" or "c[*].t", to the texts at that path."""


def as_langgraph_store(memory: Any, *, fields: Sequence[str] | None = None) -> Any:
    """Return a store whose items are held in `memory` under agent_id "langgraph", with a session for each namespace.

    Args:
        memory: A `Memory`, or a `Client` of a served one.
        fields: Paths of the texts that searches read, unless a put names others, as in LangGraph's index configuration; None for
            the whole value.
    """
    try:
        base: Any = import_module("langgraph.store.base")
    except ImportError as error:
        raise MemoryProblem("the LangGraph store needs LangGraph: pip install langgraph-checkpoint") from error

    class KeepworthStore(base.BaseStore):  # type: ignore[misc]  # the package is optional
        def __init__(self) -> None:
            self._entries = _Entries(memory, base.get_text_at_path, fields)
            self._writing = ThreadPoolExecutor(1, "keepworth-langgraph")

        def batch(self, ops: Iterable[Any]) -> list[Any]:
            """Carry out operations and return their results in order. As in LangGraph's own stores, all reads come before all
            puts, and of several puts of one key the last counts."""
            operations = list(ops)
            results = [None if isinstance(op, base.PutOp) else self._read(op) for op in operations]
            puts = {(tuple(op.namespace), op.key): op for op in operations if isinstance(op, base.PutOp)}
            for (namespace, key), op in puts.items():
                self._entries.put(namespace, key, op.value, op.index)
            return results

        async def abatch(self, ops: Iterable[Any]) -> list[Any]:
            """Carry out operations as `batch` does. Those that put are done one after the other, in the order of the calls."""
            operations = list(ops)
            if not any(isinstance(op, base.PutOp) for op in operations):
                return await asyncio.to_thread(self.batch, operations)
            return await asyncio.get_running_loop().run_in_executor(self._writing, self.batch, operations)

        def _read(self, op: Any) -> Any:
            if isinstance(op, base.GetOp):
                entry = self._entries.get(tuple(op.namespace), op.key)
                return None if entry is None else base.Item(**_record(entry))
            if isinstance(op, base.SearchOp):
                prefix, filter = tuple(op.namespace_prefix), op.filter or {}
                ranked = self._entries.search(prefix, op.query, filter, op.limit, op.offset)
                return [base.SearchItem(**_record(item), score=score) for item, score in ranked]
            if isinstance(op, base.ListNamespacesOp):
                return self._entries.namespaces(op.match_conditions or (), op.max_depth, op.limit, op.offset)
            raise InvalidFilter(f"{type(op).__name__} is not an operation this store knows")

    return KeepworthStore()


class _Entries:
    """Stores values by namespace and key, through methods that both `Memory` and `Client` have."""

    def __init__(self, memory: Any, texts_at: TextsAt, fields: Sequence[str] | None = None) -> None:
        self._memory, self._texts_at, self._fields = memory, texts_at, fields

    def get(self, namespace: Namespace, key: str) -> Item | None:
        listed = self._listed(_space(namespace), {"key": key})
        return listed[-1] if listed else None

    def put(
        self,
        namespace: Namespace,
        key: str,
        value: Mapping[str, Any] | None,
        index: Sequence[str] | bool | None = None,
    ) -> None:
        """Store a value, or delete the old one if `value` is None. `index` holds the paths of the texts that searches read: None
        for those of the store, False for none. Raises InvalidText for a value that is not plain data."""
        name, scope = {"key": key}, _space(namespace)
        if value is None:
            self._memory.put(None, name=name, **scope)
            return
        try:
            text = json.dumps(value, ensure_ascii=False)
        except (TypeError, ValueError) as error:
            raise InvalidText(f"the value of {key!r:.80} is not plain data ({error})") from error
        read = self._searched(value, index)
        metadata = {"namespace": list(namespace), "value": dict(value), "indexed": bool(read)}
        self._memory.put(text, name=name, key=read, metadata=metadata, **scope)

    def _searched(self, value: Mapping[str, Any], index: Sequence[str] | bool | None) -> str:
        """Return the texts that searches read, one on each line: those at the given paths, or those of the whole value."""
        if index is False:
            return ""
        paths = self._fields if index is None or index is True else index
        texts = [str(part) for part in value.values()]
        if paths is not None:
            texts = [text for path in paths for text in self._texts_at(value, path)]
        return worded("\n".join(texts)[:LONGEST_WORDING], "what searches read").strip()

    def search(self, prefix: Namespace, query: str | None, filter: Mapping[str, Any], limit: int, offset: int) -> Found:
        """Return items under `prefix`: with a query the nearest first and unindexed ones last, without one the latest first."""
        parsed(asked := _asked(filter, "value"), place="filter")  # raises where it is none, under its own name
        # All of it is asked before the nearest are taken, so that no number of nearer items hides what is here.
        below: list[dict[str, Any]] = [{f"namespace.{place}": part} for place, part in enumerate(prefix)]
        below += [asked] if asked else []
        ranked: Found = []
        if query:
            where: dict[str, Any] = {"$and": [*below, {"indexed": True}]}
            hits = self._hits(checked_query(query), where, offset + limit)
            ranked = [(hit.item, hit.score if hit.dense is None else hit.dense) for hit in hits]
            ranked.sort(key=lambda pair: -(pair[1] or 0.0))
            below = [*below, {"indexed": False}]
        if len(ranked) < offset + limit:
            listed = self._listed({"agent_id": AGENT}, {"$and": below} if below else {})
            ranked += [(item, None) for item in reversed(listed)]
        return ranked[offset : offset + limit]

    def _hits(self, query: str, where: Mapping[str, Any], wanted: int) -> Hits:
        """Search a memory of this process without its policy, as callers give no rewards, or a served one through its client."""
        how: dict[str, Any] = {"top_k": WIDE, "agent_id": AGENT, "where": where}
        if isinstance(self._memory, Memory):
            return self._memory.answer(Ask(query, plain=True), **{**how, "top_k": max(WIDE, wanted)})
        served: Hits = self._memory.search(query, **how)
        return served

    def namespaces(self, conditions: Iterable[Any], depth: int | None, limit: int, offset: int) -> list[Namespace]:
        spaces = {_space_of(item) for item in self._listed({"agent_id": AGENT}, {})}
        asked = [(condition.match_type, condition.path) for condition in conditions]
        matching = {space[:depth] for space in spaces if all(_matches(space, kind, path) for kind, path in asked)}
        return sorted(matching)[offset : offset + limit]

    def _listed(self, scope: Mapping[str, str], where: Mapping[str, Any]) -> list[Item]:
        """Return the items of the store within a scope, in order of writing."""
        listed = self._memory.get_all(limit=1_000_000, where=where or None, **scope)
        time = now()
        return [item for item in listed if item.visible(time) and "namespace" in item.metadata]


def _space(namespace: Namespace) -> dict[str, str]:
    """Return the scope that holds a namespace."""
    return {"agent_id": AGENT, "session_id": json.dumps(namespace)}


def _space_of(item: Item) -> Namespace:
    return tuple(item.metadata["namespace"])


def _asked(filter: Mapping[str, Any], inside: str) -> dict[str, Any]:
    """Translate LangGraph's filter into one of `search.where`, with names as paths below `inside`, also for nested filters."""
    out: dict[str, Any] = {}
    for name, value in filter.items():
        parts = isinstance(value, Mapping) and value and not any(part.startswith("$") for part in value)
        same = {"$eq": value} if isinstance(value, Mapping) and not value else value
        out.update(_asked(value, f"{inside}.{name}") if parts else {f"{inside}.{name}": same})
    return out


def _record(item: Item) -> dict[str, Any]:
    created = item.metadata.get("created", item.written_at)
    return {
        "namespace": _space_of(item),
        "key": item.metadata["key"],
        "value": item.metadata["value"],
        "created_at": datetime.fromisoformat(created + "+00:00"),
        "updated_at": datetime.fromisoformat(item.written_at + "+00:00"),
    }


def _matches(space: Namespace, kind: str, path: Namespace) -> bool:
    if kind not in ("prefix", "suffix"):
        raise InvalidFilter(f"namespaces are matched by 'prefix' or 'suffix', got {kind!r:.40}")
    if len(path) > len(space):
        return False
    part = space[: len(path)] if kind == "prefix" else space[len(space) - len(path) :]
    return all(pattern in ("*", name) for name, pattern in zip(part, path, strict=True))
