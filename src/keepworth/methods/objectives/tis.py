"""Truncated importance sampling: GRPO whose tokens are weighted by a truncated ratio to the policy that drew them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepworth.training.objective.options import Objective
from keepworth.training.objective.parts import Ceiling, Clip, Correction, GroupStd, Outcome, Token, part, truncate_ratio
from keepworth.training.objective.presets import Citation, preset_method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.training.objective.policy_loss import Gap


@part
class Truncate(Correction):
    """weight min(rho, `high`), token by token (TIS)."""

    high: Ceiling

    def weigh(self, gap: Gap) -> tuple[Tensor | None, Tensor | None]:
        return truncate_ratio(gap.log_rho, self.high), None


METHOD = preset_method(
    "Truncated importance sampling",
    "Is GRPO whose tokens are weighted by a truncated ratio to the policy that drew them",
    Objective(
        name="tis",
        advantage=Outcome("group", GroupStd()),
        ratio=Token(),
        surrogate=Clip(0.2, 0.2),
        correction=Truncate(2.0),
    ),
    Citation(
        "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training (fengyao.notion.site/off-policy-rl)",
        "",
        "code",
        ("Only the correction is the source's; the rest is GRPO with token-mean and no KL.",),
    ),
)
