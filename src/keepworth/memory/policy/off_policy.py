"""How good would another selection policy have been? Answered from the log of the one that ran, or refused.

Each row of the log is one slate that was shown, the probability it had under the policy that ran, the probability it
would have under the new policy, and the reward. Estimators: inverse propensity scoring (IPS), self-normalised (SNIPS,
"The Self-Normalized Estimator for Counterfactual Learning", NeurIPS 2015) and doubly robust (DR, arXiv 1103.4601).

Where the log says how likely single items were to be shown (`propensity.Independent`), another policy can also be judged by
item, whatever order it shows them in (`by_item`). So much less is lost than by ordered slates, of which few agree where four
are shown.

A refusal names its reason: "few decisions", "no support" (the new policy does things that the old one never did) or
"low effective sample size" (the answer would rest on a handful of decisions).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from keepworth.memory.errors import CannotEvaluate, InvalidPolicy

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LoggedSlate:
    """logged, target: probability of the ordered slate under the policy that ran, and under the new one.

    predicted: what a reward model says of the logged slate; expected: its mean over the new policy's slates.
    Both are used by DR alone.
    """

    reward: float
    logged: float
    target: float
    predicted: float = 0.0
    expected: float = 0.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """value and standard error of the mean reward; the 95 % interval is normal. effective: effective sample size."""

    method: str
    value: float
    error: float
    effective: float
    n: int

    @property
    def interval(self) -> tuple[float, float]:
        return self.value - 1.96 * self.error, self.value + 1.96 * self.error


def importance_weights(rows: Sequence[LoggedSlate]) -> Floats:
    """target / logged, shape (n,). A logged probability of 0 contradicts itself: the slate was shown."""
    for number, row in enumerate(rows):
        if not 0.0 < row.logged <= 1.0 + 1e-9 or not 0.0 <= row.target <= 1.0 + 1e-9 or not np.isfinite(row.reward):
            raise InvalidPolicy(
                f"row {number} of the log has probabilities {row.logged} and {row.target} and reward {row.reward}.",
                "The logged probability must lie in (0, 1], the new one in [0, 1], and the reward must be finite.",
            )
    return np.array([row.target / row.logged for row in rows], dtype=np.float64)


def effective_sample_size(weights: Floats) -> float:
    """(sum of weights) squared over the sum of squares: n where all are equal, 1 where one decides."""
    squares = float((weights**2).sum())
    return float(weights.sum()) ** 2 / squares if squares > 0.0 else 0.0


def ips(rows: Sequence[LoggedSlate]) -> Estimate:
    """Mean of weight times reward: unbiased where the logged policy has support, of high variance."""
    weights = importance_weights(rows)
    return _mean("ips", weights * _rewards(rows), weights)


def snips(rows: Sequence[LoggedSlate]) -> Estimate:
    """Weighted mean of the rewards: slightly biased, invariant to adding a constant to all rewards."""
    weights = importance_weights(rows)
    rewards = _rewards(rows)
    total = float(weights.sum())
    if total <= 0.0:
        raise CannotEvaluate("no support", "no logged slate can happen under the new policy.", _MORE_EXPLORATION)
    value = float(weights @ rewards) / total
    error = float(np.sqrt(((weights * (rewards - value)) ** 2).sum())) / total
    return Estimate("snips", value, error, effective_sample_size(weights), len(rows))


def doubly_robust(rows: Sequence[LoggedSlate]) -> Estimate:
    """Mean of the model's expectation plus the weighted error of the model: unbiased if either side is right."""
    weights = importance_weights(rows)
    predicted = np.array([row.predicted for row in rows])
    expected = np.array([row.expected for row in rows])
    return _mean("dr", expected + weights * (_rewards(rows) - predicted), weights)


class SlateModel:
    """What a slate is worth, by ridge regression of rewards on how much was shown, how alike it was, and what a valuer expected
    of it: the reward model of DR. Asked before it learns of a decision, so that it has never seen the reward it predicts."""

    def __init__(self) -> None:
        self._covariance = np.eye(4)
        self._sum = np.zeros(4)

    def predict(self, slate: Sequence[int], similarities: Floats, means: Floats) -> float:
        weights = np.linalg.solve(self._covariance, self._sum)
        return float(weights @ _shown(slate, similarities, means))

    def learn(self, slate: Sequence[int], similarities: Floats, means: Floats, reward: float) -> None:
        features = _shown(slate, similarities, means)
        self._covariance += np.outer(features, features)
        self._sum += reward * features


def _shown(slate: Sequence[int], similarities: Floats, means: Floats) -> Floats:
    if not slate:
        return np.array([1.0, 0.0, 0.0, 0.0])
    rows = list(slate)
    return np.array([1.0, 1.0, float(similarities[rows].mean()), float(means[rows].mean())])


