"""Learning: the policy of a memory with what it has learned, kept equal to what the journal says.

What is learned is a function of the rewards that count, in the order of the journal, each with the choices that led to it. So a
file that is opened again, another process that learns on the same file, and a rollback all come to the same: read what is new,
or read all of it again. Nothing is read before the first choice.

| what happened | what is written |
| --- | --- |
| a choice | its decision: candidates, what was shown, the propensity, what the policy knew, the vector of the query |
| an action, the reward of a step, a change of policy | a note in the journal |
| a reward | a credit in the journal; of a policy that keeps items of its own also those, in the same transaction |
"""

from __future__ import annotations

import logging
import math
import os
import struct
import threading
import warnings
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import groupby
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from keepworth.episodes.episode import Operation, OperationKind
from keepworth.episodes.errors import UnknownName
from keepworth.episodes.model import Encoder, EncoderIdentity
from keepworth.memory import operations
from keepworth.memory.errors import (
    CannotEvaluate,
    ClosedEpisode,
    InvalidAdvice,
    InvalidPolicy,
    InvalidReward,
    SetAside,
    UnknownEpisode,
)
from keepworth.memory.item import Item, Provenance, Scope, Status, identity, learned, on_word_of
from keepworth.memory.operations import LARGEST_REWARD, Assignment, Credit, OperationOutcome
from keepworth.memory.overlay import Bank
from keepworth.memory.policy.admission import advice_problem, is_ours, item_problem, plain_names
from keepworth.memory.policy.default import BECAME_DEFAULT, NAME, Ranked, RewardRecord, situation
from keepworth.memory.policy.experience import Experience
from keepworth.memory.policy.hashed_words import HashedWords
from keepworth.memory.policy.learned_state import Beside, LearnedState
from keepworth.memory.policy.ledger import Balance
from keepworth.memory.policy.off_policy import (
    BY_ITEM,
    Estimate,
    LoggedItems,
    LoggedSlate,
    SlateModel,
    by_item,
    evaluate,
    known,
)
from keepworth.memory.policy.pool import Advice, advice
from keepworth.memory.policy.propensity import Independent
from keepworth.memory.policy.slots import Candidates, Policy, Presented, Query, Slates, Use, Values
from keepworth.memory.policy.valuers import Unvalued
from keepworth.memory.search.beside import Unfit
from keepworth.memory.search.chunks import spans
from keepworth.memory.search.index import in_eight_bits, of_eight_bits
from keepworth.memory.search.search import Ask, Chosen, Explanation, Hit, Hits, Worth, asked, compact
from keepworth.memory.store import forking, log
from keepworth.memory.store.connection import AnyConnection
from keepworth.memory.store.log import Choice, News, Rewarded
from keepworth.memory.store.transaction import changed_since

if TYPE_CHECKING:
    import numpy.typing as npt

    from keepworth.memory.policy.pool import Pool
    from keepworth.memory.search.index import Embedder
    from keepworth.memory.store.store import Store
    from keepworth.memory.store.transaction import Transaction

    Floats = npt.NDArray[np.float64]
    Vectors = npt.NDArray[np.float32]

_LOG = logging.getLogger("keepworth.memory")
DRAWS = 32
"""Slates that are drawn to estimate what a policy would earn (doubly robust)."""
NEARBY = 5
"""Candidates beyond those that are asked for: what moves down has something to make way for."""
MET = 50_000
"""Items that the default policy remembers having met."""
LIVE = 1_000
"""Episodes of which is remembered what they showed and withheld; of others all of it is read from the log."""
ENCODED = 2_000
"""Rewarded queries without a vector on file that are encoded again at most, the newest, when a memory is opened."""


KEPT_FROM = 4_000
"""Rewards that are read from the log, or come in, before what was learned is kept beside the file;"""
KEPT_SECONDS = 0.25
"""or those from which learning took as long as this."""
NEVER = (math.inf, math.inf)
_NO_WORDS = np.zeros(0, dtype=np.float32)


class OtherPolicy(Exception):
    """Another policy was chosen meanwhile: ask again."""


class _Encoding:
    """An encoder, with the last error that it raised: that is no damage of what was to be encoded."""

    def __init__(self, identity: EncoderIdentity, encode: Callable[[Sequence[str]], Vectors]) -> None:
        self.identity, self._encode = identity, encode
        self.error: Exception | None = None

    def encode(self, texts: Sequence[str]) -> Vectors:
        try:
            return self._encode(texts)
        except Exception as error:
            self.error = error
            raise


