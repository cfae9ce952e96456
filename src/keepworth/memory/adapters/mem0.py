"""mem0's `Memory` class: the same calls and result dictionaries, over one of our files. What it cannot do is refused by name.

from keepworth.memory.adapters.mem0 import Memory
m = Memory("agent.mem")
m.add([{"role": "user", "content": "I live in Bergen."}, {"role": "assistant", "content": "Noted!"}], user_id="ana")
m.add("I moved to Oslo.", user_id="ana")
m.search("where does Ana live", filters={"user_id": "ana"})  # Oslo alone
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from keepworth.episodes.episode import OperationKind
from keepworth.memory import memory as engine
from keepworth.memory.errors import InvalidFilter, InvalidScope, UnknownItem
from keepworth.memory.item import Item, Timestamp
from keepworth.memory.search.search import Ask, checked_query
from keepworth.memory.search.where import Filter, parsed
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
        too, and the scores are the engine's. filters: mem0's, over metadata (see `translated`). Raises InvalidFilter for one
        that says nothing, and for options that would have no effect. No policy takes part: mem0 has no rewards.
        """
        scope, where = _split(filters, options, _NOT_DONE)
        mode = None if threshold is None else "dense"
        ask = Ask(checked_query(query), plain=True)
        given: dict[str, Any] = {"where": where, "threshold": threshold, "mode": mode, **scope}
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
        show_expired: bool = False,
        **options: Any,
    ) -> dict[str, Any]:
        """As `search`, without a query: in order of writing. show_expired: also what is past its `expiration_date`."""
        scope, where = _split(filters, options, {name: _NOT_DONE[name] for name in ("rerank", "explain")})
        if show_expired:
            wanted = where or Filter()
            where = replace(wanted, function=lambda item: item.current)
        found = self.memory.get_all(limit=limit or top_k, where=where, all_states=bool(show_expired), **scope)
        return {"results": [_record(item) for item in found]}

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


def _split(
    filters: Mapping[str, Any] | None, options: Mapping[str, Any], not_done: Mapping[str, str]
) -> tuple[dict[str, Any], Filter | None]:
    """(scope, metadata filter). Raises InvalidFilter for what would have no effect."""
    for name, value in options.items():
        # To be asked not to do what is not done anyway is no mistake.
        if name not in _ENTITIES and not (name in not_done and value in (False, None)):
            hint = not_done.get(name, f"it takes {', '.join(_ENTITIES)}; metadata goes into filters")
            raise InvalidFilter(f"option {name}={value!r:.40} has no effect in this adapter: {hint}")
    if filters is not None and not isinstance(filters, Mapping):
        raise InvalidFilter(f"filters must be a dictionary, got {filters!r:.60}: give names and values")
    entities, rest = _entities(filters or {}, "filters")
    given = {**entities, **{name: value for name, value in options.items() if name in _ENTITIES}}
    for name, value in given.items():
        if value == "*" or not isinstance(value, (str, int, float, type(None))):
            raise InvalidFilter(
                f"filter {name!r}: {value!r:.60} cannot be used: one call reads the memory of one {name}; ask for each by itself"
            )
    return _scope(given), parsed(translated(rest), place="filters")


def _entities(filters: Mapping[str, Any], place: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Whose memory it is, also where that is said within AND; and what else is asked."""
    whose = {name: filters[name] for name in _ENTITIES if name in filters}
    rest = {name: value for name, value in filters.items() if name not in _ENTITIES}
    if isinstance(rest.get("AND"), (list, tuple)):
        left = []
        for number, each in enumerate(rest["AND"]):
            more, inner = _entities(each, f"{place}['AND'][{number}]") if isinstance(each, Mapping) else ({}, each)
            for name, value in more.items():
                if whose.setdefault(name, value) != value:
                    raise InvalidFilter(
                        f"{place}: {name} is said twice, {whose[name]!r:.40} and {value!r:.40}: say it once"
                    )
            if inner or not more:
                left.append(inner)
        rest = {name: value for name, value in rest.items() if name != "AND"} | ({"AND": left} if left else {})
    return whose, rest


def translated(filters: Mapping[str, Any], place: str = "filters") -> dict[str, Any]:
    """mem0's filters in the grammar of `search.where`. Raises InvalidFilter for operators that mem0 does not have.

    Its operators (eq, ne, gt, gte, lt, lte, in, nin, contains, icontains) are ours with a $; "*" is any value; NOT is met where
    none of its list is. As in the grammar, "ne" and "nin" are met without the name."""
    out: list[dict[str, Any]] = []
    for name, value in filters.items():
        at = f"{place}[{name!r:.60}]"
        if name in ("AND", "OR", "NOT"):
            if (
                not isinstance(value, (list, tuple))
                or not value
                or not all(isinstance(each, Mapping) for each in value)
            ):
                raise InvalidFilter(
                    f"{at} takes a list of filters, got {value!r:.60}: give at least one dictionary in a list"
                )
            each = [translated(one, f"{at}[{number}]") for number, one in enumerate(value)]
            out.append({"$not": {"$or": each}} if name == "NOT" else {f"${name.lower()}": each})
        elif name in _ENTITIES:
            raise InvalidFilter(
                f"{at} can stand beside other filters and within AND alone: one call reads the memory of one {name}; ask for "
                "each by itself"
            )
        elif name in _RECORD:
            raise InvalidFilter(
                f"{at} is no metadata here: search `.memory` with since= and until=, or with where=<function of the item>"
            )
        elif isinstance(value, Mapping):
            strange = [each for each in value if each not in _OPERATORS]
            if strange or not value:
                raise InvalidFilter(
                    f"{at}: there is no operator {strange[0]!r:.40}: use {', '.join(_OPERATORS)}"
                    if strange
                    else f"{at} asks nothing: give an operator, {', '.join(_OPERATORS)}"
                )
            out.append({name: {f"${operator}": operand for operator, operand in value.items()}})
        elif isinstance(value, (list, tuple)):
            raise InvalidFilter(
                f"{at}: a list is no value: write {{'in': [...]}}, or {{'contains': ...}} for a list's element"
            )
        else:
            out.append({name: {"$exists": True} if isinstance(value, str) and value == "*" else {"$eq": value}})
    return {"$and": out} if len(out) > 1 else out[0] if out else {}


_OPERATORS = ("eq", "ne", "gt", "gte", "lt", "lte", "in", "nin", "contains", "icontains")
_RECORD = ("id", "memory", "data", "hash", "created_at", "updated_at")
"""What mem0 keeps beside metadata."""
_NOT_DONE = {
    "rerank": "search `.memory` with reranker=<function>",
    "explain": "search `.memory` with explain=True",
    "show_expired": "`get_all(show_expired=True)` lists them",
}


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
