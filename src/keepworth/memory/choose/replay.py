"""Choices as they are on file, made again what a policy learns from."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from keepworth.memory.choose.ledger import Trial
from keepworth.memory.choose.mirror import Mirror
from keepworth.memory.choose.named import NONE
from keepworth.memory.choose.slots import Candidates, LoggedChoice, Query, SearchedCandidates, Use, Values
from keepworth.memory.choose.wordings import Wordings
from keepworth.memory.errors import ClosedEpisode, UnknownEpisode
from keepworth.memory.search.index import in_eight_bits, of_eight_bits
from keepworth.memory.store import log
from keepworth.memory.store.connection import AnyConnection
from keepworth.memory.store.decision_log import TEXTS
from keepworth.memory.store.episode_log import Rewarded
from keepworth.memory.store.log import About, Choice, News

if TYPE_CHECKING:
    from keepworth.base.arrays import Vectors

_NO_VALUES = Values(np.zeros(0), np.zeros(0))


class Replay:
    """Reads logged choices as what a policy learns from, for the experience of a mirror.

    policy: Its choices kept the exact vector of the query. reward_range: Rewards in it are learned from as they are by a record,
    and on the scale 0 to 1 else."""

    def __init__(self, mirror: Mirror, policy: str, reward_range: tuple[float, float], wordings: Wordings) -> None:
        self.mirror, self.experience, self.policy, self.reward_range = mirror, mirror.experience, policy, reward_range
        self.wordings = wordings

    def scaled(self, reward: float) -> float:
        """Return a reward on the scale 0 to 1, or as it is if the policy has a record."""
        if self.experience.policy.record is not None:
            return reward
        low, high = self.reward_range
        return float((reward - low) / (high - low))

    def uses(
        self,
        news: News,
        about: About,
        *,
        stale: bool = False,
        by_record: bool | None = None,
    ) -> list[Use]:
        """Return what is learned from a reward: its choices, with their actions and what each of them earned.

        A choice whose question was erased teaches nothing. If the policy has no record, nor does one without an action where
        others have one, and if it goes by the rows of a pool, nor does one that showed an item that is gone.

        Args:
            news: The reward, as the journal has it.
            about: The task, the person and the choices that it is about, as they are on file.
            stale: Whether it is too old for a record to encode the question again if its vector is missing.
            by_record: Whether a record learns from it; None if the policy's own does if it has one.
        """
        task, person, choices = about
        policy = self.experience.policy
        by_record = policy.record is not None if by_record is None else by_record
        if not by_record and any(choice.action for choice in choices):
            choices = [choice for choice in choices if choice.action]
        uses = list[Use]()
        # If a query was repeated, credit only the action after its last occurrence.
        last = {choice.decision.query: choice.decision.id for choice in choices}
        for choice, reward, weight in credited(choices, news.value):
            repeated = bool(choice.action) and weight < 1.0
            credit = float(last[choice.decision.query] == choice.decision.id) if repeated else None
            slate = self._slate(choice, by_record=by_record)
            query = None if slate is None else self._query(task, person, choice, by_record=by_record, stale=stale)
            if query is None or slate is None:
                continue
            uses.append(
                Use(
                    query,
                    *slate,
                    choice.details.get("part", "main"),
                    choice.action,
                    reward=reward if by_record else self.scaled(reward),
                    logged=choice.decision.propensity,
                    by=news.by,
                    decision=choice.decision.id,
                    weight=weight,
                    logged_choice=self._logged(news, person, choice, credit, stale=stale),
                )
            )
        return uses

    def _slate(self, choice: Choice, *, by_record: bool) -> tuple[Candidates, Values, None, tuple[int, ...]] | None:
        """Return the candidates of a choice, what was estimated of them, and the places of those that were shown. None if an item
        that was shown is in the pool no more."""
        decision, details = choice.decision, choice.details
        # No candidates are kept of old choices.
        pairs = decision.candidates or [(id, 0.0) for id in decision.chosen]
        ids, scores = zip(*pairs, strict=True) if pairs else ((), ())
        try:
            slate = [ids.index(id) for id in decision.chosen]
        except ValueError:  # of a log from elsewhere
            ids, scores = decision.chosen, (0.0,) * len(decision.chosen)
            slate = list(range(len(ids)))
        if by_record:
            return SearchedCandidates(ids, scores, self.mirror), _NO_VALUES, None, tuple(slate)
        logged = details if decision.candidates and "slate" in details else {}
        slate, nothing = logged.get("slate", slate), [0.0] * len(ids)
        similarities, means, deviations = (
            np.array(logged.get(name) or missing, dtype=np.float64)
            for name, missing in (("similarities", scores), ("means", nothing), ("deviations", nothing))
        )
        if self.experience.policy.retriever is None:
            return SearchedCandidates(ids, similarities, self.mirror), Values(means, deviations), None, tuple(slate)
        rows = self.mirror.rows
        there = [index for index, id in enumerate(ids) if id in rows]
        moved = {index: place for place, index in enumerate(there)}
        if not all(index in moved for index in slate):
            return None
        candidates = Candidates(np.array([rows[ids[index]] for index in there], dtype=np.intp), similarities[there])
        return candidates, Values(means[there], deviations[there]), None, tuple([moved[index] for index in slate])

    def _query(self, task: str, person: str, choice: Choice, *, by_record: bool, stale: bool) -> Query | None:
        """Return the question of a choice, or None if it was erased. A record learns from one that is too old to be encoded again
        near nothing: it counts in the ledger alone."""
        decision, details = choice.decision, choice.details
        exact = not by_record
        vector = self.vector(choice, exact=exact) if by_record or decision.policy == self.policy else None
        goal, observation = asked_then(task, choice)
        if vector is None and by_record and not self.experience.policy.keyer(goal, observation).strip():
            return None
        if not decision.query and (vector is None or exact):
            return None
        if vector is None and stale and by_record:
            vector = np.zeros(self.experience.encoder.identity.dimension, np.float32)
        time = details.get("time", self.experience.clock.now)
        return self.experience.query(
            goal,
            observation,
            tuple(details.get("actions", ())),
            decision.step,
            by=person,
            vector=vector,
            episode=details.get("of", time),
            time=time,
            offers=not by_record,
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

    def _logged(self, news: News, person: str, choice: Choice, credit: float | None, *, stale: bool) -> LoggedChoice:
        """Return what is on file about a choice and its reward."""
        decision, details = choice.decision, choice.details
        odds, expected, named = details.get("odds") or {}, details.get("expected", 0.0), details.get("named")
        texts = details.get(TEXTS) or {}
        trial = Trial(
            decision.id,
            news.episode,
            odds,
            expected,
            person or news.scope.user,
            joint=bool(details.get("joint")),
        )
        return LoggedChoice(
            tuple(self.wordings.then(decision.chosen, texts)),
            trial,
            credit=credit,
            instead=details.get("instead", math.nan),
            roles=None if named is None else named.get(choice.action, [NONE]),
            source=news.source,
            home=news.scope.user,
            stale=stale,
        )


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
    """Pack the id of the encoder's set of vectors and a vector.

    Args:
        vector: The vector, of shape (dimension,).
        set_id: The number of the encoder's set of vectors, below 65,536.
        whole: Whether it is kept bit for bit; else in eight bits a number.
    """
    return struct.pack("<H", set_id) + (vector.astype("<f4") if whole else in_eight_bits(vector)).tobytes()


def asked_then(task: str, choice: Choice) -> tuple[str, str]:
    """Return the task and what was searched for, "" if that was the task. Outside an episode the query is the task."""
    query = choice.decision.query
    return task or query, choice.details.get("observation", query if task and task != query else "")


def rewarded_choices(connection: AnyConnection, about: Rewarded, value: float) -> tuple[str, str, list[Choice] | None]:
    """Return the task, the person, and the choices that a reward is about; None for the choices if the episode has this
    reward already.

    Args:
        connection: The open file.
        about: The episode or the decision that was rewarded.
        value: The reward.
    """
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