class Learning:
    """Thread-safe. policies: a fresh policy by name; first: the one that runs where the file names no other.

    reward_range: rewards outside are refused; None takes all. trusted: rewarders whose word is as good as the program's own.
    set_aside: what the file holds and cannot be read, why by id; it takes no part.
    """

    def __init__(
        self,
        store: Store,
        scope: Scope,
        policies: Callable[[str], Policy],
        first: str,
        *,
        reward_range: tuple[float, float] | None = None,
        seed: int | None = None,
        trusted: Collection[str] = (),
    ) -> None:
        self.store, self.scope = store, scope
        self.policy = first
        self.reward_range = reward_range
        self.set_aside: dict[str, str] = {}
        self._policies, self._first = partial(_within, policies, reward_range), first
        self._seed, self._trusted = seed, frozenset(trusted)
        self._lock = threading.RLock()
        self._seq = -1  # the newest entry of the journal that is taken in; -1 where all of it has to be read
        self.searches = True  # whether the policy, as last seen, chooses among what the memory's own search finds
        self._unrewarded = False  # whether the default policy has nothing to go by
        self._mine: set[int] = set()
        self._seen: int | None = None  # the newest entry that a draw may have depended on; None where nothing was drawn
        self._rows: dict[str, int] = {}
        self._met: dict[str, Item] = {}  # what searches found last, as it was on file
        self._unreadable: list[str] = []
        # Rewards since what was learned was last kept beside the file, from how many on it is kept anew, and who is at it.
        self._fresh, self._due = 0, NEVER
        self._to_keep: LearnedState | None = None
        self._keeper: threading.Thread | None = None
        self._closing = threading.Event()
        self._drawn: dict[int, log.EpisodeDraws] = {}
        self._embedder: Embedder | None = None
        self._generator: np.random.Generator | None = None
        forking.register(self)

    def before_fork(self) -> None:
        """What is learned is read anew in the child where it is needed."""

    def after_fork(self, *, child: bool) -> None:
        if child:
            self._lock, self._keeper, self._closing = threading.RLock(), None, threading.Event()
            self._seq, self._generator, self._seen = -1, None, None
            self._drawn = {}

    @property
    def experience(self) -> Experience:
        """What is learned, as the file says now."""
        with self._lock:
            return self._now()

    @property
    def draws(self) -> dict[str, Any]:
        """Where the policy's draws stand: set again, as JSON, they go on from there."""
        with self._lock:
            self._now()
            assert self._generator is not None
            return dict(self._generator.bit_generator.state)

    @draws.setter
    def draws(self, state: Mapping[str, Any]) -> None:
        generator = np.random.default_rng()
        generator.bit_generator.state = state
        with self._lock:
            self._generator, self._seq, self._seen = generator, -1, None

    # What was learned, beside the file.

    def close(self) -> None:
        """Keep what was learned beside the file, where there is much of it that is not there."""
        self._closing.set()
        try:
            if self._keeper is not None:
                self._keeper.join()
            if self._much():
                self._fresh, self._experience.seconds = 0, 0.0
                self._keep()
            elif self._to_keep is not None:
                self._to_keep.write(self._closing)
            self._to_keep = None
        finally:
            self._closing.clear()

    def _much(self) -> bool:
        """Whether there is much that was learned since it was kept last."""
        rewards, seconds = self._due
        return self._seq >= 0 and (self._fresh >= rewards or self._experience.seconds >= seconds)

    def _keep_soon(self) -> None:
        if self._much() and self._beside_others(self._keep):
            self._fresh, self._experience.seconds = 0, 0.0

    def _beside_others(self, keep: Callable[[], None]) -> bool:
        """Keep in the background, for which nobody waits; False where that is at work already, or the file is read-only."""
        if self.store.database.read_only or (self._keeper is not None and self._keeper.is_alive()):
            return False
        self._keeper = threading.Thread(target=keep, name="keepworth-learned", daemon=True)
        self._keeper.start()
        return True

    def _keep(self) -> None:
        """What the file says, read as by who opens it: what is kept is just that."""
        reward_range, trusted, live = self.reward_range, self._trusted, self._experience.policy

        def policies(name: str) -> Policy:
            made = self._policies(name)
            if made.valuer is live.valuer or any(one is each for one in made.maintainers for each in live.maintainers):
                raise InvalidPolicy(
                    f"the maker of policy {name!r} gave the same one again.", "Make a new one at each call."
                )
            return made

        anew = Learning(self.store, self.scope, policies, self._first, reward_range=reward_range, trusted=trusted)
        try:
            with self.store.database.reading() as connection:
                anew._now(connection)
            if anew._to_keep is not None:
                anew._to_keep.write(self._closing)
        except Exception as problem:  # whatever it is, nothing is lost but time when the memory is opened
            _LOG.warning("what was learned could not be kept beside %s: %s", self.store.database.path, problem)

    # Choosing.

    def keeps(self) -> bool:
        """Whether the policy keeps items of its own, and so closes an episode with its reward."""
        with self._lock, self.store.database.reading() as connection:
            if self._seq >= 0 and not log.turned_back(connection, self._seq):
                return self._experience.policy.keeps
            return self._chosen(connection)[1].keeps

    def name(self) -> str:
        """Of the policy that chooses now."""
        with self._lock:
            self._now()
            return self.policy

    def aside(self) -> dict[str, str]:
        with self._lock:
            self._now()
            return dict(self.set_aside)

    def among(self, ask: Ask, hits: Sequence[Hit], top_k: int, *, by_words: bool = False) -> Chosen:
        """At most `top_k` of what a search found, best first. by_words: the search needed no vector of the query."""
        with self._lock:
            experience = self._now()
            policy = experience.policy
            if policy.retriever is not None:
                raise OtherPolicy
            listed = tuple((hit.item.id, hit.score) for hit in hits)
            if self._unrewarded:
                # What the search says, for sure. What it looked for is what the default policy goes by.
                packed = None
                if not by_words:
                    text = ask.text if policy.keyer is situation else policy.keyer(ask.goal, ask.observation)
                    encode = self._embedder or experience.encoder.encode
                    packed = self._packed(encode([text])[0], whole=False)
                advising = any("do" in hit.item.metadata for hit in hits[:top_k])
                advice_ = self._advised(hits[:top_k], ask) if advising else ()
                return Chosen(Hits(hits[:top_k], policy=self.policy, advice=advice_), listed, asked(ask, top_k), packed)
            own = ask.own
            drawn = log.EpisodeDraws() if not ask.explore else own.drawn if own else self._drawn_in(ask.number)
            places = {place: drawn[hit.id] for place, hit in enumerate(hits) if hit.id in drawn}
            if isinstance(policy.valuer, RewardRecord) and isinstance(policy.selector, Ranked):
                use, presented = self._ranked(policy.valuer, policy.selector, ask, hits, top_k, places)
            else:
                use, presented = self._among_rows(experience, ask, hits, top_k, places)
            shown = [_explained(hits[place], place, use, policy) for place in use.slate]
            details: dict[str, Any] = {"part": use.part}
            if isinstance(use.choice, Independent) and (odds := use.choice.odds):
                main = use.choice.order[: use.choice.k]
                details["odds"] = {hits[place].id: p for place, p in odds.items()}
                if withheld := [hits[place].id for place in odds if place in main and place not in use.slate]:
                    details["withheld"] = withheld
            if isinstance(policy.valuer, RewardRecord):
                if "odds" in details:
                    details["expected"] = round(policy.valuer.in_rewards(use.values.expected), 6)
                if use.slate and use.slate[0] != 0 and use.part != "withheld":
                    details["instead"] = round(_expected_of(use, 0), 6)
            drawn.note([hit.id for hit in shown], details.get("odds", {}))
            return self._chose(presented, use, shown, listed, asked(ask, top_k, details), whole=False)

    def _ranked(
        self,
        record: RewardRecord,
        selector: Ranked,
        ask: Ask,
        hits: Sequence[Hit],
        top_k: int,
        drawn: Mapping[int, tuple[float, bool]],
    ) -> tuple[Use, Presented]:
        """The default policy's choice, which needs no rows of items. drawn: as of `Experience.choose`."""
        policy, encoder = self._experience.policy, self._experience.encoder
        text = policy.keyer(ask.goal, ask.observation)
        number = max(0, ask.number)
        query = Query(text, encoder.encode([text])[0], _NO_WORDS, 0, number, ask.goal, ask.observation, ask.actions)
        items = [_as_pooled(hit.item) if "do" in hit.item.metadata else hit.item for hit in hits]
        scores = np.array([hit.score for hit in hits])
        values = record.judge(query.vector, text, items, scores)
        choice = selector.rank(scores, values).at_most(top_k)
        choice = choice.given(drawn) if ask.explore else choice.certain()
        generator = self._experience.generator if ask.own is None else ask.own.generator
        slate, part = choice.draw(generator)
        use = Use(query, Candidates(np.arange(len(items)), scores), values, choice, slate, part)
        return use, policy.presenter([items[place] for place in slate], query, scores[list(slate)].tolist())

    def _among_rows(
        self,
        experience: Experience,
        ask: Ask,
        hits: Sequence[Hit],
        top_k: int,
        drawn: Mapping[int, tuple[float, bool]],
    ) -> tuple[Use, Presented]:
        """The choice of a policy whose slots know items by rows."""
        if _evidence(experience.policy) is not None and len(self._rows) + len(hits) > MET:
            self._rows, self._met, experience.pool = {}, {}, experience.fresh_pool()
        rows = np.array([self._row(experience, hit.item) for hit in hits], dtype=np.intp)
        candidates = Candidates(rows, np.array([hit.score for hit in hits]))
        draws = None if ask.own is None else ask.own.generator
        with _untouched(experience, ask):
            query = experience.query(ask.goal, ask.observation, ask.actions, ask.step, learning=ask.explore, by=ask.by)
            use = experience.choose(query, candidates, frozen=not ask.explore, most=top_k, drawn=drawn, generator=draws)
        return use, experience.present(use)

    def _drawn_in(self, number: int) -> log.EpisodeDraws:
        """What the episode of this number showed and withheld so far, in this process and in others. Chance decides once about
        an item, and before it is seen, since the episode has one reward."""
        if number < 0:
            return log.EpisodeDraws()
        found = self._drawn.get(number)
        if found is None:
            while len(self._drawn) >= LIVE:
                self._drawn.pop(next(iter(self._drawn)))
            found = self._drawn[number] = log.EpisodeDraws()
        with self.store.database.reading() as connection:
            found.read(connection, number)
        return found

    def own(self, ask: Ask, top_k: int, admits: Callable[[Item], bool]) -> Chosen:
        """What the policy itself retrieves and chooses. admits: whether an item may be shown at all."""
        with self._lock:
            experience = self._now()
            if experience.policy.retriever is None:
                raise OtherPolicy
            with _untouched(experience, ask):
                return self._own(experience, ask, top_k, admits)

    def _own(self, experience: Experience, ask: Ask, top_k: int, admits: Callable[[Item], bool]) -> Chosen:
        pool = experience.pool
        use = experience.recall(
            ask.goal,
            ask.observation,
            ask.actions,
            step=ask.step,
            frozen=not ask.explore,
            by=ask.by,
            episode=ask.number if ask.number >= 0 else self._begun(),
            admits=lambda row: admits(pool.items[row]),
            most=top_k,
            generator=None if ask.own is None else ask.own.generator,
        )
        ids = [pool.items[row].id for row in use.candidates.rows.tolist()]
        near = use.candidates.similarities.tolist()
        items = self.store.fetch(self.scope, [ids[place] for place in use.slate])
        hits = [
            Hit(item, near[place], None, near[place]) for place in use.slate if (item := items[ids[place]]) is not None
        ]
        details = {
            "observation": use.query.observation,
            "actions": use.query.actions,
            "k": top_k,
            "time": use.query.time,
            "of": use.query.episode,
            "similarities": near,
            "waiting": use.candidates.waiting,
            "means": use.values.means.tolist(),
            "deviations": use.values.deviations.tolist(),
            "slate": use.slate,
            "part": use.part,
            **({"trial": ask.trial} if ask.trial else {}),
        }
        listed = tuple(zip(ids, near, strict=True))
        return self._chose(experience.present(use), use, hits, listed, compact(details), whole=True)

    def _advised(self, hits: Sequence[Hit], ask: Ask) -> tuple[tuple[str, float, float], ...]:
        """What hits advise, as they are found."""
        text = self._experience.policy.keyer(ask.goal, ask.observation)
        return tuple(
            (action, weight, hit.score) for hit in hits for action, weight in advice(_as_pooled(hit.item), text)
        )

    def _chose(
        self,
        presented: Presented,
        use: Use,
        hits: list[Hit],
        listed: tuple[tuple[str, float], ...],
        details: str,
        *,
        whole: bool,
    ) -> Chosen:
        text, advised = presented.text, presented.advice
        valuer = self._experience.policy.valuer
        if isinstance(valuer, RewardRecord) and use.query.actions:
            learned, line = valuer.advise(use.query.vector, use.query.actions)
            text, advised = "\n".join(filter(None, (text, line))), (*advised, *learned)
        shown = Hits(hits, text=text, advice=advised, propensity=use.propensity, policy=self.policy)
        packed = self._packed(use.query.vector, whole=whole)
        return Chosen(shown, listed, details, packed)

    # Being told.

    def finish(self, about: Rewarded, value: float, by: str, source: str) -> OperationOutcome:
        """The final reward of an episode, or the reward of a single decision, and what is kept of it, in one transaction. by:
        on whose word, "" for the program's own. Raises ClosedEpisode, and ScopeFull where what it taught finds no room: then
        nothing is learned."""
        with self._lock:
            self._now()
            before, named = self._seq, dict[int, str]()

            def work(transaction: Transaction) -> OperationOutcome:
                nonlocal before
                connection, now = transaction.connection, self.store.clock()
                with self.store.database.reading() as reading:
                    experience = self._now(reading)
                before = self._seq
                task, person, choices = self._rewarded_choices(connection, about, value)
                repeated = about.decision and experience.has(about.decision, self._scaled(value), by)
                if choices is None or (repeated and experience.policy.keeps):
                    return OperationOutcome(False, reason="it has this reward already")
                credited = tuple((id, each.decision.propensity) for each in choices for id in each.decision.chosen)
                act = Credit(value, credited, on_word_of(by) if by else source, about.decision)
                draft = operations.Draft(scope=about.scope)
                if not experience.policy.keeps:  # another policy was chosen meanwhile
                    return transaction.perform(act, draft, now=now, episode=about.episode)
                pairs, steps = self._taken(experience, task, person, choices, value, about.episode)
                version = experience.pool.version
                self._seq = -1  # until all of it is on file
                banks: list[Bank] = []

                def bank() -> Bank:
                    if not banks:
                        base = self.store.base(self.scope)
                        banks.append(Bank.on(base, self.store.embedder, scope=self.scope, clock=self.store.clock))
                    return banks[0]

                alone = bool(about.decision)
                experience.finish(pairs, self._scaled(value), per_step=steps, by=by, bank=bank, alone=alone)
                self._mine.add(transaction.seq)
                outcome = transaction.perform(act, draft, now=now, episode=about.episode)
                named.update(self._changes(transaction, experience.pool, version, now, about.episode, by))
                for each in banks:
                    transaction.provide(self.store.encode(each.texts()))
                    each.replay(transaction, about.episode)
                if about.episode and not about.decision:
                    log.completed(transaction, about.episode, now)
                return OperationOutcome(True, outcome.changed)

            outcome: OperationOutcome = self.store.change(self.scope, work, bounded=True)
            self._name(named)
            self._seq = before
            if self._mine:
                self._let_go(max(self._mine))
                self._fresh += 1
                self._keep_soon()
            return outcome

    def propose(self, proposed: Advice, episode: str = "", number: int | None = None, person: str = "") -> str | None:
        """An item from outside, or of what was seen in the episode of this id and number, which is for `person`, through the
        gate; its id, or None where the gate rejected it. Raises InvalidAdvice, ScopeFull."""
        if episode and isinstance(proposed, Advice):
            proposed = replace(proposed, source=on_word_of(person))
        problem = advice_problem(proposed)
        if problem:
            raise InvalidAdvice(
                f"the advice cannot be kept: {problem}.", "Give an Advice(key, text, do=(action,), source=name)."
            )
        if not episode and learned(proposed.source):
            raise InvalidAdvice(
                f"the advice says that its source is {proposed.source!r}, which is what memory learned itself.",
                "Name where it comes from, such as source='import:wiki'.",
            )
        with self._lock:
            experience = self._now()
            pool, version = experience.pool, experience.pool.version
            row = experience.observe(proposed, self._begun() if number is None else number)
            if row is None:
                return None
            self._seq, seq = -1, self._seq

            def work(transaction: Transaction) -> dict[int, str]:
                return self._changes(transaction, pool, version, self.store.clock(), episode, "")

            self._name(self.store.change(self.scope, work, bounded=True))
            self._seq = seq
            return pool.items[row].id

    def _begun(self) -> int:
        """How many episodes were begun: the number of the next."""
        with self.store.database.reading() as connection:
            return log.begun(connection)

    def _rewarded_choices(
        self, connection: AnyConnection, about: Rewarded, value: float
    ) -> tuple[str, str, list[Choice] | None]:
        """The task, for whom it is, and the choices that a reward is about; None where the episode has this reward already."""
        record = log.record(connection, self._scopes(connection), about.episode) if about.episode else None
        task, person = (record.task, record.person) if record is not None else ("", "")
        if about.decision:
            listed = record.choices if record is not None else ()
            one = next((each for each in listed if each.decision.id == about.decision), None)
            one = one or log.single(connection, about.decision)
            if one is None:
                raise UnknownEpisode(f"decision {about.decision!r:.80} was erased meanwhile: nothing was learned")
            return task, person, [replace(one, reward=math.nan)]
        if record is None:
            raise UnknownEpisode(f"episode {about.episode!r:.80} was erased meanwhile: nothing was learned")
        if not record.rewards:
            return task, person, list(record.choices)
        if record.rewards[-1][0] == value:
            return task, person, None
        before = record.rewards[-1][0]
        given = (
            f"with {before:g} and cannot become {value:g}" if math.isfinite(before) else "before, and that was erased"
        )
        raise ClosedEpisode(
            f"episode {record.id!r} was rewarded {given}.",
            "Open a new episode.",
        )

    def _name(self, named: Mapping[int, str]) -> None:
        """New rows have the ids that the file gave them."""
        pool = self._experience.pool
        for row, id in named.items():
            pool.items[row] = replace(pool.items[row], id=id, scope=self.scope)
            self._rows[id] = row

    # Judging and changing the policy.

    def evaluate(self, policy: str, method: str = "snips") -> Estimate:
        """What mean reward `policy` would have had on the logged choices; CannotEvaluate where the log cannot say.

        Prequential: before each choice the new policy has learned from the earlier ones alone. It is judged on the candidates
        that were logged, so it answers for selection and valuation, not for retrieval. method: "snips", "ips", or "dr", whose
        reward model is learned from the earlier choices too and averaged over `DRAWS` slates of the new policy; "items" where
        the log says how likely single items were to be shown (`off_policy.by_item`).
        """
        known(method)
        with self._lock:
            self._now()
            other, model = self._policies(policy), SlateModel()
            generator = np.random.default_rng([37, self._seed or 0])
            with self.store.database.reading() as connection:
                uses, experience = self._uses(connection, other)
            if policy != self.policy and len(uses) >= 50 and all(use.propensity == 1.0 for use in uses):
                raise CannotEvaluate(
                    "no randomness",
                    f"each of {len(uses)} logged choices was certain, so nothing is known of what was not shown.",
                    'Open the memory with a policy that explores, such as keepworth.policy("default", withhold=0.05).',
                )
            pool, rows, by_item_rows = experience.pool, dict[str, LoggedSlate](), dict[str, LoggedItems]()
            drawn: dict[str, dict[int, tuple[float, bool]]] = {}
            for _, group in groupby(uses, key=lambda use: use.learned):
                # All that one reward is for was chosen before it came.
                together = list(group)
                means: dict[str, Floats] = {}
                for use in together:
                    if use.decision in rows:  # rewarded again: the later reward takes the place of the earlier one
                        rows[use.decision] = replace(rows[use.decision], reward=use.raw_reward)
                        by_item_rows[use.decision] = replace(by_item_rows[use.decision], reward=use.raw_reward)
                        continue
                    values = other.valuer.estimate(use.query, use.candidates, pool)
                    choice = other.selector(use.query, use.candidates, values, pool)
                    if use.most:
                        choice = choice.at_most(use.most)
                    if isinstance(choice, Independent):
                        # Chance decides once per episode, for this policy too.
                        before, listed = drawn.setdefault(use.unit, {}), use.candidates.rows.tolist()
                        choice = choice.given({at: before[row] for at, row in enumerate(listed) if row in before})
                        for place, p in (*choice.odds.items(), *((place, 1.0) for place in use.slate)):
                            before.setdefault(listed[place], (p, True))
                    near = use.candidates.similarities
                    means[use.decision] = values.means
                    predicted = expected = 0.0
                    if method == "dr":
                        predicted = model.predict(use.slate, near, values.means)
                        slates = [choice.draw(generator)[0] for _ in range(DRAWS)]
                        expected = float(np.mean([model.predict(slate, near, values.means) for slate in slates]))
                    by_item_rows[use.decision] = _by_item(use, _chances(choice, generator) if method == BY_ITEM else {})
                    probability = choice.probability(use.slate)
                    rows[use.decision] = LoggedSlate(use.raw_reward, use.propensity, probability, predicted, expected)
                for use in together:
                    if use.decision in means:
                        model.learn(use.slate, use.candidates.similarities, means[use.decision], use.raw_reward)
                    other.valuer.learn(use, pool)
            if method == BY_ITEM:
                return by_item(list(by_item_rows.values()))
            return evaluate(list(rows.values()), method)

    def finds_itself(self, policy: str) -> bool:
        """Whether a policy of this name finds items itself, and does not choose among what a search finds. Raises UnknownName."""
        return self._policies(policy).retriever is not None

    def promote(self, policy: str) -> None:
        """Let `policy` choose from now on, with values learned from the whole log; `demote` takes it back."""
        self._policies(policy)
        self._note("promote", policy=policy)

    def demote(self) -> str:
        """Back to the policy before the last promotion; its name."""
        with self._lock:
            with self.store.database.reading() as connection:
                promoted = log.promotions(connection, self._scopes(connection), self.scope, log.cancelled(connection))
            if not promoted:
                raise InvalidPolicy(
                    f"{self._first!r} is the first policy of this memory.", "There is nothing to go back to."
                )
            self._note("demote")
            return self.name()

    def worth(self, item: Item, query: str) -> Worth:
        """What showing an item adds where `query` is asked, as far as rewards say."""
        with self._lock:
            experience = self._now()
            valuer = experience.policy.valuer
            if not isinstance(valuer, RewardRecord):
                raise InvalidPolicy(f"policy {self.policy!r} estimates no effects.", "Open the memory with 'default'.")
            asked = experience.query(query, "")
            return valuer.in_full(item.id, valuer.judge(asked.vector, asked.text, [_as_pooled(item)]).worth[0])

    def ledger(self, items: Sequence[str] | None = None, *, everything: bool = False, exact: bool = False) -> Balance:
        """What chance decided and what came of it, read from the log where the policy keeps no ledger. items: by id; None for
        all current ones that were shown with a reward or put to the test, and of `everything` for those that were not and those
        that are gone, too."""
        with self._lock:
            policy = self._now().policy
            found = policy.valuer if isinstance(policy.valuer, RewardRecord) else self._from_log()
            if items is None and everything:
                items = list(
                    dict.fromkeys([*found.met, *(each.id for each in self.store.items(self.scope, current=True))])
                )
            elif items is None:
                there = self.store.fetch(self.scope, found.met)
                items = [id for id, item in there.items() if item is not None and item.current]
            accounts = found.accounts(items, exact=exact)
            accounts.sort(key=lambda each: (-each.rows, -each.seen))
            with self.store.database.reading() as connection:
                unknown = log.without_odds(connection, self.scope)
            return Balance(tuple(accounts), found.units, unknown, found.span)

    def _from_log(self) -> RewardRecord:
        """The evidence in a log that another policy made."""
        found = RewardRecord(bounds=self.reward_range)
        with self.store.database.reading() as connection:
            gone = log.cancelled(connection)
            news = log.news(connection, self.scope, gone, 0, found.newest)
            for each, about in log.with_choices(connection, self._scopes(connection), news, gone):
                task, _, choices = about()
                for choice, reward, weight in log.credited(choices, each.value):
                    self._add_evidence(found, task, choice, reward, weight, True, each)
        return found

    # Keeping up with the file.

    def _now(self, connection: AnyConnection | None = None) -> Experience:
        """What is learned, brought to what the file says."""
        if connection is None:
            with self.store.database.reading() as reading:
                self._now(reading)
            if self._to_keep is not None and self._beside_others(partial(self._to_keep.write, self._closing)):
                self._to_keep = None
            if self._unreadable and not self.store.database.read_only:
                ids, self._unreadable = self._unreadable, []
                self._quarantine(ids)
            return self._experience
        since = self._seq if self._embedder is self.store.embedder else -1
        head, taught = log.news_since(connection, since)
        if 0 <= since < head and self._experience.policy.retriever is None and not taught:
            self._seq = head  # items alone, which the search finds
        elif since != head or since < 0:
            self._seq = -1  # what fails half way is read again from the start
            if since < 0 or log.turned_back(connection, since):
                self._build(connection, head)
            else:
                self._follow(connection, since)
            self._seq = self._seen = head
            self.searches = self._experience.policy.retriever is None
            valuer = self._experience.policy.valuer
            self._unrewarded = isinstance(valuer, RewardRecord) and not len(valuer)
        return self._experience

    def _scopes(self, connection: AnyConnection) -> Callable[[int], Scope]:
        return lambda id: self.store.scope_named(connection, id)

    def _chosen(self, connection: AnyConnection) -> tuple[str, Policy]:
        """The policy that the file says, fresh."""
        gone = log.cancelled(connection)
        promoted = log.promotions(connection, self._scopes(connection), self.scope, gone)
        name = promoted[-1] if promoted else self._first
        name = NAME if name in BECAME_DEFAULT else name
        try:
            return name, self._policies(name)
        except UnknownName:
            if name == self._first:
                raise
            warnings.warn(
                f"{self.store.database.path} says that the policy {name!r} chooses, which is not known here: {self._first!r} "
                "chooses. Give it by name, Memory(path, policy={...}), or call demote().",
                SetAside,
                stacklevel=6,
            )
            return self._first, self._policies(self._first)

    def _build(self, connection: AnyConnection, head: int) -> None:
        """Everything from the file: items as they are, values learned from the rewards that count."""
        self.policy, policy = self._chosen(connection)
        self._embedder = self.store.embedder
        self._experience = self._begin(policy)
        self._rows, self._met, mine, self._mine = {}, {}, self._mine, set()
        aside: dict[str, str] = {}
        items = self.store.items(self.scope) if policy.retriever is not None else ()
        waiting = deque(self._sound(items, aside))
        gone = log.cancelled(connection)
        evidence = _evidence(policy)
        beside = None if aside else self._beside(connection, [item for item, _ in waiting])
        since = beside.read(self._experience) if beside is not None else 0
        if since < 0:  # it began to be read, and is not what it says it is
            self._experience = self._begin(self._policies(self.policy))
        elif since:
            self._restore(waiting, since + 1)
            self._let_go(since)
        since = max(since, 0)
        oldest = since if self._seen is None else min(since, self._seen)
        news = log.news(connection, self.scope, gone, oldest, None if evidence is None else evidence.newest)
        tail = [each for each in news if each.seq > since]
        for each, about in log.with_choices(connection, self._scopes(connection), tail, gone):
            self._restore(waiting, each.seq)
            stale = len(tail) > ENCODED and each.seq < tail[-ENCODED].seq
            self._learn(self._experience, each, about, aside, stale=stale)
        self._restore(waiting)
        self._link(self._rows.values())
        self._let_go(head)
        self._fresh, self._due = 0, NEVER
        if beside is not None and not aside and not self.store.database.read_only:
            seconds = self._experience.seconds
            self._due = max(KEPT_FROM, len(tail)), max(KEPT_SECONDS, seconds)
            if len(tail) >= KEPT_FROM or seconds >= KEPT_SECONDS:
                self._to_keep = beside.of(self._experience, head)
            self._experience.seconds = 0.0
        self._put_aside(aside)
        self._experience.settle()
        if self._seen is not None:
            self._draw_apart([each for each in news if each.seq > self._seen and each.seq not in mine])
        if self._generator is None:
            # Draws after a restart go on elsewhere; where the policy searches by itself, once there is another reward.
            place: list[int] = []
            if self.store.database.has_files:
                place = [head, os.getpid()] if policy.retriever is None else [self._experience.count]
            self._generator = np.random.default_rng(None if self._seed is None else [31, self._seed, *place])
        self._experience.generator = self._generator

    def _begin(self, policy: Policy) -> Experience:
        """Nothing learned, and no items."""
        encoder: Encoder = HashedWords()
        if self._embedder is not None:
            # Where the memory searches, it has encoded the query already.
            encode = self._embedder if policy.retriever is None else self._embedder.encoder.encode
            encoder = _Encoding(self._embedder.identity, encode)
        columns = policy.retriever is not None
        return Experience(policy, encoder, seed=self._seed or 0, trusted=self._trusted, columns=columns)

    def _beside(self, connection: AnyConnection, items: Sequence[Item]) -> Beside | None:
        """Where what was learned is kept beside the file; None where it is not: with the default policy, which reads little,
        and with slots of somebody else."""
        policy = self._experience.policy
        if policy.retriever is None or not self.store.database.has_files:
            return None
        given = [*self.scope.parts(), self.policy], [self.reward_range, sorted(self._trusted), self._identity()]
        try:
            return Beside(self.store, connection, policy, items, *given)
        except Unfit as reason:
            _LOG.info("what policy %r learns is read from the log: %s", self.policy, reason)
            return None

    def _identity(self) -> list[Any]:
        identity = self._experience.encoder.identity
        return [identity.model, identity.dimension]

    def _follow(self, connection: AnyConnection, since: int) -> None:
        """What others, or other calls, wrote since."""
        aside: dict[str, str] = {}
        if self._experience.policy.retriever is not None:
            pool = self._experience.pool
            changed = changed_since(connection, since)
            ids = sorted(changed.ids, key=lambda id: int(id[1:]))  # rows are in order of writing
            items = [item for item in self.store.fetch(self.scope, ids).values() if item is not None]
            fresh = deque(self._sound((item for item in items if item.id not in self._rows), aside))
            self._link(self._restore(fresh))
            for item in items:
                if item.id in self._rows:
                    pool.refresh(self._rows[item.id], self._linked(_as_pooled(item)))
        news = [each for each in log.news(connection, self.scope, log.NOTHING, since) if each.seq not in self._mine]
        for each, about in log.with_choices(connection, self._scopes(connection), news, log.NOTHING):
            self._learn(self._experience, each, about, aside)
        if news:
            self._let_go(news[-1].seq)
            self._fresh += len(news)
        self._draw_apart(news)
        self._mine.clear()
        self._put_aside({**self.set_aside, **aside})

    def _draw_apart(self, others: Sequence[News]) -> None:
        """Where a seeded policy has seen rewards of another process, it draws from there on as no process did before: they may
        stem from the very numbers that would be drawn here next, and a choice that can be told from what was learned does not
        have the propensity that is logged."""
        policy = self._experience.policy
        if others and self._seed is not None and policy.retriever is not None and policy.keeps:
            self._generator = np.random.default_rng([31, self._seed, others[-1].seq, 1])
            self._experience.generator = self._generator

    def _sound(self, items: Iterable[Item], aside: dict[str, str]) -> Iterator[tuple[Item, Vectors]]:
        """Items of the file as the pool has them, with their vectors. What a policy wrote and nobody can read is left out."""
        sound = []
        for item in items:
            problem = item_problem(item) if is_ours(item) else ""
            if problem:
                aside[item.id] = problem
            else:
                sound.append(item)
        vectors = self.store.vectors_for(sound)
        for item in sound:
            pooled = _as_pooled(item)
            known = vectors.get(item.id) if pooled.key == item.searched_text else None
            yield pooled, self._experience.encoder.encode([pooled.key])[0] if known is None else known[0]

    def _restore(self, waiting: deque[tuple[Item, Vectors]], before: float = math.inf) -> list[int]:
        """Rows for those of `waiting` that were written before entry `before` of the journal, and no longer wait."""
        fresh = []
        while waiting and int(waiting[0][0].id[1:]) < before:
            item, vector = waiting.popleft()
            self._rows[item.id] = row = self._experience.restore(item, vector)
            fresh.append(row)
        return fresh

    def _link(self, rows: Iterable[int]) -> None:
        for row in rows:
            self._experience.pool.items[row] = self._linked(self._experience.pool.items[row])

    def _linked(self, item: Item) -> Item:
        """Links are ids on file and rows in the pool."""
        if "links" not in item.metadata or "do" not in item.metadata:
            return item
        links = tuple(self._rows.get(each, each) for each in item.metadata["links"])
        return replace(
            item, metadata={**item.metadata, "links": tuple(each for each in links if isinstance(each, int))}
        )

    def _row(self, experience: Experience, item: Item) -> int:
        """The row of an item that a search found."""
        row, known = self._rows.get(item.id), self._met.get(item.id)
        if row is None:
            nothing = np.zeros(experience.pool.vectors.shape[1], dtype=np.float32)
            row = self._rows[item.id] = experience.pool.restore(_as_pooled(item), nothing)
        elif known is None or (known.text, known.key, known.metadata) != (item.text, item.key, item.metadata):
            experience.pool.refresh(row, _as_pooled(item))
        self._met[item.id] = item
        return row

    def _let_go(self, until: int) -> None:
        """What was learned from is on file up to entry `until`."""
        if _evidence(self._experience.policy) is None:
            self._experience.let_go(partial(self._learned_from, self._experience, until))

    def _learned_from(self, experience: Experience, until: int) -> list[tuple[Use, float]]:
        """The choices that rewards up to entry `until` were for, read again."""
        policy = replace(experience.policy, valuer=Unvalued(), maintainers=(), rehearse=None)
        again = Experience(policy, experience.encoder, trusted=self._trusted)
        again.pool = experience.pool
        with self.store.database.reading() as connection:
            gone = log.cancelled(connection)
            news = [each for each in log.news(connection, self.scope, gone) if each.seq <= until]
            for each, about in log.with_choices(connection, self._scopes(connection), news, gone):
                self._learn(again, each, about, {})
        return again.uses

    def _learn(
        self,
        experience: Experience,
        each: News,
        about: Callable[[], tuple[str, str, list[Choice]]],
        aside: dict[str, str],
        *,
        stale: bool = False,
    ) -> None:
        """stale: too old to be encoded again where its vector is missing."""
        try:
            task, person, choices = about()
            evidence = _evidence(experience.policy)
            if evidence is not None:
                for choice, reward, weight in log.credited(choices, each.value):
                    self._add_evidence(evidence, task, choice, reward, weight, stale, each)
                return
            pairs, steps = self._taken(experience, task, person, choices, each.value, each.episode)
            alone = bool(each.decision)
            experience.remember(pairs, self._scaled(each.value), per_step=steps, by=each.by, alone=alone)
        except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
            if error is getattr(experience.encoder, "error", None):
                raise
            # What cannot be read takes no part; the rest does.
            aside.setdefault(
                each.episode or each.decision, f"entry {each.seq} does not fit its choices: {error!r:.200}"
            )

    def _add_evidence(
        self, valuer: RewardRecord, task: str, choice: Choice, reward: float, weight: float, stale: bool, told: News
    ) -> None:
        vector = self._unpacked(choice)
        if vector is None:
            text = self._experience.policy.keyer(*_asked(task, choice))
            if not choice.decision.query or not text.strip():
                return
            encoder = self._experience.encoder
            # Near nothing, where it is too old to be encoded again: it counts in the ledger alone.
            vector = np.zeros(encoder.identity.dimension, np.float32) if stale else encoder.encode([text])[0]
        decision = choice.decision
        valuer.add(
            vector,
            reward,
            decision.chosen,
            action=choice.action,
            weight=weight,
            decision=decision.id,
            odds=choice.details.get("odds"),
            expected=choice.details.get("expected", 0.0),
            instead=choice.details.get("instead", math.nan),
            unit=told.episode or decision.id,
            by=told.by,
            stale=stale,
        )

    def _put_aside(self, unreadable: dict[str, str]) -> None:
        fresh = {id: why for id, why in unreadable.items() if id not in self.set_aside}
        self.set_aside = unreadable
        if not fresh:
            return
        self._unreadable = [
            id for id, item in self.store.fetch(self.scope, list(fresh)).items() if item is not None and item.current
        ]
        some = "; ".join(f"{id}: {why}" for id, why in list(fresh.items())[:3])
        warnings.warn(
            f"{len(fresh)} records of {self.store.database.path} cannot be read and were set aside ({some}). They are in "
            "`memory.set_aside`; the rest of the memory is as it was.",
            SetAside,
            stacklevel=5,
        )

    def _quarantine(self, ids: Sequence[str]) -> None:
        """Items that cannot be read are shown by no search."""

        def work(transaction: Transaction) -> None:
            now = self.store.clock()
            for id in ids:
                act = Assignment(id, {"status": Status.QUARANTINED.value})
                transaction.perform(act, operations.Draft(scope=self.scope), now=now)

        self.store.change(self.scope, work)

    # Choices, from a file and to it.

    def _use(
        self, experience: Experience, rows: Mapping[str, int], task: str, person: str, choice: Choice, episode: str
    ) -> Use | None:
        """The choice that is on file, among the items that are still there; None where one that it showed is not, or where
        what was asked was erased."""
        decision, details = choice.decision, choice.details
        if not decision.query:
            return None
        pairs = decision.candidates or tuple((id, 0.0) for id in decision.chosen)
        ids = [id for id, _ in pairs]
        slate = details.get("slate")
        if slate is None or not decision.candidates:
            slate = [ids.index(id) for id in decision.chosen]
            details = {name: details[name] for name in ("observation", "actions", "k", "part") if name in details}
        there = [place for place, id in enumerate(ids) if id in rows]
        moved = {place: position for position, place in enumerate(there)}
        if not all(place in moved for place in slate):
            return None
        near = details.get("similarities") or [score for _, score in pairs]
        means = details.get("means") or [0.0] * len(ids)
        deviations = details.get("deviations") or [0.0] * len(ids)
        query, waiting = self._query(experience, task, person, choice), details.get("waiting", 0)
        candidates = Candidates(
            np.array([rows[ids[place]] for place in there], dtype=np.intp),
            np.array([near[place] for place in there], dtype=np.float64),
            # As it was at the time of the choice, whatever became of the items since.
            sum([place >= len(ids) - waiting for place in there]) if waiting else 0,
        )
        withheld, odds = set(choice.details.get("withheld", ())), choice.details.get("odds", {})
        return Use(
            query,
            candidates,
            Values(
                np.array([means[place] for place in there], dtype=np.float64),
                np.array([deviations[place] for place in there], dtype=np.float64),
            ),
            None,
            tuple([moved[place] for place in slate]),
            details.get("part", "main"),
            logged=decision.propensity,
            withheld=tuple([moved[place] for place in there if ids[place] in withheld]) if withheld else (),
            most=int(details.get("k", 0)),
            decision=decision.id,
            odds={moved[place]: odds[ids[place]] for place in there if ids[place] in odds} if odds else {},
            expected=choice.details.get("expected", 0.0),
            instead=choice.details.get("instead", math.nan),
            unit=episode or decision.id,
        )

    def _query(self, experience: Experience, task: str, person: str, choice: Choice) -> Query:
        decision, details = choice.decision, choice.details
        goal, observation = _asked(task, choice)
        vector = self._unpacked(choice, exact=True) if decision.policy == self.policy else None
        time = details.get("time", experience.clock.now)
        return experience.query(
            goal,
            observation,
            tuple(details.get("actions", ())),
            decision.step,
            by=person,
            vector=vector,
            episode=details.get("of", time),
            time=time,
        )

    def _taken(
        self,
        experience: Experience,
        task: str,
        person: str,
        choices: Sequence[Choice],
        reward: float,
        episode: str,
    ) -> tuple[list[tuple[Use, str]], list[float] | None]:
        """Choices with their actions and step rewards. What showed an item that is gone teaches nothing, and neither does,
        where somebody said what was done, a choice after which nothing was."""
        if any(choice.action for choice in choices):
            choices = [choice for choice in choices if choice.action]
        if experience.policy.retriever is None:
            listed = [id for choice in choices for id, _ in choice.decision.candidates if id not in self._rows]
            for item in self.store.fetch(self.scope, listed).values():
                if item is not None:
                    self._row(experience, item)
        pairs, steps = [], []
        for choice, credited, weight in log.credited(choices, reward):
            use = self._use(experience, self._rows, task, person, choice, episode)
            if use is not None:
                use.weight = weight
                pairs.append((use, choice.action))
                steps.append(self._scaled(credited))
        return pairs, steps if any(math.isfinite(choice.reward) for choice in choices) else None

    def _uses(self, connection: AnyConnection, other: Policy) -> tuple[list[Use], Experience]:
        """What was learned from, in order, with rewards on the scale from 0 to 1 and as they were given; an experience with the
        items they speak of."""
        current = self._experience
        if current.policy.retriever is not None:
            return [replace(use, raw_reward=self._given(use.raw_reward)) for use, _ in current.uses], current
        gone = log.cancelled(connection)
        told = []
        for each, about in log.with_choices(
            connection, self._scopes(connection), log.news(connection, self.scope, gone), gone
        ):
            task, person, choices = about()
            told += [(each, task, person, *credited) for credited in log.credited(choices, each.value)]
        experience = Experience(other, current.encoder, seed=self._seed or 0, trusted=self._trusted)
        ids = dict.fromkeys(id for *_, choice, _, _ in told for id, _ in choice.decision.candidates)
        items = [item for item in self.store.fetch(self.scope, list(ids)).values() if item is not None]
        vectors, rows = self.store.vectors_for(items), dict[str, int]()
        for item in items:
            known, pooled = vectors.get(item.id), _as_pooled(item)
            vector = experience.encoder.encode([pooled.key])[0] if known is None else known[0]
            rows[item.id] = experience.pool.restore(pooled, vector)
        uses: list[Use] = []
        for each, task, person, choice, reward, weight in told:
            use = self._use(experience, rows, task, person, choice, each.episode)
            if use is not None:
                use.taken, use.by, use.raw_reward, use.weight = choice.action, each.by, reward, weight
                experience.scale.see([reward], experience.pool.person_of(each.by))
                if uses and uses[-1].learned == each.seq:
                    uses[-1].following = use
                use.learned = each.seq
                uses.append(use)
        for use in uses:
            use.reward = use.outcome = experience.scale.of(use.raw_reward)
            use.good = use.reward >= experience.scale.usual
        return uses, experience

    def _scaled(self, reward: float) -> float:
        """On the scale from 0 to 1; as it was given where the policy knows the range itself."""
        if self.reward_range is None or isinstance(self._experience.policy.valuer, RewardRecord):
            return reward
        low, high = self.reward_range
        return float((reward - low) / (high - low))

    def _given(self, scaled: float) -> float:
        """The reward that `_scaled` made this of."""
        if self.reward_range is None:
            return scaled
        low, high = self.reward_range
        return low + scaled * (high - low)

    def _packed(self, vector: Vectors, *, whole: bool) -> bytes:
        """The number of the encoder's set of vectors, then the vector: as it is, or (`whole` False) in eight bits a number."""
        head = struct.pack("<H", self.store.set_id or 0)
        if whole:
            return head + bytes(vector.astype("<f4").tobytes())
        return head + in_eight_bits(vector).tobytes()

    def _unpacked(self, choice: Choice, *, exact: bool = False) -> Vectors | None:
        """A unit vector of this encoder, as it was where `exact`; None where none is on file."""
        packed, width = choice.vector, self._experience.encoder.identity.dimension
        if packed is None or struct.unpack_from("<H", packed)[0] != (self.store.set_id or 0):
            return None
        if len(packed) == 2 + 4 * width:
            return np.frombuffer(packed, "<f4", offset=2).astype(np.float32)
        if len(packed) != 2 + width or exact:
            return None
        return of_eight_bits(np.frombuffer(packed, np.int8, offset=2))

    def _note(self, what: str, **body: Any) -> None:
        self.store.change(
            self.scope,
            lambda transaction: log.note(transaction, self.scope, self.store.clock(), what, **body),
        )

    def _changes(
        self, transaction: Transaction, pool: Pool, since: int, now: str, episode: str, by: str
    ) -> dict[int, str]:
        """Bring the file to the pool's state: one operation per row that changed, whatever happened to it in between. The ids
        of new rows."""
        named: dict[int, str] = {}
        changes = pool.history[since:]
        fresh = {change.row for change in changes if change.what == "add"}
        if self._experience.policy.retriever is not None:
            known = {pool.items[row].key: pool.vectors[row].tobytes() for row in fresh}
            transaction.provide({**known, **self.store.encode([key for key in known if spans(key)])})
        elif fresh:
            transaction.provide(self.store.encode([pool.items[row].key for row in fresh]))
        for row in dict.fromkeys(change.row for change in changes if change.row >= 0):
            item = pool.items[row]
            if row in fresh:
                draft = operations.Draft(
                    kind=item.kind,
                    key=item.key,
                    scope=self.scope,
                    provenance=item.provenance,
                    trust=item.trust,
                    status=item.status,
                    metadata=_plain(pool, row, named),
                    deduplicate=False,
                )
                act = Operation(OperationKind.ADD, text=item.text)
                outcome = transaction.perform(act, draft, now=now, episode=episode)
                if not outcome.applied:
                    raise InvalidPolicy(f"the item {item.text!r:.80} was not stored: {outcome.reason}.", "Reword it.")
                named[row] = outcome.item
            else:
                assigned: dict[str, Any] = {"status": item.status.value}
                if any(change.row == row and change.what == "revise" for change in changes):
                    assigned["metadata"] = {**_plain(pool, row, named), "key": item.key}
                source = on_word_of(by) if by else ""
                draft = operations.Draft(scope=item.scope, provenance=Provenance(source))
                transaction.perform(Assignment(item.id, assigned), draft, now=now, episode=episode)
        return named


