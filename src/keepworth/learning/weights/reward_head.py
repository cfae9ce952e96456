"""A reward that is learned: a head on the policy's own base, taught by which of two answers is better.

    head = RewardHead(model)
    head.prefer([(better, worse), ...])          # one step
    learner.update(head.rewarded(groups))        # its score, as a reward term of each episode

Source: Deep reinforcement learning from human preferences, arXiv 1706.03741 (the Bradley-Terry loss); one base with an
adapter per role: Efficient RLHF (Hydra-PPO), arXiv 2309.00754.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from keepworth.episodes.extras import needs_train

import torch
from torch.nn.functional import logsigmoid

from keepworth.episodes.episode import Group
from keepworth.episodes.model import Tokens
from keepworth.episodes.reward import RewardTerm
from keepworth.learning.weights.master_weights import MasterWeights
from keepworth.learning.weights.role_head import RoleHead
from keepworth.models.attention import micro_batches, round_up
from keepworth.models.inprocess import InProcessModel

ADAPTER = "reward"


@dataclass(frozen=True, slots=True)
class RewardSettings:
    """learning_rate of head and adapter; rank of the adapter (scaled by 2 * rank)."""

    learning_rate: float = 1e-3
    rank: int = 8
    max_norm: float = 1.0
    seed: int = 0


class RewardHead:
    """Scores of whole texts, 0 everywhere at first. Called where the learner is, between its updates: `rewarded` as an
    `after_group` hook, or on what a collector gave."""

    def __init__(self, model: InProcessModel, settings: RewardSettings | None = None) -> None:
        self.model = model
        self.settings = settings or RewardSettings()
        self._head = RoleHead(model, ADAPTER, self.settings.rank, self.settings.seed)
        self.master_weights = MasterWeights(
            self._head.named, self.settings.learning_rate, max_norm=self.settings.max_norm
        )

    @torch.no_grad()
    def scores(self, texts: Sequence[Tokens]) -> list[float]:
        """One number for each text (prompt and answer, as token ids), read at its last token."""
        found = [0.0] * len(texts)
        for chosen in micro_batches(texts, [[] for _ in texts], self.model.token_budget):
            for index, score in zip(chosen, self._scores([texts[i] for i in chosen]).tolist(), strict=True):
                found[index] = score
        return found

    def prefer(self, pairs: Sequence[tuple[Tokens, Tokens]]) -> dict[str, float]:
        """One step towards ranking each pair's first text above its second. Raises ValueError without a pair."""
        if not pairs:
            raise ValueError("there is no pair to learn from")
        loss = right = 0.0
        # Pairs stay together; a micro-batch is of pairs.
        for chosen in micro_batches(
            [a if len(a) > len(b) else b for a, b in pairs], [[] for _ in pairs], self.model.token_budget // 2
        ):
            better = self._scores([pairs[i][0] for i in chosen])
            worse = self._scores([pairs[i][1] for i in chosen])
            scalar = -logsigmoid(better - worse).sum() / len(pairs)
            scalar.backward()  # type: ignore[no-untyped-call]
            loss += float(scalar.detach())
            right += float((better > worse).sum())
        return {"loss": loss, "accuracy": right / len(pairs), "gradient_norm": self.master_weights.step()}

    def rewarded(self, groups: Sequence[Group], name: str = "learned", weight: float = 1.0) -> list[Group]:
        """The groups with a reward term more: the score of each episode's last call, context and answer."""
        texts = [(*e.segments[-1].context, *e.segments[-1].ids) for group in groups for e in group.episodes]
        scores = iter(self.scores(texts))
        return [
            replace(
                group,
                episodes=tuple(
                    replace(each, rewards=(*each.rewards, RewardTerm(name, next(scores), weight)))
                    for each in group.episodes
                ),
            )
            for group in groups
        ]

    def state(self) -> dict[str, Any]:
        return self.master_weights.state()

    def load(self, state: Mapping[str, Any]) -> None:
        self.master_weights.load(dict(state))

    def _scores(self, texts: Sequence[Tokens]) -> torch.Tensor:
        for number, text in enumerate(texts):
            if not text:
                raise ValueError(f"text {number} is empty: there is nothing to score")
        width = round_up(max(map(len, texts)), 16)
        ids = torch.zeros(len(texts), width, dtype=torch.long)
        for row, text in enumerate(texts):
            ids[row, : len(text)] = torch.tensor(text)
        hidden = self._head.hidden(ids, torch.arange(width).expand(len(texts), -1), None)
        return self._head(hidden[torch.arange(len(texts)), torch.tensor([len(text) - 1 for text in texts])])
