"""Slots that policies are made of: how items are found, valued, chosen, shown and retired.

Retrievers choose among `eligible` items, so that every method has the same ones before it. Valuers are pure state over rows,
so a replay gives the same again. Selectors return a distribution over slates, so that every choice has a propensity.
Presenters make each item one line, in which nothing of its text can be taken for a line or a label of ours.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from keepworth.episodes.arrays import Bools, Floats, Numbers, Rows, Vectors
from keepworth.episodes.text import as_line
from keepworth.memory.errors import InvalidPolicy
from keepworth.memory.item import Item, Status
from keepworth.memory.policy.actions import SURE, Actions
from keepworth.memory.policy.pool import Pool, advice, grown
from keepworth.memory.policy.slots import (
    Candidates,
    Policy,
    Presented,
    Query,
    Retriever,
    Selector,
    Use,
    Valuer,
    Values,
    combined_advice,
    need,
)
from keepworth.methods.policies._slates import Mixture

BLOCK = 64
NOTHING = Candidates(np.zeros(0, dtype=np.intp), np.zeros(0))


def top(similarities: Floats | Vectors, rows: Rows, k: int, above: float = -np.inf) -> Candidates:
    """The `k` most similar above a threshold, best first; the newer row wins a tie."""
    if not len(rows):
        return NOTHING
    if len(rows) > max(BLOCK * BLOCK, 4 * BLOCK * k):
        # Each of the k best blocks has an entry at least as large as the k-th best block's maximum. A block is every
        # len(rows) // BLOCK-th entry: maxima over the first axis are an order of magnitude cheaper than over the last.
        whole = len(rows) // BLOCK * BLOCK
        maxima = similarities[:whole].reshape(BLOCK, -1).max(axis=0)
        best = np.flatnonzero(similarities >= np.partition(maxima, len(maxima) - k)[len(maxima) - k])
        similarities, rows = similarities[best], rows[best]
    elif len(rows) > 4 * k:
        best = np.argpartition(-similarities, k)[: k + 1]
        # Ties at the border must not depend on argpartition's order.
        best = np.flatnonzero(similarities >= similarities[best].min())
        similarities, rows = similarities[best], rows[best]
    order = np.lexsort((-rows, -similarities))[:k]
    if above > -np.inf:
        order = order[similarities[order].astype(np.float64) > above]
    return Candidates(rows[order], similarities[order].astype(np.float64))


def eligible(query: Query, pool: Pool) -> Rows:
    """Items that may be shown, oldest first; where it is known what can be done here, those that speak of something of it."""
    rows = pool.active()
    if not query.actions:
        return rows
    pool.scan(query.vector, rows)  # of all of them, which serves what is asked of some of them later
    return pool.speaking_of(rows, query.actions)


@dataclass(frozen=True, slots=True)
class MostSimilar:
    """Cosine top-k of the active items, above `threshold`."""

    k: int = 4
    threshold: float = -1.0
    good_only: bool = False

    def __post_init__(self) -> None:
        need("the retrieval", count={"k": self.k})

    def __call__(self, query: Query, pool: Pool) -> Candidates:
        rows = eligible(query, pool)
        if self.good_only:
            rows = rows[pool.good[rows]]
        return top(pool.scan(query.vector, rows), rows, self.k, self.threshold)


@dataclass(frozen=True, slots=True)
class MostRecent:
    """The `k` newest active items, newest first, whatever the query (ExpRecent, arXiv 2511.20857)."""

    k: int = 4

    def __call__(self, query: Query, pool: Pool) -> Candidates:
        rows = eligible(query, pool)[-self.k :][::-1]
        return Candidates(rows, pool.similarities(query.vector, rows))


@dataclass(frozen=True, slots=True)
class WithSameEpisode:
    """What `retriever` finds, and the `recent` newest items of the same episode."""

    retriever: Retriever
    recent: int = 12

    def __post_init__(self) -> None:
        need("the retrieval", count={"recent": self.recent})

    def __call__(self, query: Query, pool: Pool) -> Candidates:
        result = self.retriever(query, pool)
        tail = pool.active()[-self.recent :]
        here = tail[(pool.episode[tail] == query.episode) & ~np.isin(tail, result.rows)]
        here = pool.speaking_of(here, query.actions) if query.actions else here
        if not len(here):
            return result
        return Candidates(
            np.concatenate([result.rows, here]),
            np.concatenate([result.similarities, pool.similarities(query.vector, here)]),
        )


class Column:
    """One float per row, 0 until set; grows as rows come."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data: Floats = np.zeros(64)

    def upto(self, n: int) -> Floats:
        if n > len(self.data):
            self.data = grown(self.data, max(n, 2 * len(self.data)))
        return self.data


