"""Learning: the policy of a memory with what it has learned, kept equal to what the journal says.

What is learned is a function of the rewards that count, in the order of the journal, each with the choices that led to it. So a
file that is opened again, another process that learns on the same file, and a rollback all come to the same: read what is new,
or read all of it again. Nothing is read before the first choice. Of a policy whose record can be saved, what was learned is
written now and then, and a new process goes on from there (`keepworth.memory.store.saved_state`).

| what happened | what is written |
| --- | --- |
| a choice | its decision: candidates, what was shown, the propensity, what the policy knew, the vector of the query |
| an action, the reward of a step | a note in the journal |
| a reward | a credit in the journal; of a policy that keeps items of its own also those, in the same transaction |
| `SAVED_EVERY` rewards | what was learned, in a transaction of its own |
"""

from __future__ import annotations

import logging
import os
import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from keepworth.base.recent import Recent
from keepworth.memory import operations
from keepworth.memory.choose.admission import checked_proposal
from keepworth.memory.choose.answers import advised_problem, details_problem, explained_problem, proven_problem
from keepworth.memory.choose.consensus import AGREED, Consensus
from keepworth.memory.choose.experience import Experience
from keepworth.memory.choose.hashed_words import HashedWords
from keepworth.memory.choose.ledger import Balance
from keepworth.memory.choose.mirror import Mirror, as_pooled
from keepworth.memory.choose.named import NEWEST, OLDEST, roles_of
from keepworth.memory.choose.pool import Advice
from keepworth.memory.choose.record import NO_RECORD, PolicyRecord
from keepworth.memory.choose.replay import Replay, details_of, packed_vector, rewarded_choices
from keepworth.memory.choose.slots import Candidates, Policy, Presented, Query, SearchedCandidates, Use, lines
from keepworth.memory.choose.wordings import Wordings, item_of, texts_of
from keepworth.memory.errors import MemoryProblem
from keepworth.memory.item import Item, Reach, Scope, reward_source
from keepworth.memory.operations import Credit, OperationOutcome
from keepworth.memory.overlay import Bank, Overlay
from keepworth.memory.search.how_many import AUTO, WIDEST, SetSize
from keepworth.memory.search.search import UNEXPLAINED, Ask, Chosen, Hit, Hits, Worth, asked, duplicate_words
from keepworth.memory.store import episode_log, log, saved_state
from keepworth.memory.store.connection import AnyConnection
from keepworth.memory.store.decision_log import TEXTS
from keepworth.memory.store.episode_log import Rewarded
from keepworth.memory.store.log import About, News, RewardIndex
from keepworth.records.model import Encoder

if TYPE_CHECKING:
    from keepworth.base.arrays import Floats, Vectors
    from keepworth.memory.search.index import Embedder
    from keepworth.memory.store.store import Store
    from keepworth.memory.store.transaction import Transaction


_LOG = logging.getLogger("keepworth.memory")
LIVE = 1_000
"""Number of episodes for which it is kept in memory what they showed and withheld; for others it is read from the log."""
SAVED_EVERY, SAVED_SHARE = 64, 1 / 64
"""Number of rewards after which what was learned is saved, so that the next process need not learn from them again; and what
share of all that are remembered it is at least, as a save takes the longer the more these are."""
HANDLES = 256
"""Number of narrower handles, the latest used, for which it is kept in memory what they may know."""
ENCODED = 2_000
"""Largest number of rewarded queries without a stored vector, the newest, that are encoded again when a memory is opened."""


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """What a search found: hits, best first; the vector of the query, if one was needed; the entry of the journal up to which it
    looked; how many of the hits are worth showing, if it was asked to decide that; and whether it was asked to go by words
    alone."""

    hits: list[Hit]
    vector: Vectors | None
    head: int
    size: SetSize | None
    by_words: bool


@dataclass(frozen=True, slots=True)
class CandidateSources:
    """Where candidates come from, and which may be shown.

    Attributes:
        search: The memory's own search.
        searched: Whether it is used even if the policy has a retriever.
        stage: The later stages of a search, for candidates (id, score) of a retriever; `staged` says that there are some.
        admits: Whether an item may be shown at all; `narrowly` says that only a few may.
        always: The ids of items that are shown in any case, or were shown before, so that chance decides about none of them.
    """

    search: Callable[[], SearchAnswer]
    searched: bool
    stage: Callable[[list[tuple[str, float]]], list[Hit]]
    staged: bool
    admits: Callable[[Item], bool]
    narrowly: bool
    always: frozenset[str]


