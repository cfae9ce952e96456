"""The Answerer half of Memory-R1: retrieved memories in, a short answer out, reward from the answer alone."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from keepworth.agents import recall as recalling
from keepworth.agents.answerer import PROMPT_ID, ROLE, Style, fit, parse
from keepworth.agents.recall import Recall, Recalled
from keepworth.episodes import (
    Episode,
    FinishReason,
    Model,
    ParseStatus,
    RewardTerm,
    Sample,
    SamplingParams,
    Segment,
    StopReason,
    Task,
    VersionSpan,
)
from keepworth.episodes.episode import Shown
from keepworth.episodes.model import Tokens
from keepworth.evaluation.statistics import SCORE, MeanEstimate, estimate
from keepworth.learning.collect.curriculum import drawn_task
from keepworth.learning.learner import Learner
from keepworth.learning.run_folder import RunFolder
from keepworth.learning.watch.progress import Progress
from keepworth.models.inprocess import InProcessModel
from keepworth.recipes.recipe import Origin
from keepworth.recipes.settings import is_supervised
from keepworth.recipes.training import train_role
from keepworth.rollouts.driver import Rollout, RolloutContext, together
from keepworth.tasks.metrics import bleu1, exact_match, token_f1
from keepworth.tasks.verifiers import verifier

if TYPE_CHECKING:
    from keepworth.methods.recipes._memory_r1.settings import Config

CURVE = "with memory"
"""Arm of the measurements during training on dev questions: the test questions are then read before and after, once each."""


# One episode: what is recalled, one call of the model, one answer.


def of_one_call(
    role: str,
    prompt_id: str,
    prompt: Tokens,
    sample: Sample,
    temperature: float,
    text: str,
    before: str,
    after: str,
    **rest: Any,
) -> Episode:
    """The episode of a single segment. before, after: content hashes of the memory; rest: fields of `Episode`."""
    segment = Segment(
        role=role,
        prompt_id=prompt_id,
        context=prompt,
        ids=sample.ids,
        logprobs=sample.logprobs,
        temperature=temperature,
        finish=sample.finish,
        spans=sample.spans,
        text=text,
        memory_before=before,
        memory_after=after,
    )
    return Episode(role=role, segments=(segment,), memory_snapshot=before, **rest)


async def answer(
    model: Model,
    task: Task,
    recall: Recall,
    context: RolloutContext,
    params: SamplingParams,
    *,
    reward: str = "token_f1",
    style: Style = Style.DIRECT,
) -> Episode:
    """One episode. reward: the verifier that is trained on; the others are logged.

    Memories that do not fit the window are left out, which the episode says in `errors`."""
    begun = time.perf_counter()
    asked: RecalledPrompt = await context.shared("memory", asking, model, task, recall, params.max_tokens, style)
    remembered, version = time.perf_counter(), model.version
    sample = await context.sample(asked.prompt, params)
    seconds = {"recall": remembered - begun, "sample": time.perf_counter() - remembered}
    return _answered(model, task, asked, sample, params, reward, style, seconds, context.id, version)


def demonstration(
    model: Model,
    task: Task,
    recall: Recall,
    max_tokens: int,
    style: Style = Style.DIRECT,
    *,
    identity: str,
) -> Episode:
    """An episode that gives the first answer of the key: what supervised training imitates.

    Nothing was drawn, so the log-probabilities are 0 and mean nothing; the end of the line is part of what is taught.
    """
    asked = asking(model, task, recall, max_tokens, style)
    ids = model.encode_continuation(f" {task.answers[0]}\n")
    sample = Sample(ids, (0.0,) * len(ids), FinishReason.STOP, (VersionSpan(model.version, 0, len(ids)),))
    params = SamplingParams(max_tokens, temperature=0.0)
    return _answered(model, task, asked, sample, params, "token_f1", style, {}, identity, model.version)


@dataclass(frozen=True, slots=True)
class RecalledPrompt:
    """What was recalled for a task, and the prompt with as much of it as fits."""

    memory: Recalled
    prompt: Tokens
    shown: tuple[Shown, ...]


def asking(model: Model, task: Task, recall: Recall, max_tokens: int, style: Style) -> RecalledPrompt:
    memory = recall(task)
    return RecalledPrompt(memory, *fit(model, memory.shown, task.input, max_tokens, style))


def _answered(
    model: Model,
    task: Task,
    asked: RecalledPrompt,
    sample: Sample,
    params: SamplingParams,
    reward: str,
    style: Style,
    seconds: dict[str, float],
    identity: str,
    version: int,
) -> Episode:
    text = model.decode(sample.ids)
    answer, status = parse(text, style)
    memory, shown = asked.memory, asked.shown
    left_out = len(memory.shown) - len(shown)
    rewards = tuple(
        RewardTerm(name, verifier(name)(answer, task.answers), weight=float(name == reward))
        for name in dict.fromkeys((reward, "token_f1", "exact_match"))
    )
    stop = StopReason.PARSE_ERROR if status is ParseStatus.INVALID else StopReason.COMPLETED
    return of_one_call(
        ROLE,
        PROMPT_ID[style],
        asked.prompt,
        sample,
        params.temperature,
        text,
        memory.snapshot,
        memory.snapshot,
        id=identity,
        task=task.key,
        question=task.input,
        answer=answer,
        expected=task.answers,
        rewards=rewards,
        stop=StopReason.MAX_TOKENS if sample.finish is FinishReason.LENGTH else stop,
        policy_version=version,
        shown=shown,
        decisions=memory.decisions,
        errors=(f"{left_out} memories did not fit the model's window",) if left_out else (),
        seconds=seconds,
    )


# The training.


def train_answerer(config: Config, run: RunFolder, progress: Progress) -> list[dict[str, Any]]:
    """Train, measure the test questions before and after with the control arms, and return the run's tables."""
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


