"""The calls of mem0's quick start over a `keepworth.Memory`, with mem0's defaults and result dictionaries.

from keepworth.adapters.mem0 import Memory

m = Memory.from_config({"llm": {"provider": "openai", "config": {"model": "gpt-4.1-mini"}}})
m.add([{"role": "user", "content": "I moved to Oslo."}, {"role": "assistant", "content": "Noted!"}], user_id="ana")
m.search("where does Ana live", filters={"user_id": "ana"})
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from keepworth.memory import memory as engine
from keepworth.memory.async_memory import awaitable
from keepworth.memory.errors import InvalidFilter, InvalidScope, InvalidText, InvalidTime, UnknownItem
from keepworth.memory.item import Item, Timestamp, plain_metadata, timestamp
from keepworth.memory.search.search import Ask, Hit, checked_query
from keepworth.memory.search.where import Filter, parsed
from keepworth.memory.store import purge
from keepworth.memory.store.store import Revision
from keepworth.memory.writing import messages_of, write
from keepworth.records.episode import OperationKind
from keepworth.registry import method, part

OPENAI = "https://api.openai.com/v1"
EVENTS = {OperationKind.ADD: "ADD", OperationKind.UPDATE: "UPDATE", OperationKind.DELETE: "DELETE"}
BOUNDS = {"user_id": "user_id", "agent_id": "agent_id", "run_id": "session_id"}
OPERATORS = ("eq", "ne", "gt", "gte", "lt", "lte", "in", "nin", "contains", "icontains")
UNCHANGED = "unchanged"
"""Stands for an expiration date that an update leaves as it is, as None clears it."""
CONVERSATION = "conversation"
"""The source of messages that were stored word for word."""
WIDE = 60
"""The least number of candidates, from which those below the threshold are removed."""


class UnknownMemory(UnknownItem, ValueError):
    """There is no memory with this id. It is a ValueError, as in mem0."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Place(_Section):
    path: str = "keepworth.mem"


class _Store(_Section):
    provider: Literal["keepworth"]
    config: _Place = _Place()


class _Server(_Section):
    """A server that speaks OpenAI's protocol. For an encoder, `embedding_dims` is the length of its vectors."""

    model: str = ""
    api_key: str = ""
    openai_base_url: str = ""
    temperature: float = 0.1
    max_tokens: int = 2000
    embedding_dims: int | None = None

    @property
    def url(self) -> str:
        return self.openai_base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI

    @property
    def key(self) -> str | None:
        return self.api_key or os.environ.get("OPENAI_API_KEY") or None


class _Model(_Section):
    provider: Literal["openai", "keepworth"]
    config: _Server = _Server()


class _Config(_Section):
    vector_store: _Store = _Store(provider="keepworth")
    llm: _Model | None = None
    embedder: _Model = _Model(provider="keepworth")
    custom_instructions: str = ""

    def encoder(self) -> Any:
        """Return the name of an encoder of this package, or one behind a URL."""
        asked = self.embedder.config
        if self.embedder.provider == "keepworth":
            return asked.model or "default"
        model, size = asked.model or "text-embedding-3-small", asked.embedding_dims
        return part("hosted encoder")(asked.url, model, api_key=asked.key, dimensions=size, dimension=size)

    def writer(self) -> Any:
        """Return the writer: the model of the section llm, "statements", or the default of `keepworth.Memory`."""
        if self.llm is None or self.llm.provider == "keepworth":
            if self.custom_instructions:
                raise InvalidFilter(
                    "custom_instructions is for a language model: configure one as llm, or leave it out"
                )
            return "default" if self.llm is None else "statements"
        asked = self.llm.config
        chat = part("chat model")(
            asked.url,
            asked.model or "gpt-5-mini",
            api_key=asked.key,
            temperature=asked.temperature,
            max_tokens=asked.max_tokens,
        )
        return method("writer", "model").make(chat=chat, instructions=self.custom_instructions)


