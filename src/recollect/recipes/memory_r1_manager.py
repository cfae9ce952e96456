"""The Memory Manager half of Memory-R1: a new fact and the memories most like it in, one operation out.

First a short supervised start on generated right operations (without one, a 135M model only ever writes one operation,
and a group without a difference teaches nothing), then group-relative reinforcement. What is learned is measured twice
and in two tables: right operations on generated cases about people it never saw, and what a frozen reader can answer
from banks that it built out of real conversations.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recollect.agents.manager import warm_start_examples
from recollect.episodes import Group, Task
from recollect.evaluation.manager import (
    always,
    answer_rows,
    chosen_by,
    maintained_answers,
    operation_accuracy,
    operation_rows,
)
from recollect.learning.learner import Learner
from recollect.learning.progress import Progress
from recollect.learning.run_folder import RunFolder
from recollect.learning.trainer import Schedule, restore
from recollect.learning.trainer import train as train_steps
from recollect.memory.bank import Bank
from recollect.models.inprocess import InProcessModel
from recollect.recipes.memory_r1 import Config
from recollect.recipes.memory_r1_parts import batch, keep_weights, kept_weights, loaded_model, prepared, with_weights
from recollect.rollouts.manager_reward import (
    ModelReader,
    Score,
    Step,
    answer_reward,
    conversation_step,
    operation_reward,
    operation_step,
)
from recollect.rollouts.managing import manage, manager_params
from recollect.tasks.operations import LEVELS, operation_tasks

if TYPE_CHECKING:
    from recollect.tasks.manager_tuples import ManagerTuple

OPERATION_TASKS = 4096
"""Generated cases to train on; a run that sees them all begins again with the first."""
HELD_OUT = 240
"""Generated cases per measurement, about people of the held-out split."""


def train_manager(config: Config, run: RunFolder, progress: Progress, first: int = 0) -> list[dict[str, Any]]:
    """Warm start, reinforcement, both measures; returns the run's tables."""
    assert config.steps is not None
    assert config.evaluate_every is not None
    model, learner = prepared(config, run, progress)
    measures = Measures(config, run, model, first, progress)
    if not restored(run, learner, first):
        measures.operations(0, "untrained", "test")
        measures.maintained(0, "always_add", always("ADD"))
        measures.maintained(0, "untrained", chosen_by(model))
        warm_start(config, learner, progress)
        measures.operations(0, "warm_start", "test")
        measures.maintained(0, "warm_start", chosen_by(model))
    schedule = Schedule(config.steps, config.evaluate_every, config.checkpoint_every, first)
    curriculum = Managing(config, model, measures, progress)
    train_steps(run, learner, curriculum, schedule, progress, "the manager learns to maintain a memory")
    keep_weights(run, learner)
    return manager_tables(run, config)


def restored(run: RunFolder, learner: Learner, first: int) -> bool:
    """Whether a checkpoint of this training exists: the warm start is then behind it."""
    return restore(run, learner, first) > 0