class Unvalued:
    """The similarity stands for the value; nothing is learned (ExpRAG, Memento non-parametric, A-MEM)."""

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Values:
        return Values(candidates.similarities, np.zeros(len(candidates.rows)))

    def learn(self, use: Use, pool: Pool) -> None:
        return


WARNING = 0.4
"""What a warning of an action is worth, as a share of what the opposite would be."""


class Experiences:
    """Columns that grow: where (unit vectors), what (numbers), reward, when."""

    def __init__(self) -> None:
        self.count, self.latest = 0, 0
        self.where: Vectors = np.zeros((0, 0), dtype=np.float32)
        self.what, self.reward, self.time = np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0)

    def add(self, where: Vectors, what: int, reward: float, time: int) -> None:
        n = self.count
        if n == len(self.what):
            size = max(64, 2 * n)
            self.where, self.what = grown(self.where, size, len(where)), grown(self.what, size)
            self.reward, self.time = grown(self.reward, size), grown(self.time, size)
        self.where[n], self.what[n], self.reward[n], self.time[n] = where, what, reward, time
        self.count, self.latest = n + 1, time

    def similarity(self, vector: Vectors) -> Floats:
        result: Floats = (self.where[: self.count] @ vector).astype(np.float64)
        return result


def on_advice(gained: Floats, candidates: Candidates, pool: Pool) -> Floats:
    """What an item is worth by its action; a warning of it `WARNING` of the opposite. The more similar item wins a tie."""
    result: Floats = np.where(pool.warns[candidates.rows], -WARNING * gained, gained + 1e-3 * candidates.similarities)
    return result


@dataclass(frozen=True, slots=True)
class AllRetrieved:
    """Every candidate up to `k`, in the retriever's order."""

    k: int = 4

    def __post_init__(self) -> None:
        need("the selection", count={"k": self.k})

    def __call__(self, query: Query, candidates: Candidates, values: Values, pool: Pool) -> Mixture:
        order = -np.arange(len(candidates.rows), dtype=np.float64)
        return Mixture("greedy", order, np.zeros(len(order)), self.k)


@dataclass(frozen=True, slots=True)
class BestValue:
    """Top-k by estimated value (Memento's parametric read); `temperature` > 0 samples by softmax instead (its eq. 5)."""

    k: int = 4
    temperature: float = 0.0
    explore: float = 0.0

    def __post_init__(self) -> None:
        need("the selection", count={"k": self.k}, rate={"explore": self.explore})

    def __call__(self, query: Query, candidates: Candidates, values: Values, pool: Pool) -> Mixture:
        if self.temperature > 0.0:
            return Mixture("gumbel", values.means / self.temperature, values.deviations, self.k, explore=self.explore)
        return Mixture("greedy", values.means, values.deviations, self.k, explore=self.explore)


