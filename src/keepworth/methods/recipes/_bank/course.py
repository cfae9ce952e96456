"""Writing into a bounded bank, as a rollout: turn by turn the model says what to do, the bank does it, and in the end a frozen
reader answers the question from what is left.

What a turn is belongs to a `WritingCourse`: here a digit for each fact, which says how much it matters (`DigitWriting`); in
`parted` and `staged` a chunk of facts, written by calls. What an episode earns besides its answer belongs to the recipe.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Protocol

from keepworth.agents.answerer import Query, Reader
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
    Task,
)
from keepworth.episodes.model import Model, Sample, SamplingParams, Tokens
from keepworth.episodes.text import as_line
from keepworth.memory.overlay import Bank
from keepworth.methods.recipes._bank.bounded_bank import BankEntry, BoundedBank
from keepworth.methods.recipes._bank.fact_streams import FactStream
from keepworth.methods.recipes._bank.parted import CallOutcome, ChunkTurn
from keepworth.rollouts.driver import RolloutContext
from keepworth.tasks.metrics import token_f1

ROLE = "writer"
PROMPT_ID = "worth_keeping/1"
PROMPT = "Fact: {}\nWorth keeping, 0 to 9:"
DIGITS = tuple("0123456789")

_DIGIT = re.compile(r"^\s*([0-9])(?![0-9])")

MOST_WORDS = 256
"""Of one fact in a prompt of a chunk; fewer where the prompt does not fit into the model's window."""


def task_of(stream: FactStream) -> Task:
    """Its question, under the key of the stream and without the conversations that it was made of."""
    task = stream.task
    return Task(stream.key, task.source, task.input, task.answers, task.verifier, tags=task.tags)


