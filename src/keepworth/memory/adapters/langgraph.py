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
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any

from keepworth.episodes.episode import Operation, OperationKind
from keepworth.memory.errors import InvalidFilter, InvalidText, MemoryProblem, UnknownItem
from keepworth.memory.item import LONGEST_NAME, LONGEST_TEXT, Item, later, now, plain_metadata, text_problem
from keepworth.memory.memory import Memory
from keepworth.memory.operations import Act, Assignment, Draft
from keepworth.memory.search.search import Ask, Hit, checked_query
from keepworth.memory.search.where import RANGES, Filter, Joined, Tree, Where, parsed

if TYPE_CHECKING:
    from keepworth.memory.search.index import Embedder
    from keepworth.memory.store.transaction import Changed, Transaction

AGENT = "langgraph"
WIDE = 100
"""Candidates at least, where items with several texts are ranked by the best of them."""
LONGEST_INDEXED = 100_000
"""Characters of a text that searches read."""
TRIES = 5
"""How often a put through a server is tried where another took the item away meanwhile."""
Namespace = tuple[str, ...]
Found = list[tuple[Item, float | None]]
TextsAt = Callable[[Any, str], list[str]]
"""(value, path) -> the texts that a path such as "m.text" or "c[*].t" leads to."""


def as_langgraph_store(
    memory: Any, *, fields: Sequence[str] | None = None, ttl: Mapping[str, Any] | None = None
) -> Any:
    """A store whose items live in `memory` under agent_id "langgraph", one session per namespace.

    memory: a `Memory`, or a `Client` of one that is served: then a namespace is read whole to find a key. Of two processes that
    put one key for the first time at the same moment the later one's item stays, and is the only one that is read.
    fields: paths of what searches read where a put names none, as in LangGraph's index configuration; None: the whole value.
    ttl: LangGraph's `TTLConfig`: "default_ttl" in minutes, "refresh_on_read"."""
    try:
        base: Any = import_module("langgraph.store.base")
    except ImportError as error:
        raise MemoryProblem("the LangGraph store needs LangGraph: pip install langgraph-checkpoint") from error

    class KeepworthStore(base.BaseStore):  # type: ignore[misc]  # the package is optional
        supports_ttl = True

        def __init__(self) -> None:
            kind = _Entries if isinstance(memory, Memory) else _ServedEntries
            self.ttl_config = None if ttl is None else dict(ttl)
            self._entries: Any = kind(memory, base.get_text_at_path, fields)

        def batch(self, ops: Iterable[Any]) -> list[Any]:
            """What each operation gives, in order. As in LangGraph's own stores, all is read before anything is put, and of
            several puts of one key the last counts; all puts are one transaction."""
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

    @property
    def searched_text(self) -> str:
        return self.key or self.text


@dataclass(frozen=True, slots=True)
class _Known:
    """Of a current item, without reading it. texts: how many of its texts searches read."""

    id: str
    number: int
    expires: str
    texts: int

    def there(self, time: str) -> bool:
        return not self.expires or self.expires > time


