"""How good would another selection policy have been? Answered from the log of the one that ran, or refused.

`snips` goes by the probability of each ordered slate: self-normalised inverse propensities ("The Self-Normalized Estimator for
Counterfactual Learning", NeurIPS 2015). `items` goes by how likely single items were to be shown (`propensity.Independent`),
whatever their order. So much less is lost than by ordered slates, of which few agree where four are shown.

A refusal names its reason: "few decisions", "no support" (the new policy does things that the old one never did) or
"low effective sample size" (the answer would rest on a handful of decisions).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from keepworth.memory.errors import CannotEvaluate, InvalidPolicy
from keepworth.memory.policy.pool import Pool
from keepworth.memory.policy.propensity import Independent
from keepworth.memory.policy.slots import Policy, Slates, Use

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

ESTIMATORS = ("snips", "items")
DRAWS = 32
"""Slates that are drawn to see how likely a policy shows single items."""
UNSUPPORTED = 0.1
"""Items per decision of which nothing is known, above which `by_item` refuses."""
LEAST, LEAST_EFFECTIVE = 50, 30.0
"""Decisions, and the effective sample size, below which nothing is estimated."""
SLACK = 4.0
_MORE_EXPLORATION = "Run the present policy with a higher exploration rate, then evaluate again."


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


@dataclass(frozen=True, slots=True)
class LoggedChoice:
    """One choice of the log, beside what a new policy would have done.

    Args:
        reward: That was given for it.
        logged, target: The probability of the ordered slate under the policy that ran, and under the new one.
        tested: Of each item about which chance decided: whether it was shown, the probability that it was, and that under the new
            policy.
        expected: What reward was expected before.
        unsupported: How many items, in the mean over its draws, the new policy shows or leaves out otherwise than the one that
            ran, though nothing is known of that.
    """

    reward: float
    logged: float
    target: float
    tested: tuple[tuple[bool, float, float], ...] = ()
    expected: float = 0.0
    unsupported: float = 0.0


def require_estimator(method: str) -> None:
    """Raise InvalidPolicy where there is no such estimator."""
    if method not in ESTIMATORS:
        raise InvalidPolicy(f"there is no estimator {method!r}.", f"Use one of {', '.join(ESTIMATORS)}.")


def judged(other: Policy, uses: Sequence[Use], pool: Pool, method: str, generator: np.random.Generator) -> Estimate:
    """Estimate what mean reward a fresh policy would have had on the choices of a log.

    Before each choice the policy has learned from the earlier ones alone; all that one reward is for was chosen before it came.
    """
    choices = dict[str, LoggedChoice]()
    drawn: dict[str, dict[int, tuple[float, bool]]] = {}
    for _, group in groupby(uses, key=lambda use: use.learned):
        together = list(group)
        for use in together:
            if use.decision in choices:  # rewarded again: the later reward takes the place of the earlier one
                choices[use.decision] = replace(choices[use.decision], reward=use.raw_reward)
                continue
            values = other.valuer.estimate(use.query, use.candidates, pool)
            choice = other.selector(use.query, use.candidates, values, pool)
            if use.most:
                choice = choice.at_most(use.most)
            if isinstance(choice, Independent):
                # Chance decides once per episode, for this policy too.
                before, listed = drawn.setdefault(use.unit, {}), use.candidates.rows.tolist()
                choice = choice.given({at: before[row] for at, row in enumerate(listed) if row in before})
                for index, p in (*choice.odds.items(), *((index, 1.0) for index in use.slate)):
                    before.setdefault(listed[index], (p, True))
            seen = LoggedChoice(use.raw_reward, use.propensity, choice.probability(use.slate))
            choices[use.decision] = _by_item(use, seen, _chances(choice, generator)) if method == "items" else seen
        for use in together:
            other.valuer.learn(use, pool)
    listed = list(choices.values())
    return by_item(listed) if method == "items" else snips(listed)


def snips(rows: Sequence[LoggedChoice]) -> Estimate:
    """Weighted mean of the rewards: slightly biased, invariant to adding a constant to all rewards. Raises CannotEvaluate.

    Support is judged by the mean weight, which is 1 in expectation where the logged policy can do whatever the new one does: a
    mean more than `SLACK` standard errors (and more than 0.1) below 1 means that part of the new policy's choices were never
    possible.
    """
    _require_decisions(rows)
    weights = np.array([row.target / row.logged for row in rows])
    mean = float(weights.mean())
    error = float(weights.std(ddof=1)) / np.sqrt(len(weights))
    if mean <= 0.0 or 1.0 - mean > max(0.1, SLACK * error):
        raise CannotEvaluate(
            "no support",
            f"the mean importance weight over {len(rows)} decisions is {mean:.3f} where 1 is expected.",
            _MORE_EXPLORATION,
        )
    total = float(weights.sum())
    effective = total**2 / float((weights**2).sum())
    _require_effective(len(rows), effective)
    rewards = np.array([row.reward for row in rows])
    value = float(weights @ rewards) / total
    error = float(np.sqrt(((weights * (rewards - value)) ** 2).sum())) / total
    return Estimate("snips", value, error, effective, len(rows))


def by_item(rows: Sequence[LoggedChoice]) -> Estimate:
    """Mean of y + SUM over tested items of (p' - p) psi, psi the unbiased estimate of the item's effect in that choice (see
    `ledger.scores`), p' the probability under the new policy. Unbiased where effects of items add up, and order does not
    matter. effective: of how many decisions of the new policy the mean would be as sure. Raises CannotEvaluate."""
    _require_decisions(rows)
    missing = float(np.mean([row.unsupported for row in rows]))
    if missing > UNSUPPORTED:
        raise CannotEvaluate(
            "no support",
            f"the new policy shows or leaves out {missing:.2f} items per decision of which nothing is known.",
            _MORE_EXPLORATION,
        )
    rewards = np.array([row.reward for row in rows])
    terms = rewards.copy()
    for index, row in enumerate(rows):
        for shown, p, target in row.tested:
            terms[index] += (target - p) * (shown - p) / (p * (1.0 - p)) * (row.reward - row.expected)
    error = float(terms.std(ddof=1) / np.sqrt(len(terms)))
    effective = float(rewards.var(ddof=1)) / error**2 if error > 0.0 else float(len(rows))
    _require_effective(len(rows), effective)
    return Estimate("items", float(terms.mean()), error, effective, len(rows))


def _chances(choice: Slates, generator: np.random.Generator) -> dict[int, float]:
    """How likely each candidate is to be shown; of an independent choice without what takes the place of the withheld."""
    if isinstance(choice, Independent):
        return {**dict.fromkeys(choice.order[: choice.k], 1.0), **choice.odds}
    slates = [choice.draw(generator)[0] for _ in range(DRAWS)]
    return {index: sum(index in slate for slate in slates) / DRAWS for index in {p for slate in slates for p in slate}}


def _by_item(use: Use, choice: LoggedChoice, chances: Mapping[int, float]) -> LoggedChoice:
    """The choice with what `by_item` takes. chances: of being shown, under the new policy."""
    there, odds = set(use.slate), use.odds
    tested = tuple((index in there, p, chances.get(index, 0.0)) for index, p in odds.items() if 0.0 < p < 1.0)
    # The last that are shown in the place of what is withheld are not the policy's own choice.
    withheld = sum(index not in there and p >= 0.5 for index, p in odds.items())
    spare = len(use.slate) + withheld - min(use.most or len(use.slate), len(use.candidates.rows))
    chosen = [index for index in use.slate if index not in odds]
    chosen = chosen[: len(chosen) - min(withheld, max(0, spare))]
    other = {index for index in chances if index not in odds} | set(chosen)
    unsupported = sum(abs(chances.get(index, 0.0) - (index in chosen)) for index in other)
    return replace(choice, tested=tested, expected=use.expected, unsupported=unsupported)


def _require_decisions(rows: Sequence[LoggedChoice]) -> None:
    if len(rows) < LEAST:
        raise CannotEvaluate(
            "few decisions", f"the log has {len(rows)} rewarded decisions, {LEAST} are needed.", "Let it run longer."
        )


def _require_effective(n: int, effective: float) -> None:
    if effective < LEAST_EFFECTIVE:
        raise CannotEvaluate(
            "low effective sample size",
            f"{n} decisions are worth {effective:.1f} of the new policy's, {LEAST_EFFECTIVE:g} are needed.",
            "Log more decisions, or evaluate a policy closer to the one that ran.",
        )
