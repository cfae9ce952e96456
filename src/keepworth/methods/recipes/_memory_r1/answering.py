"""Answers a question from memory (recall, one call of the model, one answer), and measures answers to lists of questions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from keepworth.base.metrics import exact_match, token_f1
from keepworth.base.statistics import SCORE, estimate
from keepworth.records import (
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
from keepworth.records.episode import Shown
from keepworth.records.model import Tokens
from keepworth.worlds.answerer import PROMPT_ID, ROLE, Style, fit, parse
from keepworth.worlds.driver import RolloutContext, together
from keepworth.worlds.recall import Recall, Recalled
from keepworth.worlds.verifiers import verifier


def of_one_call(call: Segment, **rest: Any) -> Episode:
    """Returns the episode of a single call. rest: fields of `Episode`."""
    return Episode(role=call.role, segments=(call,), memory_snapshot=call.memory_before, **rest)


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
    asked: AskedMemory = await context.shared("memory", asking, model, task, recall, params.max_tokens, style)
    remembered, version = time.perf_counter(), model.version
    sample = await context.sample(asked.prompt, params)
    seconds = {"recall": remembered - begun, "sample": time.perf_counter() - remembered}
    return asked.episode(
        model, sample, params.temperature, reward, id=context.id, policy_version=version, seconds=seconds
    )


def demonstration(
    model: Model, task: Task, recall: Recall, max_tokens: int, style: Style = Style.DIRECT, *, identity: str
) -> Episode:
    """Returns an episode whose answer is the first of the key, for supervised training.

    Nothing was drawn, so the log-probabilities are 0 and mean nothing; the end of the line is part of the target.
    """
    asked = asking(model, task, recall, max_tokens, style)
    ids = model.encode_continuation(f" {task.answers[0]}\n")
    sample = Sample(ids, (0.0,) * len(ids), FinishReason.STOP, (VersionSpan(model.version, 0, len(ids)),))
    return asked.episode(model, sample, 0.0, "token_f1", id=identity, policy_version=model.version)


@dataclass(frozen=True, slots=True)
class AskedMemory:
    """A task, the memories recalled for it, and the prompt with those that fit."""

    task: Task
    style: Style
    memory: Recalled
    prompt: Tokens
    shown: tuple[Shown, ...]

    def episode(self, model: Model, sample: Sample, temperature: float, reward: str, **rest: Any) -> Episode:
        """Returns the episode of one answer. rest: other fields of `Episode`."""
        task, text = self.task, model.decode(sample.ids)
        answer, status = parse(text, self.style)
        left_out = len(self.memory.shown) - len(self.shown)
        rewards = tuple(
            RewardTerm(name, verifier(name)(answer, task.answers), weight=float(name == reward))
            for name in dict.fromkeys((reward, "token_f1", "exact_match"))
        )
        stop = StopReason.PARSE_ERROR if status is ParseStatus.INVALID else StopReason.COMPLETED
        before = after = self.memory.snapshot
        prompt_id = PROMPT_ID[self.style]
        return of_one_call(
            Segment.of(
                sample, ROLE, prompt_id, self.prompt, text, temperature, memory_before=before, memory_after=after
            ),
            task=task.key,
            question=task.input,
            answer=answer,
            expected=task.answers,
            rewards=rewards,
            stop=StopReason.MAX_TOKENS if sample.finish is FinishReason.LENGTH else stop,
            shown=self.shown,
            decisions=self.memory.decisions,
            errors=(f"{left_out} memories did not fit the model's window",) if left_out else (),
            **rest,
        )


def asking(model: Model, task: Task, recall: Recall, max_tokens: int, style: Style) -> AskedMemory:
    memory = recall(task)
    return AskedMemory(task, style, memory, *fit(model, memory.shown, task.input, max_tokens, style))


def answers(
    model: Model, tasks: Sequence[Task], recall: Recall, max_tokens: int, style: Style, label: str
) -> list[Episode]:
    """Answers every task greedily."""
    params = SamplingParams(max_tokens, temperature=0.0, stop_ids=model.stop_ids_for("\n"))

    async def rollout(task: Task, context: RolloutContext) -> Episode:
        return await answer(model, task, recall, context, params, style=style)

    return [group.episodes[0] for group in together(model, tasks, rollout, label=label)]


def rows(arm: str, episodes: Sequence[Episode]) -> list[dict[str, object]]:
    """Returns table rows: the mean of each metric with its 95 % interval over questions."""
    made: list[dict[str, object]] = []
    for name, metric in (("f1", token_f1), ("em", exact_match)):
        mean = estimate([metric(episode.answer, episode.expected) for episode in episodes], within=SCORE)
        made.append({"arm": arm, "metric": name, **asdict(mean)})
    return made
