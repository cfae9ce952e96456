"""Training agents in environments: what recipes of this kind share. A recipe says who plays where, and what is measured.

The run is the same for all of them: measure on test questions, perhaps imitate first, then group-relative reinforcement
with measurements on dev questions, then the test questions again. Test questions are read before and after, once each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, model_validator

from recollect.learning.objective.options import Objective
from recollect.learning.objective.presets import preset, varied

if TYPE_CHECKING:
    from recollect.episodes import Episode, Group, Task
    from recollect.episodes.model import Tokens
    from recollect.learning.asynchronous import Pipeline
    from recollect.learning.asynchrony import Mode
    from recollect.learning.learner import Learner
    from recollect.learning.progress import Progress
    from recollect.learning.run_folder import RunFolder
    from recollect.models.inprocess import InProcessModel
    from recollect.rollouts.driver import Limits, Play

GROUP_RELATIVE = Objective(
    name="group_relative",
    center="group",
    scale="group",
    ratio="token",
    anchor="current",
    surrogate="plain",
    correction="truncate",
    correction_low=0.0,
    correction_high=2.0,
    aggregation="token-mean",
)
"""On policy, one update a batch: an episode's reward against its group's, averaged over tokens."""


class Settings(BaseModel):
    """What every recipe of this kind can be told."""

    model_config = ConfigDict(extra="forbid", validate_assignment=False)

    model: str = "smollm2-135m-instruct"
    precision: Literal["bf16", "fp32"] = "bf16"
    threads: int = Field(default=0, ge=0, description="0 measures which count is fastest")
    seed: int = Field(default=0, ge=0, lt=2**31)

    objective: str = Field(default="", description="a preset's name (recollect objectives list); empty is the recipe's")
    steps: int = Field(default=40, ge=1)
    tasks_per_step: int = Field(default=8, ge=1)
    group_size: int = Field(default=8, ge=2)
    learning_rate: float = Field(default=3e-4, gt=0, allow_inf_nan=False)
    train: Literal["lora", "full"] = "lora"
    rank: int = Field(default=16, ge=1)
    alpha: float = Field(default=32.0, gt=0, allow_inf_nan=False)
    entropy: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    token_budget: int = Field(default=2048, ge=256, description="tokens of one backward pass; bounds memory")

    environment_seconds: float = Field(
        default=30.0, gt=0, allow_inf_nan=False, description="how long an environment may take for one step"
    )
    sampling: Literal["synchronous", "turns", "overlap", "serial"] = Field(
        default="synchronous", description="the others sample ahead of the learner: see docs/asynchrony.md"
    )
    max_staleness: int = Field(default=1, ge=1, description="updates by which a token may be older than the learner")
    pipeline_depth: float = Field(default=2.0, ge=1, description="batches of groups started and not yet trained")
    slots: int = Field(default=32, ge=1, description="sequences decoded together when sampling ahead")

    evaluate_every: int = Field(default=20, ge=1)
    checkpoint_every: int = Field(default=20, ge=1)
    questions: int | None = Field(default=None, ge=2, description="measure on the first so many; None is all")

    @model_validator(mode="after")
    def _adapter_settings_need_an_adapter(self) -> Settings:
        default = type(self).model_fields
        idle = [key for key in ("rank", "alpha") if getattr(self, key) != default[key].default]
        if self.train == "full" and idle:
            raise ValueError(f"{idle[0]} has no effect with train = full: leave it out, or set train = lora")
        return self

    @model_validator(mode="after")
    def _settings_of_sampling_ahead_need_it(self) -> Settings:
        default = type(self).model_fields
        names = ("max_staleness", "pipeline_depth", "slots")
        idle = [key for key in names if getattr(self, key) != default[key].default]
        if self.sampling == "synchronous" and idle:
            raise ValueError(
                f"{idle[0]} has no effect with sampling = synchronous: leave it out, or set sampling = overlap"
            )
        return self

    @model_validator(mode="after")
    def _objective_is_known(self) -> Settings:
        if self.objective:
            preset(self.objective)
        return self


@dataclass(frozen=True, slots=True)
class Measured:
    """A set of tasks and the ways in which they are played. The way called "" is the recipe's own; others are controls."""

    tasks: Sequence[Task]
    ways: Mapping[str, Play]


