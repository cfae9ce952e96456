"""A*-PO: estimates the optimal value first, then regresses the log-ratio on the advantage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from keepworth.records.episode import Group
from keepworth.training.collect.curriculum import CANDIDATES, SPAN, draw_seed
from keepworth.training.collect.sources import Source
from keepworth.training.objective.options import Objective
from keepworth.training.objective.parts import Advantage, Positive, Surrogate, part
from keepworth.training.objective.presets import Citation, preset_method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.training.learner import Learner
    from keepworth.training.objective.advantage import CreditTable
    from keepworth.training.objective.batch import Batch
    from keepworth.training.objective.policy_loss import Denominators
    from keepworth.training.rows import Rows
    from keepworth.training.run import RecipeEpisodes


@part
class SoftValue(Advantage):
    """R - V*, V* = `temperature` log mean exp(R / `temperature`) over samples of the reference (A*-PO)."""

    needs = ("soft_value",)

    temperature: Positive

    def tokens(self, credit: CreditTable) -> Tensor:
        value = credit.table.first(credit.batch.require("soft_value", self))
        return credit.spread(credit.reward - value.to(credit.reward.dtype))

    def sources(self, learner: Learner, episodes: RecipeEpisodes, group_size: int, seed: int) -> tuple[Source, ...]:
        return (ValuedTasks(learner, episodes, group_size, seed),)

    def measure(self, learner: Learner, rows: Rows, temperature: float) -> dict[str, Any]:
        """Returns the value of each row's task under the reference."""
        values = learner.soft_values or {}
        return {"soft_value": learner.shares.first(lambda: soft_values_of(rows, values, learner.objective.name))}


@part
class Regression(Surrogate):
    """(`coefficient` * sum_t (lp - lp_reference) - A)^2 (A*-PO).

    It replaces the surrogate by a loss on whole episodes."""

    needs = ("lp_reference",)
    clips = False
    regresses = True

    coefficient: Positive

    def whole(self, lp: Tensor, advantages: Tensor, batch: Batch, denominators: Denominators) -> Tensor:
        """Returns the mean over episodes of (beta * sum over drawn tokens of (lp - lp_reference) - (R - V*))^2.

        advantages [B,T] hold R - V* on every drawn token of an episode. The loss is on the summed log-ratio, so its scale grows
        with length. At pi = reference * exp((R - V*) / beta) it is zero.
        Source: Accelerating RL for LLM Reasoning with Optimal Advantage Regression (A*-PO), arXiv 2505.20686.
        """
        import torch

        from keepworth.training.objective.policy_loss import unit_of

        beta, reference = self.coefficient, batch.require("lp_reference", self).to(lp.dtype)
        mask = (batch.mask > 0).to(lp.dtype)
        keep = mask if batch.keep is None else mask * (batch.keep > 0)
        unit = unit_of(batch, "episode")
        count = int(unit.max()) + 1 if len(unit) else 0
        zeros = torch.zeros(count, dtype=lp.dtype, device=lp.device)
        log_ratio = zeros.index_add(0, unit, torch.where(keep > 0, lp - reference, 0.0).sum(1))
        tokens = zeros.index_add(0, unit, keep.sum(1))
        gain = zeros.index_add(0, unit, (advantages * keep).sum(1)) / tokens.clamp(min=1)
        error = torch.where(tokens > 0, beta * log_ratio - gain, 0.0)
        return (error**2).sum() / denominators.units.sum().clamp(min=1).to(lp.dtype)


def soft_value(rewards: Tensor, temperature: float) -> Tensor:
    """Returns V* = temperature log mean exp(R / temperature) over the last axis, from samples of the reference.

    Source: Accelerating RL for LLM Reasoning with Optimal Advantage Regression (A*-PO), arXiv 2505.20686. It lies between mean
    and maximum; the reference that gave the samples must be the one in the regression's log-ratio.
    """
    import torch

    count = torch.tensor(rewards.shape[-1], dtype=torch.float64)
    log_mean = torch.logsumexp(rewards.to(torch.float64) / temperature, -1) - torch.log(count)
    return (temperature * log_mean).to(rewards.dtype)


