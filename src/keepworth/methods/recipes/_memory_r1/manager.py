"""The Memory Manager half of Memory-R1: it reads a new fact and the most similar memories, and writes one operation.

First a short supervised start on generated right operations (without one, a 135M model only ever writes one operation, and a
group without a difference gives no gradient), then group-relative reinforcement. Learning is measured twice and in two tables:
right operations on generated cases about unseen people, and a frozen reader's answers from banks that the manager built from real
conversations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from keepworth.memory.overlay import Bank
from keepworth.methods.recipes._memory_r1.measures import always, keeping_evidence, maintained_answers, operation_rows
from keepworth.methods.recipes._memory_r1.memory_manager import ANSWER_TOKENS, Choose, chosen_by, manager_params
from keepworth.methods.recipes._memory_r1.operation_tasks import operation_tasks, warm_start_examples
from keepworth.methods.recipes._memory_r1.operations import LEVELS
from keepworth.methods.recipes._memory_r1.steps import manage, operation_step
from keepworth.methods.recipes._reader import FoundReader, found_reader
from keepworth.models.inprocess import InProcessModel
from keepworth.records import Episode, Task
from keepworth.training.collect.curriculum import batch, draw_task
from keepworth.training.learner import Learner
from keepworth.training.run import RecipeEpisodes, imitate_first, train_role
from keepworth.training.run_folder import RunFolder
from keepworth.training.settings import refuse_workers
from keepworth.training.trainer import restore
from keepworth.training.watch.progress import Progress
from keepworth.worlds.answerer import ModelReader
from keepworth.worlds.driver import RolloutContext

if TYPE_CHECKING:
    from keepworth.methods.recipes._memory_r1.settings import Config

OPERATION_TASKS = 1024
"""Generated cases for training; a longer run starts again with the first."""
HELD_OUT = 240
"""Generated cases per measurement, about people of the held-out split."""

SHOWN = ("operation_accuracy", "operation_kind", "f1", "evidence_kept", "bank_size", "invalid")
"""Columns of the tables; accuracy by operation stays among the run's measurements."""


def train_manager(config: Config, run: RunFolder, progress: Progress) -> list[dict[str, Any]]:
    """Runs warm start, reinforcement and both measures; returns the run's tables."""
    reading = reading_of(config, run) if config.reads else None
    why = "what a manager's operation is worth is computed beside the model, which a worker does not have"
    refuse_workers(config, why)
    train_role(
        config,
        run,
        progress,
        lambda model: Managing(config, model, Measures(config, run, model, progress, reading)),
        role=config.role,
        title="the manager learns to maintain a memory",
        length_budget=ANSWER_TOKENS,
        row_budget=ANSWER_TOKENS,
    )
    return manager_tables(run, config)


@dataclass(frozen=True, slots=True)
class RunReader(FoundReader):
    """A reader of banks, and the empty bank that every task's bank is forked from: they share its encoder and its vectors."""

    root: Bank


def reading_of(config: Config, run: RunFolder) -> RunReader:
    """Returns all that reading a bank needs, checked before anything slow starts; only the model's weights are not loaded. Raises
    KeepworthError, with a fix, where the encoder is missing, and as `found_reader`."""
    from keepworth.encoders.local import encoder

    reader = found_reader(config.reader, config.model, config.style, run)
    return RunReader(reader.model, reader.weights, reader.identity, Bank.empty(encoder(config.encoder)))