@dataclass(frozen=True, slots=True)
class System:
    """What a recipe says of itself.

    train, play: tasks to train on, and who plays them where. dev: measured while training. test: measured before and
    after, by name; the first is the one that the run is about. metrics: reward terms, and what they are called in tables.
    imitated: (prompt, completion) pairs to learn first, batch by batch, under `imitation_rate`. length_budget: the most
    tokens that an episode can draw, for objectives that divide by it."""

    role: str
    title: str
    train: Sequence[Task]
    play: Play
    dev: Measured
    test: Mapping[str, Measured]
    metrics: Mapping[str, str]
    limits: Limits
    length_budget: int
    objective: Objective = GROUP_RELATIVE
    imitated: Callable[[InProcessModel], list[list[tuple[Tokens, Tokens]]]] | None = None
    imitation_rate: float = 1e-4
    note: str = ""
    headline: str = "{metric} on {test}: {before:.2f} before training, {after:.2f} after."


def run_system(settings: Settings, system: System, run: RunFolder, progress: Progress) -> None:
    """Train and measure; called again on the same folder, it continues from the last checkpoint."""
    from recollect.learning.trainer import Schedule, restore
    from recollect.learning.trainer import train as train_steps
    from recollect.models.files import path_of
    from recollect.models.known import ModelKind
    from recollect.recipes.training import keep_weights, prepared

    progress.phase(f"looking for {settings.model}")
    path_of(settings.model, kind=ModelKind.LANGUAGE)
    objective = preset(settings.objective) if settings.objective else system.objective
    if objective.needs_length_budget and objective.length_budget is None:
        objective = varied(objective, length_budget=system.length_budget)
    model, learner = prepared(settings, objective, system.role, run, progress)
    playing = Playing(settings, system, run, model, progress)
    if system.imitated is not None and restore(run, learner, 0) is None:
        playing.measure_tests(0, "untrained")
        imitate(system, learner, progress)
    schedule = Schedule(settings.steps, settings.evaluate_every, settings.checkpoint_every)
    curriculum = playing if settings.sampling == "synchronous" else ahead(playing, learner)
    train_steps(run, learner, curriculum, schedule, progress, system.title)
    keep_weights(run, learner)
    tables = tables_of_system(run, settings, system)
    run.write_result({"headline": tables[0].get("headline", "") if tables else "", "tables": tables})


def imitate(system: System, learner: Learner, progress: Progress) -> None:
    """The supervised start; the optimiser then forgets, so that reinforcement begins with its own moments."""
    assert system.imitated is not None
    batches = system.imitated(learner.model)
    progress.start(len(batches), "imitating first")
    for number, pairs in enumerate(batches):
        measured = learner.imitate(pairs, system.imitation_rate * min(1.0, (number + 1) / 5))
        progress.step(number + 1, {"loss": measured["loss"]})
    learner.forget_moments()


