"""Recurrent PPO whose memory also learns to predict. Formulas: `keepworth.control.prediction`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from keepworth.registry import Method

if TYPE_CHECKING:
    from keepworth.control.ppo import Trainer
    from keepworth.control.worlds import MakeWorld


def make(predict: str, world: str | MakeWorld, memory: str = "gru", **settings: Any) -> Trainer:
    """Returns the trainer of `recurrent_ppo` with this prediction; `predict_weight` is among its settings."""
    from keepworth.methods.control.recurrent_ppo import make as make_trainer

    return make_trainer(world, memory, predict=predict, **settings)


METHODS = [
    Method(
        kind="control_agent",
        name="predict_observation",
        title="Prediction of observations and rewards",
        about="The memory's output also predicts the next observation and the reward",
        tags=("latent", "working", "formation"),
        make=partial(make, "observation"),
        extra="control",
    ),
    Method(
        kind="control_agent",
        name="predict_latent",
        title="Predictive objective",
        about="Trains the memory's output to predict its own later outputs, told apart from others of the batch",
        tags=("latent", "working", "formation"),
        paper="arXiv 2310.06089",
        claim="Predicting latents helps most where networks are small, and longer horizons help transfer.",
        differs=(
            "PPO replaces Q-learning, the latent is a memory's output over time, and weights are of this project. Outputs are "
            "kept apart from those of another chunk of the batch, not from those of other steps of their own."
        ),
        make=partial(make, "latent"),
        extra="control",
    ),
]
