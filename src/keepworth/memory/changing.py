"""The methods of `Memory` that write: add, update, supersede, delete, forget, erase, and any operation that an agent asks for.

Whether a statement replaces an older one is decided in `replaced_statements`, not here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast, overload

from keepworth.memory import writing
from keepworth.memory.errors import (
    InvalidFilter,
    InvalidScope,
    InvalidText,
    InvalidTime,
    UnknownItem,
    check_keywords,
    unknown_option,
)
from keepworth.memory.event_loop import warn_in_event_loop
from keepworth.memory.item import (
    ALL,
    UNKNOWN,
    Clock,
    Item,
    ItemKind,
    Provenance,
    Scope,
    Status,
    Timestamp,
    checked_label,
    checked_provenance,
    checked_source,
    checked_text,
    later,
    member,
    metadata_text,
    plain_metadata,
    text_problem,
    timestamp,
)
from keepworth.memory.operations import Act, Assignment, Draft, OperationOutcome
from keepworth.memory.scan import HELD_FOR
from keepworth.memory.scopes import Scopes
from keepworth.memory.search.search import checked_switch
from keepworth.memory.search.where import value_key
from keepworth.memory.store import purge
from keepworth.memory.store.decision_log import DecisionLog
from keepworth.memory.store.full_text import CURRENT
from keepworth.memory.telemetry import trace_operations
from keepworth.memory.writing import Message, messages_of
from keepworth.records.episode import Operation, OperationKind

if TYPE_CHECKING:
    from keepworth.memory.memory import Memory
    from keepworth.memory.store.store import Store
    from keepworth.memory.store.transaction import Transaction


class ItemOptions(TypedDict, total=False):
    """The options of `add` and `add_many` for the items that they write.

    Args:
        key: What searches match instead of the text.
        event_time: When it happened.
        valid_from, valid_to: The interval in which it was true.
        expires_at, ttl: Until when it is shown, as a time or in seconds from now; one of them.
        trust: From 0 to 1.
        metadata: A dictionary for all items, or a list with one for each text.
        source, episode: Where it comes from, and the id of the episode that the write is part of.
        repeat: Store exact duplicates too, such as the same line said twice in a conversation.
    """

    user_id: str
    agent_id: str
    session_id: str
    kind: ItemKind | str
    key: str
    event_time: Timestamp
    valid_from: Timestamp
    valid_to: Timestamp
    expires_at: Timestamp
    ttl: float | None
    trust: float
    status: Status | str
    metadata: Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None
    source: str
    provenances: Sequence[Provenance] | None
    repeat: bool
    episode: str


@trace_operations
@check_keywords
class Changes:
    """The methods of `Memory` that write. All can be rolled back, except for `forget(..., purge_history=True)` and `erase`."""

    store: Store
    scopes: Scopes
    _clock: Clock
    _decisions: DecisionLog

    if TYPE_CHECKING:

        @property
        def scope(self) -> Scope: ...
        @property
        def path(self) -> str: ...
        def get(self, id: str) -> Item: ...
        def _check_episode(self, id: str) -> None: ...

    @overload
    def add(self, content: str, *, infer: bool = False, **options: Unpack[ItemOptions]) -> Item: ...

    @overload
    def add(self, content: Sequence[Message], *, infer: bool = False, **options: Unpack[ItemOptions]) -> list[Item]: ...

    def add(
        self, content: str | Sequence[Message], *, infer: bool = False, **options: Unpack[ItemOptions]
    ) -> Item | list[Item]:
        """Remember a text, or one or several messages ({"role": ..., "content": ...}).

        If an open item has the same words, and nothing else is new (time, metadata, trust, a later expiry), the text is not
        stored again, and that item is returned.

        Args:
            infer: Let the writer of this memory decide what to store. It may add, update, supersede and delete, all in one
                transaction. If it fails, the messages are stored word for word, with {"extraction": "failed"} in their metadata.
            options: See `ItemOptions`. With `infer` they apply to the items that the writer adds; a reworded item keeps its own.

        Returns:
            The item for a text; for messages a list with one for each; with `infer` a list of the items that the writer wrote.

        Raises:
            MemoryProblem: With `infer`, the memory has no writer.
            NothingToWrite, InvalidAdvice: The writer is not made for messages. For other errors see `add_many`.
        """
        if isinstance(content, str) and not checked_switch(infer, "infer"):
            return self.add_many([content], **options)[0]
        if checked_switch(infer, "infer"):
            warn_in_event_loop()
            return [item for item, _ in writing.write(cast("Memory", self), content, **options) if item.open]
        texts, sources = [], []
        for number, message in enumerate(messages_of(content)):
            texts.append(checked_text(message.get("content"), f"message {number}"))
            speaker = checked_label(str(message.get("role", "")), f"role of message {number}")
            sources.append(Provenance("conversation", turn=number, speaker=speaker))
        if "provenances" in options:
            raise InvalidFilter("provenances has no effect with messages, which say it themselves: leave it out")
        options["provenances"] = sources
        return self.add_many(texts, **options)

    def add_many(self, texts: Sequence[str], **options: Unpack[ItemOptions]) -> list[Item]:
        """Remember several texts in one transaction: all of them or, if one is bad, none.

        The option `provenances` gives each text a provenance of its own; see `ItemOptions` for the other options.
        Raises InvalidText, InvalidTime, InvalidScope, UnknownEpisode, StorageFull.
        """
        warn_in_event_loop()
        if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
            raise InvalidText(
                f"add_many takes several texts, got {type(texts).__name__}: give a list, or use add for one"
            )
        texts = list(texts)
        for number, text in enumerate(texts):
            checked_text(text, f"text number {number}" if len(texts) > 1 else "text")
        metadata, provenances = options.get("metadata"), options.get("provenances")
        of_each = metadata if isinstance(metadata, (list, tuple)) else None
        if of_each is not None:
            _check_length("metadata", of_each, len(texts))
        draft = self._drafted(options)
        drafts = [draft] * len(texts)
        if provenances is not None:
            _check_length("provenances", provenances, len(texts))
            drafts = [replace(draft, provenance=checked_provenance(one)) for one in provenances]
        if of_each is not None:
            drafts = [replace(one, metadata=plain_metadata(more)) for one, more in zip(drafts, of_each, strict=True)]
        if not texts:
            return []
        acts = [(Operation(OperationKind.ADD, text=text), one) for text, one in zip(texts, drafts, strict=True)]
        vectors = self.store.encode([draft.key] if draft.key else texts)

        def check(outcome: OperationOutcome) -> None:
            if not outcome.item:
                raise InvalidText(f"nothing was stored ({outcome.reason}): give another text")

        episode = options.get("episode", "")
        done = self.store.perform(draft.scope, acts, episode=episode, vectors=vectors, check=check)
        return [cast(Item, item) for _, item in done]

    def _drafted(self, options: ItemOptions) -> Draft:
        """Check the options of `add` and return the draft that all its items share. Raises UnknownOption, InvalidText,
        InvalidTime, InvalidFilter, UnknownEpisode, InvalidScope."""
        given: Mapping[str, Any] = options
        if unknown := [name for name in given if name not in ItemOptions.__annotations__]:
            raise unknown_option("Memory.add", unknown[0], ("texts", *ItemOptions.__annotations__))
        key, source, metadata = given.get("key", ""), given.get("source", ""), given.get("metadata")
        if key != "":
            checked_text(key, "key")
        if source != "":
            checked_source(source, "source")
        if given.get("episode", "") != "":
            self._check_episode(given["episode"])
        times = {name: given.get(name, "") for name in ("event_time", "valid_from", "valid_to", "expires_at")}
        if given.get("ttl") is not None:
            if times["expires_at"]:
                raise InvalidFilter("ttl and expires_at both say until when it is shown: give one of them")
            times["expires_at"] = later(timestamp(self._clock()), given["ttl"])
        times = {name: time if time == "" else timestamp(time) for name, time in times.items()}
        start, end = times["valid_from"], times["valid_to"]
        if start and end and end <= start:  # an item that was never true would never be found
            raise InvalidTime(
                f"valid_to ({end}) must come after valid_from ({start}): give a later end, or leave one of them out"
            )
        kind, status = given.get("kind", ItemKind.FACT), given.get("status", Status.ACTIVE)
        return Draft(
            kind=kind if isinstance(kind, ItemKind) else member(ItemKind, kind),
            key=key,
            scope=self.scopes.narrowed(*(given.get(name, ALL) for name in ("user_id", "agent_id", "session_id"))),
            provenance=Provenance(source) if source else UNKNOWN,
            trust=_trust(given.get("trust", 1.0)),
            status=status if isinstance(status, Status) else member(Status, status),
            metadata={} if isinstance(metadata, (list, tuple)) else plain_metadata(metadata),
            deduplicate=not given.get("repeat", False),
            **times,
        )

    def apply(
        self,
        operation: Operation,
        *,
        user_id: str = ALL,
        agent_id: str = ALL,
        session_id: str = ALL,
        event_time: Timestamp = "",
        source: str = "",
        episode: str = "",
    ) -> OperationOutcome:
        """Carry out an operation that an agent asked for. A bad one changes nothing, and the outcome says why.

        Args:
            operation: What to do; any value is accepted.
            user_id, agent_id, session_id: The owner of a new item, inside the bounds of this handle.
            event_time: When it happened; "" for now.
            source: Where it comes from, such as "manager".
            episode: The id of the episode that the write is part of.
        """
        self._check_episode(episode)
        scope = self.scopes.narrowed(user_id, agent_id, session_id)
        draft = Draft(
            scope=scope, event_time=timestamp(event_time), provenance=Provenance(checked_source(source, "source"))
        )
        text = operation.text if isinstance(operation, Operation) else ""
        vectors = self.store.encode([text]) if text_problem(text) is None and len(text) <= 100_000 else {}
        return self.store.perform(scope, [(operation, draft)], episode=episode, vectors=vectors)[0][0]

    def update(
        self,
        id: str,
        text: str | None = None,
        *,
        status: Status | str | None = None,
        trust: float | None = None,
        expires_at: Timestamp | None = None,
        metadata: Mapping[str, Any] | None = None,
        repeat: bool = False,
        episode: str = "",
    ) -> Item:
        """Reword an item, which keeps its id and validity, or set fields that say nothing about the world.

        Args:
            id: The id of the item.
            text: The new text; None leaves it.
            status, trust, expires_at: What to set; None leaves it as it is.
            metadata: The whole metadata, in place of those before; None leaves them.
            repeat: Whether this is done even if another item says the same already.
            episode: The id of the episode that the write is part of.

        Raises:
            UnknownItem: If there is no such item in the scope.
            InvalidText: If nothing is changed, or another item says the same already.
        """
        fields: dict[str, Any] = {}
        if status is not None:
            fields["status"] = member(Status, status).value
        if trust is not None:
            fields["trust"] = _trust(trust)
        if expires_at is not None:
            fields["expires_at"] = timestamp(expires_at)
        if metadata is not None:
            fields["metadata"] = plain_metadata(metadata)
        return self._revise(id, text, assigned=lambda _: fields, repeat=repeat, episode=episode)

    def _revise(
        self,
        id: str,
        text: str | None = None,
        *,
        assigned: Callable[[Item], Mapping[str, Any]],
        repeat: bool = False,
        episode: str = "",
    ) -> Item:
        """Do what `update` does. `assigned` returns the fields to set, given the item as the transaction sees it, as whoever
        makes them of the item's own would else undo what others set meanwhile."""
        there = self._open_item(id)
        home = self.scopes.home(there)
        self._check_episode(episode)
        if text is not None:
            checked_text(text)
        elif not assigned(there):
            raise InvalidText(
                f"update of {id} was given nothing to change: pass text, status, trust, expires_at or metadata"
            )
        draft = Draft(scope=home, deduplicate=not repeat)

        def acts(transaction: Transaction) -> list[tuple[Act, Draft]]:
            fields = assigned(transaction.get(id) or there)
            listed: list[tuple[Act, Draft]] = []
            if text is not None:
                listed.append((Operation(OperationKind.UPDATE, (id,), text), draft))
            if fields:
                listed.append((Assignment(id, fields), draft))
            return listed

        def check(outcome: OperationOutcome) -> None:
            if not outcome.applied and outcome.reason != "unchanged":
                raise InvalidText(f"{id} was not updated ({outcome.reason}): give another text, or leave it as it is")

        vectors = self.store.encode([text] if text else [])
        done = self.store.perform(home, acts, episode=episode, vectors=vectors, check=check)
        # Not read again where that is not needed: a disk that refuses to read would make what is written look refused.
        return next((item for _, item in done if item is not None and item.id == id), None) or self.get(id)

    def put(
        self,
        text: str | None,
        *,
        name: Mapping[str, Any],
        user_id: str = ALL,
        agent_id: str = ALL,
        session_id: str = ALL,
        key: str = "",
        metadata: Mapping[str, Any] | None = None,
        source: str = "",
        episode: str = "",
    ) -> Item | None:
        """Store a text under a name in place of what is there, as a dictionary does: of several who write at once the last wins,
        and one item stays. What it replaces is superseded, and stays in the history.

        Args:
            text: The text, or None to delete what is under the name.
            name: Metadata that no two current items of the scope share, such as {"key": "diet"}. The item gets them.
            user_id, agent_id, session_id: The owner, inside the bounds of this handle.
            key: What searches match instead of the text.
            metadata: More metadata. "created" is added to that of an item that replaces another: when the first was written.
            source: Where it comes from.
            episode: The id of the episode that the write is part of.

        Returns:
            The item that is there now, or None after a deletion.

        Raises:
            InvalidText, InvalidFilter: The text, or the name, is none.
            InvalidScope, UnknownEpisode: As for `add`.
        """
        named, more = plain_metadata(name, "name"), plain_metadata(metadata)
        if not named:
            raise InvalidFilter("put was given no name, under which there is one item: pass name={...}, or use add")
        if text is not None:
            checked_text(text)
        options = ItemOptions(user_id=user_id, agent_id=agent_id, session_id=session_id, repeat=True, key=key)
        draft = self._drafted(cast(ItemOptions, {**options, "source": source, "episode": episode}))

        def acts(transaction: Transaction) -> list[tuple[Act, Draft]]:
            listed = _items_with(transaction, draft.scope, named)
            targets, old = tuple(item.id for item in listed), listed[-1] if listed else None
            if text is None:
                return [(Operation(OperationKind.DELETE, targets), draft)] if targets else []
            if old is None:
                return [(Operation(OperationKind.ADD, text=text), replace(draft, metadata={**more, **named}))]
            present, there = {**more, **named}, old.visible(timestamp(self._clock()))
            if there:
                present["created"] = old.metadata.get("created", old.written_at)
            if there and len(listed) == 1 and (old.text, old.key) == (text, key):
                return [(Assignment(old.id, {"metadata": present}), draft)]
            return [(Operation(OperationKind.SUPERSEDE, targets, text), replace(draft, metadata=present))]

        def check(outcome: OperationOutcome) -> None:
            if not (outcome.applied or outcome.item):
                raise InvalidText(f"nothing was put ({outcome.reason}): give another text")

        vectors = self.store.encode([] if text is None else [key or text])
        done = self.store.perform(draft.scope, acts, episode=episode, vectors=vectors, check=check)
        return done[0][1] if text is not None else None

    def supersede(
        self,
        id: str,
        text: str,
        *,
        event_time: Timestamp = "",
        key: str = "",
        expires_at: Timestamp = "",
        metadata: Mapping[str, Any] | None = None,
        source: str = "",
        episode: str = "",
    ) -> Item:
        """Replace an item because the fact changed: close it and store a successor that is linked to it. Searches
        return the new item, and searches `as_of` an earlier time the old one.

        Args:
            id: The id of the item that is replaced.
            text: The text of its successor.
            event_time: When the fact changed; "" for now.
            key: What searches match instead of the text.
            expires_at: Until when the successor is shown; "" without end.
            metadata: The successor's metadata; None for none.
            source: Where it comes from.
            episode: The id of the episode that the write is part of.

        Raises:
            UnknownItem: If there is no such item in the scope.
            InvalidText: If the text is empty, or too long.
            InvalidTime: If the old item is not open at the new one's time.
        """
        old = self._open_item(id)
        home = self.scopes.home(old)
        self._check_episode(episode)
        if key != "":
            checked_text(key, "key")
        draft = Draft(
            scope=home,
            key=key,
            event_time=timestamp(event_time),
            expires_at=timestamp(expires_at),
            metadata=plain_metadata(metadata),
            provenance=Provenance(checked_source(source, "source")),
        )
        operation = Operation(OperationKind.SUPERSEDE, (id,), checked_text(text))

        def check(outcome: OperationOutcome) -> None:
            if not outcome.item:
                raise InvalidText(f"{id} was not superseded ({outcome.reason}): say what is true now")
            if id not in outcome.changed and outcome.reason != "unchanged":
                raise InvalidTime(
                    f"{id} was not superseded: its text was said at {old.said_at}, after event_time {draft.event_time}",
                    "What was said last holds: add the older text with its event_time and valid_to, or leave event_time out.",
                )

        vectors = self.store.encode([key or text])
        _, item = self.store.perform(home, [(operation, draft)], episode=episode, vectors=vectors, check=check)[0]
        return cast(Item, item)

    def delete(self, id: str, *, episode: str = "") -> None:
        """Hide an item. Its history stays, and the deletion can be rolled back. Raises UnknownItem."""
        self._check_episode(episode)
        target = id if isinstance(id, str) else repr(id)
        item = self.store.fetch(self.scopes.seen(), [target])[target] if self.scopes.shares else None
        home = self.scope if item is None else self.scopes.home(item)
        act = Operation(OperationKind.DELETE, (target,))

        def check(outcome: OperationOutcome) -> None:
            if not outcome.applied:
                raise UnknownItem(
                    f"no item {id!r:.80} to delete in this scope of {self.path}: take an id that a search or a list gave"
                )

        self.store.perform(home, [(act, Draft(scope=home))], episode=episode, check=check)

    def delete_all(self, *, user_id: str = ALL, agent_id: str = ALL, session_id: str = ALL) -> int:
        """Delete every item of a user, an agent or a session, and return how many there were.

        Args:
            user_id, agent_id, session_id: Whose items, inside the bounds of this handle; one of them must be named here
                or when opening.
        """
        scope = self.scopes.narrowed(user_id, agent_id, session_id)
        if scope == Scope(scope.tenant):
            raise InvalidScope(
                "delete_all needs a user_id, agent_id or session_id: say whose items go, as it never empties a whole memory"
            )
        draft = Draft(scope=scope)

        def acts(transaction: Transaction) -> list[tuple[Act, Draft]]:
            there = transaction.items(scope, "NOT deleted")
            return [(Operation(OperationKind.DELETE, (item.id,)), draft) for item in there]

        return len(self.store.perform(scope, acts))

    def forget(self, *ids: str, purge_history: bool = False) -> purge.Erased | None:
        """Delete items, or with `purge_history` erase them for good, rolled-back ones too, with their history and the logged
        queries that quote them. If one is unknown, this raises UnknownItem and changes nothing."""
        if not ids:
            raise InvalidFilter("forget was given nothing to forget: pass the ids of items")
        if purge_history:
            self._decisions.flush()
            return purge.purge(self.store, self.scope, ids)
        items = {item.id: item for item in map(self.get, ids)}
        gone = [id for id, item in items.items() if item.deleted]
        if gone:
            raise UnknownItem(f"{gone[0]} is deleted already: leave it out; nothing was forgotten")
        acts = [
            (Operation(OperationKind.DELETE, (id,)), Draft(scope=self.scopes.home(item))) for id, item in items.items()
        ]

        def check(outcome: OperationOutcome) -> None:
            if not outcome.applied:  # somebody else deleted it just now
                raise UnknownItem(f"{outcome.reason} of forget: leave it out; nothing was forgotten")

        self.store.perform(self.scopes.changeable, acts, check=check)
        return None

    def erase(self, *, user_id: str = ALL, agent_id: str = ALL, session_id: str = ALL) -> purge.Erased:
        """Erase a person, an agent or a session, named here or when opening, for good: everything that was ever written in that
        scope, its queries, the tasks of its episodes, and its names. A rollback to an earlier state then raises Purged.

        It does not reach what others wrote about them in other scopes, backups, exports, and banks that are in use.

        Args:
            user_id, agent_id, session_id: Whose memory, inside the bounds of this handle; one of them must be named
                here or when opening.
        """
        if self.scopes.shares_with(user_id):
            raise InvalidScope(
                f"{user_id!r:.60} is shared with this handle, and erased from one of its own bounds alone"
            )
        scope = self.scopes.narrowed(user_id, agent_id, session_id)
        if scope == Scope(scope.tenant):
            raise InvalidScope(
                "erase needs a user_id, agent_id or session_id: say whose memory goes; for the whole, delete the file"
            )
        self._decisions.flush()
        return purge.erase(self.store, self.scope, scope)

    def release(self, id: str) -> Item:
        """Let an item out of quarantine, so that searches find it. Raises UnknownItem, and InvalidText if it is in none."""
        item = self.get(id)

        def assigned(item: Item) -> dict[str, Any]:
            if item.status is not Status.QUARANTINED:
                raise InvalidText(
                    f"{id} is not in quarantine: its status is {item.status.value}; nothing was done",
                    "Look at those that are: `quarantined()` gives them.",
                )
            metadata = {name: value for name, value in item.metadata.items() if name != HELD_FOR}
            return {"status": Status.ACTIVE.value, "metadata": metadata}

        assigned(item)
        return self._revise(id, assigned=assigned)

    def _open_item(self, id: str) -> Item:
        item = self.get(id)
        if not item.open:
            raise UnknownItem(
                f"{id} is closed ({'deleted' if item.deleted else 'superseded by ' + item.superseded_by}): "
                + ("write it anew, or roll the deletion back" if item.deleted else f"change {item.superseded_by}")
            )
        return item


