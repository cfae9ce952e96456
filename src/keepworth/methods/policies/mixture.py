"""Estimates the reward of an action in a situation by a mixture of estimators, each weighted by how well it has predicted.

    ridge        regression of reward on situation and action at once, by the kernel cosine * sameness of actions, and on how
                 memory advises the action. All actions share the last part, so an action never tried has an estimate too
    kernel mean  of the outcomes of the action in nearby situations (Nadaraya 1964, Watson 1964), drawn to the ridge's estimate
                 where there are few
    faded        either of them with weights that decay with each task, for a world that changes

Weights are those of a Bayesian mixture: each estimator's is multiplied by the probability that it gave to the observed reward of
the action that was taken; a small share is redistributed ("Tracking the Best Expert", Herbster and Warmuth, 1998). So it need not
be known in advance how far experience generalises, or whether the world changes. Rewards count as they are, from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from keepworth.base.arrays import Floats, Numbers, Vectors
from keepworth.memory.choose.case_policies import require_part, statistical
from keepworth.memory.choose.hashed_words import word_slots
from keepworth.memory.choose.pool import Pool
from keepworth.memory.choose.ready_slots import Experiences, on_advice
from keepworth.memory.choose.rewards import Trust
from keepworth.memory.choose.selection import Coherent, contents_in
from keepworth.memory.choose.slots import Candidates, Policy, Query, Use, Values, need
from keepworth.methods.policies._ridge import LEAST, Ridge, bounded
from keepworth.registry import Method

WORDS = 512
"""Number of slots to which words are hashed."""
NOISE = 0.3
"""Variance of an outcome that the ridge does not explain, where a situation's own variance is 1."""
SHARED = 0.3
"""Variance of the part of the ridge that advice explains whatever the action, in the same unit."""
APART = 0.1
"""Squared distance between two ways of advising an action at which outcomes of one count 1/e for the other."""
WINDOW = 300
"""A ridge is rebuilt from this many newest outcomes when it holds twice as many."""


@dataclass(frozen=True, slots=True)
class Estimator:
    """Settings of one estimator.

    Args:
        bandwidth: Of the kernel mean, whose weights are exp((cosine - 1) / bandwidth); 0 for the ridge alone.
        weight: Weight of the ridge's estimate in the kernel mean.
        keep: What one task leaves of the weight of earlier outcomes.
        words: Share of common words in the ridge's similarity; the rest is the encoder's cosine.
        start: Initial weight in the mixture.
    """

    bandwidth: float = 0.0
    weight: float = 0.001
    keep: float = 1.0
    words: float = 0.0
    start: float = 1.0


ESTIMATORS = (
    Estimator(0.05, start=4.0),
    Estimator(),
    Estimator(words=0.5),
    Estimator(0.05, keep=0.99, start=0.1),
    Estimator(keep=0.99, start=0.1),
)


