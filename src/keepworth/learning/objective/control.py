"""Controls: the few numbers of an objective that change from step to step, and the rules that change them.

Free of torch. A checkpoint saves `Controls` as it is; nothing else in an objective has a memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from keepworth.learning.objective import entropy as entropy_rules
from keepworth.learning.objective.distil import teacher_coefficient
from keepworth.learning.objective.options import Objective
from keepworth.learning.objective.parts import AdaptiveEntropy, Reset


@dataclass(frozen=True, slots=True)
class Controls:
    """positives_only: AEPO's gate. entropy_active: the bonus applies in this step. entropy_coefficient,
    teacher_coefficient: their values at this step.
    reset: the reference is to become a copy of the policy and the optimiser is to forget. best, waited: the highest
    validation score so far and the number of checks since."""

    step: int = 0
    positives_only: bool = False
    entropy_active: bool = True
    entropy_coefficient: float = 0.0
    teacher_coefficient: float = 0.0
    reset: bool = False
    best: float = -math.inf
    waited: int = 0


def initial(objective: Objective) -> Controls:
    return Controls(
        entropy_coefficient=0.0 if objective.entropy is None else objective.entropy.coefficient,
        teacher_coefficient=0.0 if objective.teacher is None else objective.teacher.coefficient,
    )


def advanced(
    controls: Controls,
    objective: Objective,
    entropy: float | None = None,
    kl: float | None = None,
    validation: float | None = None,
) -> Controls:
    """The controls of the next update; call it once per optimiser step.

    entropy: mean token entropy, in nats, of the batch about to be trained on, or of the last one (a lag of one step),
    for the gate and the adaptive bonus.
    kl: mean KL to the reference (for a `Reset`). validation: a score, higher is better, at steps that measured one.
    """
    following = replace(controls, step=controls.step + 1, reset=False)
    if objective.negatives is not None:
        measured, gate = _needed(objective, "entropy", entropy), objective.negatives
        closed = entropy_rules.gate(controls.positives_only, measured, gate.low, gate.high)
        following = replace(following, positives_only=closed)
    bonus, reset = objective.entropy, objective.reset
    if isinstance(bonus, AdaptiveEntropy):
        measured = _needed(objective, "entropy", entropy)
        coefficient = entropy_rules.adapted(controls.entropy_coefficient, measured, bonus.target, bonus.step)
        # The bonus applies only while entropy is at or below the target (arXiv 2505.22312).
        following = replace(following, entropy_coefficient=coefficient, entropy_active=measured <= bonus.target)
    if objective.teacher is not None:
        following = replace(following, teacher_coefficient=teacher_coefficient(objective.teacher, following.step))
    if reset is not None:
        following = _reset(following, reset, _needed(objective, "kl", kl), validation)
    return following


def _needed(objective: Objective, name: str, value: float | None) -> float:
    if value is None:
        raise ValueError(f"objective {objective.name!r} is steered by {name}, which was not measured")
    return value


def _reset(controls: Controls, rule: Reset, kl: float, validation: float | None) -> Controls:
    """ProRL, arXiv 2505.24864: reset the reference (and the optimiser's state) when the KL has grown to dominate or
    validation has stopped improving. Its numeric triggers are not published; these are explicit options."""
    best, waited = controls.best, controls.waited
    if validation is not None:
        best, waited = (validation, 0) if validation > best else (best, waited + 1)
    reset = kl > rule.kl or waited >= rule.patience
    return replace(controls, best=best, waited=0 if reset else waited, reset=reset)


def learning_rate_scale(objective: Objective, ess: float) -> float:
    """min(1, ess / base) ** power of an `EssControl`, else 1; multiply the step's learning rate by it and
    restore it afterwards. ess is `effective_sample_size` over the whole step, a share in (0, 1].

    Source: VCPO, arXiv 2602.17616: power 0.5 for Adam-like optimisers, 1 for SGD.
    """
    rule = objective.step_control
    if rule is None:
        return 1.0
    if not 0.0 < ess <= 1.0 + 1e-6:
        raise ValueError(f"learning_rate_scale: the effective sample size is a share in (0, 1], got {ess}")
    return float(min(1.0, ess / rule.base) ** rule.power)