@dataclass(slots=True)
class Playing:
    """The curriculum: which tasks are played at which step, and how what was learned is measured."""

    settings: Settings
    system: System
    run: RunFolder
    model: InProcessModel
    progress: Progress

    def rollout(self, step: int) -> list[Group]:
        from recollect.recipes.training import batch
        from recollect.rollouts.driver import play, sound

        tasks = batch(self.system.train, self.settings.tasks_per_step, step, self.settings.seed)
        groups = play(
            self.model,
            tasks,
            self.system.play,
            n=self.settings.group_size,
            seed=self.settings.seed * 1_000_003 + step,
            limits=self.system.limits,
            label=f"{step + 1}/",
        )
        kept, left_out = sound(groups)
        if left_out:
            self.run.write_episodes(step + 1, left_out, arm="left_out")
            said = next((error for episode in left_out for error in episode.errors), "too few of their group are left")
            self.progress.note(f"Step {step + 1}: {len(left_out)} episodes are not trained on: {said}.")
        return kept

    def evaluate(self, step: int) -> None:
        self._measure(step, "dev", self.system.role, "", self.system.dev)
        if step == 0:
            self.measure_tests(0, "imitated" if self.system.imitated is not None else "untrained")
        elif step == self.settings.steps:
            self.measure_tests(step, "trained")

    def measure_tests(self, step: int, when: str) -> None:
        self.progress.phase(f"measuring the test questions ({when})")
        for name, measured in self.system.test.items():
            for way in measured.ways:
                self._measure(step, name, arm_of(way, when), way, measured)

    def _measure(self, step: int, split: str, arm: str, way: str, measured: Measured) -> None:
        from recollect.evaluation.manager import estimate
        from recollect.rollouts.driver import play

        tasks = list(measured.tasks)[: self.settings.questions]
        label = f"{step}/{split}/{arm}/".replace(" ", "_")
        groups = play(self.model, tasks, measured.ways[way], temperature=0.0, limits=self.system.limits, label=label)
        episodes = [episode for group in groups for episode in group.episodes]
        self.run.write_episodes(step, episodes, arm=f"{split}-{arm}".replace(" ", "_"))
        for term, metric in self.system.metrics.items():
            found = estimate([term_value(episode, term) for episode in episodes])
            self.run.append_eval(
                step,
                arm=arm,
                metric=metric,
                mean=found.mean,
                low=found.low,
                high=found.high,
                n=found.n,
                role=self.system.role,
                split=split,
            )


def ahead(playing: Playing, learner: Learner) -> Pipeline:
    """The same tasks, played ahead of the learner."""
    from recollect.learning.admission import Staleness
    from recollect.learning.ahead import PlayedAhead
    from recollect.learning.asynchronous import Pipeline
    from recollect.learning.asynchrony import Asynchrony
    from recollect.learning.task_order import batch

    settings, system = playing.settings, playing.system
    episodes = PlayedAhead(
        playing.model,
        lambda ticket: batch(system.train, 1, ticket, settings.seed)[0],
        system.play,
        playing.evaluate,
        limits=system.limits,
    )
    asynchrony = Asynchrony(
        Staleness(settings.tasks_per_step, settings.max_staleness, settings.pipeline_depth),
        settings.group_size,
        mode=cast("Mode", settings.sampling),
        slots=settings.slots,
        seed=settings.seed,
        episode_seconds=settings.environment_seconds * (system.limits.max_turns + 2) + 3600,
    )
    return Pipeline(playing.run, learner, episodes, asynchrony)


def arm_of(way: str, when: str) -> str:
    """The name of an arm in tables: `trained`, `no_memory`, `no_memory_untrained`."""
    if not way:
        return when
    return way if when == "trained" else f"{way}_{when}"


def term_value(episode: Episode, name: str) -> float:
    """The sum of an episode's reward terms of that name: 0 where it ended without any."""
    return sum(term.value for term in episode.rewards if term.name == name)


def tables_of_system(run: RunFolder, settings: Settings, system: System) -> list[dict[str, Any]]:
    """One table per set of test questions, from what the run measured."""
    tables = []
    metric = next(iter(system.metrics.values()))
    for name in system.test:
        rows = [row for row in run.evals() if row.get("role") == system.role and row.get("split") == name]
        means = {row["arm"]: row["mean"] for row in rows if row["metric"] == metric}
        table: dict[str, Any] = {
            "title": name[:1].upper() + name[1:],
            "note": f"{system.note} Seed {settings.seed}.".strip(),
            "rows": [{**row, "emphasis": row["arm"] == "trained"} for row in rows],
        }
        if {"trained", "untrained"} <= set(means):
            table["headline"] = system.headline.format(
                metric=metric, test=name, before=means["untrained"], after=means["trained"]
            )
        tables.append(table)
    return tables
