"""mem0's `Memory` and `AsyncMemory`: its quick start's calls, defaults and result dictionaries, over one of our files. An option
that cannot take effect here is an error that says so.

from keepworth.memory.adapters.mem0 import Memory

m = Memory.from_config({"llm": {"provider": "openai", "config": {"model": "gpt-4.1-mini"}}})
m.add([{"role": "user", "content": "I moved to Oslo."}, {"role": "assistant", "content": "Noted!"}], user_id="ana")
m.search("where does Ana live", filters={"user_id": "ana"})
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import NoneType
from typing import Any

from keepworth.episodes.episode import OperationKind
from keepworth.memory import memory as engine
from keepworth.memory.adapters.formats import text_hash, utc
from keepworth.memory.adapters.mem0_config import Setup, setup
from keepworth.memory.async_memory import awaitable
from keepworth.memory.errors import InvalidFilter, InvalidScope, InvalidText, NoWriter, UnknownItem
from keepworth.memory.item import Item
from keepworth.memory.policy.writers import Facts
from keepworth.memory.search.search import Ask, Hit, checked_query
from keepworth.memory.search.where import Filter, parsed
from keepworth.memory.store import purge
from keepworth.memory.store.store import Revision
from keepworth.memory.writing import write
from keepworth.registry import method

_LOG = logging.getLogger("keepworth.memory")
_EVENTS = {
    OperationKind.ADD: "ADD",
    OperationKind.UPDATE: "UPDATE",
    OperationKind.DELETE: "DELETE",
    OperationKind.NOOP: "NONE",
}
_ENTITIES = {"user_id": "user_id", "agent_id": "agent_id", "run_id": "session_id"}
_IDENTITY = (*_ENTITIES, "actor_id")
"""What metadata cannot say: whose a memory is, and who spoke."""
CONVERSATION = "conversation"
"""The source of what was stored as it was said."""
_WIDE = 60
"""Candidates at least, from which those below the threshold are taken out."""
_NOT_HERE = {
    "rerank": "search the memory itself with a function that scores texts: `.memory.search(query, reranker=FUNCTION)`",
    "reference_date": "for what was true at a time, search the memory itself: `.memory.search(query, as_of='2026-01-31')`",
    "explain": "search the memory itself: `.memory.search(query, explain=True)`",
    "show_expired": "the memory's own history has it: `.memory.history(id)`",
    "expiration_date": "give the memory's own verbs an end: `.memory.update(id, expires_at='2026-01-31')`",
    "timestamp": "give the memory's own verbs a time: `.memory.add(text, event_time='2026-01-31')`",
    "memory_type": "there are facts alone",
    "prompt": "say custom_instructions in the configuration",
}
"""Options of mem0's that have no effect here, and what has."""


class UnknownMemory(UnknownItem, ValueError):
    """No memory of this id. A ValueError, as in mem0."""


