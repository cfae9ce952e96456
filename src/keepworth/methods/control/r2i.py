"""R2I: a world model whose memory is a linear recurrence, and an actor that learns from what it imagines.

The model and the learner are those of `keepworth.control.imagination`, which has the formulas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keepworth.registry import Method

if TYPE_CHECKING:
    from keepworth.control.imagination import ImaginationTrainer
    from keepworth.control.worlds import MakeWorld


def make(
    world: str | MakeWorld,
    memory: str = "lru",
    *,
    groups: int = 8,
    classes: int = 8,
    horizon: int = 8,
    trace: float = 0.95,
    actor_rate: float = 1e-3,
    **settings: Any,
) -> ImaginationTrainer:
    """Returns a trainer whose `update` plays and learns until the next row of the curve.

    Args:
        world: A Gymnasium id, or a function that makes a world, whose actions are choices.
        memory: A sequence memory's name: a linear recurrence, such as "lru" or "s5".
        groups: Groups of categories of the latent.
        classes: Categories of a group.
        horizon: Steps that are imagined.
        trace: Lambda of the returns.
        actor_rate: The rate of Adam of actor and critic; `learning_rate` is that of the model.
        settings: Those of `keepworth.control.imagination.SETTINGS`; see `keepworth.control.settings.OffPolicySettings`.
    """
    from keepworth.control.imagination import ImaginationTrainer, ModelSettings

    model = ModelSettings(groups=groups, classes=classes, horizon=horizon, trace=trace, actor_rate=actor_rate)
    return ImaginationTrainer(world, memory, model, **settings)


METHOD = Method(
    kind="control_agent",
    name="r2i",
    title="R2I (Recall to Imagine)",
    about="Learns a model of the world whose memory is a linear recurrence, and acts by what it imagines",
    paper="arXiv 2403.04253",
    claim="Its POPGym results exceed those of others, as far as they are learning curves (no number checked).",
    differs=(
        "One layer of LRU in place of three of S5, latents of 8 by 8 in place of 32 by 32, observations and rewards by "
        "squared errors. The action reaches the prior beside the memory's output; the state before a window is run anew. "
        "Actions are choices."
    ),
    label="small",
    make=make,
    extra="control",
)
