"""Writing by calls, as a rollout: turn by turn the model sees its bank and what is new, says what to do, and it is
done; then a frozen reader answers the question from what is left.

What a turn is belongs to the environment (a `WritingCourse`), what it earns to the recipe (`Earned`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from keepworth.environments.bounded_bank import BankEntry
from keepworth.episodes.episode import (
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
from keepworth.episodes.model import Model, Sample, SamplingParams, Tokens
from keepworth.methods.recipes._bank.parted import CallOutcome, ChunkTurn
from keepworth.methods.recipes._bank.rollouts import ROLE, BankAnswer, Read, item_of, state_of_entries, task_of
from keepworth.rollouts.driver import RolloutContext
from keepworth.tasks.fact_streams import FactStream

MOST_WORDS = 256
"""Of one fact in a prompt; fewer where the prompt does not fit into the model's window."""
SAME_GROUP = "turn"
"""The state of every segment: for an objective that compares all turns of a group with each other (Mem-alpha)."""


class WritingCourse(Protocol):
    """What is written in one episode, turn by turn. turns: those that are over."""

    turns: list[ChunkTurn]

    @property
    def shown(self) -> Sequence[BankEntry]:
        """What the reader is given after the last turn."""
        ...

    @property
    def stored(self) -> Sequence[int]:
        """Numbers of the stream's facts that are in the bank."""
        ...

    def prompt(self, most: int) -> str | None:
        """What the writer sees, each fact in at most `most` words; None after the last turn."""
        ...

    def act(self, text: str) -> ChunkTurn:
        """Carry out a response. Any text is legal."""
        ...


Earned = Callable[[WritingCourse, BankAnswer], Sequence[RewardTerm]]
"""The reward terms of an episode besides the answer's, which is of weight 1 and named `answer`: where one of these has
that name, it stands in its place."""


def fitted(model: Model, course: WritingCourse, answer: int) -> Tokens | None:
    """The next prompt, cut short where it would leave no room for `answer` tokens; None where none is left."""
    most = MOST_WORDS
    while (text := course.prompt(most)) is not None:
        prompt = model.encode(text)
        if len(prompt) + answer <= model.context_limit:
            return prompt
        if most == 1:
            return prompt[len(prompt) + answer - model.context_limit :]
        most //= 2
    return None


async def write_by_calls(
    model: Model,
    stream: FactStream,
    course: WritingCourse,
    context: RolloutContext,
    read: Read,
    earned: Earned,
    *,
    max_tokens: int,
    prompt_id: str,
    temperature: float = 1.0,
    scorer: str = "",
    seconds: float | None = None,
) -> Episode:
    """One episode: a segment for each turn, a decision and an operation for each call, then one reading. Its `shown`
    are what the reader was given."""
    params = SamplingParams(max_tokens, temperature=temperature, stop_ids=model.stop_ids_for("\n"))
    begun, version = time.perf_counter(), model.version
    segments: list[Segment] = []
    decisions: list[Decision] = []
    events: list[MemoryEvent] = []
    while (prompt := fitted(model, course, max_tokens)) is not None:
        sample = await context.sample(prompt, params)
        text = model.decode(sample.ids)
        turn = course.act(text)
        segments.append(_segment(prompt, sample, text, turn, temperature, prompt_id))
        by = f"{model.name}@{version}"
        for call in turn.calls:
            decisions.append(_decision(f"{context.id}/{len(decisions)}", call, sample, by, len(segments) - 1))
            events.append(_event(call))
    sampled = time.perf_counter()
    answered = await context.with_group("read", read, (stream, tuple(each.text for each in course.shown)), seconds)
    task, terms = task_of(stream), list(earned(course, answered))
    if all(term.name != "answer" for term in terms):
        terms.insert(0, RewardTerm("answer", answered.score, scorer=scorer))
    # Marks of evidence are looked at and never learned from: shaping of weight 0 enters neither reward nor metric.
    kept = RewardTerm("evidence_kept", stream.evidence_kept(course.stored), weight=0.0, shaping=True)
    return Episode(
        id=context.id,
        task=task.key,
        role=ROLE,
        question=task.input,
        segments=tuple(segments),
        answer=answered.answer,
        expected=task.answers,
        rewards=(*terms, kept),
        stop=StopReason.COMPLETED,
        memory_snapshot=segments[0].memory_before,
        policy_version=version,
        shown=tuple(Shown(item_of(each.number), each.matters, each.text) for each in course.shown),
        decisions=tuple(decisions),
        operations=tuple(events),
        errors=(f"the reader failed, which counts as an empty answer: {answered.failed}",) if answered.failed else (),
        seconds={"sample": sampled - begun, "reward": time.perf_counter() - sampled},
        source=task.source,
    )


def _segment(prompt: Tokens, sample: Sample, text: str, turn: ChunkTurn, temperature: float, prompt_id: str) -> Segment:
    return Segment(
        role=ROLE,
        prompt_id=prompt_id,
        context=prompt,
        ids=sample.ids,
        logprobs=sample.logprobs,
        temperature=temperature,
        finish=sample.finish,
        spans=sample.spans,
        text=text,
        memory_before=state_of_entries(turn.before),
        memory_after=state_of_entries(turn.after),
        state=SAME_GROUP,
    )


def _decision(id: str, call: CallOutcome, sample: Sample, by: str, step: int) -> Decision:
    kept = call.outcome == "kept"
    return Decision(
        id,
        DecisionKind.WRITE if kept else DecisionKind.NOOP,
        call.fact,
        (),
        (item_of(call.number),) if kept else (),
        min(1.0, math.exp(sum(sample.logprobs))),
        by,
        step,
    )


def _event(call: CallOutcome) -> MemoryEvent:
    kinds = {"kept": OperationKind.ADD, "deleted": OperationKind.DELETE}
    kind = kinds.get(call.outcome, OperationKind.NOOP)
    if call.call is not None and call.call.entry is not None and call.outcome == "kept":
        kind = OperationKind.UPDATE
    target = (item_of(call.number),) if kind in (OperationKind.UPDATE, OperationKind.DELETE) else ()
    status = ParseStatus.INVALID if call.outcome == "invalid" else ParseStatus.OK
    return MemoryEvent(Operation(kind, target, call.fact), status, call.outcome)