def check_settings(policy: Policy, reward_range: tuple[float, float] | None, trusted: Collection[str]) -> None:
    """Raises InvalidReward, InvalidPolicy."""
    if not isinstance(trusted, Collection):
        raise InvalidPolicy(f"trusted is {trusted!r:.60}.", "Give a list of names: [name].")
    if trusted and policy.retriever is None:
        raise InvalidPolicy(
            f"trusted has no effect with policy {policy.name!r}, to which everybody's word is alike.", "Leave it out."
        )
    if reward_range is not None:
        pair = isinstance(reward_range, Sequence) and len(reward_range) == 2
        if not (pair and all(_finite(each) for each in reward_range) and reward_range[0] < reward_range[1]):
            raise InvalidReward(
                f"the reward range {reward_range!r:.60} holds no rewards.", "Give (lowest, highest), both finite."
            )
    if isinstance(trusted, str):
        raise InvalidPolicy(f"trusted is the text {trusted!r:.60}.", "Give a list of names: [name].")
    for name in trusted:
        identity(name, "a trusted rewarder")


def _finite(number: object) -> bool:
    try:
        return isinstance(number, Real) and abs(float(number)) <= LARGEST_REWARD
    except OverflowError:
        return False


def _untouched(experience: Experience, ask: Ask) -> AbstractContextManager[object]:
    """An episode that is not on file leaves nothing of itself in what is learned: what it did there comes with its end."""
    return nullcontext() if ask.own is None else experience.pool.actions.untouched()


