"""The Memory Manager half of Memory-R1: a new fact and the memories most like it in, one operation out.

First a short supervised start on generated right operations (without one, a 135M model only ever writes one operation,
and a group without a difference teaches nothing), then group-relative reinforcement. What is learned is measured twice
and in two tables: right operations on generated cases about people it never saw, and what a frozen reader can answer
from banks that it built out of real conversations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

from keepworth.agents.answerer import ModelReader
from keepworth.agents.manager import ANSWER_TOKENS, Choose, chosen_by, manager_params, warm_start_examples
from keepworth.episodes import Episode, Task
from keepworth.learning.collect.curriculum import drawn_task, position_of
from keepworth.learning.learner import Learner
from keepworth.learning.run_folder import RunFolder
from keepworth.learning.watch.progress import Progress
from keepworth.memory.overlay import Bank
from keepworth.methods.recipes._memory_r1.measures import (
    always,
    keeping_evidence,
    maintained_answers,
    operation_rows,
)
from keepworth.methods.recipes._memory_r1.steps import (
    Consequence,
    ManagerStep,
    Score,
    answer_reward,
    conversation_step,
    manage,
    operation_reward,
    operation_step,
)
from keepworth.methods.recipes._reader import FoundReader, found_reader
from keepworth.models.inprocess import InProcessModel
from keepworth.recipes.training import batch, imitate_first, restored, train_role
from keepworth.rollouts.driver import RolloutContext
from keepworth.tasks.operations import LEVELS, operation_tasks

if TYPE_CHECKING:
    from keepworth.methods.recipes._memory_r1.settings import Config
    from keepworth.tasks.facts import ManagerTuple

OPERATION_TASKS = 1024
"""Generated cases to train on; a run that sees them all begins again with the first."""
JUDGING = 600.0
"""Seconds that a reader may take for one answer of the manager's, also on a busy machine."""
HELD_OUT = 240
"""Generated cases per measurement, about people of the held-out split."""


SHOWN = ("operation_accuracy", "operation_kind", "f1", "evidence_kept", "bank_size", "invalid")
"""Columns of the tables; accuracy by operation stays among the run's measurements."""


def train_manager(config: Config, run: RunFolder, progress: Progress) -> list[dict[str, Any]]:
    """Warm start, reinforcement, both measures; returns the run's tables."""
    reading = reading_of(config, run) if config.reads else None
    train_role(
        config,
        run,
        progress,
        lambda model: Managing(config, model, Measures(config, run, model, progress, reading)),
        role=config.role,
        title="the manager learns to maintain a memory",
        length_budget=ANSWER_TOKENS,
        row_budget=ANSWER_TOKENS,
        no_workers="what a manager's operation is worth is computed beside the model, which a worker does not have",
    )
    return manager_tables(run, config)


@dataclass(frozen=True, slots=True)
class Reading(FoundReader):
    """What a bank is read with: a reader, and the empty bank that every task's bank is forked from."""

    root: Bank


def reading_of(config: Config, run: RunFolder) -> Reading:
    """Everything that reading a bank needs, found before the first slow thing; only the model's weights are not loaded.

    Raises KeepworthError, saying how to fix it, where the encoder is not there, and as `found_reader`."""
    from keepworth.models.encoders import encoder

    found = found_reader(config.reader, config.model, config.style, run)
    return Reading(found.model, found.weights, found.identity, Bank.empty(encoder(config.encoder)))


