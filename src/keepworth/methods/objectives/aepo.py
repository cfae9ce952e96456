"""AEPO: normalises rewards by type of task, and leaves out negative episodes while the entropy is high."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepworth.training.objective.options import Objective
from keepworth.training.objective.parts import Amount, Gate, Outcome, Positive, Scale, part
from keepworth.training.objective.presets import Citation, preset_method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.training.objective.formulas import Moments


@part
class TaskStd(Scale):
    """divided by the std of R over tasks of the same type + `epsilon` (QwenLong-L1.5)."""

    needs = ("task_type",)

    epsilon: Positive = 1e-6

    def statistics(self, rewards: Tensor, group: Tensor, task: Tensor | None) -> Moments:
        """A type with a single episode falls back to the batch. Source: QwenLong-L1.5, arXiv 2512.12967."""
        import torch

        from keepworth.training.objective.formulas import Moments, moments

        if task is None:
            raise ValueError("TaskStd needs Batch.task_type")
        typed, every = moments(rewards, task), moments(rewards, group * 0)
        alone = typed.size < 2
        std = torch.where(alone, every.std, typed.std)
        return Moments(typed.mean, std, typed.size, typed.constant & ~alone)


@part
class EntropyGate(Gate):
    """episodes with a negative advantage are left out once the batch entropy is above `high`, until it is below `low` (AEPO)."""

    low: Amount
    high: Amount

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ValueError(f"low = {self.low} must be below high = {self.high}")

    def closed(self, before: bool, entropy: float) -> bool:
        """Returns whether the gate is closed: yes above `high`, no below `low`, unchanged between them.

        Negative advantages spread probability and raise entropy, positive ones concentrate it.
        Source: AEPO in QwenLong-L1.5, arXiv 2512.12967. The paper gives no thresholds, and a released snippet filters between the
        thresholds instead; this is the hysteresis its text describes.
        """
        return entropy > self.high or (before and entropy >= self.low)


METHOD = preset_method(
    "AEPO",
    "Normalises rewards by type of task, and leaves failed episodes out while the entropy is high",
    Objective(
        name="aepo",
        advantage=Outcome("group", TaskStd()),
        denominator="kept",
        negatives=EntropyGate(0.15, 0.25),
    ),
    Citation(
        "QwenLong-L1.5: Post-Training Recipe for Long-Context Reasoning and Memory Management",
        "2512.12967",
        "text",
        (
            "The thresholds of the entropy gate are not published: ours are read off a plot, and a warm-up run should set them.",
            "Whether it has to run strictly on-policy, as here, is not stated.",
            "The gate has the hysteresis of the text, where a released snippet filters between the thresholds.",
        ),
        "Masked episodes leave the denominator too, or the step would shrink when the gate closes.",
        "Batch.task_type; the batch entropy handed to `advance` once per update",
    ),
    claim="It gains 9.9 points over its base on long-context suites.",
)
