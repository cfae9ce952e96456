"""Replacement: a policy that is tried in place of another, which stays in force until rewards prove that the new one is better.

Both learn from all rewards in the file. Who chooses is drawn for each search, and for each episode once, because that has one
reward. The logged probability of a choice is that of the mixture of both, and what it says of who chose is logged beside it. So
all that is known of a trial follows from the file, where `Evidence` reads it, for every process alike."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from keepworth.base.recent import Recent
from keepworth.memory.choose.learning import HANDLES, LIVE
from keepworth.memory.choose.promotion import ON_TRIAL, PROVEN, REFUSED, Before, Promotion, TriedUnit, weigh_evidence
from keepworth.memory.choose.ready_slots import Unvalued
from keepworth.memory.choose.selection import AllRetrieved
from keepworth.memory.choose.slots import MANY, Policy, lines, whole
from keepworth.memory.item import EVERYWHERE
from keepworth.memory.store import log

if TYPE_CHECKING:
    from keepworth.memory.choose.experience import Experience
    from keepworth.memory.choose.learning import CandidateSources, Learning
    from keepworth.memory.choose.ledger import Balance
    from keepworth.memory.choose.pool import Advice
    from keepworth.memory.item import Item, Scope
    from keepworth.memory.operations import OperationOutcome
    from keepworth.memory.search.search import Ask, Chosen, Worth
    from keepworth.memory.store.connection import AnyConnection
    from keepworth.memory.store.episode_log import Rewarded
    from keepworth.memory.store.notes import NotedTrial
    from keepworth.memory.store.store import Store

NEWEST = 5_000
"""Number of rewards, the newest, by which it is known at opening what the policy in force gets at a question."""
PLAIN = "plain search"
"""The name of the policy of a memory that was opened without one."""


def plain_search() -> Policy:
    """Return the policy of a memory that was opened with `policy=None`: it shows what the search finds, in its order."""
    return Policy(PLAIN, whole, None, Unvalued(), AllRetrieved(MANY), lines)


@dataclass(slots=True)
class _Unit:
    """A search or an episode of a trial, with its rewards: by source those of the whole, and by decision and source others."""

    share: float
    chance: float
    apart: float
    price: float
    drew_new: bool
    of_all: dict[str, float] = field(default_factory=dict)
    of_one: dict[tuple[str, str], float] = field(default_factory=dict)

    @property
    def reward(self) -> float:
        values = list((self.of_all or self.of_one).values())
        return sum(values) / len(values)

    @property
    def tried(self) -> TriedUnit:
        return TriedUnit(self.share, self.chance, self.apart, self.price, self.drew_new, self.reward)


class Evidence:
    """The rewarded searches and episodes of a trial inside a scope, read from the journal as far as it goes."""

    def __init__(self, store: Store, scope: Scope, trial: NotedTrial, reward_range: tuple[float, float]) -> None:
        self._store, self._scope, self._trial, self._range = store, scope, trial, reward_range
        self._seq = -1
        self._units: dict[str, _Unit] = {}
        self._before, self._usual = Before(*trial.before), dict[str, tuple[float, int]]()
        self._promotion: Promotion | None = None

    def price(self, question: str) -> float:
        """Return the reward that the policy in force is expected to get at a question, on the scale 0 to 1: the mean of those
        that it got there, with the most that it may get on average as one of them."""
        earned, number = self._usual.get(question, (0.0, 0))
        return (self._before.most + earned) / (1 + number)

    def promotion(self) -> Promotion:
        """Return how the trial stands, up to date with the file."""
        with self._store.database.reading() as connection:
            head, taught, turned_back = log.news_since(connection, self._seq)
            if self._seq < 0 or turned_back:
                self._units.clear()
                self._usual.clear()
                self._read(connection, 0)
            elif taught:
                self._read(connection, self._seq)
            self._seq = head
        if self._promotion is None:
            units = [unit.tried for unit in self._units.values()]
            low, high = self._range
            names = self._trial.policy, self._trial.replaces
            self._promotion = weigh_evidence(*names, units, self._before, loss=self._trial.loss, span=high - low)
        return self._promotion

    def _read(self, connection: AnyConnection, since: int) -> None:
        self._promotion = None
        gone, (low, high) = log.cancelled(connection), self._range
        names = [self._trial.policy, self._trial.replaces]
        news = log.news(connection, self._scope, gone, since, NEWEST if not since else None)
        if not since and self._scope != EVERYWHERE:
            # What others earned before would show in the price, which follows from it.
            began = self._trial.since
            before = [min(1.0, max(0.0, (one.value - low) / (high - low))) for one in news if one.seq <= began]
            self._before = Before(len(before), (1.0 + sum(before)) / (2.0 + len(before)))
        for reward, about in log.with_choices(connection, news, gone):
            if not about.choices:
                continue
            value = min(1.0, max(0.0, (reward.value - low) / (high - low)))
            question = about.task or about.choices[0].decision.query
            price = self.price(question)
            tried = [noted for one in about.choices if (noted := one.details.get("trial")) and noted["of"] == names]
            if not tried or tried[-1]["chance"] <= tried[-1]["share"]:  # the policy in force would have shown it, too
                earned, number = self._usual.get(question, (0.0, 0))
                self._usual[question] = earned + value, number + 1
            if not tried:
                continue
            last, key = tried[-1], reward.episode or reward.decision
            unit = self._units.setdefault(key, _Unit(last["share"], last["chance"], last["apart"], price, last["new"]))
            unit.chance, unit.apart = last["chance"], last["apart"]
            if reward.decision:
                unit.of_one[reward.decision, reward.source] = value
            else:
                unit.of_all[reward.source] = value


@dataclass(frozen=True, slots=True)
class _Lot:
    """Who chooses in a search or an episode: the share that the new policy had in the draw, whether it was drawn, how probable
    that is for somebody who knows what was shown so far, and how far apart the two policies were."""

    share: float
    new: bool
    chance: float
    apart: float = 0.0


class Replacement:
    """Two policies of one scope of a memory. It is asked what a `Learning` is asked. Thread-safe.

    Args:
        new: What the policy on trial has learned.
        old: What the policy in force has learned. Both are of the same memory.
        trial: The trial, as it is noted on file.
        seed: That of the draws of who chooses; None draws differently each time.
    """

    by_number = True
    """Whether a choice needs the number of its episode, in which one of the two chooses."""

    def __init__(self, new: Learning, old: Learning, trial: NotedTrial, seed: int | None = None) -> None:
        self.new, self.old, self.trial, self._seed = new, old, trial, seed
        self.store, self.reward_range = new.store, new.reward_range
        keeping = next((learning for learning in (old, new) if learning.keeps), new)
        self.scope = keeping.scope
        self._lock = old._lock = new._lock  # each is asked while the other one is held
        self._evidence = Evidence(new.store, new.scope, trial, new.reward_range)
        self._lots = Recent[int, _Lot](LIVE)
        self._narrower = Recent["Scope", Replacement](HANDLES)
        head = new.store.head() if new.store.database.has_files else 0
        process = [head, os.getpid()] if new.store.database.has_files else []
        self._generator = np.random.default_rng(None if seed is None else [41, seed, *process])

    # How it stands.

    @property
    def promotion(self) -> Promotion:
        """Return how far the new policy has replaced the old one, up to date with the file."""
        with self._lock:
            return self._evidence.promotion()

    @property
    def in_force(self) -> Learning:
        """Return the policy that chooses where nothing is tried: the new one once it is proven."""
        return self.new if self.promotion.state == PROVEN else self.old

    @property
    def policy(self) -> str:
        """Return the name of the policy in force."""
        return self.in_force.policy

    @property
    def make(self) -> Callable[[], Policy]:
        return self.in_force.make

    @property
    def experience(self) -> Experience:
        return self.in_force.experience

    @property
    def keeps(self) -> bool:
        """Return whether an episode is closed with its reward, because a policy writes items then. One that was refused writes
        no more."""
        return self.old.keeps or (self.new.keeps and self.promotion.state != REFUSED)

    @property
    def through(self) -> int:
        return min(self.new.through, self.old.through)

    def within(self, scope: Scope) -> Replacement:
        """Return the two policies with what they learned from the rewards that a handle of this scope may know of, and the trial
        by these rewards."""
        new, old = self.new.within(scope), self.old.within(scope)
        if new is self.new and old is self.old:
            return self
        with self._lock:
            narrower = self._narrower.get(scope)
            if narrower is None or narrower.new is not new or narrower.old is not old:
                narrower = Replacement(new, old, self.trial, self._seed)
            self._narrower[scope] = narrower
            return narrower

    # Choosing.

    def choose(self, ask: Ask, top_k: int, sources: Callable[[Learning], CandidateSources], user: str) -> Chosen:
        """Choose at most `top_k` items to show, by the policy that is drawn.

        Args:
            ask: What is asked: the task, the query and the actions.
            top_k: The most items.
            sources: Where a policy's candidates come from, and which may be shown at all.
            user: That of the scope in which is searched.
        """
        with self._lock:
            lot = self._begun(ask)
            promotion = self.promotion if lot is None else None
        if lot is None and (promotion is None or promotion.state != ON_TRIAL or not ask.explore):
            return self.in_force.choose(ask, top_k, sources, user)
        places = {learning: sources(learning) for learning in (self.new, self.old)}
        answers = {learning: learning.look(where) for learning, where in places.items()}
        with self._lock:
            new, old = (learning.weigh(ask, top_k, places[learning], answers[learning]) for learning in places)
            usual = old.certain_ids
            apart = 1.0 - min(new.probability(usual), old.probability(usual))
            lot = self._draw(ask, apart) if lot is None else lot
            learning, weighed = (self.new, new) if lot.new else (self.old, old)
            by_new, by_old = new.probability(weighed.ids), old.probability(weighed.ids)
            p = lot.chance * by_new + (1.0 - lot.chance) * by_old
            lot = replace(lot, chance=lot.chance * by_new / p, apart=min(1.0, lot.apart + apart))
            if ask.number >= 0:
                self._lots[ask.number] = lot
            names = [self.trial.policy, self.trial.replaces]
            noted = {"of": names, "share": lot.share, "chance": lot.chance, "apart": lot.apart, "new": lot.new}
            return learning.show(weighed, ask, top_k, user, propensity=p, trial=noted)

    def _begun(self, ask: Ask) -> _Lot | None:
        """Return who chooses in the episode of a search, if something was searched in it while the trial went on."""
        if ask.number < 0:
            return None
        if (lot := self._lots.get(ask.number)) is not None:
            return lot
        with self.store.database.reading() as connection:
            noted = log.trial_in(connection, ask.number)
        if not noted or noted["of"] != [self.trial.policy, self.trial.replaces]:
            return None
        return _Lot(noted["share"], noted["new"], noted["chance"], noted["apart"])

    def _draw(self, ask: Ask, apart: float) -> _Lot:
        """Draw who chooses. In the rest of an episode the two policies may be as far apart as can be."""
        share = self.promotion.share_where(1.0 if ask.number >= 0 else apart, self._evidence.price(ask.goal))
        generator = self._generator if ask.seed is None else np.random.default_rng([41, ask.seed, ask.step])
        return _Lot(share, bool(generator.random() < share), share)

    # Rewards. Both policies learn from the journal; what is written at once is written by one of them.

    def finish(self, about: Rewarded, value: float, by: str, source: str) -> OperationOutcome:
        """Take in the final reward of an episode or of one decision, as `Learning.finish` does, by the policy that keeps items.
        Where both do, it is the one that chose in the episode.

        Args:
            about: The episode or the decision.
            value: The reward.
            by: The person who gave it; "" for the program itself.
            source: The channel through which it came.
        """
        keeping = self.old if self.old.keeps else self.new
        if self.old.keeps and self.new.keeps and self._drew_new(about):
            keeping = self.new
        return keeping.finish(about, value, by, source)

    def _drew_new(self, about: Rewarded) -> bool:
        """Return whether the new policy chose what is rewarded."""
        noted: Mapping[str, Any] = {}
        with self.store.database.reading() as connection:
            choice = log.single(connection, about.decision) if about.decision else None
            record = log.record(connection, about.episode) if about.episode and choice is None else None
            for one in [choice] if choice is not None else record.choices if record is not None else ():
                noted = one.details.get("trial") or noted
        return bool(noted.get("new", self.in_force is self.new))

    def has(self, about: Rewarded, value: float, by: str, source: str) -> bool:
        """Return whether the latest reward of an episode or a decision is this one.

        Args:
            about: The episode or the decision.
            value: The reward.
            by: The person who gave it; "" for the program itself.
            source: The channel through which it came.
        """
        return any(learning.has(about, value, by, source) for learning in (self.old, self.new))

    def count_reward(self, decision: str, value: float, by: str) -> None:
        """Count a reward of this process.

        Args:
            decision: The id of the rewarded choice; "" for a whole episode.
            value: The reward.
            by: The person who gave it; "" for the program itself.
        """
        for learning in (self.old, self.new):
            learning.count_reward(decision, value, by)

    def unchallenged_before(self, about: Rewarded, person: str, source: str) -> list[str]:
        """Return the searches about which nobody said anything between two complaints of a person who only ever complains.

        Args:
            about: What the later complaint is about.
            person: Who complains; "" for the program itself.
            source: The source of the complaint.
        """
        listed = (learning.unchallenged_before(about, person, source) for learning in (self.old, self.new))
        return next(filter(None, listed), [])

    def save(self) -> None:
        self.old.save()
        self.new.save()

    # Judging: by the policy in force.

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
        return self.in_force.propose(proposed, scope, episode, number, person)

    def worth(self, item: Item, query: str, scope: Scope) -> Worth:
        """Return what showing an item adds to a question, according to rewards.

        Args:
            item: The one that is judged.
            query: The question.
            scope: What the caller sees.
        """
        return self.in_force.worth(item, query, scope)

    def ledger(self, scope: Scope, items: Sequence[str] | None = None, *, everything: bool = False) -> Balance:
        """Return the ledger: what chance decided, and what came of it.

        Args:
            scope: What the caller sees.
            items: Ids; None for all current items that were shown with a reward or were under test.
            everything: Also items that were not, and items that are gone.
        """
        return self.in_force.ledger(scope, items, everything=everything)