class Answering:
    """Which questions are answered when, how, and how it is measured: the `RecipeEpisodes` of the training."""

    def __init__(
        self,
        config: Config,
        run: RunFolder,
        model: InProcessModel,
        sets: dict[str, list[Task]],
        recall: Recall,
    ) -> None:
        self.config, self.run, self.model, self.sets, self.recall = config, run, model, sets, recall
        self.style = Style(config.style)

    def task(self, group: int) -> Task:
        kind_of = (lambda task: task.tags["type"]) if self.config.balance else None
        return drawn_task(self.sets["train"], kind_of, self.config.seed, group)

    async def rollout(self, task: Task, context: RolloutContext) -> Episode:
        config = self.config
        if is_supervised(config):
            return demonstration(self.model, task, self.recall, config.max_tokens, self.style, identity=context.id)
        return await rollout_of(config, self.recall, self.model)(task, context)

    def begin(self, learner: Learner) -> None:
        """The test questions are measured at step 0."""

    def end(self, step: int) -> None:
        """The last step has measured the test questions already."""

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
            answered = answers(
                self.model, self.sets[split], memory, self.config.max_tokens, self.style, f"{step}/{arm}/"
            )
            self.run.write_episodes(step, answered.episodes, arm=f"{split}-{arm.replace(' ', '_')}")
            for row in rows(arm, answered):
                self.run.append_eval(step, **row, role="answerer", split=split)  # type: ignore[arg-type]


def rollout_of(config: Config, recall: Recall, model: Model) -> Rollout:
    """One answer from memory. model: it reads; what is drawn, the context draws."""

    async def rollout(task: Task, context: RolloutContext) -> Episode:
        params = SamplingParams(config.max_tokens, temperature=config.temperature, stop_ids=model.stop_ids_for("\n"))
        style = Style(config.style)
        return await answer(model, task, recall, context, params, reward=config.reward, style=style)

    return rollout


