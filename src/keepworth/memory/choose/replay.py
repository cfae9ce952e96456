"""Choices as they are on file, made again what a policy learns from."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from keepworth.memory.choose.ledger import Trial
from keepworth.memory.choose.mirror import Mirror
from keepworth.memory.choose.named import NONE
from keepworth.memory.choose.slots import Candidates, LoggedChoice, Query, Use, Values
from keepworth.memory.errors import ClosedEpisode, UnknownEpisode
from keepworth.memory.item import Item
from keepworth.memory.search.index import in_eight_bits, of_eight_bits
from keepworth.memory.store import log
from keepworth.memory.store.connection import AnyConnection
from keepworth.memory.store.episode_log import Rewarded
from keepworth.memory.store.log import About, Choice, News

if TYPE_CHECKING:
    from keepworth.base.arrays import Floats, Vectors

_NO_CANDIDATES = Candidates(np.zeros(0, dtype=np.intp), np.zeros(0))
_NO_VALUES = Values(np.zeros(0), np.zeros(0))


class Replay:
    """Reads logged choices for the experience of a mirror. policy: its choices kept the exact vector of the query."""

    def __init__(self, mirror: Mirror, policy: str) -> None:
        self.mirror, self.experience, self.policy = mirror, mirror.experience, policy

    def pairs(
        self,
        task: str,
        person: str,
        choices: Sequence[Choice],
        reward: float,
        episode: str,
        scaled: Callable[[float], float],
    ) -> tuple[list[tuple[Use, str]], list[float] | None]:
        """Return choices with their actions, and rewards if steps have their own. Choices that showed an item that is gone teach
        nothing; nor do choices without an action where others have one."""
        if any(choice.action for choice in choices):
            choices = [choice for choice in choices if choice.action]
        if self.experience.policy.retriever is None:
            self.mirror.rows_of(self._unknown(choices))
        pairs, steps = [], []
        for choice, earned, weight in credited(choices, reward):
            use = self.use(task, person, choice, episode)
            if use is not None:
                use.weight = weight
                pairs.append((use, choice.action))
                steps.append(scaled(earned))
        return pairs, steps if any(math.isfinite(choice.reward) for choice in choices) else None

    def uses(
        self, news: News, about: About, *, stale: bool = False, trusts: Sequence[float] | None = None
    ) -> Iterator[Use]:
        """Yield what a record of rewards learns from a reward. `stale` ones are too old to encode their question again if the
        vector is missing; `trusts` say how far the reward counts for each choice, if that was judged before."""
        task, person, choices = about
        judged, encoder = iter(trusts or ()), self.experience.encoder
        # If a query was repeated, credit only the action after its last occurrence.
        last = {choice.decision.query: choice.decision.id for choice in choices}
        for choice, reward, weight in credited(choices, news.value):
            named = choice.details.get("named")
            decision, vector = choice.decision, self.vector(choice)
            if vector is None:
                text = self.experience.policy.keyer(*asked_then(task, choice))
                if not decision.query or not text.strip():
                    continue
                # Near nothing, where it is too old to be encoded again: it counts in the ledger alone.
                vector = np.zeros(encoder.identity.dimension, np.float32) if stale else encoder.encode([text])[0]
            odds, expected = choice.details.get("odds") or {}, choice.details.get("expected", 0.0)
            logged = LoggedChoice(
                tuple(decision.chosen),
                Trial(decision.id, news.episode, odds, expected, person or news.scope.user),
                credit=float(last[decision.query] == decision.id) if choice.action and weight < 1.0 else None,
                instead=choice.details.get("instead", math.nan),
                roles=None if named is None else named.get(choice.action, [NONE]),
                source=news.source,
                home=news.scope.user,
                stale=stale,
                trust=next(judged, None),
            )
            query = Query("", vector, self.experience.time, -1, by=person)
            yield Use(
                query,
                _NO_CANDIDATES,
                _NO_VALUES,
                None,
                (),
                "main",
                choice.action,
                reward=reward,
                by=news.by,
                decision=decision.id,
                weight=weight,
                logged_choice=logged,
            )

    def use(self, task: str, person: str, choice: Choice, episode: str) -> Use | None:
        """Return a logged choice among the items that exist, or None if an item that it showed or its question was erased."""
        decision, details, rows = choice.decision, choice.details, self.mirror.rows
        if not decision.query:
            return None
        pairs = decision.candidates or tuple((id, 0.0) for id in decision.chosen)
        ids = [id for id, _ in pairs]
        slate = details.get("slate")
        if slate is None or not decision.candidates:
            slate = [ids.index(id) for id in decision.chosen]
            details = {name: details[name] for name in ("observation", "actions", "k", "part") if name in details}
        there = [index for index, id in enumerate(ids) if id in rows]
        moved = {index: position for position, index in enumerate(there)}
        if not all(index in moved for index in slate):
            return None

        def column(name: str, missing: Sequence[float]) -> Floats:
            values = details.get(name) or missing
            return np.array([values[index] for index in there], dtype=np.float64)

        nothing = [0.0] * len(ids)
        candidates = Candidates(
            np.array([rows[ids[index]] for index in there], dtype=np.intp),
            column("similarities", [score for _, score in pairs]),
        )
        return Use(
            self._query(task, person, choice),
            candidates,
            Values(column("means", nothing), column("deviations", nothing)),
            None,
            tuple([moved[index] for index in slate]),
            details.get("part", "main"),
            logged=decision.propensity,
            decision=decision.id,
            logged_choice=self._logged(choice, episode),
        )

    def _logged(self, choice: Choice, episode: str) -> LoggedChoice | None:
        """Return what a record of a policy that also writes learns from a choice."""
        if self.experience.policy.record is None:
            return None
        decision, details = choice.decision, choice.details
        trial = Trial(decision.id, episode or decision.id, details.get("odds") or {}, details.get("expected", 0.0))
        return LoggedChoice(tuple(decision.chosen), trial, instead=details.get("instead", math.nan))

    def _unknown(self, choices: Sequence[Choice]) -> list[Item]:
        """Return the candidates of choices that still exist and have no row."""
        ids = dict.fromkeys(
            id for choice in choices for id, _ in choice.decision.candidates if id not in self.mirror.rows
        )
        items = self.mirror.store.fetch(self.mirror.scope, list(ids)).values()
        return [item for item in items if item is not None]

    def _query(self, task: str, person: str, choice: Choice) -> Query:
        decision, details = choice.decision, choice.details
        goal, observation = asked_then(task, choice)
        time = details.get("time", self.experience.clock.now)
        return self.experience.query(
            goal,
            observation,
            tuple(details.get("actions", ())),
            decision.step,
            by=person,
            vector=self.vector(choice, exact=True) if decision.policy == self.policy else None,
            episode=details.get("of", time),
            time=time,
        )

    def vector(self, choice: Choice, *, exact: bool = False) -> Vectors | None:
        """Return the query's unit vector, bit for bit if `exact`, or None if none is on file."""
        packed, width = choice.vector, self.experience.encoder.identity.dimension
        if packed is None or struct.unpack_from("<H", packed)[0] != (self.mirror.store.set_id or 0):
            return None
        if len(packed) == 2 + 4 * width:
            return np.frombuffer(packed, "<f4", offset=2).astype(np.float32)
        if len(packed) != 2 + width or exact:
            return None
        return of_eight_bits(np.frombuffer(packed, np.int8, offset=2))