class Memory:
    """mem0's `Memory`. Its run_id is the session_id here, and ids are those of `keepworth.Memory`: "m1" and so on.

    Args:
        config: What `from_config` takes, or an open `keepworth.Memory`, whose writer then finds the facts.
    """

    def __init__(self, config: Mapping[str, Any] | engine.Memory | None = None) -> None:
        if isinstance(config, engine.Memory):
            self.memory = config
            return
        try:
            asked = _Config.model_validate(config or {})
        except ValidationError as error:
            wrong = error.errors()[0]
            option = ".".join(map(str, wrong["loc"])) or "the configuration"
            raise InvalidFilter(f"{option} cannot take effect here: {wrong['msg']}.", "Leave it out.") from error
        self.memory = engine.Memory(asked.vector_store.config.path, encoder=asked.encoder(), writer=asked.writer())

    @classmethod
    def from_config(cls, config_dict: Mapping[str, Any]) -> Memory:
        """Open a memory with the sections vector_store, llm and embedder, each with provider and config, and custom_instructions.
        Raises InvalidFilter if something in it cannot take effect here."""
        return cls(config_dict)

    def add(
        self,
        messages: str | Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        timestamp: Timestamp | None = None,
        expiration_date: date | str | None = None,
        infer: bool = True,
    ) -> dict[str, Any]:
        """Remember what messages say, and return {"results": [{"id", "memory", "event"}]}.

        Args:
            messages: A text, a message, or several.
            user_id, agent_id, run_id: Whose memory it is; at least one is needed.
            metadata: Stored with each item.
            timestamp: When it was said.
            expiration_date: The last day on which it is found, as YYYY-MM-DD.
            infer: Let the writer decide what to store. With False each message is stored, except for those of the system.
        """
        fields: dict[str, Any] = {"metadata": metadata, **_scope(user_id=user_id, agent_id=agent_id, run_id=run_id)}
        if timestamp is not None:
            fields["event_time"] = timestamp
        if expiration_date is not None:
            fields["expires_at"] = _end_of(expiration_date)
        if infer:
            done = write(self.memory, messages_of(messages), **fields)
            return {"results": [_told(item, EVENTS.get(kind, "NONE")) for item, kind in done]}
        spoken = [message for message in messages_of(messages) if message.get("role") != "system"]
        head = self.memory.store.head()
        items = self.memory.add(spoken, **fields)
        return {"results": [_told(item, "ADD" if int(item.id[1:]) > head else "NONE") for item in items]}

    def search(
        self,
        query: str,
        *,
        top_k: int = 20,
        filters: Mapping[str, Any] | None = None,
        threshold: float = 0.1,
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
    ) -> dict[str, Any]:
        """Search without a policy, as mem0 has no rewards, and return {"results": [{"id", "memory", "score", ...}]}.

        Args:
            query: What is looked for; an empty text raises InvalidText.
            top_k: The most records.
            filters: mem0's filters on metadata (see `translated`); they may also name user_id, agent_id and run_id.
            threshold: The least cosine of a hit.
            user_id, agent_id, run_id: Whose memory it is, if the filters do not say it.
        """
        scope, where = _split(filters, user_id=user_id, agent_id=agent_id, run_id=run_id)
        by_words = self.memory.store.embedder is None

        def near(hits: Sequence[Hit]) -> Sequence[Hit]:
            nearest = hits if by_words else [hit for hit in hits if hit.dense is not None and hit.dense >= threshold]
            return nearest[:top_k]

        ask = Ask(checked_query(query).strip(), plain=True)
        if not ask.text:
            raise InvalidText("query is empty: say what is looked for")
        hits = self.memory.answer(ask, top_k=max(4 * top_k, WIDE), where=where, fits=near, **scope)
        records = self._records([hit.item for hit in hits])
        return {"results": [{**record, "score": hit.score} for record, hit in zip(records, hits, strict=True)]}

    def get(self, memory_id: str) -> dict[str, Any] | None:
        """Return the record of a memory, or None for an unknown id."""
        try:
            return {**self._records([self._open(memory_id)])[0], "score": None}
        except UnknownMemory:
            return None

    def get_all(
        self,
        *,
        filters: Mapping[str, Any] | None = None,
        top_k: int = 20,
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
    ) -> dict[str, Any]:
        """Return records as `search` does, without a query: in order of writing.

        Args:
            filters: What a record must have, in mem0's form; None for no condition.
            top_k: The most records.
            user_id: Whose records; None for anybody's.
            agent_id: The agent whose records they are.
            run_id: The run whose records they are.
        """
        scope, where = _split(filters, user_id=user_id, agent_id=agent_id, run_id=run_id)
        return {"results": self._records(self.memory.get_all(limit=top_k, where=where, **scope))}

    def update(
        self,
        memory_id: str,
        text: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        expiration_date: date | str | None = UNCHANGED,
        data: str | None = None,
    ) -> dict[str, str]:
        """Reword a memory, merge new metadata into the old, or set its last day.

        Args:
            memory_id: The id that `add` or `search` returned.
            text: The new text; None leaves it as it is.
            metadata: New values, which are merged into the old ones; None changes none.
            expiration_date: The last day on which it is found, as YYYY-MM-DD, or None to clear it.
            data: The older name of `text`; only one of the two may be there.

        Raises:
            UnknownMemory, InvalidText, InvalidTime: As their names say. There is nothing to change, or both names of the text.
        """
        if text is not None and data is not None:
            raise InvalidText("text and data are two names of the new text: give one of them")
        text = data if text is None else text
        expiry: dict[str, Any] = {} if expiration_date == UNCHANGED else {"expires_at": _end_of(expiration_date)}
        self._open(memory_id)
        more = None if metadata is None else plain_metadata(metadata)

        def assigned(item: Item) -> dict[str, Any]:
            return {**expiry, **({} if more is None else {"metadata": {**item.metadata, **more}})}

        self.memory._revise(memory_id, text, assigned=assigned, repeat=True)
        return {"message": "Memory updated successfully!"}

    def delete(self, memory_id: str) -> dict[str, str]:
        """Delete a memory. Raises UnknownMemory."""
        self._open(memory_id)
        try:
            self.memory.delete(memory_id)
        except UnknownItem as error:  # somebody else deleted it just now
            raise UnknownMemory(str(error)) from error
        return {"message": "Memory deleted successfully!"}

    def delete_all(
        self, user_id: str | None = None, agent_id: str | None = None, run_id: str | None = None
    ) -> dict[str, str]:
        """Delete all of a user, an agent or a run. Raises InvalidScope if none is named; `reset` empties the whole memory.

        Args:
            user_id: The user whose memories go.
            agent_id: The agent whose memories go.
            run_id: The run whose memories go; several names narrow it down.
        """
        self.memory.delete_all(**_scope(user_id=user_id, agent_id=agent_id, run_id=run_id))
        return {"message": "Memories deleted successfully!"}

    def history(self, memory_id: str) -> list[dict[str, Any]]:
        """Return what happened to a memory, oldest first; [] for an unknown id."""
        try:
            revisions = [revision for revision in self.memory.history(memory_id) if revision.kind != "REWARD"]
        except UnknownItem:
            return []
        merged: list[Revision] = []
        for revision in revisions:
            if merged and merged[-1].at == revision.at:  # an update of text and metadata is two entries of the journal
                merged[-1] = replace(merged[-1], after=revision.after)
            else:
                merged.append(revision)
        return [_change(memory_id, revision, revisions[0].at) for revision in merged]

    def reset(self) -> None:
        """Erase everything in the memory for good, or, if it was opened for a user, an agent or a session, all of theirs."""
        self.memory.flush()
        purge.erase(self.memory.store, self.memory.scope, self.memory.scope)

    def close(self) -> None:
        self.memory.close()

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, memory_id: str) -> Item:
        """Return an item that is open. Raises UnknownMemory for one that never was, or is superseded or deleted."""
        try:
            item = self.memory.get(memory_id)
        except UnknownItem as error:
            raise UnknownMemory(str(error)) from error
        if not item.open:
            raise UnknownMemory(f"memory {memory_id} is gone: take an id that a search or a list gave")
        return item

    def _records(self, items: Sequence[Item]) -> list[dict[str, Any]]:
        changed = self.memory.store.changed_at([item.id for item in items])
        return [_record(item, changed.get(item.id, item.written_at)) for item in items]