def _items_with(transaction: Transaction, scope: Scope, name: Mapping[str, Any]) -> list[Item]:
    """Return the current items of exactly this scope that have these metadata, oldest first."""
    parts = [metadata_text({part: value})[1:-1] for part, value in name.items() if isinstance(value, str)]
    # A first look in SQL, which finds too many; LIKE does not read all of them as JSON.
    like = [f"%{part.translate({ord(mark): f'!{mark}' for mark in '!%_'})}%" for part in parts]
    where = " AND ".join([CURRENT, *["metadata LIKE ? ESCAPE '!'"] * len(like)])
    wanted = {part: value_key(value) for part, value in name.items()}
    return [
        item
        for item in transaction.items(scope, where, like)
        if item.scope == scope and all(value_key(item.metadata.get(part)) == value for part, value in wanted.items())
    ]


def _check_length(name: str, values: Sequence[object], count: int) -> None:
    """Raise InvalidText unless there is one value for each text."""
    if len(values) != count:
        or_all = ", or a dictionary for all" if name == "metadata" else ""
        raise InvalidText(
            f"{len(values)} {name} came with {count} texts: give one for each{or_all}; nothing was stored"
        )


def _trust(trust: float) -> float:
    if not isinstance(trust, (int, float)) or not 0.0 <= trust <= 1.0:
        raise InvalidFilter(f"trust must lie in [0, 1], got {trust!r:.40}: give 1 for full trust")
    return float(trust)
