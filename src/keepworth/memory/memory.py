"""Memory: what users open. One file, familiar verbs, and what those lack: episodes, rewards, undo and the past.

m = Memory("agent.mem")
m.add("Ana is allergic to peanuts", user_id="ana")
with m.episode(user_id="ana", task="plan dinner") as episode:
    hits = episode.search("dietary limits", top_k=5)
    episode.reward(1.0)
m.rollback(episode.id)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from keepworth.episodes.episode import Episode
from keepworth.memory import decision_log, undo
from keepworth.memory.bank import Bank
from keepworth.memory.episode_record import assembled
from keepworth.memory.errors import (
    InvalidFilter,
    InvalidScope,
    InvalidText,
    UnknownEpisode,
    UnknownItem,
)
from keepworth.memory.item import Item, ItemKind, checked_label, kind_named
from keepworth.memory.memory_writing import MemoryWriting
from keepworth.memory.moment import moment
from keepworth.memory.open_memory import Extractor, Message
from keepworth.memory.operations import Credit, Draft, Outcome, checked_reward
from keepworth.memory.ranking import Hits, Selected, Selector
from keepworth.memory.retrieval import POOL, SearchOptions, checked_count, several
from keepworth.memory.rows import number_of
from keepworth.memory.scope import Scope
from keepworth.memory.store import Difference, Revision

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from keepworth.memory.live_episode import LiveEpisode


class Memory(MemoryWriting):
    """Thread-safe; several processes may open one file at once.

    path: a file (made if missing) or ":memory:".
    encoder: something that encodes, or the name of one; None for a memory that is searched by words only.
    tenant, user_id, agent_id, session_id: bounds of this handle. Calls can narrow them, never widen or change them.
    durability: "process" survives a killed process, "power" a lost machine (one disk sync per group of writes).
    index: how large memories are searched by meaning: "exact", "int8" or "pq" (see `keepworth.memory.quantised`).
    log: "background" logs every search outside episodes, "off" none; `log_share` of them are kept, chosen at random.
    keep_candidates: how many logged decisions keep their full candidate list (None: all).
    extractor: turns messages into facts for `add(..., infer=True)`.
    max_items: current items a scope may hold; a write beyond it is refused.
    dedupe: True, or a cosine: items that say the same as an older one in another spelling are merged into it, on a thread beside.
    """

    # Reading.

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
        chosen = {kind_named(kind) for kind in several(kinds, "kinds", "fact")}
        checked_count(limit)
        start = number_of(after) if after else 0
        if start is None:
            raise UnknownItem(f"after={after!r:.40} is no item's id: pass the last id of the page before")
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
        threshold: float | None = None,
        selector: Selector | None = None,
        episode: str = "",
        step: int = 0,
        **options: Unpack[SearchOptions],
    ) -> Hits:
        """The `top_k` best items, best first; `.decision` is what `reward` takes.

        mode: "lexical", "dense" or "hybrid"; by default hybrid where there is an encoder. threshold: hits with a lower score
        are left out; of a hybrid search that is the fused score (`Fusion`), of a dense one the cosine, of a lexical one BM25.
        selector: chooses among more candidates than are shown, and says with what probability (by default the
        best are shown, with probability 1). options: explain, kinds, statuses, where, since, until, as_of, diversity and
        reranker, as `retrieval.SearchOptions` says.
        """
        return self.search_many(
            [query],
            top_k=top_k,
            user_id=user_id,
            agent_id=agent_id,
            session_id=session_id,
            mode=mode,
            threshold=threshold,
            selector=selector,
            episode=episode,
            step=step,
            **options,
        )[0]

    def search_many(
        self,
        queries: Sequence[str],
        *,
        top_k: int = 10,
        user_id: str = "",
        agent_id: str = "",
        session_id: str = "",
        mode: str | None = None,
        threshold: float | None = None,
        selector: Selector | None = None,
        episode: str = "",
        step: int = 0,
        **options: Unpack[SearchOptions],
    ) -> list[Hits]:
        """`search` for several queries: encoded together, compared in one matrix product, logged in one transaction."""
        if isinstance(queries, (str, bytes)) or not isinstance(queries, Iterable):
            raise InvalidText(f"search_many takes several queries, got {type(queries).__name__}: use search for one")
        queries = list(queries)
        for number, query in enumerate(queries):
            if not isinstance(query, str):
                raise InvalidText(f"query number {number} must be text, got {type(query).__name__}")
            checked_label(query, f"query number {number}")
        checked_count(top_k)
        self._check_episode(episode)
        if threshold is not None and (not isinstance(threshold, (int, float)) or math.isnan(threshold)):
            raise InvalidFilter(f"threshold must be a number, got {threshold!r:.40}")
        scope = self._narrowed(user_id, agent_id, session_id)
        embedder = self.store.embedder
        if mode is None:
            mode = "hybrid" if embedder is not None else "lexical"
        highest = self.fusion.highest if mode == "hybrid" else 1.0 if mode == "dense" else math.inf
        if threshold is not None and threshold > highest and options.get("reranker") is None:
            raise InvalidFilter(
                f"threshold={threshold:g} leaves nothing, whatever is asked: the highest score of a {mode} search is "
                f"{highest:.4g}; with mode='dense' the score is the cosine"
            )
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
        from keepworth.memory.live_episode import LiveEpisode

        scope = self._narrowed(user_id, agent_id, session_id)
        checked_label(task, "task")
        id = f"e{self._new_id()}"

        def begin(transaction: Any) -> None:
            transaction.connection.execute(
                "INSERT INTO episodes(id, scope, task, began) VALUES(?,?,?,?)",
                (id, transaction.book.row(scope).id, task, self._clock()),
            )

        self.store.change(scope, begin)
        self._known_episodes.add(id)
        return LiveEpisode(self, id, scope, task)

    def reward(self, target: str, value: float, *, source: str = "user") -> Outcome:
        """Credit an episode, or one decision, with a reward: at once or days later. Every item shown gets the value, together
        with the probability it had of being shown. Raises UnknownEpisode, InvalidReward."""
        value = checked_reward(value)
        checked_label(source, "source")
        if not isinstance(target, str) or not target.isascii():
            raise UnknownEpisode(f"no episode or decision {target!r:.80} in this memory: ids are text that it gave")
        self._decisions.flush()
        with self.store.database.reading() as connection:
            from keepworth.memory.database import first

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
        act = Credit(value, items, source, decision)
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
        memory moved on meanwhile, one may no longer apply, and its outcome says so. Raises InvalidScope."""
        if not self.scope.contains(bank.scope):
            raise InvalidScope(f"the bank's {bank.scope} is not inside {self.scope}: nothing was written")
        self._check_episode(episode)
        return bank.commit_to(self.store, episode)


def _checked_choice(choice: Selected, candidates: int, k: int) -> Selected:
    inside = all(0 <= position < candidates for position in choice.positions)
    if not inside or len(set(choice.positions)) != len(choice.positions) or len(choice.positions) > k:
        raise InvalidFilter(f"the selector chose {choice.positions} of {candidates} candidates for {k} places")
    if not 0.0 < choice.propensity <= 1.0:
        raise InvalidFilter(f"the selector gave its choice the probability {choice.propensity}: it must lie in (0, 1]")
    return choice


__all__ = ["Extractor", "Memory", "Message"]
