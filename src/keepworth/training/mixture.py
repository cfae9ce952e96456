"""Losses that are added to the policy's: imitation of one source of episodes, and preferences within groups, each with a
schedule.

An update minimises  policy * L_policy + sum over the others of weight * L,  in one optimiser step. Imitated episodes come from a
`Source` (`keepworth.training.collect.sources`), and the policy's loss leaves them out.
Sources: DataMind, arXiv 2509.25084 (loss = (1 - mu) policy + mu supervised, mu falling); DPO, arXiv 2305.18290, equation 7."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from keepworth.base.needs import needs_train

import torch
from pydantic import Field

from keepworth.models.attention import tree
from keepworth.records.episode import Episode, Group, Segment
from keepworth.training.objective.parts import Amount, Count, ObjectiveError, Positive, check_fields
from keepworth.training.passes import Passes
from keepworth.training.rows import Texts

TokenWeight = Literal["one", "probability", "unsure"]


@check_fields(ObjectiveError)
class Falling:
    """A weight that rises linearly to `peak` over `warmup` updates, then falls to `valley` along half a cosine over `decay`."""

    peak: Amount
    valley: Amount = 0.0
    warmup: Annotated[int, Field(ge=0)] = 0
    decay: Count = 1

    def at(self, step: int) -> float:
        """Returns the weight of update `step` (from 0)."""
        if step < self.warmup:
            return self.peak * (step + 1) / self.warmup
        done = min(1.0, (step - self.warmup) / self.decay)
        return self.valley + (self.peak - self.valley) * (1 + math.cos(math.pi * done)) / 2


Weight = float | Falling


def weight_at(weight: Weight, step: int) -> float:
    """Returns the weight of update `step` (from 0)."""
    return weight.at(step) if isinstance(weight, Falling) else weight


@check_fields(ObjectiveError)
class Imitation:
    """Cross-entropy of the drawn tokens of a source's episodes, averaged over them.

    `tokens` is the factor of each token, without a gradient: "one", its "probability" p, or "unsure", p (1 - p), which lowers
    tokens that are almost certain and tokens that are very unlikely."""

    source: str
    weight: Weight
    tokens: TokenWeight = "one"

    def loss(self, lp: torch.Tensor, total: int) -> torch.Tensor:
        """Returns the loss of some tokens, with log-probabilities lp [N], as a part of an update with `total` tokens."""
        probability = lp.detach().exp()
        weights = {
            "one": probability.new_ones(()),
            "probability": probability,
            "unsure": probability * (1 - probability),
        }
        return -(weights[self.tokens] * lp).sum() / total


@check_fields(ObjectiveError)
class Preference:
    """-log sigmoid(beta ((lp+ - ref+) - (lp- - ref-))), averaged over pairs: the best and the worst episode of each group. A
    group whose rewards are all equal has no pair. The reference is the policy that drew the episodes."""

    weight: Weight
    beta: Positive = 0.1


@dataclass(frozen=True, slots=True)
class MixedLoss:
    """The losses of an update.

    Attributes:
        losses: Those that are added to the policy's.
        policy: The weight of the policy's loss; None for 1 minus the other weights.
    """

    losses: tuple[Imitation | Preference, ...]
    policy: Weight | None = None

    def __post_init__(self) -> None:
        if not self.losses:
            raise ObjectiveError("A mixture without losses is the policy's loss alone.", "Leave it out.")
        peaks = [loss.weight.peak if isinstance(loss.weight, Falling) else loss.weight for loss in self.losses]
        if min(*peaks, self.policy_weight(0)) < 0 or (self.policy is None and sum(peaks) > 1):
            raise ObjectiveError(
                f"Weights of {', '.join(f'{peak:g}' for peak in peaks)} leave the policy's loss less than nothing.",
                "Let them add up to 1 at most, or say the weight of the policy's loss (policy=).",
            )

    @property
    def imitated(self) -> frozenset[str]:
        """The sources whose episodes are imitated and left out of the policy's loss."""
        return frozenset(loss.source for loss in self.losses if isinstance(loss, Imitation))

    def policy_weight(self, step: int) -> float:
        """Returns the weight of the policy's loss in update `step` (from 0)."""
        if self.policy is not None:
            return weight_at(self.policy, step)
        return 1.0 - sum(weight_at(loss.weight, step) for loss in self.losses)


