"""Duration-aware gradients: an action's weight is the time it took, so that quick actions are not learned from more often."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from keepworth.training.objective.options import Objective
from keepworth.training.objective.parts import Clip, Gae, Token, Weight, Whitened, part
from keepworth.training.objective.presets import Citation, preset_method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.training.objective.batch import Batch


@part
class Duration(Weight):
    """times d / mean d, d the seconds of the turn, at most their percentile `percentile` in the batch."""

    needs = ("steps",)
    episodes = ("durations of turns",)

    percentile: Annotated[float, Field(gt=0, le=100)] = 95.0

    def weigh(self, batch: Batch) -> Tensor:
        """Returns weights whose mean over the turns of the batch is 1. A turn without a measured duration weighs 1.

        Source: Reinforcement Learning for Machine Learning Engineering Agents, arXiv 2509.01684.
        """
        import torch

        step = batch.require("step", self)
        weight = torch.ones(batch.shape, dtype=torch.float64, device=step.device)
        if batch.steps is None or batch.steps.duration is None:
            raise ValueError(f"{self} needs Steps.duration")
        seconds = batch.steps.duration.to(weight.dtype)
        measured = (batch.mask > 0) & (step >= 0) & ~seconds[step.clamp(min=0)].isnan()
        turns = seconds[torch.unique(step[measured])]
        if len(turns) == 0:
            return weight
        capped = seconds.clamp(max=float(torch.quantile(turns, self.percentile / 100)))
        mean = float(capped[torch.unique(step[measured])].mean())
        if float(turns.min()) == float(turns.max()) or mean == 0:
            return weight  # a mean of equal floats may differ from them by rounding
        weight[measured] = capped[step[measured]] / mean
        return weight


METHOD = preset_method(
    "Duration-aware gradients",
    "Is PPO in which an action counts by the time that it took",
    Objective(
        name="duration",
        advantage=Gae(0.95, scale=Whitened(), value_coefficient=0.5, value_clip=0.2),
        weight=Duration(),
        ratio=Token(),
        surrogate=Clip(0.2, 0.2),
    ),
    Citation(
        "Reinforcement Learning for Machine Learning Engineering Agents",
        "2509.01684",
        "secondary",
        ("PPO's coefficients and the percentile at which durations are capped were not confirmed.",),
        "Only where the sampler is limited by time, so that quick actions are drawn more often: with a fixed number of attempts "
        "at each task the weight is a bias. By the driver's clock two runs weigh differently: for exact repetition the "
        "environment says Step.seconds. Any objective takes it: objective.weight=Duration(95).",
        "Steps.duration",
    ),
    claim="Of a gain of 22 % on 12 tasks of MLEBench about 3.9 % are lost without the weight.",
    differs="The paper also trains with rewards for progress, and with prompts to improve the last solution. PPO's coefficients "
    "and the percentile at which durations are capped were not confirmed.",
)
