"""Every objective of the registry: its gradient is that of its loss, and its parts change the update."""

from __future__ import annotations

from itertools import combinations
from typing import Annotated

import pytest
import torch
from pydantic import Field
from torch import Tensor

from keepworth.registry import methods
from keepworth.training.objective import parts
from keepworth.training.objective.advantage import advantages, select
from keepworth.training.objective.options import Objective
from keepworth.training.objective.parts import Correction, Positive, Surrogate, part
from keepworth.training.objective.policy_loss import Gap, denominators, loss
from keepworth.training.objective.presets import preset, vary_objective
from tests.learning.objective.toys import Toy, runnable, toy

STOPPED = ("cispo",)
"""Whose loss holds a weight without gradient, so that its value says nothing of it."""


def loss_of(chosen: str | Objective, logits: Tensor) -> Tensor:
    """The objective's loss on the toy batch, as a function of the policy's logits."""
    world, objective = toy(), runnable(preset(chosen) if isinstance(chosen, str) else chosen)
    estimate = advantages(world.batch, objective)
    batch = select(world.batch, objective, estimate, generator=torch.Generator().manual_seed(0))
    lp, entropy = Toy(batch, logits).forward()
    return loss(objective, lp, entropy, estimate, batch, denominators(batch, objective))[0]


@pytest.mark.parametrize("name", [name for name in methods("objective") if name not in STOPPED])
def test_the_gradient_is_a_finite_difference(name: str) -> None:
    logits = toy().logits.detach().requires_grad_(True)
    assert torch.autograd.gradcheck(lambda each: loss_of(name, each), (logits,), atol=1e-6, rtol=1e-4)


def test_no_two_objectives_make_the_same_update() -> None:
    updates = {}
    for name in methods("objective"):
        logits = toy().logits.detach().requires_grad_(True)
        (updates[name],) = torch.autograd.grad(loss_of(name, logits), logits)
    alike = [pair for pair in combinations(updates, 2) if torch.allclose(updates[pair[0]], updates[pair[1]], atol=1e-9)]
    assert not alike


def test_a_new_part_is_one_class_that_is_written_checked_and_acts(monkeypatch: pytest.MonkeyPatch) -> None:
    from keepworth.training.objective.inputs import inputs

    monkeypatch.setattr(parts, "PARTS", dict(parts.PARTS))  # the new parts are of this test alone

    @part
    class Powered(Surrogate):
        """r^`power` A / `power`."""

        power: Positive

        def value(self, lp: Tensor, log_ratio: Tensor, advantage: Tensor) -> Tensor:
            return (self.power * log_ratio).exp() * advantage / self.power

    @part
    class OldLeftOut(Correction):
        """tokens more than `lag` versions old are dropped."""

        lag: Annotated[int, Field(ge=0)]

        needs = ("version_lag",)

        def weigh(self, gap: Gap) -> tuple[Tensor | None, Tensor | None]:
            assert gap.batch.version_lag is not None
            return None, gap.batch.version_lag <= self.lag

    plain = preset("grpo", surrogate="Plain", kl=None)
    powered, dropping = (
        vary_objective(plain, surrogate="Powered(0.5)"),
        vary_objective(plain, correction="OldLeftOut(0)"),
    )
    assert Objective(**powered.model_dump()) == powered
    with pytest.raises(ValueError, match="Powered: power"):
        vary_objective(plain, surrogate="Powered(-1)")
    assert "version_lag" in inputs(dropping)
    updates = []
    for objective in (plain, powered, dropping):
        logits = toy().logits.detach().requires_grad_(True)
        assert torch.autograd.gradcheck(lambda each, one=objective: loss_of(one, each), (logits,), atol=1e-6, rtol=1e-4)
        updates += torch.autograd.grad(loss_of(objective, logits), logits)
    assert not torch.allclose(updates[0], updates[1])
    assert not torch.allclose(updates[0], updates[2])
