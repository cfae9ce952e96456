"""The rollout of writing into a bounded bank: the model answers turn by turn, the bank executes it, and at the end a frozen
reader answers the question from the bank."""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections.abc import Callable, Sequence

from keepworth.methods.recipes._bank.bounded_bank import BankEntry
from keepworth.methods.recipes._bank.course import ROLE, WritingCourse, prompts_of, task_of
from keepworth.methods.recipes._bank.parted import CallOutcome, ChunkTurn
from keepworth.methods.recipes._bank.reading import BankAnswer, Read
from keepworth.records.episode import (
    Decision,
    DecisionKind,
    Episode,
    MemoryEvent,
    Operation,
    OperationKind,
    ParseStatus,
    RewardTerm,
    Segment,
    Shown,
    StopReason,
)
from keepworth.records.model import Model, Sample, SamplingParams, Tokens
from keepworth.worlds.driver import RolloutContext
from keepworth.worlds.fact_streams import FactStream


def state_of(entries: Sequence[BankEntry], arrived: int = 0) -> str:
    """Returns a hash of a bank's entries and of the number of arrived facts: equal for equal states."""
    content = [(entry.number, entry.text, entry.matters, entry.pinned, entry.part) for entry in entries]
    return hashlib.sha256(repr((arrived, content)).encode()).hexdigest()[:16]


Earned = Callable[[WritingCourse, BankAnswer], Sequence[RewardTerm]]
"""Returns an episode's reward terms besides the answer's, which has weight 1 and the name `answer`. A term of that name replaces
it."""


async def write_stream(
    model: Model,
    stream: FactStream,
    course: WritingCourse,
    context: RolloutContext,
    read: Read,
    earned: Earned = lambda course, answered: (),
    *,
    max_tokens: int,
    prompt_id: str,
    again: tuple[Episode, int] | None = None,
    temperature: float = 1.0,
    scorer: str = "",
    seconds: float | None = None,
) -> Episode:
    """Plays one episode: a segment for each turn, a decision and an operation for each call, then one reading.

    Its `shown` are the reader's entries, by the ids that the decisions chose.

    Args:
        course: The course of the stream, at its beginning.
        read: Called once for all members of the group.
        max_tokens: Limit of a response.
        again: For a `DigitWriting`: an episode and the number of its only segment to resample; all other responses are copied. So
            re-rolls of one segment differ in that one write alone.
        scorer: The name of what judged the answer.
        seconds: Time limit of the reader.
    """
    stops = model.stop_ids_for(course.stop) if course.stop else frozenset[int]()
    params = SamplingParams(max_tokens, temperature=temperature, stop_ids=stops)
    begun, version, task = time.perf_counter(), model.version, task_of(stream)
    calls: list[tuple[Tokens, Sample, ChunkTurn, str]] = []
    while prompts := prompts_of(model, course, max_tokens):
        first = len(course.turns)
        drawn = range(first, first + len(prompts)) if again is None else (again[1],)
        replies = await asyncio.gather(*(context.sample(prompts[number - first], params) for number in drawn))
        samples = dict(zip(drawn, replies, strict=True))
        for number, prompt in enumerate(prompts, start=first):
            if number in samples:
                text = model.decode(samples[number].ids)
                calls.append((prompt, samples[number], course.act(text), text))
            elif again is not None:
                course.act(again[0].segments[number].text)
    sampled = time.perf_counter()
    answered = await context.with_group("read", read, (stream, tuple(fact.text for fact in course.shown)), seconds)
    terms = list(earned(course, answered))
    if all(term.name != "answer" for term in terms):
        terms.insert(0, RewardTerm("answer", answered.score, scorer=scorer))
    # Marks of evidence are logged and never learned from: shaping of weight 0 enters neither reward nor metric.
    terms.append(RewardTerm("evidence_kept", stream.evidence_kept(course.stored), weight=0.0, shaping=True))
    segments = tuple(
        Segment.of(
            sample,
            ROLE,
            prompt_id,
            prompt,
            text,
            temperature,
            memory_before=state_of(turn.before, turn.arrived[0]),
            memory_after=state_of(turn.after, turn.arrived[1]),
            state=course.state,
        )
        for prompt, sample, turn, text in calls
    )
    writes = [(index, sample, call) for index, (_, sample, turn, _) in enumerate(calls) for call in turn.calls]
    return Episode(
        id=context.id,
        task=task.key,
        role=ROLE,
        question=task.input,
        segments=segments,
        answer=answered.answer,
        expected=task.answers,
        rewards=tuple(terms),
        stop=StopReason.COMPLETED,
        memory_snapshot=segments[0].memory_before,
        policy_version=version,
        shown=tuple(Shown(item_of(fact.number), fact.matters, fact.text) for fact in course.shown),
        decisions=tuple(
            Decision(
                f"{context.id}/{number}",
                DecisionKind.WRITE if call.outcome == "kept" else DecisionKind.NOOP,
                call.fact,
                (),
                (item_of(call.number),) if call.outcome == "kept" else (),
                min(1.0, math.exp(sum(sample.logprobs))),
                f"{model.name}@{version}",
                index,
            )
            for number, (index, sample, call) in enumerate(writes, start=0 if again is None else again[1])
        ),
        operations=tuple(_event(call) for _, _, call in writes),
        errors=(f"the reader failed, which counts as an empty answer: {answered.failed}",) if answered.failed else (),
        seconds={"sample": sampled - begun, "reward": time.perf_counter() - sampled},
        source=task.source,
        parent="" if again is None else again[0].id,
    )


def _event(write: CallOutcome) -> MemoryEvent:
    kind = OperationKind.NOOP
    if write.outcome == "kept":
        kind = OperationKind.ADD if write.call is None or write.call.entry is None else OperationKind.UPDATE
    elif write.outcome == "deleted" and write.call is not None:
        kind = OperationKind.DELETE
    target = () if kind in (OperationKind.ADD, OperationKind.NOOP) else (item_of(write.number),)
    status = ParseStatus.INVALID if write.outcome == "invalid" else ParseStatus.OK
    return MemoryEvent(Operation(kind, target, write.fact), status, write.outcome)


def item_of(number: int) -> str:
    """Returns the id of a fact from its order of arrival."""
    return f"f{number}"
