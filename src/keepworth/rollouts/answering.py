"""Answering tasks from memory: one model call per episode, a group of samples per task."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from keepworth.agents.answerer import PROMPT_ID, ROLE, Style, fit, parse
from keepworth.agents.recall import Recall, Recalled
from keepworth.episodes.episode import Episode, Group, Shown, StopReason
from keepworth.episodes.model import FinishReason, Model, Sample, SamplingParams, Tokens, VersionSpan
from keepworth.episodes.operation import ParseStatus
from keepworth.episodes.reward import RewardTerm
from keepworth.episodes.segment import Segment
from keepworth.episodes.task import Task
from keepworth.tasks.verifiers import verifier


def answer(
    model: Model,
    tasks: Sequence[Task],
    recall: Recall,
    params: SamplingParams,
    *,
    reward: str = "token_f1",
    style: Style = Style.DIRECT,
    label: str = "",
) -> list[Group]:
    """`params.n` episodes per task, as one group each. reward: the verifier that is trained on; the others are logged.

    Memories that do not fit the window are left out, which the episode says in `errors`; `label` keeps ids apart.
    """
    begun = time.perf_counter()
    recalled = [recall(task) for task in tasks]
    fitted = [
        fit(model, memory.shown, task.input, params.max_tokens, style)
        for task, memory in zip(tasks, recalled, strict=True)
    ]
    remembered = time.perf_counter()
    drawn = model.sample([prompt for prompt, _ in fitted], params)
    sampled = time.perf_counter()
    share = max(1, len(tasks) * params.n)
    seconds = {"recall": (remembered - begun) / share, "sample": (sampled - remembered) / share}
    groups = []
    for task, memory, (prompt, shown), samples in zip(tasks, recalled, fitted, drawn, strict=True):
        episodes = tuple(
            _episode(
                model, task, memory, prompt, shown, sample, params, reward, style, seconds, f"{label}{task.key}#{j}"
            )
            for j, sample in enumerate(samples)
        )
        groups.append(Group(task.key, memory.snapshot, episodes))
    return groups


async def answer_one(
    model: Model,
    task: Task,
    recall: Recall,
    params: SamplingParams,
    draw: Callable[[Tokens, SamplingParams], Awaitable[Sample]],
    *,
    identity: str,
    reward: str = "token_f1",
    style: Style = Style.DIRECT,
) -> Episode:
    """One episode as `answer` makes them, for whoever brings its own sampling (`draw`)."""
    begun = time.perf_counter()
    memory = recall(task)
    prompt, shown = fit(model, memory.shown, task.input, params.max_tokens, style)
    remembered = time.perf_counter()
    version = model.version
    sample = await draw(prompt, params)
    seconds = {"recall": remembered - begun, "sample": time.perf_counter() - remembered}
    episode = _episode(model, task, memory, prompt, shown, sample, params, reward, style, seconds, identity)
    return replace(episode, policy_version=version)


def demonstrations(
    model: Model, tasks: Sequence[Task], recall: Recall, max_tokens: int, style: Style = Style.DIRECT, label: str = ""
) -> list[Group]:
    """One episode per task that gives the first answer of the key: what supervised training imitates.

    Nothing was drawn, so the log-probabilities are 0 and mean nothing; the end of the line is part of what is taught.
    """
    params = SamplingParams(max_tokens, temperature=0.0)
    groups = []
    for task in tasks:
        memory = recall(task)
        prompt, shown = fit(model, memory.shown, task.input, max_tokens, style)
        ids = model.encode_continuation(f" {task.answers[0]}\n")
        sample = Sample(ids, (0.0,) * len(ids), FinishReason.STOP, (VersionSpan(model.version, 0, len(ids)),))
        episode = _episode(
            model, task, memory, prompt, shown, sample, params, "token_f1", style, {}, f"{label}{task.key}"
        )
        groups.append(Group(task.key, memory.snapshot, (episode,)))
    return groups


def _episode(
    model: Model,
    task: Task,
    memory: Recalled,
    prompt: Tokens,
    shown: tuple[Shown, ...],
    sample: Sample,
    params: SamplingParams,
    reward: str,
    style: Style,
    seconds: dict[str, float],
    identity: str,
) -> Episode:
    text = model.decode(sample.ids)
    said, status = parse(text, style)
    left_out = len(memory.shown) - len(shown)
    rewards = tuple(
        RewardTerm(name, verifier(name)(said, task.answers), weight=float(name == reward))
        for name in dict.fromkeys((reward, "token_f1", "exact_match"))
    )
    segment = Segment(
        role=ROLE,
        prompt_id=PROMPT_ID[style],
        context=prompt,
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
