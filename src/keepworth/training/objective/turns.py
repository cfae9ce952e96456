"""Advantages of turns: each turn is compared with the turns of its cluster, in addition to or instead of comparing whole episodes
with their group."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from keepworth.training.objective.parts import Advantage, Amount, GroupStd, Share, part

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.training.objective.advantage import CreditTable
    from keepworth.training.objective.batch import EpisodeTable, Steps
    from keepworth.training.objective.parts import Scale


@part
class _Steps(Advantage):
    """Compares whole episodes with their group, and turns with the turns of their cluster. key: a field of `Steps` that is equal
    within a cluster, and below 0 for a turn that is compared with none."""

    needs = ("steps",)
    compares = True
    key: ClassVar[str]

    episode_weight: Amount
    step_weight: Amount
    discount: Share = 1.0
    scale: GroupStd | None = None

    def __post_init__(self) -> None:
        if self.episode_weight == 0 == self.step_weight:
            raise ValueError("episode_weight and step_weight are both 0: nothing is learned from")

    def tokens(self, credit: CreditTable) -> Tensor:
        whole = credit.spread(credit.compare(credit.reward, "group", self.scale))
        turns = compare_turns(credit, self.key, self.discount, self.scale)
        return self.episode_weight * whole + self.step_weight * turns


@part
class StepState(_Steps):
    """`episode_weight` * (R - mean_group R) + `step_weight` * (U - mean U over turns of the group from the same environment
    state), U = sum of `discount`^n times the rewards of the turn and those after it (GiGPO); each `scale`."""

    episodes = ("states of turns",)
    key = "state"


@part
class StepIndex(_Steps):
    """`episode_weight` * (R - mean_group R) + `step_weight` * (U - mean U over turns of the group with the same number), U = sum
    of `discount`^n times the rewards of the turn and those after it (Fine-Mem); each `scale`."""

    episodes = ("rewards of turns",)
    key = "index"


def compare_turns(credit: CreditTable, key: str, discount: float, scale: Scale | None) -> Tensor:
    """Returns [B,T]: each turn's return minus the mean of its cluster, 0 for a turn alone in its cluster.

    Args:
        credit: The rows, their turns, and the rewards of whole episodes.
        key: What a cluster is. "state": turns of one group taken from the same environment state, at any time (GiGPO, arXiv
            2505.10978). "index": turns of one group with the same index (UI-S1, arXiv 2509.11543; Fine-Mem, arXiv
            2601.08435).
        discount: How much a reward of the next turn counts, from 0 to 1.
        scale: What the difference is divided by, with its statistics over clusters; None divides by nothing.
    """
    import torch

    from keepworth.training.objective.advantage import lines_of, scale_advantage
    from keepworth.training.objective.formulas import moments

    steps, step = credit.batch.steps, credit.batch.step
    if steps is None or step is None:
        raise ValueError("credit of turns needs Batch.steps and Batch.step")
    returns = step_returns(steps, credit.table, credit.reward, discount)
    group = credit.table.group[lines_of(steps, credit.table)]
    keys: Tensor = getattr(steps, key)
    alone = -1 - torch.arange(len(keys), device=keys.device)
    places = torch.stack((group, torch.where(keys >= 0, keys, alone)))
    cluster = torch.unique(places, dim=1, return_inverse=True)[1]
    stats = moments(returns, cluster)
    turns = scale_advantage(torch.where(stats.constant, 0.0, returns - stats.mean), returns, cluster, scale)
    return torch.where(step >= 0, turns[step.clamp(min=0)], 0.0)


def step_returns(steps: Steps, table: EpisodeTable, reward: Tensor, discount: float) -> Tensor:
    """Returns [S]: U_k = sum over j >= k of discount^(j-k) r_j inside an episode.

    Args:
        steps: The turns of the batch, S in all.
        table: The episodes of the batch, E in all.
        reward: [E] The rewards of whole episodes.
        discount: How much a reward of the next turn counts; 0 gives the turn's own reward.
    """
    import torch

    from keepworth.training.objective.advantage import lines_of

    line, rewards = lines_of(steps, table), step_rewards(steps, table, reward)
    returns = torch.zeros_like(rewards)
    # The loop walks the turns from the last to the first; one episode is a handful of turns.
    following = torch.zeros(len(table.ids), dtype=torch.float64, device=rewards.device)
    for index in sorted({int(value) for value in steps.index.tolist()}, reverse=True):
        at = steps.index == index
        returns[at] = rewards[at] + discount * following[line[at]]
        following[line[at]] = returns[at]
    return returns


def step_rewards(steps: Steps, table: EpisodeTable, reward: Tensor) -> Tensor:
    """Returns [S] float64: rewards of the turns, where the last turn also gets the rest of the episode's reward. So a reward
    given for the whole episode and the same reward given at its last turn are equivalent.

    Args:
        steps: The turns of the batch, S in all, with the rewards of their own.
        table: The episodes of the batch, E in all.
        reward: [E] The rewards of whole episodes, in which those of turns are included.
    """
    import torch

    from keepworth.training.objective.advantage import lines_of

    line = lines_of(steps, table)
    given = steps.reward.to(torch.float64)
    rest = reward.clone().index_add_(0, line, -given)
    last = torch.full_like(table.of_row.new_empty(len(table.ids)), -1)
    last = last.scatter_reduce(0, line, steps.index, "amax")
    return given + torch.where(steps.index == last[line], rest[line], 0.0)