@dataclass(frozen=True, slots=True)
class Coherent:
    """The best by value above `floor`, slot by slot, within items that do not contradict: by their means, or, where `drawn`, by
    draws from normal distributions (Thompson sampling). explore: rate of an even slate."""

    k: int = 4
    floor: float = 0.0
    explore: float = 0.01
    drawn: bool = False

    def __post_init__(self) -> None:
        need("the selection", count={"k": self.k}, rate={"explore": self.explore})

    def __call__(self, query: Query, candidates: Candidates, values: Values, pool: Pool) -> Mixture:
        rows = candidates.rows
        conflicts = None
        if len(rows):
            conflicts = contradictions(contents_in(pool, rows, query), pool.warns[rows], pool.actions)
        return Mixture(
            "thompson" if self.drawn else "greedy",
            values.means.copy(),
            np.maximum(values.deviations, 1e-3),
            self.k,
            self.floor,
            explore=self.explore if len(rows) else 0.0,
            conflicts=conflicts,
        )


def contents_in(pool: Pool, rows: Rows, query: Query) -> Numbers:
    """What each item advises in this situation, as a content number: conditions in its text are read as written."""
    contents: Numbers = pool.content[rows].copy()
    for index in np.flatnonzero(pool.conditional[rows]):
        contents[index] = pool.content_of(advice(pool.items[rows[index]], query.text)[0][0])
    return contents


def contradictions(contents: Numbers, warns: Bools, actions: Actions) -> Bools:
    """(n, n): two items known to advise different actions, or one that warns of what the other advises."""
    same = actions.sameness(contents, contents) > SURE
    either = warns[:, None] | warns[None, :]
    result: Bools = np.where(either, same & (warns[:, None] != warns[None, :]), actions.apart(contents, contents))
    return result


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


WORKED, FAILED = "worked", "failed"
_LABEL = re.compile(rf"[(（]\s*({WORKED}|{FAILED})\s*[)）]", re.IGNORECASE)
# Also with letters behind it: to a reader ": it worked0" says that it worked.
_ENDING = re.compile(rf":(?= it ({WORKED}|{FAILED}))", re.IGNORECASE)


def case_line(text: str, label: str) -> str:
    """The text of a case, which stands behind `label`: what it says itself of how it ended is kept at its end alone, and there
    only where it agrees with the label."""
    line = _LABEL.sub(r"[\1]", as_line(text))
    ending = f": it {label}"
    closing = ending if line.endswith(ending) else ""
    return _ENDING.sub(",", line.removesuffix(closing)) + closing


def sorted_out(items: list[Item]) -> tuple[list[Item], list[Item], list[Item]]:
    """Cases that succeeded, cases that failed, and what is no case."""
    cases = [item for item in items if "do" in item.metadata]
    good = [item for item in cases if item.metadata["good"]]
    return good, [item for item in cases if not item.metadata["good"]], [i for i in items if "do" not in i.metadata]


@dataclass(frozen=True, slots=True)
class Exemplars:
    """Cases that succeeded, then cases that failed, labelled as such (Memento's planner prompt, arXiv 2508.16153)."""

    heading: str = "What was tried before in similar situations:"

    def __call__(self, items: list[Item], query: Query, similarities: Sequence[float]) -> Presented:
        if not items:
            return Presented("")
        good, bad, facts = sorted_out(items)
        lines = [f"- {as_line(item.text)}" for item in facts]
        lines += [self.heading] if good or bad else []
        lines += [f"- ({WORKED}) {case_line(item.text, WORKED)}" for item in good]
        lines += [f"- ({FAILED}) {case_line(item.text, FAILED)}" for item in bad]
        return Presented("\n".join(lines), combined_advice(items, query, similarities))


@dataclass(frozen=True, slots=True)
class Capacity:
    """At most `most` active items: the oldest are archived, and can be had back by undoing."""

    most: int = 400

    def __post_init__(self) -> None:
        need("maintenance", count={"capacity": self.most})

    def __call__(self, pool: Pool, valuer: Valuer, use: Use | None, time: int) -> None:
        if use is not None:
            return
        rows = pool.advising()
        for row in rows[: max(0, len(rows) - self.most)]:
            pool.set_status(int(row), Status.ARCHIVED)
