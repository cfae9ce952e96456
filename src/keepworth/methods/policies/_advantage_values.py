"""Our valuer: what showing an item adds to success here, with its uncertainty.

Credit is the advantage r - p0(x), where p0 is the success rate without memory at situations like x, estimated from the
choices of the same log in which nothing was shown. The value of item m in situation x is normal:

    prior     N(phi(x, m) . beta, phi^2 . s + tau^2): a Bayesian linear model over pair features, shared by all items
    evidence  outcomes of the advised action: at situations like x whoever proposed it (kernel weight), and of the item
              itself anywhere (its global mean), discounted with age
    posterior precision-weighted: with few outcomes the shared model, with many the local record

Kernel-weighted episodic values follow arXiv 2508.16153 (equation 12), assumed-density updates of a factorised normal
follow "Web-Scale Bayesian Click-Through Rate Prediction" (ICML 2010). Each part can be switched off to see its share.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from keepworth.memory.policy.pool import NOBODY, Pool, grown
from keepworth.memory.policy.slots import Candidates, Query, Use, Values, need
from keepworth.methods.policies._parts import Column, contents_in

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Numbers = npt.NDArray[np.int64]
    Vectors = npt.NDArray[np.float32]

_SCALARS = 7
FADED = 1e-6
"""Evidence of less weight than this, beside 1 for a fresh outcome, is not looked at."""
HEARD = 0.3
"""Outcomes of situations less alike than this, by the kernel, do not bear out what somebody says here."""


@dataclass(frozen=True, slots=True)
class AdvantageSettings:
    """similarity, bias: prior value of an item = similarity * cosine + bias. spread: prior variance of the shared weights.

    heterogeneity: tau^2; noise: variance of one outcome; bandwidth: of the kernel exp((cos - 1) / bandwidth);
    own: weight of the item's outcomes elsewhere; keep: what one task leaves of old evidence's weight; in a frozen memory it
    stays as faded as it was when learning ended;
    unshown: weight of evidence on candidates that advised the action but were not shown; refuted: relative weight of
    evidence against candidates that advised another action than the one that succeeded; warning: share of the evidence on
    an action that a warning of it gets, with opposite sign; relevance: how strongly learned word weights bend the kernel;
    person: the most weight that evidence on one named person's word has in one situation, for others than that person;
    recent, surprise, surprise_spread: how fast the latest local outcomes fade, and the prior weight (mean, variance) of
    their difference from the long run, which the shared model then learns: large under drift, small under noise.
    """

    similarity: float = 0.6
    bias: float = -0.1
    spread: float = 0.1
    words: float = 0.05
    heterogeneity: float = 0.02
    noise: float = 0.2
    bandwidth: float = 0.15
    own: float = 0.3
    keep: float = 0.99
    unshown: float = 0.3
    refuted: float = 1.0
    warning: float = 0.4
    relevance: float = 0.0
    recent: float = 0.5
    surprise: float = 0.5
    surprise_spread: float = 0.1
    person: float = 1.0
    prior_success: float = 0.3
    prior_weight: float = 2.0
    forget: float = 0.999
    baseline: bool = True
    measured: bool = True
    local: bool = True
    shared: bool = True
    attribute: bool = True

    def __post_init__(self) -> None:
        sizes = ("person", "noise", "bandwidth", "heterogeneity", "spread", "words", "prior_weight", "keep", "forget")
        rates = ("keep", "forget", "own", "unshown", "refuted", "warning", "prior_success")
        need(
            "advantage",
            positive={name: getattr(self, name) for name in sizes},
            rate={name: getattr(self, name) for name in rates},
        )


class AdvantageValuer:
    LEARNS_AS_ASKED = True  # from what it knew at the last choice of an episode

    def __init__(self, settings: AdvantageSettings | None = None) -> None:
        self.settings = settings or AdvantageSettings()
        self.reset()

    def reset(self) -> None:
        self._mean: Floats | None = None
        self._variance: Floats | None = None
        self._start: Floats | None = None
        self._count = 0
        self._vectors: Vectors = np.zeros((0, 0), dtype=np.float32)
        self._words: Vectors = np.zeros((0, 0), dtype=np.float32)
        self._content = np.zeros(0, dtype=np.int64)
        self._outcome = np.zeros(0)
        self._advantage = np.zeros(0)
        self._time = np.zeros(0)
        # On whose word each piece of evidence is, 0 for the program's own; and how much of each item's record is on whose.
        self._person = np.zeros(0, dtype=np.int64)
        self._noted: dict[tuple[int, int], tuple[float, float]] = {}
        self._off: list[int] = []
        self._learned_at = 0
        self._own_weight, self._own_sum, self._own_time = Column(), Column(), Column()
        self._latest: tuple[Query, npt.NDArray[np.intp], Floats] | None = None

    def success_without(self, query: Query, asker: int = 0) -> float:
        """p0(x): kernel-smoothed success of choices that showed nothing, shrunk to their mean."""
        s = self.settings
        total, weight = s.prior_success * s.prior_weight, s.prior_weight
        if not self._off or not s.measured:
            return s.prior_success
        off = np.array(self._off[bisect_left(self._off, self._first_that_counts(query)) :], dtype=np.intp)
        if not len(off):
            return s.prior_success
        aged = self._aged(query, self._time[off])
        raw = self._outcome[off]
        # A run of choices without memory, as of a memory that has little to say, need not be copied to be compared.
        together = off[-1] - off[0] + 1 == len(off)
        vectors = self._vectors[off[0] : off[-1] + 1] if together else self._vectors[off]
        near = aged * np.exp((vectors @ query.vector - 1.0) / s.bandwidth)
        aged, near = capped(np.stack([aged, near], axis=1), self._person[off], s.person, asker).T
        mean = (total + float(aged @ raw)) / (weight + float(aged.sum()))
        return (mean * s.prior_weight + float(near @ raw)) / (s.prior_weight + float(near.sum()))

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Values:
        s, rows = self.settings, candidates.rows
        if not len(rows):
            return Values(np.zeros(0), np.zeros(0))
        contents = contents_in(pool, rows, query)
        near = self._near(query, pool, contents) if s.local and self._count else None
        features = self._pairs(query, candidates, pool, contents, near)
        self._latest = (query, rows, features)
        assert self._mean is not None
        assert self._variance is not None
        mean = features @ self._mean
        variance = (features**2) @ self._variance + s.heterogeneity
        n = len(pool)
        aged = self._aged(query, self._own_time.upto(n)[rows])
        weight = s.own * self._own_weight.upto(n)[rows] * aged
        total = s.own * self._own_sum.upto(n)[rows] * aged
        backing = None
        if near is not None:
            # A warning is worth something where the action it warns of has failed, and harms where that action is right.
            sign = np.where(pool.warns[rows], -s.warning, 1.0)
            weight += np.abs(sign) * near.sum(axis=0)
            total += sign * (self._advantage[self._count - len(near) : self._count] @ near)
            if self._person[: self._count].any():
                backing = self._voices(query, pool, rows, contents, self._count - len(near))
        precision = 1.0 / variance + weight / s.noise
        return Values((mean / variance + total / s.noise) / precision, np.sqrt(1.0 / precision), backing)

    def learn(self, use: Use, pool: Pool) -> None:
        if not use.taken:
            return  # nobody said what was done, so no action gets the credit
        s, query = self.settings, use.query
        base = self.success_without(query, pool.person_of(query.by)) if s.baseline else 0.0
        gained = use.reward - base
        use.bonus["expected"] = base
        shown = set(use.slate)
        features = None
        if len(use.candidates.rows):
            query_of, rows_of, latest = self._latest or (None, None, None)
            if query_of is query and rows_of is use.candidates.rows:
                features = latest
            else:
                contents = contents_in(pool, use.candidates.rows, query)
                near = self._near(query, pool, contents) if s.local and self._count else None
                features = self._pairs(query, use.candidates, pool, contents, near)
        taken = np.array([pool.content_of(use.taken)])
        by = pool.person_of(use.by)
        contents = contents_in(pool, use.candidates.rows, query)
        same, apart = pool.actions.sameness(contents, taken)[:, 0], pool.actions.apart(contents, taken)[:, 0]
        for place, row in enumerate(use.candidates.rows):
            was_shown, target = place in shown, gained
            warns = bool(pool.warns[row])
            # How surely the item was followed: its action was taken, or, of a warning, another one.
            followed = float(apart[place]) if warns else float(same[place])
            if was_shown and (followed or not s.attribute):
                weight = (followed if s.attribute else 1.0) / len(shown)
                self._note(int(row), gained, query.time, weight * len(shown), pool, by)
            elif not s.attribute or warns:
                continue
            elif followed:
                weight = s.unshown * followed
            elif apart[place] and gained > 0.0:
                # Something else was right here: had this advice been followed, it would most likely have failed.
                weight, target = s.unshown * s.refuted * gained / (1.0 - base), -base
            else:
                continue
            if s.shared and weight > 0.0:
                assert features is not None
                self._fit(features[place], target, s.noise / (weight * use.share))
        self._record(query, int(taken[0]), use.reward, gained, not use.slate, by)

    def _near(self, query: Query, pool: Pool, contents: npt.NDArray[np.int64]) -> Floats:
        """(evidence that counts, contents): its kernel weight at `query`, discounted with age, by how surely it is of the same
        action."""
        s, m = self.settings, self._count
        first = self._first_that_counts(query)
        near: Floats = np.exp((self._similarity(query, first, m) - 1.0) / s.bandwidth)
        near = near * self._aged(query, self._time[first:m])
        same = pool.actions.sameness(self._content[first:m], contents)
        return capped(near[:, None] * same, self._person[first:m], s.person, pool.person_of(query.by))

    def _voices(
        self, query: Query, pool: Pool, rows: npt.NDArray[np.intp], contents: npt.NDArray[np.int64], first: int
    ) -> Floats:
        m = self._count
        # Plain similarity: which words matter is learned, so whoever rewards has a say in it. From far away nobody is heard.
        near = np.exp((self._vectors[first:m] @ query.vector - 1.0) / self.settings.bandwidth)
        near = np.where(near >= HEARD, near, 0.0)[:, None] * pool.actions.sameness(self._content[first:m], contents)
        gained = self._advantage[first:m, None]
        # What failed speaks for a warning.
        near = near * np.where(pool.warns[rows][None, :], gained < 0.0, gained > 0.0)
        person = self._person[first:m]
        # What many say has to be true today; whether anybody else ever saw it bears out what one says.
        today = near * self._aged(query, self._time[first:m])[:, None]
        return np.stack([voices(today, person), voices(near, person, pool.person[rows])], axis=1)

    def _first_that_counts(self, query: Query) -> int:
        """The first piece of evidence that has not faded below `FADED`, so that a choice does not cost the more the longer
        memory has learned. All of it where nothing fades."""
        keep = self.settings.keep
        if keep >= 1.0 or not self._count:
            return 0
        reach = np.log(FADED) / np.log(keep)
        fresh = self._time[: self._count] >= self._now(query) - reach
        return int(fresh.argmax()) if fresh.any() else self._count

    def _aged(self, query: Query, time: Floats) -> Floats:
        """What is left of the weight of evidence from `time`."""
        kept: Floats = self.settings.keep ** (self._now(query) - time)
        return kept

    def _now(self, query: Query) -> int:
        """The time by which evidence is aged: no question that a frozen memory is asked makes it older."""
        return query.time if query.learning else min(query.time, self._learned_at + 1)

    def _surprise(self, near: Floats) -> Floats:
        """Per candidate: the latest local outcomes of its action, less their long-run mean. What came last counts most:
        evidence fades by e for each `recent` of later local evidence on the same action."""
        gained = self._advantage[self._count - len(near) : self._count]
        later = near[::-1].cumsum(axis=0)[::-1] - near
        fast = near * np.exp(-later / self.settings.recent)
        gaps: Floats = (gained @ fast) / (fast.sum(axis=0) + 0.1) - (gained @ near) / (near.sum(axis=0) + 0.1)
        return gaps

    def _similarity(self, query: Query, first: int, m: int) -> Floats:
        """Cosine of word sets under weights that the shared model has learned: words that decide transfer count more."""
        s = self.settings
        if not s.relevance:
            similarity: Floats = (self._vectors[first:m] @ query.vector).astype(np.float64)
            return similarity
        # Before the model has learned, words count alike: whether somebody asked it already changes nothing.
        relevance = np.ones(len(query.words), dtype=np.float32)
        if self._mean is not None:
            both, theirs, mine = self._mean[_SCALARS:].reshape(3, len(query.words))
            relevance = np.clip(1.0 + s.relevance * (both - theirs - mine), 0.1, 20.0).astype(np.float32)
        weighted = query.words * relevance
        known = self._words[first:m]
        found: Floats = (known @ weighted) / np.sqrt((known @ relevance) * max(float(weighted.sum()), 1e-6) + 1e-6)
        return found

    def _note(self, row: int, gained: float, time: int, share: float, pool: Pool, by: int) -> None:
        if by:
            before, last_time = self._noted.get((row, by), (0.0, 0.0))
            before *= self.settings.keep ** (time - last_time)
            share = min(share, max(0.0, self.settings.person - before))
            self._noted[row, by] = (before + share, time)
        n = len(pool)
        weight, total, last = self._own_weight.upto(n), self._own_sum.upto(n), self._own_time.upto(n)
        aged = self.settings.keep ** (time - last[row])
        weight[row] = weight[row] * aged + share
        total[row] = total[row] * aged + share * gained
        last[row] = time

    def _record(self, query: Query, content: int, outcome: float, gained: float, off: bool, by: int) -> None:
        m = self._count
        if m == len(self._content):
            size = max(64, 2 * m)
            self._vectors = grown(self._vectors, size, len(query.vector))
            if self.settings.relevance:
                self._words = grown(self._words, size, len(query.words))
            self._content, self._outcome = grown(self._content, size), grown(self._outcome, size)
            self._advantage, self._time = grown(self._advantage, size), grown(self._time, size)
            self._person = grown(self._person, size)
        self._vectors[m], self._content[m] = query.vector, content
        if self.settings.relevance:
            self._words[m] = query.words
        self._outcome[m], self._advantage[m], self._person[m] = outcome, gained, by
        self._time[m] = self._learned_at = query.time
        self._count += 1
        if off:
            self._off.append(m)

    def _pairs(
        self, query: Query, candidates: Candidates, pool: Pool, contents: npt.NDArray[np.int64], near: Floats | None
    ) -> Floats:
        """phi(x, m), shape (n, 7 + 3 * words): scalars, then words in both, in the item alone, in the query alone."""
        rows, width = candidates.rows, len(query.words)
        theirs = pool.words[rows].astype(np.float32)
        both = theirs * query.words
        features = np.empty((len(rows), _SCALARS + 3 * width))
        # Neither may hold a word (a text of signs alone): nothing is scaled then.
        scale = 1.0 / np.sqrt(np.maximum(theirs.sum(axis=1) + query.words.sum(), 1.0))[:, None]
        features[:, _SCALARS : _SCALARS + width] = both * scale
        features[:, _SCALARS + width : _SCALARS + 2 * width] = (theirs - both) * scale
        features[:, _SCALARS + 2 * width :] = (query.words - both) * scale
        features[:, 0] = 1.0
        features[:, 1] = candidates.similarities
        features[:, 2] = pool.person[rows] == NOBODY
        features[:, 3] = pool.warns[rows]
        features[:, 4] = np.log1p(np.maximum(0, self._now(query) - pool.born[rows])) / 6.0
        features[:, 5] = pool.episode[rows] == query.episode
        features[:, 6] = 0.0
        if near is not None and len(near) and self.settings.recent:
            features[:, 6] = self._surprise(near) * np.where(pool.warns[rows], -self.settings.warning, 1.0)
        if self._mean is None:
            s = self.settings
            self._start = np.full(features.shape[1], s.words)
            self._start[:_SCALARS] = s.spread
            self._mean = np.zeros(features.shape[1])
            self._mean[:2] = s.bias, s.similarity
            self._mean[6] = s.surprise
            self._start[6] = s.surprise_spread
            self._variance = self._start.copy()
        return features

    def _fit(self, features: Floats, target: float, noise: float) -> None:
        """One observation of a factorised normal linear model."""
        assert self._mean is not None
        assert self._variance is not None
        assert self._start is not None
        moved = self._variance * features
        total = float(features @ moved) + noise
        self._mean += moved * ((target - float(features @ self._mean)) / total)
        self._variance -= moved**2 / total
        self._variance = np.minimum(self._variance / self.settings.forget, self._start)


def capped(weights: Floats, people: Numbers, most: float, asker: int = 0) -> Floats:
    """`weights` of evidence, shape (evidence, situations), such that nobody has more than `most` in one situation, but for the
    asker, who may believe what the asker said, and 0, the program itself. people: on whose word each is, shape (evidence,)."""
    others = (people > 0) & (people != asker)
    if not others.any():
        return weights
    mine = weights[others]
    _, index = np.unique(people[others], return_inverse=True)
    order = np.argsort(index, kind="stable")
    starts = np.flatnonzero(np.diff(index[order], prepend=-1))
    totals = np.add.reduceat(mine[order], starts, axis=0)
    fair: Floats = weights.copy()
    fair[others] = mine * np.minimum(1.0, most / np.maximum(totals, 1e-12))[index]
    return fair


def voices(near: Floats, people: Numbers, own: Numbers | None = None) -> Floats:
    """How many speak for each of several items, shape (items,). A person speaks once, as near as ever; of the program's own
    outcomes each does.

    near: similarity of the situation to those in which its action worked, shape (evidence, items), 0 where it did not. people: on
    whose word each is, shape (evidence,). own: on whose word each item stands, shape (items,), who is not counted then."""
    if not len(people):
        return np.zeros(near.shape[1])
    named, index = np.unique(people, return_inverse=True)
    order = np.argsort(index, kind="stable")
    each = np.maximum.reduceat(near[order], np.searchsorted(index[order], np.arange(len(named))), axis=0)
    if named[0] == 0:
        each[0] = near[people == 0].sum(axis=0)
    if own is not None:
        each[named[:, None] == own[None, :]] = 0.0
    result: Floats = each.sum(axis=0)
    return result
