"""Distillation: the teacher's term beside the reward (KDRL, arXiv 2506.02208; known from secondary descriptions).

The term is k2 between student and teacher on the student's own tokens: exactly the gradient of the reverse KL on-policy
(see kl.py), from the teacher's log-probabilities of the drawn tokens alone. Both must share a tokeniser.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepworth.learning.objective.options import Objective

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.learning.objective.batch import Batch

RIGHT = 0.5
"""The metric from which on an answer counts as right."""


def teacher_coefficient(objective: Objective, step: int) -> float:
    """Linear from teacher_coefficient to teacher_final over teacher_steps updates; constant without them."""
    start, final, steps = objective.teacher_coefficient, objective.teacher_final, objective.teacher_steps
    if final is None or steps is None:
        return start
    return start + (final - start) * min(1.0, step / max(1, steps))


def teacher_rows(batch: Batch, objective: Objective) -> Tensor:
    """[B] bool: rows the teacher's term acts on. wrong: a metric below half, or where there is none a reward of 0 or less;
    wrong_groups: only where the whole group is wrong.

    The paper's rewards are 0 or 1. Half is where `response_length/right` draws the line as well: an answer with one word in
    common with the right one is wrong."""
    import torch

    wrong: Tensor = batch.rewards <= 0 if batch.metric is None else batch.metric < RIGHT
    if objective.teacher_mask == "all":
        return torch.ones_like(wrong)
    if objective.teacher_mask == "wrong":
        return wrong
    _, group = torch.unique(batch.group, return_inverse=True)
    right = torch.zeros(int(group.max()) + 1, dtype=torch.bool, device=wrong.device)
    right[group[~wrong]] = True
    hopeless: Tensor = ~right[group]
    return hopeless
