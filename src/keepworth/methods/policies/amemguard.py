"""A-MemGuard: follows the conclusion of most records, and keeps rejected ones as lessons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from keepworth.episodes.arrays import Bools, Vectors
from keepworth.episodes.text import as_line
from keepworth.memory.item import Item, Scope
from keepworth.memory.policy.pool import Pool, advice
from keepworth.memory.policy.slots import Candidates, Policy, Presented, Query, Values, whole
from keepworth.methods.policies._exemplars import Capacity, Exemplars
from keepworth.methods.policies._parts import MostSimilar, Unvalued
from keepworth.methods.policies._slates import Mixture
from keepworth.methods.writers._episodes import RawCases
from keepworth.registry import Method


@dataclass(frozen=True, slots=True)
class Consensus:
    """Shows the largest group of candidates that support the same action; nothing if no group has `least` members.

    The reasoning path that an item alone supports is its advice in this situation (A-MemGuard, arXiv 2510.02373, with equality of
    paths in place of clustered embeddings).
    """

    k: int = 5
    least: int = 2

    def __call__(self, query: Query, candidates: Candidates, values: Values, pool: Pool) -> Mixture:
        agree = agreeing([path(pool, int(row), query) for row in candidates.rows], self.least)
        scores = np.where(agree, candidates.similarities, -np.inf) if len(agree) else np.zeros(0)
        return Mixture("greedy", scores, np.zeros(len(scores)), self.k)


def path(pool: Pool, row: int, query: Query) -> str:
    """Returns the conclusion that this item alone supports, as text."""
    return " ".join(
        f"{'do' if weight > 0 else 'avoid'} {action}" for action, weight in advice(pool.items[row], query.text)
    )


def agreeing(paths: list[str], least: int) -> Bools:
    """Marks the members of the largest group of equal paths, of equals the first; none where it has below `least` members."""
    counts: dict[str, int] = {}
    for other in paths:
        counts[other] = counts.get(other, 0) + 1
    if not counts:
        return np.zeros(0, dtype=bool)
    best = max(counts, key=lambda candidate: counts[candidate])
    if counts[best] < least:
        return np.zeros(len(paths), dtype=bool)
    return np.array([other == best for other in paths])


@dataclass(slots=True)
class Guard:
    """Selector and presenter in one, because they share the store of lessons."""

    k: int = 5
    least: int = 2
    lessons: int = 4
    close: float = 0.7
    most: int = 500
    _vectors: list[Vectors] = field(default_factory=list)
    _actions: list[str] = field(default_factory=list)
    _scopes: list[Scope] = field(default_factory=list)
    _seen: frozenset[Scope] = frozenset()

    def select(self, query: Query, candidates: Candidates, values: Values, pool: Pool) -> Mixture:
        self.note(query, candidates, pool)
        # A lesson from an item is shown only where items of its scope can be seen.
        self._seen = frozenset(pool.items[row].scope for row in candidates.rows.tolist())
        return Consensus(self.k, self.least)(query, candidates, values, pool)

    def note(self, query: Query, candidates: Candidates, pool: Pool) -> None:
        """Stores advice that the consensus rejects as lessons."""
        paths = [path(pool, int(row), query) for row in candidates.rows]
        agree = agreeing(paths, self.least)
        if agree.any():
            for row, advice_path, good in zip(candidates.rows.tolist(), paths, agree, strict=True):
                if not good and advice_path.startswith("do "):
                    self._vectors.append(query.vector)
                    self._actions.append(advice_path.removeprefix("do "))
                    self._scopes.append(pool.items[row].scope)
            del self._vectors[: -self.most], self._actions[: -self.most], self._scopes[: -self.most]

    def present(self, items: list[Item], query: Query, similarities: Sequence[float]) -> Presented:
        shown = Exemplars()(items, query, similarities)
        advised = {action for action, weight, _ in shown.advice if weight > 0}
        warned = [action for action in self.near(query) if action not in advised]
        if not warned:
            return shown
        text = "\n".join(
            [shown.text, "Warning, rejected before in similar situations:", *(f"- {as_line(a)}" for a in warned)]
        )
        return Presented(text.strip(), shown.advice + tuple((action, -1.0, self.close) for action in warned))

    def near(self, query: Query) -> list[str]:
        """Returns the actions of the lessons closest to the query, each once, at most `lessons`."""
        if not self._vectors:
            return []
        similarities = np.stack(self._vectors) @ query.vector
        order = [
            index
            for index in np.argsort(-similarities, kind="stable")
            if similarities[index] >= self.close and self._scopes[index] in self._seen
        ]
        return list(dict.fromkeys(self._actions[index] for index in order))[: self.lessons]


def amemguard(*, k: int = 4, least: int = 2, failures: bool = False, steps: bool = False) -> Policy:
    """Returns A-MemGuard over an ExpRAG memory, as the paper guards an existing agent.

    Args:
        least: Records that have to agree; where fewer do, nothing is shown.
    """
    guard = Guard(k, least)
    return Policy(
        "amemguard",
        whole,
        MostSimilar(k),
        Unvalued(),
        guard.select,
        guard.present,
        RawCases(failures, steps),
        (Capacity(),),
        rehearse=guard.note,
    )


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
)