def _evidence(policy: Policy) -> RewardRecord | None:
    """What a policy learns that keeps no items: nothing but the evidence, of which old rewards are no part."""
    return policy.valuer if isinstance(policy.valuer, RewardRecord) and not policy.keeps else None


def _expected_of(use: Use, place: int) -> float:
    """The reward that is expected with a candidate first, on a scale from 0 to 1."""
    return min(1.0, max(0.0, use.values.expected + float(use.values.means[place])))


def _within(policies: Callable[[str], Policy], reward_range: tuple[float, float] | None, name: str) -> Policy:
    """A fresh policy, which knows what rewards there can be."""
    policy = policies(name)
    if isinstance(policy.valuer, RewardRecord):
        policy.valuer.bounds = reward_range or policy.valuer.bounds
    return policy


def _asked(task: str, choice: Choice) -> tuple[str, str]:
    """The task, and what was seen or searched for, "" where that is the task; outside an episode the query is the task."""
    query = choice.decision.query
    return task or query, choice.details.get("observation", query if task and task != query else "")


def _chances(choice: Slates, generator: np.random.Generator) -> dict[int, float]:
    """How likely each candidate is to be shown; of an independent choice without what takes the place of the withheld."""
    if isinstance(choice, Independent):
        return {**dict.fromkeys(choice.order[: choice.k], 1.0), **choice.odds}
    slates = [choice.draw(generator)[0] for _ in range(DRAWS)]
    return {place: sum(place in slate for slate in slates) / DRAWS for place in {p for slate in slates for p in slate}}