class AsyncMemory:
    """mem0's `AsyncMemory`: the methods of `Memory`, awaitable. They run in threads."""

    def __init__(self, config: Any = None) -> None:
        self.memory = Memory(config)

    @classmethod
    def from_config(cls, config_dict: Mapping[str, Any]) -> AsyncMemory:
        return cls(config_dict)

    def __getattr__(self, name: str) -> Any:
        return awaitable(self, Memory, "memory", name)

    async def __aenter__(self) -> AsyncMemory:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _scope(**bounds: object) -> dict[str, Any]:
    """Return mem0's bounds under the names of `keepworth.Memory`. Raises InvalidScope if none is given, or one is empty."""
    scope = {BOUNDS[name]: str(value).strip() for name, value in bounds.items() if value is not None}
    for name in bounds:
        if scope.get(BOUNDS[name]) == "":
            raise InvalidScope(
                f"{name} is empty: pass a name, also for somebody without one, or leave it out, which means all"
            )
    if not scope:
        raise InvalidScope("at least one of user_id, agent_id, run_id is needed")
    return scope


def _split(filters: Mapping[str, Any] | None, **bounds: object) -> tuple[dict[str, Any], Filter | None]:
    """Split filters into whose memory it is and the filter on metadata. Raises InvalidScope, InvalidFilter."""
    asked = dict(filters or {})
    for name in BOUNDS:
        bounds[name] = asked.pop(name, bounds[name])
    return _scope(**bounds), parsed(translated(asked), place="filters")