def credited(choices: Sequence[Choice], value: float) -> list[tuple[Choice, float, float]]:
    """Return (choice, reward, weight) for each choice: its own reward with weight 1, or `value` with weight 1 over the number of
    choices that share it."""
    shared = sum(not math.isfinite(choice.reward) for choice in choices)
    return [(c, c.reward, 1.0) if math.isfinite(c.reward) else (c, value, 1.0 / shared) for c in choices]


def details_of(use: Use) -> dict[str, Any]:
    """Return the details to log of a choice of a policy that learns by candidates and estimates, for `Replay.use`."""
    return {
        "observation": use.query.observation,
        "actions": use.query.actions,
        "time": use.query.time,
        "of": use.query.episode,
        "similarities": use.candidates.similarities.tolist(),
        "means": use.values.means.tolist(),
        "deviations": use.values.deviations.tolist(),
        "slate": use.slate,
        "part": use.part,
    }


def packed_vector(vector: Vectors, set_id: int, *, whole: bool) -> bytes:
    """Pack the id of the encoder's set of vectors and a vector: bit for bit if `whole`, else in eight bits a number."""
    return struct.pack("<H", set_id) + (vector.astype("<f4") if whole else in_eight_bits(vector)).tobytes()


def asked_then(task: str, choice: Choice) -> tuple[str, str]:
    """Return the task and what was searched for, "" if that was the task. Outside an episode the query is the task."""
    query = choice.decision.query
    return task or query, choice.details.get("observation", query if task and task != query else "")


def rewarded_choices(connection: AnyConnection, about: Rewarded, value: float) -> tuple[str, str, list[Choice] | None]:
    """Return the task, the person, and the choices that a reward is about. The choices are None if the episode has this reward
    already."""
    record = log.record(connection, about.episode) if about.episode else None
    task, person = (record.task, record.person) if record is not None else ("", "")
    if about.decision:
        listed = record.choices if record is not None else ()
        one = next((choice for choice in listed if choice.decision.id == about.decision), None)
        one = one or log.single(connection, about.decision)
        if one is None:
            raise UnknownEpisode(f"decision {about.decision!r:.80} was erased meanwhile: nothing was learned")
        return task, person, [replace(one, reward=math.nan)]
    if record is None:
        raise UnknownEpisode(f"episode {about.episode!r:.80} was erased meanwhile: nothing was learned")
    if not record.rewards:
        return task, person, list(record.choices)
    before = record.rewards[-1][0]
    if before == value:
        return task, person, None
    given = f"with {before:g} and cannot become {value:g}" if math.isfinite(before) else "before, and that was erased"
    raise ClosedEpisode(f"episode {record.id!r} was rewarded {given}.", "Open a new episode.")
