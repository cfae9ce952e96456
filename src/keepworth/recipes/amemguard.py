"""A-MemGuard (arXiv 2510.02373): what retrieved records would each lead to is compared; the minority becomes lessons.

K = 5 records; the path of a record is what it alone advises, and consensus is the largest group of equal paths (the cheap
form clusters embeddings of paths). Rejected paths go to a second store, and near lessons are shown as warnings (4 at
most, as in the released code). Over an ExpRAG memory, as the paper guards an existing agent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from keepworth.episodes.text import as_line
from keepworth.memory.item import Item
from keepworth.memory.policy.gates import admit_all
from keepworth.memory.policy.keyers import whole
from keepworth.memory.policy.maintainers import Capacity
from keepworth.memory.policy.pool import Pool
from keepworth.memory.policy.presenters import Exemplars
from keepworth.memory.policy.propensity import Mixture
from keepworth.memory.policy.retrievers import MostSimilar
from keepworth.memory.policy.selectors import Consensus, agreeing, path
from keepworth.memory.policy.slots import Candidates, Policy, Presented, Query, Values
from keepworth.memory.policy.values import Unvalued
from keepworth.memory.policy.writers import RawCases

if TYPE_CHECKING:
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]

SUMMARY = "consensus among what retrieved records lead to; rejected paths become lessons shown as warnings"


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

    def select(self, query: Query, candidates: Candidates, values: Values, pool: Pool) -> Mixture:
        self.note(query, candidates, pool)
        return Consensus(self.k, self.least)(query, candidates, values, pool)

    def note(self, query: Query, candidates: Candidates, pool: Pool) -> None:
        """Keep what consensus rejects as lessons."""
        paths = [path(pool, int(row), query) for row in candidates.rows]
        kept = agreeing(paths, self.least)
        if kept.any():
            for each, good in zip(paths, kept, strict=True):
                if not good and each.startswith("do "):
                    self._vectors.append(query.vector)
                    self._actions.append(each.removeprefix("do "))
            del self._vectors[: -self.most], self._actions[: -self.most]

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
        """Actions of the lessons closest to the query, each once, at most `lessons`."""
        if not self._vectors:
            return []
        similarities = np.stack(self._vectors) @ query.vector
        order = [place for place in np.argsort(-similarities, kind="stable") if similarities[place] >= self.close]
        return list(dict.fromkeys(self._actions[place] for place in order))[: self.lessons]


def amemguard(*, seed: int = 0, k: int = 5, least: int = 2, failures: bool = False, steps: bool = False) -> Policy:
    guard = Guard(k, least)
    return Policy(
        "amemguard",
        whole,
        MostSimilar(k),
        Unvalued(),
        guard.select,
        guard.present,
        RawCases(failures, steps),
        admit_all,
        (Capacity(),),
        rehearse=guard.note,
    )
