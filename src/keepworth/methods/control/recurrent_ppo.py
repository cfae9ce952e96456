"""Recurrent PPO: policy and value share one memory, and many worlds are played at once.

The trainer is `keepworth.control.ppo`; this file registers it as a method.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keepworth.registry import Method

if TYPE_CHECKING:
    from keepworth.control.ppo import Trainer
    from keepworth.control.worlds import MakeWorld


def make(world: str | MakeWorld, memory: str = "gru", **settings: Any) -> Trainer:
    """Returns a trainer whose `update` plays and learns once.

    Args:
        world: A Gymnasium id, or a function that makes a world.
        memory: A sequence memory's name.
        settings: As in `keepworth.control.settings.PpoSettings`.
    """
    from keepworth.control.ppo import Trainer
    from keepworth.control.settings import PpoSettings

    if callable(world):
        return Trainer(PpoSettings(world=f"made by {world!r}", memory=memory, **settings), world)
    return Trainer(PpoSettings(world=world, memory=memory, **settings))


METHOD = Method(
    kind="control_agent",
    name="recurrent_ppo",
    title="Recurrent PPO",
    about="Is PPO with a sequence memory between observations and policy",
    paper="arXiv 1707.06347",
    make=make,
    extra="control",
)