METHODS = {"ips": ips, "snips": snips, "dr": doubly_robust}
BY_ITEM = "items"


@dataclass(frozen=True, slots=True)
class LoggedItems:
    """tested: of each item about which chance decided, whether it was shown, the probability that it was, and that under the
    new policy; expected: what reward was expected before; unsupported: how many items, in the mean over its draws, the new
    policy shows or leaves out otherwise than the one that ran, though nothing is known of that."""

    reward: float
    tested: tuple[tuple[bool, float, float], ...]
    expected: float
    unsupported: float


def by_item(rows: Sequence[LoggedItems]) -> Estimate:
    """Mean of y + SUM over tested items of (p' - p) psi, psi the unbiased estimate of the item's effect in that choice (see
    `ledger.scores`), p' the probability under the new policy. Unbiased where effects of items add up, and order does not
    matter. effective: of how many decisions of the new policy the mean would be as sure. Raises CannotEvaluate."""
    if len(rows) < LEAST:
        raise _few(len(rows))
    missing = float(np.mean([row.unsupported for row in rows]))
    if missing > UNSUPPORTED:
        raise CannotEvaluate(
            "no support",
            f"the new policy shows or leaves out {missing:.2f} items per decision of which nothing is known.",
            _MORE_EXPLORATION,
        )
    rewards = np.array([row.reward for row in rows])
    terms = rewards.copy()
    for place, row in enumerate(rows):
        for shown, p, target in row.tested:
            terms[place] += (target - p) * (shown - p) / (p * (1.0 - p)) * (row.reward - row.expected)
    found = _mean(BY_ITEM, terms, np.ones(len(rows)))
    effective = float(rewards.var(ddof=1)) / found.error**2 if found.error > 0.0 else float(len(rows))
    if effective < LEAST_EFFECTIVE:
        raise _too_few_effective(len(rows), effective)
    return Estimate(BY_ITEM, found.value, found.error, effective, len(rows))


UNSUPPORTED = 0.1
"""Items per decision of which nothing is known, above which `by_item` refuses."""
LEAST, LEAST_EFFECTIVE = 50, 30.0
"""Decisions, and the effective sample size, below which nothing is estimated."""
SLACK = 4.0


def evaluate(rows: Sequence[LoggedSlate], method: str = "snips") -> Estimate:
    """The estimate, or CannotEvaluate.

    Support is judged by the mean weight, which is 1 in expectation where the logged policy can do whatever the new one
    does: a mean more than `SLACK` standard errors (and more than 0.1) below 1 means that part of the new policy's
    choices were never possible.
    """
    known(method)
    if len(rows) < LEAST:
        raise _few(len(rows))
    weights = importance_weights(rows)
    mean = float(weights.mean())
    error = float(weights.std(ddof=1)) / np.sqrt(len(weights))
    if mean <= 0.0 or 1.0 - mean > max(0.1, SLACK * error):
        raise CannotEvaluate(
            "no support",
            f"the mean importance weight over {len(rows)} decisions is {mean:.3f} where 1 is expected.",
            _MORE_EXPLORATION,
        )
    effective = effective_sample_size(weights)
    if effective < LEAST_EFFECTIVE:
        raise _too_few_effective(len(rows), effective)
    return METHODS[method](rows)


def _few(n: int) -> CannotEvaluate:
    return CannotEvaluate(
        "few decisions", f"the log has {n} rewarded decisions, {LEAST} are needed.", "Let it run longer."
    )


def _too_few_effective(n: int, effective: float) -> CannotEvaluate:
    return CannotEvaluate(
        "low effective sample size",
        f"{n} decisions are worth {effective:.1f} of the new policy's, {LEAST_EFFECTIVE:g} are needed.",
        "Log more decisions, or evaluate a policy closer to the one that ran.",
    )


def known(method: str) -> None:
    """InvalidPolicy where there is no such estimator."""
    if method not in (*METHODS, BY_ITEM):
        raise InvalidPolicy(f"there is no estimator {method!r}.", f"Use one of {', '.join((*METHODS, BY_ITEM))}.")


_MORE_EXPLORATION = "Run the present policy with a higher exploration rate, then evaluate again."


def _rewards(rows: Sequence[LoggedSlate]) -> Floats:
    return np.array([row.reward for row in rows], dtype=np.float64)


def _mean(method: str, terms: Floats, weights: Floats) -> Estimate:
    error = float(terms.std(ddof=1) / np.sqrt(len(terms))) if len(terms) > 1 else float("inf")
    return Estimate(method, float(terms.mean()), error, effective_sample_size(weights), len(terms))
