"""Systems that learn by reward: agents in environments. A recipe defines the agents, the environments and the measurements.

The run is the same for all: measure on test questions, optionally imitate first, then reinforce group-relatively with
measurements on dev questions, then measure on the test questions again. Test questions are used before and after training, once
each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from keepworth.base.errors import KeepworthError, require_known
from keepworth.records.episode import UNSOUND, is_silent
from keepworth.training.collect.curriculum import draw_task
from keepworth.training.hooks import NO_HOOKS, Hooks
from keepworth.training.settings import Settings, is_supervised

if TYPE_CHECKING:
    from keepworth.models.inprocess import InProcessModel
    from keepworth.records import Episode, Task
    from keepworth.records.model import Model, Tokens
    from keepworth.training.learner import Learner
    from keepworth.training.recipe import Origin
    from keepworth.training.run_folder import RunFolder
    from keepworth.training.watch.progress import Progress
    from keepworth.worlds.driver import Limits, Play, Rollout, RolloutContext


EPISODE = ""
"""Stands for a reward term's name: the episode's whole reward."""
CALLS = "calls of the model"
"""Stands for a reward term's name: the number of the model's calls in the episode."""

TIERS = {
    "instance": "questions that were trained on",
    "template": "questions of a form that was trained on, with other values",
    "family": "questions of other forms, of the same kind of task",
}
"""How similar test questions are to those of training, the most similar first."""

Pair = tuple["Tokens", "Tokens"]
"""A prompt and its completion."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A set of tasks and the ways in which they are played.

    Attributes:
        ways: How they are played, by name. The way "" is the recipe's own; others are controls.
        tier: For test questions, one of `TIERS`; "" where it is not known.
    """

    tasks: Sequence[Task]
    ways: Mapping[str, Play]
    tier: str = ""

    def __post_init__(self) -> None:
        if self.tier:
            require_known("tier", self.tier, TIERS)


@dataclass(frozen=True, slots=True)
class Questions:
    """The questions of a recipe that can be asked by themselves, as diagnostics of a finished run do.

    Attributes:
        train: Its training questions.
        test: Its test questions, by set.
        unit: From a task's key to what several questions share; None where they share nothing.
        tiers: The tier that the recipe declares for each test set, or "".
        rollout: From a set's name ("" for training) and a model to a rollout of its questions, at temperature 1.
    """

    train: Sequence[Task]
    test: Mapping[str, Sequence[Task]]
    unit: Callable[[str], str] | None
    tiers: Mapping[str, str]
    rollout: Callable[[str, Model], Rollout]


@dataclass(frozen=True, slots=True)
class System:
    """A recipe's definition of its training.

    Attributes:
        role: The role of the model that learns.
        train: Tasks to train on.
        play: The environment and the agent of a task.
        dev: Measured during training.
        test: Measured before and after, by name; the first is the one that the run is about.
        metrics: Reward terms, and their names in tables.
        limits: Limits of an episode.
        length_budget: The most tokens that an episode can draw, for objectives that divide by it.
        row_budget: The most tokens that calls which continue each other can draw.
        imitated: Returns (prompt, completion) pairs to learn first, in batches, under `imitation_rate`.
        right: Returns the right calls of a task, for method = supervised.
        optional: Reward terms that may be absent from an episode, which their means then leave out.
        unit: Maps a task's key to its cluster, where several test questions are not independent.
        hooks: Changes of the training loop; with method = supervised there are none.
        ready: Raises for what the model cannot do, once it is loaded and before anything is measured.
        close: Is called when the training has ended, however it ended.
        note: A text under the tables.
    """

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
    imitated: Callable[[InProcessModel], list[list[Pair]]] | None = None
    imitation_rate: float = 1e-4
    right: Callable[[InProcessModel, Task], list[Pair]] | None = None
    optional: frozenset[str] = frozenset()
    unit: Callable[[str], str] | None = None
    hooks: Hooks = NO_HOOKS
    ready: Callable[[InProcessModel, Progress], None] | None = None
    close: Callable[[], None] = lambda: None
    note: str = ""
    headline: str = "{metric} on {test}: {before:.2f} before training, {after:.2f} after."

    def learn(self, settings: Settings, run: RunFolder, progress: Progress, origin: Origin | None = None) -> None:
        """Trains and measures: see `recipe.Trainable`."""
        from keepworth.training.run import finish, train_role

        if self.hooks.group_rollout is not None and self.play.vary is not None:
            raise KeepworthError("vary has no effect on members that a group_rollout makes.", "Leave one of them out.")
        try:
            remark = train_role(
                settings,
                run,
                progress,
                lambda model: Playing(settings, self, run, model, progress),
                role=self.role,
                title=self.title,
                length_budget=self.length_budget,
                row_budget=self.row_budget,
                seconds=settings.environment_seconds * (self.limits.max_turns + 2) + 3600,
                optional=self.optional,
                origin=origin,
                hooks=NO_HOOKS if is_supervised(settings) else self.hooks,
            )
        finally:
            self.close()
        finish(run, make_tables(run, settings, self, remark))

    def rollout(self, settings: Settings, model: Model) -> Rollout:
        """Returns the rollout of one episode, here or in a worker. `model` encodes and scores only; the context samples."""
        from keepworth.worlds.driver import playing

        async def demonstrate(task: Task, context: RolloutContext) -> Episode:
            return make_demonstration(self, cast("InProcessModel", model), task, context.id)

        if is_supervised(settings):
            return demonstrate
        return playing(model, self.play, temperature=settings.temperature, limits=self.limits)

    def questions(self, settings: Settings) -> Questions:
        """Returns the questions, each with the way in which its set is played."""
        from keepworth.worlds.driver import playing

        def rollout(name: str, model: Model) -> Rollout:
            play = self.test[name].ways.get("", self.play) if name else self.play
            return playing(model, play, temperature=1.0, limits=self.limits)

        tests = {name: of.tasks for name, of in self.test.items()}
        tiers = {name: of.tier for name, of in self.test.items()}
        return Questions(self.train, tests, self.unit, tiers, rollout)


@dataclass(slots=True)
class Playing:
    """Implements the `Episodes` of the training: draws tasks, plays them, and measures the model."""

    settings: Settings
    system: System
    run: RunFolder
    model: InProcessModel
    progress: Progress
    rollout: Rollout = field(init=False)

    def __post_init__(self) -> None:
        self.rollout = self.system.rollout(self.settings, self.model)

    def task(self, group: int) -> Task:
        return draw_task(self.system.train, None, self.settings.seed, group)

    def begin(self, learner: Learner) -> None:
        """Measures and imitates before the first step, where the recipe asks for that."""
        from keepworth.training.run import imitate_first
        from keepworth.training.trainer import restore

        system, progress = self.system, self.progress
        if system.ready is not None:
            system.ready(self.model, progress)
        if system.imitated is not None and restore(self.run, learner) is None:
            self.measure_tests(0, "untrained")
            imitate_first(learner, system.imitated(self.model), system.imitation_rate, progress, "imitating first")

    def end(self, step: int) -> None:
        """Measures the test questions again."""
        self.measure_tests(step, "trained")

    def evaluate(self, step: int) -> None:
        episodes = self._measure(step, "dev", self.system.role, "", self.system.dev)
        if step == 0:
            if not is_supervised(self.settings) and not any(episode.reward for episode in episodes):
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
                arm = when if not way else way if when == "trained" else f"{way}_{when}"
                self._measure(step, name, arm, way, measured)

    def _measure(self, step: int, split: str, arm: str, way: str, measured: Measured) -> list[Episode]:
        from keepworth.base.statistics import estimate, score_range
        from keepworth.worlds.driver import play

        system, tasks = self.system, list(measured.tasks)[: self.settings.questions]
        label = f"{step}/{split}/{arm}/".replace(" ", "_")
        groups = play(self.model, tasks, measured.ways[way], temperature=0.0, limits=system.limits, label=label)
        episodes = [episode for group in groups for episode in group.episodes]
        self.run.write_episodes(step, episodes, arm=f"{split}-{arm}".replace(" ", "_"))
        sound = [(task, episode) for task, episode in zip(tasks, episodes, strict=True) if episode.stop not in UNSOUND]
        left_out = len(tasks) - len(sound)
        if left_out:
            self._say_left_out(split, episodes)
        terms = {term.name for _, episode in sound for term in episode.rewards} | {EPISODE, CALLS, *system.optional}
        if sound and step == 0 and (silent := sorted(system.metrics.keys() - terms)):
            self.progress.note(
                f"metrics has reward terms that no answer to {split} questions got: {', '.join(silent)}. They count as 0."
            )
        for term, metric in system.metrics.items():
            heard = [pair for pair in sound if term not in system.optional or not is_silent(pair[1].rewards, term)]
            if not heard:
                continue
            values = [term_value(episode, term) for _, episode in heard]
            clusters = [system.unit(task.key) for task, _ in heard] if system.unit else None
            mean = estimate(values, clusters=clusters, within=score_range(values))
            row = {"arm": arm, "metric": metric, "mean": mean.mean, "low": mean.low, "high": mean.high, "n": mean.n}
            more = {"left_out": left_out} if left_out else {}
            self.run.append_eval(step, **row, role=system.role, split=split, **more)  # type: ignore[arg-type]
        return [episode for _, episode in sound]

    def _say_left_out(self, split: str, episodes: Sequence[Episode]) -> None:
        """Notes how many answers could not be scored. Raises KeepworthError where that is all of them."""
        failed = [episode for episode in episodes if episode.stop in UNSOUND]
        reason = next((error for episode in failed for error in episode.errors), failed[0].stop.value).rstrip(".")
        if len(failed) == len(episodes):
            raise KeepworthError(
                f"None of the {len(episodes)} answers to {split} questions could be scored: {reason}.",
                "Once that is mended, the same call continues.",
            )
        self.progress.note(
            f"{len(failed)} of {len(episodes)} answers to {split} questions could not be scored and are left out: {reason}."
        )


def make_demonstration(system: System, model: InProcessModel, task: Task, identity: str) -> Episode:
    """Makes an episode of supervised training, with a task's right calls instead of samples.

    Args:
        system: The system, whose `right` returns the calls.
        model: The model, which decodes their ids.
        task: The task whose right calls are imitated.
        identity: The id of the episode.
    """
    from keepworth.records import Episode, FinishReason, RewardTerm, Segment, StopReason, VersionSpan

    assert system.right is not None
    segments = tuple(
        Segment(
            role=system.role,
            prompt_id="right",
            context=prompt,
            ids=ids,
            logprobs=(),  # nothing was drawn
            temperature=0.0,
            finish=FinishReason.STOP,
            spans=(VersionSpan(model.version, 0, len(ids)),),
            text=model.decode(ids),
        )
        for prompt, ids in system.right(model, task)
    )
    return Episode(
        id=identity,
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


def term_value(episode: Episode, name: str) -> float:
    """Returns the sum of an episode's reward terms of that name, 0 where there are none."""
    if name == EPISODE:
        return episode.reward
    if name == CALLS:
        return float(len(episode.segments))
    return sum(term.value for term in episode.rewards if term.name == name)


