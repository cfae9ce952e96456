"""The settings of a run of recurrent PPO. Reading them needs no PyTorch."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Any

from keepworth.base.errors import KeepworthError

BONUSES = ("none", "e3b", "noveld", "both")
PREDICTIONS = ("none", "observation", "latent")


class SettingError(KeepworthError, ValueError):
    """Settings of PPO do not fit one another."""


@dataclass(frozen=True)
class PpoSettings:
    """Settings of a run of recurrent PPO.

    Attributes:
        world: A Gymnasium id.
        memory: A sequence memory's name.
        memory_settings: Settings of that memory.
        steps: Steps of all worlds together.
        seed: The seed of the network, the worlds and all draws.
        envs: Worlds that are stepped together.
        rollout: Steps of a world between two updates.
        chunk: Steps that are learned as one sequence, from the stored state; it divides `rollout`.
        epochs: How often an update passes over its rollout.
        minibatches: Parts of a pass.
        learning_rate: The rate of Adam, with epsilon 1e-5.
        discount: Gamma.
        trace: Lambda of generalised advantage estimation.
        clip: How far the ratio of probabilities may move from 1.
        entropy: Weight of the policy's entropy.
        value_weight: Weight of the squared error of values.
        gradient_norm: The greatest norm of a gradient.
        width: The width of every layer and of the memory's output.
        encoder: Whether a layer precedes the memory.
        action_input: Whether the previous action and the start of an episode are inputs.
        reward_input: Whether the previous reward is an input.
        trial: Episodes of one task, over which the memory goes on; with more than one see `keepworth.control.trials`. Returns and
            lengths are then those of trials.
        bonus: "none", or a bonus for new observations: "e3b", "noveld" or "both"; see `keepworth.control.exploration`.
        bonus_weight: Weight of that bonus, which is added to the world's reward.
        predict: "none", or what the memory's output also learns to predict: "observation", the next one and the reward, or
            "latent", its own later outputs; see `keepworth.control.prediction`.
        predict_weight: Weight of that loss.
    """

    world: str = "popgym-RepeatPreviousEasy-v0"
    memory: str = "gru"
    memory_settings: dict[str, Any] = field(default_factory=dict)
    steps: int = 1_000_000
    seed: int = 0
    envs: int = 16
    rollout: int = 128
    chunk: int = 128
    epochs: int = 4
    minibatches: int = 4
    learning_rate: float = 1e-3
    discount: float = 0.99
    trace: float = 0.95
    clip: float = 0.2
    entropy: float = 0.01
    value_weight: float = 0.5
    gradient_norm: float = 0.5
    width: int = 128
    encoder: bool = True
    action_input: bool = True
    reward_input: bool = False
    trial: int = 1
    bonus: str = "none"
    bonus_weight: float = 0.1
    predict: str = "none"
    predict_weight: float = 0.1

    def __post_init__(self) -> None:
        for name, choices in (("bonus", BONUSES), ("predict", PREDICTIONS)):
            if getattr(self, name) not in choices:
                raise SettingError(
                    f"{name} = {getattr(self, name)!r} is none of {', '.join(choices)}.", f'Set {name} to "none".'
                )
        for name in ("steps", "envs", "rollout", "chunk", "epochs", "minibatches", "width", "trial"):
            if getattr(self, name) < 1:
                raise SettingError(f"{name} = {getattr(self, name)} is less than 1.", f"Set {name} to 1 or more.")
        for name in ("discount", "trace"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise SettingError(f"{name} = {getattr(self, name)} is not in [0, 1].", f"Set {name} to such a number.")
        if not 0.0 < self.learning_rate < inf:
            raise SettingError(f"learning_rate = {self.learning_rate} is not above 0.", "Set it to 1e-3, for example.")
        if self.rollout % self.chunk:
            raise SettingError(
                f"chunk = {self.chunk} does not divide rollout = {self.rollout}.", f"Set chunk to {self.rollout}."
            )
        chunks = self.envs * self.rollout // self.chunk
        if self.envs * self.rollout < 2 * self.minibatches:
            raise SettingError(
                f"{self.envs * self.rollout} steps cannot make {self.minibatches} minibatches of two or more.",
                "Set rollout to more.",
            )
        if chunks < self.minibatches:
            raise SettingError(
                f"{chunks} chunks cannot make {self.minibatches} minibatches.", f"Set minibatches to {chunks} or less."
            )

    @property
    def updates(self) -> int:
        """The number of updates of the run."""
        return max(1, -(-self.steps // (self.envs * self.rollout)))
