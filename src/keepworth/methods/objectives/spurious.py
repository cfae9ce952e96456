"""Spurious rewards: a control whose rewards are coin flips. A gain under it does not come from the rewards."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from keepworth.training.objective.options import Objective
from keepworth.training.objective.parts import Advantage, Clip, GroupStd, Scale, Share, Token, part
from keepworth.training.objective.presets import Citation, preset_method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.training.objective.advantage import CreditTable


@part
class Spurious(Advantage):
    """a coin, 1 with probability `share`, minus the mean of the group's coins; `scale`.

    The reward is not read. The coins are a function of the drawn tokens, so a resumed run tosses the same ones."""

    compares = True

    share: Share = 0.5
    scale: Scale | None = None

    def tokens(self, credit: CreditTable) -> Tensor:
        return credit.spread(credit.compare(self.toss(credit), "group", self.scale))

    def toss(self, credit: CreditTable) -> Tensor:
        """Returns [E]: a coin for each episode."""
        import torch

        batch = credit.batch
        at = batch.mask > 0
        drawn = [batch.lp_behaviour.to(torch.float64)[at], *([] if batch.ids is None else [batch.ids[at]])]
        raw = b"".join(part.detach().cpu().contiguous().numpy().tobytes() for part in drawn)
        seed = int.from_bytes(hashlib.sha256(raw).digest()[:7])
        chances = torch.rand(len(credit.reward), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        return (chances < self.share).to(credit.reward)


METHOD = preset_method(
    "Spurious rewards",
    "A control: GRPO whose rewards are coins, whatever was answered",
    Objective(
        name="spurious",
        advantage=Spurious(scale=GroupStd()),
        ratio=Token(),
        surrogate=Clip(0.2, 0.2),
        aggregation="seq-mean-token-mean",
    ),
    Citation(
        "Spurious Rewards: Rethinking Training Signals in RLVR",
        "2506.10947",
        "secondary",
        ("The share of coins that are 1 was not confirmed.",),
        "For any recipe: `--set objective.advantage=Spurious(0.5)` leaves the rest of its own objective as it is.",
    ),
    claim="Random rewards raise a model's score where it leans that way already (Qwen2.5-Math), and no other model's.",
)
