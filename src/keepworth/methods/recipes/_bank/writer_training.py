"""Trains a writer of the bounded bank, and measures its arms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

from keepworth.methods.recipes._bank.bounded_bank import BoundedBank, words
from keepworth.methods.recipes._bank.course import (
    PROMPT_ID,
    ROLE,
    DigitWriting,
    WritingCourse,
    asked,
    digit_tokens,
    fitted,
    task_of,
)
from keepworth.methods.recipes._bank.reading import BankReading
from keepworth.methods.recipes._bank.rollout import write_stream
from keepworth.methods.recipes._bank.writers import (
    ByCalls,
    Leaves,
    Lines,
    WriterStreams,
    mean_digits,
    rule_digits,
    rule_lines,
)
from keepworth.models.inprocess import InProcessModel
from keepworth.records import Episode, Task
from keepworth.records.model import SamplingParams
from keepworth.training.collect.curriculum import batch
from keepworth.training.learner import Learner
from keepworth.training.run import imitate_first
from keepworth.training.run_folder import RunFolder
from keepworth.training.system import Pair
from keepworth.training.trainer import restore
from keepworth.training.watch.progress import Progress
from keepworth.worlds.answerer import ModelReader, Reader
from keepworth.worlds.driver import RolloutContext
from keepworth.worlds.fact_streams import FactStream

if TYPE_CHECKING:
    from keepworth.methods.recipes.bounded_bank import Config


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
        lock = Lock()  # the reader serves one thread at a time
        self._rewarding = BankReading(reader, permuted=config.seed if config.permuted else None, lock=lock)
        self._measuring = BankReading(reader, lock=lock)
        self._tokens = reader.tokens if isinstance(reader, ModelReader) else words
        self._how: dict[str, Any] = {
            "temperature": config.temperature,
            "scorer": self._rewarding.identity,
            "seconds": config.environment_seconds,
        }

    def bank(self) -> BoundedBank:
        """Returns an empty bank."""
        return BoundedBank(self.config.budget, self.config.unit, self._tokens)

    def task(self, group: int) -> Task:
        return task_of(self.streams.drawn(group))

    async def rollout(self, task: Task, context: RolloutContext) -> Episode:
        return self.config.credited(await self._written(self.streams.of(task.key), context))

    async def reroll(self, anchor: Episode, index: int, context: RolloutContext) -> Episode:
        return await self._written(self.streams.of(anchor.task), context, again=(anchor, index))

    async def _written(self, stream: FactStream, context: RolloutContext, **again: Any) -> Episode:
        if self.calls is None:
            course: WritingCourse = self._digits(stream)
            how = {"max_tokens": digit_tokens(self.model), "prompt_id": PROMPT_ID, **again}
        else:
            course, calls = self._course(stream), self.calls
            how = {"max_tokens": calls.max_tokens, "prompt_id": calls.prompt_id, "earned": calls.earned}
        return await write_stream(self.model, stream, course, context, self._rewarding, **how, **self._how)

    def begin(self, learner: Learner) -> None:
        """Measures the untrained writer and the rules, and runs the warm start, which imitates a rule that sees no answer."""
        config = self.config
        if restore(self.run, learner) is not None:
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
        """Returns the courses that the current model writes."""
        if self.calls is not None:
            return self._by_calls(streams, self.calls)
        statements = sorted({fact.statement for stream in streams for fact in stream.facts})
        means = dict(zip(statements, mean_digits(self.model, statements), strict=True))
        return [self._play(stream, [f"ADD {means[fact.statement]:.6f}" for fact in stream.facts]) for stream in streams]

    def rules(self) -> dict[str, Leaves]:
        """Returns the arms that learn nothing."""
        lines: dict[str, Lines] = {
            "first_in_first_out": lambda stream: ["ADD"] * len(stream.facts),
            "most_specific": rule_lines,
            "all_evidence": lambda stream: [f"ADD {9 if decides else 0}" for decides in stream.evidence],
        }
        responders = {} if self.calls is None else self.calls.arms
        return {arm: partial(self._ruled, rule, responders.get(arm)) for arm, rule in lines.items()}

    def _ruled(
        self, rule: Lines, responds: Callable[[Any, FactStream], str] | None, streams: Sequence[FactStream]
    ) -> Sequence[WritingCourse]:
        if responds is None:
            return [self._play(stream, rule(stream)) for stream in streams]
        courses = [self._course(stream) for stream in streams]
        for course, stream in zip(courses, streams, strict=True):
            while course.prompt(1) is not None:
                course.act(responds(course, stream))
        return courses

    def _course(self, stream: FactStream) -> WritingCourse:
        assert self.calls is not None
        return self.calls.course(stream, self.bank(), self.streams)

    def pairs(self) -> list[Pair]:
        """Returns the pairs to imitate first: a prompt and a rule's response, for every fact or turn of training."""
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

    def _play(self, stream: FactStream, lines: Sequence[str]) -> DigitWriting:
        course = self._digits(stream)
        for line in lines:
            course.act(line)
        return course

    def _digits(self, stream: FactStream) -> DigitWriting:
        return DigitWriting([fact.statement for fact in stream.facts], self.bank())

    def _by_calls(self, streams: Sequence[FactStream], calls: ByCalls) -> list[WritingCourse]:
        """Returns the courses of the model's greedy responses, all streams in parallel."""
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
        """Measures the reader's answers from the banks of a writer, and the share of evidence in them."""
        from keepworth.base.statistics import estimate, score_range

        self.progress.phase(f"reading banks: {arm}")
        streams = self.streams.held_out(split)
        left = leaves(streams)
        failed = self._measuring.failed
        texts = [tuple(fact.text for fact in course.shown) for course in left]
        answers = self._measuring(list(zip(streams, texts, strict=True)))
        evidence = [stream.evidence_kept(course.stored) for stream, course in zip(streams, left, strict=True)]
        reader: dict[str, Any] = {"reader": self._measuring.identity, "reader_failed": self._measuring.failed - failed}
        clusters, keys = [stream.cluster for stream in streams], [stream.key for stream in streams]
        for metric, values in (("f1", [answer.score for answer in answers]), ("evidence_kept", evidence)):
            mean = asdict(estimate(values, clusters=clusters, within=score_range(values)))
            by_stream = dict(zip(keys, values, strict=True))
            self.run.append_eval(
                step, arm=arm, metric=metric, **mean, role=ROLE, split=split, **reader, values=by_stream
            )


AT_ONCE = 64
"""Prompts that are sampled in one call of the model."""
