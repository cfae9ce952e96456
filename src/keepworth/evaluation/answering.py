"""How well questions are answered from memory, arm by arm: the same questions, another memory or another model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from keepworth.agents.answerer import Style
from keepworth.agents.recall import Recall
from keepworth.episodes.episode import Episode
from keepworth.episodes.model import Model, SamplingParams
from keepworth.episodes.task import Task
from keepworth.evaluation.manager import Estimate, estimate
from keepworth.rollouts.answering import answer
from keepworth.rollouts.batching import together
from keepworth.rollouts.context import RolloutContext
from keepworth.tasks.metrics import bleu1, exact_match, token_f1

METRICS = {"f1": token_f1, "em": exact_match, "bleu1": bleu1}


@dataclass(frozen=True, slots=True)
class Answers:
    """One arm on one list of tasks: episodes in the order of the tasks, and per metric one value per task."""

    episodes: tuple[Episode, ...]
    values: Mapping[str, tuple[float, ...]]

    def estimate(self, metric: str = "f1") -> Estimate:
        return estimate(self.values[metric])


def answers(
    model: Model, tasks: Sequence[Task], recall: Recall, max_tokens: int, style: Style = Style.DIRECT, label: str = ""
) -> Answers:
    """Greedy answers to every task, scored. Raises ValueError without tasks."""
    if not tasks:
        raise ValueError("answers: there are no tasks to measure on")
    params = SamplingParams(max_tokens, temperature=0.0, stop_ids=model.stop_ids_for("\n"))

    async def rollout(task: Task, context: RolloutContext) -> Episode:
        return await answer(model, task, recall, context, params, style=style)

    episodes = tuple(group.episodes[0] for group in together(model, tasks, rollout, label=label))
    values = {name: tuple(metric(e.answer, e.expected) for e in episodes) for name, metric in METRICS.items()}
    return Answers(episodes, values)


def rows(arm: str, answers: Answers, metrics: Sequence[str] = ("f1", "em"), **more: object) -> list[dict[str, object]]:
    """Table rows: the mean of each metric with its 95 % bootstrap interval over questions."""
    result = []
    for metric in metrics:
        e = answers.estimate(metric)
        result.append({"arm": arm, "metric": metric, "mean": e.mean, "low": e.low, "high": e.high, "n": e.n, **more})
    return result
