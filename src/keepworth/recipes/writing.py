"""Training a writer of the bounded bank: what `bounded_bank`, `memory_r2` and `fine_mem` share.

The streams are of LongMemEval's extractive questions. Their order says nothing, and a stream is made of facts of its own split.
Measured are what the reader answers and the share of the evidence that was kept, before and after, beside rules that
learn nothing and one that knows the evidence. A fact then matters as much as the mean of the digits that the model would draw,
so that equal digits leave no ties.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any

from keepworth.environments.bounded_bank import BoundedBank, words
from keepworth.episodes import Episode, Task
from keepworth.learning.collect.curriculum import Branches, drawn_task, position_of, stage_at
from keepworth.learning.learner import Learner
from keepworth.learning.objective.inputs import idle_clip
from keepworth.learning.run_folder import RunFolder
from keepworth.learning.trainer import Schedule
from keepworth.learning.trainer import train as train_steps
from keepworth.learning.watch.progress import Progress
from keepworth.memory.policy.importance import specificity
from keepworth.models.files import ModelKind, path_of
from keepworth.models.inprocess import InProcessModel
from keepworth.recipes.interactive import Pair
from keepworth.recipes.memory_r1_manager import found_reader, restored
from keepworth.recipes.settings import curriculum_of, objective_of, require_objective, with_budget
from keepworth.recipes.training import (
    batch,
    collector_of,
    engine_of,
    imitate_first,
    keep_weights,
    prepared,
    require_room,
)
from keepworth.rollouts.bounded_bank import (
    DIGITS,
    ROLE,
    BankReading,
    asked,
    digit_tokens,
    rewrite,
    task_of,
    write_bank,
    written,
)
from keepworth.rollouts.driver import RolloutContext
from keepworth.rollouts.memory_r1 import ModelReader, Reader
from keepworth.tasks.fact_streams import FactStream, fact_streams
from keepworth.tasks.longmemeval import longmemeval, questions

if TYPE_CHECKING:
    from keepworth.recipes.bounded_bank import Config

ARMS = ("untrained", "first_in_first_out", "most_specific", "warm_start", "trained", "all_evidence")
"""Of the table, in the order in which they are to be read."""
Lines = Callable[[FactStream], Sequence[str]]
"""What a writer says of each fact of a stream."""


def train_writer(config: Config, run: RunFolder, progress: Progress) -> list[dict[str, Any]]:
    """Warm start, reinforcement, and the measures of every arm; returns the run's tables."""
    objective = with_budget(objective_of(config), config.length)
    require_objective(objective, config, config.holds)
    require_room(config.token_budget, config.group_size, 1)
    progress.phase(f"looking for {config.model}")
    path_of(config.model, kind=ModelKind.LANGUAGE)
    reading = found_reader(config.reader, config.model, config.style, run)
    streams = WriterStreams(config)
    with engine_of(config, config.train, run, progress) as engine:
        model, learner = prepared(config, objective, ROLE, run, progress)
        reader = reading.loaded(config, config.max_tokens, config.style, run, progress)
        writing = WriterTraining(config, run, model, reader, streams, progress)
        if not restored(run, learner):
            writing.measure(0, "untrained", "test", writing.own_lines())
            writing.measure(0, "first_in_first_out", "test", lambda stream: ["ADD"] * len(stream.facts))
            writing.measure(0, "most_specific", "test", rule_lines)
            writing.measure(0, "all_evidence", "test", evidence_lines)
            if config.warm_start:
                warm_start(config, learner, streams, progress)
                writing.measure(0, "warm_start", "test", writing.own_lines())
        curriculum = curriculum_of(config, config.stages)
        if config.local is not None:
            size, share = config.local
            curriculum = replace(curriculum, branches=Branches(writing.reroll, size, share, config.seed))
        seconds = config.environment_seconds + 3600
        collector = collector_of(config, run, learner, writing, curriculum, seconds, engine)
        schedule = Schedule(config.steps, config.evaluate_every, config.checkpoint_every)
        train_steps(run, learner, collector, schedule, progress, "the writer learns what to keep")
    keep_weights(run, learner)
    return writer_tables(run, config, idle_clip(objective, config.passes, config.minibatches))


