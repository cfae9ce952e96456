"""KDRL: GRPO plus the divergence from a teacher on wrong answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from keepworth.training.objective.options import Objective
from keepworth.training.objective.parts import (
    Amount,
    Clip,
    Count,
    Distillation,
    GroupStd,
    Outcome,
    Part,
    Positive,
    Token,
    part,
)
from keepworth.training.objective.presets import Citation, preset_method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.training.objective.batch import Batch


RIGHT = 0.5
"""An answer is right if its metric is at least this."""


@part
class Anneal(Part):
    """linear to `final` over `updates` updates."""

    final: Amount
    updates: Count


@part
class Teacher(Distillation):
    """`coefficient` * k2(lp, lp_teacher), averaged like the loss, on these episodes: `on` (KDRL).

    wrong: by the score before shaping."""

    coefficient: Positive
    on: Literal["all", "wrong"]
    anneal: Anneal | None = None

    def coefficient_at(self, step: int) -> float:
        """Returns the coefficient at an update: linear from the teacher's to that of its `anneal`, constant without one."""
        start, anneal = self.coefficient, self.anneal
        return start if anneal is None else start + (anneal.final - start) * min(1.0, step / anneal.updates)

    def rows(self, batch: Batch) -> Tensor:
        """Marks rows of wrong answers: a metric below half, or, without a metric, a reward of 0 or less; "all" marks every row.

        The paper's rewards are 0 or 1. `response_length/right` draws the line at half as well: an answer with one word in common
        with the right one is wrong.
        """
        wrong: Tensor = batch.rewards <= 0 if batch.metric is None else batch.metric < RIGHT
        return wrong | (self.on == "all")


METHOD = preset_method(
    "KDRL",
    "Is GRPO with a divergence from a teacher where answers are wrong",
    Objective(
        name="kdrl",
        advantage=Outcome("group", GroupStd()),
        ratio=Token(),
        surrogate=Clip(0.2, 0.2),
        teacher=Teacher(5e-3, "wrong", Anneal(final=1e-3, updates=100)),
    ),
    Citation(
        "KDRL: Post-Training Reasoning LLMs via Unified Knowledge Distillation and Reinforcement Learning",
        "2506.02208",
        "secondary",
        ("How long the annealing from 5e-3 to 1e-3 takes and the clip range were not confirmed.",),
        needs="Batch.lp_teacher at the drawn tokens, from a teacher with the same tokeniser",
    ),
    claim="The mean is 57.2, where GRPO has 54.6 and distillation alone 56.1.",
)
