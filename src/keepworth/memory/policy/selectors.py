"""Selectors: which candidates are shown. Each returns a distribution over slates, so that every choice has a propensity."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from keepworth.memory.errors import InvalidPolicy
from keepworth.memory.policy.actions import SURE, Actions
from keepworth.memory.policy.pool import NOBODY, PROGRAM, Pool, advice
from keepworth.memory.policy.propensity import Mixture
from keepworth.memory.policy.retrievers import WithSameEpisode
from keepworth.memory.policy.slots import Candidates, Policy, Query, Selector, Values, need

if TYPE_CHECKING:
    import numpy.typing as npt

    Bools = npt.NDArray[np.bool_]


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
class Thompson:
    """Ours: posterior draws slot by slot, against showing nothing (value `floor`), within items that do not contradict.

    off: rate of showing nothing, which keeps p0 measured; explore: rate of an even slate; veto: advice from outside gives
    way to own experience that contradicts it. What is on probation is tried, with what advises the same, at the rate
    `probe`, and at the rate `eager` where it is expected to be better by `ahead` than any own advice.

    What one person alone says, for which others speak less than `borne_out` (see `Values.voices`), gives way to what contradicts
    it and is not worse by more than `within`, and to a warning for which `warned` more speaks. What `outvoted` more people
    contradict is shown to nobody.
    """

    k: int = 4
    floor: float = 0.0
    off: float = 0.02
    probe: float = 0.05
    eager: float = 0.9
    ahead: float = 0.1
    explore: float = 0.01
    coherent: bool = True
    veto: bool = True
    greedy: bool = False
    widen: float = 1.0
    borne_out: float = 0.3
    outvoted: float = 1.5
    warned: float = 0.3
    within: float = 0.1

    def __post_init__(self) -> None:
        rates = {"off": self.off, "probe": self.probe, "eager": self.eager, "explore": self.explore}
        sizes = {name: getattr(self, name) for name in ("widen", "borne_out", "outvoted", "warned", "within")}
        need("Thompson selection", count={"k": self.k}, positive=sizes, rate=rates)

    def __call__(self, query: Query, candidates: Candidates, values: Values, pool: Pool) -> Mixture:
        rows = candidates.rows
        n = len(rows) - candidates.waiting
        means, deviations = values.means.copy(), values.deviations * self.widen
        conflicts = None
        waiting = np.arange(len(rows)) >= n
        contents = contents_in(pool, rows, query)
        if len(rows) and (self.coherent or self.veto):
            contradict = contradictions(contents, pool.warns[rows], pool.actions)
            if self.veto:
                alone, less = self._heard(query, rows, values, pool, contradict)
                strange = alone | (pool.person[rows] == NOBODY)
                # What was tried is the advice, not the record: a condition in its text that changes it was never tried.
                refused = less | (strange & (contents != pool.content[rows]))
                if strange.any() and not strange.all():
                    own = ~strange & (values.means > self.floor)
                    near = candidates.similarities
                    rivals = contradict[:, own] & (near[own][None, :] >= near[:, None] - 0.25)
                    rivals &= ~alone[:, None] | (values.means[own][None, :] >= values.means[:, None] - self.within)
                    refused |= rivals.any(axis=1) & strange
                means[waiting | refused] = -1e3
                waiting &= ~refused
            if self.coherent:
                conflicts = contradict[:n, :n]
        tried, probe = np.flatnonzero(waiting), self.probe
        if len(tried) and probe:
            # A warning of one action leaves the others open, so only advice counts as something better to show.
            own = means[:n][~pool.warns[rows[:n]]]
            better = values.means[tried] > max(self.floor, float(own.max(initial=-np.inf))) + self.ahead
            if better.any():
                tried, probe = tried[better], max(self.eager, self.probe)
        kind = "greedy" if self.greedy else "thompson"
        return Mixture(
            kind,
            means[:n],
            np.maximum(deviations[:n], 1e-3),
            self.k,
            self.floor,
            off=self.off if n else 0.0,
            explore=self.explore if n else 0.0,
            probe=probe,
            waiting=tuple(
                tuple(int(other) for other in tried if contents[other] == contents[place])[: self.k] for place in tried
            ),
            conflicts=conflicts,
        )

    def _heard(
        self, query: Query, rows: npt.NDArray[np.intp], values: Values, pool: Pool, contradict: Bools
    ) -> tuple[Bools, Bools]:
        """Which items stand on the word of one person, not the asker, that no other outcome in a situation like this one bears
        out; and against which of those on people's word more is known than for them."""
        if values.voices is None:
            return np.zeros(len(rows), dtype=bool), np.zeros(len(rows), dtype=bool)
        person, warns = pool.person[rows], pool.warns[rows]
        said, others = values.voices.T
        alone: Bools = (person > PROGRAM) & (person != pool.person_of(query.by)) & (others < self.borne_out)
        ahead = said[None, :] - said[:, None]
        outvoted: Bools = (contradict & ~warns[None, :] & (ahead >= self.outvoted)).any(axis=1) & (person > PROGRAM)
        warned: Bools = (contradict & warns[None, :] & (ahead >= self.warned)).any(axis=1) & alone
        return alone, outvoted | warned


def contents_in(pool: Pool, rows: npt.NDArray[np.intp], query: Query) -> npt.NDArray[np.int64]:
    """What each item advises in this situation, as a content number: conditions in its text are read as written."""
    contents: npt.NDArray[np.int64] = pool.content[rows].copy()
    for place in np.flatnonzero(pool.conditional[rows]):
        contents[place] = pool.content_of(advice(pool.items[rows[place]], query.text)[0][0])
    return contents


def contradictions(contents: npt.NDArray[np.int64], warns: Bools, actions: Actions) -> Bools:
    """(n, n): two items known to advise different actions, or one that warns of what the other advises."""
    same = actions.sameness(contents, contents) > SURE
    either = warns[:, None] | warns[None, :]
    found: Bools = np.where(either, same & (warns[:, None] != warns[None, :]), actions.apart(contents, contents))
    return found


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