def table_arms(when: str, recall: Recall, tasks: Sequence[Task], config: Config) -> dict[str, Recall]:
    """The model as it is, with its memory and with each control in its place."""
    suffix = "" if when == "trained" else "_untrained"
    return {
        when: recall,
        f"no_memory{suffix}": recalling.nothing,
        f"wrong_memory{suffix}": recalling.another(recall, tasks),
        f"oracle{suffix}": recalling.evidence_only(config.words, config.dates),
    }


def task_sets(config: Config) -> dict[str, list[Task]]:
    """Questions to train on, for the curve, and for the table. Only sessions of training questions are trained on."""
    if config.source == "locomo":
        from keepworth.methods.benchmarks.locomo import locomo

        sets = {split: locomo(split, data=config.data) for split in ("train", "dev", "test")}
    else:
        from keepworth.methods.benchmarks._longmemeval import longmemeval

        def split(name: str) -> list[Task]:
            return longmemeval(
                name, distractors=config.distractors, seed=0, extractive=config.extractive, abstention=False
            )

        sets = {name: split(name) for name in ("train", "dev", "test")}
    if config.questions is not None:
        sets = {name: tasks if name == "train" else tasks[: config.questions] for name, tasks in sets.items()}
    return sets


def recall_for(config: Config) -> Recall:
    """What is shown for a task, as configured: evidence among distractors, or whatever retrieval finds."""
    if config.recall == "given":
        return recalling.given(config.memories, seed=0, words=config.words, dates=config.dates)
    from keepworth.models.encoders import encoder

    return recalling.retrieved(config.memories, encoder(config.encoder), words=config.words, dates=config.dates)


def answer_tables(run: RunFolder, config: Config) -> list[dict[str, Any]]:
    """The table of the test questions, from what the run measured."""
    rows = [
        row
        for row in run.evals()
        if (row.get("role"), row.get("split")) == ("answerer", "test") and row["step"] in (0, config.steps)
    ]
    order = ["no_memory_untrained", "no_memory", "wrong_memory", "untrained", "trained", "oracle_untrained", "oracle"]
    ordered = sorted((row for row in rows if row["arm"] in order), key=lambda row: order.index(row["arm"]))
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
            "note": f"{questions}, {config.memories} memories shown, seed {config.seed}.",
            "rows": [{**row, "emphasis": row["arm"] == "trained"} for row in ordered],
        }
    ]


# How well questions are answered from memory, arm by arm: the same questions, another memory or another model.


METRICS = {"f1": token_f1, "em": exact_match, "bleu1": bleu1}


@dataclass(frozen=True, slots=True)
class Answers:
    """One arm on one list of tasks: episodes in the order of the tasks, and per metric one value per task."""

    episodes: tuple[Episode, ...]
    values: Mapping[str, tuple[float, ...]]

    def estimate(self, metric: str = "f1") -> MeanEstimate:
        return estimate(self.values[metric], within=SCORE)


def answers(
    model: Model, tasks: Sequence[Task], recall: Recall, max_tokens: int, style: Style = Style.DIRECT, label: str = ""
) -> Answers:
    """Greedy answers to every task, scored. Raises ValueError without tasks."""
    if not tasks:
        raise ValueError("answers: there are no tasks to measure on")
    params = SamplingParams(max_tokens, temperature=0.0, stop_ids=model.stop_ids_for("\n"))

    async def rollout(task: Task, context: RolloutContext) -> Episode:
        return await answer(model, task, recall, context, params, style=style)

    episodes = tuple(group.episodes[0] for group in together(model, tasks, rollout, label=label))
    values = {name: tuple(metric(e.answer, e.expected) for e in episodes) for name, metric in METRICS.items()}
    return Answers(episodes, values)


def rows(arm: str, answers: Answers, metrics: Sequence[str] = ("f1", "em"), **more: object) -> list[dict[str, object]]:
    """Table rows: the mean of each metric with its 95 % interval over questions."""
    result = []
    for metric in metrics:
        e = answers.estimate(metric)
        result.append({"arm": arm, "metric": metric, "mean": e.mean, "low": e.low, "high": e.high, "n": e.n, **more})
    return result