class MixtureValuer:
    """Values items by the mixture of estimators that the module describes. `prior` is the reward without outcomes, and of showing
    nothing; `share` of the weights is redistributed at each outcome."""

    def __init__(self, estimators: tuple[Estimator, ...] = ESTIMATORS, prior: float = 0.2, share: float = 0.01) -> None:
        need("a mixture", count={"estimators": len(estimators)}, rate={"prior": prior, "share": share})
        self.estimators, self.prior, self.share = estimators, prior, share
        self.reset()

    def reset(self) -> None:
        # `where` is the situation's vector followed by its words.
        self.known = Experiences()
        # For each outcome: how memory advised the action, and how much the outcome counts.
        self.advised = Experiences()
        ridges = dict.fromkeys((estimator.keep, estimator.words) for estimator in self.estimators)
        self.ridges = [Ridge(keep, words, self.prior) for keep, words in ridges]
        start = np.array([estimator.start for estimator in self.estimators])
        self.start: Floats = start / start.sum()
        self.weights: Floats = self.start.copy()
        self.trust, self.earned, self.counted = Trust(), self.prior, 1.0
        # The last result of `_alike`: one choice is first estimated and then learned from.
        self._latest: tuple[Query, int, Floats, Floats] | None = None

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Values:
        contents = contents_in(pool, candidates.rows, query)
        actions, back = np.unique(contents, return_inverse=True)
        hints = _hints(query, candidates, contents, actions, pool)
        expected = self.weights @ self._estimates(query, actions, hints, pool)
        return Values(on_advice(expected[back] - self.prior, candidates, pool), np.zeros(len(contents)))

    def learn(self, use: Use, pool: Pool) -> None:
        arm = use.arm(pool)
        if arm is None:
            return  # the action is unknown, so none gets the credit
        query, action = use.query, np.array([arm])
        hints = _hints(query, use.candidates, contents_in(pool, use.candidates.rows, query), action, pool)
        chance = self._estimates(query, action, hints, pool)[:, 0]
        log_likelihood = use.reward * np.log(chance) + (1.0 - use.reward) * np.log(1.0 - chance)
        usual = min(max(self.earned / self.counted, LEAST), 1.0 - LEAST)
        share = use.share * self.trust.judge(use.by, float(self.weights @ chance), use.reward, usual)
        weights = self.weights * np.exp(share * (log_likelihood - log_likelihood.max()))
        self.weights = (1.0 - self.share) * weights / weights.sum() + self.share * self.start
        outcomes = self.known
        outcomes.add(self._situation(query), int(action[0]), use.reward, query.time)
        self.advised.add(hints[0].astype(np.float32), 0, share, query.time)
        for ridge in self.ridges:
            if ridge.count >= 2 * WINDOW:
                ridge.forget()
                for index in range(outcomes.count - WINDOW, outcomes.count - 1):
                    self._extend([ridge], index, pool)
        self._extend(self.ridges, outcomes.count - 1, pool)
        self.trust.spoken[self.trust.number(use.by)] += share
        self.earned, self.counted = self.earned + share * use.reward, self.counted + share

    def _situation(self, query: Query) -> Vectors:
        words = np.zeros(WORDS, dtype=np.float32)
        words[word_slots(query.text, WORDS)] = 1.0
        words = words / np.sqrt(max(1.0, float(words.sum())))
        situation: Vectors = np.concatenate([query.vector, words])
        return situation

    def _alike(self, query: Query) -> tuple[Floats, Floats]:
        """Returns cosine and share of common words of all outcomes with the situation."""
        n = self.known.count
        if self._latest is None or self._latest[0] is not query or self._latest[1] != n:
            self._latest = query, n, *self._between(self._situation(query), n)
        return self._latest[2:]

    def _between(self, situation: Vectors, count: int) -> tuple[Floats, Floats]:
        where, width = self.known.where[:count], len(situation) - WORDS
        like: Floats = (where[:, :width] @ situation[:width]).astype(np.float64)
        common: Floats = (where[:, width:] @ situation[width:]).astype(np.float64)
        return like, common

    def _estimates(self, query: Query, actions: Numbers, hints: Floats, pool: Pool) -> Floats:
        """Returns each estimator's reward of each action, shape (estimators, actions)."""
        outcomes, n = self.known, self.known.count
        if not n:
            return np.full((len(self.estimators), len(actions)), self.prior)
        like, common = self._alike(query)
        same = pool.actions.sameness(outcomes.what[:n], actions)
        age = np.abs((query.time if query.learning else outcomes.latest + 1) - outcomes.time[:n])
        advised = self.advised.where[:n]
        shared = SHARED * (advised @ hints.T)
        otherwise = same
        if advised[:, 1:].any() or hints[:, 1:].any():
            # Outcomes of actions that memory advised in another way weigh less.
            gaps = advised[:, None, 1:] - hints[None, :, 1:]
            otherwise = same * np.exp(-np.einsum("nah,nah->na", gaps, gaps) / APART)
        ridges: dict[tuple[float, float], Floats] = {}
        for ridge in self.ridges:
            window = slice(n - ridge.count, n)
            covariance = ridge.kernel(like[window], common[window], age[window]) * same[window]
            covariance += shared[window] * (ridge.keep ** age[window])[:, None]
            ridges[ridge.keep, ridge.words] = ridge.estimate(covariance)
        estimates = []
        for estimator in self.estimators:
            mean = ridges[estimator.keep, estimator.words]
            if estimator.bandwidth:
                near = np.exp((like - 1.0) / estimator.bandwidth) * estimator.keep**age
                weight = near[:, None] * otherwise
                # The part of an outcome that does not count is replaced by the ridge's estimate.
                counted, drawn = self.advised.reward[:n], estimator.weight + (1.0 - self.advised.reward[:n]) @ weight
                total = (counted * outcomes.reward[:n]) @ weight + drawn * mean
                mean = bounded(total / (weight.sum(axis=0) + estimator.weight))
            estimates.append(mean)
        return np.stack(estimates)

    def _extend(self, ridges: list[Ridge], index: int, pool: Pool) -> None:
        """Adds the outcome at `index` to ridges that hold the outcomes just before it."""
        outcomes, end = self.known, index + 1
        like, common = self._between(outcomes.where[index], end)
        same = pool.actions.sameness(outcomes.what[:end], outcomes.what[index:end])[:, 0]
        hints = self.advised.where[:end].astype(np.float64)
        shared = SHARED * (hints @ hints[-1])
        age = np.abs(outcomes.time[index] - outcomes.time[:end])
        noise = NOISE / float(self.advised.reward[index])
        for ridge in ridges:
            window = slice(index - ridge.count, end)
            covariance = ridge.kernel(like[window], common[window], age[window])[:, 0] * same[window]
            covariance += shared[window] * ridge.keep ** age[window]
            ridge.add(covariance[:-1], float(covariance[-1]), noise, float(outcomes.reward[index]))


