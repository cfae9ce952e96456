"""Recurrent PPO whose memory also learns to predict. Formulas: `keepworth.control.prediction`."""

from __future__ import annotations

from functools import partial

from keepworth.methods.control.recurrent_ppo import make
from keepworth.registry import Method

METHODS = [
    Method(
        kind="control_agent",
        name="predict_observation",
        title="Prediction of observations and rewards",
        about="The memory's output also predicts the next observation and the reward",
        tags=("latent", "working", "formation"),
        make=partial(make, predict="observation"),
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
        make=partial(make, predict="latent"),
        extra="control",
    ),
]
