"""Training a writer of the bounded bank: what `bounded_bank`, `memory_r2`, `fine_mem` and the writers by calls share.

The streams are of LongMemEval's extractive questions. Their order says nothing, and a stream is made of facts of its own split.
Measured are what the reader answers and the share of the evidence that was kept, before and after, beside rules that
learn nothing and one that knows the evidence. A fact then matters as much as the mean of the digits that the model would draw,
so that equal digits leave no ties. A writer by calls (`ByCalls`) sees its bank and says, turn by turn, what to do;
measured is its most probable response.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

from keepworth.agents.answerer import ModelReader, Reader
from keepworth.episodes import Episode, Task
from keepworth.episodes.model import SamplingParams
from keepworth.learning.collect.curriculum import drawn_task, position_of
from keepworth.learning.collect.sources import Source
from keepworth.learning.learner import Learner
from keepworth.learning.run_folder import RunFolder
from keepworth.learning.watch.progress import Progress
from keepworth.methods.benchmarks._longmemeval import longmemeval, questions
from keepworth.methods.recipes._bank.bounded_bank import BoundedBank, words
from keepworth.methods.recipes._bank.course import (
    DIGITS,
    PROMPT_ID,
    ROLE,
    BankReading,
    DigitWriting,
    Earned,
    WritingCourse,
    asked,
    digit_tokens,
    fitted,
    task_of,
    write_stream,
)
from keepworth.methods.recipes._bank.fact_streams import FactStream, fact_streams
from keepworth.methods.recipes._bank.rerolls import rolled_again
from keepworth.methods.recipes._reader import found_reader
from keepworth.methods.writers._importance import specificity
from keepworth.models.inprocess import InProcessModel
from keepworth.recipes.hooks import Hooks
from keepworth.recipes.system import Pair
from keepworth.recipes.training import batch, finish, imitate_first, restored, train_role
from keepworth.rollouts.driver import RolloutContext
from keepworth.tasks.splits import draw_order

if TYPE_CHECKING:
    from keepworth.methods.recipes.bounded_bank import Config
    from keepworth.recipes.recipe import Origin

ARMS = ("untrained", "first_in_first_out", "most_specific", "warm_start", "trained", "all_evidence")
"""Of the table, in the order in which they are to be read."""
Lines = Callable[[FactStream], Sequence[str]]
"""What a writer says of each fact of a stream."""


Leaves = Callable[[Sequence[FactStream]], Sequence[WritingCourse]]
"""A writer's courses over several streams, played to their ends."""


