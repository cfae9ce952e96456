"""Selection: which drawn tokens the loss keeps, decided once per optimiser step and written into the batch."""

from __future__ import annotations

from dataclasses import replace

from keepworth.episodes.needs import needs_train

import torch
from torch import Tensor

from keepworth.learning.objective import credit
from keepworth.learning.objective.batch import Batch, episode_table
from keepworth.learning.objective.control import Controls
from keepworth.learning.objective.distil import teacher_rows
from keepworth.learning.objective.options import Objective
from keepworth.learning.objective.parts import FirstAndRandom, OverlongMask, TopEntropy


def first_and_random(
    mask: Tensor, first: int, probability: float, limit: int | None, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """(keep, inclusion) [B,T]: the first drawn tokens of a row always, each later one with `probability`, no more than
    `limit` in all. inclusion is the probability with which a token was kept, before the limit.

    Source: S-GRPO in Token-Efficient RL for LLM Reasoning, arXiv 2504.20834; mechanism from secondary descriptions,
    the published constants could not be verified.
    """
    drawn = mask > 0
    place = torch.cumsum(drawn.long(), 1) - 1
    sure = drawn & (place < first)
    coin = torch.rand(mask.shape, generator=generator, dtype=torch.float64).to(mask.device)
    keep = sure | (drawn & (coin < probability))
    inclusion = torch.full(mask.shape, probability, dtype=torch.float64, device=mask.device).masked_fill(sure, 1.0)
    if limit is not None:
        if limit < first:
            raise ValueError(f"limit={limit} is below first={first}")
        # Among the kept later tokens those with the smallest coins stay: a uniform subset, as the coins are i.i.d.
        order = torch.where(sure, -1.0, torch.where(keep, coin, torch.inf))
        rank = order.argsort(1).argsort(1)
        keep = keep & (rank < limit)
    return keep, inclusion


def top_entropy(mask: Tensor, entropy: Tensor, share: float) -> Tensor:
    """bool [B,T]: the `share` of the batch's drawn tokens with the highest entropy.

    Source: Beyond the 80/20 Rule, arXiv 2506.01939: 20 % there.
    """
    drawn = mask > 0
    count = int(drawn.sum())
    if count == 0:
        return drawn
    kept = max(1, round(share * count))
    threshold = entropy[drawn].sort(descending=True).values[kept - 1]
    return drawn & (entropy >= threshold)


def select(
    batch: Batch,
    objective: Objective,
    advantages: Tensor,
    controls: Controls | None = None,
    generator: torch.Generator | None = None,
) -> Batch:
    """The batch with `keep` [B,T] (and `teacher_rows` [B]) filled in; call it once, on the whole optimiser step.

    A keep above 1 is an inclusion weight, one between 0 and 1 a shared tree node counted once.
    """
    drawn = batch.mask > 0
    keep = drawn.to(batch.lp_behaviour.dtype)
    chosen = objective.selection
    if isinstance(chosen, FirstAndRandom):
        kept, inclusion = first_and_random(batch.mask, chosen.first, chosen.probability, chosen.limit, generator)
        keep = keep * kept
        if chosen.weighted:
            keep = (keep / inclusion).to(keep.dtype)
    elif isinstance(chosen, TopEntropy):
        if batch.entropy_behaviour is None:
            raise ValueError(f"selection={chosen!r} needs Batch.entropy_behaviour")
        keep = keep * top_entropy(batch.mask, batch.entropy_behaviour, chosen.share)
    elif objective.shares_nodes:
        table = episode_table(batch)
        tree = credit.prefix_tree(batch, table, credit.packing(batch, table), table.reward)
        keep = keep * (tree.informative / tree.count.clamp(min=1)).to(keep.dtype)
    if isinstance(objective.overlong, OverlongMask):
        if batch.truncated is None:
            raise ValueError("overlong=OverlongMask() needs Batch.truncated")
        keep = keep * ~batch.truncated.bool()[:, None]
    if objective.max_lag is not None:
        if batch.version_lag is None:
            raise ValueError("max_lag needs Batch.version_lag")
        keep = keep * (batch.version_lag <= objective.max_lag)
    if objective.negatives is not None and controls is not None and controls.positives_only:
        # As the authors have it: a member of a group that earned nothing is not below average, and teaches nothing good.
        keep = keep * ((advantages >= 0) & (batch.rewards > 0)[:, None])
    taught = None if objective.teacher is None else teacher_rows(batch, objective.teacher.on)
    return replace(batch, keep=keep, teacher_rows=taught)
