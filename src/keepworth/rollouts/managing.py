"""Managing memory: one operation per episode, a group of samples per step, all from the same bank."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from keepworth.agents.manager import ANSWER_TOKENS, PROMPT_ID, ROLE
from keepworth.episodes.episode import Episode, Group, Shown, StopReason
from keepworth.episodes.model import FinishReason, Model, Sample, SamplingParams, Tokens
from keepworth.episodes.operation import ParseStatus
from keepworth.episodes.segment import Segment
from keepworth.rollouts.manager_reward import Consequence, Score, Step


def manager_params(model: Model, *, n: int = 1, temperature: float = 1.0, seed: int = 0) -> SamplingParams:
    """One line of at most a few tokens; the end of the line is drawn too."""
    return SamplingParams(ANSWER_TOKENS, n, temperature, seed, model.stop_ids_for("\n"))


def manage(
    model: Model, steps: Sequence[Step], params: SamplingParams, score: Score, *, label: str = ""
) -> list[Group]:
    """`params.n` episodes per step, as one group each, in the order of `steps`. `label` keeps ids apart."""
    begun = time.perf_counter()
    prompts = [model.encode(step.state.prompt) for step in steps]
    drawn = model.sample(prompts, params)
    sampled = time.perf_counter()
    groups = []
    for step, prompt, samples in zip(steps, prompts, drawn, strict=True):
        texts = [model.decode(sample.ids) for sample in samples]
        scoring = time.perf_counter()
        consequences = score(step, texts)
        seconds = {
            "sample": (sampled - begun) / (len(steps) * params.n),
            "reward": (time.perf_counter() - scoring) / params.n,
        }
        episodes = tuple(
            _episode(model, step, prompt, sample, text, consequence, params, seconds, f"{label}{step.key}#{number}")
            for number, (sample, text, consequence) in enumerate(zip(samples, texts, consequences, strict=True))
        )
        groups.append(Group(step.key, step.bank.content_hash(), episodes))
    return groups


async def manage_one(
    model: Model,
    step: Step,
    params: SamplingParams,
    judge: Callable[[Step, Sequence[str]], Awaitable[list[Consequence]]],
    draw: Callable[[Tokens, SamplingParams], Awaitable[Sample]],
    *,
    identity: str,
) -> Episode:
    """One episode as `manage` makes them, for whoever brings its own sampling (`draw`) and scoring (`judge`)."""
    prompt, version = model.encode(step.state.prompt), model.version
    begun = time.perf_counter()
    sample = await draw(prompt, params)
    sampled = time.perf_counter()
    text = model.decode(sample.ids)
    (consequence,) = await judge(step, [text])
    seconds = {"sample": sampled - begun, "reward": time.perf_counter() - sampled}
    episode = _episode(model, step, prompt, sample, text, consequence, params, seconds, identity)
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