def asked(model: Model, statement: str, answer: int) -> Tokens:
    """The prompt for one fact. A fact that leaves no room for `answer` tokens in the model's window is cut short."""
    text = as_line(statement)
    while len(prompt := model.encode(PROMPT.format(text))) + answer > model.context_limit and text:
        text = text[: len(text) * 3 // 4]
    return prompt


def digit_tokens(model: Model) -> int:
    """The most tokens that a digit takes behind the prompt."""
    return max(len(model.encode_continuation(digit)) for digit in DIGITS)


def line_of(text: str) -> str:
    """What the bank is told: a digit says how much the fact matters, any other text is carried out as it stands."""
    digit = _DIGIT.match(text)
    return f"ADD {digit[1]}" if digit else text


def state_of(entries: Sequence[BankEntry], arrived: int = 0) -> str:
    """A hash of what is in a bank, and of how many facts have arrived: equal for equal states."""
    content = [(entry.number, entry.text, entry.matters, entry.pinned, entry.part) for entry in entries]
    return hashlib.sha256(repr((arrived, content)).encode()).hexdigest()[:16]


# Courses: what is written in one episode, turn by turn.


class WritingCourse(Protocol):
    """One stream written into a bank.

    Attributes:
        turns: Those that are over.
        state: Of every segment: for an objective that compares turns of one state.
        stop: The text that ends a response; "" where its length does.
    """

    turns: list[ChunkTurn]
    state: str
    stop: str

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


class DigitWriting:
    """One stream, of which the writer says of each fact how much it matters.

    What it is asked about one fact does not depend on the others: all facts are sampled at once, and one write can be drawn again
    with all that comes after it unchanged."""

    state = stop = ""

    def __init__(self, facts: Sequence[str], bank: BoundedBank) -> None:
        self.facts, self.bank = tuple(facts), bank
        self.turns: list[ChunkTurn] = []

    @property
    def waiting(self) -> tuple[str, ...]:
        """Facts of which nothing was said yet."""
        return self.facts[len(self.turns) :]

    @property
    def shown(self) -> tuple[BankEntry, ...]:
        return tuple(self.bank.entries)

    @property
    def stored(self) -> tuple[int, ...]:
        return self.bank.numbers

    def prompt(self, most: int) -> str | None:
        return PROMPT.format(as_line(self.waiting[0])) if self.waiting else None

    def act(self, text: str) -> ChunkTurn:
        number, fact, before = len(self.turns), self.waiting[0], self.shown
        done = CallOutcome(None, self.bank.write(line_of(text), fact), fact, number)
        self.turns.append(ChunkTurn((fact,), (done,), before, self.shown, (number, number + 1)))
        return self.turns[-1]


def prompts_of(model: Model, course: WritingCourse, answer: int) -> list[Tokens]:
    """All prompts that can be sampled now, each with room for `answer` tokens; none after the last turn."""
    if isinstance(course, DigitWriting):
        return [asked(model, fact, answer) for fact in course.waiting]
    prompt = fitted(model, course, answer)
    return [] if prompt is None else [prompt]


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


# Reading: what a bank is worth.


@dataclass(frozen=True, slots=True)
class BankAnswer:
    """What the reader said, and its token F1. failed: why it said nothing, "" where it did."""

    answer: str
    score: float
    failed: str = ""


Read = Callable[[Sequence[tuple[FactStream, Sequence[str]]]], Sequence[BankAnswer]]
"""(stream, texts in its bank) of several banks in, one answer each out, in their order."""


class BankReading:
    """The `Read` of a frozen reader. A reader that fails costs nobody the run: banks that fail together are read one by one, and
    one that fails by itself is an empty answer, worth 0, counted in `failed`.

    permuted: a control, from which nothing can be learned: the scores of banks that are read together change places, by a draw
    that depends on the banks and this seed alone. One thread reads at a time."""

    def __init__(self, reader: Reader, *, permuted: int | None = None, lock: Lock | None = None) -> None:
        self.reader, self.failed = reader, 0
        self._permuted, self._lock = permuted, lock or Lock()

    @property
    def identity(self) -> str:
        return self.reader.identity

    def __call__(self, banks: Sequence[tuple[FactStream, Sequence[str]]]) -> list[BankAnswer]:
        queries: list[Query] = [(stream.task.input, tuple(texts)) for stream, texts in banks]
        with self._lock:
            answers = self._answers(queries)
            self.failed += sum(bool(failed) for _, failed in answers)
        scores = [
            0.0 if failed else token_f1(answer, stream.task.answers)
            for (answer, failed), (stream, _) in zip(answers, banks, strict=True)
        ]
        if self._permuted is not None:
            named = [(stream.key, query) for (stream, _), query in zip(banks, queries, strict=True)]
            random.Random(f"{self._permuted}|{named!r}").shuffle(scores)
        return [BankAnswer(answer, score, failed) for (answer, failed), score in zip(answers, scores, strict=True)]

    def _answers(self, queries: Sequence[Query]) -> list[tuple[str, str]]:
        """(answer, why there is none) of each."""
        try:
            return [(answer, "") for answer in self.reader.answers(queries)]
        except Exception as error:
            if len(queries) == 1:
                return [("", f"{type(error).__name__}: {error}")]
        return [found for query in queries for found in self._answers([query])]


def used_by(query: str, shown: Sequence[Shown], most: int) -> tuple[str, ...]:
    """The ids of at most `most` facts of a bank that are most like question and answer, by BM25; where no word is shared, all."""
    bank = Bank.empty(None)
    fact_of = {bank.add(line.text, deduplicate=False).id: line.item for line in shown}
    hits = bank.search(query, most, mode="lexical") if shown and query.strip() else []
    return tuple(fact_of[hit.id] for hit in hits) or tuple(line.item for line in shown)


# The rollout, and the re-roll of one of its writes.


Earned = Callable[[WritingCourse, BankAnswer], Sequence[RewardTerm]]
"""The reward terms of an episode besides the answer's, which is of weight 1 and named `answer`: where one of these has
that name, it stands in its place."""


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
    """One episode: a segment for each turn, a decision and an operation for each thing that it did, then one reading.

    Its `shown` are what the reader was given, by the ids that the decisions chose.

    Args:
        model: Writes.
        stream: What is written.
        course: Of it, at its beginning.
        context: Draws the samples.
        read: Is asked for all members of the group at once, in at most `seconds`.
        earned: See `Earned`.
        max_tokens: Of a response.
        prompt_id: Of the segments.
        again: Of a `DigitWriting`: an episode and the number of one of its segments, which alone is drawn again; all else is said
            as in that episode. So re-rolls of one segment differ in that one write alone.
        temperature: Of the samples.
        scorer: What judged the answer.
        seconds: That the reader may take.
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
    # Marks of evidence are looked at and never learned from: shaping of weight 0 enters neither reward nor metric.
    terms.append(RewardTerm("evidence_kept", stream.evidence_kept(course.stored), weight=0.0, shaping=True))
    segments = tuple(
        Segment(
            role=ROLE,
            prompt_id=prompt_id,
            context=prompt,
            ids=sample.ids,
            logprobs=sample.logprobs,
            temperature=temperature,
            finish=sample.finish,
            spans=sample.spans,
            text=text,
            memory_before=state_of(turn.before, turn.arrived[0]),
            memory_after=state_of(turn.after, turn.arrived[1]),
            state=course.state,
        )
        for prompt, sample, turn, text in calls
    )
    done = [(index, sample, call) for index, (_, sample, turn, _) in enumerate(calls) for call in turn.calls]
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
            for number, (index, sample, call) in enumerate(done, start=0 if again is None else again[1])
        ),
        operations=tuple(_event(call) for _, _, call in done),
        errors=(f"the reader failed, which counts as an empty answer: {answered.failed}",) if answered.failed else (),
        seconds={"sample": sampled - begun, "reward": time.perf_counter() - sampled},
        source=task.source,
        parent="" if again is None else again[0].id,
    )


def _event(done: CallOutcome) -> MemoryEvent:
    kind = OperationKind.NOOP
    if done.outcome == "kept":
        kind = OperationKind.ADD if done.call is None or done.call.entry is None else OperationKind.UPDATE
    elif done.outcome == "deleted" and done.call is not None:
        kind = OperationKind.DELETE
    target = () if kind in (OperationKind.ADD, OperationKind.NOOP) else (item_of(done.number),)
    status = ParseStatus.INVALID if done.outcome == "invalid" else ParseStatus.OK
    return MemoryEvent(Operation(kind, target, done.fact), status, done.outcome)


def item_of(number: int) -> str:
    """The id of a fact by the number of its arrival."""
    return f"f{number}"
