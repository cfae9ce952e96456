"""Promotion: whether a policy on trial may replace the one in force, by the rewards of the searches that the two shared.

Each search or episode of a trial is given to one of the two policies by a draw, the new one with a probability that is logged:
its share. From what was shown then follows how probable it is that the new one chose: the share itself where both would have
shown the same, and 1 or 0 where only one of them could. So the log says how much better off the memory is with the new policy:

    x = (chance - share) / (1 - share) * (reward - usual reward)

has as expected value the share times the difference of the two policies' rewards, as importance weights have (Precup, Sutton and
Singh, "Eligibility Traces for Off-Policy Policy Evaluation", 2000), whatever the usual reward is: the mean before the trial began
makes the variance small. The sum of x, with its lower bound (`safe_mixing.lower_sum`), decides: above 0 the new policy is proven
and takes over; below 0 with its upper bound it is refused. In between, the share is the largest that keeps the bound above what a
trial may cost, which is `START` rewards and a part of all (`safe_mixing.safe_share`). Where both policies would show the same
nearly always, a trial costs next to nothing: how far apart the two distributions are is logged, too.

Rewards may say nothing of what was shown. So whatever the bound says, the new policy also pays for each search in which it showed
what the old one would not, as if the reward that the old one usually gets at this question had been lost, less what rewards say
with some certainty that it gained."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from keepworth.base.safe_mixing import lower_sum, safe_share

LOSS = 0.003
"""What a trial may cost in the long run, as a part of the range of rewards at each rewarded search, if the user says nothing."""
START = 2.0
"""What it may cost at first, in rewards: with less, little could be tried before the bound says anything."""
MOST = 0.4
"""The largest share of a policy on trial. With at most a half, no x is larger than the reward's distance from the usual one."""
CHANCE = 0.02
"""The probability with which a bound is wrong at any time."""
ON_TRIAL, PROVEN, REFUSED = "on trial", "proven", "refused"


@dataclass(frozen=True, slots=True)
class Promotion:
    """How far a policy has replaced another, and by which evidence.

    Attributes:
        policy: The name of the policy that is tried, or has taken over.
        replaces: The name of the one that was in force before.
        state: "on trial"; "proven", where the new policy chooses everything; or "refused", where the old one does.
        share: The probability with which the new policy chooses in the next search or episode, where the two would show different
            items.
        rewards: The rewarded searches and episodes of the trial.
        chosen: In how many of these the new policy chose.
        differed: In how many they would more probably have shown different items than the same. The others say little.
        gain: The estimated difference of a reward under the new policy and under the old one, in units of rewards.
        low, high: The bounds of it. Each of the two holds at any time with a probability of 98 %.
        cost: The most that the trial has cost so far, in rewards of the full range: by the lower bound, or by the
            rewards of the old policy wherever the new one showed something else, less what was gained, whichever is more.
        allowed: The most that it may cost so far.
        price: What a search costs at a question that was never asked before, if the new policy gets it, in rewards of the full
            range.
    """

    policy: str
    replaces: str
    state: str = ON_TRIAL
    share: float = 0.0
    rewards: int = 0
    chosen: int = 0
    differed: int = 0
    gain: float = 0.0
    low: float = -math.inf
    high: float = math.inf
    cost: float = 0.0
    allowed: float = START
    price: float = 1.0

    def share_where(self, apart: float, price: float) -> float:
        """Return the probability with which the new policy chooses where the two are so far apart, from 0 to 1, and where the old
        one is expected to earn `price`: 0 where that does not fit into what the trial may still cost."""
        if self.state != ON_TRIAL:
            return float(self.state == PROVEN)
        room = self.allowed - self.cost
        return 0.0 if room < price * apart else min(MOST, float(safe_share(room, room - price * apart, 0.0)))

    @property
    def why(self) -> str:
        """Return in a sentence which policy chooses how often, and for what reason."""
        tasks = f"{self.rewards} rewarded {'search or episode' if self.rewards == 1 else 'searches and episodes'}"
        seen = f"in {tasks} the two differed {self.differed} times"
        gain = f"the difference of a reward is {self.gain:+.3f} ({self.low:+.3f} to {self.high:+.3f})"
        if self.state == PROVEN:
            return f"{self.policy} has replaced {self.replaces}: {seen}, and {gain}"
        if self.state == REFUSED:
            return f"{self.replaces} stays, and {self.policy} is not tried any more: {seen}, and {gain}"
        if not self.rewards:
            return f"{self.policy} is on trial with a share of {self.share:.0%}: there are no rewards yet"
        cost = f"the trial may have cost {self.cost:.1f} rewards of {self.allowed:.1f} allowed"
        return f"{self.policy} is on trial with a share of {self.share:.0%}: {seen}, {gain}, and {cost}"

    def __str__(self) -> str:
        return self.why