class WriterStreams:
    """The streams of each split: those of `length`, and to train on those of the horizons besides."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._clusters = {f"longmemeval/{question.id}": question.tie for question in questions()}
        stages = config.stages
        lengths = dict.fromkeys((*(stage.horizon or config.length for stage in stages), config.length))
        self._train = {length: self._of("train", length) for length in lengths}
        self._held_out = {split: self._of(split, config.length) for split in ("dev", "test")}
        self._by_key = {stream.key: stream for streams in self._train.values() for stream in streams}

    def _of(self, split: str, length: int) -> list[FactStream]:
        tasks = longmemeval(split, distractors=max(10, length // 2), extractive=True, abstention=False)
        return fact_streams(tasks, length, streams=self._config.streams, clusters=self._clusters)

    def drawn(self, group: int) -> FactStream:
        """Of the group with an index, of the length that its stage has."""
        config, length = self._config, self._config.length
        if config.stages:
            _, stage = stage_at(config.stages, position_of(group) // config.tasks_per_step)
            length = stage.horizon or length
        return drawn_task(self._train[length], None, config.seed, group)

    def held_out(self, split: str) -> list[FactStream]:
        return self._held_out[split][: self._config.questions]

    def of(self, key: str) -> FactStream:
        return self._by_key[key]

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


def warm_start(config: Config, learner: Learner, streams: WriterStreams, progress: Progress) -> None:
    """Imitate the rule, which sees no answer."""
    model, statements = learner.model, streams.statements()
    tokens = digit_tokens(model)
    pairs: list[Pair] = [
        (asked(model, statement, tokens), model.encode_continuation(str(digit)))
        for statement, digit in zip(statements, rule_digits(statements), strict=True)
    ]
    batches = [batch(pairs, config.warm_start_batch, step, config.seed) for step in range(config.warm_start)]
    title = "the writer imitates the rule most specific first"
    imitate_first(learner, batches, config.warm_start_learning_rate, progress, title)


def mean_digits(model: InProcessModel, statements: Sequence[str]) -> list[float]:
    """[n]: of each statement the mean of the digit that the model would draw, among digits."""
    branches = [model.encode_continuation(digit) for digit in DIGITS]
    most = max(map(len, branches))
    found = model.score([asked(model, each, most) for each in statements], [branches] * len(statements))
    means = []
    for own in found:
        scores = [sum(each) for each in own]
        weights = [math.exp(score - max(scores)) for score in scores]
        means.append(sum(digit * weight for digit, weight in enumerate(weights)) / sum(weights))
    return means


class WriterTraining:
    """The `Episodes` of the training, and the measures of its arms."""

    def __init__(
        self,
        config: Config,
        run: RunFolder,
        model: InProcessModel,
        reader: Reader,
        streams: WriterStreams,
        progress: Progress,
    ) -> None:
        self.config, self.run, self.model, self.streams, self.progress = config, run, model, streams, progress
        lock = Lock()  # one reader, for one thread at a time
        self._rewarding = BankReading(reader, permuted=config.seed if config.permuted else None, lock=lock)
        self._measuring = BankReading(reader, lock=lock)
        self._tokens = reader.tokens if isinstance(reader, ModelReader) else words

    def bank(self) -> BoundedBank:
        return BoundedBank(self.config.budget, self.config.unit, self._tokens)

    def task(self, group: int) -> Task:
        return task_of(self.streams.drawn(group))

    async def rollout(self, task: Task, context: RolloutContext) -> Episode:
        episode = await write_bank(
            self.model, self.streams.of(task.key), context, self.bank, self._rewarding,
            temperature=self.config.temperature, scorer=self._rewarding.identity, seconds=self.config.environment_seconds,
        )  # fmt: skip
        return self.config.credited(episode)

    async def reroll(self, anchor: Episode, index: int, context: RolloutContext) -> Episode:
        return await rewrite(
            self.model, anchor, index, self.streams.of(anchor.task), context, self.bank, self._rewarding,
            temperature=self.config.temperature, scorer=self._rewarding.identity, seconds=self.config.environment_seconds,
        )  # fmt: skip

    def evaluate(self, step: int) -> None:
        self.measure(step, ROLE, "dev", self.own_lines("dev"))
        if step == self.config.steps:
            self.measure(step, "trained", "test", self.own_lines())

    def own_lines(self, split: str = "test") -> Lines:
        """What the model says as it is now, of the streams of a split."""
        statements = sorted({fact.statement for stream in self.streams.held_out(split) for fact in stream.facts})
        means = dict(zip(statements, mean_digits(self.model, statements), strict=True))
        return lambda stream: [f"ADD {means[fact.statement]:.6f}" for fact in stream.facts]

    def measure(self, step: int, arm: str, split: str, lines: Lines) -> None:
        """What the reader answers from the banks of a writer, and how much of the evidence they hold."""
        from keepworth.evaluation.statistics import estimate

        self.progress.phase(f"reading banks: {arm}")
        streams, banks = self.streams.held_out(split), []
        for stream in streams:
            bank = self.bank()
            written(bank, lines(stream), stream)
            banks.append(bank)
        failed = self._measuring.failed
        answers = self._measuring([(stream, bank.texts) for stream, bank in zip(streams, banks, strict=True)])
        kept = [stream.evidence_kept(bank.numbers) for stream, bank in zip(streams, banks, strict=True)]
        for metric, values in (("f1", [each.score for each in answers]), ("evidence_kept", kept)):
            found = estimate(values, clusters=[stream.cluster for stream in streams])
            self.run.append_eval(
                step, arm=arm, metric=metric, mean=found.mean, low=found.low, high=found.high, n=found.n, role=ROLE,
                split=split, reader=self._measuring.identity, reader_failed=self._measuring.failed - failed,
                values={stream.key: value for stream, value in zip(streams, values, strict=True)},
            )  # fmt: skip


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
    failed = max(int(row["reader_failed"]) for row in rows)
    if failed:
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
