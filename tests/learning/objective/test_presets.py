"""Every preset through the same checks."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from keepworth.learning.objective.advantage import advantages, select
from keepworth.learning.objective.options import Objective
from keepworth.learning.objective.policy_loss import denominators, loss
from keepworth.learning.objective.presets import preset, presets
from tests.learning.objective.toys import Toy, runnable, toy

NAMES = sorted(presets())


def ready(name: str, world: Toy) -> tuple[Objective, torch.Tensor, Toy]:
    objective = runnable(preset(name))
    estimate = advantages(world.batch, objective)
    generator = torch.Generator().manual_seed(1)
    return objective, estimate, Toy(select(world.batch, objective, estimate, generator=generator), world.logits)


@pytest.mark.parametrize("name", NAMES)
def test_positions_outside_the_mask_do_not_matter(name: str) -> None:
    objective, estimate, world = ready(name, toy())
    shared = denominators(world.batch, objective)
    lp, entropy = world.forward()
    expected, _ = loss(objective, lp, entropy, estimate, world.batch, shared)
    noise = torch.where(world.batch.mask > 0, 0.0, 1e6)
    dirty = replace(
        world.batch,
        **{
            field: getattr(world.batch, field) + noise
            for field in ("lp_behaviour", "lp_proximal", "lp_reference", "lp_teacher", "values")
        },
    )
    again = advantages(dirty, objective)
    torch.testing.assert_close(again, estimate)
    got, _ = loss(objective, lp + noise, entropy + noise, again, dirty, shared)
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("name", NAMES)
def test_a_fully_masked_row_adds_nothing_and_never_nan(name: str) -> None:
    objective, _, _ = ready(name, toy())
    world = toy()
    mask = world.batch.mask.clone()
    mask[0] = 0
    emptied = replace(world.batch, mask=mask)
    estimate = advantages(emptied, objective)
    emptied = select(emptied, objective, estimate, generator=torch.Generator().manual_seed(1))
    shared = denominators(emptied, objective)
    lp, entropy = world.forward()
    value, _ = loss(objective, lp, entropy, estimate, emptied, shared)
    alone, _ = loss(objective, lp[:1], entropy[:1], estimate[:1], emptied.rows([0]), shared)
    assert torch.isfinite(value)
    assert float(alone.detach()) == 0.0
    nothing = replace(emptied, mask=torch.zeros_like(mask), keep=torch.zeros_like(mask))
    value, _ = loss(objective, lp, entropy, estimate, nothing, denominators(nothing, objective))
    value.backward()
    assert float(value.detach()) == 0.0
    assert world.logits.grad is not None
    assert not world.logits.grad.any()


@pytest.mark.parametrize("name", NAMES)
def test_extreme_log_ratios_stay_finite(name: str) -> None:
    objective, estimate, world = ready(name, toy())
    shared = denominators(world.batch, objective)
    for shift in (-50.0, 50.0):
        lp, entropy = world.forward()
        value, metrics = loss(objective, lp + shift, entropy, estimate, world.batch, shared)
        world.logits.grad = None
        value.backward()
        assert torch.isfinite(value)
        assert world.logits.grad is not None
        assert torch.isfinite(world.logits.grad).all()
        assert all(torch.isfinite(torch.tensor(number)) for number in metrics.values())
