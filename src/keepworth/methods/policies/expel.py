"""ExpeL: successes as examples, and insights with importance counts that votes raise and lower."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from keepworth.base.arrays import Bools, Rows
from keepworth.memory.choose.case_policies import of_cases
from keepworth.memory.choose.case_writers import RawCases
from keepworth.memory.choose.hashed_words import WORD
from keepworth.memory.choose.pool import ACTIVE, Advice, Pool
from keepworth.memory.choose.ready_slots import NOTHING, Column, eligible, top
from keepworth.memory.choose.slates import Mixture
from keepworth.memory.choose.slots import Candidates, Finished, Policy, Query, Use, Valuer, Values
from keepworth.memory.item import ItemKind, Status
from keepworth.registry import Method

START = 2.0
"""Importance of a new insight, as in the paper."""


def insights_among(rows: Rows, pool: Pool) -> Bools:
    """Marks the rows that are insights: those that the method wrote, and notes of people, which speak of no single action."""
    return np.array([pool.is_note(row) or bool(pool.items[row].metadata.get("insight")) for row in rows.tolist()], bool)


@dataclass(frozen=True, slots=True)
class SuccessesAndInsights:
    """Writes each success, and an insight: the words that it shares with the most similar earlier success of the same action.

    An insight needs `words` words; an existing one is not written again.
    """

    cases: RawCases
    words: int = 3

    def __call__(self, finished: Finished) -> list[Advice]:
        pool = finished.pool
        assert pool is not None
        drafts = []
        for draft in self.cases(finished):
            drafts.append(draft)
            rows = pool.active()
            rows = rows[pool.content[rows] == pool.content_of(draft.do[0])]
            rows = rows[~insights_among(rows, pool)]
            nearest = top(pool.similarities(pool.encode(draft.key), rows), rows, 1).rows
            if not len(nearest):
                continue
            theirs = set(WORD.findall(pool.items[int(nearest[0])].key.lower()))
            common = [word for word in dict.fromkeys(WORD.findall(draft.key.lower())) if word in theirs]
            key = " ".join(common)
            there = {(item.key, *item.metadata.get("do", ())) for item in (pool.items[row] for row in pool.active())}
            if len(common) >= self.words and (key, *draft.do) not in there:
                text = f"Where it says {key}: {draft.do[0]}"
                extra = {"insight": True}
                drafts.append(Advice(key, text, do=draft.do, kind=ItemKind.CASE, extra=extra))
        return drafts


@dataclass(frozen=True, slots=True)
class BothKinds:
    """Retrieves the nearest insights, then the nearest successes, `k` of each."""

    k: int = 4

    def __call__(self, query: Query, pool: Pool) -> Candidates:
        rows = eligible(query, pool)
        if not len(rows):
            return NOTHING
        similarities, general = pool.similarities(query.vector, rows), insights_among(rows, pool)
        kinds = [top(similarities[kind], rows[kind], self.k) for kind in (general, ~general)]
        return Candidates(
            np.concatenate([kind.rows for kind in kinds]), np.concatenate([kind.similarities for kind in kinds])
        )


class Votes:
    """Values an insight by its importance: it starts at `START`, gains 1 where it was shown and followed with success, and loses
    1 where that failed; at 0 it is removed. Examples have none (ExpeL, arXiv 2308.10144: ADD 2, UPVOTE +1, DOWNVOTE -1)."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.votes = Column()

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Values:
        votes = self.votes.upto(len(pool))[candidates.rows]
        general = insights_among(candidates.rows, pool)
        return Values(np.where(general, START + votes, 0.0), np.zeros(len(candidates.rows)))

    def learn(self, use: Use, pool: Pool) -> None:
        votes = self.votes.upto(len(pool))
        for row in use.rows:
            data = pool.items[row].metadata
            if pool.is_note(row) or (data.get("insight") and use.taken in data["do"]):
                votes[row] += 1.0 if use.good or use.reward >= 0.5 else -1.0


def _remove_outvoted(pool: Pool, valuer: Valuer, use: Use | None, time: int) -> None:
    """Archives insights whose importance has fallen to 0."""
    if use is None or not isinstance(valuer, Votes):
        return
    votes = valuer.votes.upto(len(pool))
    for row in use.rows:
        if pool.status[row] == ACTIVE and START + votes[row] <= 0.0 and pool.items[row].metadata.get("insight"):
            pool.set_status(row, Status.ARCHIVED)


@dataclass(frozen=True, slots=True)
class HalfInsights:
    """Gives at most half of the `k` places to the most important insights, the rest to examples."""

    k: int = 4

    def __call__(self, query: Query, candidates: Candidates, values: Values, pool: Pool) -> Mixture:
        general = insights_among(candidates.rows, pool)
        order = np.lexsort((-candidates.similarities, -values.means))
        examples = int((~general).sum())
        chosen = [index for index in order.tolist() if general[index]][: max(self.k // 2, self.k - examples)]
        scores = np.where(general, -np.inf, candidates.similarities)
        scores[chosen] = 10.0 - np.arange(len(chosen))
        return Mixture("greedy", scores, np.zeros(len(scores)), self.k)


def expel(*, k: int = 4, words: int = 3, steps: bool = False) -> Policy:
    """Returns ExpeL: insights by importance, and the most similar successes.

    Args:
        k: The most that is shown.
        words: Least number of words that two successes must share to make an insight.
        steps: Whether each step of an episode is a case.
    """
    writer = SuccessesAndInsights(RawCases(failures=False, steps=steps), words)
    return of_cases("expel", BothKinds(k), Votes(), HalfInsights(k), writer, _remove_outvoted)


METHOD = Method(
    kind="policy",
    name="expel",
    title="ExpeL",
    paper="arXiv 2308.10144",
    about="Shows successes as examples, and insights that gain or lose importance by votes",
    tags=("token", "experiential", "formation", "evolution"),
    claim="HotpotQA success rises from 28 % to 39 %, and ALFWorld from 40 % to 59 %.",
    differs=(
        "An insight is the words that two successes of one action share, and rewards vote on it, where the "
        "paper's model writes and votes."
    ),
    label="analogue",
    make=expel,
)