def warm_start(config: Config, learner: Learner, progress: Progress) -> None:
    """Imitate right operations; the optimiser then forgets, so that reinforcement begins with its own moments."""
    if not config.warm_start:
        return
    model = learner.model
    pairs = [
        (model.encode(p), model.encode(c)) for p, c in warm_start_examples(config.warm_start, config.seed, config.level)
    ]
    steps = -(-len(pairs) * config.warm_start_passes // config.warm_start_batch)
    progress.start(steps, "the manager is shown right operations first")
    for step in range(steps):
        chosen = batch(pairs, config.warm_start_batch, step, config.seed)
        progress.step(step + 1, learner.imitate(chosen, config.warm_start_learning_rate))
    learner.forget_moments()


class Managing:
    """The curriculum: generated cases with a known right operation, or real conversations judged by a reader."""

    def __init__(self, config: Config, model: InProcessModel, measures: Measures, progress: Progress) -> None:
        self.config, self.model, self.measures = config, model, measures
        self.score: Score
        self.items: Sequence[Task | ManagerTuple]
        if config.manager_reward == "operation":
            self.score = operation_reward()
            self.items = operation_tasks("train", OPERATION_TASKS, config.seed, level=config.level)
        else:
            from recollect.tasks.longmemeval import longmemeval
            from recollect.tasks.manager_tuples import manager_tuples

            tasks = longmemeval("train", distractors=config.distractors, extractive=config.extractive, abstention=False)
            self.items, counts = manager_tuples(tasks, seed=config.seed)
            progress.note(f"{counts.tuples} steps from {counts.tasks} questions; {counts.no_fact} had no usable fact")
            self.score = answer_reward(measures.reader)
            self.root = measures.root

    def rollout(self, step: int) -> list[Group]:
        config = self.config
        chosen = [self._step(item, step) for item in batch(self.items, config.tasks_per_step, step, config.seed)]
        params = manager_params(self.model, n=config.group_size, seed=config.seed * 1_000_003 + step)
        return manage(self.model, chosen, params, self.score, label=f"{self.measures.first + step + 1}/")

    def evaluate(self, step: int) -> None:
        self.measures.operations(step, "manager", "dev")
        if step == self.config.steps:
            self.measures.operations(step, "reinforced", "test")
            self.measures.maintained(step, "reinforced", chosen_by(self.model))

    def _step(self, item: Task | ManagerTuple, step: int) -> Step:
        if isinstance(item, Task):
            return operation_step(item)
        return conversation_step(item, self.root, attempt=step)


class Measures:
    """Both measures of a manager, written to the run."""

    def __init__(self, config: Config, run: RunFolder, model: InProcessModel, first: int, progress: Progress) -> None:
        self.config, self.run, self.model, self.first, self.progress = config, run, model, first, progress
        self._reader: ModelReader | None = None
        self._root: Bank | None = None

    @property
    def reader(self) -> ModelReader:
        """The frozen answerer, with the weights of a finished answerer run where one is named."""
        if self._reader is None:
            frozen = loaded_model(self.config, self.progress)
            if self.config.reader:
                named = Path(self.config.reader)
                folder = named if named.exists() else self.run.path.parent / named
                frozen = with_weights(frozen, kept_weights(RunFolder.open(folder), "answerer"))
            self._reader = ModelReader(frozen, max_tokens=self.config.max_tokens)
        return self._reader

    @property
    def root(self) -> Bank:
        """The empty bank that every task's bank is forked from: they share its encoder and its vectors."""
        if self._root is None:
            from recollect.models.encoders import encoder

            self._root = Bank.empty(encoder(self.config.encoder))
        return self._root

    def operations(self, step: int, arm: str, split: str) -> None:
        """Right operations on generated cases about people of `split`."""
        self.progress.phase("measuring operations")
        for level in LEVELS if split == "test" else (self.config.level,):
            tasks = operation_tasks(split, self.config.questions or HELD_OUT, seed=0, level=level)
            found = operation_accuracy(chosen_by(self.model), tasks)
            self._write(step, operation_rows(arm, found), f"{level} operations, {split}")

    def maintained(self, step: int, arm: str, choose: Any) -> None:
        """Answers of the frozen reader from banks that this manager built; only where the run asks for it."""
        if not self.config.maintained:
            return
        from recollect.tasks.longmemeval import longmemeval

        self.progress.phase(f"building banks: {arm}")
        tasks = longmemeval("test", distractors=self.config.distractors, extractive=True, abstention=False)
        found = maintained_answers(choose, tasks[: self.config.questions], self.reader, self.root)
        self._write(step, answer_rows(arm, found), "banks, test", reader=found.reader, operations=found.operations)

    def _write(self, step: int, rows: Sequence[dict[str, Any]], split: str, **more: Any) -> None:
        for row in rows:
            # A share of lines is counted, not estimated: it has no interval.
            low, high = (row["mean"] if row[bound] is None else row[bound] for bound in ("low", "high"))
            bounded = {**row, "low": low, "high": high}
            self.run.append_eval(self.first + step, **bounded, role="manager", split=split, **more)


def manager_tables(run: RunFolder, config: Config) -> list[dict[str, Any]]:
    """The two tables, kept apart, from what the run measured."""
    found = [row for row in run.evals() if row.get("role") == "manager"]
    order = ["always_add", "untrained", "warm_start", "reinforced"]
    tables = []
    for split, title, note in (
        ("plain operations, test", "Right memory operations", "plain generated cases about people it never saw"),
        ("near-miss operations, test", "Right memory operations, near misses", "harder cases, not trained on"),
        ("banks, test", "Answers from the bank it kept", "LongMemEval extractive test questions, frozen reader"),
    ):
        rows = sorted(
            (row for row in found if row.get("split") == split and row["arm"] in order),
            key=lambda row: order.index(row["arm"]),
        )
        if rows:
            tables.append(
                {
                    "title": title,
                    "note": f"{rows[0]['n']} {note}, seed {config.seed}.",
                    "rows": [{**row, "emphasis": row["arm"] == "reinforced"} for row in rows],
                }
            )
    measured = f"{config.level} operations, test"
    accuracy = {r["arm"]: r["mean"] for r in found if r["metric"] == "operation_accuracy" and r["split"] == measured}
    if tables and {"untrained", "reinforced"} <= set(accuracy):
        before, after = accuracy["untrained"], accuracy["reinforced"]
        tables[0]["headline"] = f"Right memory operations: {before:.2f} before training, {after:.2f} after."
    return tables
