"""mem0's `Memory` class: the same calls and result dictionaries, over one of our files.

from recollect.memory.adapters.mem0 import Memory
m = Memory("agent.mem")
m.add("likes tofu", user_id="ana", infer=False)
m.search("food", filters={"user_id": "ana"})
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recollect.memory import memory as engine
from recollect.memory.errors import InvalidScope, UnknownItem
from recollect.memory.item import Item
from recollect.memory.moment import Moment
from recollect.memory.store import Revision

_ENTITIES = {"user_id": "user_id", "agent_id": "agent_id", "run_id": "session_id"}


class Memory:
    """run_id is our session_id. Facts are extracted only where an extractor was handed to the memory."""

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
        timestamp: Moment = "",
        expiration_date: Moment = "",
        infer: bool = True,
    ) -> dict[str, Any]:
        """{"results": [{"id", "memory", "event"}]}; event is NONE for what was there already."""
        scope = _scope({"user_id": user_id, "agent_id": agent_id, "run_id": run_id})
        content: Any = [messages] if isinstance(messages, Mapping) else messages
        head = self.memory.store.head()
        found = self.memory.add(
            content, infer=infer, metadata=metadata, event_time=timestamp, expires_at=expiration_date, **scope
        )
        items = found if isinstance(found, list) else [found]
        return {
            "results": [
                {"id": item.id, "memory": item.text, "event": "ADD" if int(item.id[1:]) > head else "NONE"}
                for item in items
            ]
        }

    def search(
        self,
        query: str,
        *,
        top_k: int = 20,
        limit: int | None = None,
        filters: Mapping[str, Any] | None = None,
        threshold: float | None = None,
        **entities: Any,
    ) -> dict[str, Any]:
        """{"results": [{"id", "memory", "score", ...}]}. At least one of user_id, agent_id, run_id, here or in filters."""
        scope, where = _split({**(filters or {}), **entities})
        hits = self.memory.search(query, top_k=limit or top_k, where=where or None, threshold=threshold, **scope)
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
        **entities: Any,
    ) -> dict[str, Any]:
        scope, where = _split({**(filters or {}), **entities})
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
        self.memory.update(memory_id, text if text is not None else data, metadata=metadata)
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
    import recollect

    return recollect.Memory(path, **options)


def _scope(entities: Mapping[str, str | None]) -> dict[str, str]:
    scope = {_ENTITIES[name]: value for name, value in entities.items() if value not in (None, "")}
    if not scope:
        raise InvalidScope("at least one of user_id, agent_id, run_id is needed")
    return scope


def _split(filters: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(scope, metadata filter)."""
    scope = _scope({name: filters[name] for name in _ENTITIES if name in filters})
    return scope, {name: value for name, value in filters.items() if name not in _ENTITIES}


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