def warm_start(config: Config, learner: Learner, progress: Progress) -> None:
    """Imitate right operations, as many as are configured."""
    if not config.warm_start:
        return
    model = learner.model
    pairs = [
        (model.encode(p), model.encode_continuation(c))
        for p, c in warm_start_examples(config.warm_start, config.seed, config.level)
    ]
    steps = -(-len(pairs) * config.warm_start_passes // config.warm_start_batch)
    batches = [batch(pairs, config.warm_start_batch, step, config.seed) for step in range(steps)]
    rate, title = config.warm_start_learning_rate, "the manager is shown right operations first"
    imitate_first(learner, batches, rate, progress, title)


class Managing:
    """What is trained on: generated cases with a known right operation, or real conversations judged by a reader.

    The `RecipeEpisodes` of the training. Steps are made and scored by one thread at a time: banks, the encoder and a reader are
    not for several."""

    def __init__(self, config: Config, model: InProcessModel, measures: Measures) -> None:
        self.config, self.model, self.measures, self.progress = config, model, measures, measures.progress
        self._lock = Lock()
        self.score: Score
        self.items: Sequence[Task | ManagerTuple]
        if config.manager_reward == "operation":
            self.score = operation_reward()
            self.items = operation_tasks("train", OPERATION_TASKS, config.seed, level=config.level)
        else:
            from keepworth.tasks.facts import manager_tuples
            from keepworth.tasks.longmemeval import longmemeval

            tasks = longmemeval("train", distractors=config.distractors, extractive=config.extractive, abstention=False)
            self.items, counts = manager_tuples(tasks, seed=config.seed)
            self.progress.note(
                f"{counts.tuples} steps from {counts.tasks} questions; {counts.no_fact} had no usable fact"
            )
            self.score = answer_reward(measures.reader)
            self.root = measures.root

    def task(self, group: int) -> Task:
        item = self._item(group)
        return item if isinstance(item, Task) else Task(item.key, "conversation", item.fact.statement, (), "none")

    async def rollout(self, task: Task, context: RolloutContext) -> Episode:
        async def step_of_group() -> ManagerStep:
            step: ManagerStep = await context.call(self._step, context.group, seconds=JUDGING)
            return step

        async def judge(text: str) -> Consequence:
            consequence: Consequence = await context.with_group(
                "score", lambda texts: self._scored(step, texts), text, seconds=JUDGING
            )
            return consequence

        step: ManagerStep = await context.shared("step", step_of_group)
        params = manager_params(self.model, temperature=self.config.temperature)
        return await manage(self.model, step, context, params, judge)

    def begin(self, learner: Learner) -> None:
        """What an untrained manager does, and the warm start."""
        measures = self.measures
        if restored(measures.run, learner):
            return
        measures.operations(0, "untrained", "test")
        measures.maintained(0, "always_add", lambda tasks: always("ADD"))
        measures.maintained(0, "evidence_only", keeping_evidence)
        measures.maintained(0, "untrained", lambda tasks: chosen_by(self.model))
        warm_start(self.config, learner, self.progress)
        measures.operations(0, "warm_start", "test")
        measures.maintained(0, "warm_start", lambda tasks: chosen_by(self.model))

    def end(self, step: int) -> None:
        """The last step has measured already."""

    def evaluate(self, step: int) -> None:
        self.measures.operations(step, "manager", "dev")
        self.measures.maintained(step, "manager", lambda tasks: chosen_by(self.model), "dev")
        if step == self.config.steps:
            self.measures.operations(step, "reinforced", "test")
            self.measures.maintained(step, "reinforced", lambda tasks: chosen_by(self.model))

    def _item(self, group: int) -> Task | ManagerTuple:
        return drawn_task(self.items, _operation_of if self.config.balance else None, self.config.seed, group)

    def _step(self, group: int) -> ManagerStep:
        """What the manager is shown, ready to be acted on."""
        item = self._item(group)
        if isinstance(item, Task):
            return operation_step(item)
        with self._lock:
            at = position_of(group) // self.config.tasks_per_step
            return conversation_step(item, self.root, attempt=at)

    def _scored(self, step: ManagerStep, texts: Sequence[str]) -> list[Consequence]:
        with self._lock:
            return self.score(step, texts)


def _operation_of(item: Task | ManagerTuple) -> str:
    """The type of a generated case, for a balanced order: the operation that is right."""
    return item.tags["operation"] if isinstance(item, Task) else ""


class Measures:
    """Both measures of a manager, written to the run."""

    def __init__(
        self,
        config: Config,
        run: RunFolder,
        model: InProcessModel,
        progress: Progress,
        reading: Reading | None,
    ) -> None:
        self.config, self.run, self.model, self.progress = config, run, model, progress
        self._reading = reading
        self._reader: ModelReader | None = None

    @property
    def reader(self) -> ModelReader:
        """The frozen answerer, loaded when it is first asked: with the weights of a finished run where one is named."""
        if self._reader is None:
            assert self._reading is not None
            found = self._reading  # read with what the manager was measured in
            self._reader = found.loaded(self.config, self.config.max_tokens, self.config.style, self.run, self.progress)
        return self._reader

    @property
    def root(self) -> Bank:
        """The empty bank that every task's bank is forked from: they share its encoder and its vectors."""
        assert self._reading is not None
        return self._reading.root

    def operations(self, step: int, arm: str, split: str) -> None:
        """Right operations on generated cases about people of `split`."""
        self.progress.phase("measuring operations")
        for level in LEVELS if split == "test" else (self.config.level,):
            tasks = operation_tasks(split, self.config.questions or HELD_OUT, seed=0, level=level)
            self._write(step, operation_rows(arm, chosen_by(self.model), tasks), f"{level} operations, {split}")

    def maintained(self, step: int, arm: str, manager: Callable[[Sequence[Task]], Choose], split: str = "test") -> None:
        """Answers of the frozen reader from banks that a manager of these tasks built out of conversations of `split`;
        only where the run asks for it. Choose settings on train or dev: test is for what is reported."""
        if not self.config.maintained:
            return
        from keepworth.tasks.longmemeval import longmemeval

        self.progress.phase(f"building banks: {arm}")
        tasks = longmemeval(split, distractors=self.config.distractors, extractive=True, abstention=False)
        tasks = tasks[: self.config.questions]
        rows, executed = maintained_answers(arm, manager(tasks), tasks, self.reader, self.root)
        self._write(step, rows, f"banks, {split}", reader=self.reader.identity, operations=executed)

    def _write(self, step: int, rows: Sequence[dict[str, Any]], split: str, **more: Any) -> None:
        for row in rows:
            self.run.append_eval(step, **row, role="manager", split=split, **more)


def manager_tables(run: RunFolder, config: Config) -> list[dict[str, Any]]:
    """The two tables, kept apart, from what the run measured."""
    found = [row for row in run.evals() if row.get("role") == "manager"]
    order = ["always_add", "untrained", "warm_start", "reinforced", "evidence_only"]
    tables = []
    practised = config.level if config.warm_start or config.manager_reward == "operation" else None
    kinds = {
        level: f"{cases} generated cases about people it never saw"
        + (", of the kind it was trained on" if level == practised else ", a kind it was not trained on")
        for level, cases in (("plain", "plain"), ("near-miss", "harder"))
    }
    for split, title, note in (
        ("plain operations, test", "Right memory operations", kinds["plain"]),
        ("near-miss operations, test", "Right memory operations, near misses", kinds["near-miss"]),
        ("banks, test", "Answers from the bank it kept", "LongMemEval extractive test questions, frozen reader"),
    ):
        rows = sorted(
            (r for r in found if r.get("split") == split and r["arm"] in order and r["metric"] in SHOWN),
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
