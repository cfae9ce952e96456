"""Distillation: the teacher's term beside the reward (KDRL, arXiv 2506.02208; known from secondary descriptions).

The term is k2 between student and teacher on the student's own tokens: exactly the gradient of the reverse KL on-policy
(see kl.py), from the teacher's log-probabilities of the drawn tokens alone. Both must share a tokeniser.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recollect.learning.objective.options import Objective

if TYPE_CHECKING:
    from torch import Tensor

    from recollect.learning.objective.batch import Batch


def teacher_coefficient(objective: Objective, step: int) -> float:
    """Linear from teacher_coefficient to teacher_final over teacher_steps updates; constant without them."""
    start, final, steps = objective.teacher_coefficient, objective.teacher_final, objective.teacher_steps
    if final is None or steps is None:
        return start
    return start + (final - start) * min(1.0, step / max(1, steps))


def teacher_rows(batch: Batch, objective: Objective) -> Tensor:
    """[B] bool: rows the teacher's term acts on. wrong: metric (reward where absent) of 0 or less; wrong_groups: only
    where the whole group is wrong."""
    import torch

    score = batch.rewards if batch.metric is None else batch.metric
    wrong: Tensor = score <= 0
    if objective.teacher_mask == "all":
        return torch.ones_like(wrong)
    if objective.teacher_mask == "wrong":
        return wrong
    _, group = torch.unique(batch.group, return_inverse=True)
    best = torch.full((int(group.max()) + 1,), -torch.inf, dtype=torch.float64, device=score.device)
    best = best.scatter_reduce(0, group, score.to(torch.float64), "amax")
    hopeless: Tensor = best[group] <= 0
    return hopeless