class _Entries:
    """(namespace, key) -> item, as the journal was at `_head`; kept up with what this and other processes write."""

    def __init__(self, memory: Memory, texts_at: TextsAt, fields: Sequence[str] | None = None) -> None:
        self._memory = memory
        self._scope = memory.scope.narrowed(agent=AGENT)
        self._texts_at, self._fields = texts_at, fields
        self._lock = threading.RLock()
        self._forget()

    def _forget(self) -> None:
        self._spaces: dict[Namespace, dict[str, _Known]] = {}
        self._names: dict[str, tuple[Namespace, str]] = {}  # the other way round
        self._unread: set[str] = set()  # ids of items that no search reads
        self._several = False  # whether some item has, or had, several texts
        self._head = -1

    def get(self, namespace: Namespace, key: str, *, refresh: bool = False) -> Item | None:
        store = self._memory.store
        time = store.clock()
        with self._lock, store.database.reading():  # one moment: what is superseded in between would not be there
            known = self._known().get(namespace, {}).get(key)
            if known is None or not known.there(time):
                return None
            (item,) = self._read([known.id])
        if item is None or not item.visible(time):
            return None
        if refresh:
            self._refresh([item])
        return item

    def put(self, puts: Sequence[Put]) -> None:
        """All in one transaction, in which it is looked up which item a key has: another process may have put one meanwhile."""
        store = self._memory.store
        stored = [None if put.value is None else _stored(put, self._texts_at, self._fields) for put in puts]
        time = store.clock()
        ends = ["" if put.value is None or put.ttl is None else later(time, 60.0 * put.ttl) for put in puts]

        def work(transaction: Transaction) -> None:
            self._follow(
                lambda: transaction.changed_since(self._head),
                lambda ids: map(transaction.get, ids),
                transaction.seq - 1,
            )
            for put, new, end in zip(puts, stored, ends, strict=True):
                known = self._spaces.get(put.namespace, {}).get(put.key)
                old = None if known is None else transaction.get(known.id)
                act, fresh = self._act(put, new, end, old)
                if act is None:
                    continue
                outcome = transaction.perform(act, fresh, now=store.clock())
                if not outcome.applied and outcome.reason != "unchanged":
                    raise InvalidText(f"{put.key!r:.80} was not put: {outcome.reason}")

        vectors = store.encode([new.searched_text for new in stored if new is not None])
        with self._lock:
            self._known()
            head = self._head
            try:
                store.change(self._scope, work, vectors, bounded=True)
            except BaseException:
                if self._head != head:
                    self._forget()  # what was followed inside a transaction that failed may not be there
                raise

    def _act(self, put: Put, new: _Stored | None, end: str, old: Item | None) -> tuple[Act | None, Draft]:
        """What makes `old`, the item that the key has, say what is put; None where nothing is to be done."""
        if new is None:
            return (None if old is None else Operation(OperationKind.DELETE, (old.id,))), Draft(scope=self._scope)
        same = old is not None and (old.text, old.key) == (new.text, new.key)
        metadata = new.metadata if old is None else {**new.metadata, **_created(old, same)}
        home = self._scope.narrowed(session=_session(put.namespace))
        fresh = Draft(scope=home, key=new.key, metadata=metadata, expires_at=end, deduplicate=False)
        if old is None:
            return Operation(OperationKind.ADD, text=new.text), fresh
        if same:
            return Assignment(old.id, {"expires_at": end, "metadata": metadata}), fresh
        return Operation(OperationKind.SUPERSEDE, (old.id,), new.text), fresh

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
        store = self._memory.store
        time, wanted, wide = store.clock(), _wanted(prefix, filter), offset + limit
        found: Found = []
        with self._lock, store.database.reading() as connection:
            spaces = self._known()
            inside = [space for space in spaces if space[: len(prefix)] == prefix]
            there = [known for space in inside for known in spaces[space].values() if known.there(time)]
            if query:
                there = [known for known in there if known.id in self._unread]
            mask = store.mask(connection, wanted)
            if mask is not None:  # which items meet the filter is known without reading them
                there = [known for known in there if known.number < len(mask) and mask[known.number]]
            if not query:
                found = self._newest(there, wide, wanted, time)
        if limit <= 0 or not inside:
            return []
        if query:
            # A namespace with nothing below it is one scope; only a true prefix has to look through all of them.
            found = self._ranked(query, wanted, wide, _session(inside[0]) if len(inside) == 1 else "")
            # What searches do not read comes last, without a score.
            found += self._newest(there, wide - len(found), wanted, time)
        found = found[offset:]
        if refresh:
            self._refresh([item for item, _ in found])
        return found

    def _newest(self, listed: Sequence[_Known], count: int, wanted: Filter, time: str) -> Found:
        """Up to `count` of those listed, the last put first. `wanted` may refuse some still."""
        ids = [known.id for known in sorted(listed, key=lambda known: known.number, reverse=True)]
        found: Found = []
        page = max(1, count)
        for start in range(0, len(ids), page):
            if len(found) >= count:
                break
            items = self._read(ids[start : start + page])
            found += [(item, None) for item in items if item is not None and item.visible(time) and wanted(item)]
        return found[: max(0, count)]

    def _ranked(self, query: str, wanted: Filter, count: int, session: str) -> Found:
        """The `count` nearest in meaning, or best by words where there is no encoder, among those that searches read."""
        embedder = self._memory.store.embedder
        ask = Ask(checked_query(_readable(query)), plain=True)
        several = self._several and embedder is not None
        (hits,) = self._memory._answer(
            [ask],
            top_k=max(count, WIDE) if several else count,
            mode="lexical" if embedder is None else "dense",
            agent_id=AGENT,
            session_id=session,
            where=_indexed(wanted),
        )
        if several and embedder is not None:
            return _by_best_text(ask.text, hits, embedder)[:count]
        return [(hit.item, hit.score) for hit in hits]

    def _refresh(self, items: Sequence[Item]) -> None:
        """What was read lives on for as long as when it was put."""
        store = self._memory.store
        ends = _prolonged(items, store.clock())
        if not ends or store.database.read_only:
            return

        def work(transaction: Transaction) -> None:
            for id, end in ends.items():
                item = transaction.get(id)
                if item is not None and item.current and item.expires_at:
                    transaction.perform(Assignment(id, {"expires_at": end}), Draft(scope=item.scope), now=store.clock())

        store.change(self._scope, work)

    def namespaces(self, conditions: Iterable[Any], depth: int | None, limit: int, offset: int) -> list[Namespace]:
        time = self._memory.store.clock()
        with self._lock:
            spaces = self._known()
            listed = [space for space, known in spaces.items() if any(each.there(time) for each in known.values())]
        return _matching(listed, conditions, depth)[offset : offset + limit]

    def _known(self) -> Mapping[Namespace, Mapping[str, _Known]]:
        """Call it with the lock held."""
        store = self._memory.store
        with store.database.reading():
            if self._head < 0:
                self._forget()
                for item in store.items(self._scope, current=True):
                    self._take(item)
                self._head = store.head()
            else:
                self._follow(lambda: store.changed_since(self._head), self._read, store.head())
        return self._spaces

    def _read(self, ids: Sequence[str]) -> Iterable[Item | None]:
        return self._memory.store.fetch(self._scope, ids).values()

    def _follow(
        self, news: Callable[[], Changed], read: Callable[[Sequence[str]], Iterable[Item | None]], head: int
    ) -> None:
        """Take in what changed since `_head`, as `read` sees it at `head`."""
        if head <= self._head:
            return
        changed = news()
        # What is erased leaves no trace of what it was.
        ids = dict.fromkeys((*changed.ids, *self._names) if changed.erased else changed.ids)
        for id in ids:
            self._drop(id)
        for item in read(list(ids)):
            if item is not None and item.current:
                self._take(item)
        self._head = head

    def _take(self, item: Item) -> None:
        entry = _entry(item)
        if entry is None:
            return
        space, key = entry
        texts = _texts(item)
        known = _Known(item.id, int(item.id[1:]), item.expires_at, 1 if texts is None else len(texts))
        former = self._spaces.get(space, {}).get(key)
        if former is not None:
            if former.number > known.number:
                return  # the later one counts, where something else than this class wrote two
            self._drop(former.id)
        self._spaces.setdefault(space, {})[key] = known
        self._names[item.id] = entry
        self._several = self._several or known.texts > 1
        if not known.texts:
            self._unread.add(item.id)

    def _drop(self, id: str) -> None:
        entry = self._names.pop(id, None)
        if entry is None:
            return
        self._unread.discard(id)
        space, key = entry
        del self._spaces[space][key]
        if not self._spaces[space]:
            del self._spaces[space]


