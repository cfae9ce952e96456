"""A-MemGuard: follows the conclusion of most records, and keeps rejected ones as lessons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from keepworth.base.arrays import Bools, Vectors
from keepworth.base.text import as_line
from keepworth.memory.choose.case_policies import cases
from keepworth.memory.choose.exemplars import exemplars
from keepworth.memory.choose.pool import Pool, advice
from keepworth.memory.choose.ready_slots import MostSimilar, Unvalued
from keepworth.memory.choose.slates import Mixture
from keepworth.memory.choose.slots import Candidates, Policy, Presented, Query, Values
from keepworth.memory.item import Item, Scope
from keepworth.registry import Method

LESSONS, CLOSE, MOST = 4, 0.7, 500
"""The most lessons that are shown, the cosine from which one is near, and the most that are kept."""


def path(pool: Pool, row: int, query: Query) -> str:
    """Returns what this item alone advises, as text (A-MemGuard, arXiv 2510.02373, with equality of texts in place of
    clustered embeddings).

    Args:
        pool: The rows of all items.
        row: The item's place among them.
        query: The situation, whose text decides which advice applies.
    """
    return " ".join(
        f"{'do' if weight > 0 else 'avoid'} {action}" for action, weight in advice(pool.items[row], query.text)
    )


def agreeing(paths: list[str], least: int) -> Bools:
    """Marks the members of the largest group of equal paths, of equals the first; none where it has below `least` members."""
    best, size = max(Counter(paths).items(), key=lambda group: group[1], default=("", 0))
    return np.array([size >= least and other == best for other in paths], dtype=bool)


@dataclass(slots=True)
class Guard:
    """Selector and presenter in one, because they share the store of lessons: situation, action and scope of each."""

    k: int
    least: int
    _lessons: list[tuple[Vectors, str, Scope]] = field(default_factory=list)
    _seen: frozenset[Scope] = frozenset()

    def select(self, query: Query, candidates: Candidates, values: Values, pool: Pool) -> Mixture:
        """Shows the largest group of candidates that support the same action; nothing if that group is too small.

        Args:
            query: The situation that the candidates were retrieved for.
            candidates: The items that are compared with one another.
            values: Not used, as similarity decides inside the group.
            pool: The rows of all items.
        """
        agree = self.note(query, candidates, pool)
        # A lesson from an item is shown only where items of its scope can be seen.
        self._seen = frozenset(pool.items[row].scope for row in candidates.rows.tolist())
        return Mixture("greedy", np.where(agree, candidates.similarities, -np.inf), np.zeros(len(agree)), self.k)

    def note(self, query: Query, candidates: Candidates, pool: Pool) -> Bools:
        """Stores advice that the consensus rejects as lessons, and returns which candidates agree.

        Args:
            query: The situation that the candidates were retrieved for.
            candidates: The items that are compared with one another.
            pool: The rows of all items.
        """
        paths = [path(pool, row, query) for row in candidates.rows.tolist()]
        agree = agreeing(paths, self.least)
        if agree.any():
            for row, advice_path, good in zip(candidates.rows.tolist(), paths, agree, strict=True):
                if not good and advice_path.startswith("do "):
                    self._lessons.append((query.vector, advice_path.removeprefix("do "), pool.items[row].scope))
            del self._lessons[:-MOST]
        return agree

    def present(self, items: list[Item], query: Query, similarities: Sequence[float]) -> Presented:
        """Shows the items as `exemplars` does, with a warning of the lessons that fit the situation.

        Args:
            items: What is shown, in its order.
            query: What was asked, with the actions that are possible.
            similarities: The cosine of each item with the query.
        """
        shown = exemplars(items, query, similarities)
        advised = {action for action, weight, _ in shown.advice if weight > 0}
        warned = [action for action in self.near(query) if action not in advised]
        if not warned:
            return shown
        text = "\n".join(
            [shown.text, "Warning, rejected before in similar situations:", *(f"- {as_line(a)}" for a in warned)]
        )
        return Presented(text.strip(), shown.advice + tuple((action, -1.0, CLOSE) for action in warned))

    def near(self, query: Query) -> list[str]:
        """Returns the actions of the lessons closest to the query, each once, at most `LESSONS`."""
        if not self._lessons:
            return []
        vectors, actions, scopes = zip(*self._lessons, strict=True)
        similarities = np.stack(vectors) @ query.vector
        order = np.argsort(-similarities, kind="stable").tolist()
        near = [index for index in order if similarities[index] >= CLOSE and scopes[index] in self._seen]
        return list(dict.fromkeys(actions[index] for index in near))[:LESSONS]


def amemguard(*, k: int = 4, least: int = 2, failures: bool = False, steps: bool = False) -> Policy:
    """Returns A-MemGuard over an ExpRAG memory, as the paper guards an existing agent.

    Args:
        k: The most that is shown.
        least: Records that have to agree; where fewer do, nothing is shown.
        failures: Whether failed cases are kept and shown, too.
        steps: Whether each step of an episode is a case.
    """
    guard = Guard(k, least)
    policy = cases("amemguard", MostSimilar(k), Unvalued(), guard.select, failures, steps)
    return replace(policy, presenter=guard.present, rehearse=guard.note)


METHOD = Method(
    kind="policy",
    name="amemguard",
    title="A-MemGuard",
    paper="arXiv 2510.02373",
    about="Guards against planted records: it follows what most retrieved records advise and keeps lessons of what went wrong",
    tags=("token", "experiential", "evolution", "retrieval"),
    claim="The attack MINJA succeeds in .256 of MMLU tasks with GPT-4o-mini, undefended in .667.",
    differs=(
        "A record's path is what it alone advises, and consensus is the largest group of equal paths, where "
        "the paper clusters embeddings; K is 4 instead of 5."
    ),
    make=amemguard,
    on={"k": 4, "least": 2},
    notes="It follows what most records advise, and plain notes advise no action.",
)
