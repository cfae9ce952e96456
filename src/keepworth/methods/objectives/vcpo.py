"""VCPO: sequence weights, a baseline of least variance, and steps scaled by the effective sample size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from keepworth.training.objective.options import Objective
from keepworth.training.objective.parts import (
    Advantage,
    Ceiling,
    Correction,
    GroupStd,
    NoRatio,
    Positive,
    StepControl,
    Unit,
    part,
    truncate_ratio,
)
from keepworth.training.objective.presets import Citation, preset_method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.training.learner import Learner
    from keepworth.training.objective.advantage import CreditTable
    from keepworth.training.objective.batch import Batch
    from keepworth.training.objective.policy_loss import Gap
    from keepworth.training.rows import Rows
    from keepworth.training.shares import Shares


Gradients = Sequence["Tensor | None"]
"""One gradient for each trained tensor; None where a tensor has none."""


@part
class OptimalBaseline(Advantage):
    """R - b*, b* the mean of R weighted by w^2 |grad log pi(episode)|^2 (VCPO); `scale`."""

    needs = ("score_norm",)
    compares = True
    takes_penalty = True
    reads_proximal = True

    scale: GroupStd | None = None

    def tokens(self, credit: CreditTable) -> Tensor:
        """b* = sum w^2 |g|^2 R / sum w^2 |g|^2 over a group, w the episode's unclipped weight."""
        import torch

        batch, table = credit.batch, credit.table
        weight = table.first(batch.require("score_norm", self).to(torch.float64)) ** 2
        if batch.lp_proximal is not None:
            gap = torch.where(batch.mask > 0, batch.lp_proximal - batch.lp_behaviour, 0.0).to(torch.float64).sum(1)
            log_weight = torch.zeros_like(credit.reward).index_add_(0, table.of_row, gap)
            weight = weight * torch.exp(2 * log_weight.clamp(-20, 20))
        return credit.spread(credit.compare(credit.reward_less_penalty(), "group", self.scale, weight))

    def measure(self, learner: Learner, rows: Rows, temperature: float) -> dict[str, Any]:
        """Returns the norm of each episode's gradient."""
        import torch

        from keepworth.training.passes import Passes, row_scores

        named, alone = list(learner.master_weights.named.values()), Passes(learner.model, learner.passes.room)

        def gradients(chosen: Sequence[int]) -> Iterator[Gradients]:
            for _, of_part in alone.training(rows, alone.split(rows, chosen)):
                lp, _ = row_scores(learner.model, rows, of_part.rows, temperature)  # zero where nothing was drawn
                yield torch.autograd.grad(lp.sum(), named, allow_unused=True)

        return {"score_norm": score_norms(named, rows.batch, gradients, learner.shares)}


@part
class SequenceTruncate(Correction):
    """weight min(product of rho over the `unit`, `high`) (VCPO)."""

    high: Ceiling
    unit: Unit = "row"

    def weigh(self, gap: Gap) -> tuple[Tensor | None, Tensor | None]:
        return truncate_ratio(gap.total(self.unit), self.high), None


@part
class EssControl(StepControl):
    """learning rate * min(1, ESS / `base`)^`power`, ESS the effective share of sequence weights (VCPO)."""

    base: Annotated[float, Field(gt=0, le=1)]
    power: Positive

    def scale(self, ess: float) -> float:
        """Source: VCPO, arXiv 2602.17616: power 0.5 for Adam-like optimisers, 1 for SGD."""
        if not 0.0 < ess <= 1.0 + 1e-6:
            raise ValueError(f"{self}: the effective sample size is a share in (0, 1], got {ess}")
        return float(min(1.0, ess / self.base) ** self.power)


def score_norms(
    parameters: Sequence[Tensor],
    batch: Batch,
    gradients: Callable[[list[int]], Iterable[Gradients]],
    shares: Shares,
) -> Tensor:
    """Returns [B] float64 for Batch.score_norm: |grad sum of lp| of each row's episode, by one backward pass per episode. Whole
    episodes are divided among the processes.

    The norm is the g of the optimal baseline b* = sum w^2 |g|^2 R / sum w^2 |g|^2 over a group, w the episode's unclipped
    weight: unscaled, so that w counts once. Source: Stable Asynchrony (VCPO), arXiv 2602.17616.

    Args:
        parameters: The trained parameters.
        batch: The rows of the update.
        gradients: It maps numbers of rows to the gradients of the sum of their log-probabilities, in parts that add up.
        shares: What joins the numbers of all processes.
    """
    import torch

    norms = torch.zeros(batch.shape[0], dtype=torch.float64)
    members = [(batch.episode == episode).nonzero().flatten().tolist() for episode in torch.unique(batch.episode)]
    for number in shares.pick([float(batch.mask[rows].sum()) for rows in members]):
        rows = members[number]
        totals: list[Tensor | None] = [None] * len(parameters)
        for some in gradients(rows):
            totals = [
                value if total is None else total + value if value is not None else total
                for total, value in zip(totals, some, strict=True)
            ]
        squares = [(total.detach().to(torch.float64) ** 2).sum() for total in totals if total is not None]
        norms[rows] = torch.stack(squares).sum().sqrt().cpu() if squares else 0.0
    (norms,) = shares.joined(norms)
    return norms.to(batch.mask.device)


METHOD = preset_method(
    "VCPO",
    "Weights whole sequences, uses the baseline of least variance, and scales steps by the effective sample size",
    Objective(
        name="vcpo",
        advantage=OptimalBaseline(GroupStd()),
        ratio=NoRatio("proximal"),
        correction=SequenceTruncate(8.0, "episode"),
        aggregation="seq-mean-token-mean",
        step_control=EssControl(base=1.0, power=0.5),
    ),
    Citation(
        "Stable Asynchrony: Variance-Controlled Off-Policy RL for LLMs",
        "2602.17616",
        "code",
        ("The released code appears to count the importance weight twice in the baseline; here it counts once.",),
        "EssControl: base 1.0 for one turn, 0.55 was used for long episodes of many turns; power 1 for plain SGD.",
        "Batch.score_norm, one backward pass an episode (`score_norms`)",
    ),
    claim="Countdown is 41.9 % in 89.6 GPU hours, where synchronous training has 38.4 % in 143.2.",
)