class _ServedEntries:
    """The same over the verbs that `Client` has, too."""

    def __init__(self, memory: Any, texts_at: TextsAt, fields: Sequence[str] | None = None) -> None:
        self._memory, self._texts_at, self._fields = memory, texts_at, fields

    def get(self, namespace: Namespace, key: str, *, refresh: bool = False) -> Item | None:
        found = self._latest(_space(namespace)).get((namespace, key))
        if refresh and found is not None:
            self._refresh([found])
        return found

    def put(self, puts: Sequence[Put]) -> None:
        for put in puts:
            new = None if put.value is None else _stored(put, self._texts_at, self._fields)
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
            told: dict[str, Any] = {"key": new.key, "metadata": new.metadata, "expires_at": end}
            self._memory.add(new.text, repeat=True, **told, **_space(put.namespace))
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
        same = [item for item in self._items(_space(put.namespace)) if _entry(item) == (put.namespace, put.key)]
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
        wanted = _wanted(prefix, filter)
        found: Found = []
        latest = self._latest({"agent_id": AGENT})
        listed = [item for item in reversed(latest.values()) if wanted(item)]
        if query:
            inside = {entry[0] for item in listed if (entry := _entry(item)) is not None}
            scope = _space(inside.pop()) if len(inside) == 1 else {"agent_id": AGENT}
            hits = self._memory.search(checked_query(_readable(query)), top_k=1000, **scope)
            ids = {item.id for item in listed}
            found = [(hit.item, _similarity(hit)) for hit in hits if hit.item.id in ids and _texts(hit.item) != []]
            found.sort(key=lambda pair: -(pair[1] or 0.0))
            listed = [item for item in listed if _texts(item) == []]
        found = [*found, *((item, None) for item in listed)][offset : offset + max(0, limit)]
        if refresh:
            self._refresh([item for item, _ in found])
        return found

    def namespaces(self, conditions: Iterable[Any], depth: int | None, limit: int, offset: int) -> list[Namespace]:
        spaces = {space for space, _ in self._latest({"agent_id": AGENT})}
        return _matching(spaces, conditions, depth)[offset : offset + limit]

    def _refresh(self, items: Sequence[Item]) -> None:
        for id, end in _prolonged(items, now()).items():
            with contextlib.suppress(UnknownItem):
                self._memory.update(id, expires_at=end)

    def _latest(self, scope: Mapping[str, str]) -> dict[tuple[Namespace, str], Item]:
        """By namespace and key, in order of writing: the item that was written last counts."""
        latest: dict[tuple[Namespace, str], Item] = {}
        for item in self._items(scope):
            entry = _entry(item)
            if entry is not None:
                latest.pop(entry, None)
                latest[entry] = item
        return latest

    def _items(self, scope: Mapping[str, str]) -> list[Item]:
        clock = now()
        return [item for item in self._memory.get_all(limit=1_000_000, **scope) if item.visible(clock)]


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


