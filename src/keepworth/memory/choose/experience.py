"""Experience: an agent's memory of what worked, under one composition of slots; and frozen agents that follow it.

    experience = Experience(policy, encoder, seed=0)
    query = experience.query(goal, observation, actions)
    use = experience.choose(query, experience.candidates(query))
    shown = experience.present(use)           # text for a prompt, advice for a policy
    use.taken, use.reward = action, 1.0
    experience.conclude([use], outcome=1.0)

No weight changes anywhere: what learns is which items are shown.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from inspect import getsourcefile, getsourcelines, isfunction
from traceback import extract_tb
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from keepworth.base.errors import KeepworthError, called_as
from keepworth.memory.choose.admission import advice_problem
from keepworth.memory.choose.answers import (
    candidates_problem,
    choice_problem,
    key_problem,
    presented_problem,
    propensity_problem,
    slate_problem,
    values_problem,
)
from keepworth.memory.choose.pool import Advice, Pool
from keepworth.memory.choose.propensity import Independent
from keepworth.memory.choose.record import NO_RECORD, PolicyRecord
from keepworth.memory.choose.rewards import EpisodeClock
from keepworth.memory.choose.slots import (
    MANY,
    Candidates,
    Finished,
    Policy,
    Presented,
    Query,
    Use,
    Values,
    lines,
    written,
)
from keepworth.memory.errors import InvalidPolicy
from keepworth.memory.item import Item, Provenance, Status, on_word_of
from keepworth.memory.store.saved_state import Packed, pack
from keepworth.records.episode import Operation
from keepworth.records.model import Encoder

if TYPE_CHECKING:
    from keepworth.base.arrays import Vectors
    from keepworth.memory.overlay import Bank

T = TypeVar("T")
_LOG = logging.getLogger(__name__)

CACHED = 50_000
"""Number of texts whose vectors are cached."""
ALONE = 100_000
"""Number of choices, the latest, of which it is kept that they were rewarded by themselves: these are not learned from again with
the reward of their episode."""


def _file_of(slot: object) -> str:
    """Return file and line of a slot, or "" if they are not known."""
    made = slot if isfunction(slot) else type(slot)
    try:
        return f"{getsourcefile(made)}, line {getsourcelines(made)[1]}"
    except (OSError, TypeError):
        return ""


class Experience:
    """What a policy has learned, and the items it chooses among.

    Args:
        seed: Seed of the policy's own draws.
    """

    def __init__(self, policy: Policy, encoder: Encoder, *, seed: int = 0) -> None:
        self.policy = policy
        self.encoder = encoder
        self._cache: dict[str, Vectors] = {}
        self.pool = Pool(self._embedded, encoder.identity.dimension)
        self.generator = np.random.default_rng([31, seed])
        # The number of the episode; the clock says how old things are.
        self.time = 0
        self.clock = EpisodeClock()
        self._earned, self._count = 1.0, 2.0  # rewards and their number, drawn to the middle while there are few
        # What the encoder raised last, which is no fault of a slot that asked it for a vector.
        self._unencoded: Exception | None = None
        # Number of choices that were learned from.
        self.learned = 0
        # Of choices that were rewarded by themselves: the latest reward as it was given, and who gave it.
        self.alone: dict[str, tuple[float, str]] = {}

    def _slot(self, slot: str) -> AbstractContextManager[None]:
        """Return a context in which a slot is called: what it raises names the policy and the slot."""
        return called_as(f"The {slot} of policy {self.policy.name!r}")

    def _embedded(self, text: str) -> Vectors:
        vector = self._cache.get(text)
        if vector is None:
            try:
                vector = self.encoder.encode([text])[0]
            except Exception as error:
                self._unencoded = error
                raise
            if len(self._cache) >= CACHED:
                self._cache.clear()
            self._cache[text] = vector
        return vector

    def query(
        self,
        goal: str,
        observation: str,
        actions: Sequence[str] = (),
        step: int = 0,
        *,
        learning: bool = True,
        by: str = "",
        vector: Vectors | None = None,
        encoded: str = "",
        episode: int | None = None,
        time: int | None = None,
        most: int = MANY,
        offers: bool = True,
    ) -> Query:
        """Return a situation as the policy sees it.

        Args:
            goal: The task.
            observation: What the agent sees; "" where the task is all.
            actions: What it can do here, if that is known.
            step: The number of the step in the episode, from 0.
            learning: Whether the policy may explore.
            by: The person for whom it is asked; "" for nobody.
            vector: Of the situation, if it is known, or of the text `encoded`, if that is given.
            encoded: The text whose vector `vector` is; another text is encoded anew.
            episode: Its number, if others were begun that are not finished.
            time: If it is not now.
            most: How many items may be shown.
            offers: Whether the actions count as offered from now on, for policies that compare actions by the pool.
        """
        try:
            text = self.policy.keyer(goal, observation)
        except Exception:
            with self._slot("keyer"):
                raise
        self._refuse("keyer", self.policy.keyer, key_problem(text))
        if actions and offers:
            self.pool.actions.offer(actions)
        if encoded and encoded != text:
            vector = None
        return Query(
            text,
            self.encode(text) if vector is None else vector,
            self.clock.now if time is None else time,
            self.time if episode is None else episode,
            goal,
            observation,
            tuple(actions),
            step,
            learning,
            by,
            most,
        )

    def encode(self, text: str) -> Vectors:
        """Return the vector of a situation."""
        vector: Vectors = self.encoder.encode([text])[0] if self.policy.record is not None else self._embedded(text)
        return vector

    def candidates(
        self, query: Query, admits: Callable[[Item], bool] | None = None, *, narrowly: bool = False
    ) -> Candidates:
        """Return what the policy retrieves.

        Args:
            query: The situation.
            admits: It says which items may be shown; None for all.
            narrowly: Whether these are few, so that the policy ranks only them.
        """
        retrieve, items = self.policy.retriever, self.pool.items
        assert retrieve is not None
        with (
            self.pool.narrowed_to(admits) if narrowly and admits is not None else nullcontext(),
            self._slot("retriever"),
        ):
            candidates = retrieve(query, self.pool)
            self._refuse("retriever", retrieve, candidates_problem(candidates, len(items)))
        return candidates if admits is None else candidates.among(lambda row: admits(items[row]))

    def choose(
        self, query: Query, candidates: Candidates, drawn: Mapping[int, tuple[float, bool]] | None = None
    ) -> Use:
        """Choose which of the candidates to show.

        Args:
            query: The situation.
            candidates: The items among which is chosen, with their similarities.
            drawn: By place, those about which chance decided earlier in the episode: the probability of being shown
                that each had, and whether it is.
        """
        number = len(candidates)
        try:
            values = self.policy.valuer.estimate(query, candidates, self.pool)
            problem = values_problem(values, number)
        except Exception as error:
            problem = self._failure("valuer", error)
        if problem:
            return self._choose_in_order(query, candidates, "valuer", self.policy.valuer, problem)
        try:
            choice = self.policy.selector(query, candidates, values, self.pool)
            if not (problem := choice_problem(choice, number)):
                choice = choice.at_most(query.most)
                if not query.learning:
                    choice = choice.certain()
                elif drawn:
                    choice = choice.given(drawn)
                slate, part = choice.draw(self.generator)
                if not (problem := slate_problem(slate, part, number, query.most)):
                    slate = tuple(int(index) for index in slate)
                    propensity = choice.probability(slate)
                    problem = propensity_problem(propensity)
        except Exception as error:
            problem = self._failure("selector", error)
        if problem:
            return self._choose_in_order(query, candidates, "selector", self.policy.selector, problem)
        return Use(query, candidates, values, choice, slate, part, logged=min(1.0, float(propensity)))

    def _choose_in_order(self, query: Query, candidates: Candidates, slot: str, culprit: object, problem: str) -> Use:
        """Choose the first candidates, because a slot of the policy gave something that cannot be used."""
        self._warn(slot, culprit, problem, "the candidates are shown in the order in which they were found")
        return self.take_first(query, candidates)

    def _warn(self, slot: str, culprit: object, problem: str, instead: str) -> None:
        """Log that a slot gave something that cannot be used, where the slot is, and what is done instead."""
        _LOG.warning("%s %s: %s", self._place_of(slot, culprit), problem, instead)

    def _failure(self, slot: str, error: Exception) -> str:
        """Return what a slot raised and where, in words that follow its name. A refusal is raised again, and so is what the
        encoder raised, which may work the next time."""
        with self._slot(slot):
            if isinstance(error, KeepworthError) or error is self._unencoded:
                raise error
        at = extract_tb(error.__traceback__)[-1]
        return f"raised {type(error).__name__}: {error} ({at.filename}, line {at.lineno})"

    def _refuse(self, slot: str, culprit: object, problem: str) -> None:
        """Raise InvalidPolicy if there is a problem with what a slot gave, without which nothing can be chosen."""
        if problem:
            raise InvalidPolicy(f"{self._place_of(slot, culprit)} {problem}.", "Mend it there.")

    def _place_of(self, slot: str, culprit: object) -> str:
        """Return the name of a slot, with its file and line if they are known."""
        at = _file_of(culprit)
        return f"the {slot} of policy {self.policy.name!r}{f' ({at})' if at else ''}"

    def take_first(self, query: Query, candidates: Candidates) -> Use:
        """Choose the first candidates."""
        number = len(candidates)
        order = tuple(range(number))
        choice, nothing = Independent(order, min(query.most, number)), np.zeros(number)
        return Use(query, candidates, Values(nothing, nothing), choice, order[: query.most], "main", logged=1.0)

    def present(self, use: Use, similarities: Sequence[float] | None = None) -> Presented:
        """Return what the reader is given. similarities: of the items that are shown, if those of the candidates are none."""
        if similarities is None:
            similarities = use.candidates.similarities[list(use.slate)].tolist()
        chosen, presenter = use.shown(self.pool), self.policy.presenter
        try:
            presented = presenter(chosen, use.query, similarities)
            problem = presented_problem(presented)
        except Exception as error:
            problem = self._failure("presenter", error)
        if problem:
            self._warn("presenter", presenter, problem, "the items are shown as lines")
            return lines(chosen, use.query, similarities)
        return presented

    def observe(self, draft: Advice, episode: int | None = None) -> int | None:
        """Offer one item, which is trusted according to its source: an observation, or a record from elsewhere. Returns None if
        it is no valid draft. episode: the number of the episode in which it was seen."""
        if advice_problem(draft):
            return None
        number = self.time if episode is None else episode
        return self.pool.add(draft, status=Status.ACTIVE, time=self.clock.now, episode=number)

    def conclude(
        self,
        uses: Sequence[Use],
        outcome: float,
        *,
        by: str = "",
        bank: Callable[[], Bank] | None = None,
        alone: bool = False,
    ) -> Finished:
        """Learn from the choices of an episode, which have their actions and rewards, write what is worth keeping, and move time
        on.

        Args:
            uses: The choices.
            outcome: The reward of the episode, 0 to 1.
            by: On whose word, "" for the program's own.
            bank: It opens one of the memory, where the operations of a writer are carried out.
            alone: Whether the reward is for a single choice, whose episode goes on: nothing is written, and the reward of the
                episode does not teach this choice again.
        """
        share = self._learn_all(uses, outcome, by, alone)
        number = uses[0].query.episode if uses else self.time
        finished = Finished(tuple(uses), outcome, self.clock.now, number, outcome >= self.usual)
        acted = tuple(use for use in uses if use.taken and not alone)
        done = replace(finished, uses=acted, pool=self.pool, bank=bank)
        for draft in self._written(done) if done.uses else ():
            # Whatever a writer says: what an episode teaches stands on the word of who rewarded it.
            if isinstance(draft, Operation):
                assert bank is not None
                bank().apply(draft, provenance=Provenance(on_word_of(by)))
            else:
                self.observe(replace(draft, source=on_word_of(by)), done.episode)
        self._maintain(None)
        self._move_on(share)
        return finished

    def _written(self, done: Finished) -> Iterator[Advice | Operation]:
        if self.policy.writer is not None:
            with self._slot("writer"):
                yield from written(self.policy.writer, done)

    def _move_on(self, share: float) -> None:
        self.clock.go_on(share)
        self.time += 1

    def remember(self, uses: Sequence[Use], outcome: float, *, by: str = "", alone: bool = False) -> None:
        """Learn from choices on file, which have their actions and rewards. What they wrote and retired is there already.

        Args:
            uses: The choices.
            outcome: The reward of all of them.
            by: The person who gave it; "" for the program itself.
            alone: Whether it was given to a single choice, and not to its episode.
        """
        if alone and uses and all(self.has(use.decision, outcome, by) for use in uses):
            return
        with self.pool.frozen():
            if (rehearse := self.policy.rehearse) is not None:
                for use in uses:
                    rehearse(use.query, use.candidates, self.pool)
            share = self._learn_all(uses, outcome, by, alone)
        self._move_on(share)

    def has(self, decision: str, reward: float, by: str) -> bool:
        """Return whether a choice has just this reward of its own.

        Args:
            decision: The id of the choice.
            reward: The value that is compared.
            by: The person who gave it; "" for the program itself.
        """
        return self.alone.get(decision) == (reward, by)

    def _learn_all(self, uses: Sequence[Use], outcome: float, by: str, alone: bool) -> float:
        """Learn from choices, and return how much the episode counts."""
        single = {} if alone else self.alone
        share = self.clock.share(by)
        for index, use in enumerate(uses):
            use.following, use.learned = uses[index + 1] if index + 1 < len(uses) else None, self.time
            use.share, use.outcome = share, outcome
            if use.decision in single:
                use.reward, _ = single[use.decision]
        for use in uses:
            if use.decision not in single:
                self.learn(use)
                self._earned, self._count = self._earned + share * use.reward, self._count + share
            if alone and not self.corrects:
                self.alone.pop(use.decision, None)  # to the end
                self.alone[use.decision] = use.reward, by
                if len(self.alone) > ALONE:
                    del self.alone[next(iter(self.alone))]
            use.good = use.reward >= self.usual
        return share

    @property
    def corrects(self) -> bool:
        """Return whether the policy replaces by itself what it learned of a decision when that gets another reward."""
        return self.policy.record is not None and not self.policy.keeps

    @property
    def usual(self) -> float:
        """Return the mean of all rewards learned from. A reward at least as high counts as a success."""
        return self._earned / self._count

    def settle(self) -> None:
        """Let maintainers look at the items, after the last `remember`."""
        with self.pool.frozen():
            self._maintain(None)

    def _maintain(self, use: Use | None) -> None:
        for maintain in self.policy.maintainers:
            with self._slot("maintainer"):
                maintain(self.pool, self.policy.valuer, use, self.clock.now)

    def ask(self, question: Callable[[PolicyRecord], T], find_problem: Callable[[T], str]) -> T:
        """Return what the policy's record answers, or, if it fails or its answer has a problem, what a policy without a record
        does."""
        record = self.policy.record or NO_RECORD
        try:
            answer = question(record)
            problem = find_problem(answer)
        except Exception as error:
            problem = self._failure("record", error)
        if not problem:
            return answer
        self._warn("record", record, problem, "it is not asked this time")
        return question(NO_RECORD)

    def save(self) -> Packed | None:
        """Return what the policy's record saves and how much time has passed, or None if there is nothing that can be saved."""
        valuer, problem = self.policy.valuer, ""
        try:
            state = (self.policy.record or NO_RECORD).save()
            passed = [self.clock.save(), self.time, self.learned, self._earned, self._count]
            return None if state is None else pack([state, passed])
        except Exception as error:
            problem = self._failure("valuer", error)
        self._warn("valuer", valuer, f"cannot be saved: it {problem}", "all rewards are learned from again at opening")
        return None

    def load(self, saved: Any) -> bool:
        """Restore what `save` returned. Return whether it could."""
        try:
            state, (clock, self.time, self.learned, self._earned, self._count) = saved
            self.clock.load(clock)
            (self.policy.record or NO_RECORD).load(state)
        except Exception as error:
            problem = self._failure("valuer", error)
            self._warn(
                "valuer", self.policy.valuer, f"cannot load what it saved: it {problem}", "all rewards are learned from"
            )
            return False
        return True

    def restore(self, item: Item, vector: Vectors) -> int:
        """Add an item that is on file, and return its row."""
        row = self.pool.restore(item, vector)
        if len(self._cache) < CACHED:
            self._cache[item.key] = self.pool.vectors[row].copy()
        return row

    def learn(self, use: Use) -> None:
        try:
            self.policy.valuer.learn(use, self.pool)
        except Exception as error:
            problem = self._failure("valuer", error)
            self._warn(
                "valuer", self.policy.valuer, problem, "this reward is on file, and is left out of what is learned"
            )
            return
        self._maintain(use)
        self.learned += 1