@dataclass(frozen=True, slots=True)
class ByCalls:
    """A writer that sees its bank and writes by calls. course: of a stream, into an empty bank; rule: what it imitates
    first, at a turn of its course; earned: its reward terms; max_tokens: of a response; turns: of an episode. arms: what
    rules respond, by their names in `ARMS`, in the place of the usual ones."""

    course: Callable[[FactStream, BoundedBank, WriterStreams], WritingCourse]
    rule: Callable[[Any], str]
    earned: Earned
    max_tokens: int
    prompt_id: str
    turns: int
    arms: Mapping[str, Callable[[Any, FactStream], str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BankWriter:
    """A writer that learns, of the bounded bank: what its recipes make.

    Attributes:
        calls: Of a writer that has them; without, it draws a digit for each fact.
        remembered: Rewards episodes besides.
    """

    calls: ByCalls | None = None
    remembered: Callable[[Progress], Source] | None = None

    def learn(self, settings: Config, run: RunFolder, progress: Progress, origin: Origin | None = None) -> None:
        """Train and measure: see `recipe.Trainable`."""
        tokens, turns = (1, settings.length) if self.calls is None else (self.calls.max_tokens, self.calls.turns)
        named = found_reader(settings.reader, settings.model, settings.style, run)
        streams, made = WriterStreams(settings), list[WriterTraining]()
        regroup = None
        if settings.local is not None:  # re-rolls are of what is made once the model is loaded
            size, share = settings.local
            regroup = rolled_again(lambda *given: made[0].reroll(*given), size, share, settings.seed, settings.refill)
        hooks = Hooks(regroup=regroup, sources=() if self.remembered is None else (self.remembered(progress),))

        def training(model: InProcessModel) -> WriterTraining:
            reader = named.loaded(settings, settings.max_tokens, settings.style, run, progress)
            made.append(WriterTraining(settings, run, model, reader, streams, progress, self.calls))
            return made[0]

        remark = train_role(
            settings,
            run,
            progress,
            training,
            role=ROLE,
            title="the writer learns what to keep",
            length_budget=tokens * turns,
            row_budget=tokens,
            seconds=settings.environment_seconds + 3600,
            no_workers="what a bank is worth says a reader that is loaded in this process",
            hooks=hooks,
        )
        finish(run, writer_tables(run, settings, remark))


class WriterStreams:
    """The streams of each split: those of `length`, and to train on those of the horizons besides."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._clusters = {f"longmemeval/{question.id}": question.tie for question in questions()}
        lengths = dict.fromkeys((*(horizon.length for horizon in config.horizons), config.length))
        self._train = {length: self._of("train", length) for length in lengths}
        self._held_out = {split: self._of(split, config.length) for split in ("dev", "test")}
        self._by_key = {stream.key: stream for streams in self._train.values() for stream in streams}
        every = (*self._train.values(), *self._held_out.values())
        self._among = {stream.key: streams for streams in every for stream in streams}

    def _of(self, split: str, length: int) -> list[FactStream]:
        tasks = longmemeval(split, distractors=max(10, length // 2), extractive=True, abstention=False)
        return fact_streams(tasks, length, streams=self._config.streams, clusters=self._clusters)

    def drawn(self, group: int) -> FactStream:
        """Of the group with an index, of the length that its step has."""
        config = self._config
        length = config.length_at(position_of(group) // config.tasks_per_step)
        return drawn_task(self._train[length], None, config.seed, group)

    def held_out(self, split: str) -> list[FactStream]:
        return self._held_out[split][: self._config.questions]

    def of(self, key: str) -> FactStream:
        return self._by_key[key]

    def beside(self, stream: FactStream, count: int) -> list[str]:
        """Statements of other streams of its split, to distract from its own; the same each time. Fewer where there are
        no more."""
        statements = {fact.statement for fact in stream.facts}
        others = {
            fact.statement
            for other in self._among[stream.key]
            if other.cluster != stream.cluster
            for fact in other.facts
            if fact.statement not in statements
        }
        return sorted(others, key=lambda text: draw_order("beside", stream.key, text))[:count]

    def training(self) -> list[FactStream]:
        """All streams to train on, of every length."""
        return list(self._by_key.values())

    def statements(self) -> list[str]:
        """Every statement to train on, once."""
        return sorted({fact.statement for stream in self._by_key.values() for fact in stream.facts})


def rule_lines(stream: FactStream) -> list[str]:
    return [f"ADD {min(9.0, specificity(fact.statement)):.4f}" for fact in stream.facts]


def evidence_lines(stream: FactStream) -> list[str]:
    return [f"ADD {9 if decides else 0}" for decides in stream.evidence]


def rule_digits(statements: Sequence[str]) -> list[int]:
    """[n]: the digit of each statement by the rule `most specific`, a tenth of the statements each."""
    order = sorted(range(len(statements)), key=lambda number: specificity(statements[number]))
    digits = [0] * len(statements)
    for rank, number in enumerate(order):
        digits[number] = rank * len(DIGITS) // len(statements)
    return digits


def mean_digits(model: InProcessModel, statements: Sequence[str]) -> list[float]:
    """[n]: of each statement the mean of the digit that the model would draw, among digits."""
    branches = [model.encode_continuation(digit) for digit in DIGITS]
    most = max(map(len, branches))
    scored = model.score([asked(model, statement, most) for statement in statements], [branches] * len(statements))
    means = []
    for answers in scored:
        scores = [sum(digits) for digits in answers]
        weights = [math.exp(score - max(scores)) for score in scores]
        means.append(sum(digit * weight for digit, weight in enumerate(weights)) / sum(weights))
    return means


class WriterTraining:
    """The `RecipeEpisodes` of the training, and the measures of its arms."""

    def __init__(
        self,
        config: Config,
        run: RunFolder,
        model: InProcessModel,
        reader: Reader,
        streams: WriterStreams,
        progress: Progress,
        calls: ByCalls | None = None,
    ) -> None:
        self.config, self.run, self.model, self.streams, self.progress = config, run, model, streams, progress
        self.calls = calls
        lock = Lock()  # one reader, for one thread at a time
        self._rewarding = BankReading(reader, permuted=config.seed if config.permuted else None, lock=lock)
        self._measuring = BankReading(reader, lock=lock)
        self._tokens = reader.tokens if isinstance(reader, ModelReader) else words
        self._how: dict[str, Any] = {
            "temperature": config.temperature,
            "scorer": self._rewarding.identity,
            "seconds": config.environment_seconds,
        }

    def bank(self) -> BoundedBank:
        """An empty one."""
        return BoundedBank(self.config.budget, self.config.unit, self._tokens)

    def task(self, group: int) -> Task:
        return task_of(self.streams.drawn(group))

    async def rollout(self, task: Task, context: RolloutContext) -> Episode:
        stream = self.streams.of(task.key)
        if self.calls is None:
            return self.config.credited(await self._by_digits(stream, context, None))
        episode = await write_stream(
            self.model, stream, self._course(stream), context, self._rewarding, self.calls.earned,
            max_tokens=self.calls.max_tokens, prompt_id=self.calls.prompt_id, **self._how,
        )  # fmt: skip
        return self.config.credited(episode)

    async def reroll(self, anchor: Episode, index: int, context: RolloutContext) -> Episode:
        return await self._by_digits(self.streams.of(anchor.task), context, (anchor, index))

    async def _by_digits(
        self, stream: FactStream, context: RolloutContext, again: tuple[Episode, int] | None
    ) -> Episode:
        return await write_stream(
            self.model, stream, self._digits(stream), context, self._rewarding,
            max_tokens=digit_tokens(self.model), prompt_id=PROMPT_ID, again=again, **self._how,
        )  # fmt: skip

    def begin(self, learner: Learner) -> None:
        """What an untrained writer and rules leave, and the warm start: the rule that is imitated sees no answer."""
        config = self.config
        if restored(self.run, learner):
            return
        self.measure(0, "untrained", "test", self.leave)
        for arm, leaves in self.rules().items():
            self.measure(0, arm, "test", leaves)
        if config.warm_start:
            pairs = self.pairs()
            batches = [batch(pairs, config.warm_start_batch, step, config.seed) for step in range(config.warm_start)]
            title = "the writer imitates a rule first"
            imitate_first(learner, batches, config.warm_start_learning_rate, self.progress, title)
            self.measure(0, "warm_start", "test", self.leave)

    def end(self, step: int) -> None:
        self.measure(step, "trained", "test", self.leave)

    def evaluate(self, step: int) -> None:
        self.measure(step, ROLE, "dev", self.leave)

    def leave(self, streams: Sequence[FactStream]) -> Sequence[WritingCourse]:
        """What the model leaves as it is now."""
        if self.calls is not None:
            return self._by_calls(streams, self.calls)
        statements = sorted({fact.statement for stream in streams for fact in stream.facts})
        means = dict(zip(statements, mean_digits(self.model, statements), strict=True))
        return [self._left(stream, [f"ADD {means[fact.statement]:.6f}" for fact in stream.facts]) for stream in streams]

    def rules(self) -> dict[str, Leaves]:
        """Of those arms that learn nothing."""
        lines: dict[str, Lines] = {
            "first_in_first_out": lambda stream: ["ADD"] * len(stream.facts),
            "most_specific": rule_lines,
            "all_evidence": evidence_lines,
        }
        given = {} if self.calls is None else self.calls.arms
        return {arm: partial(self._ruled, rule, given.get(arm)) for arm, rule in lines.items()}

    def _ruled(
        self, rule: Lines, responds: Callable[[Any, FactStream], str] | None, streams: Sequence[FactStream]
    ) -> Sequence[WritingCourse]:
        if responds is None:
            return [self._left(stream, rule(stream)) for stream in streams]
        courses = [self._course(stream) for stream in streams]
        for course, stream in zip(courses, streams, strict=True):
            while course.prompt(1) is not None:
                course.act(responds(course, stream))
        return courses

    def _course(self, stream: FactStream) -> WritingCourse:
        assert self.calls is not None
        return self.calls.course(stream, self.bank(), self.streams)

    def pairs(self) -> list[Pair]:
        """What is imitated first: a prompt and what a rule says there, of every fact or turn to train on."""
        if self.calls is None:
            statements, tokens = self.streams.statements(), digit_tokens(self.model)
            return [
                (asked(self.model, statement, tokens), self.model.encode_continuation(str(digit)))
                for statement, digit in zip(statements, rule_digits(statements), strict=True)
            ]
        pairs: list[Pair] = []
        for stream in self.streams.training():
            course = self._course(stream)
            while (prompt := fitted(self.model, course, self.calls.max_tokens)) is not None:
                calls = self.calls.rule(course)
                pairs.append((prompt, self.model.encode_continuation(f" {calls}\n")))
                course.act(calls)
        return pairs

    def _left(self, stream: FactStream, lines: Sequence[str]) -> DigitWriting:
        course = self._digits(stream)
        for line in lines:
            course.act(line)
        return course

    def _digits(self, stream: FactStream) -> DigitWriting:
        return DigitWriting([fact.statement for fact in stream.facts], self.bank())

    def _by_calls(self, streams: Sequence[FactStream], calls: ByCalls) -> list[WritingCourse]:
        """Its most probable responses, all streams side by side."""
        courses = [self._course(stream) for stream in streams]
        greedy = SamplingParams(calls.max_tokens, temperature=0.0, stop_ids=self.model.stop_ids_for("\n"))
        while waiting := [
            (course, prompt)
            for course in courses
            if (prompt := fitted(self.model, course, calls.max_tokens)) is not None
        ]:
            for start in range(0, len(waiting), AT_ONCE):
                part = waiting[start : start + AT_ONCE]
                samples = self.model.sample([prompt for _, prompt in part], greedy)
                for (course, _), (sample,) in zip(part, samples, strict=True):
                    course.act(self.model.decode(sample.ids))
        return courses

    def measure(self, step: int, arm: str, split: str, leaves: Leaves) -> None:
        """What the reader answers from what a writer leaves, and how much of the evidence is in its bank."""
        from keepworth.evaluation.statistics import estimate, score_range

        self.progress.phase(f"reading banks: {arm}")
        streams = self.streams.held_out(split)
        left = leaves(streams)
        failed = self._measuring.failed
        texts = [tuple(fact.text for fact in course.shown) for course in left]
        answers = self._measuring(list(zip(streams, texts, strict=True)))
        evidence = [stream.evidence_kept(course.stored) for stream, course in zip(streams, left, strict=True)]
        for metric, values in (("f1", [answer.score for answer in answers]), ("evidence_kept", evidence)):
            mean = estimate(values, clusters=[stream.cluster for stream in streams], within=score_range(values))
            self.run.append_eval(
                step, arm=arm, metric=metric, mean=mean.mean, low=mean.low, high=mean.high, n=mean.n, role=ROLE,
                split=split, reader=self._measuring.identity, reader_failed=self._measuring.failed - failed,
                values={stream.key: value for stream, value in zip(streams, values, strict=True)},
            )  # fmt: skip


AT_ONCE = 64
"""Prompts that are sampled in one call of the model."""


def writer_tables(run: RunFolder, config: Config, remark: str = "") -> list[dict[str, Any]]:
    """What the run measured on test streams. remark: what a reader of the table should know besides."""
    rows = [row for row in run.evals() if row.get("role") == ROLE and row.get("split") == "test"]
    if not rows:
        return []
    rows.sort(key=lambda row: ARMS.index(row["arm"]))
    f1 = {row["arm"]: row["mean"] for row in rows if row["metric"] == "f1"}
    note = f"{config.budget} {config.unit} of {config.length} facts, read by {rows[0]['reader']}. Seed {config.seed}."
    if config.permuted:
        note += " The rewards it learned from were permuted."
    if failed := max(int(row["reader_failed"]) for row in rows):
        note += f" The reader failed on up to {failed} banks of an arm, which count 0."
    table: dict[str, Any] = {
        "title": "Answers from a bounded bank",
        "note": f"{note} {remark}.".removesuffix(" ."),
        "rows": [{**row, "emphasis": row["arm"] == "trained"} for row in rows],
    }
    begin = "warm_start" if "warm_start" in f1 else "untrained"
    if {"trained", begin} <= set(f1):
        table["headline"] = (
            f"F1 of the reader: {f1['trained']:.2f} after reward, {f1[begin]:.2f} before it, "
            f"{f1['most_specific']:.2f} by the rule, {f1['all_evidence']:.2f} with all evidence."
        )
    return [table]
