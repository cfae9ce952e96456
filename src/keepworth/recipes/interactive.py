"""Training agents in environments: what recipes of this kind share. A recipe says who plays where, and what is measured.

The run is the same for all of them: measure on test questions, perhaps imitate first, then group-relative reinforcement
with measurements on dev questions, then the test questions again. Test questions are read before and after, once each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from keepworth.episodes.episode import UNSOUND, is_silent
from keepworth.episodes.errors import KeepworthError
from keepworth.learning.collect.curriculum import drawn_task
from keepworth.learning.objective.inputs import idle_clip
from keepworth.learning.objective.options import Objective
from keepworth.recipes.settings import (
    GROUP_RELATIVE,
    SAMPLED,
    Amount,
    Count,
    Idle,
    Rate,
    Share,
    TrainingSettings,
    curriculum_of,
    idle_in_training,
    objective_of,
    require_band,
    require_effect,
    require_objective,
    require_rates,
    with_budget,
)

if TYPE_CHECKING:
    from keepworth.episodes import Episode, Task
    from keepworth.episodes.model import Model, Tokens
    from keepworth.learning.collect.memories import LivingMemory
    from keepworth.learning.collect.workers import RolloutWorkers, WorkerRollout
    from keepworth.learning.learner import Learner
    from keepworth.learning.run_folder import RunFolder
    from keepworth.learning.trainer import Ended, Schedule
    from keepworth.learning.watch.progress import Progress
    from keepworth.models.http_engine import HttpModel
    from keepworth.models.inprocess import InProcessModel
    from keepworth.recipes.workers import Origin
    from keepworth.rollouts.driver import Drawing, Limits, Play, Rollout, RolloutContext


class Settings(TrainingSettings):
    """What every recipe of this kind can be told."""

    steps: Count = 40
    learning_rate: Rate = 3e-4
    train: Literal["lora", "full"] = "lora"
    entropy: Share = 0.0
    token_budget: int = Field(default=2048, ge=256, description="memory of one backward pass, in tokens")
    environment_seconds: float = Field(
        default=30.0, gt=0, allow_inf_nan=False, description="how long an environment may take for one step"
    )
    evaluate_every: Count = 20
    checkpoint_every: Count = 20
    patience: Count | None = Field(
        default=None, description="end after so many measurements on dev in a row without a better score"
    )
    keep: Literal["last", "best"] = Field(
        default="last", description="weights that are kept: of the last step, or of that with the best score on dev"
    )
    questions: int | None = Field(default=None, ge=2, description="measure on the first so many; None is all")
    share: str = Field(
        default="", description="a folder in which independent runs leave groups for each other (see docs/cluster.md)"
    )
    foreign: Amount = Field(
        default=0, description="with share: of the tasks_per_step groups of an update, so many come from other runs"
    )

    def idle(self) -> Iterator[Idle]:
        """What can change nothing; a recipe adds its own."""
        yield from idle_in_training(self)
        if not self.share:
            yield ("foreign",), "without share, the folder that they come from", "set share"

    @model_validator(mode="after")
    def _everything_takes_effect(self) -> Settings:
        require_effect(self, self.idle())
        require_band(self.difficulty)
        require_rates(self)
        measured = -(-self.steps // self.evaluate_every)
        if self.patience is not None and self.patience + 1 >= measured:
            raise ValueError(
                f"patience = {self.patience} cannot end a training that is measured {measured} times: set evaluate_every or "
                "patience lower"
            )
        if self.keep == "best" and measured < 2:
            raise ValueError("keep = 'best' has no effect with one measurement on dev: set evaluate_every lower")
        return self

    @model_validator(mode="after")
    def _samples_of_its_own(self) -> Settings:
        own, depth = self.tasks_per_step - self.foreign, 1 if self.sampling == "synchronous" else self.pipeline_depth
        if self.foreign and (own < self.minibatches or own * depth < self.workers):
            raise ValueError(
                f"foreign = {self.foreign} of tasks_per_step = {self.tasks_per_step} leaves {own} groups of the run's own, with "
                f"minibatches = {self.minibatches} and workers = {self.workers}: each needs one. Set foreign lower"
            )
        return self

    @property
    def schedule_of_steps(self) -> Schedule:
        from keepworth.learning.trainer import Schedule

        return Schedule(
            self.steps, self.evaluate_every, self.checkpoint_every, patience=self.patience or 0, keep=self.keep
        )

    @model_validator(mode="after")
    def _objective_can_be_trained(self) -> Settings:
        if not supervised(self):
            require_objective(objective_of(self), self, self.holds)
        return self

    @property
    def holds(self) -> frozenset[str]:
        """What the recipe's episodes hold besides rewards of whole episodes: see `keepworth.learning.objective.inputs`."""
        return frozenset()


