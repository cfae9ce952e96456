"""Learns from rewards which facts are asked for.

The importance of a fact is its log-odds of being what a question asks for. So with w the weights of the marks, the probability
that memory M holds what a question asks for, among all facts that came, is

    q(w) = SUM_{i in M} exp(w x_i) / SUM_i exp(w x_i),

and a reward is modelled as a + b q(w) + noise. The weights begin at those that were fitted to conversations with known evidence
(`importance.PRIOR`), and stay near them while there is little data: w ~ N(PRIOR, 1 / PRECISION). Their posterior is found by
Gauss-Newton steps, each a Bayesian linear regression (Bishop, "Pattern Recognition and Machine Learning", 2006, section 3.3).
Where rewards do not depend on what was stored, b goes to 0 and the weights stay where they began.

Rewards for a question that is repeated before anything new was written count as one observation. The interval of a gain allows
for correlated rewards within a scope (a person, say): the variance is multiplied by the factor by which sums of errors in scopes
vary more than independent errors would (a design effect; Kish, "Survey Sampling", 1965).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from keepworth.base.arrays import Floats, Rows
from keepworth.memory.importance import MARKS, marks
from keepworth.methods.writers._keeper_evidence import LEAST, Evidence

PRECISION, SLOPE_PRECISION = 8.0, 4.0
"""Prior precision of the weights around `PRIOR`, from their differences between data sets, and of b around 1."""
STEPS = 6
SCOPES, BLOCKS = 8, 20
"""Rewards are grouped by scope where there are at least `SCOPES` scopes, and else into `BLOCKS` blocks of time."""
DRAWS = 400


@dataclass(frozen=True, slots=True)
class KeeperCheck:
    """The estimated gain of new weights over the ones in use, on the same facts and questions. value: gain in reward per rewarded
    episode, with a 95 % interval from low to high; rewards, facts, groups: the data behind it, groups being scopes or blocks of
    time; promoted: whether the weights are in use now; reason: why not, "" where they are."""

    promoted: bool
    value: float
    low: float
    high: float
    rewards: int
    facts: int
    groups: int = 0
    reason: str = ""
    against: str = ""

    def __str__(self) -> str:
        rests = f"from {self.rewards:,} rewards and {self.facts:,} facts"
        if not self.promoted:
            return f"not promoted, {self.reason}, {rests}"
        gain = f"{self.value:+.3f} reward an episode against {self.against} ({self.low:+.3f} to {self.high:+.3f})"
        return f"promoted: {gain}, {rests}"

    __repr__ = __str__


def learn(evidence: Evidence, old: Floats, begin: Sequence[float], most: int) -> tuple[KeeperCheck, Floats]:
    """Returns new weights and their estimated gain over `old`. begin: the weights before any reward; most: facts of a scope."""
    held_odds, out = (amount[:, 0] for amount in evidence.sums(np.ones((len(evidence.items), 1))))
    use = (held_odds > 0.5) & (out > 0.5)
    evidence, held_odds, out, count = evidence.rows(use), held_odds[use], out[use], int(use.sum())
    refused = KeeperCheck(False, 0.0, -math.inf, math.inf, count, len(evidence.items))
    if count < LEAST:
        return replace(refused, reason=f"{LEAST} rewards are needed that came after something was given up"), old
    low, high = _range(evidence.reward)
    reward = ((evidence.reward - low) / (high - low)).clip(0.0, 1.0)
    if not reward.std():
        return replace(refused, reason="all rewards were the same"), old
    keys = [
        (text, inside, came) if text else row
        for row, (text, inside, came) in enumerate(
            zip(evidence.question, evidence.inside, held_odds + out, strict=True)
        )
    ]
    often = Counter[Any](keys)
    weight = np.array([1.0 / often[key] for key in keys])
    root, total = np.sqrt(weight), float(weight.sum())
    # Nuisance terms: rewards may depend on how much was stored at all, and on time.
    usual = root[:, None] * np.stack(
        [np.ones(count), held_odds / (held_odds + out), np.linspace(-1.0, 1.0, count)], axis=1
    )
    project = usual @ np.linalg.pinv(usual)

    def beyond(values: Floats) -> Floats:
        """Returns residuals after regression on the nuisance terms, in rows of equal weight."""
        scaled = (values.T * root).T
        return np.asarray(scaled - project @ scaled)

    x = marks([item.text for item in evidence.items])
    y = beyond(reward)
    noise = max(float(y @ y) / total, 1e-4)
    prior, precision = np.array(begin), PRECISION * np.eye(len(MARKS))
    weights, slope, best = prior, 1.0, math.inf
    for step in range(STEPS):
        q, z = map(beyond, _chance(evidence, x, weights))
        information = float(q @ q) / noise
        fitted = max(0.0, (float(q @ y) / noise + SLOPE_PRECISION) / (information + SLOPE_PRECISION))
        loss = float(((y - fitted * q) ** 2).sum()) / noise + SLOPE_PRECISION * (fitted - 1.0) ** 2
        loss += PRECISION * float(((weights - prior) ** 2).sum())
        if loss < best:
            best, learned = loss, (weights, fitted, information, q, fitted * z)
        # Start with slope 1: where the first weights are wrong, rewards seem not to depend on what is stored.
        slope = 1.0 if step == 0 else max(fitted, 0.5) if step == 1 else fitted
        z = slope * z
        residual = y - slope * q + z @ (weights - prior)
        weights = prior + np.linalg.solve(precision + z.T @ z / noise, z.T @ residual / noise)
    weights, slope, information, q, z = learned
    groups = _groups(evidence)
    errors = root * (y - slope * q)
    # How much more the sums of errors of a group vary than those of independent errors would.
    inflated = max(1.0, float((np.bincount(groups, errors) ** 2).sum() / max(float(errors @ errors), 1e-12)))
    data = z.T @ z / noise
    inverse = np.linalg.inv(precision + data)
    rng = np.random.default_rng(0)
    drawn = rng.multivariate_normal(weights, inverse @ (precision + inflated * data) @ inverse, DRAWS)
    slopes = rng.normal(slope, math.sqrt(inflated / (information + SLOPE_PRECISION)), DRAWS).clip(0.0)
    more, one_of_both = _change(evidence, x, drawn, weights, old, most)
    gains = slopes * more
    # Adds the variance of as many new questions of the same people.
    anew = gains + np.sqrt(inflated * slopes * one_of_both / total) * rng.normal(size=DRAWS)
    value, below, over = (float((high - low) * gain) for gain in (gains.mean(), *np.quantile(anew, (0.025, 0.975))))
    return KeeperCheck(True, value, below, over, count, len(evidence.items), int(groups.max()) + 1), weights


def _groups(evidence: Evidence) -> Rows:
    """Returns [t] group numbers: rewards of one group may be correlated."""
    number = {inside: index for index, inside in enumerate(dict.fromkeys(evidence.inside))}
    if len(number) < SCOPES:
        return np.arange(len(evidence.inside)) * BLOCKS // len(evidence.inside)
    return np.array([number[inside] for inside in evidence.inside], dtype=np.intp)


def _range(rewards: Floats) -> tuple[float, float]:
    """Returns the range 0 to 1, or a wider one where more than a few rewards lie outside: a single one of 100 changes nothing."""
    low, high = np.quantile(rewards, (0.05, 0.95))
    return min(0.0, float(low)), max(1.0, float(high))


def _chance(evidence: Evidence, x: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Returns [t] and [t, d]: for each reward, the probability q that the memory held what was asked for, and its derivative."""
    score = x @ weights
    odds = np.exp(score - score.max())[:, None]
    inside, out = (
        amount.clip(1e-300) for amount in evidence.sums(odds * np.concatenate([np.ones((len(x), 1)), x], axis=1))
    )
    q = inside[:, :1] / (inside[:, :1] + out[:, :1])
    return q[:, 0], q * (1.0 - q) * (inside[:, 1:] / inside[:, :1] - out[:, 1:] / out[:, :1])


