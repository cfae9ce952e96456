"""DAPO: GRPO with a higher upper clip, a mean over tokens, no groups of equal rewards, and a penalty on long answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from keepworth.training.objective.options import Objective
from keepworth.training.objective.parts import Clip, GroupStd, Mixed, Outcome, Overlong, Token, part
from keepworth.training.objective.presets import Citation, preset_method

if TYPE_CHECKING:
    from torch import Tensor


@part
class OverlongPenalty(Overlong):
    """0 to -1 is added over the last `buffer` of the length_budget, a share (DAPO)."""

    reads_budget = True

    buffer: Annotated[float, Field(gt=0, le=1)]

    def shape(self, reward: Tensor, tokens: Tensor, budget: int) -> Tensor:
        """Adds 0 up to (1 - buffer) * budget drawn tokens, then linear to -1 at the budget.

        Source: soft overlong punishment, DAPO, arXiv 2503.14476, section 3.4.
        """
        stretch = self.buffer * budget
        return reward + ((budget - stretch - tokens) / stretch).clamp(-1.0, 0.0)


METHOD = preset_method(
    "DAPO",
    (
        "Changes GRPO: a higher upper clip, a mean over tokens, no groups without a difference, a penalty on "
        "long answers"
    ),
    Objective(
        name="dapo",
        advantage=Outcome("group", GroupStd()),
        overlong=OverlongPenalty(0.2),
        ratio=Token(),
        surrogate=Clip(0.2, 0.28),
        group_filter=Mixed(),
    ),
    Citation(
        "DAPO: An Open-Source LLM Reinforcement Learning System at Scale",
        "2503.14476",
        "code",
        note="The buffer of the penalty is a share of length_budget (4096 of 20480 tokens in the paper). Groups are filtered on "
        "the unshaped metric.",
        needs="a sampler that refills the groups it filters",
    ),
    claim="AIME24 is 50 % with Qwen2.5-32B.",
)
