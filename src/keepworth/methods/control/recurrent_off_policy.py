"""RDPG, RTD3 and RSAC: off-policy learners whose actor and critics have a memory each.

The learner is `keepworth.control.off_policy`, which has the formulas; this file registers its three rules as methods. All are of
Yang and Nguyen, arXiv 2110.12628; RDPG was first in Heess et al., arXiv 1512.04455.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from keepworth.registry import Method

if TYPE_CHECKING:
    from keepworth.control.off_policy import OffPolicyTrainer
    from keepworth.control.worlds import MakeWorld


def make(world: str | MakeWorld, memory: str = "gru", **settings: Any) -> OffPolicyTrainer:
    """Returns a trainer whose `update` plays and learns until the next row of the curve.

    Args:
        world: A Gymnasium id, or a function that makes a world.
        memory: A sequence memory's name.
        settings: As in `keepworth.control.settings.OffPolicySettings`.
    """
    from keepworth.control.off_policy import OffPolicyTrainer
    from keepworth.control.settings import OffPolicySettings

    if callable(world):
        return OffPolicyTrainer(OffPolicySettings(world=f"made by {world!r}", memory=memory, **settings), world)
    return OffPolicyTrainer(OffPolicySettings(world=world, memory=memory, **settings))


RSAC = Method(
    kind="control_agent",
    name="rsac",
    title="RSAC",
    about="Is soft actor-critic over histories: a replay of sequences, a stochastic policy, two critics",
    paper="arXiv 2110.12628",
    claim="It is the most reliable of the three, near-optimal on nearly all of their partly observed domains.",
    differs=(
        "Sequences are windows that begin with a zero state, critics share one memory, and heads see the current observation "
        "beside it, all as in arXiv 2110.05038; the paper learns whole episodes, and its code has a memory for each critic."
    ),
    make=partial(make, learner="sac"),
    extra="control",
)
METHODS = [
    RSAC,
    replace(
        RSAC,
        name="rtd3",
        title="RTD3",
        about="Is TD3 over histories: a replay of sequences, a deterministic policy, two critics and a delayed actor",
        claim="It can fail on some partly observed domains where RSAC does not.",
        make=partial(make, learner="td3"),
    ),
    replace(
        RSAC,
        name="rdpg",
        title="RDPG",
        about="Is DDPG over histories: a replay of sequences, a deterministic policy and one critic",
        claim="It can fail on some partly observed domains where RSAC does not.",
        make=partial(make, learner="ddpg"),
    ),
]
