"""ACE: a playbook of bullets with counters of help and harm, which grows by small additions and is never rewritten."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from keepworth.memory.choose.case_policies import of_cases, require_part
from keepworth.memory.choose.case_writers import RawCases
from keepworth.memory.choose.pool import Advice, Pool, advice
from keepworth.memory.choose.ready_slots import Column, MostSimilar
from keepworth.memory.choose.slates import Mixture
from keepworth.memory.choose.slots import Candidates, Finished, Policy, Query, Use, Values
from keepworth.registry import Method

PARTS = ("counters",)


@dataclass(frozen=True, slots=True)
class Deltas:
    """Adds new bullets only: a bullet is dropped if its key has a cosine of `alike` or more to a bullet with the same advice."""

    cases: RawCases
    alike: float = 0.95

    def __call__(self, finished: Finished) -> list[Advice]:
        pool = finished.pool
        assert pool is not None
        drafts = []
        for draft in self.cases(finished):
            rows = pool.active()
            (action,) = draft.do or draft.avoid
            rows = rows[(pool.content[rows] == pool.content_of(action)) & (pool.warns[rows] == (not draft.do))]
            if not len(rows) or float(pool.similarities(pool.encode(draft.key), rows).max()) < self.alike:
                drafts.append(draft)
        return drafts


class HelpAndHarm:
    """value = (helpful - harmful) / (helpful + harmful + 1).

    A bullet that was shown and whose advice was followed helped with the reward's share of 1 and harmed with the rest (ACE, arXiv
    2510.04618: a reflector marks bullets as helpful or harmful). Advice is followed where what it says to do was done, and what
    it warns of was not; an item that advises no action is followed where it is shown.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.helpful, self.harmful = Column(), Column()

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Values:
        helpful = self.helpful.upto(len(pool))[candidates.rows]
        harmful = self.harmful.upto(len(pool))[candidates.rows]
        return Values((helpful - harmful) / (helpful + harmful + 1.0), np.zeros(len(candidates.rows)))

    def learn(self, use: Use, pool: Pool) -> None:
        helpful, harmful = self.helpful.upto(len(pool)), self.harmful.upto(len(pool))
        for row in use.rows:
            pairs = advice(pool.items[row], use.query.text)
            if pool.is_note(row) or any((action == use.taken) == (weight > 0) for action, weight in pairs):
                helpful[row] += use.reward
                harmful[row] += 1.0 - use.reward


@dataclass(frozen=True, slots=True)
class NotHarmful:
    """Shows the most similar bullets, but puts last those that harmed more than they helped."""

    k: int = 4

    def __call__(self, query: Query, candidates: Candidates, values: Values, pool: Pool) -> Mixture:
        scores = candidates.similarities - np.where(values.means < 0.0, 2.0, 0.0)
        return Mixture("greedy", scores, np.zeros(len(scores)), self.k)


def ace(
    *,
    k: int = 4,
    pool: int = 12,
    alike: float = 0.95,
    failures: bool = True,
    steps: bool = False,
    without: str = "",
) -> Policy:
    """Returns ACE: the most similar bullets of a playbook, harmful ones last.

    Args:
        k: The most that is shown.
        pool: The most similar cases among which it chooses.
        alike: Cosine of keys from which a bullet with the same advice is not added again.
        failures: Whether failed cases are kept and shown, too.
        steps: Whether each step of an episode is a case.
        without: "counters" leaves the order to similarity, as the released code does.
    """
    require_part(without, PARTS)
    retriever, writer = MostSimilar(k if without else pool), Deltas(RawCases(failures, steps), alike)
    return of_cases("ace", retriever, HelpAndHarm(), NotHarmful(k), writer)


METHOD = Method(
    kind="policy",
    name="ace",
    title="ACE, agentic context engineering",
    paper="arXiv 2510.04618",
    about=(
        "Keeps short advice lines with counters of how often each helped or harmed, adds lines one by one and "
        "never rewrites them"
    ),
    tags=("token", "experiential", "formation", "evolution"),
    claim="AppWorld success rises by 10.6 points and accuracy on finance tasks by 8.6, on average.",
    differs=(
        "Rules take the place of the paper's two models, and the k lines most similar to the situation are "
        "weighed by their counters, where the paper shows all lines."
    ),
    label="analogue",
    make=ace,
    parts=PARTS,
)
