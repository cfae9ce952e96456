"""CISPO: caps the weight of a token, so that no token loses its gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepworth.training.objective.options import Objective
from keepworth.training.objective.parts import Amount, GroupStd, Outcome, Share, Surrogate, Token, part
from keepworth.training.objective.presets import Citation, preset_method

if TYPE_CHECKING:
    from torch import Tensor


@part
class Cispo(Surrogate):
    """sg[clip(r, 1 - `low`, 1 + `high`)] A lp.

    The weight has no gradient, and no token loses its own."""

    low: Share
    high: Amount

    def value(self, lp: Tensor, log_ratio: Tensor, advantage: Tensor) -> Tensor:
        """Source: MiniMax-M1, arXiv 2506.13585. low >= 1 switches the lower bound off."""
        weight = log_ratio.detach().exp().clamp(max(0.0, 1 - self.low), 1 + self.high)
        return weight * advantage * lp

    def cut(self, ratio: Tensor, advantage: Tensor) -> dict[str, Tensor]:
        return {"clip_fraction_low": ratio < 1 - self.low, "clip_fraction_high": ratio > 1 + self.high}


METHOD = preset_method(
    "CISPO",
    "Caps the weight of a token, so that no token loses its gradient",
    Objective(name="cispo", advantage=Outcome("group", GroupStd()), ratio=Token(), surrogate=Cispo(1.0, 4.0)),
    Citation(
        "MiniMax-M1: Scaling Test-Time Compute Efficiently with Lightning Attention",
        "2506.13585",
        "code",
        (
            "The paper's own bound was not confirmed: a weight of at most 5 is from arXiv 2510.13786.",
            "Nor was the claim of twice the step efficiency of DAPO.",
        ),
        "No trust region: keep the learning rate small and clip the gradient. low = 1 switches the lower bound off.",
    ),
    claim="It has about twice the step efficiency of DAPO with Qwen2.5-32B.",
)
