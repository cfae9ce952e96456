"""LoGo-GRPO of Memory-R2: compares whole rollouts with each other, and re-rolled writes with those from the same memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from keepworth.training.objective.options import Objective
from keepworth.training.objective.parts import (
    Amount,
    EntropyBonus,
    GroupStd,
    KlLoss,
    Mixed,
    Outcome,
    Sequence,
    Share,
    Surrogate,
    clip_surrogate,
    outside,
    part,
)
from keepworth.training.objective.presets import Citation, preset_method

if TYPE_CHECKING:
    from torch import Tensor


@part
class DualClip(Surrogate):
    """min(r A, clip(r, 1 - `low`, 1 + `high`) A), where A < 0 at least `bound` * A."""

    low: Share
    high: Amount
    bound: Annotated[float, Field(gt=1)]

    def value(self, lp: Tensor, log_ratio: Tensor, advantage: Tensor) -> Tensor:
        """Returns what `Clip` does, but for A < 0 at least bound * A: a negative token with a huge ratio gets no gradient.

        Source: Mastering Complex Control in MOBA Games with Deep Reinforcement Learning, arXiv 1912.09729; bound 3 there.
        """
        bounded = clip_surrogate(log_ratio, advantage, self.low, self.high)
        return bounded.maximum(self.bound * advantage).where(advantage < 0, bounded)

    def cut(self, ratio: Tensor, advantage: Tensor) -> dict[str, Tensor]:
        beyond = {"dual_clip_fraction": (ratio > self.bound) & (advantage < 0)}
        return {**outside(ratio, advantage, self.low, self.high), **beyond}


METHOD = preset_method(
    "LoGo-GRPO of Memory-R2",
    "Compares whole rollouts with each other, and re-rolled writes with those from the same memory",
    Objective(
        name="memory_r2",
        advantage=Outcome("group", GroupStd()),
        ratio=Sequence(),
        surrogate=DualClip(0.2, 0.2, 3.0),
        aggregation="seq-mean-token-mean",
        aggregation_unit="row",
        local_weight=1.0,
        kl=KlLoss("k3", 0.001),
        entropy=EntropyBonus(0.001),
        group_filter=Mixed(),
    ),
    Citation(
        "Memory-R2: Fair Credit Assignment for Long-Horizon Memory-Augmented LLM Agents",
        "2605.21768",
        "code",
        ("The means of the two branches are added, as the paper's weights for them were not confirmed.",),
        "Whole rollouts are compared with each other; re-rolled sessions only with those from the same memory state. "
        "Ratio and mean are per turn: give every model call a row of its own. The released scripts take 16 rollouts, 4 "
        "re-rolls of half the sessions, two passes over a batch and a learning rate of 2e-6.",
        "Batch.branch; re-rolls as episodes of their own, grouped by the state they start from",
    ),
    claim="LoCoMo F1 is 49.67 in its ablation, where plain GRPO has 46.62.",
)