def warm_start(config: Config, learner: Learner, progress: Progress) -> None:
    """Imitates the configured number of right operations."""
    if not config.warm_start:
        return
    model = learner.model
    examples = warm_start_examples(config.warm_start, config.seed, config.level)
    pairs = [(model.encode(prompt), model.encode_continuation(line)) for prompt, line in examples]
    steps = -(-len(pairs) * config.warm_start_passes // config.warm_start_batch)
    batches = [batch(pairs, config.warm_start_batch, step, config.seed) for step in range(steps)]
    rate, title = config.warm_start_learning_rate, "the manager is shown right operations first"
    imitate_first(learner, batches, rate, progress, title)


class Managing(RecipeEpisodes):
    """The episodes of the training: generated cases with a known right operation. The last step measures what `end` would."""

    def __init__(self, config: Config, model: InProcessModel, measures: Measures) -> None:
        self.config, self.model, self.measures, self.progress = config, model, measures, measures.progress
        self.tasks = operation_tasks("train", OPERATION_TASKS, config.seed, level=config.level)

    def task(self, group: int) -> Task:
        kind = (lambda task: task.tags["operation"]) if self.config.balance else None
        return draw_task(self.tasks, kind, self.config.seed, group)

    async def rollout(self, task: Task, context: RolloutContext) -> Episode:
        step = await context.shared("step", operation_step, task)
        return await manage(self.model, step, context, manager_params(self.model, temperature=self.config.temperature))

    def begin(self, learner: Learner) -> None:
        """Measures the untrained manager and the rules, then runs the warm start."""
        measures = self.measures
        if restore(measures.run, learner) is not None:
            return
        measures.operations(0, "untrained", "test")
        measures.maintained(0, "always_add", lambda tasks: always("ADD"))
        measures.maintained(0, "evidence_only", keeping_evidence)
        measures.maintained(0, "untrained", lambda tasks: chosen_by(self.model))
        warm_start(self.config, learner, self.progress)
        measures.operations(0, "warm_start", "test")
        measures.maintained(0, "warm_start", lambda tasks: chosen_by(self.model))

    def evaluate(self, step: int) -> None:
        self.measures.operations(step, "manager", "dev")
        self.measures.maintained(step, "manager", lambda tasks: chosen_by(self.model), "dev")
        if step == self.config.steps:
            self.measures.operations(step, "reinforced", "test")
            self.measures.maintained(step, "reinforced", lambda tasks: chosen_by(self.model))


class Measures:
    """Writes both measures of a manager to the run."""

    def __init__(
        self, config: Config, run: RunFolder, model: InProcessModel, progress: Progress, reading: RunReader | None
    ) -> None:
        self.config, self.run, self.model, self.progress = config, run, model, progress
        self.reading = reading

    @cached_property
    def reader(self) -> ModelReader:
        """Returns the frozen answerer, loaded at first use, in the precision of the manager: with the weights of a finished run
        where one is named."""
        assert self.reading is not None
        config = self.config
        return self.reading.loaded(config, config.max_tokens, config.style, self.run, self.progress)

    def operations(self, step: int, arm: str, split: str) -> None:
        """Measures right operations on generated cases about people of `split`."""
        self.progress.phase("measuring operations")
        for level in LEVELS if split == "test" else (self.config.level,):
            tasks = operation_tasks(split, self.config.questions or HELD_OUT, seed=0, level=level)
            self._write(step, operation_rows(arm, chosen_by(self.model), tasks), f"{level} operations, {split}")

    def maintained(self, step: int, arm: str, manager: Callable[[Sequence[Task]], Choose], split: str = "test") -> None:
        """Measures, where the run asks for it, the frozen reader's answers from banks that the manager built from conversations
        of `split`. Choose settings on train or dev: test is for final results."""
        if self.reading is None:
            return
        from keepworth.worlds.data_sets.longmemeval import longmemeval

        self.progress.phase(f"building banks: {arm}")
        tasks = longmemeval(split, distractors=self.config.distractors, extractive=True, abstention=False)
        tasks = tasks[: self.config.questions]
        rows, executed = maintained_answers(arm, manager(tasks), tasks, self.reader, self.reading.root)
        self._write(step, rows, f"banks, {split}", reader=self.reader.identity, operations=executed)

    def _write(self, step: int, rows: Sequence[dict[str, Any]], split: str, **more: Any) -> None:
        for row in rows:
            self.run.append_eval(step, **row, role="manager", split=split, **more)


def manager_tables(run: RunFolder, config: Config) -> list[dict[str, Any]]:
    """Returns the two tables, kept apart, from the run's measurements."""
    evaluations = [row for row in run.evals() if row.get("role") == "manager"]
    order = ["always_add", "untrained", "warm_start", "reinforced", "evidence_only"]
    tables = []
    measured = f"{config.level} operations, test"
    generated = "generated cases about people it never saw"
    for split, title, note in (
        ("plain operations, test", "Right memory operations", f"plain {generated}"),
        ("near-miss operations, test", "Right memory operations, near misses", f"harder {generated}"),
        ("banks, test", "Answers from the bank it kept", "LongMemEval extractive test questions, frozen reader"),
    ):
        if split != "banks, test":
            note += ", of the kind it was trained on" if split == measured else ", a kind it was not trained on"
        rows = sorted(
            (r for r in evaluations if r.get("split") == split and r["arm"] in order and r["metric"] in SHOWN),
            key=lambda row: order.index(row["arm"]),
        )
        if rows:
            tables.append(
                {
                    "title": title,
                    "tier": "template" if split == measured else "family",
                    "note": f"{rows[0]['n']} {note}, seed {config.seed}.",
                    "rows": [{**row, "emphasis": row["arm"] == "reinforced"} for row in rows],
                }
            )
    accurate = [row for row in evaluations if row["metric"] == "operation_accuracy" and row["split"] == measured]
    accuracy = {row["arm"]: row["mean"] for row in accurate}
    if tables and {"untrained", "reinforced"} <= set(accuracy):
        before, after = accuracy["untrained"], accuracy["reinforced"]
        tables[0]["headline"] = f"Right memory operations: {before:.2f} before training, {after:.2f} after."
    return tables