def _change(evidence: Evidence, x: Floats, drawn: Floats, new: Floats, old: Floats, most: int) -> tuple[Floats, Floats]:
    """Returns [draws] twice: how much more often `new` keeps what is asked for than `old` if a draw of weights is right, over the
    facts of each scope up to its last reward; and how often exactly one of both keeps it."""
    pinned = np.array([item.pinned for item in evidence.items])
    more, one_of_both = np.zeros((2, len(drawn)))
    last = dict(zip(evidence.inside, evidence.entry, strict=True))
    for inside, rewards in Counter(evidence.inside).items():
        share = rewards / len(evidence.entry)
        come = (evidence.came < last[inside]) & (evidence.ended > last[inside])
        there = np.flatnonzero(come & np.isin(evidence.scope, list(inside)))
        score = x[there] @ drawn.T
        odds = np.exp(score - score.max(axis=0))
        odds /= odds.sum(axis=0)
        change = np.zeros(len(evidence.items))
        for scope in inside:
            mine = there[evidence.scope[there] == scope]
            for sign, weights in ((1.0, new), (-1.0, old)):
                order = np.lexsort((x[mine] @ weights, pinned[mine]))
                change[mine[order[::-1][:most]]] += sign
        more += share * (change[there] @ odds)
        one_of_both += share * (np.abs(change[there]) @ odds)
    return more, one_of_both