def make_tables(run: RunFolder, settings: Settings, system: System, remark: str = "") -> list[dict[str, Any]]:
    """Makes one table per set of test questions, from the run's measurements.

    Args:
        run: The folder with the measurements.
        settings: Those that the run was trained with.
        system: The system, which names the sets and the metrics.
        remark: A sentence that is added to the first table's note.
    """
    tables: list[dict[str, Any]] = []
    metric = next(iter(system.metrics.values()))
    signals = [row["signal_groups"] for row in run.metrics() if "signal_groups" in row]
    untaught = (
        ""
        if any(signals) or not signals
        else "Nothing was learned: in no step did the answers of a group differ in reward."
    )
    for name, measured in system.test.items():
        tested = [row for row in run.evals() if row.get("role") == system.role and row.get("split") == name]
        # The last measurement counts, where a finished run was given more steps.
        rows = list({(row["arm"], row["metric"]): row for row in tested}.values())
        firsts = {row["arm"]: row for row in rows if row["metric"] == metric}
        lost = "; ".join(f"{arm} {row['left_out']}" for arm, row in firsts.items() if row.get("left_out"))
        notes = (
            system.note,
            f"Seed {settings.seed}.",
            f"{remark}." if remark and not tables else "",
            untaught if not tables else "",
            f"Answers that could not be scored are left out: {lost}." if lost else "",
        )
        table: dict[str, Any] = {
            "title": name[:1].upper() + name[1:],
            "tier": measured.tier,
            "note": " ".join(filter(None, notes)),
            "rows": [{**row, "emphasis": row["arm"] == "trained"} for row in rows],
        }
        if {"trained", "untrained"} <= set(firsts):
            before, after = firsts["untrained"]["mean"], firsts["trained"]["mean"]
            table["headline"] = system.headline.format(metric=metric, test=name, before=before, after=after)
        tables.append(table)
    return tables
