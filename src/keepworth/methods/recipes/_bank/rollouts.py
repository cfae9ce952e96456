"""Writing into a bounded bank, as a rollout: the model says of each fact how much it matters, the bank keeps what matters most,
and a frozen reader answers the question from what is left.

What the model is asked about one fact does not depend on the others, so that all facts of a stream are sampled at once. It also
means that one write can be drawn again with all that comes after it unchanged: what differs then is that write alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock

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
from keepworth.rollouts.driver import RolloutContext
from keepworth.tasks.metrics import token_f1

ROLE = "writer"
PROMPT_ID = "worth_keeping/1"
PROMPT = "Fact: {}\nWorth keeping, 0 to 9:"
DIGITS = tuple("0123456789")

_DIGIT = re.compile(r"^\s*([0-9])(?![0-9])")

NewBank = Callable[[], BoundedBank]
"""Makes an empty bank."""


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
    said = _DIGIT.match(text)
    return f"ADD {said[1]}" if said else text


def state_of(bank: BoundedBank) -> str:
    """A hash of what is in the bank and of how many facts have arrived: equal for equal states."""
    return state_of_entries(bank.entries, bank.arrived)


def state_of_entries(entries: Sequence[BankEntry], arrived: int = 0) -> str:
    """The same of entries alone."""
    content = [(entry.number, entry.text, entry.matters, entry.pinned, entry.part) for entry in entries]
    return hashlib.sha256(repr((arrived, content)).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class BankWrite:
    """What became of one fact. before, after: states of the bank; outcome: kept, passed, deleted, refused or invalid."""

    before: str
    after: str
    outcome: str


def written(bank: BoundedBank, lines: Sequence[str], stream: FactStream) -> list[BankWrite]:
    """Carry out a line for each fact of a stream, in the order of their arrival. Raises ValueError for fewer or more lines."""
    writes = []
    for line, fact in zip(lines, stream.facts, strict=True):
        before = state_of(bank)
        outcome = bank.write(line, fact.statement)
        writes.append(BankWrite(before, state_of(bank), outcome))
    return writes


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
    fact_of = {bank.add(each.text, deduplicate=False).id: each.item for each in shown}
    found = bank.search(query, most, mode="lexical") if shown and query.strip() else []
    return tuple(fact_of[hit.id] for hit in found) or tuple(each.item for each in shown)


# The rollout, and the re-roll of one of its writes.


@dataclass(frozen=True, slots=True)
class DoneWrite:
    """What became of one fact, or of a text that names none. number: of its arrival; outcome: kept, passed, deleted, refused,
    invalid ..."""

    fact: str
    number: int
    kind: OperationKind
    outcome: str


@dataclass(frozen=True, slots=True)
class WriterTurn:
    """One call of the model. before, after: states of the bank; done: what it did; state: as a `Segment` has it."""

    prompt: Tokens
    sample: Sample
    text: str
    before: str
    after: str
    done: Sequence[DoneWrite]
    state: str = ""


async def write_bank(
    model: Model,
    stream: FactStream,
    context: RolloutContext,
    new_bank: NewBank,
    read: Read,
    *,
    again: tuple[Episode, int] | None = None,
    temperature: float = 1.0,
    scorer: str = "",
    seconds: float | None = None,
) -> Episode:
    """One episode: a segment and a decision for each fact, then one reading. Its `shown` are the facts left in the bank, by the
    ids that the decisions chose. read: asked for all members of the group at once, in at most `seconds`.

    again: an episode and the number of one of its segments, which alone is drawn again, from the bank as it was there; what comes
    after it is said as in that episode. So re-rolls of one segment differ in that one write alone."""
    params = SamplingParams(digit_tokens(model), temperature=temperature)
    begun, version = time.perf_counter(), model.version
    drawn = range(len(stream.facts)) if again is None else range(again[1], again[1] + 1)
    prompts = [asked(model, stream.facts[fact].statement, params.max_tokens) for fact in drawn]
    samples = await asyncio.gather(*(context.sample(prompt, params) for prompt in prompts))
    texts = [] if again is None else [segment.text for segment in again[0].segments]
    texts[drawn.start : drawn.stop] = [model.decode(sample.ids) for sample in samples]
    bank = new_bank()
    writes = written(bank, [line_of(text) for text in texts], stream)
    sampled = time.perf_counter()
    answered = await context.with_group("read", read, (stream, bank.texts), seconds)
    turns = []
    for fact, prompt, sample in zip(drawn, prompts, samples, strict=True):
        write = writes[fact]
        kind = OperationKind.ADD if write.outcome == "kept" else OperationKind.NOOP
        done = DoneWrite(stream.facts[fact].statement, fact, kind, write.outcome)
        turns.append(WriterTurn(prompt, sample, texts[fact], write.before, write.after, (done,)))
    terms = (RewardTerm("answer", answered.score, scorer=scorer),)
    took = {"sample": sampled - begun, "reward": time.perf_counter() - sampled}
    made = writer_episode(
        model, stream, context, turns, answered, terms, bank.entries, bank.numbers, took,
        prompt_id=PROMPT_ID, temperature=temperature, version=version, first=drawn.start,
    )  # fmt: skip
    return made if again is None else replace(made, parent=again[0].id)


def writer_episode(
    model: Model,
    stream: FactStream,
    context: RolloutContext,
    turns: Sequence[WriterTurn],
    answered: BankAnswer,
    terms: Sequence[RewardTerm],
    shown: Sequence[BankEntry],
    stored: Sequence[int],
    seconds: Mapping[str, float],
    *,
    prompt_id: str,
    temperature: float,
    version: int,
    first: int = 0,
) -> Episode:
    """The episode of a writer's turns and of one reading. shown: what the reader was given; stored: numbers of the facts in the
    bank; first: the number of the first decision."""
    task = task_of(stream)
    done = [(place, turn, each) for place, turn in enumerate(turns) for each in turn.done]
    # Marks of evidence are looked at and never learned from: shaping of weight 0 enters neither reward nor metric.
    kept = RewardTerm("evidence_kept", stream.evidence_kept(stored), weight=0.0, shaping=True)
    return Episode(
        id=context.id,
        task=task.key,
        role=ROLE,
        question=task.input,
        segments=tuple(
            Segment(
                role=ROLE,
                prompt_id=prompt_id,
                context=turn.prompt,
                ids=turn.sample.ids,
                logprobs=turn.sample.logprobs,
                temperature=temperature,
                finish=turn.sample.finish,
                spans=turn.sample.spans,
                text=turn.text,
                memory_before=turn.before,
                memory_after=turn.after,
                state=turn.state,
            )
            for turn in turns
        ),
        answer=answered.answer,
        expected=task.answers,
        rewards=(*terms, kept),
        stop=StopReason.COMPLETED,
        memory_snapshot=turns[0].before,
        policy_version=version,
        shown=tuple(Shown(item_of(each.number), each.matters, each.text) for each in shown),
        decisions=tuple(
            Decision(
                f"{context.id}/{number}",
                DecisionKind.WRITE if each.outcome == "kept" else DecisionKind.NOOP,
                each.fact,
                (),
                (item_of(each.number),) if each.outcome == "kept" else (),
                min(1.0, math.exp(sum(turn.sample.logprobs))),
                f"{model.name}@{version}",
                place,
            )
            for number, (place, turn, each) in enumerate(done, start=first)
        ),
        operations=tuple(_event(each) for _, _, each in done),
        errors=(f"the reader failed, which counts as an empty answer: {answered.failed}",) if answered.failed else (),
        seconds=seconds,
        source=task.source,
    )


def _event(done: DoneWrite) -> MemoryEvent:
    target = (item_of(done.number),) if done.kind in (OperationKind.UPDATE, OperationKind.DELETE) else ()
    status = ParseStatus.INVALID if done.outcome == "invalid" else ParseStatus.OK
    return MemoryEvent(Operation(done.kind, target, done.fact), status, done.outcome)


def item_of(number: int) -> str:
    """The id of a fact by the number of its arrival."""
    return f"f{number}"
