"""Which role of an action makes it right: that the first note of the episode names it, the latest, or the one most like this.

A *claim* says that actions in one certain role are right and others are not: the mean reward has one level with the role and a
lower one without it, as in `subsets`. Before any reward all claims are equally probable, and together as probable as that roles
do not matter. If they do, most is expected of an action that satisfies several claims; its failure speaks against all of these,
and for none that it did not satisfy. So few failures tell which note is to be believed, where the mean reward of each role would
need many rewards of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from keepworth.memory.choose.named import ROLES
from keepworth.methods.policies.default.subsets import _HIGH, _LEVELS, _LOW, weigh_claims

if TYPE_CHECKING:
    import numpy.typing as npt

    from keepworth.base.arrays import Floats


@dataclass(frozen=True, slots=True)
class RoleClaims:
    """What rewards say about roles.

    Attributes:
        sure: How probable it is that roles matter.
        adds: What each role adds to the expected reward of an action, if roles matter.
        without: The reward that is expected of an action that satisfies no claim, if roles matter.
        usual: The reward that is expected if they do not, times the probability of that.
        times: Number of rewards of actions in each role.
        earned: The sum of these rewards.
    """

    sure: float
    adds: Floats
    without: float
    usual: float
    times: Floats
    earned: Floats

    def expect(self, roles: Iterable[Sequence[int]]) -> Floats:
        """Return the reward of each action that is expected if roles matter, from the roles of each."""
        return np.array([self.without + float(self.adds[list(of_action)].sum()) for of_action in roles])

    def predict(self, roles: Sequence[int]) -> float:
        """Return the expected reward of an action in these roles."""
        return self.sure * float(self.expect([roles])[0]) + self.usual


def judge_roles(roles: npt.NDArray[np.bool_], counts: Floats, rewards: Floats) -> RoleClaims:
    """Return what rewards say about roles.

    Args:
        roles: Which roles the action of each reward had, shape (rewards, roles).
        counts: How much each reward counts.
        rewards: The rewards, from 0 to 1.
    """
    won = counts * rewards
    times, earned = counts @ roles, won @ roles
    prior = np.full(len(ROLES), 0.5 / len(ROLES))
    claims, even = weigh_claims(prior, 0.5, (times, earned), (float(counts.sum()), float(won.sum())))
    sure = max(float(claims.sum()), 1e-300)
    adds, without = claims @ (_HIGH - _LOW), float(claims.sum(axis=0) @ _LOW)
    return RoleClaims(sure, adds / sure, without / sure, float(even @ _LEVELS), times, earned)