@dataclass(frozen=True, slots=True)
class TriedUnit:
    """A rewarded search or episode of a trial.

    Attributes:
        share: The probability with which the new policy was to choose in it.
        chance: The same probability once it is known what was shown.
        apart: A bound above the total variation between what the two policies show.
        price: The reward that the old policy was expected to get.
        drew_new: Whether the new policy chose.
        reward: On the scale 0 to 1.
    """

    share: float
    chance: float
    apart: float
    price: float
    drew_new: bool
    reward: float


@dataclass(frozen=True, slots=True)
class Before:
    """The rewards before a trial began: how many, and their mean on the scale 0 to 1, drawn to the middle while there are few."""

    number: int = 0
    usual: float = 0.5

    @property
    def most(self) -> float:
        """Return a bound above the expected reward of the policy in force (Hoeffding, 1963), so that a search given to another
        one, which earns 0 at least, costs no more."""
        if not self.number:
            return 1.0
        return min(1.0, self.usual + math.sqrt(math.log(1.0 / CHANCE) / (2.0 * self.number)))


def weigh_evidence(
    policy: str, replaces: str, units: Sequence[TriedUnit], before: Before, *, loss: float, span: float
) -> Promotion:
    """Return how a trial stands after some rewarded units, in the order of their first rewards.

    Args:
        policy: The name of the policy that is tried.
        replaces: The name of the one in force.
        units: What was rewarded.
        before: The rewards before the trial.
        loss: What the trial may cost in the long run, as a part of the range of rewards at each unit.
        span: The width of the range of rewards.
    """
    number = len(units)
    names = ("share", "chance", "apart", "price", "reward")
    share, chance, apart, price, reward = (np.array([getattr(unit, name) for unit in units]) for name in names)
    # 1 where the old policy could not have shown this, below 0 where the new one could not.
    only_new = (chance - share) / (1.0 - share)
    x = only_new * (reward - before.usual)
    total, squares, tried = np.cumsum(x), np.cumsum(x * x), np.cumsum(share)
    far = max(before.usual, 1.0 - before.usual)  # the farthest that a reward can be from the usual one
    below, above = (sign * far * lower_sum(sign * total / far, squares / far**2, CHANCE) for sign in (1.0, -1.0))
    over = np.flatnonzero((below > 0.0) | (above < 0.0))
    end = int(over[0]) if len(over) else number - 1
    state = ON_TRIAL if not len(over) else PROVEN if below[end] > 0.0 else REFUSED
    allowed = START + loss * (end + 1)
    lower, upper, weight, cost = 0.0, 0.0, 0.0, 0.0
    if number:
        weight, risked = float(tried[end]), (share * apart)[: end + 1]
        lower = max(float(below[end]), -float((risked * price[: end + 1]).sum()))
        upper = min(float(above[end]), float(risked.sum()))
        elsewhere = float((price * np.maximum(only_new, 0.0))[: end + 1].sum())
        gained = max(0.0, float(total[end]) - math.sqrt(squares[end]))
        cost = max(0.0, -lower, elsewhere - gained)
    within = units[: end + 1]
    scale = span / weight if weight > 0.0 else 0.0
    standing = Promotion(
        policy,
        replaces,
        state,
        0.0,
        len(within),
        sum(unit.drew_new for unit in within),
        sum(unit.apart > 0.5 for unit in within),
        float(total[end]) * scale if number else 0.0,
        lower * scale if weight > 0.0 else -span,
        upper * scale if weight > 0.0 else span,
        cost,
        allowed,
        before.most,
    )
    return replace(standing, share=standing.share_where(1.0, before.most))
