"""LangGraph's `BaseStore` over a memory: `graph.compile(store=as_langgraph_store(memory))`.

A value that is put again supersedes the old one, which stays in the history. Needs the package `langgraph-checkpoint`.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from importlib import import_module
from typing import Any

from recollect.memory.errors import MemoryProblem
from recollect.memory.item import Item
from recollect.memory.memory import Memory
from recollect.memory.moment import later
from recollect.memory.ranking import Hit

AGENT = "langgraph"
Namespace = tuple[str, ...]


def as_langgraph_store(memory: Memory) -> Any:
    """A store whose items live in `memory` under agent_id "langgraph", one session per namespace."""
    try:
        base: Any = import_module("langgraph.store.base")
    except ImportError as error:
        raise MemoryProblem("the LangGraph store needs LangGraph: pip install langgraph-checkpoint") from error

    class RecollectStore(base.BaseStore):  # type: ignore[misc]  # the package is optional
        supports_ttl = True

        def __init__(self) -> None:
            self._entries = _Entries(memory)

        def batch(self, ops: Iterable[Any]) -> list[Any]:
            return [self._one(op) for op in ops]

        async def abatch(self, ops: Iterable[Any]) -> list[Any]:
            return await asyncio.to_thread(self.batch, list(ops))

        def _one(self, op: Any) -> Any:
            if isinstance(op, base.GetOp):
                found = self._entries.get(op.namespace, op.key)
                return None if found is None else base.Item(**_fields(found))
            if isinstance(op, base.PutOp):
                return self._entries.put(op.namespace, op.key, op.value, op.ttl, op.index)
            if isinstance(op, base.SearchOp):
                return [
                    base.SearchItem(**_fields(item), score=score)
                    for item, score in self._entries.search(
                        op.namespace_prefix, op.query, op.filter or {}, op.limit, op.offset
                    )
                ]
            if isinstance(op, base.ListNamespacesOp):
                return self._entries.namespaces(op.match_conditions or (), op.max_depth, op.limit, op.offset)
            raise MemoryProblem(f"{type(op).__name__} is not an operation this store knows")

    return RecollectStore()


class _Entries:
    """(namespace, key) -> item id, made from the memory and again when another process changed it."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._lock = threading.RLock()
        self._ids: dict[tuple[Namespace, str], str] = {}
        self._head = -1

    def get(self, namespace: Namespace, key: str) -> Item | None:
        with self._lock:
            id = self._known().get((namespace, key))
        if id is None:
            return None
        item = self._memory.get(id)
        return item if item.visible(self._memory.store.clock()) else None

    def put(
        self, namespace: Namespace, key: str, value: Mapping[str, Any] | None, ttl: float | None, index: Any
    ) -> None:
        with self._lock:
            id = self._known().get((namespace, key))
            if value is None:
                if id is not None:
                    self._memory.delete(id)
                    del self._ids[namespace, key]
                self._head = self._memory.store.head()
                return
            options: dict[str, Any] = {
                "metadata": {"namespace": list(namespace), "key": key, "value": dict(value)},
                "key": _text(value, index),
            }
            if ttl is not None:
                options["expires_at"] = later(self._memory.store.clock(), 60.0 * ttl)
            text = json.dumps(value, ensure_ascii=False)
            if id is None:
                bounds = {"agent_id": AGENT, "session_id": json.dumps(namespace)}
                fresh = self._memory.add(text, repeat=True, **bounds, **options)
            elif self._memory.get(id).text == text:
                fresh = self._memory.update(id, expires_at=options.get("expires_at", ""))
            else:
                fresh = self._memory.supersede(id, text, **options)
            self._ids[namespace, key] = fresh.id
            self._head = self._memory.store.head()

    def search(
        self, prefix: Namespace, query: str | None, filter: Mapping[str, Any], limit: int, offset: int
    ) -> list[tuple[Item, float | None]]:
        def wanted(item: Item) -> bool:
            path, value = item.metadata.get("namespace", []), item.metadata.get("value", {})
            return tuple(path[: len(prefix)]) == prefix and all(
                _meets(value.get(name), condition) for name, condition in filter.items()
            )

        if query:
            # A namespace with nothing below it is one scope; only a true prefix has to look through all of them.
            inside = [space for space in {space for space, _ in self._known()} if space[: len(prefix)] == prefix]
            scope: dict[str, Any] = {"session_id": json.dumps(inside[0])} if len(inside) == 1 else {}
            hits = self._memory.search(query, top_k=limit + offset, agent_id=AGENT, where=wanted, **scope)
            found: list[tuple[Item, float | None]] = [(hit.item, _similarity(hit)) for hit in hits]
            return found[offset:]
        with self._lock:
            ids = [id for (space, _), id in self._known().items() if space[: len(prefix)] == prefix]
        time = self._memory.store.clock()
        items = [item for item in map(self._memory.get, ids) if item.visible(time) and wanted(item)]
        return [(item, None) for item in items[offset : offset + limit]]

    def namespaces(self, conditions: Iterable[Any], depth: int | None, limit: int, offset: int) -> list[Namespace]:
        with self._lock:
            spaces = {space for space, _ in self._known()}
        kept = {
            space[:depth] if depth is not None else space
            for space in spaces
            if all(_matches(space, condition.match_type, condition.path) for condition in conditions)
        }
        return sorted(kept)[offset : offset + limit]

    def _known(self) -> dict[tuple[Namespace, str], str]:
        head = self._memory.store.head()
        if head != self._head:
            scope = self._memory.scope.narrowed(agent=AGENT)
            self._ids = {
                (tuple(item.metadata["namespace"]), item.metadata["key"]): item.id
                for item in self._memory.store.items(scope, current=True)
                if "namespace" in item.metadata
            }
            self._head = head
        return self._ids


def _similarity(hit: Hit) -> float:
    return hit.dense if hit.dense is not None else hit.score


def _fields(item: Item) -> dict[str, Any]:
    at = datetime.fromisoformat(item.written_at + "+00:00")
    return {
        "namespace": tuple(item.metadata["namespace"]),
        "key": item.metadata["key"],
        "value": item.metadata["value"],
        "created_at": at,
        "updated_at": at,
    }


def _text(value: Mapping[str, Any], index: Any) -> str:
    """What searches read: the named fields, or everything."""
    if isinstance(index, list):
        chosen = [str(value[name]) for name in index if name in value]
    elif index is False:
        chosen = []
    else:
        chosen = [str(part) for part in value.values()]
    return "\n".join(chosen).strip()[:100_000]


def _meets(value: Any, condition: Any) -> bool:
    if not (isinstance(condition, Mapping) and condition and all(str(name).startswith("$") for name in condition)):
        return bool(value == condition)
    tests: dict[str, Callable[[Any], bool]] = {
        "$eq": lambda other: bool(value == other),
        "$ne": lambda other: bool(value != other),
        "$gt": lambda other: value is not None and value > other,
        "$gte": lambda other: value is not None and value >= other,
        "$lt": lambda other: value is not None and value < other,
        "$lte": lambda other: value is not None and value <= other,
    }
    unknown = set(condition) - set(tests)
    if unknown:
        raise MemoryProblem(f"filter operators {sorted(unknown)} do not exist: use {', '.join(tests)}")
    return all(tests[name](other) for name, other in condition.items())


def _matches(space: Namespace, kind: str, path: Namespace) -> bool:
    if len(path) > len(space):
        return False
    part = space[: len(path)] if kind == "prefix" else space[len(space) - len(path) :]
    return all(pattern in ("*", name) for name, pattern in zip(part, path, strict=True))