class NothingScored(KeepworthError):
    """Of all the answers that were measured, none could be scored."""


EPISODE = ""
"""In the place of a reward term's name: the episode's whole reward."""
CALLS = "calls of the model"
"""In the same place: how often the model was called in the episode."""

Pair = tuple["Tokens", "Tokens"]
"""A prompt and what should follow it."""


def idle_in_imitation(settings: Settings) -> Iterator[Idle]:
    """The keys that can change nothing where right answers are imitated in the place of reinforcement."""
    if supervised(settings):
        yield SAMPLED, "with method = supervised", "set method = reinforce"


@dataclass(frozen=True, slots=True)
class Measured:
    """A set of tasks and the ways in which they are played. The way called "" is the recipe's own; others are controls.

    met: plays them in another way than all at once, such as in an order, with a memory that learns from each: given the
    model, the tasks, the name of the way and a label that keeps ids apart, one episode a task."""

    tasks: Sequence[Task]
    ways: Mapping[str, Play]
    met: Callable[[InProcessModel, Sequence[Task], str, str], list[Episode]] | None = None


@dataclass(frozen=True, slots=True)
class System:
    """What a recipe says of itself.

    train, play: tasks to train on, and who plays them where. dev: measured while training. test: measured before and
    after, by name; the first is the one that the run is about. metrics: reward terms, and what they are called in tables.
    imitated: (prompt, completion) pairs to learn first, batch by batch, under `imitation_rate`. length_budget: the most
    tokens that an episode can draw, for objectives that divide by it; row_budget: that calls which continue each other can.
    order: the task of the group at a position, where their order matters; else they are drawn. memory: learns while the model
    does. right: the calls of a task as they should be, for method = supervised. optional: reward terms that may
    have nothing to say of an episode, which is then left out of their mean. unit: from a task's key to what is generalised over,
    where several test questions are of one such; None where each question is its own. ready: raises for what the model cannot do,
    once it is loaded and before anything is measured. drawn: how answers are drawn where they are measured; greedily if None."""

    role: str
    title: str
    train: Sequence[Task]
    play: Play
    dev: Measured
    test: Mapping[str, Measured]
    metrics: Mapping[str, str]
    limits: Limits
    length_budget: int
    row_budget: int
    objective: Objective = GROUP_RELATIVE
    imitated: Callable[[InProcessModel], list[list[Pair]]] | None = None
    imitation_rate: float = 1e-4
    order: Callable[[int], Task] | None = None
    memory: LivingMemory | None = None
    right: Callable[[InProcessModel, Task], list[Pair]] | None = None
    optional: frozenset[str] = frozenset()
    unit: Callable[[str], str] | None = None
    ready: Callable[[InProcessModel, Progress], None] | None = None
    drawn: Drawing | None = None
    note: str = ""
    headline: str = "{metric} on {test}: {before:.2f} before training, {after:.2f} after."

    def learn(self, settings: Settings, run: RunFolder, progress: Progress, origin: Origin | None = None) -> None:
        """Train and measure: see `recipe.Trainable`."""
        run_system(settings, self, run, progress, origin)

    def rollout(self, settings: Settings, model: Model) -> WorkerRollout:
        """What a rollout worker runs."""
        from keepworth.learning.collect.workers import WorkerRollout

        return WorkerRollout(rollout_of(settings, self, model), self.memory)