@dataclass(frozen=True, slots=True)
class Weighed:
    """A choice that is not shown yet: what was chosen among which hits, what the search found, and what the episode has
    shown and withheld so far, if the policy goes by that."""

    use: Use
    hits: list[Hit]
    answer: SearchAnswer | None
    drawn: log.EpisodeDraws | None

    @property
    def ids(self) -> list[str]:
        """Return the ids of the items that were chosen, in order."""
        return [self.hits[index].id for index in self.use.slate]

    @property
    def certain_ids(self) -> list[str]:
        """Return the ids of what the policy would have chosen without chance."""
        assert self.use.choice is not None
        return [self.hits[index].id for index in self.use.choice.certain().draw(np.random.default_rng(0))[0]]

    def probability(self, ids: Sequence[str]) -> float:
        """Return the probability with which the policy would have chosen just these items in this order."""
        places = {hit.id: place for place, hit in enumerate(self.hits)}
        if any(id not in places for id in ids):
            return 0.0
        assert self.use.choice is not None
        return min(1.0, max(0.0, float(self.use.choice.probability([places[id] for id in ids]))))


class Learning:
    """The policy of one scope of a memory, with what it has learned from the rewards given inside it. Thread-safe.

    `make` makes a fresh policy of that name, and `accountant` one with a record, which computes the ledger for policies without.
    Rewards outside `reward_range` are refused. Without a `seed`, its draws differ each
    time."""

    def __init__(
        self,
        store: Store,
        scope: Scope,
        make: Callable[[], Policy],
        name: str,
        accountant: Callable[[], Policy],
        *,
        reward_range: tuple[float, float] = (0.0, 1.0),
        seed: int | None = None,
    ) -> None:
        self.store, self.scope, self.policy, self.reward_range = store, scope, name, reward_range
        self.make, self._accountant, self._seed = make, accountant, seed
        policy = self._fresh()
        self.keeps = policy.keeps  # items of its own, so that an episode is closed with its reward
        self.retrieves = policy.retriever is not None  # else it chooses among what the memory's own search finds
        self.by_number = self.retrieves or policy.record is None  # whether a choice needs the number of its episode
        self._unsaved = (
            0  # rewards that were learned from since that was saved: those of this process, and those at opening
        )
        self._loaded = False  # whether this process went on from a saved state, or has saved one
        self._mine: set[int] = set()  # rewards that this process has learned from, and did not follow yet
        self._embedder: Embedder | None = None
        self._lock = threading.RLock()
        self._seq = -1  # the newest entry of the journal that is taken in; -1 where all of it has to be read
        self._generator: np.random.Generator | None = None
        self._drawn = Recent[int, log.EpisodeDraws](LIVE)
        # The latest rewards of decisions in this process, and whose they were.
        self._given = Recent[str, tuple[float, str]](LIVE)
        self._whole = self  # that of the memory as it was opened, which keeps the others
        self._narrower = Recent["Scope", Learning](HANDLES)
        self._rewards = RewardIndex()
        self._consensus: Consensus | None = None  # of the memory as it was opened, once somebody shares items
        self._wordings = Wordings(store)

    @property
    def experience(self) -> Experience:
        """Return what is learned, up to date with the file."""
        with self._lock:
            return self._caught_up()

    def within(self, scope: Scope) -> Learning:
        """Return what is learned from the rewards that a handle of this scope may know of: those given inside what it sees. Of
        policies that store cases, whose cases have scopes of their own, it is this one."""
        whole = self._whole
        if scope == whole.scope or whole.keeps or whole.retrieves:
            return whole
        with whole._lock:
            narrower = whole._narrower.get(scope)
            if narrower is None:
                narrower = Learning(
                    self.store,
                    scope,
                    self.make,
                    self.policy,
                    self._accountant,
                    reward_range=self.reward_range,
                    seed=self._seed,
                )
                narrower._whole, narrower._wordings = whole, whole._wordings
            whole._narrower[scope] = narrower
            return narrower

    # Choosing.

    def before_reading(self) -> AbstractContextManager[object]:
        """Return what is entered before a read in which what is learned is asked for.

        Reads of a memory in this process alone exclude each other. A choice reads while it holds the lock of what is learned, so
        that whoever asks for that inside a read must hold this lock first."""
        return self._lock if self.store.database.in_memory else nullcontext()

    def proven(self, ask: Ask, vector: Vectors | None) -> list[str]:
        """Return the ids of the items that rewards speak for where this is asked, the surest first. `vector` is that of the
        query, if the search needed one."""
        with self._lock:
            experience = self._caught_up()
            record = experience.policy.record
            if record is None or not len(record):
                return []
            encoded = "" if vector is None else ask.text
            query = experience.query(ask.goal, ask.observation, vector=vector, encoded=encoded)
            names = experience.ask(lambda record: record.proven(query.vector), proven_problem)
            return list(dict.fromkeys(map(item_of, names)))

    @property
    def in_force(self) -> Learning:
        """Return the learning whose choices are in force: this one, as no other policy is on trial."""
        return self

    def choose(self, ask: Ask, top_k: int, sources: Callable[[Learning], CandidateSources], user: str) -> Chosen:
        """Choose at most `top_k` items to show: among those that a search finds, or those that the policy's retriever does.

        Args:
            ask: What is asked: the task, the query and the actions.
            top_k: The most items.
            sources: Where candidates come from, and which may be shown at all.
            user: That of the scope in which is searched.
        """
        places = sources(self)
        answer = self.look(places)
        with self._lock:
            return self.show(self.weigh(ask, top_k, places, answer), ask, top_k, user)

    def look(self, sources: CandidateSources) -> SearchAnswer | None:
        """Return what the memory's own search finds, if it is needed. It is asked before the policy catches up with the file, so
        that the policy knows every item that was found."""
        return sources.search() if sources.searched or not self.retrieves else None

    def weigh(self, ask: Ask, top_k: int, sources: CandidateSources, answer: SearchAnswer | None) -> Weighed:
        """Let the policy choose, and show nothing yet.

        Args:
            ask: What is asked.
            top_k: The most items.
            sources: Where candidates come from.
            answer: What the search found, if it was needed.
        """
        size = None if answer is None else answer.size
        with self._lock:
            experience = self._as_of(answer)
            experience.generator = self._generator_of(ask)
            policy, record = experience.policy, experience.policy.record or NO_RECORD
            query = self._query(experience, ask, top_k, answer)
            hits, candidates = self._candidates(experience, query, answer, sources)
            if size is not None:
                query = replace(query, most=size.number)
                if record.finds_sets and len(record) and len(query.vector):
                    query = replace(query, most=min(WIDEST, len(hits)), size=size)
            drawn = self._drawn_in(ask.number) if ask.explore and ask.number >= 0 and policy.record else None
            already_drawn = {place: drawn[hit.id] for place, hit in enumerate(hits) if hit.id in drawn} if drawn else {}
            if sources.always:
                already_drawn |= {place: (1.0, True) for place, hit in enumerate(hits) if hit.id in sources.always}
            # No rewards yet, or nothing to choose: the order of the search is shown.
            empty = (policy.record is not None and not len(record)) or not query.most
            use = (
                experience.take_first(query, candidates)
                if empty
                else experience.choose(query, candidates, already_drawn)
            )
            return Weighed(use, hits, answer, drawn)

    def show(
        self,
        weighed: Weighed,
        ask: Ask,
        top_k: int,
        user: str,
        *,
        propensity: float | None = None,
        trial: Mapping[str, Any] | None = None,
    ) -> Chosen:
        """Return a choice as it is shown and logged.

        Args:
            weighed: What the policy chose.
            ask: What was asked.
            top_k: The most items.
            user: That of the scope in which is searched.
            propensity: The probability of showing just this, if it is not the policy's own.
            trial: What is to be logged of a trial of policies.
        """
        use, hits, answer, drawn = weighed.use, weighed.hits, weighed.answer, weighed.drawn
        size = None if answer is None else answer.size
        with self._lock:
            experience, query, candidates = self._experience, use.query, use.candidates
            policy = experience.policy
            ids = weighed.ids
            best = experience.ask(
                lambda record: record.explain(hits, use), lambda answer: explained_problem(answer, ids)
            )
            best = self._as_on_file(best, answer)
            if policy.record is None:
                details = details_of(use)
            else:
                details = experience.ask(lambda record: record.details(use), details_problem)
            if not ask.explore and ask.number < 0 and not ask.begins:  # an episode is marked when it begins
                details["steady"] = True
            if drawn is not None:
                drawn.note([hit.id for hit in best], details.get("odds", {}))
            presented = _NOTHING
            if policy.presenter is not lines or ask.actions or any("do" in hit.item.metadata for hit in best):
                presented = experience.present(use, [_alike(hits[index]) for index in use.slate])
            if policy.record is not None and (named := self._named_in(ask, query.vector)):
                details["named"] = named
            advised, last = experience.ask(
                lambda record: record.advise(
                    query.vector,
                    ask.actions,
                    details.get("named"),
                    of_items=presented.advice,
                    most=top_k,
                    person=ask.by or user,
                ),
                advised_problem,
            )
            if texts := texts_of(hit.item for hit in hits):
                details[TEXTS] = texts
            if trial is not None:
                details["trial"] = trial
            probability = use.propensity if propensity is None else propensity
            shown = Hits(best, last=last, advice=advised, propensity=probability, policy=self.policy)
            shown.none = None if size is None else size.none
            # Hits make the lines of the usual presenter themselves, within a budget, once they are asked for.
            shown.wording = None if policy.presenter is lines else presented.text
            near = candidates.similarities.tolist() if policy.record is None else [hit.score for hit in hits]
            listed = tuple((hit.id, score) for hit, score in zip(hits, near, strict=True))
            packed = self._packing(query.vector, whole=policy.record is None) if len(query.vector) else None
            return Chosen(shown, listed, partial(asked, ask, top_k if size is None else AUTO, details), packed)

    def _generator_of(self, ask: Ask) -> np.random.Generator:
        """Return what the policy draws from: that of the memory, or one of the search's own seed and step."""
        assert self._generator is not None
        return self._generator if ask.seed is None else np.random.default_rng([31, ask.seed, ask.step])

    def _as_of(self, answer: SearchAnswer | None) -> Experience:
        """Return what is learned, as it was when a search looked, or now."""
        if answer is not None and answer.head == self._seq and self._embedder is self.store.embedder:
            return self._experience
        return self._caught_up()

    def _query(self, experience: Experience, ask: Ask, top_k: int, answer: SearchAnswer | None) -> Query:
        """Return the question as the policy sees it. While a record is empty it needs no vector, if the search needed none."""
        record, number = experience.policy.record, max(0, ask.number)
        vector = None if answer is None else answer.vector
        if ask.begins or (record is None and ask.number < 0):
            number = self._begun()
        unneeded = answer is not None and answer.by_words and record is not None and not len(record)
        return experience.query(
            ask.goal,
            ask.observation,
            ask.actions,
            ask.step,
            learning=ask.explore,
            by=ask.by,
            vector=_NO_VECTOR if unneeded else vector,
            encoded="" if unneeded or vector is None else ask.text,
            episode=number,
            most=top_k,
        )

    def _candidates(
        self, experience: Experience, query: Query, answer: SearchAnswer | None, sources: CandidateSources
    ) -> tuple[list[Hit], Candidates]:
        """Return the candidates, as hits and as the policy sees them."""
        mirror = self._mirror
        if answer is None:
            candidates = experience.candidates(
                query, lambda item: sources.admits(mirror.as_filed(item)), narrowly=sources.narrowly
            )
            items, similarities = candidates.listed(experience.pool), candidates.similarities.tolist()
            if not sources.staged:
                hits = [Hit(item, near, None, near) for item, near in zip(items, similarities, strict=True)]
                return hits, Candidates(candidates.rows, candidates.similarities, items)
            hits = sources.stage([(item.id, near) for item, near in zip(items, similarities, strict=True)])
        else:
            hits = answer.hits
        if self.retrieves:
            hits = [hit for hit in hits if hit.id in mirror.rows]
        scores = np.array([hit.score for hit in hits], dtype=np.float64)
        if len({duplicate_words(hit.text) for hit in hits}) < len(hits):
            # Near duplicates stand behind others with a lower score.
            scores = np.minimum.accumulate(scores)
        record = experience.policy.record
        if record is None and self.retrieves:
            # The items of a pool that follows the file are newer than those that a search has found.
            rows = [mirror.rows[hit.id] for hit in hits]
            return hits, Candidates(np.array(rows, dtype=np.intp), _as_cosines(scores))
        if record is not None:
            hits, scores = self._by_consensus(hits, scores, record)
        items = [as_pooled(hit.item) if "do" in hit.item.metadata else hit.item for hit in hits]
        scores = scores if record is not None else _as_cosines(scores)
        names = self._wordings.of(items) if record is not None else ()
        return hits, SearchedCandidates([item.id for item in items], scores, mirror, items, names)

    def _by_consensus(self, hits: list[Hit], scores: Floats, record: PolicyRecord) -> tuple[list[Hit], Floats]:
        """Return the hits of a search and their scores, best first: what those who share an item agree on is a part of its
        score."""
        votes = self._votes(hits, record)
        if not votes.any():
            return hits, scores
        scores = scores + votes * AGREED * (np.abs(scores).max() or 1.0)
        order = np.argsort(-scores, kind="stable").tolist()
        moved: list[Hit] = []
        for place, index in enumerate(order):
            hit, vote = hits[index], int(votes[index])
            if place != index or (vote and hit.why is not UNEXPLAINED):
                reason = "" if not vote else f"most who share it were {'better' if vote > 0 else 'worse'} off with it"
                way = "up" if place < index else "down" if place > index else ""
                hit = replace(hit, why=replace(hit.why, moved=way, reason=reason))
            moved.append(hit)
        return moved, scores[order]

    def _votes(self, hits: Sequence[Hit], record: PolicyRecord) -> Floats:
        """Return what the others who share each of the items agree on: 1, -1, or 0 for items that are not shared, too."""
        votes = np.zeros(len(hits))
        if not record.quorum or not isinstance(self.scope, Reach):
            return votes
        personal, whole = Scope(*self.scope.parts()), self._whole
        shared = [index for index, hit in enumerate(hits) if not personal.contains(hit.item.scope)]
        if not shared:
            return votes
        with whole._lock:
            if whole._consensus is None:
                whole._consensus = Consensus(whole.scope, record.newest, self._wordings)
        with self.store.database.reading() as connection:
            whole._consensus.follow(connection)
        users = {scope.user for scope in self.scope.members()}
        span = record.bounds[1] - record.bounds[0]
        names = self._wordings.of(hits[index].item for index in shared)
        for index, name in zip(shared, names, strict=True):
            votes[index] = whole._consensus.of(name, users, record.quorum, span)
        return votes

    def _as_on_file(self, hits: list[Hit], answer: SearchAnswer | None) -> list[Hit]:
        """Return the hits with their items as they are on file, if they are those of the pool."""
        if answer is not None or not hits:
            return hits
        items = self.store.fetch(self.scope, [hit.id for hit in hits])
        return [replace(hit, item=item) for hit in hits if (item := items[hit.id]) is not None]

    def _named_in(self, ask: Ask, vector: Vectors) -> dict[str, list[int]]:
        """Return the roles of the actions that items of this episode name."""
        if ask.number < 0 or not ask.actions:
            return {}
        with self.store.database.reading() as connection:
            ids = log.written_in(connection, ask.number, OLDEST, NEWEST)
        there = self.store.fetch(self.scope, ids)
        items = [item for id in ids if (item := there[id]) is not None and item.current]
        similarities: list[float] = []
        if items and len(vector) and self.store.embedder is not None:
            vectors = self.store.vectors_for(items)
            similarities = [float((vectors[item.id] @ vector).max()) for item in items]
        return roles_of(items, ask.actions, similarities)

    def _drawn_in(self, number: int) -> log.EpisodeDraws:
        """Return what an episode has shown and withheld so far, in any process. Chance decides once about an item, before it is
        seen, because the episode has one reward."""
        drawn = self._drawn.get(number)
        if drawn is None:
            drawn = self._drawn[number] = log.EpisodeDraws()
        with self.store.database.reading() as connection:
            drawn.read(connection, number)
        return drawn

    # Taking in rewards and advice.

    @property
    def through(self) -> int:
        """Return the newest entry of the journal that is taken in; -1 before the first look."""
        return self._seq

    def has(self, about: Rewarded, value: float, by: str, source: str) -> bool:
        """Return whether the latest reward of an episode or a decision is this one.

        Args:
            about: The episode or the decision.
            value: The reward.
            by: The person who gave it; "" for the program itself.
            source: The channel through which it came.
        """
        if not about.decision:
            with self.store.database.reading() as connection:
                return [one[1:] for one in log.rewards_of(connection, about.episode)[-1:]] == [(source, value)]
        with self._lock:
            if self._seq < 0:
                self._caught_up()
            record = self._experience.policy.record or NO_RECORD
            # Catch up with the journal only if this reward may be a repeated one.
            if self._given.get(about.decision) != (value, by) and not record.has(about.decision, value, source):
                return False
            return (self._caught_up().policy.record or NO_RECORD).has(about.decision, value, source)

    def unchallenged_before(self, about: Rewarded, person: str, source: str) -> list[str]:
        """Return the searches about which nobody said anything between two complaints of a person who only ever complains.

        Args:
            about: What the later complaint is about.
            person: Who complains; "" for the program itself.
            source: The source of the complaint.

        Returns:
            The ids of searches that served this person, in order. It is empty if there is no earlier
                complaint, and if the policy remembers a better reward of this source or none at all.
        """
        low, silent = self.reward_range[0], list[str]()
        with self._lock, self.store.database.reading() as connection:
            record = self._caught_up().policy.record or NO_RECORD
            if record.highest(source) != low:
                return []
            for search in episode_log.searches_before(connection, about, person):
                if record.has(search, low, source):
                    return silent[::-1]
                if not record.is_rewarded(search):
                    silent.append(search)
        return []

    def finish(self, about: Rewarded, value: float, by: str, source: str) -> OperationOutcome:
        """Take in the final reward of an episode or of one decision, and store what it teaches, in one transaction.
        This is for policies that keep items of their own; others learn from the journal at the next choice (`_caught_up`).
        Raises ClosedEpisode.

        Args:
            about: The episode or the decision.
            value: The reward.
            by: The person who gave it; "" for the program itself.
            source: The channel through which it came.
        """
        with self._lock:
            self._caught_up()
            before, named = self._seq, dict[int, str]()

            def work(transaction: Transaction) -> OperationOutcome:
                nonlocal before
                connection, now = transaction.connection, self.store.clock()
                experience = self._caught_up()
                before = self._seq
                task, person, choices = rewarded_choices(connection, about, value)
                outcome = self._replay.scaled(value)
                repeated = about.decision and experience.has(about.decision, outcome, by)
                if choices is None or repeated:
                    return OperationOutcome(False, reason="it has this reward already")
                credited = tuple((id, one.decision.propensity) for one in choices for id in one.decision.chosen)
                act = Credit(value, credited, reward_source(by, source), about.decision)
                draft = operations.Draft(scope=about.scope)
                news = News(transaction.seq, about.scope, about.episode, about.decision, value, by, source=act.source)
                uses = self._replay.uses(news, About(task, person, choices))
                version = experience.pool.version
                self._seq = -1  # until all of it is on file
                banks: list[Bank] = []

                def bank() -> Bank:
                    if not banks:
                        base = self.store.base(about.scope)
                        banks.append(Bank(Overlay(base, self.store.embedder), about.scope, self.store.clock))
                    return banks[0]

                alone = bool(about.decision)
                with self._writing_in(about.scope):
                    experience.conclude(uses, outcome, by=by, bank=bank, alone=alone)
                self._mine.add(transaction.seq)
                credit = transaction.perform(act, draft, now=now, episode=about.episode)
                named.update(self._mirror.write(transaction, version, now, about.episode, by))
                for one in banks:
                    transaction.provide(self.store.encode(one.texts()))
                    one.replay(transaction, about.episode)
                if about.episode and not about.decision:
                    episode_log.completed(transaction, about.episode, now)
                return OperationOutcome(True, credit.changed)

            outcome: OperationOutcome = self.store.change(self.scope, work)
            self._mirror.name(named)
            self._seq = before
            return outcome

    def _writing_in(self, scope: Scope) -> AbstractContextManager[None]:
        """Return a context in which the policy sees the items of a scope, and writes there, so that what one person's episode
        teaches changes nobody else's items."""
        if scope == self.scope:
            return nullcontext()
        return self._experience.pool.narrowed_to(lambda item: scope.contains(item.scope), scope)

    def propose(
        self, proposed: Advice, scope: Scope, episode: str = "", number: int | None = None, person: str = ""
    ) -> str:
        """Store advice from outside, or seen in an episode, and return its id. Raises InvalidAdvice.

        Args:
            proposed: The advice.
            scope: The scope in which it is stored.
            episode: The id of the episode in which it was seen; "" for advice from outside.
            number: The number of that episode for the policy; None for the one that was begun last.
            person: The user in whose episode it was seen; "" for nobody.
        """
        proposed = checked_proposal(proposed, episode, person)
        with self._lock:
            experience = self._caught_up()
            pool, version = experience.pool, experience.pool.version
            with self._writing_in(scope):
                row = experience.observe(proposed, self._begun() if number is None else number)
            assert row is not None
            self._seq, seq = -1, self._seq

            def work(transaction: Transaction) -> dict[int, str]:
                return self._mirror.write(transaction, version, self.store.clock(), episode, "")

            self._mirror.name(self.store.change(self.scope, work))
            self._seq = seq
            return pool.items[row].id

    def _begun(self) -> int:
        """Return how many episodes were begun, which is the number of the next one."""
        with self.store.database.reading() as connection:
            return episode_log.begun(connection)

    # Judging.

    def worth(self, item: Item, query: str, scope: Scope) -> Worth:
        """Return what showing an item adds to a question, according to rewards.

        Args:
            item: The one that is judged, as the search returned it.
            query: The question.
            scope: What the caller sees.
        """
        with self._lock:
            record = self._read_accounts(scope)
            (name,) = self._wordings.of([item])
            return record.worth(self._experience.query(query, ""), replace(as_pooled(item), id=name))

    def ledger(self, scope: Scope, items: Sequence[str] | None = None, *, everything: bool = False) -> Balance:
        """Return the ledger: what chance decided, and what came of it. If the policy keeps none, it is computed from the log.

        Args:
            scope: What the caller sees.
            items: Ids; None for all current items that were shown with a reward or were under test.
            everything: Also items that were not, and items that are gone.
        """
        with self._lock:
            record = self._read_accounts(scope)
            if items is None and everything:
                items = list(dict.fromkeys([*record.met, *(item.id for item in self.store.items(scope, current=True))]))
            elif items is None:
                there = self.store.fetch(scope, record.met)
                items = [id for id, item in there.items() if item is not None and item.current]
            accounts = record.accounts(items)
            accounts.sort(key=lambda account: (-account.rows, -account.seen))
            return Balance(tuple(accounts), record.units, self.reward_range[1] - self.reward_range[0])

    def _read_accounts(self, scope: Scope) -> PolicyRecord:
        """Return the record that has the accounts. If the policy keeps none, it is computed from the rewards inside `scope`."""
        record = self._caught_up().policy.record
        if record is not None and record.keeps_accounts:
            return record
        usual = self._accountant()
        record = usual.record
        assert record is not None, "the policy that keeps accounts has a record"
        record.bounds = self.reward_range
        with self.store.database.reading() as connection:
            gone = log.cancelled(connection)
            news = log.news(connection, scope, gone, 0, record.newest)
            for reward, about in log.with_choices(connection, news, gone):
                for use in self._replay.uses(reward, about, stale=True, by_record=True):
                    usual.valuer.learn(use, self._experience.pool)
        return record

    # Keeping up with the file.

    def _caught_up(self) -> Experience:
        """Return what is learned, after catching up with the file."""
        with self.store.database.reading() as connection:
            since = self._seq if self._embedder is self.store.embedder else -1
            head, taught, turned_back = log.news_since(connection, since)
            if 0 <= since < head and not self.retrieves and not taught:
                self._seq = head  # items alone, which the search finds
            elif since != head or since < 0:
                self._seq = -1  # what fails half way is read again from the start
                if since < 0 or turned_back:
                    self._build(connection, head)
                else:
                    self._follow(connection, since)
                self._seq = head
            return self._experience

    def _fresh(self) -> Policy:
        """Make a fresh policy that knows the range of rewards."""
        policy = self.make()
        if policy.record is not None:
            policy.record.bounds = self.reward_range
        return policy

    def _build(self, connection: AnyConnection, head: int) -> None:
        """Learn everything from the file again: the items as they are, and the rewards that count."""
        self._embedder = self.store.embedder
        self._experience, since = self._start(connection)
        self._mirror = Mirror(self.store, self.scope, self._experience)
        self._replay = Replay(self._mirror, self.policy, self.reward_range, self._wordings)
        self._mine.clear()
        if self.retrieves:
            self._mirror.read()
        gone = log.cancelled(connection)
        record = None if self.keeps else self._experience.policy.record
        there = None if self is self._whole else self._whole._rewards.inside(connection, self.scope)
        news = log.news(connection, self.scope, gone, since, None if record is None else record.newest, there)
        for reward, about in log.with_choices(connection, news, gone):
            self._mirror.restore(reward.seq)
            stale = len(news) > ENCODED and reward.seq < news[-ENCODED].seq
            self._learn(reward, about, stale=stale)
        self._unsaved, self._loaded = len(news), since > 0
        self._mirror.restore()
        self._mirror.link(self._mirror.rows.values())
        self._experience.settle()
        if self._generator is None:
            # Draws after a restart go on elsewhere; where the policy searches by itself, once there is another reward.
            index: list[int] = []
            if self.store.database.has_files:
                index = [self._experience.learned] if self.retrieves else [head, os.getpid()]
            if self is not self._whole:
                index = [*index, zlib.crc32(repr(self.scope).encode())]
            self._generator = np.random.default_rng(None if self._seed is None else [31, self._seed, *index])
        self._experience.generator = self._generator

    def _start(self, connection: AnyConnection) -> tuple[Experience, int]:
        """Return an experience, with what was saved if that is valid, and the journal entry up to which that has learned."""
        encoder: Encoder = HashedWords()
        if self._embedder is not None:
            # Where the memory searches, it has encoded the query already.
            encoder = self._embedder.encoder if self.retrieves else self._embedder
        experience = self._fresh_experience(encoder)
        record = experience.policy.record
        saved = None if record is None or self.keeps else saved_state.saved(connection, *self._saved_as(record))
        if saved is None:
            return experience, 0
        if experience.load(saved.state):
            return experience, saved.seq
        return self._fresh_experience(encoder), 0  # what is half loaded is learned anew

    def _fresh_experience(self, encoder: Encoder) -> Experience:
        experience = Experience(self._fresh(), encoder, seed=self._seed or 0)
        experience.pool.scope = self.scope
        return experience

    def _follow(self, connection: AnyConnection, since: int) -> None:
        """Take in what other calls and processes wrote since."""
        if self.retrieves:
            self._mirror.follow(since)
        news = [
            reward for reward in log.news(connection, self.scope, log.NOTHING, since) if reward.seq not in self._mine
        ]
        for reward, about in log.with_choices(connection, news, log.cancelled(connection) if news else log.NOTHING):
            self._learn(reward, about)
        self._mine.clear()

    def _saved_as(self, record: PolicyRecord) -> tuple[str, str]:
        """Return the name of the saved state, which holds everything it depends on besides the journal: policy and scope, and the
        version of both its rules and the encoder."""
        encoder = "" if self._embedder is None else self._embedder.identity
        return f"{self.policy} {self.scope}", f"{record.version} {encoder}"

    def count_reward(self, decision: str, value: float, by: str) -> None:
        """Count a reward of this process, and save what was learned if that was not done for a while.

        Args:
            decision: The id of the rewarded choice; "" for a whole episode.
            value: The reward.
            by: The person who gave it; "" for the program itself.
        """
        with self._lock:
            if decision:
                self._given[decision] = value, by
            self._unsaved += 1
        self.save()

    def save(self) -> None:
        """Save what was learned if that was not done for `SAVED_EVERY` rewards, so that the next process goes on from there."""
        database = self.store.database
        if self._unsaved < SAVED_EVERY or database.in_memory or database.read_only:
            return
        with self._lock:
            record = None if self.keeps else self._caught_up().policy.record
            if record is not None and self._unsaved < SAVED_SHARE * len(record):
                return
            self._unsaved, packed = 0, None if record is None else self._experience.save()
            if record is None or packed is None:
                return
            names, seq, anew = self._saved_as(record), self._seq, not self._loaded
        try:
            database.write(lambda connection: saved_state.save(connection, *names, seq, packed, anew=anew))
            self._loaded = True
        except MemoryProblem as problem:  # the rewards themselves are on file
            _LOG.warning("what was learned in %s could not be saved: %s", database.path, problem)

    def _learn(self, reward: News, about: About, *, stale: bool = False) -> None:
        """Learn from a reward on file. For `stale` see `Replay.uses`."""
        uses, outcome = self._replay.uses(reward, about, stale=stale), self._replay.scaled(reward.value)
        self._experience.remember(uses, outcome, by=reward.by, alone=bool(reward.decision))

    # Choices, from a file and to it.

    def _packing(self, vector: Vectors, *, whole: bool = False) -> Callable[[], bytes]:
        return partial(packed_vector, vector, self.store.set_id or 0, whole=whole)


_NO_VECTOR = np.zeros(0, dtype=np.float32)
_NOTHING = Presented("")


def _alike(hit: Hit) -> float:
    """Return how similar a hit is to the question: its cosine, or its score as one if only words or a reranker found it."""
    return float(_as_cosines(np.array([hit.score]))[0]) if hit.dense is None else hit.dense


def _as_cosines(scores: Floats) -> Floats:
    """Return scores of words or of a reranker, which may exceed 1, on the scale of cosines."""
    return scores if np.abs(scores).max(initial=0.0) <= 1.0 else 0.5 + 0.5 * scores / (1.0 + np.abs(scores))