@dataclass(frozen=True, slots=True)
class OtherLoss:
    """A loss of one optimiser step that is added to the policy's, and the rows that it reads.

    Attributes:
        texts: The rows. Their whole answers are learned.
        pairs: For a preference: rows of the better episode, rows of the worse one, and the log-ratio of their probabilities, in
            nats, under the policy that drew them.
        temperature: The temperature at which log-probabilities are taken.
    """

    name: str
    loss: Imitation | Preference
    weight: float
    texts: Texts
    pairs: Sequence[tuple[Sequence[int], Sequence[int], float]] = ()
    temperature: float = 1.0

    def backward(self, passes: Passes) -> float:
        """Adds the gradient of the weighted loss to the weights, and returns the loss without its weight."""
        texts = self.texts

        def scores(rows: Sequence[int]) -> dict[int, torch.Tensor]:
            """Returns the log-probabilities of each row's answer."""
            shared = texts.by_context(rows)
            lp, _ = passes.model.tree_scores(tree(list(shared), texts.branches(shared)), self.temperature)
            order = [row for members in shared.values() for row in members]
            return dict(zip(order, torch.split(lp, [len(texts.answers[row]) for row in order]), strict=True))

        parts = passes.split(texts, range(len(texts.contexts)))
        if isinstance(self.loss, Imitation):
            total = sum(map(len, texts.answers))
            values = {}
            for number, part in passes.training(texts, parts):
                scalar = self.loss.loss(torch.cat(list(scores(part.rows).values())), total)
                (self.weight * scalar).backward()  # type: ignore[no-untyped-call]
                values[number] = float(scalar.detach())
            return sum(passes.shares.gathered(values))
        # The loss couples the rows of a pair: its derivative in each row's sum first, then that of the weights, part by part.
        with torch.no_grad():
            sums = {row: float(lp.sum()) for part in parts for row, lp in scores(part.rows).items()}
        value, slopes = self._preferred(sums)
        for _, part in passes.training(texts, parts):
            scalar = torch.stack([slopes[row] * lp.sum() for row, lp in scores(part.rows).items()]).sum()
            (self.weight * scalar).backward()  # type: ignore[no-untyped-call]
        return value

    def _preferred(self, sums: Mapping[int, float]) -> tuple[float, dict[int, float]]:
        """Returns the loss of a preference, and its derivative in the sum of each row's log-probabilities."""
        assert isinstance(self.loss, Preference)
        beta, value, slopes = self.loss.beta, 0.0, dict.fromkeys(sums, 0.0)
        for better, worse, drawn in self.pairs:
            margin = beta * (sum(sums[row] for row in better) - sum(sums[row] for row in worse) - drawn)
            value += math.log1p(math.exp(-abs(margin))) + max(0.0, -margin)
            slope = -beta / (1 + math.exp(min(margin, 700.0)))
            for row in better:
                slopes[row] += slope / len(self.pairs)
            for row in worse:
                slopes[row] -= slope / len(self.pairs)
        return value / len(self.pairs), slopes


def other_losses(
    mixture: MixedLoss, groups: Sequence[Group], roles: Sequence[str], step: int, temperature: float
) -> list[OtherLoss]:
    """Builds the losses that are added to the policy's in one update. Those of weight 0 and those without episodes are left out.

    Args:
        mixture: The losses and their weights.
        groups: All groups of the update, those of other sources too.
        roles: The roles whose calls are trained.
        step: The number of the update, from 0 on.
        temperature: The temperature at which the update's episodes were drawn.
    """
    made = []
    for loss in mixture.losses:
        calls: list[Segment] = []
        pairs: list[tuple[Sequence[int], Sequence[int], float]] = []
        if isinstance(loss, Imitation):
            name, at = loss.source, 1.0
            for episode in (episode for group in groups for episode in group.episodes if episode.origin == name):
                calls += calls_of(episode, roles)
        else:
            name, at = "preference", temperature
            for better, worse in pairs_of([group for group in groups if not group.episodes[0].origin], roles):
                first, middle = len(calls), len(calls) + len(better)
                calls += [*better, *worse]
                drawn = [math.fsum(lp for call in side for lp in call.logprobs) for side in (better, worse)]
                pairs.append((range(first, middle), range(middle, len(calls)), drawn[0] - drawn[1]))
        weight = weight_at(loss.weight, step)
        if weight and calls:
            texts = Texts([call.context for call in calls], [call.ids for call in calls])
            made.append(OtherLoss(f"loss/{name}", loss, weight, texts, pairs, at))
    return made


def calls_of(episode: Episode, roles: Sequence[str]) -> list[Segment]:
    """Returns the calls of an episode that are learned."""
    return [segment for segment in episode.segments if segment.role in roles and segment.ids]


def pairs_of(groups: Sequence[Group], roles: Sequence[str]) -> list[tuple[list[Segment], list[Segment]]]:
    """Returns the calls of the best and the worst episode of each group whose rewards differ. Episodes without log-probabilities
    do not count."""
    pairs = []
    for group in groups:
        scored = [(episode.reward, calls_of(episode, roles)) for episode in group.episodes]
        whole = [(reward, calls) for reward, calls in scored if calls and all(call.logprobs for call in calls)]
        if len({reward for reward, _ in whole}) > 1:
            pairs.append((max(whole, key=lambda pair: pair[0])[1], min(whole, key=lambda pair: pair[0])[1]))
    return pairs