def _by_item(use: Use, chances: Mapping[int, float]) -> LoggedItems:
    """The choice as `by_item` takes it. chances: of being shown, under the new policy."""
    there, odds = set(use.slate), use.odds
    tested = tuple((place in there, p, chances.get(place, 0.0)) for place, p in odds.items() if 0.0 < p < 1.0)
    # The last that are shown in the place of what is withheld are not the policy's own choice.
    withheld = sum(place not in there and p >= 0.5 for place, p in odds.items())
    spare = len(use.slate) + withheld - min(use.most or len(use.slate), len(use.candidates.rows))
    own = [place for place in use.slate if place not in odds]
    own = own[: len(own) - min(withheld, max(0, spare))]
    other = {place for place in chances if place not in odds} | set(own)
    unsupported = sum(abs(chances.get(place, 0.0) - (place in own)) for place in other)
    return LoggedItems(use.raw_reward, tested, use.expected, unsupported)


def _as_pooled(item: Item) -> Item:
    """An item of the file as the pool has it: closed ones are archived, each has a key, and lists are tuples. What says nothing
    that a policy could read has none of the names that policies read."""
    status = item.status if item.open else Status.ARCHIVED
    if "do" in item.metadata and not item_problem(item):
        data = {name: tuple(value) if isinstance(value, list) else value for name, value in item.metadata.items()}
        key = str(data.pop("key", item.key or item.text))
        data = {"avoid": (), "good": True, "do": (), **data}
    else:
        data, key = plain_names(item.metadata), item.key or item.text
    return replace(item, key=key, status=status, metadata=data)


def _plain(pool: Pool, row: int, named: Mapping[int, str]) -> dict[str, Any]:
    """Metadata for the file. Links are rows in the pool and ids on file; two numbers say when the item was written."""
    data = dict(pool.items[row].metadata)
    if "links" in data:
        data["links"] = [named.get(other, pool.items[other].id) for other in data["links"]]
    return {**data, "born": int(pool.born[row]), "of": int(pool.episode[row])}


def _explained(hit: Hit, place: int, use: Use, policy: Policy) -> Hit:
    """The hit, with what rewards say of it where it stands elsewhere than the search put it, or where all is explained."""
    worth = use.values.worth[place] if use.values.worth else None
    if worth is None or not isinstance(policy.valuer, RewardRecord) or not isinstance(use.choice, Independent):
        return hit
    position = use.choice.order.index(place)
    moved = ("up" if position < place else "down" if position > place else "") if worth.clear else ""
    if not moved and (not worth.seen or (hit.why is None and worth.times < 0.5)):
        return hit
    worth = policy.valuer.in_full(hit.id, worth)
    why = hit.why or Explanation(None, None, {}, f"{hit.score:.10g}")
    return replace(hit, why=replace(why, moved=moved, worth=worth))
