"""Distillation: the teacher's term beside the reward (KDRL, arXiv 2506.02208; known from secondary descriptions).

The term is k2 between student and teacher on the student's own tokens: exactly the gradient of the reverse KL on-policy
(see kl.py), from the teacher's log-probabilities of the drawn tokens alone. Both must share a tokeniser.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepworth.learning.objective.parts import Teacher

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.learning.objective.batch import Batch

RIGHT = 0.5
"""The metric from which on an answer counts as right."""


def teacher_coefficient(teacher: Teacher, step: int) -> float:
    """At an update: linear from the teacher's coefficient to that of its `anneal`, constant without."""
    start, anneal = teacher.coefficient, teacher.anneal
    return start if anneal is None else start + (anneal.final - start) * min(1.0, step / anneal.updates)


def teacher_rows(batch: Batch, on: str) -> Tensor:
    """[B] bool: rows the teacher's term acts on, by `Teacher.on`. wrong: a metric below half, or where there is none a
    reward of 0 or less; wrong_groups: only where the whole group is wrong.

    The paper's rewards are 0 or 1. Half is where `response_length/right` draws the line as well: an answer with one word in
    common with the right one is wrong."""
    import torch

    wrong: Tensor = batch.rewards <= 0 if batch.metric is None else batch.metric < RIGHT
    if on == "all":
        return torch.ones_like(wrong)
    if on == "wrong":
        return wrong
    _, group = torch.unique(batch.group, return_inverse=True)
    right = torch.zeros(int(group.max()) + 1, dtype=torch.bool, device=wrong.device)
    right[group[~wrong]] = True
    hopeless: Tensor = ~right[group]
    return hopeless
