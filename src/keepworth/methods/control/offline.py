"""IQL and CQL: a policy from logs alone, which believes no value of an action that the logs do not have.

The learner is `keepworth.control.off_policy`, which has the formulas; this file registers its two rules for logs as methods.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from keepworth.registry import Method

if TYPE_CHECKING:
    from keepworth.control.logs import Logs
    from keepworth.control.off_policy import OffPolicyTrainer
    from keepworth.control.worlds import MakeWorld


def make(
    world: str | MakeWorld, memory: str = "gru", *, logs: Logs, updates: int = 10_000, steps: int = 0, **settings: Any
) -> OffPolicyTrainer:
    """Returns a trainer whose `update` learns from logs, and after that from the world, until the next row of the curve.

    Args:
        world: A Gymnasium id, or a function that makes a world; `keepworth.control.logs.SpacesOf` where there is none.
        memory: A sequence memory's name.
        logs: By source, episodes; `keepworth.control.logs.read_logs` opens a folder of them.
        updates: Updates from logs.
        steps: Steps of the world after them.
        settings: As in `keepworth.control.settings.OffPolicySettings`.
    """
    from keepworth.control.off_policy import OffPolicyTrainer
    from keepworth.control.settings import OffPolicySettings

    name = f"made by {world!r}" if callable(world) else world
    asked = OffPolicySettings(world=name, memory=memory, logged=updates, steps=steps, **settings)
    return OffPolicyTrainer(asked, world if callable(world) else None, logs)


IQL = Method(
    kind="control_agent",
    name="iql",
    title="IQL",
    about="Learns from logs alone: imitates each logged action the more, the better it was than usual there",
    paper="arXiv 2110.06169",
    claim="It exceeds behaviour cloning and CQL on D4RL's tasks whose logs must be stitched together.",
    differs=(
        "Actor and critics have a memory each. Advantages are divided by their root mean square, so that the size of rewards "
        "does not matter, and the value of a state shares the critics' memory."
    ),
    make=partial(make, learner="iql"),
    extra="control",
)
METHODS = [
    IQL,
    replace(
        IQL,
        name="cql",
        title="CQL",
        about="Is SAC from logs alone, and lowers the values of actions that the logs do not have",
        paper="arXiv 2006.04779",
        claim="It earns two to five times as much as earlier methods and behaviour cloning from complex logs.",
        differs="Actor and critics have a memory each. The weight of its loss is fixed, without a Lagrange multiplier.",
        make=partial(make, learner="sac", conservative=1.0),
    ),
]
