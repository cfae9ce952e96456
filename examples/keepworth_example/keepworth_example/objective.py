"""A new part of an objective: a ratio is bent smoothly instead of clipped. The objective is GRPO with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepworth.kit import Citation, Surrogate, part, preset, preset_method, vary_objective

if TYPE_CHECKING:
    from torch import Tensor


@part
class Bent(Surrogate):
    """`reach` tanh((r - 1) / `reach`) A: the gradient of r A at r = 1, and none far from it."""

    reach: float

    def value(self, lp: Tensor, log_ratio: Tensor, advantage: Tensor) -> Tensor:
        return self.reach * ((log_ratio.exp() - 1) / self.reach).tanh() * advantage


METHOD = preset_method(
    "Bent GRPO",
    "Bends the probability ratio of a token smoothly instead of clipping it",
    vary_objective(preset("grpo"), name="bent_grpo", surrogate=Bent(0.3)),
    Citation("This package's example", "", "text"),
    label="unmeasured",
)
