"""What changes from step to step: gates, coefficients, resets, the learning rate; and which groups enter."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from keepworth.methods.objectives.kdrl import Anneal, Teacher
from keepworth.methods.objectives.vcpo import EssControl
from keepworth.training.objective.advantage import advantages, rejection, select
from keepworth.training.objective.batch import Batch
from keepworth.training.objective.options import Controls, Objective, advance, initial
from keepworth.training.objective.parts import EntropyBonus, KlLoss, Reset
from keepworth.training.objective.policy_loss import denominators, loss
from keepworth.training.objective.presets import preset, vary_objective
from tests.learning.objective.toys import bandit_batch

AEPO = preset("aepo")


def kept(batch: Batch, controls: Controls) -> list[float]:
    chosen: Any = select(batch, AEPO, advantages(batch, AEPO), controls)
    return chosen.keep[:, 0].tolist()


def gradient(objective: Objective, estimate: Tensor, batch: Batch) -> tuple[Tensor, dict[str, float]]:
    """Of the loss by the log-probabilities, which are 0; and what is logged."""
    lp = torch.zeros(len(batch.mask), 1, dtype=torch.float64, requires_grad=True)
    value, metrics = loss(objective, lp, None, estimate, batch, denominators(batch, objective))
    return torch.autograd.grad(value, lp)[0][:, 0], metrics


def test_the_entropy_gate_has_hysteresis() -> None:
    controls, states = initial(AEPO), []
    for entropy in (0.1, 0.2, 0.3, 0.2, 0.1):
        controls = advance(controls, AEPO, entropy=entropy)
        states.append(controls.positives_only)
    assert states == [False, False, True, True, False]


def test_a_closed_gate_drops_negative_episodes_and_their_denominator() -> None:
    batch = bandit_batch([1.0, 0.0, 0.0, 1.0], task_type=torch.zeros(4, dtype=torch.long))
    assert kept(batch, Controls()) == [1, 1, 1, 1]
    assert kept(batch, Controls(positives_only=True)) == [1, 0, 0, 1]
    estimate = advantages(batch, AEPO)
    closed = select(batch, AEPO, estimate, Controls(positives_only=True))
    assert float(denominators(closed, AEPO).tokens[0]) == 2.0
    grad, metrics = gradient(AEPO, estimate, closed)
    torch.testing.assert_close(grad, -estimate[:, 0].clamp(min=0) / 2)
    assert metrics["masked_share"] == 0.5


def test_a_closed_gate_keeps_successes_alone() -> None:
    """A group that earned nothing is not below its own average; the authors require a reward above 0 as well."""
    batch = bandit_batch([1.0, 0.0, 0.0, 0.0], [0, 0, 1, 1], task_type=torch.zeros(4, dtype=torch.long))
    assert kept(batch, Controls(positives_only=True)) == [1, 0, 0, 0]


def test_an_entropy_bonus_flattens_the_policy() -> None:
    objective = vary_objective(preset("reinforce"), entropy=EntropyBonus(1.0))
    batch = bandit_batch([0.5, 0.5])
    logits = torch.tensor([2.0, 0.0], dtype=torch.float64, requires_grad=True)
    table = torch.log_softmax(logits, 0)
    entropy = -(table.exp() * table).sum().expand(2, 1)
    estimate, shared = advantages(batch, objective), denominators(batch, objective)
    value, _ = loss(objective, table[:, None], entropy, estimate, batch, shared)
    (grad,) = torch.autograd.grad(value, logits)
    assert grad[0] > 0 > grad[1]


def test_the_reference_is_reset_by_kl_or_by_patience() -> None:
    objective = preset("prorl", kl=KlLoss("k2", 1e-4, Reset(kl=0.5, patience=2)))
    controls = advance(initial(objective), objective, kl=0.6)
    assert controls.reset
    controls = advance(controls, objective, kl=0.1, validation=0.4)
    assert (controls.reset, controls.waited, controls.best) == (False, 0, 0.4)
    controls = advance(controls, objective, kl=0.1, validation=0.3)
    assert (controls.reset, controls.waited) == (False, 1)
    controls = advance(controls, objective, kl=0.1)
    assert (controls.reset, controls.waited) == (False, 1)
    controls = advance(controls, objective, kl=0.1, validation=0.4)
    assert (controls.reset, controls.waited) == (True, 0)


def test_the_teacher_fades() -> None:
    teacher = Teacher(5e-3, "wrong", Anneal(1e-3, 4))
    objective = preset("kdrl", teacher=teacher)
    values = [teacher.coefficient_at(step) for step in range(7)]
    assert values == pytest.approx([5e-3, 4e-3, 3e-3, 2e-3, 1e-3, 1e-3, 1e-3])
    controls = initial(objective)
    assert controls.teacher_coefficient == 5e-3
    assert advance(controls, objective).teacher_coefficient == pytest.approx(4e-3)
    assert Teacher(5e-3, "wrong").coefficient_at(50) == 5e-3


def test_an_answer_that_is_barely_right_is_taught() -> None:
    """By the metric, where there is one: token F1 of 0.1 is no right answer, whatever shaping adds to the reward."""
    batch = bandit_batch([0.3, 1.2, -0.1, 0.9], metric=torch.tensor([0.1, 1.0, 0.0, 0.6], dtype=torch.float64))
    assert Teacher(5e-3, "wrong").rows(batch).tolist() == [True, False, True, False]


def test_the_teacher_acts_where_it_is_told() -> None:
    batch = bandit_batch([1.0, 0.0, 0.0, 0.0], [0, 0, 7, 7], lp_teacher=torch.full((4, 1), 0.5, dtype=torch.float64))
    for mask, expected in (("all", [1, 1, 1, 1]), ("wrong", [0, 1, 1, 1])):
        objective = preset("kdrl", teacher=f"Teacher(0.005, {mask})")
        assert objective.teacher.rows(batch).int().tolist() == expected
        chosen = select(batch, objective, advantages(batch, objective))
        grad, metrics = gradient(objective, torch.zeros(4, 1, dtype=torch.float64), chosen)
        torch.testing.assert_close(grad, -5e-3 * 0.5 / 4 * torch.tensor(expected, dtype=torch.float64))
        assert metrics["teacher_loss"] == pytest.approx(5e-3 * 0.125 * sum(expected) / 4)


def test_the_learning_rate_follows_the_effective_sample_size() -> None:
    control = preset("vcpo").step_control
    assert control.scale(1.0) == 1.0
    assert control.scale(0.25) == pytest.approx(0.5)
    assert EssControl(1.0, 1.0).scale(0.25) == pytest.approx(0.25)
    assert EssControl(0.5, 0.5).scale(0.6) == 1.0
    with pytest.raises(ValueError, match="share"):
        control.scale(3.0)


def test_groups_are_filtered_with_a_reason() -> None:
    scores = {4: [1.0, 0.0], 5: [1.0, 1.0], 6: [0.0, 0.0], 7: [0.5], 9: [0.5, 0.6]}
    reasons = {group: rejection(values, preset("dapo")) for group, values in scores.items()}
    assert [group for group, reason in reasons.items() if not reason] == [4, 9]
    assert [reasons[group] for group in (5, 6)] == ["all 2 scores are 1", "all 2 scores are 0"]
    assert "nothing to compare" in reasons[7]
    assert not any(rejection(values, preset("reinforce")) for values in scores.values())
