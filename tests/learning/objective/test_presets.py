"""Every preset through the same checks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from keepworth.training.objective.advantage import advantages, select
from keepworth.training.objective.options import Objective
from keepworth.training.objective.policy_loss import denominators, loss
from keepworth.training.objective.presets import preset, presets
from tests.learning.objective.toys import Toy, runnable, toy

NAMES = sorted(presets())


def ready(name: str, first_row: float = 1) -> tuple[Objective, torch.Tensor, Toy]:
    """first_row: what the mask of the first row is multiplied with."""
    objective, world = runnable(preset(name)), toy()
    world.batch.mask[0] *= first_row
    estimate = advantages(world.batch, objective)
    generator = torch.Generator().manual_seed(1)
    return objective, estimate, Toy(select(world.batch, objective, estimate, generator=generator), world.logits)


@pytest.mark.parametrize("name", NAMES)
def test_positions_outside_the_mask_do_not_matter(name: str) -> None:
    objective, estimate, world = ready(name)
    shared = denominators(world.batch, objective)
    lp, entropy = world.forward()
    expected, _ = loss(objective, lp, entropy, estimate, world.batch, shared)
    noise = torch.where(world.batch.mask > 0, 0.0, 1e6)
    fields = ("lp_behaviour", "lp_proximal", "lp_reference", "lp_teacher", "values")
    dirty = replace(world.batch, **{field: getattr(world.batch, field) + noise for field in fields})
    again = advantages(dirty, objective)
    torch.testing.assert_close(again, estimate)
    got, _ = loss(objective, lp + noise, entropy + noise, again, dirty, shared)
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("name", NAMES)
def test_fully_masked_row_adds_zero_loss_without_nan(name: str) -> None:
    objective, estimate, world = ready(name, first_row=0)
    emptied: Any = world.batch
    shared = denominators(emptied, objective)
    lp, entropy = world.forward()
    value, _ = loss(objective, lp, entropy, estimate, emptied, shared)
    alone, _ = loss(objective, lp[:1], entropy[:1], estimate[:1], emptied.rows([0]), shared)
    assert torch.isfinite(value)
    assert float(alone.detach()) == 0.0
    nothing = replace(emptied, mask=0 * emptied.mask, keep=0 * emptied.mask)
    value, _ = loss(objective, lp, entropy, estimate, nothing, denominators(nothing, objective))
    (gradient,) = torch.autograd.grad(value, world.logits)
    assert float(value.detach()) == 0.0
    assert not gradient.any()


@pytest.mark.parametrize("name", NAMES)
def test_extreme_log_ratios_stay_finite(name: str) -> None:
    objective, estimate, world = ready(name)
    shared = denominators(world.batch, objective)
    for shift in (-50.0, 50.0):
        lp, entropy = world.forward()
        value, metrics = loss(objective, lp + shift, entropy, estimate, world.batch, shared)
        (gradient,) = torch.autograd.grad(value, world.logits)
        assert torch.isfinite(value)
        assert torch.isfinite(gradient).all()
        assert all(torch.isfinite(torch.tensor(number)) for number in metrics.values())
