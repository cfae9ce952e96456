"""S-GRPO: GRPO on the first tokens of an answer and some later ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from keepworth.training.objective.options import Objective
from keepworth.training.objective.parts import Clip, GroupStd, Outcome, Selection, Token, part
from keepworth.training.objective.presets import Citation, preset_method

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from keepworth.training.objective.batch import Batch


@part
class FirstAndRandom(Selection):
    """of a row's tokens the first `first`, and each later one with a probability of `probability` (S-GRPO)."""

    first: Annotated[int, Field(ge=0)]
    probability: Annotated[float, Field(ge=0, lt=1)]

    def __post_init__(self) -> None:
        if self.probability == 0 == self.first:
            raise ValueError("it selects no token")

    def keep(self, batch: Batch, generator: Any = None) -> Tensor:
        return first_and_random(batch.mask, self.first, self.probability, generator)


def first_and_random(mask: Tensor, first: int, probability: float, generator: torch.Generator | None) -> Tensor:
    """Returns which drawn tokens are trained on, bool [B,T]: the first of a row, and later ones by chance.

    Source: S-GRPO in Token-Efficient RL for LLM Reasoning, arXiv 2504.20834; mechanism from secondary descriptions, the
    published constants could not be verified.

    Args:
        mask: [B,T] Above 0 where a token was drawn.
        first: So many first tokens of a row are always taken.
        probability: The chance of each later token.
        generator: The source of the draw; None takes PyTorch's own.
    """
    import torch

    drawn = mask > 0
    rank = torch.cumsum(drawn.long(), 1) - 1
    coin = torch.rand(mask.shape, generator=generator, dtype=torch.float64).to(mask.device)
    return drawn & ((rank < first) | (coin < probability))


METHOD = preset_method(
    "S-GRPO",
    "Is GRPO on the first tokens of an answer and a sample of the later ones",
    Objective(
        name="s_grpo",
        advantage=Outcome("group", GroupStd()),
        ratio=Token(),
        surrogate=Clip(0.2, 0.2),
        denominator="kept",
        selection=FirstAndRandom(8, 0.4),
    ),
    Citation(
        "Token-Efficient RL for LLM Reasoning",
        "2504.20834",
        "secondary",
        ("How many tokens are trained on depends on the task; the published numbers are not known here.",),
        "denominator='kept' weighs early tokens more.",
    ),
    claim="SVAMP rises from 46 % to above 70 % with Qwen2-1.5B and LoRA, where GRPO on all tokens did not improve.",
)