def translated(filters: Mapping[str, Any]) -> dict[str, Any]:
    """Translate mem0's filters into the grammar of `search.where`.

    Operators get a $. A list means any of its values, and "*" any value; NOT is met if nothing in its list is. "ne" and "nin"
    ask for another value, and are not met by an item without that name. Raises InvalidFilter for an unknown operator.
    """
    out: list[dict[str, Any]] = []
    for name, value in filters.items():
        if name in ("AND", "OR", "NOT"):
            joined = [translated(part) for part in value]
            out.append({"$not": {"$or": joined}} if name == "NOT" else {f"${name.lower()}": joined})
        elif isinstance(value, Mapping):
            for operator in value:
                if operator not in OPERATORS:
                    raise InvalidFilter(f"filters: there is no operator {operator!r:.40}: use {', '.join(OPERATORS)}")
            there = {"$exists": True} if {"ne", "nin"} & set(value) else {}
            out.append({name: {**there, **{f"${operator}": operand for operator, operand in value.items()}}})
        elif isinstance(value, (list, tuple)):
            out.append({name: {"$in": list(value)}})
        else:
            out.append({name: {"$exists": True} if value == "*" else {"$eq": value}})
    return {"$and": out} if len(out) > 1 else out[0] if out else {}


def _end_of(day: date | str | None) -> str:
    """Return the canonical time at which a day ends, "" for None. Raises InvalidTime."""
    if day is None:
        return ""
    try:
        last = day.date() if isinstance(day, datetime) else day if isinstance(day, date) else date.fromisoformat(day)
        return timestamp(last + timedelta(days=1))
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidTime(f"expiration_date is {day!r:.40}: give a day, such as '2026-01-31'") from error


def _told(item: Item, event: str) -> dict[str, Any]:
    return {"id": item.id, "memory": item.text, "event": event}


def utc(time: str) -> str:
    """Return a canonical time as mem0 writes it."""
    return f"{time}+00:00"


def _last_day(expires_at: str) -> str:
    """Return the last day before a canonical time."""
    return (datetime.fromisoformat(expires_at) - timedelta(microseconds=1)).date().isoformat()


def _record(item: Item, changed: str) -> dict[str, Any]:
    """Return an item as mem0's record. `changed` is the time at which it was last written to."""
    speaker = "role" if item.provenance.source == CONVERSATION else "attributed_to"
    named = {
        "user_id": item.scope.user,
        "agent_id": item.scope.agent,
        "run_id": item.scope.session,
        speaker: item.provenance.speaker,
    }
    return {
        "id": item.id,
        "memory": item.text,
        "hash": hashlib.md5(item.text.encode(), usedforsecurity=False).hexdigest(),
        "metadata": dict(item.metadata) or None,
        **({"expiration_date": _last_day(item.expires_at)} if item.expires_at else {}),
        "created_at": utc(item.written_at),
        "updated_at": utc(changed),
        **{name: value for name, value in named.items() if value},
    }


def _change(memory_id: str, revision: Revision, created: str) -> dict[str, Any]:
    before, after = revision.before, revision.after
    gone = after is None or after.deleted
    return {
        "id": f"{memory_id}.{revision.seq}",
        "memory_id": memory_id,
        "old_memory": None if before is None else before.text,
        "new_memory": None if gone or after is None else after.text,
        "event": "ADD" if before is None else "DELETE" if gone else "UPDATE",
        "created_at": utc(created),
        "updated_at": utc(revision.at),
        "is_deleted": gone,
    }
