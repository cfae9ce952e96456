"""Memory: what users open. One file, familiar verbs, and what those lack: episodes, rewards, undo and the past.

m = Memory("agent.mem")
m.add("Ana is allergic to peanuts", user_id="ana")
with m.episode(user_id="ana", task="plan dinner") as episode:
    hits = episode.search("dietary limits", top_k=5)
    episode.reward(1.0)
m.rollback(episode.id)
"""

from __future__ import annotations

import json
import logging
import math
import os
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

from recollect.episodes.decision import Decision, DecisionKind
from recollect.episodes.encoder import Encoder, EncoderIdentity
from recollect.episodes.episode import Episode
from recollect.episodes.operation import Operation, OperationKind
from recollect.memory import decision_log, purge, undo
from recollect.memory.bank import Bank
from recollect.memory.decision_log import DecisionLog, Logged
from recollect.memory.embedding import Embedder
from recollect.memory.episode_record import assembled
from recollect.memory.errors import (
    InvalidFilter,
    InvalidReward,
    InvalidScope,
    InvalidText,
    NoEncoder,
    NoExtractor,
    StorageFull,
    UnknownEpisode,
    UnknownItem,
)
from recollect.memory.item import Item, ItemKind, Provenance, Status, checked_text, folded
from recollect.memory.moment import Clock, Moment, later, moment, now
from recollect.memory.operations import Assignment, Credit, Draft, Outcome
from recollect.memory.ranking import Fusion, Hit, Hits, Reranker, Selected, Selector
from recollect.memory.retrieval import POOL, Where
from recollect.memory.scope import Scope
from recollect.memory.store import Difference, Revision, Store

if TYPE_CHECKING:
    from recollect.memory.live_episode import LiveEpisode

Message = Mapping[str, Any]
Extractor = Callable[[Sequence[Message]], Iterable[str]]
RECALLED = 4096


_LOG = logging.getLogger("recollect.memory")


def _new_id() -> str:
    return uuid.uuid4().hex[:16]