def run_system(
    settings: Settings, system: System, run: RunFolder, progress: Progress, origin: Origin | None = None
) -> None:
    """Train and measure; called again on the same folder, it continues from the last checkpoint. origin: where workers find the
    recipe."""
    from keepworth.models.files import ModelKind, path_of
    from keepworth.recipes.training import engines_of, prepared, require_room
    from keepworth.recipes.workers import refuse_workers, workers_of

    objective = with_budget(objective_of(settings, system.objective), system.length_budget)
    require_objective(objective, settings, settings.holds)
    require_room(settings, system.row_budget)
    progress.phase(f"looking for {settings.model}")
    path_of(settings.model, kind=ModelKind.LANGUAGE)
    if system.memory is not None and settings.keep == "best":
        raise KeepworthError(
            "keep = 'best' would part the weights from the memory that learns with them.", "Leave it out."
        )
    if system.play.live is not None:
        if system.memory is None:
            refuse_workers(
                settings, "agents remember in a memory that learns and that the recipe does not name as System.memory"
            )
        elif system.memory.policy().rehearse is not None:
            refuse_workers(settings, "the memory's policy learns from what it shows, before any reward")
        elif settings.sampling != "synchronous":
            refuse_workers(
                settings,
                f"agents remember in a memory that learns, and sampling = {settings.sampling!r} plays ahead of it",
            )
    if settings.share:
        require_sharing(system, objective)
    with (
        engines_of(settings, settings.train, run, progress) as engines,
        workers_of(settings, origin, run, progress) as workers,
        prepared(settings, objective, system.role, run, progress) as (model, learner),
    ):
        ended = _train_system(settings, system, model, learner, run, progress, engines, workers)
    said = (idle_clip(objective, settings.passes, settings.minibatches), ended.remark)
    tables = tables_of_system(run, settings, system, ". ".join(filter(None, said)))
    run.write_result({"headline": tables[0].get("headline", "") if tables else "", "tables": tables})


def _train_system(
    settings: Settings,
    system: System,
    model: InProcessModel,
    learner: Learner,
    run: RunFolder,
    progress: Progress,
    engines: Sequence[HttpModel],
    workers: RolloutWorkers | None,
) -> Ended:
    from keepworth.learning.collect.memories import Remembering
    from keepworth.learning.collect.shared_groups import Sharing
    from keepworth.learning.learner import Imitator
    from keepworth.learning.trainer import restore
    from keepworth.learning.trainer import train as train_steps
    from keepworth.recipes.training import collector_of, imitate_first, keep_weights

    if system.ready is not None:
        system.ready(model, progress)
    playing = Playing(settings, system, run, model, progress)
    if system.imitated is not None and restore(run, learner, 0) is None:
        playing.measure_tests(0, "untrained")
        imitate_first(learner, system.imitated(model), system.imitation_rate, progress, "imitating first")
    episodes: Playing | Demonstrating = playing
    curriculum, size = curriculum_of(settings), settings.group_size
    curriculum = replace(curriculum, tasks_per_step=curriculum.tasks_per_step - settings.foreign)
    learns: Learner | Imitator = learner
    if supervised(settings):  # as many tasks an update as reinforcement samples episodes, all different
        episodes, learns = Demonstrating(playing), Imitator(learner)
        curriculum, size = replace(curriculum, tasks_per_step=curriculum.tasks_per_step * size), 1
    seconds = settings.environment_seconds * (system.limits.max_turns + 2) + 3600
    collector = collector_of(settings, run, learner, episodes, curriculum, seconds, engines, size, workers)
    if settings.share:
        collector = Sharing(
            collector,
            run,
            Path(settings.share),
            model,
            playing.rollout,
            system.train,
            foreign=settings.foreign,
            group_size=size,
            seed=settings.seed,
            episode_seconds=seconds,
        )
    if system.memory is not None:
        collector = Remembering(collector, system.memory)
        if workers is not None:
            workers.memory = system.memory
    ended = train_steps(
        run, learns, collector, settings.schedule_of_steps, progress, system.title, optional=system.optional
    )
    playing.measure_tests(ended.step, "trained")
    keep_weights(run, learner, ended.weights_of)
    return ended


