"""Managing memory: one operation per episode; all members of a group act on the same bank."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

from keepworth.agents.manager import ANSWER_TOKENS, PROMPT_ID, ROLE
from keepworth.episodes.episode import Episode, Shown, StopReason
from keepworth.episodes.model import FinishReason, Model, Sample, SamplingParams, Tokens
from keepworth.episodes.operation import ParseStatus
from keepworth.episodes.segment import Segment
from keepworth.rollouts.context import RolloutContext
from keepworth.rollouts.manager_reward import Consequence, Step


def manager_params(model: Model, *, n: int = 1, temperature: float = 1.0, seed: int = 0) -> SamplingParams:
    """One line of at most a few tokens; the end of the line is drawn too."""
    return SamplingParams(ANSWER_TOKENS, n, temperature, seed, model.stop_ids_for("\n"))


Judge = Callable[[str], Awaitable[Consequence]]
"""What a member's text leads to."""


async def manage(model: Model, step: Step, context: RolloutContext, params: SamplingParams, judge: Judge) -> Episode:
    """One episode: an operation on the step's bank, and what it was worth."""
    prompt, version = model.encode(step.state.prompt), model.version
    begun = time.perf_counter()
    sample = await context.sample(prompt, params)
    sampled = time.perf_counter()
    text = model.decode(sample.ids)
    consequence = await judge(text)
    seconds = {"sample": sampled - begun, "reward": time.perf_counter() - sampled}
    episode = _episode(model, step, prompt, sample, text, consequence, params, seconds, context.id)
    return replace(episode, policy_version=version)


def _episode(
    model: Model,
    step: Step,
    prompt: Tokens,
    sample: Sample,
    text: str,
    consequence: Consequence,
    params: SamplingParams,
    seconds: dict[str, float],
    identity: str,
) -> Episode:
    before = step.bank.content_hash()
    segment = Segment(
        role=ROLE,
        prompt_id=PROMPT_ID,
        context=prompt,
        ids=sample.ids,
        logprobs=sample.logprobs,
        temperature=params.temperature,
        finish=sample.finish,
        spans=sample.spans,
        text=text,
        memory_before=before,
        memory_after=consequence.memory_after,
    )
    expected = (step.gold,) if step.gold else tuple(question.answers[0] for question in step.questions)
    return Episode(
        id=identity,
        task=step.key,
        role=ROLE,
        question="\n".join((step.state.fact, *(question.question for question in step.questions))),
        segments=(segment,),
        answer=" | ".join(consequence.answers) or text.strip(),
        expected=expected,
        rewards=consequence.terms,
        stop=_stop(sample, consequence.event.status),
        memory_snapshot=before,
        policy_version=model.version,
        shown=tuple(
            Shown(identifier, 0.0, memory)
            for identifier, memory in zip(step.state.ids, step.state.memories, strict=True)
        ),
        operations=(consequence.event,),
        seconds=seconds,
    )


def _stop(sample: Sample, status: ParseStatus) -> StopReason:
    if status is ParseStatus.INVALID:
        return StopReason.PARSE_ERROR
    return StopReason.MAX_TOKENS if sample.finish is FinishReason.LENGTH else StopReason.COMPLETED
