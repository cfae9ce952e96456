"""MemoryWriting: the verbs that change a memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, overload

from keepworth.episodes.operation import Operation, OperationKind
from keepworth.memory import purge
from keepworth.memory.errors import (
    InvalidFilter,
    InvalidScope,
    InvalidText,
    NoEncoder,
    NoExtractor,
    ScopeFull,
    UnknownItem,
)
from keepworth.memory.item import (
    Item,
    ItemKind,
    Provenance,
    Status,
    checked_label,
    checked_text,
    folded,
    kind_named,
    plain_metadata,
    status_named,
    text_problem,
)
from keepworth.memory.moment import Moment, checked_interval, later, moment
from keepworth.memory.near_duplicates import (
    LIKENESS,
    NEIGHBOURS,
    Pair,
    likeness,
    may_be_same,
    merge,
    merge_two,
    near_duplicates,
)
from keepworth.memory.open_memory import Message, OpenMemory
from keepworth.memory.operations import Assignment, Draft, Outcome
from keepworth.memory.scope import Scope
from keepworth.memory.transaction import Transaction


class MemoryWriting(OpenMemory):
    """Everything here is one journal entry or more, and can be rolled back, but for `forget(..., purge_history=True)`."""

    @overload
    def add(self, content: str, **options: Any) -> Item: ...

    @overload
    def add(self, content: Sequence[Message], **options: Any) -> list[Item]: ...

    def add(self, content: str | Sequence[Message], *, infer: bool = False, **options: Any) -> Item | list[Item]:
        """Remember a text, or messages ({"role": ..., "content": ...}); returns the item, or one per text kept. One message
        may come without a list around it.

        infer: let the extractor turn the content into facts first; a fact that was only just recalled is not stored again.
        Other options: see `add_many`. What an open item says already, in the same words and with nothing new beside them (time,
        metadata, trust, a longer life), is not stored again: that item is returned.
        """
        if isinstance(content, str) and not infer:
            return self.add_many([content], **options)[0]
        messages = _messages(content)
        if not infer:
            texts, sources = [], []
            for number, message in enumerate(messages):
                texts.append(checked_text(message.get("content"), f"message {number}"))
                speaker = checked_label(str(message.get("role", "")), f"role of message {number}")
                sources.append(Provenance("conversation", turn=number, speaker=speaker))
            return self.add_many(texts, provenances=sources, **options)
        if self._extractor is None:
            raise NoExtractor(
                "infer=True needs something that extracts facts: open the memory with extractor=..., "
                "or store the text as it is with infer=False"
            )
        facts = [fact for fact in self._extractor(messages) if folded(fact) not in self._recalled]
        return self.add_many(facts, **{"source": "extractor", **options})

    def add_many(
        self,
        texts: Sequence[str],
        *,
        user_id: str = "",
        agent_id: str = "",
        session_id: str = "",
        kind: ItemKind | str = ItemKind.FACT,
        key: str = "",
        event_time: Moment = "",
        valid_from: Moment = "",
        valid_to: Moment = "",
        expires_at: Moment = "",
        ttl: float | None = None,
        trust: float = 1.0,
        status: Status | str = Status.ACTIVE,
        metadata: Mapping[str, Any] | None = None,
        source: str = "",
        provenances: Sequence[Provenance] | None = None,
        dedupe: bool | float = False,
        repeat: bool = False,
        episode: str = "",
    ) -> list[Item]:
        """Remember several texts in one transaction: all of them or, if one is bad, none.

        key: what searches match instead of the text; event_time: when it happened; ttl: seconds until it is hidden;
        dedupe: True, or the cosine from which an item that says the same words in another spelling is looked for; the new one is
        merged into it, and it is returned (see `keepworth.memory.near_duplicates`);
        repeat: store exact duplicates too (the same line said twice in a conversation).
        Raises InvalidText, InvalidTime, InvalidScope, UnknownEpisode, StorageFull.
        """
        if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
            raise InvalidText(
                f"add_many takes several texts, got {type(texts).__name__}: give a list, or use add for one"
            )
        texts = list(texts)
        for number, text in enumerate(texts):
            checked_text(text, f"text number {number}" if len(texts) > 1 else "text")
        if key != "":
            checked_text(key, "key")
        checked_label(source, "source")
        self._check_episode(episode)
        scope = self._narrowed(user_id, agent_id, session_id)
        if ttl is not None:
            expires_at = later(moment(self._clock()), ttl)
        checked_interval(moment(valid_from), moment(valid_to))
        draft = Draft(
            kind=kind_named(kind),
            key=key,
            scope=scope,
            event_time=moment(event_time),
            valid_from=moment(valid_from),
            valid_to=moment(valid_to),
            expires_at=moment(expires_at),
            provenance=Provenance(source) if source else Provenance(),
            trust=_trust(trust),
            status=status_named(status),
            metadata=plain_metadata(metadata),
            deduplicate=not repeat,
        )
        sources = [draft.provenance] * len(texts) if provenances is None else list(provenances)
        for one in sources if provenances is not None else ():
            for part in ("source", "session", "speaker", "date"):
                checked_label(getattr(one, part), f"{part} of a provenance")
        if not texts:
            return []
        acts = [
            (Operation(OperationKind.ADD, text=text), draft if provenances is None else replace(draft, provenance=one))
            for text, one in zip(texts, sources, strict=True)
        ]
        vectors = self.store.encode([key] if key else texts)
        if dedupe:
            return self._add_unlike(acts, scope, vectors, likeness(dedupe), episode)
        done = self.store.perform_and_read(scope, acts, episode=episode, vectors=vectors)
        return [_there(item, outcome) for outcome, item in done]

    def apply(
        self,
        operation: Operation,
        *,
        user_id: str = "",
        agent_id: str = "",
        session_id: str = "",
        event_time: Moment = "",
        source: str = "",
        episode: str = "",
    ) -> Outcome:
        """Carry out what an agent asked for. A bad operation changes nothing and the outcome says why."""
        self._check_episode(episode)
        scope = self._narrowed(user_id, agent_id, session_id)
        draft = Draft(
            scope=scope, event_time=moment(event_time), provenance=Provenance(checked_label(source, "source"))
        )
        text = operation.text if isinstance(operation, Operation) else ""
        vectors = self.store.encode([text]) if text_problem(text) is None and len(text) <= 100_000 else {}
        try:
            return self.store.perform(scope, [(operation, draft)], episode=episode, vectors=vectors)[0]
        except ScopeFull as full:
            return Outcome(False, reason=str(full))

    def update(
        self,
        id: str,
        text: str | None = None,
        *,
        status: Status | str | None = None,
        trust: float | None = None,
        expires_at: Moment | None = None,
        metadata: Mapping[str, Any] | None = None,
        repeat: bool = False,
        episode: str = "",
    ) -> Item:
        """Reword an item (same id, same validity), or set fields that say nothing about the world. repeat: also where another
        item then says the same. Raises UnknownItem, InvalidText."""
        self._open_item(id)
        self._check_episode(episode)
        acts: list[tuple[Any, Draft]] = []
        draft = Draft(scope=self.scope, deduplicate=not repeat)
        if text is not None:
            acts.append((Operation(OperationKind.UPDATE, (id,), checked_text(text)), draft))
        fields: dict[str, Any] = {}
        if status is not None:
            fields["status"] = status_named(status).value
        if trust is not None:
            fields["trust"] = _trust(trust)
        if expires_at is not None:
            fields["expires_at"] = moment(expires_at)
        if metadata is not None:
            fields["metadata"] = plain_metadata(metadata)
        if fields:
            acts.append((Assignment(id, fields), draft))
        if not acts:
            raise InvalidText(
                f"update of {id} was given nothing to change: pass text, status, trust, expires_at or metadata"
            )
        outcomes = self.store.perform(
            self.scope, acts, episode=episode, vectors=self.store.encode([text] if text else [])
        )
        for outcome in outcomes:
            if not outcome.applied and outcome.reason != "unchanged":
                raise InvalidText(f"{id} was not updated: {outcome.reason}")
        return self.get(id)

    def supersede(
        self,
        id: str,
        text: str,
        *,
        event_time: Moment = "",
        key: str = "",
        expires_at: Moment = "",
        metadata: Mapping[str, Any] | None = None,
        source: str = "",
        episode: str = "",
    ) -> Item:
        """The fact changed: close the old item and store its successor, linked. Searches return the new one, `as_of` the old."""
        self._open_item(id)
        self._check_episode(episode)
        if key != "":
            checked_text(key, "key")
        draft = Draft(
            scope=self.scope,
            key=key,
            event_time=moment(event_time),
            expires_at=moment(expires_at),
            metadata=plain_metadata(metadata),
            provenance=Provenance(checked_label(source, "source")),
        )
        operation = Operation(OperationKind.SUPERSEDE, (id,), checked_text(text))
        vectors = self.store.encode([key or text])
        outcome = self.store.perform(self.scope, [(operation, draft)], episode=episode, vectors=vectors)[0]
        if not outcome.item:
            raise InvalidText(f"{id} was not superseded: {outcome.reason}")
        return self.get(outcome.item)

    def delete(self, id: str, *, episode: str = "") -> None:
        """Hide an item for good; its history stays and the deletion can be rolled back. Raises UnknownItem."""
        self._check_episode(episode)
        target = id if isinstance(id, str) else repr(id)
        outcome = self.store.perform(
            self.scope, [(Operation(OperationKind.DELETE, (target,)), Draft(scope=self.scope))], episode=episode
        )[0]
        if not outcome.applied:
            raise UnknownItem(
                f"no item {id!r:.80} to delete in this scope of {self.path}: searches and lists give the ids there are"
            )

    def delete_all(self, *, user_id: str = "", agent_id: str = "", session_id: str = "") -> int:
        """Delete every item of a scope; returns how many. At least one bound must be given, here or when opening."""
        scope = self._narrowed(user_id, agent_id, session_id)
        if scope == Scope(scope.tenant):
            raise InvalidScope("delete_all needs a user_id, agent_id or session_id: it never empties a whole memory")
        ids = [item.id for item in self.store.items(scope) if not item.deleted]
        draft = Draft(scope=scope)
        self.store.perform(scope, [(Operation(OperationKind.DELETE, (id,)), draft) for id in ids])
        return len(ids)

    def forget(self, *ids: str, purge_history: bool = False) -> purge.Erased | None:
        """Delete items; with `purge_history`, erase them, rolled-back ones too, and the logged queries that quote them, for good.
        Raises UnknownItem before anything changed."""
        if not ids:
            raise InvalidFilter("forget was given nothing to forget: pass the ids of items")
        if purge_history:
            self._decisions.flush()
            return self._erased(purge.purge(self.store, self.scope, ids))
        known = {item.id: item for item in map(self.get, ids)}
        gone = [id for id, item in known.items() if item.deleted]
        if gone:
            raise UnknownItem(f"{gone[0]} is deleted already: nothing was forgotten")
        draft = Draft(scope=self.scope)
        self.store.perform(self.scope, [(Operation(OperationKind.DELETE, (id,)), draft) for id in known])
        return None

    def erase(self, *, user_id: str = "", agent_id: str = "", session_id: str = "") -> purge.Erased:
        """Erase a person, an agent or a session for good: everything that was written inside that scope, whatever became of it,
        what was asked there, what its episodes were about, and its names. At least one bound must be given, here or when opening.

        Not reached: what others wrote about them in other scopes, backups, exports, and banks that are in use.
        Undo to before it raises Purged.
        """
        scope = self._narrowed(user_id, agent_id, session_id)
        if scope == Scope(scope.tenant):
            raise InvalidScope(
                "erase needs a user_id, agent_id or session_id: it never erases a whole memory; delete the file"
            )
        self._decisions.flush()
        return self._erased(purge.erase(self.store, self.scope, scope))

    def _erased(self, result: purge.Erased) -> purge.Erased:
        """What this handle remembers of it goes, too."""
        gone = set(result.ids)
        for text in [text for text, id in self._recalled.items() if id in gone]:
            del self._recalled[text]
        self._scopes.clear()
        return result

    def near_duplicates(
        self, *, user_id: str = "", agent_id: str = "", session_id: str = "", threshold: float = LIKENESS
    ) -> list[Pair]:
        """Items that say the same as an older one in another spelling. `Memory(dedupe=True)` merges them as they come."""
        scope = self._narrowed(user_id, agent_id, session_id)
        return list(near_duplicates(self.store, scope, threshold=likeness(threshold)))

    def merge_near_duplicates(self, pairs: Sequence[Pair]) -> list[Pair]:
        """Close the newer item of each pair in favour of the older; returns the pairs that were open still. Taken back with
        `rollback(source="near-duplicates")`."""
        return merge(self.store, self.scope, pairs)

    def _add_unlike(
        self,
        acts: list[tuple[Operation, Draft]],
        scope: Scope,
        vectors: Mapping[str, bytes],
        bound: float,
        episode: str,
    ) -> list[Item]:
        """Add texts, and merge each that says the same as an older item, or as an earlier text, into that; one transaction."""
        import numpy as np

        if self.store.embedder is None:
            raise NoEncoder("dedupe compares meanings and needs an encoder: open the memory with one")
        time = self._clock()
        searched = [draft.key or operation.text for operation, draft in acts]
        matrix = np.stack([np.frombuffer(vectors[text], np.float32) for text in searched])
        near = [
            [f"m{n}" for n, cosine in line if cosine >= bound] for line in self.store.dense(scope, matrix, NEIGHBOURS)
        ]

        def work(transaction: Transaction) -> list[Item]:
            out: list[Item] = []
            for position, (operation, draft) in enumerate(acts):
                outcome = transaction.perform(operation, draft, now=time, episode=episode)
                item = _there(transaction.get(outcome.item), outcome)
                if outcome.applied:
                    earlier = (out[one].id for one in np.flatnonzero(matrix[:position] @ matrix[position] >= bound))
                    for id in dict.fromkeys((*near[position], *earlier)):
                        older = transaction.get(id)
                        same = older is not None and older.visible(moment(time)) and may_be_same(older, item)
                        if (
                            older is not None
                            and same
                            and merge_two(transaction, id, item.id, now=time, episode=episode)
                        ):
                            item = older
                            break
                out.append(item)
            return out

        added: list[Item] = self.store.change(scope, work, vectors, bounded=True)
        return added


def _messages(content: object) -> Sequence[Message]:
    """`content` as messages. Raises InvalidText for what is neither a text nor messages."""
    if isinstance(content, str):
        return [{"role": "user", "content": content}]
    if isinstance(content, Mapping):
        return [content]
    if isinstance(content, (bytes, bytearray)) or not isinstance(content, Iterable):
        raise InvalidText(f"add takes a text or messages, got {type(content).__name__}: decode bytes first")
    messages = list(content)
    for number, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise InvalidText(
                f"message {number} must be a dictionary with role and content, got {type(message).__name__}: "
                "use add_many for several texts"
            )
    return messages


def _there(item: Item | None, outcome: Outcome) -> Item:
    if item is None:
        raise InvalidText(f"nothing was stored: {outcome.reason}")
    return item


def _trust(trust: float) -> float:
    if not isinstance(trust, (int, float)) or not 0.0 <= trust <= 1.0:
        raise InvalidFilter(f"trust must lie in [0, 1], got {trust!r:.40}")
    return float(trust)
