"""mem0's `Memory` class: the same calls and result dictionaries, over one of our files. What it cannot do is refused by name.

from keepworth.memory.adapters.mem0 import Memory
m = Memory("agent.mem")
m.add([{"role": "user", "content": "I live in Bergen."}, {"role": "assistant", "content": "Noted!"}], user_id="ana")
m.add("I moved to Oslo.", user_id="ana")
m.search("where does Ana live", filters={"user_id": "ana"})  # Oslo alone
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from keepworth.episodes.episode import OperationKind
from keepworth.memory import memory as engine
from keepworth.memory.errors import InvalidFilter, InvalidScope, UnknownItem
from keepworth.memory.item import Item, Timestamp
from keepworth.memory.search.search import Ask, checked_query
from keepworth.memory.store.store import Revision
from keepworth.memory.writing import write

_EVENTS = {
    OperationKind.ADD: "ADD",
    OperationKind.UPDATE: "UPDATE",
    OperationKind.DELETE: "DELETE",
    OperationKind.NOOP: "NONE",
}
_ENTITIES = {"user_id": "user_id", "agent_id": "agent_id", "run_id": "session_id"}


class Memory:
    """run_id is our session_id. `add` keeps facts, and what contradicts an older one takes its place (`Memory(writer=...)`)."""

    def __init__(self, memory: engine.Memory | str = ":memory:", **options: Any) -> None:
        self.memory = memory if isinstance(memory, engine.Memory) else _open(memory, options)

    def add(
        self,
        messages: str | Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        timestamp: Timestamp = "",
        expiration_date: Timestamp = "",
        infer: bool = True,
    ) -> dict[str, Any]:
        """{"results": [{"id", "memory", "event"}]}. event: ADD, UPDATE (also of an item that takes the place of an older one),
        DELETE, or NONE for what was there already. As in mem0, system messages are not stored; a writer sees them."""
        scope = _scope({"user_id": user_id, "agent_id": agent_id, "run_id": run_id})
        content: Any = [messages] if isinstance(messages, Mapping) else messages
        if not infer and isinstance(content, (list, tuple)):
            content = [each for each in content if not (isinstance(each, Mapping) and each.get("role") == "system")]
        given: dict[str, Any] = {"metadata": metadata, "event_time": timestamp, "expires_at": expiration_date, **scope}
        if infer:
            done = [(item, _EVENTS[kind]) for item, kind in write(self.memory, content, **given)]
        else:
            head = self.memory.store.head()
            found = self.memory.add(content, **given)
            items = found if isinstance(found, list) else [found]
            done = [(item, "ADD" if int(item.id[1:]) > head else "NONE") for item in items]
        return {"results": [{"id": item.id, "memory": item.text, "event": event} for item, event in done]}

    def search(
        self,
        query: str,
        *,
        top_k: int = 20,
        limit: int | None = None,
        filters: Mapping[str, Any] | None = None,
        threshold: float | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """{"results": [{"id", "memory", "score", ...}]}. At least one of user_id, agent_id, run_id, here or in filters.

        threshold: the least cosine; the search then goes by meaning alone, and the scores are cosines. Without it, words count
        too, and the scores are the engine's. filters: values of metadata that must be equal. Raises InvalidFilter for mem0's
        operators ("in", "gte", "*", AND, OR, NOT) and for options that would have no effect. No policy takes part: mem0 has no
        rewards.
        """
        scope, where = _split(filters, options)
        mode = None if threshold is None else "dense"
        ask = Ask(checked_query(query), plain=True)
        given: dict[str, Any] = {"where": where or None, "threshold": threshold, "mode": mode, **scope}
        (hits,) = self.memory._answer([ask], top_k=limit or top_k, **given)
        return {"results": [{**_record(hit.item), "score": hit.score} for hit in hits]}

    def get(self, memory_id: str) -> dict[str, Any] | None:
        try:
            item = self.memory.get(memory_id)
        except UnknownItem:
            return None
        return None if item.deleted else _record(item)

    def get_all(
        self,
        *,
        filters: Mapping[str, Any] | None = None,
        top_k: int = 20,
        limit: int | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """As `search`, without a query: in order of writing."""
        scope, where = _split(filters, options)
        found: list[Item] = []
        after = ""
        wanted = limit or top_k
        while len(found) < wanted:
            page = self.memory.get_all(limit=256, after=after, **scope)
            if not page:
                break
            after = page[-1].id
            found.extend(item for item in page if all(item.metadata.get(key) == value for key, value in where.items()))
        return {"results": [_record(item) for item in found[:wanted]]}

    def update(
        self,
        memory_id: str,
        text: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        data: str | None = None,
    ) -> dict[str, str]:
        """metadata: merged into what is there."""
        merged = None if metadata is None else {**self.memory.get(memory_id).metadata, **metadata}
        self.memory.update(memory_id, text if text is not None else data, metadata=merged)
        return {"message": "Memory updated successfully!"}

    def delete(self, memory_id: str) -> dict[str, str]:
        self.memory.delete(memory_id)
        return {"message": "Memory deleted successfully!"}

    def delete_all(
        self, user_id: str | None = None, agent_id: str | None = None, run_id: str | None = None
    ) -> dict[str, str]:
        self.memory.delete_all(**_scope({"user_id": user_id, "agent_id": agent_id, "run_id": run_id}))
        return {"message": "Memories deleted successfully!"}

    def history(self, memory_id: str) -> list[dict[str, Any]]:
        return [_change(memory_id, revision) for revision in self.memory.history(memory_id)]


def _open(path: str, options: Mapping[str, Any]) -> engine.Memory:
    import keepworth

    return keepworth.Memory(path, **options)


def _scope(entities: Mapping[str, str | None]) -> dict[str, str]:
    scope = {_ENTITIES[name]: value for name, value in entities.items() if value not in (None, "")}
    if not scope:
        raise InvalidScope("at least one of user_id, agent_id, run_id is needed")
    return scope


def _split(filters: Mapping[str, Any] | None, options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(scope, metadata filter). Raises InvalidFilter for what would have no effect."""
    for name, value in options.items():
        # To be asked not to do what is not done anyway is no mistake.
        if name not in _ENTITIES and not (name in _NOT_DONE and value in (False, None)):
            raise InvalidFilter(f"option {name}={value!r:.40} has no effect in this adapter: {_hint(name)}")
    wanted = {**(filters or {}), **{name: value for name, value in options.items() if name in _ENTITIES}}
    for name, value in wanted.items():
        if name in ("AND", "OR", "NOT") or value == "*" or not isinstance(value, (str, int, float, type(None))):
            raise InvalidFilter(
                f"filter {name!r}: {value!r:.60} cannot be used: filters here are plain values that must be equal, without "
                "mem0's operators; for others, search `.memory` with where=<function of the item>"
            )
    scope = _scope({name: wanted[name] for name in _ENTITIES if name in wanted})
    return scope, {name: value for name, value in wanted.items() if name not in _ENTITIES}


_NOT_DONE = {
    "rerank": "search `.memory` with reranker=<function>",
    "explain": "search `.memory` with explain=True",
    "show_expired": "`.memory.get_all(all_states=True)` lists them",
}


def _hint(name: str) -> str:
    return _NOT_DONE.get(name, f"it takes {', '.join(_ENTITIES)}; metadata goes into filters")


def _record(item: Item) -> dict[str, Any]:
    record: dict[str, Any] = {
        "id": item.id,
        "memory": item.text,
        "metadata": dict(item.metadata) or None,
        "created_at": item.written_at,
        "updated_at": item.written_at,
    }
    named = {"user_id": item.scope.user, "agent_id": item.scope.agent, "run_id": item.scope.session}
    record.update({name: value for name, value in named.items() if value})
    return record


def _change(memory_id: str, revision: Revision) -> dict[str, Any]:
    before, after = revision.before, revision.after
    gone = after is None or after.deleted
    return {
        "memory_id": memory_id,
        "old_memory": before.text if before is not None else None,
        "new_memory": None if gone or after is None else after.text,
        "event": "ADD" if before is None else "DELETE" if gone else "UPDATE",
        "created_at": revision.at,
    }