def soft_values_of(rows: Rows, values: Mapping[str, float], name: str) -> Tensor:
    """Returns [B] float64: the value of each row's task under the reference. Raises BadEpisode for a task without one.

    Args:
        rows: The rows of the update.
        values: The value of each task, by its key.
        name: The objective's name, for the message.
    """
    import torch

    from keepworth.training.rows import BadEpisode

    for task in rows.tasks:
        if task not in values:
            raise BadEpisode(
                f"Objective {name!r} needs the value of task {task!r} under the reference, which was not measured.",
                "Sample about 8 answers of each task before training and hand "
                "keepworth.methods.objectives.a_star_po.reference_values(groups, objective) to the learner.",
            )
    return torch.tensor([values[task] for task in rows.tasks], dtype=torch.float64)


def reference_values(groups: Sequence[Group], objective: Objective) -> dict[str, float]:
    """Returns V* of each task from groups that the reference sampled (about 8 answers each), for a `SoftValue`.

    Source: A*-PO, arXiv 2505.20686.
    """
    import torch

    if not isinstance(objective.advantage, SoftValue):
        raise ValueError(f"objective {objective.name!r} has no SoftValue: it reads no values of tasks")
    temperature = objective.advantage.temperature
    values = {}
    for group in groups:
        rewards = torch.tensor([episode.reward for episode in group.episodes], dtype=torch.float64)
        values[group.task] = float(soft_value(rewards, temperature))
    return values


VALUED = 1000
"""Offset of the retry number in the seeds of draws that measure values, so that they differ from the draws of training."""


class ValuedTasks(Source):
    """Measures a task's value when a group of it is first to be trained on, for an objective that reads values of tasks: from as
    many answers of the reference as a group has. The values stay in the learner's checkpoints."""

    name, replays = "values of tasks", False

    def __init__(self, learner: Learner, episodes: RecipeEpisodes, group_size: int, seed: int) -> None:
        self._learner, self._episodes, self._size, self._seed = learner, episodes, group_size, seed

    def review(self, groups: list[Group], step: int) -> list[Group]:
        from keepworth.training.collect.groups import has_failed
        from keepworth.worlds.driver import together

        values, reference = self._learner.soft_values, self._learner.reference
        assert values is not None
        assert reference is not None
        indices = {group.task: int(group.episodes[0].id.split("/")[0]) for group in groups}
        new = [index for task, index in indices.items() if task not in values]
        if new:
            tasks = [self._episodes.task(index) for index in new]
            seed = draw_seed(self._seed, step, VALUED * CANDIDATES * SPAN)
            rollout = self._episodes.rollout
            with reference.active():
                made = together(self._learner.model, tasks, rollout, n=self._size, seed=seed, indices=new)
            whole = [(group, tuple(episode for episode in group.episodes if not has_failed(episode))) for group in made]
            measured = [replace(group, episodes=good) for group, good in whole if len(good) > 1]
            values.update(reference_values(measured, self._learner.objective))
        return [group for group in groups if group.task in values]


METHOD = preset_method(
    "A*-PO",
    "Estimates the optimal value first, then regresses the log-ratio on the advantage",
    Objective(
        name="a_star_po",
        advantage=SoftValue(0.5),
        surrogate=Regression(1e-3),
        aggregation="seq-mean-token-sum",
    ),
    Citation(
        "Accelerating RL for LLM Reasoning with Optimal Advantage Regression",
        "2505.20686",
        "code",
        note="One online sample a task is enough. Summed log-ratios: the loss grows with length.",
        needs="Batch.soft_value, from soft_value(rewards of about 8 reference samples a task, temperature)",
    ),
    claim="It takes up to half the time and over 30 % less memory than PPO and GRPO at equal or better accuracy.",
)
