"""Answers a question from memory (recall, one call of the model, one answer), and measures answers to lists of questions."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from keepworth.agents.recall import Recall, Recalled
from keepworth.episodes import (
    Episode,
    FinishReason,
    Model,
    ParseStatus,
    RewardTerm,
    Sample,
    SamplingParams,
    Segment,
    StopReason,
    Task,
    VersionSpan,
)
from keepworth.episodes.episode import Shown
from keepworth.episodes.model import Tokens
from keepworth.evaluation.statistics import SCORE, MeanEstimate, estimate
from keepworth.methods.recipes._answerer import PROMPT_ID, ROLE, Style, fit, parse
from keepworth.rollouts.driver import RolloutContext, together
from keepworth.tasks.metrics import bleu1, exact_match, token_f1
from keepworth.tasks.verifiers import verifier


def of_one_call(
    role: str,
    prompt_id: str,
    prompt: Tokens,
    sample: Sample,
    temperature: float,
    text: str,
    before: str,
    after: str,
    **rest: Any,
) -> Episode:
    """Returns the episode of a single segment. before, after: content hashes of the memory; rest: fields of `Episode`."""
    segment = Segment(
        role=role,
        prompt_id=prompt_id,
        context=prompt,
        ids=sample.ids,
        logprobs=sample.logprobs,
        temperature=temperature,
        finish=sample.finish,
        spans=sample.spans,
        text=text,
        memory_before=before,
        memory_after=after,
    )
    return Episode(role=role, segments=(segment,), memory_snapshot=before, **rest)


async def answer(
    model: Model,
    task: Task,
    recall: Recall,
    context: RolloutContext,
    params: SamplingParams,
    *,
    reward: str = "token_f1",
    style: Style = Style.DIRECT,
) -> Episode:
    """Plays one episode. reward: the verifier that is trained on; the others are logged.

    Memories that do not fit the window are left out, which is noted in the episode's `errors`.
    """
    begun = time.perf_counter()
    recalled: RecalledPrompt = await context.shared("memory", asking, model, task, recall, params.max_tokens, style)
    remembered, version = time.perf_counter(), model.version
    sample = await context.sample(recalled.prompt, params)
    seconds = {"recall": remembered - begun, "sample": time.perf_counter() - remembered}
    return _episode_of(model, task, recalled, sample, params, reward, style, seconds, context.id, version)


def demonstration(
    model: Model,
    task: Task,
    recall: Recall,
    max_tokens: int,
    style: Style = Style.DIRECT,
    *,
    identity: str,
) -> Episode:
    """Returns an episode whose answer is the first of the key, for supervised training.

    Nothing was drawn, so the log-probabilities are 0 and mean nothing; the end of the line is part of the target.
    """
    recalled = asking(model, task, recall, max_tokens, style)
    ids = model.encode_continuation(f" {task.answers[0]}\n")
    sample = Sample(ids, (0.0,) * len(ids), FinishReason.STOP, (VersionSpan(model.version, 0, len(ids)),))
    params = SamplingParams(max_tokens, temperature=0.0)
    return _episode_of(model, task, recalled, sample, params, "token_f1", style, {}, identity, model.version)


@dataclass(frozen=True, slots=True)
class RecalledPrompt:
    """The memories recalled for a task, and the prompt with those that fit."""

    memory: Recalled
    prompt: Tokens
    shown: tuple[Shown, ...]


def asking(model: Model, task: Task, recall: Recall, max_tokens: int, style: Style) -> RecalledPrompt:
    memory = recall(task)
    return RecalledPrompt(memory, *fit(model, memory.shown, task.input, max_tokens, style))


def _episode_of(
    model: Model,
    task: Task,
    recalled: RecalledPrompt,
    sample: Sample,
    params: SamplingParams,
    reward: str,
    style: Style,
    seconds: dict[str, float],
    identity: str,
    version: int,
) -> Episode:
    text = model.decode(sample.ids)
    answer, status = parse(text, style)
    memory, shown = recalled.memory, recalled.shown
    left_out = len(memory.shown) - len(shown)
    rewards = tuple(
        RewardTerm(name, verifier(name)(answer, task.answers), weight=float(name == reward))
        for name in dict.fromkeys((reward, "token_f1", "exact_match"))
    )
    stop = StopReason.PARSE_ERROR if status is ParseStatus.INVALID else StopReason.COMPLETED
    return of_one_call(
        ROLE,
        PROMPT_ID[style],
        recalled.prompt,
        sample,
        params.temperature,
        text,
        memory.snapshot,
        memory.snapshot,
        id=identity,
        task=task.key,
        question=task.input,
        answer=answer,
        expected=task.answers,
        rewards=rewards,
        stop=StopReason.MAX_TOKENS if sample.finish is FinishReason.LENGTH else stop,
        policy_version=version,
        shown=shown,
        decisions=memory.decisions,
        errors=(f"{left_out} memories did not fit the model's window",) if left_out else (),
        seconds=seconds,
    )


# Measures.


METRICS = {"f1": token_f1, "em": exact_match, "bleu1": bleu1}


@dataclass(frozen=True, slots=True)
class Answers:
    """The results of one arm: episodes in the order of the tasks, and for each metric one value per task."""

    episodes: tuple[Episode, ...]
    values: Mapping[str, tuple[float, ...]]

    def estimate(self, metric: str = "f1") -> MeanEstimate:
        return estimate(self.values[metric], within=SCORE)


def answers(
    model: Model, tasks: Sequence[Task], recall: Recall, max_tokens: int, style: Style = Style.DIRECT, label: str = ""
) -> Answers:
    """Answers every task greedily and scores it. Raises ValueError without tasks."""
    if not tasks:
        raise ValueError("answers: there are no tasks to measure on")
    params = SamplingParams(max_tokens, temperature=0.0, stop_ids=model.stop_ids_for("\n"))

    async def rollout(task: Task, context: RolloutContext) -> Episode:
        return await answer(model, task, recall, context, params, style=style)

    episodes = tuple(group.episodes[0] for group in together(model, tasks, rollout, label=label))
    values = {name: tuple(metric(e.answer, e.expected) for e in episodes) for name, metric in METRICS.items()}
    return Answers(episodes, values)


def rows(arm: str, answers: Answers, metrics: Sequence[str] = ("f1", "em"), **more: object) -> list[dict[str, object]]:
    """Returns table rows: the mean of each metric with its 95 % interval over questions."""
    result = []
    for metric in metrics:
        e = answers.estimate(metric)
        result.append({"arm": arm, "metric": metric, "mean": e.mean, "low": e.low, "high": e.high, "n": e.n, **more})
    return result
