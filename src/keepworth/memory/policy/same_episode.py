"""Items of the same episode, offered to every method alike, whatever its own retrieval does with them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from keepworth.memory.errors import InvalidPolicy
from keepworth.memory.policy.need import need
from keepworth.memory.policy.pool import Pool
from keepworth.memory.policy.propensity import Mixture
from keepworth.memory.policy.slots import Candidates, Policy, Query, Retriever, Selector, Values

PLACES = ("ignored", "among", "newest", "oldest")


def seeing_the_episode(method: Policy, here: str = "among", recent: int = 12) -> Policy:
    """`method` with the `recent` newest items of the same episode among its candidates.

    here: "among" leaves it to the method what it makes of them, "newest" and "oldest" show them before anything else, and
    "ignored" does nothing, as papers that know no episodes. Raises InvalidPolicy."""
    if here not in PLACES:
        raise InvalidPolicy(f"items of the same episode cannot be {here!r}.", f"Use one of {', '.join(PLACES)}.")
    if here == "ignored":
        return method
    assert method.retriever is not None
    method.retriever = WithSameEpisode(method.retriever, recent)
    if here != "among":
        method.selector = SameEpisodeFirst(method.selector, here == "newest")
    return method


@dataclass(frozen=True, slots=True)
class WithSameEpisode:
    """What `retriever` finds, and the `recent` newest items of the same episode; those on probation stay last."""

    retriever: Retriever
    recent: int = 12

    def __post_init__(self) -> None:
        need("the retrieval", count={"recent": self.recent})

    def __call__(self, query: Query, pool: Pool) -> Candidates:
        found = self.retriever(query, pool)
        tail = pool.active()[-self.recent :]
        here = tail[(pool.episode[tail] == query.episode) & ~np.isin(tail, found.rows)]
        here = pool.speaking_of(here, query.actions) if query.actions else here
        if not len(here):
            return found
        first = len(found.rows) - found.waiting
        return Candidates(
            np.concatenate([found.rows[:first], here, found.rows[first:]]),
            np.concatenate(
                [found.similarities[:first], pool.similarities(query.vector, here), found.similarities[first:]]
            ),
            found.waiting,
        )


@dataclass(frozen=True, slots=True)
class SameEpisodeFirst:
    """Items of the same episode before what `selector` prefers, newest or oldest of them first."""

    selector: Selector
    newest: bool = True

    def __call__(self, query: Query, candidates: Candidates, values: Values, pool: Pool) -> Mixture:
        choice = self.selector(query, candidates, values, pool)
        assert isinstance(choice, Mixture)
        rows = candidates.rows[: len(choice.first)]
        here = np.flatnonzero(pool.episode[rows] == query.episode)
        if not len(here):
            return choice
        scores = choice.first.copy()
        finite = scores[np.isfinite(scores)]
        # Far enough apart that no noise of the choice turns the order.
        step = 1e3 * (1.0 + float(np.abs(finite).max(initial=0.0)))
        ages = np.argsort(np.argsort(rows[here] if self.newest else -rows[here]))
        scores[here] = step * (1.0 + ages)
        return replace(choice, first=scores)