def require_sharing(system: System, objective: Objective) -> None:
    """Raises KeepworthError where groups of other runs cannot be replayed, or not be compared with the run's own."""
    why = ""
    if system.memory is not None or system.play.live is not None:
        why = "agents remember in a memory that learns, and another run's answers would be written into it"
    elif system.order is not None:
        why = "its tasks come in an order, with other prompts as the training goes on"
    elif objective.needs_soft_values:
        why = f"objective {objective.name} measures each task before its first group, and other runs choose theirs"
    if why:
        raise KeepworthError(f"share cannot be set with this recipe: {why}.", "Leave share out.")


def rollout_of(settings: Settings, system: System, model: Model) -> Rollout:
    """One episode of a system. model: it reads; what is drawn, the context draws."""
    from keepworth.rollouts.driver import playing

    return playing(model, system.play, temperature=settings.temperature, limits=system.limits)


def supervised(settings: Settings) -> bool:
    return getattr(settings, "method", "reinforce") == "supervised"


@dataclass(slots=True)
class Playing:
    """The `Episodes` of the training: which tasks are played, and how what was learned is measured."""

    settings: Settings
    system: System
    run: RunFolder
    model: InProcessModel
    progress: Progress

    def task(self, group: int) -> Task:
        if self.system.order is not None:
            return self.system.order(group)
        return drawn_task(self.system.train, None, self.settings.seed, group)

    async def rollout(self, task: Task, context: RolloutContext) -> Episode:
        return await rollout_of(self.settings, self.system, self.model)(task, context)

    def evaluate(self, step: int) -> None:
        episodes = self._measure(step, "dev", self.system.role, "", self.system.dev)
        if step == 0:
            if not supervised(self.settings) and not any(episode.reward for episode in episodes):
                self.progress.note(
                    f"No answer to {len(episodes)} dev questions earns anything before training. A reward that is never earned "
                    "teaches nothing: show worked examples in the prompt, reward a part of what is asked, or imitate first."
                )
            self.measure_tests(0, "imitated" if self.system.imitated is not None else "untrained")

    def measure_tests(self, step: int, when: str) -> None:
        self.progress.phase(f"measuring the test questions ({when})")
        for name, measured in self.system.test.items():
            for way in measured.ways:
                if way and when == "imitated":
                    continue  # controls are read before everything and after it
                self._measure(step, name, arm_of(way, when), way, measured)

    def _measure(self, step: int, split: str, arm: str, way: str, measured: Measured) -> list[Episode]:
        from keepworth.evaluation.statistics import estimate, score_range
        from keepworth.rollouts.driver import Drawing, play

        tasks = list(measured.tasks)[: self.settings.questions]
        label = f"{step}/{split}/{arm}/".replace(" ", "_")
        if measured.met is not None:
            episodes = measured.met(self.model, tasks, way, label)
        else:
            drawn = self.system.drawn or Drawing(0.0)
            groups = play(
                self.model,
                tasks,
                measured.ways[way],
                temperature=drawn.temperature,
                top_k=drawn.top_k,
                top_p=drawn.top_p,
                limits=self.system.limits,
                label=label,
            )
            episodes = [episode for group in groups for episode in group.episodes]
        self.run.write_episodes(step, episodes, arm=f"{split}-{arm}".replace(" ", "_"))
        sound = [each for each in zip(tasks, episodes, strict=True) if each[1].stop not in UNSOUND]
        left_out = len(tasks) - len(sound)
        if left_out:
            self._say_left_out(split, episodes)
        for term, metric in self.system.metrics.items():
            of = [each for each in sound if term not in self.system.optional or not is_silent(each[1].rewards, term)]
            if not of:
                continue
            values = [term_value(episode, term) for _, episode in of]
            clusters = [self.system.unit(task.key) for task, _ in of] if self.system.unit else None
            found = estimate(values, clusters=clusters, within=score_range(values))
            more = {"left_out": left_out} if left_out else {}
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
                **more,
            )
        return [episode for _, episode in sound]

    def _say_left_out(self, split: str, episodes: Sequence[Episode]) -> None:
        """Raises NothingScored where no episode says anything about the model."""
        failed = [episode for episode in episodes if episode.stop in UNSOUND]
        reason = next((error for episode in failed for error in episode.errors), failed[0].stop.value).rstrip(".")
        if len(failed) == len(episodes):
            raise NothingScored(
                f"None of the {len(episodes)} answers to {split} questions could be scored: {reason}.",
                "Once that is mended, the same call continues.",
            )
        self.progress.note(
            f"{len(failed)} of {len(episodes)} answers to {split} questions could not be scored and are left out: {reason}."
        )


