"""The Answerer half of Memory-R1: it reads retrieved memories and writes a short answer, rewarded by the answer alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from keepworth import registry
from keepworth.methods.recipes._memory_r1.answering import answer, answers, demonstration, rows
from keepworth.models.inprocess import InProcessModel
from keepworth.records import Episode, Model, SamplingParams, Task
from keepworth.training.collect.curriculum import draw_task
from keepworth.training.recipe import Origin
from keepworth.training.run import RecipeEpisodes, train_role
from keepworth.training.run_folder import RunFolder
from keepworth.training.settings import is_supervised
from keepworth.training.watch.progress import Progress
from keepworth.worlds import recall as recalling
from keepworth.worlds.answerer import Style
from keepworth.worlds.driver import Rollout, RolloutContext
from keepworth.worlds.recall import Recall
from keepworth.worlds.splits import SPLITS

if TYPE_CHECKING:
    from keepworth.methods.recipes._memory_r1.settings import Config

CURVE = "with memory"
"""Arm of the measurements on dev questions during training; the test questions are read before and after, once each."""


def train_answerer(config: Config, run: RunFolder, progress: Progress) -> list[dict[str, Any]]:
    """Trains, measures the test questions before and after with the control arms, and returns the run's tables."""
    sets, recall = task_sets(config), recall_for(config)
    train_role(
        config,
        run,
        progress,
        lambda model: Answering(config, run, model, sets, recall),
        role=config.role,
        title="the answerer learns to answer from memory",
        length_budget=config.max_tokens,
        row_budget=config.max_tokens,
        origin=Origin("memory_r1"),
    )
    return answer_tables(run, config)


class Answering(RecipeEpisodes):
    """The episodes of the training: which questions are answered when, how, and how it is measured. The test questions are
    measured at the first and the last step, so that `begin` and `end` have nothing to do."""

    def __init__(
        self, config: Config, run: RunFolder, model: InProcessModel, sets: dict[str, list[Task]], recall: Recall
    ) -> None:
        self.config, self.run, self.model, self.sets, self.recall = config, run, model, sets, recall
        self.style = Style(config.style)

    def task(self, group: int) -> Task:
        kind_of = (lambda task: task.tags["type"]) if self.config.balance else None
        return draw_task(self.sets["train"], kind_of, self.config.seed, group)

    async def rollout(self, task: Task, context: RolloutContext) -> Episode:
        config = self.config
        if is_supervised(config):
            return demonstration(self.model, task, self.recall, config.max_tokens, self.style, identity=context.id)
        return await rollout_of(config, self.recall, self.model)(task, context)

    def evaluate(self, step: int) -> None:
        if self.config.curve == "dev":
            self._measure(step, "dev", {CURVE: self.recall})
        arms = table_arms("trained" if step else "untrained", self.recall, self.sets["test"], self.config)
        if step in (0, self.config.steps):
            self._measure(step, "test", arms)
        elif self.config.curve == "test":
            self._measure(step, "test", {arm: memory for arm, memory in arms.items() if arm != "oracle"})

    def _measure(self, step: int, split: str, arms: dict[str, Recall]) -> None:
        for arm, memory in arms.items():
            tasks, limit = self.sets[split], self.config.max_tokens
            episodes = answers(self.model, tasks, memory, limit, self.style, f"{step}/{arm}/")
            self.run.write_episodes(step, episodes, arm=f"{split}-{arm.replace(' ', '_')}")
            for row in rows(arm, episodes):
                self.run.append_eval(step, **row, role="answerer", split=split)  # type: ignore[arg-type]


def rollout_of(config: Config, recall: Recall, model: Model) -> Rollout:
    """Returns the rollout of one answer from memory: `model` encodes, and the context samples."""

    async def rollout(task: Task, context: RolloutContext) -> Episode:
        params = SamplingParams(config.max_tokens, temperature=config.temperature, stop_ids=model.stop_ids_for("\n"))
        style = Style(config.style)
        return await answer(model, task, recall, context, params, reward=config.reward, style=style)

    return rollout


def table_arms(when: str, recall: Recall, tasks: Sequence[Task], config: Config) -> dict[str, Recall]:
    """Returns the arms of the current model: its memory, and each control in its place."""
    suffix = "" if when == "trained" else "_untrained"
    return {
        when: recall,
        f"no_memory{suffix}": recalling.nothing,
        f"wrong_memory{suffix}": recalling.another(recall, tasks),
        f"oracle{suffix}": recalling.evidence_only(config.words, config.dates),
    }


def task_sets(config: Config) -> dict[str, list[Task]]:
    """Returns the questions for training, curve and table. Only sessions of training questions are trained on."""
    if config.source == "locomo":
        load: Callable[..., list[Task]] = partial(registry.method("benchmark", "locomo").make, data=config.data)
    else:
        from keepworth.worlds.data_sets.longmemeval import longmemeval

        load = partial(longmemeval, distractors=config.distractors, extractive=config.extractive, abstention=False)
    return {split: load(split)[: None if split == "train" else config.questions] for split in SPLITS}


def recall_for(config: Config) -> Recall:
    """Returns the configured recall: evidence among distractors, or what retrieval finds."""
    if config.recall == "given":
        return recalling.recall_evidence(config.memories, seed=0, words=config.words, dates=config.dates)
    from keepworth.encoders.local import encoder

    return recalling.recall_by_search(config.memories, encoder(config.encoder), words=config.words, dates=config.dates)


def answer_tables(run: RunFolder, config: Config) -> list[dict[str, Any]]:
    """Returns the table of the test questions from the run's measurements."""
    order = ["no_memory_untrained", "no_memory", "wrong_memory", "untrained", "trained", "oracle_untrained", "oracle"]
    tested = [row for row in run.evals() if (row.get("role"), row.get("split")) == ("answerer", "test")]
    rows = [row for row in tested if row["step"] in (0, config.steps) and row["arm"] in order]
    ordered = sorted(rows, key=lambda row: order.index(row["arm"]))
    f1 = {row["arm"]: row for row in ordered if row["metric"] == "f1"}
    if not {"trained", "untrained"} <= set(f1):
        return []
    before, after = f1["untrained"]["mean"], f1["trained"]["mean"]
    kind = "extractive " if config.extractive and config.source == "longmemeval" else ""
    questions = f"{f1['trained']['n']} {kind}{config.source} test questions"
    return [
        {
            "headline": f"Token F1 on questions it never saw: {before:.2f} before training, {after:.2f} after.",
            "title": "Answering from memory",
            "tier": "family",
            "note": f"{questions}, {config.memories} memories shown, seed {config.seed}.",
            "rows": [{**row, "emphasis": row["arm"] == "trained"} for row in ordered],
        }
    ]