class Memory:
    """Thread-safe; several processes may open one file at once.

    path: a file (made if missing) or ":memory:".
    encoder: something that encodes, or the name of one; None for a memory that is searched by words only.
    tenant, user_id, agent_id, session_id: bounds of this handle. Calls can narrow them, never widen or change them.
    durability: "process" survives a killed process, "power" a lost machine (one disk sync per group of writes).
    index: how large memories are searched by meaning: "exact", "int8" or "graph" (see `recollect.memory.quantised`).
    log: "background" logs every search outside episodes, "off" none; `log_share` of them are kept, chosen at random.
    keep_candidates: how many logged decisions keep their full candidate list (None: all).
    extractor: turns messages into facts for `add(..., infer=True)`.
    max_items: current items a scope may hold; a write beyond it is refused.
    """

    encoder_named: Callable[[str, EncoderIdentity | None], Encoder] | None = None
    """Finds an encoder by name, or the one with a given identity. `recollect.Memory` has one; this room knows of no models."""

    def __init__(
        self,
        path: str | os.PathLike[str] = ":memory:",
        *,
        encoder: Encoder | str | None = "default",
        tenant: str = "",
        user_id: str = "",
        agent_id: str = "",
        session_id: str = "",
        durability: str = "process",
        read_only: bool = False,
        fusion: Fusion | None = None,
        index: str = "exact",
        log: str = "background",
        log_share: float = 1.0,
        keep_candidates: int | None = None,
        extractor: Extractor | None = None,
        max_items: int | None = None,
        clock: Clock = now,
        new_id: Callable[[], str] = _new_id,
    ) -> None:
        if log not in ("background", "off"):
            raise InvalidFilter(f"log={log!r} does not exist: use 'background' or 'off'")
        if not 0.0 <= log_share <= 1.0:
            raise InvalidFilter(f"log_share must lie in [0, 1], got {log_share}")
        self.scope = Scope(tenant, user_id, agent_id, session_id)
        self.fusion = fusion or Fusion()
        self._extractor = extractor
        self._max_items = max_items
        self._clock = clock
        self._new_id = new_id
        self._log_share = log_share if log == "background" else 0.0
        self.store = Store(path, durability=durability, read_only=read_only, index=index, clock=clock)
        found = self._named(encoder) if isinstance(encoder, str) else encoder
        if found is not None:
            self.store.use(Embedder(found))
        if self.read_only:
            _LOG.warning("%s is read-only: searches work but are not logged, so no reward can reach them", self.path)
        self._decisions = DecisionLog(self.store, keep=keep_candidates)
        self._recalled: OrderedDict[str, str] = OrderedDict()
        self._draws = _uniform(self.store.store_id())

    @property
    def path(self) -> str:
        return self.store.database.path

    @property
    def read_only(self) -> bool:
        return self.store.database.read_only

    def close(self) -> None:
        """Write what is waiting and let go of the file. A large memory leaves its vectors ready to be mapped."""
        if not self.read_only:
            self._decisions.close()
        self.store.close()

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return self.store.sums(self.scope)[1]

    # Writing.

    @overload
    def add(self, content: str, **options: Any) -> Item: ...

    @overload
    def add(self, content: Sequence[Message], **options: Any) -> list[Item]: ...

    def add(self, content: str | Sequence[Message], *, infer: bool = False, **options: Any) -> Item | list[Item]:
        """Remember a text, or messages ({"role": ..., "content": ...}); returns the item, or one per text kept.

        infer: let the extractor turn the content into facts first; a fact that was only just recalled is not stored again.
        Other options: see `add_many`. An exact duplicate of an open item is not stored again: that item is returned.
        """
        if isinstance(content, str) and not infer:
            return self.add_many([content], **options)[0]
        messages: Sequence[Message] = [{"role": "user", "content": content}] if isinstance(content, str) else content
        if not infer:
            texts, sources = [], []
            for number, message in enumerate(messages):
                texts.append(checked_text(message.get("content"), f"message {number}"))
                sources.append(Provenance("conversation", turn=number, speaker=str(message.get("role", ""))))
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
        dedupe: True, or the cosine from which an item with other words counts as the same and is returned instead;
        repeat: store exact duplicates too (the same line said twice in a conversation).
        Raises InvalidText, InvalidTime, InvalidScope, StorageFull.
        """
        if isinstance(texts, str):
            raise InvalidText("add_many takes several texts: give a list, or use add for one")
        texts = list(texts)
        for number, text in enumerate(texts):
            checked_text(text, f"text number {number}" if len(texts) > 1 else "text")
        if key:
            checked_text(key, "key")
        scope = self._narrowed(user_id, agent_id, session_id)
        if ttl is not None:
            expires_at = later(moment(self._clock()), ttl)
        draft = Draft(
            kind=_kind(kind),
            key=key,
            scope=scope,
            event_time=moment(event_time),
            valid_from=moment(valid_from),
            valid_to=moment(valid_to),
            expires_at=moment(expires_at),
            provenance=Provenance(source) if source else Provenance(),
            trust=_trust(trust),
            status=Status(status),
            metadata=_plain(metadata),
            deduplicate=not repeat,
        )
        sources = [draft.provenance] * len(texts) if provenances is None else list(provenances)
        self._check_room(scope, len(texts))
        if dedupe:
            return [
                self._near(text, draft, scope, 0.95 if dedupe is True else float(dedupe), episode) for text in texts
            ]
        acts = [
            (Operation(OperationKind.ADD, text=text), draft if provenances is None else replace(draft, provenance=one))
            for text, one in zip(texts, sources, strict=True)
        ]
        vectors = self.store.encode([key] if key else texts)
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
        scope = self._narrowed(user_id, agent_id, session_id)
        draft = Draft(scope=scope, event_time=moment(event_time), provenance=Provenance(source))
        texts = [operation.text] if isinstance(operation.text, str) and operation.text.strip() else []
        vectors = self.store.encode(texts) if texts and len(texts[0]) <= 100_000 else {}
        return self.store.perform(scope, [(operation, draft)], episode=episode, vectors=vectors)[0]

    def update(
        self,
        id: str,
        text: str | None = None,
        *,
        status: Status | str | None = None,
        trust: float | None = None,
        expires_at: Moment | None = None,
        metadata: Mapping[str, Any] | None = None,
        episode: str = "",
    ) -> Item:
        """Reword an item (same id, same validity), or set fields that say nothing about the world. Raises UnknownItem."""
        self._open_item(id)
        acts: list[tuple[Any, Draft]] = []
        draft = Draft(scope=self.scope)
        if text is not None:
            acts.append((Operation(OperationKind.UPDATE, (id,), checked_text(text)), draft))
        fields: dict[str, Any] = {}
        if status is not None:
            fields["status"] = Status(status).value
        if trust is not None:
            fields["trust"] = _trust(trust)
        if expires_at is not None:
            fields["expires_at"] = moment(expires_at)
        if metadata is not None:
            fields["metadata"] = _plain(metadata)
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
        if key:
            checked_text(key, "key")
        draft = Draft(
            scope=self.scope,
            key=key,
            event_time=moment(event_time),
            expires_at=moment(expires_at),
            metadata=_plain(metadata),
            provenance=Provenance(source),
        )
        operation = Operation(OperationKind.SUPERSEDE, (id,), checked_text(text))
        vectors = self.store.encode([key or text])
        outcome = self.store.perform(self.scope, [(operation, draft)], episode=episode, vectors=vectors)[0]
        if not outcome.item:
            raise InvalidText(f"{id} was not superseded: {outcome.reason}")
        return self.get(outcome.item)

    def delete(self, id: str, *, episode: str = "") -> None:
        """Hide an item for good; its history stays and the deletion can be rolled back. Raises UnknownItem."""
        outcome = self.store.perform(
            self.scope, [(Operation(OperationKind.DELETE, (id,)), Draft(scope=self.scope))], episode=episode
        )[0]
        if not outcome.applied:
            raise UnknownItem(f"no item {id!r:.80} to delete in this scope")

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
        """Delete items; with `purge_history`, erase them everywhere, for good. Raises UnknownItem before anything changed."""
        for id in ids:
            self.get(id)
        if purge_history:
            self._decisions.flush()
            for id in ids:
                self._recalled.pop(folded(self.get(id).text), None)
            return purge.purge(self.store, self.scope, ids)
        for id in ids:
            self.delete(id)
        return None

    # Reading.

    def get(self, id: str) -> Item:
        """An item in its latest state, closed and deleted ones too. Raises UnknownItem."""
        item = self.store.fetch(self.scope, [id])[id] if isinstance(id, str) else None
        if item is None:
            erased = isinstance(id, str) and purge.is_tombstone(self.store, self.scope, id)
            raise UnknownItem(f"{id} was erased on purpose" if erased else f"no item {id!r:.80} in this scope")
        return item

    def get_all(
        self,
        *,
        user_id: str = "",
        agent_id: str = "",
        session_id: str = "",
        kinds: Sequence[ItemKind | str] = (),
        limit: int = 100,
        after: str = "",
        all_states: bool = False,
    ) -> list[Item]:
        """Items in order of writing, `limit` at a time: pass the last id as `after` for the next page."""
        scope = self._narrowed(user_id, agent_id, session_id)
        chosen = {_kind(kind) for kind in kinds}
        start = int(after[1:]) if after else 0
        time = moment(self._clock())
        out: list[Item] = []
        while len(out) < limit:
            page = list(self.store.items(scope, after=start, limit=max(limit, 256), current=not all_states))
            if not page:
                break
            start = int(page[-1].id[1:])
            out.extend(
                item for item in page if (not chosen or item.kind in chosen) and (all_states or item.visible(time))
            )
        return out[:limit]

    def search(
        self,
        query: str,
        *,
        top_k: int = 10,
        user_id: str = "",
        agent_id: str = "",
        session_id: str = "",
        mode: str | None = None,
        explain: bool = False,
        kinds: Sequence[ItemKind | str] = (),
        statuses: Sequence[Status | str] = (Status.ACTIVE,),
        where: Where = None,
        since: Moment = "",
        until: Moment = "",
        as_of: Moment = "",
        diversity: float = 0.0,
        reranker: Reranker | None = None,
        threshold: float | None = None,
        selector: Selector | None = None,
        episode: str = "",
        step: int = 0,
    ) -> Hits:
        """The `top_k` best items, best first; `.decision` is what `reward` takes. Options as in `Bank.search_many`.

        threshold: hits with a lower score are left out; selector: chooses among more candidates than are shown, and says
        with what probability (by default the best are shown, with probability 1).
        """
        return self.search_many(
            [query],
            top_k=top_k,
            user_id=user_id,
            agent_id=agent_id,
            session_id=session_id,
            threshold=threshold,
            selector=selector,
            episode=episode,
            step=step,
            mode=mode,
            explain=explain,
            kinds=kinds,
            statuses=statuses,
            where=where,
            since=since,
            until=until,
            as_of=as_of,
            diversity=diversity,
            reranker=reranker,
        )[0]

    def search_many(
        self,
        queries: Sequence[str],
        *,
        top_k: int = 10,
        user_id: str = "",
        agent_id: str = "",
        session_id: str = "",
        threshold: float | None = None,
        selector: Selector | None = None,
        episode: str = "",
        step: int = 0,
        mode: str | None = None,
        **options: Any,
    ) -> list[Hits]:
        """`search` for several queries: encoded together, compared in one matrix product, logged in one transaction."""
        for number, query in enumerate(queries):
            if not isinstance(query, str):
                raise InvalidText(f"query number {number} must be text, got {type(query).__name__}")
        scope = self._narrowed(user_id, agent_id, session_id)
        embedder = self.store.embedder
        if mode is None:
            mode = "hybrid" if embedder is not None else "lexical"
        bank = Bank.on(self.store.ground(scope), embedder, scope=scope, clock=self._clock, fusion=self.fusion)
        with self.store.database.reading():
            wide = top_k if selector is None else max(POOL, 5 * top_k)
            found = bank.search_many(queries, wide, mode=mode, **options)
        results, choices = [], []
        for query, hits in zip(queries, found, strict=True):
            candidates = [hit for hit in hits if threshold is None or hit.score >= threshold]
            if selector is None:
                choice = Selected(tuple(range(len(candidates))), 1.0, f"static:{mode}")
            else:
                choice = _checked_choice(selector(query, candidates, top_k), len(candidates), top_k)
            kept = [candidates[position] for position in choice.positions]
            for hit in kept:
                self._note_recalled(hit.item)
            results.append(Hits(kept))
            choices.append((candidates, choice))
        self._log(queries, results, choices, scope, episode, step)
        return results

    def history(self, id: str) -> list[Revision]:
        """Everything that happened to an item, oldest first. Raises UnknownItem."""
        found = self.store.history(self.scope, id)
        if not found:
            self.get(id)
        return found

    # Outcome.

    def episode(self, *, user_id: str = "", agent_id: str = "", session_id: str = "", task: str = "") -> LiveEpisode:
        """One attempt at a task: what is read and written inside is recorded together, rewarded together, undone together."""
        from recollect.memory.live_episode import LiveEpisode

        scope = self._narrowed(user_id, agent_id, session_id)
        id = f"e{self._new_id()}"

        def begin(transaction: Any) -> None:
            transaction.connection.execute(
                "INSERT INTO episodes(id, scope, task, began) VALUES(?,?,?,?)",
                (id, transaction.book.row(scope).id, task, self._clock()),
            )

        self.store.change(scope, begin)
        return LiveEpisode(self, id, scope, task)

    def reward(self, target: str, value: float, *, source: str = "user") -> Outcome:
        """Credit an episode, or one decision, with a reward: at once or days later. Every item shown gets the value, together
        with the probability it had of being shown. Raises UnknownEpisode, InvalidReward."""
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
            raise InvalidReward(f"a reward must be a finite number, got {value!r}")
        self._decisions.flush()
        with self.store.database.reading() as connection:
            from recollect.memory.database import first

            row = first(connection, "SELECT scope FROM episodes WHERE id = ?", (target,))
            if row is not None:
                shown = decision_log.of_episode(connection, target)
                home, episode, decision = row[0], target, ""
            else:
                one = decision_log.find(connection, target)
                if one is None:
                    raise UnknownEpisode(f"no episode or decision {target!r:.80} in this memory: was it logged?")
                shown, home, episode, decision = [one[0]], one[2], one[1], target
            scope = self.store.scope_named(connection, home)
        if not self.scope.contains(scope):
            raise UnknownEpisode(f"no episode or decision {target!r:.80} in this memory: was it logged?")
        items = tuple((id, one.propensity) for one in shown for id in one.chosen)
        act = Credit(float(value), items, source, decision)
        return self.store.perform(scope, [(act, Draft(scope=scope))], episode=episode)[0]

    def episode_record(self, id: str) -> Episode:
        """What the journal knows of an episode, as the record that training and viewing share. Raises UnknownEpisode."""
        self._decisions.flush()
        return assembled(self.store, self.scope, id)

    # Undo.

    def snapshot(self) -> str:
        """A name for the present state, for `restore`, `diff` and `bank`."""
        return f"s{self.store.head()}"

    def rollback(self, target: str = "", *, source: str = "", since: str = "") -> undo.Rollback:
        """Undo everything an episode did (`target` its id), everything from a source, or everything since a snapshot.

        What would have happened without it is what remains; entries that no longer apply are listed in the result.
        `rollback(result.id)` undoes the rollback. Raises UnknownEpisode, UnknownSnapshot, Purged.
        """
        given = [bool(target), bool(source), bool(since)]
        if sum(given) != 1:
            raise InvalidFilter("rollback takes one of: an episode or rollback id, source=..., since=<snapshot>")
        self._decisions.flush()
        return undo.rollback(self.store, self.scope, target=target, source=source, since=since)

    def restore(self, snapshot: str) -> undo.Rollback:
        """Make the memory of this scope what it was at a snapshot. Can itself be rolled back."""
        return self.rollback(since=snapshot)

    def diff(self, one: str, other: str = "") -> list[Difference]:
        """Items that differ between two snapshots (by default: between `one` and now)."""
        return self.store.diff(self.scope, one, other or self.snapshot())

    # Agents.

    def bank(
        self, scope: Scope | None = None, *, user_id: str = "", agent_id: str = "", session_id: str = "", at: str = ""
    ) -> Bank:
        """A bank over a snapshot (by default: now). What is written to it stays in it until `commit`."""
        narrowed = scope if scope is not None else self._narrowed(user_id, agent_id, session_id)
        if not self.scope.contains(narrowed):
            raise InvalidScope(f"{narrowed} is not inside {self.scope}")
        ground = self.store.ground(narrowed, at or self.snapshot())
        return Bank.on(ground, self.store.embedder, scope=narrowed, clock=self._clock, fusion=self.fusion)

    def commit(self, bank: Bank, *, episode: str = "") -> list[Outcome]:
        """Do on the memory, in one transaction, what was done on a bank of it. Operations are carried out again: where the
        memory moved on meanwhile, one may no longer apply, and its outcome says so."""
        return bank.commit_to(self.store, episode)

    # Parts.

    def _log(
        self,
        queries: Sequence[str],
        results: list[Hits],
        choices: list[tuple[list[Hit], Selected]],
        scope: Scope,
        episode: str,
        step: int,
    ) -> None:
        if self.read_only or (not episode and not self._log_share):
            return
        entries = []
        for query, hits, (listed, choice) in zip(queries, results, choices, strict=True):
            if not episode and self._log_share < 1.0 and next(self._draws) >= self._log_share:
                continue
            hits.decision = f"d{self._new_id()}"
            decision = Decision(
                id=hits.decision,
                kind=DecisionKind.SEARCH,
                query=query[:10_000],
                candidates=tuple((hit.id, hit.score) for hit in listed),
                chosen=tuple(hit.id for hit in hits),
                propensity=choice.propensity,
                policy=choice.policy,
                step=step,
            )
            entries.append(Logged(self._clock(), scope, episode, decision))
        if episode:
            self._decisions.write(entries)
        else:
            for entry in entries:
                self._decisions.later(entry)

    def _narrowed(self, user_id: str, agent_id: str, session_id: str) -> Scope:
        if not (user_id or agent_id or session_id):
            return self.scope
        parts = {"user": user_id, "agent": agent_id, "session": session_id}
        return self.scope.narrowed(**{name: value for name, value in parts.items() if value})

    def _open_item(self, id: str) -> Item:
        item = self.get(id)
        if not item.open:
            raise UnknownItem(
                f"{id} is closed ({'deleted' if item.deleted else 'superseded by ' + item.superseded_by})"
            )
        return item

    def _check_room(self, scope: Scope, more: int) -> None:
        if self._max_items is not None and self.store.sums(scope)[1] + more > self._max_items:
            raise StorageFull(f"this scope may hold {self._max_items} items: delete some, or raise max_items")

    def _near(self, text: str, draft: Draft, scope: Scope, threshold: float, episode: str) -> Item:
        """Add one text unless an open item of its kind says nearly the same."""
        if self.store.embedder is None:
            raise NoEncoder("dedupe compares meanings and needs an encoder: open the memory with one")
        bank = Bank.on(self.store.ground(scope), self.store.embedder, scope=scope, clock=self._clock)
        like = bank.search(draft.key or text, 1, mode="dense", kinds=[draft.kind])
        if like and (like[0].dense or 0.0) >= threshold and like[0].item.scope == scope:
            return like[0].item
        vectors = self.store.encode([draft.key or text])
        act = Operation(OperationKind.ADD, text=text)
        outcome = self.store.perform(scope, [(act, draft)], episode=episode, vectors=vectors)[0]
        return self.get(outcome.item)

    def _note_recalled(self, item: Item) -> None:
        self._recalled[folded(item.text)] = item.id
        while len(self._recalled) > RECALLED:
            self._recalled.popitem(last=False)

    def _named(self, name: str) -> Encoder:
        """An encoder by name; "default" is the one that made the vectors on file, else the usual one."""
        try:
            find = type(self).encoder_named
            if find is None:
                raise NoEncoder(
                    f"encoder {name!r} is a name and this class knows none: use `from recollect import Memory`, "
                    "pass an encoder, or encoder=None to search by words only"
                )
            return find(name, self.store.encoder_identity() if name == "default" else None)
        except BaseException:
            self.store.close()
            raise


def _uniform(seed: str) -> Iterator[float]:
    import random

    draw = random.Random(seed + str(os.getpid()))
    while True:
        yield draw.random()


def _checked_choice(choice: Selected, candidates: int, k: int) -> Selected:
    inside = all(0 <= position < candidates for position in choice.positions)
    if not inside or len(set(choice.positions)) != len(choice.positions) or len(choice.positions) > k:
        raise InvalidFilter(f"the selector chose {choice.positions} of {candidates} candidates for {k} places")
    if not 0.0 < choice.propensity <= 1.0:
        raise InvalidFilter(f"the selector gave its choice the probability {choice.propensity}: it must lie in (0, 1]")
    return choice


def _there(item: Item | None, outcome: Outcome) -> Item:
    if item is None:
        raise InvalidText(f"nothing was stored: {outcome.reason}")
    return item


def _kind(kind: ItemKind | str) -> ItemKind:
    try:
        return ItemKind(kind)
    except ValueError:
        raise InvalidFilter(
            f"kind {kind!r:.40} does not exist: use one of {', '.join(k.value for k in ItemKind)}"
        ) from None


def _trust(trust: float) -> float:
    if not isinstance(trust, (int, float)) or not 0.0 <= trust <= 1.0:
        raise InvalidFilter(f"trust must lie in [0, 1], got {trust!r:.40}")
    return float(trust)


def _plain(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Metadata as it comes back from the file. Raises InvalidText for what is not plain data."""
    if not metadata:
        return {}
    try:
        text = json.dumps(dict(metadata), allow_nan=False, ensure_ascii=False)
        text.encode("utf-8")
    except (TypeError, ValueError) as error:
        raise InvalidText(f"metadata must be plain data (text, numbers, lists, dictionaries): {error}") from error
    plain: dict[str, Any] = json.loads(text)
    return plain