@dataclass(frozen=True, slots=True)
class Demonstrating:
    """The `Episodes` of the supervised arm: a task's right calls in the place of samples."""

    playing: Playing

    def task(self, group: int) -> Task:
        return self.playing.task(group)

    async def rollout(self, task: Task, context: RolloutContext) -> Episode:
        from keepworth.episodes import Episode, FinishReason, RewardTerm, Segment, StopReason, VersionSpan

        system, model = self.playing.system, self.playing.model
        assert system.right is not None
        segments = tuple(
            Segment(
                role=system.role,
                prompt_id="right",
                context=prompt,
                ids=ids,
                logprobs=(0.0,) * len(ids),  # nothing was drawn
                temperature=0.0,
                finish=FinishReason.STOP,
                spans=(VersionSpan(model.version, 0, len(ids)),),
                text=model.decode(ids),
            )
            for prompt, ids in system.right(model, task)
        )
        return Episode(
            id=context.id,
            task=task.key,
            role=system.role,
            question=task.input,
            segments=segments,
            answer=task.answers[0],
            expected=task.answers,
            rewards=(RewardTerm(next(iter(system.metrics)), 1.0),),
            stop=StopReason.COMPLETED,
            memory_snapshot="",
            policy_version=model.version,
        )

    def evaluate(self, step: int) -> None:
        self.playing.evaluate(step)


def arm_of(way: str, when: str) -> str:
    """The name of an arm in tables: `trained`, `no_memory`, `no_memory_untrained`."""
    if not way:
        return when
    return way if when == "trained" else f"{way}_{when}"


def term_value(episode: Episode, name: str) -> float:
    """The sum of an episode's reward terms of that name: 0 where it ended without any."""
    if name == EPISODE:
        return episode.reward
    if name == CALLS:
        return float(len(episode.segments))
    return sum(term.value for term in episode.rewards if term.name == name)


_LOST = "Answers that could not be scored are left out: {}."


def tables_of_system(run: RunFolder, settings: Settings, system: System, remark: str = "") -> list[dict[str, Any]]:
    """One table per set of test questions, from what the run measured. remark: what a reader of the first should know."""
    tables: list[dict[str, Any]] = []
    metric = next(iter(system.metrics.values()))
    for name in system.test:
        rows = [row for row in run.evals() if row.get("role") == system.role and row.get("split") == name]
        means = {row["arm"]: row["mean"] for row in rows if row["metric"] == metric}
        said = f"{remark}." if remark and not tables else ""
        lost = "; ".join(
            f"{row['arm']} {row['left_out']}" for row in rows if row["metric"] == metric and row.get("left_out")
        )
        table: dict[str, Any] = {
            "title": name[:1].upper() + name[1:],
            "note": " ".join(filter(None, (system.note, f"Seed {settings.seed}.", said, lost and _LOST.format(lost)))),
            "rows": [{**row, "emphasis": row["arm"] == "trained"} for row in rows],
        }
        if {"trained", "untrained"} <= set(means):
            table["headline"] = system.headline.format(
                metric=metric, test=name, before=means["untrained"], after=means["trained"]
            )
        tables.append(table)
    return tables
