"""LangGraph's `BaseStore` over a memory: `graph.compile(store=as_langgraph_store(memory))`.

A value that is put again supersedes the old one, which stays in the history. Needs the package `langgraph-checkpoint`.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any

from keepworth.episodes.episode import Operation, OperationKind
from keepworth.memory.errors import InvalidText, MemoryProblem
from keepworth.memory.item import Item, checked_text, later, now, plain_metadata
from keepworth.memory.memory import Memory
from keepworth.memory.operations import Act, Assignment, Draft
from keepworth.memory.search.search import Ask, Hit, checked_query

if TYPE_CHECKING:
    from keepworth.memory.store.transaction import Changed, Transaction

AGENT = "langgraph"
Namespace = tuple[str, ...]


def as_langgraph_store(memory: Any) -> Any:
    """A store whose items live in `memory` under agent_id "langgraph", one session per namespace.

    memory: a `Memory`, or a `Client` of one that is served: then a namespace is read whole to find a key, and of two processes
    that put one key at the same moment each leaves an item, of which the later is read."""
    try:
        base: Any = import_module("langgraph.store.base")
    except ImportError as error:
        raise MemoryProblem("the LangGraph store needs LangGraph: pip install langgraph-checkpoint") from error

    class KeepworthStore(base.BaseStore):  # type: ignore[misc]  # the package is optional
        supports_ttl = True

        def __init__(self) -> None:
            kind = _Entries if isinstance(memory, Memory) else _ServedEntries
            self._entries: Any = kind(memory, lambda value, path: base.get_text_at_path(value, path))

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

    return KeepworthStore()


class _Entries:
    """(namespace, key) -> item id, as the journal was at `_head`; kept up with what this and other processes write.

    texts_at: (value, path) -> the texts that a path such as "m.text" or "c[*].t" leads to.
    """

    def __init__(self, memory: Memory, texts_at: Callable[[Any, str], list[str]]) -> None:
        self._memory = memory
        self._texts_at = texts_at
        self._lock = threading.RLock()
        self._ids: dict[tuple[Namespace, str], str] = {}
        self._names: dict[str, tuple[Namespace, str]] = {}  # the other way round
        self._head = -1

    def get(self, namespace: Namespace, key: str) -> Item | None:
        with self._lock:
            id = self._known().get((tuple(namespace), key))
        item = None if id is None else self._read([id])[0]
        return item if item is not None and item.visible(self._memory.store.clock()) else None

    def put(
        self, namespace: Namespace, key: str, value: Mapping[str, Any] | None, ttl: float | None, index: Any
    ) -> None:
        """Which item a key has is looked up inside the transaction: another process may have put one meanwhile."""
        store, scope = self._memory.store, self._memory.scope.narrowed(agent=AGENT)
        namespace = tuple(namespace)
        home = scope.narrowed(session=json.dumps(namespace))
        text = searched = expires = ""
        metadata: dict[str, Any] = {}
        if value is not None:
            text = checked_text(json.dumps(value, ensure_ascii=False))
            searched = self._text(value, index)
            if searched:
                checked_text(searched, "the text that is indexed")
            metadata = plain_metadata({"namespace": list(namespace), "key": key, "value": dict(value)})
            expires = "" if ttl is None else later(store.clock(), 60.0 * ttl)
        fresh = Draft(scope=home, key=searched, metadata=metadata, expires_at=expires, deduplicate=False)

        def work(transaction: Transaction) -> None:
            self._follow(transaction.changed_since(self._head), transaction.get, transaction.seq - 1)
            id = self._ids.get((namespace, key))
            old = None if id is None else transaction.get(id)
            act: Act
            if value is None:
                if id is None:
                    return
                act = Operation(OperationKind.DELETE, (id,))
            elif old is None:
                act = Operation(OperationKind.ADD, text=text)
            elif old.text == text:
                act = Assignment(old.id, {"expires_at": expires})
            else:
                act = Operation(OperationKind.SUPERSEDE, (old.id,), text)
            outcome = transaction.perform(act, fresh, now=store.clock())
            if not outcome.applied and outcome.reason != "unchanged":
                raise InvalidText(f"{key!r:.80} was not put: {outcome.reason}")

        vectors = store.encode([searched or text]) if value is not None else {}
        with self._lock:
            self._known()
            try:
                store.change(scope, work, vectors, bounded=True)
            except BaseException:
                self._head = -1  # what was followed inside a transaction that failed is not there
                raise

    def search(
        self, prefix: Namespace, query: str | None, filter: Mapping[str, Any], limit: int, offset: int
    ) -> list[tuple[Item, float | None]]:
        prefix = tuple(prefix)

        def wanted(item: Item) -> bool:
            path, value = item.metadata.get("namespace", []), item.metadata.get("value", {})
            return tuple(path[: len(prefix)]) == prefix and all(
                _meets(value.get(name), condition) for name, condition in filter.items()
            )

        if query:
            # A namespace with nothing below it is one scope; only a true prefix has to look through all of them.
            inside = [space for space in {space for space, _ in self._known()} if space[: len(prefix)] == prefix]
            scope: dict[str, Any] = {"session_id": json.dumps(inside[0])} if len(inside) == 1 else {}
            ask = Ask(checked_query(query), plain=True)
            (hits,) = self._memory._answer([ask], top_k=limit + offset, agent_id=AGENT, where=wanted, **scope)
            found: list[tuple[Item, float | None]] = [(hit.item, _similarity(hit)) for hit in hits]
            return found[offset:]
        with self._lock:
            ids = [id for (space, _), id in self._known().items() if space[: len(prefix)] == prefix]
        time = self._memory.store.clock()
        items = [item for item in self._read(ids) if item is not None and item.visible(time) and wanted(item)]
        return [(item, None) for item in items[offset : offset + limit]]

    def namespaces(self, conditions: Iterable[Any], depth: int | None, limit: int, offset: int) -> list[Namespace]:
        with self._lock:
            spaces = {space for space, _ in self._known()}
        return _matching(spaces, conditions, depth)[offset : offset + limit]

    def _known(self) -> dict[tuple[Namespace, str], str]:
        store = self._memory.store
        scope = self._memory.scope.narrowed(agent=AGENT)
        with store.database.reading():
            if self._head < 0:
                self._head = store.head()
                items = store.items(scope, current=True)
                self._ids, self._names = {}, {}
                self._take({entry: item.id for item in items if (entry := _entry(item)) is not None})
            self._follow(store.changed_since(self._head), lambda id: store.fetch(scope, [id])[id], store.head())
        return self._ids

    def _take(self, ids: Mapping[tuple[Namespace, str], str]) -> None:
        self._ids.update(ids)
        self._names.update((id, entry) for entry, id in ids.items())

    def _read(self, ids: Sequence[str]) -> list[Item | None]:
        return list(self._memory.store.fetch(self._memory.scope.narrowed(agent=AGENT), ids).values())

    def _follow(self, news: Changed, get: Callable[[str], Item | None], head: int) -> None:
        """Apply `news`, what changed since `_head`, as `get` sees it at `head`."""
        if head == self._head:
            return
        gone = set(news.ids)
        if news.erased:
            gone.update(self._ids.values())  # what is erased leaves no trace of what it was
        fresh = {
            entry: id
            for id in gone
            if (item := get(id)) is not None and item.current and (entry := _entry(item)) is not None
        }
        for id in gone:
            former = self._names.pop(id, None)
            if former is not None and former not in fresh and self._ids.get(former) == id:
                del self._ids[former]
        self._take(fresh)
        self._head = head

    def _text(self, value: Mapping[str, Any], index: Any) -> str:
        return _searched(value, index, self._texts_at)


class _ServedEntries:
    """The same over the verbs that `Client` has, too."""

    def __init__(self, memory: Any, texts_at: Callable[[Any, str], list[str]]) -> None:
        self._memory, self._texts_at = memory, texts_at

    def get(self, namespace: Namespace, key: str) -> Item | None:
        namespace = tuple(namespace)
        found = [item for item in self._items(_space(namespace)) if _entry(item) == (namespace, key)]
        return found[-1] if found else None

    def put(
        self, namespace: Namespace, key: str, value: Mapping[str, Any] | None, ttl: float | None, index: Any
    ) -> None:
        old = self.get(namespace, key)
        if value is None:
            if old is not None:
                self._memory.delete(old.id)
            return
        text = checked_text(json.dumps(value, ensure_ascii=False))
        told: dict[str, Any] = {
            "key": _searched(value, index, self._texts_at),
            "metadata": {"namespace": list(namespace), "key": key, "value": dict(value)},
        }
        expires = "" if ttl is None else later(now(), 60.0 * ttl)
        if old is None:
            self._memory.add(text, repeat=True, expires_at=expires, **told, **_space(tuple(namespace)))
        elif old.text == text:
            self._memory.update(old.id, expires_at=expires)
        else:
            self._memory.supersede(old.id, text, expires_at=expires, **told)

    def search(
        self, prefix: Namespace, query: str | None, filter: Mapping[str, Any], limit: int, offset: int
    ) -> list[tuple[Item, float | None]]:
        prefix = tuple(prefix)

        def wanted(item: Item) -> bool:
            entry, value = _entry(item), item.metadata.get("value", {})
            return (
                entry is not None
                and entry[0][: len(prefix)] == prefix
                and all(_meets(value.get(name), condition) for name, condition in filter.items())
            )

        found: list[tuple[Item, float | None]]
        if query:
            hits = self._memory.search(checked_query(query), top_k=1000, agent_id=AGENT)
            found = [(hit.item, _similarity(hit)) for hit in hits if wanted(hit.item)]
        else:
            found = [(item, None) for item in self._items({"agent_id": AGENT}) if wanted(item)]
        return found[offset : offset + limit]

    def namespaces(self, conditions: Iterable[Any], depth: int | None, limit: int, offset: int) -> list[Namespace]:
        spaces = {entry[0] for item in self._items({"agent_id": AGENT}) if (entry := _entry(item)) is not None}
        return _matching(spaces, conditions, depth)[offset : offset + limit]

    def _items(self, scope: Mapping[str, str]) -> list[Item]:
        clock = now()
        return [item for item in self._memory.get_all(limit=1_000_000, **scope) if item.visible(clock)]


def _space(namespace: Namespace) -> dict[str, str]:
    return {"agent_id": AGENT, "session_id": json.dumps(namespace)}


def _searched(value: Mapping[str, Any], index: Any, texts_at: Callable[[Any, str], list[str]]) -> str:
    """What searches read: the texts at the given paths, or everything."""
    if isinstance(index, (list, tuple)):
        chosen = [text for path in index for text in texts_at(value, path)]
    elif index is False:
        chosen = []
    else:
        chosen = [str(part) for part in value.values()]
    return "\n".join(chosen).strip()[:100_000]


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


def _fields(item: Item) -> dict[str, Any]:
    at = datetime.fromisoformat(item.written_at + "+00:00")
    return {
        "namespace": tuple(item.metadata["namespace"]),
        "key": item.metadata["key"],
        "value": item.metadata["value"],
        "created_at": at,
        "updated_at": at,
    }


def _entry(item: Item) -> tuple[Namespace, str] | None:
    namespace, key = item.metadata.get("namespace"), item.metadata.get("key")
    if (
        not isinstance(namespace, list)
        or not all(isinstance(part, str) for part in namespace)
        or not isinstance(key, str)
    ):
        return None  # written under our agent by somebody else
    return tuple(namespace), key


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