def _hints(query: Query, candidates: Candidates, contents: Numbers, actions: Numbers, pool: Pool) -> Floats:
    """Returns how memory advises each action, shape (actions, 4): the similarity of the nearest item that advises it, and whether
    any, the first and the last item of this episode advise it."""
    rows = candidates.rows
    hints = np.zeros((len(actions), 4))
    advises = (contents[:, None] == actions) & ~pool.warns[rows][:, None]
    hints[:, 0] = (np.maximum(candidates.similarities, 0.0)[:, None] * advises).max(axis=0, initial=0.0)
    here = rows[(pool.episode[rows] == query.episode) & ~pool.warns[rows]]
    if len(here):
        for column, advisers in enumerate((here, [here.min()], [here.max()]), start=1):
            hints[:, column] = advises[np.isin(rows, advisers)].any(axis=0)
    return hints


PARTS: dict[str, Callable[[Estimator], bool]] = {
    "kernel": lambda estimator: not estimator.bandwidth,
    "ridge": lambda estimator: bool(estimator.bandwidth),
    "words": lambda estimator: not estimator.words,
    "fading": lambda estimator: estimator.keep == 1.0,
}
"""Of each part that can be left out: which estimators stay without it."""


def mixture(
    *,
    k: int = 4,
    pool: int = 96,
    explore: float = 0.0,
    prior: float = 0.2,
    share: float = 0.01,
    failures: bool = True,
    without: str = "",
) -> Policy:
    """Returns a policy that shows the items whose advice the mixture values highest.

    Args:
        k: The most that is shown.
        pool: The most similar cases among which it chooses.
        explore: The probability of a uniform slate.
        prior, share: As in `MixtureValuer`.
        failures: Whether failed cases are kept and shown, too.
        without: One of `PARTS`, which is left out.
    """
    require_part(without, PARTS)
    estimators = tuple(estimator for estimator in ESTIMATORS if not without or PARTS[without](estimator))
    name = f"mixture-without-{without}" if without else "mixture"
    return statistical(name, MixtureValuer(estimators, prior, share), pool, Coherent(k, explore=explore), failures)


METHOD = Method(
    kind="policy",
    name="mixture",
    title="Mixture of estimators",
    about="Averages kernel means and ridge regressions, each weighted by how well it has predicted (ours)",
    tags=("token", "experiential", "retrieval"),
    differs="Not published: this project's own.",
    parts=tuple(PARTS),
    make=mixture,
)