def _by_best_text(query: str, hits: Sequence[Hit], embedder: Embedder) -> Found:
    """Best first; a hit with several texts has the cosine of the one that is nearest to the query."""
    import numpy as np

    parts = [_texts(hit.item) or [] for hit in hits]
    flat = [text for texts in parts for text in texts]
    # Row by row, so that equal texts have equal scores.
    mine, *others = embedder([query, *flat]).astype(np.float64)
    cosines = iter([float((mine * other).sum()) for other in others])
    found: Found = [
        (hit.item, max((next(cosines) for _ in texts), default=hit.score))
        for hit, texts in zip(hits, parts, strict=True)
    ]
    return sorted(found, key=lambda pair: -(pair[1] or 0.0))


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


def _wanted(prefix: Namespace, filter: Mapping[str, Any]) -> Filter:
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
        return asked is None or "json" not in item.metadata or asked.meets({"value": _value(item)})

    return Filter(None if asked is None else Joined("$or", (_tree(asked), _AS_JSON)), admits)


def _indexed(wanted: Filter) -> Filter:
    """The same, of items that searches read."""
    return replace(wanted, tree=_READ if wanted.tree is None else Joined("$and", (_READ, wanted.tree)))


def _tree(where: Where | Filter) -> Tree:
    found = parsed(where)
    assert found is not None
    assert found.tree is not None
    return found.tree


_AS_JSON = _tree({"json": {"$exists": True}})
"""Values that metadata cannot hold: see `_value`."""
_READ = _tree({"texts": {"$ne": []}})


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
