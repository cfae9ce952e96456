"""Answering tasks from memory: one model call per episode."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from keepworth.agents.answerer import PROMPT_ID, ROLE, Style, fit, parse
from keepworth.agents.recall import Recall, Recalled
from keepworth.episodes.episode import Episode, ParseStatus, RewardTerm, Segment, Shown, StopReason, Task
from keepworth.episodes.model import FinishReason, Model, Sample, SamplingParams, Tokens, VersionSpan
from keepworth.rollouts.driver import RolloutContext
from keepworth.tasks.verifiers import verifier


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
    """One episode. reward: the verifier that is trained on; the others are logged.

    Memories that do not fit the window are left out, which the episode says in `errors`."""
    begun = time.perf_counter()
    asked: RecalledPrompt = await context.shared("memory", asking, model, task, recall, params.max_tokens, style)
    remembered, version = time.perf_counter(), model.version
    sample = await context.sample(asked.prompt, params)
    seconds = {"recall": remembered - begun, "sample": time.perf_counter() - remembered}
    episode = _episode(model, task, asked, sample, params, reward, style, seconds, context.id)
    return replace(episode, policy_version=version)


def demonstration(
    model: Model, task: Task, recall: Recall, max_tokens: int, style: Style = Style.DIRECT, *, identity: str
) -> Episode:
    """An episode that gives the first answer of the key: what supervised training imitates.

    Nothing was drawn, so the log-probabilities are 0 and mean nothing; the end of the line is part of what is taught.
    """
    asked = asking(model, task, recall, max_tokens, style)
    ids = model.encode_continuation(f" {task.answers[0]}\n")
    sample = Sample(ids, (0.0,) * len(ids), FinishReason.STOP, (VersionSpan(model.version, 0, len(ids)),))
    params = SamplingParams(max_tokens, temperature=0.0)
    return _episode(model, task, asked, sample, params, "token_f1", style, {}, identity)


@dataclass(frozen=True, slots=True)
class RecalledPrompt:
    """What was recalled for a task, and the prompt with as much of it as fits."""

    memory: Recalled
    prompt: Tokens
    shown: tuple[Shown, ...]


def asking(model: Model, task: Task, recall: Recall, max_tokens: int, style: Style) -> RecalledPrompt:
    memory = recall(task)
    return RecalledPrompt(memory, *fit(model, memory.shown, task.input, max_tokens, style))


def _episode(
    model: Model,
    task: Task,
    asked: RecalledPrompt,
    sample: Sample,
    params: SamplingParams,
    reward: str,
    style: Style,
    seconds: dict[str, float],
    identity: str,
) -> Episode:
    text = model.decode(sample.ids)
    said, status = parse(text, style)
    memory, shown = asked.memory, asked.shown
    left_out = len(memory.shown) - len(shown)
    rewards = tuple(
        RewardTerm(name, verifier(name)(said, task.answers), weight=float(name == reward))
        for name in dict.fromkeys((reward, "token_f1", "exact_match"))
    )
    segment = Segment(
        role=ROLE,
        prompt_id=PROMPT_ID[style],
        context=asked.prompt,
        ids=sample.ids,
        logprobs=sample.logprobs,
        temperature=params.temperature,
        finish=sample.finish,
        spans=sample.spans,
        text=text,
        memory_before=memory.snapshot,
        memory_after=memory.snapshot,
    )
    return Episode(
        id=identity,
        task=task.key,
        role=ROLE,
        question=task.input,
        segments=(segment,),
        answer=said,
        expected=task.answers,
        rewards=rewards,
        stop=_stop(sample, status),
        memory_snapshot=memory.snapshot,
        policy_version=model.version,
        shown=shown,
        decisions=memory.decisions,
        errors=(f"{left_out} memories did not fit the model's window",) if left_out else (),
        seconds=seconds,
    )


def _stop(sample: Sample, status: ParseStatus) -> StopReason:
    if sample.finish is FinishReason.LENGTH:
        return StopReason.MAX_TOKENS
    return StopReason.PARSE_ERROR if status is ParseStatus.INVALID else StopReason.COMPLETED