class Memory:
    """run_id is our session_id.

    config: as `from_config` takes it, or mem0's own `MemoryConfig`; None for mem0's defaults, as far as they are those of
    this adapter, in the file keepworth.mem. Or a path and options as of `keepworth.Memory`, or a memory that is open: then what
    finds facts is its writer. Ids are those of `keepworth.Memory`, "m1" and so on.
    """

    def __init__(self, config: Any = None, **options: Any) -> None:
        self.config = config
        self._setup: Setup | None = None
        if isinstance(config, str) or (config is None and options):
            self.memory: engine.Memory = engine.Memory(*([] if config is None else [config]), **options)
            return
        if options:
            raise InvalidFilter(f"{next(iter(options))}= has no effect beside what is given already: leave it out")
        if isinstance(config, engine.Memory):
            self.memory = config
            return
        self._setup = setup(config)
        facts = self._facts(self._setup)
        self.memory = engine.Memory(self._setup.path, encoder=self._setup.encoder, writer=facts)

    @classmethod
    def from_config(cls, config_dict: Mapping[str, Any]) -> Memory:
        """Sections vector_store, llm and embedder, each with provider and config, and custom_instructions: see
        `docs/memory.md`. Raises InvalidConfig for what cannot take effect here."""
        return cls(config_dict)

    def add(
        self,
        messages: str | Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        infer: bool = True,
        **options: Any,
    ) -> dict[str, Any]:
        """Keep what messages say, as {"results": [{"id", "memory", "event"}]}.

        event: ADD, UPDATE (also of an item that takes the place of an older one), DELETE, or NONE for what was there already. As
        in mem0, system messages are not stored; a model sees them.

        Args:
            messages: A text, a message, or several.
            user_id, agent_id, run_id: Whose memory; at least one.
            metadata: Kept with each item.
            infer: Let the configured model say what to keep; False stores each message.
            options: None has an effect.

        Raises:
            NoWriter: No model is configured.
            InvalidScope, InvalidText, InvalidFilter: What was given is wrong.
        """
        _refuse(options)
        listed = _messages(messages)
        fields: dict[str, Any] = {
            "metadata": _without_identity(metadata or {}, {}, "add()"),
            **_scope({"user_id": user_id, "agent_id": agent_id, "run_id": run_id}),
        }
        if infer:
            done = write(self.memory, listed, writer=self._writer(), **fields)
            return {"results": [{"id": item.id, "memory": item.text, "event": _EVENTS[kind]} for item, kind in done]}
        spoken = [message for message in listed if message.get("role") not in (None, "system")]
        return {"results": self._stored(spoken, fields)}

    def _stored(self, messages: Sequence[Mapping[str, Any]], given: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Messages as they are."""
        actors = [str(name) if (name := message.get("name")) else None for message in messages]
        own = [
            {"role": message["role"], "content": message["content"], "metadata": {"actor_id": actor} if actor else None}
            for message, actor in zip(messages, actors, strict=True)
        ]
        head = self.memory.store.head()
        return [
            {
                "id": item.id,
                "memory": item.text,
                "event": "ADD" if int(item.id[1:]) > head else "NONE",
                "actor_id": actor,
                "role": message["role"],
            }
            for item, message, actor in zip(self.memory.add(own, **given), messages, actors, strict=True)
        ]

    @staticmethod
    def _facts(setup: Setup | None) -> Any:
        """What says what to keep; None where nothing is configured that could. Raises InvalidFilter."""
        if setup is None:
            return None
        if setup.chat is not None:
            return method("writer", "model").make(chat=setup.chat, instructions=setup.instructions)
        if setup.instructions:
            raise InvalidFilter(f"custom_instructions is for a language model, and none is configured: {_CONFIGURE}")
        return Facts() if setup.rules else None

    def _writer(self) -> Any:
        """The same, None where the memory has one of its own. Raises NoWriter."""
        writer = self._facts(self._setup)
        if writer is None and self._setup is not None:
            raise NoWriter(f"add(infer=True) asks a language model what to keep, and none is configured: {_CONFIGURE}")
        return writer

    def search(
        self,
        query: str,
        *,
        top_k: int = 20,
        filters: Mapping[str, Any] | None = None,
        threshold: float | None = 0.1,
        limit: int | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """{"results": [{"id", "memory", "score", ...}]}. At least one of user_id, agent_id, run_id, in filters or, as in mem0 1,
        beside them.

        threshold: the least cosine of a hit, 0.1 where it is None; the score is from 0 to 1 and made of words and meaning.
        filters: mem0's, over metadata (see `translated`), and whose memory it is. No policy takes part: mem0 has no
        rewards. Raises InvalidFilter for a filter that says nothing, and for options that would have no effect."""
        scope, where = self._split(filters, options)
        count = _count(top_k if limit is None else limit)
        ask = Ask(checked_query(query.strip() if isinstance(query, str) else query), plain=True)
        if not ask.text:
            raise InvalidText("query is empty: say what is looked for")
        least = 0.1 if threshold is None else threshold
        if not isinstance(least, (int, float)) or isinstance(least, bool) or not least <= 1.0:
            raise InvalidFilter(
                f"threshold must be a number of at most 1, got {threshold!r:.40}: it is the least cosine"
            )
        if not count:
            return {"results": []}
        by_words = self.memory.store.embedder is None
        if by_words and threshold not in (None, 0.1):
            raise InvalidFilter("threshold has no effect without an encoder: open the memory with one, or leave it out")

        def near(hits: Sequence[Hit]) -> Sequence[Hit]:
            kept = hits if by_words else [hit for hit in hits if hit.dense is not None and hit.dense >= least]
            return kept[:count]

        wide = max(4 * count, _WIDE)
        (hits,) = self.memory.answer([ask], top_k=wide, where=where, fits=near, **scope)
        records = self._records([hit.item for hit in hits])
        for record, hit in zip(records, hits, strict=True):
            record["score"] = hit.score
        return {"results": records}

    def get(self, memory_id: str) -> dict[str, Any] | None:
        try:
            item = self.memory.get(memory_id)
        except UnknownItem:
            return None
        return None if item.deleted else {**self._records([item])[0], "score": None}

    def get_all(
        self,
        *,
        filters: Mapping[str, Any] | None = None,
        top_k: int = 20,
        limit: int | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """As `search`, without a query: in order of writing."""
        scope, where = self._split(filters, options)
        count = _count(top_k if limit is None else limit)
        found = self.memory.get_all(limit=count, where=where, **scope) if count else []
        return {"results": self._records(found)}

    def update(
        self,
        memory_id: str,
        text: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        data: str | None = None,
        **options: Any,
    ) -> dict[str, str]:
        """metadata: merged into what is there; whose memory it is, it cannot change. data: mem0's older name of text. Raises
        UnknownMemory, InvalidText, InvalidFilter."""
        _refuse(options)
        text = data if text is None else text
        if text is None and metadata is None:
            raise InvalidText("update was given nothing to change: pass text or metadata")
        item = self._known(memory_id)
        merged = None
        if metadata is not None:
            merged = {**item.metadata, **_without_identity(metadata, self._records([item])[0], "update()")}
        self.memory.update(memory_id, text, metadata=merged, repeat=True)
        return {"message": "Memory updated successfully!"}

    def delete(self, memory_id: str) -> dict[str, str]:
        """Raises UnknownMemory."""
        self._known(memory_id)
        self.memory.delete(memory_id)
        return {"message": "Memory deleted successfully!"}

    def delete_all(
        self, user_id: str | None = None, agent_id: str | None = None, run_id: str | None = None
    ) -> dict[str, str]:
        """Raises InvalidScope where none is given: `reset` empties the whole memory."""
        self.memory.delete_all(**_scope({"user_id": user_id, "agent_id": agent_id, "run_id": run_id}))
        return {"message": "Memories deleted successfully!"}

    def history(self, memory_id: str) -> list[dict[str, Any]]:
        """Oldest first; [] for an id that there is not."""
        try:
            revisions = self.memory.history(memory_id)
        except UnknownItem:
            return []
        merged: list[Revision] = []
        for revision in revisions:
            if revision.kind == "REWARD":
                continue
            if merged and merged[-1].at == revision.at:  # one update of text and metadata is two entries of our journal
                merged[-1] = replace(merged[-1], after=revision.after)
            else:
                merged.append(revision)
        return [_change(memory_id, each, revisions[0].at) for each in merged]

    def reset(self) -> None:
        """Erase everything in the memory, or, of one that was opened with bounds, within them, for good."""
        self.memory.flush()
        self.memory._erased(purge.erase(self.memory.store, self.memory.scope, self.memory.scope))

    def close(self) -> None:
        self.memory.close()
        if self._setup is not None:
            self._setup.close()

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _known(self, memory_id: str) -> Item:
        """Raises UnknownMemory for what is not there, or not any more."""
        try:
            item = self.memory.get(memory_id)
        except UnknownItem as error:
            raise UnknownMemory(str(error)) from error
        if not item.open:
            raise UnknownMemory(
                f"Memory with id {memory_id} is not there any more: take an id that a search or a list gave"
            )
        return item

    def _records(self, items: Sequence[Item]) -> list[dict[str, Any]]:
        changed = self.memory.store.changed_at([item.id for item in items])
        return [_record(item, changed.get(item.id, item.written_at)) for item in items]

    def _split(
        self, filters: Mapping[str, Any] | None, options: Mapping[str, Any]
    ) -> tuple[dict[str, Any], Filter | None]:
        """(scope, filter). Raises InvalidFilter for what would have no effect, InvalidScope where nobody is named."""
        _refuse({name: value for name, value in options.items() if name not in _ENTITIES})
        if filters is not None and not isinstance(filters, Mapping):
            raise InvalidFilter(f"filters must be a dictionary, got {filters!r:.60}: give names and values")
        entities, rest = _entities(filters or {}, "filters")
        for name, value in options.items():
            if name in _ENTITIES and value is not None and entities.setdefault(name, value) != value:
                raise InvalidFilter(f"{name} is said twice, {entities[name]!r:.40} and {value!r:.40}: say it once")
        for name, value in entities.items():
            if value == "*" or not isinstance(value, (str, int, NoneType)) or isinstance(value, bool):
                raise InvalidFilter(f"filters[{name!r}] names one, got {value!r:.40}: give its name")
        return _scope(entities), parsed(translated(rest), place="filters")


class AsyncMemory:
    """mem0's `AsyncMemory`: the verbs of `Memory`, awaited, and run in threads."""

    def __init__(self, config: Any = None, **options: Any) -> None:
        self.memory = Memory(config, **options)

    @classmethod
    def from_config(cls, config_dict: Mapping[str, Any]) -> AsyncMemory:
        return cls(config_dict)

    def __getattr__(self, name: str) -> Any:
        return awaitable(self, Memory, "memory", name)

    async def __aenter__(self) -> AsyncMemory:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


_CONFIGURE = (
    "set OPENAI_API_KEY, and OPENAI_BASE_URL for a server other than OpenAI's; or from_config({'llm': {'provider': 'openai', "
    "'config': {'model': ..., 'openai_base_url': ..., 'api_key': ...}}}); or, for rules instead of a model, {'llm': {'provider': "
    "'keepworth'}}. add(..., infer=False) stores messages as they are"
)


def _refuse(options: Mapping[str, Any]) -> None:
    """Raises InvalidFilter for the first option that asks for something."""
    for name, value in options.items():
        if value not in (None, False) or name not in _NOT_HERE:
            instead = _NOT_HERE.get(name, f"it takes {', '.join(_ENTITIES)}; metadata goes into filters")
            raise InvalidFilter(f"option {name}={value!r:.40} has no effect in this adapter: {instead}")


def _messages(messages: object) -> list[Mapping[str, Any]]:
    """Messages with texts; images and what has no content are left out, as mem0 does without a model that sees.
    Raises InvalidText."""
    listed = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    if isinstance(listed, Mapping):
        listed = [listed]
    if not isinstance(listed, (list, tuple)):
        raise InvalidText(f"messages must be text, a dictionary or a list of them, got {type(messages).__name__}")
    kept: list[Mapping[str, Any]] = []
    for number, message in enumerate(listed):
        if not isinstance(message, Mapping):
            raise InvalidText(
                f"message {number} must be a dictionary with role and content, got {type(message).__name__}"
            )
        content = message.get("content")
        if isinstance(content, list):
            parts = [part for part in content if isinstance(part, Mapping) and isinstance(part.get("text"), str)]
            content = " ".join(part["text"] for part in parts if part.get("type") == "text")
        if isinstance(content, str) and content.strip():
            kept.append({**message, "content": content})
        else:
            _LOG.warning("message %d has no text, and is left out", number)
    return kept


def _scope(entities: Mapping[str, Any]) -> dict[str, str]:
    """Whose memory it is, in our words. Raises InvalidScope where nobody is named."""
    scope = {}
    for name, value in entities.items():
        text = "" if value is None else str(value).strip()
        if value is not None and (not text or any(character.isspace() for character in text)):
            raise InvalidScope(f"{name}={value!r:.60} is no name: give one without spaces")
        if text:
            scope[_ENTITIES[name]] = text
    if not scope:
        raise InvalidScope("at least one of user_id, agent_id, run_id is needed")
    return scope


def _without_identity(metadata: Mapping[str, Any], there: Mapping[str, Any], verb: str) -> dict[str, Any]:
    """Metadata without what only parameters say. there: what the record says already, which may be said again."""
    for name in _IDENTITY:
        if name in metadata and metadata[name] != there.get(name):
            _LOG.warning("%s: metadata[%r] is left out, as metadata cannot say whose a memory is", verb, name)
    return {name: value for name, value in metadata.items() if name not in _IDENTITY}


def _count(top_k: object) -> int:
    if not isinstance(top_k, int) or isinstance(top_k, bool) or top_k < 0:
        raise InvalidFilter(f"top_k must be a whole number of at least 0, got {top_k!r:.40}")
    return top_k


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

    Its operators (eq, ne, gt, gte, lt, lte, in, nin, contains, icontains) are ours with a $; a list is any of its values; "*" is
    any value; NOT is met where none of its list is. "ne" and "nin" ask for another value: they are not met without the name."""
    out: list[dict[str, Any]] = []
    for name, value in filters.items():
        at = f"{place}[{name!r:.60}]"
        if name in _BESIDE:
            raise InvalidFilter(f"{at} is no metadata, and filters are over metadata: leave it out")
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
        elif isinstance(value, Mapping):
            strange = [each for each in value if each not in _OPERATORS]
            if strange or not value:
                raise InvalidFilter(
                    f"{at}: there is no operator {strange[0]!r:.40}: use {', '.join(_OPERATORS)}"
                    if strange
                    else f"{at} asks nothing: give an operator, {', '.join(_OPERATORS)}"
                )
            other = {"$exists": True} if {"ne", "nin"} & set(value) else {}
            out.append({name: {**other, **{f"${operator}": operand for operator, operand in value.items()}}})
        elif isinstance(value, (list, tuple)):
            out.append({name: {"$in": list(value)}})
        else:
            out.append({name: {"$exists": True} if isinstance(value, str) and value == "*" else {"$eq": value}})
    return {"$and": out} if len(out) > 1 else out[0] if out else {}


_OPERATORS = ("eq", "ne", "gt", "gte", "lt", "lte", "in", "nin", "contains", "icontains")
_BESIDE = {*_ENTITIES, "id", "memory", "data", "hash", "created_at", "updated_at", "role", "attributed_to"}
"""What mem0 keeps beside metadata, and filters see there."""


def _record(item: Item, changed: str) -> dict[str, Any]:
    """changed: when it was last written to."""
    metadata = {name: value for name, value in item.metadata.items() if name != "actor_id"}
    record: dict[str, Any] = {
        "id": item.id,
        "memory": item.text,
        "hash": text_hash(item.text),
        "metadata": metadata or None,
        "created_at": utc(item.written_at),
        "updated_at": utc(changed),
    }
    said = item.provenance.source == CONVERSATION
    named = {
        "user_id": item.scope.user,
        "agent_id": item.scope.agent,
        "run_id": item.scope.session,
        "actor_id": item.metadata.get("actor_id"),
        "role": item.provenance.speaker if said else "",
        "attributed_to": "" if said else item.provenance.speaker,
    }
    record.update({name: value for name, value in named.items() if value})
    return record


def _change(memory_id: str, revision: Revision, created: str) -> dict[str, Any]:
    before, after = revision.before, revision.after
    gone = after is None or after.deleted
    said = after or before
    return {
        "id": f"{memory_id}.{revision.seq}",
        "memory_id": memory_id,
        "old_memory": before.text if before is not None else None,
        "new_memory": None if gone or after is None else after.text,
        "event": "ADD" if before is None else "DELETE" if gone else "UPDATE",
        "created_at": utc(created),
        "updated_at": utc(revision.at),
        "is_deleted": gone,
        "actor_id": None if said is None else said.metadata.get("actor_id"),
        "role": said.provenance.speaker if said is not None and said.provenance.source == CONVERSATION else None,
    }
