"""WSRL: logs first and then the world, without the logs, after a few steps of the policy that the logs taught."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keepworth.methods.control.offline import make as make_offline
from keepworth.registry import Method

if TYPE_CHECKING:
    from keepworth.control.logs import Logs
    from keepworth.control.off_policy import OffPolicyTrainer
    from keepworth.control.worlds import MakeWorld


def make(
    world: str | MakeWorld, memory: str = "gru", *, logs: Logs, warmup: int = 1000, steps: int = 20_000, **settings: Any
) -> OffPolicyTrainer:
    """Returns a trainer whose `update` learns from logs, fills the replay, and learns from the world alone.

    Args:
        world: A Gymnasium id, or a function that makes a world.
        memory: A sequence memory's name.
        logs: By source, episodes; `keepworth.control.logs.read_logs` opens a folder of them.
        warmup: Steps of the policy that the logs taught, before anything is learned from the world.
        steps: Steps of the world.
        settings: As in `keepworth.methods.control.offline.make`.
    """
    from keepworth.control.replay import PLAY

    chosen = {"learner": "sac", "shares": {PLAY: 1.0}, **settings}
    return make_offline(world, memory, logs=logs, steps=steps, warmup=warmup, **chosen)


METHOD = Method(
    kind="control_agent",
    name="wsrl",
    title="WSRL",
    about="Learns from logs first, fills a fresh replay by the policy that they taught, and goes on without them",
    paper="arXiv 2412.07762",
    claim="Without keeping the logs it learns faster and higher than methods that keep them; without the warm-up it collapses.",
    differs=(
        "Two critics without layer normalisation instead of ten, and one update per step instead of four. It learns from logs "
        "by SAC, with imitation of them or conservative, where the paper calibrates conservative values."
    ),
    make=make,
    extra="control",
)
