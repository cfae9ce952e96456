"""Losses beside the policy's: imitation of sources of episodes, each with a schedule.

An update minimises  policy * L_policy + sum over the others of weight * L,  in one optimiser step. What imitation learns from
comes from a `Source` (`keepworth.learning.collect.sources`), and the policy's loss leaves those episodes out.
Sources: DataMind, arXiv 2509.25084 (loss = (1 - mu) policy + mu supervised, mu falling).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from keepworth.episodes.needs import needs_train

import torch
from pydantic import Field

from keepworth.episodes.episode import Group
from keepworth.learning.objective.parts import Amount, Count, ObjectiveError, checked
from keepworth.learning.passes import Passes
from keepworth.learning.rows import Texts
from keepworth.models.attention import tree

TokenWeight = Literal["one", "probability", "unsure"]


@checked(ObjectiveError)
class Falling:
    """A weight that rises linearly to `peak` over `warmup` updates, then falls to `valley` along half a cosine over `decay`."""

    peak: Amount
    valley: Amount = 0.0
    warmup: Annotated[int, Field(ge=0)] = 0
    decay: Count = 1

    def at(self, step: int) -> float:
        """The weight of update `step` (from 0)."""
        if step < self.warmup:
            return self.peak * (step + 1) / self.warmup
        done = min(1.0, (step - self.warmup) / self.decay)
        return self.valley + (self.peak - self.valley) * (1 + math.cos(math.pi * done)) / 2


Weight = float | Falling


def weight_at(weight: Weight, step: int) -> float:
    """The weight of update `step` (from 0)."""
    return weight.at(step) if isinstance(weight, Falling) else weight


@checked(ObjectiveError)
class Imitation:
    """Cross-entropy of the drawn tokens of a source's episodes, averaged over them.

    Attributes:
        source: The `Source` by its name, such as "demonstrations".
        weight: Of the loss.
        tokens: What a token counts, without a gradient: "one", its "probability" p, or "unsure", p (1 - p), which plays down
            what is sure already and what is hopeless.
    """

    source: str
    weight: Weight
    tokens: TokenWeight = "one"

    def loss(self, lp: torch.Tensor, total: int) -> torch.Tensor:
        """The part of the loss of some tokens. lp [N]: their log-probabilities; total: tokens of the whole update."""
        probability = lp.detach().exp()
        weights = {
            "one": probability.new_ones(()),
            "probability": probability,
            "unsure": probability * (1 - probability),
        }
        return -(weights[self.tokens] * lp).sum() / total


@dataclass(frozen=True, slots=True)
class MixedLoss:
    """The losses of an update.

    Attributes:
        losses: Those beside the policy's, which has what they leave of 1.
    """

    losses: tuple[Imitation, ...]

    def __post_init__(self) -> None:
        if not self.losses:
            raise ObjectiveError("A mixture without losses is the policy's loss alone.", "Leave it out.")
        peaks = [loss.weight.peak if isinstance(loss.weight, Falling) else loss.weight for loss in self.losses]
        if min(peaks) < 0 or sum(peaks) > 1:
            raise ObjectiveError(
                f"Weights of {', '.join(f'{peak:g}' for peak in peaks)} leave the policy's loss less than nothing.",
                "Let them add up to 1 at most.",
            )

    @property
    def imitated(self) -> frozenset[str]:
        """The sources whose episodes are imitated, and left out of the policy's loss."""
        return frozenset(loss.source for loss in self.losses)

    def policy_weight(self, step: int) -> float:
        """Of the policy's loss in update `step` (from 0)."""
        return 1.0 - sum(weight_at(loss.weight, step) for loss in self.losses)


@dataclass(frozen=True, slots=True)
class OtherLoss:
    """A loss of one optimiser step beside the policy's, and the rows that it reads.

    Attributes:
        name: Under which its value is logged.
        loss: What of the rows is imitated.
        weight: In this step.
        texts: The rows, whose answers are learned whole.
    """

    name: str
    loss: Imitation
    weight: float
    texts: Texts

    def backward(self, passes: Passes) -> float:
        """Add the gradient of the weighted loss to the weights; returns the loss without its weight."""
        texts, total = self.texts, sum(map(len, self.texts.answers))
        values = {}
        for number, part in passes.training(texts, passes.split(texts, range(len(texts.contexts)))):
            shared = texts.by_context(part.rows)
            lp, _ = passes.model.tree_scores(tree(list(shared), texts.branches(shared)))
            scalar = self.loss.loss(lp, total)
            (self.weight * scalar).backward()  # type: ignore[no-untyped-call]
            values[number] = float(scalar.detach())
        return sum(passes.shares.gathered(values))


def other_losses(mixture: MixedLoss, groups: Sequence[Group], roles: Sequence[str], step: int) -> list[OtherLoss]:
    """The losses of a step beside the policy's, but those of weight 0 and those without anything to learn from.

    Args:
        mixture: What they are.
        groups: Of the update, those of sources among them.
        roles: Whose calls are learned.
        step: The update, from 0.
    """
    made = []
    for loss in mixture.losses:
        weight = weight_at(loss.weight, step)
        episodes = [e for group in groups for e in group.episodes if e.origin == loss.source]
        calls = [call for episode in episodes for call in episode.segments if call.role in roles and call.ids]
        if weight and calls:
            texts = Texts([call.context for call in calls], [call.ids for call in calls])
            made.append(OtherLoss(f"loss/{loss.source}", loss, weight, texts))
    return made
