"""Functions that recipes share to train weights: they prepare the model and the learner, train a role, and store its weights."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from keepworth.base.errors import KeepworthError, called_as
from keepworth.models.adapter import Named, attach_lora, copy_adapter, is_tied, load_trained, save_trained, unfreeze
from keepworth.models.attention import round_up
from keepworth.models.inprocess import InProcessModel, Precision
from keepworth.models.threads import faster_type, settle_threads
from keepworth.records.episode import Episode, Task
from keepworth.records.model import SamplingParams, Tokens
from keepworth.training.collect.asynchrony import Asynchrony, Staleness, synchronous
from keepworth.training.collect.curriculum import batch
from keepworth.training.collect.pipeline import Episodes, Pipeline
from keepworth.training.critic import CriticSettings
from keepworth.training.hooks import NO_HOOKS, Hooks
from keepworth.training.learner import Learner, Optimisation
from keepworth.training.objective.inputs import idle_clip
from keepworth.training.objective.options import Objective
from keepworth.training.objective.parts import EntropyBonus
from keepworth.training.objective.presets import vary_objective
from keepworth.training.passes import PassRoom
from keepworth.training.placement import WorkerPart
from keepworth.training.run_folder import RunFolder, is_run
from keepworth.training.settings import (
    KEY,
    TrainingSettings,
    WarmStarted,
    is_supervised,
    objective_of,
    require_objective,
    sets_entropy,
)
from keepworth.training.shares import Shares
from keepworth.training.trained import Trained, find_trained
from keepworth.training.trainer import train as train_steps
from keepworth.training.watch.progress import Progress
from keepworth.worlds.driver import RolloutContext

if TYPE_CHECKING:
    from keepworth.models.http_engine import HttpModel
    from keepworth.training.collect.workers import RolloutWorkers
    from keepworth.training.recipe import Origin
    from keepworth.training.system import Pair


class RecipeEpisodes(Episodes, Protocol):
    """The episodes that a role is trained on, with measurements before and after training."""

    def rollout(self, task: Task, context: RolloutContext) -> Awaitable[Episode]: ...

    def begin(self, learner: Learner) -> None:
        """Is called once the model is loaded. Does the work before the first step, which is done where `trainer.restore` finds a
        checkpoint."""
        return

    def end(self, step: int) -> None:
        """Is called after the last step. Measures the trained model."""
        return


def train_role(
    settings: Any,
    run: RunFolder,
    progress: Progress,
    make: Callable[[InProcessModel], RecipeEpisodes],
    *,
    role: str,
    title: str,
    length_budget: int,
    row_budget: int,
    seconds: float = 3600.0,
    optional: frozenset[str] = frozenset(),
    origin: Origin | None = None,
    hooks: Hooks = NO_HOOKS,
) -> str:
    """Trains a role as its settings say, stores its weights, and returns a remark for the readers of its tables, or "". Called
    again on the same folder, it continues where it stopped.

    Raises KeepworthError for what cannot work, before anything slow where possible.

    Args:
        settings: The recipe's settings, with `schedule_of_steps`.
        run: The folder of the run.
        progress: It is told what happens.
        make: Makes the episodes from the loaded model.
        role: The role whose calls are trained.
        title: What the progress calls the training.
        length_budget, row_budget, optional, hooks: As in `System`.
        seconds: The longest that an episode may take.
        origin: Where workers find the recipe.
    """
    from keepworth.base.model_files import ModelKind, path_of

    objective = objective_of(settings)
    if objective.needs_length_budget and objective.length_budget is None:
        objective = vary_objective(objective, length_budget=length_budget)
    require_objective(objective, settings, settings.holds)
    with called_as("Hooks"):
        hooks.require(settings, objective)
    require_room(settings, row_budget)
    find_start(settings)
    progress.phase(f"looking for {settings.model}")
    path_of(settings.model, kind=ModelKind.LANGUAGE)
    with (
        engines_of(settings, run, progress) as engines,
        workers_of(settings, origin, run, progress) as workers,
        prepare_learner(settings, objective, role, run, progress, hooks) as (model, learner),
    ):
        model.watch = progress.done
        episodes = make(model)
        episodes.begin(learner)
        supervised = is_supervised(settings)
        size = 1 if supervised else settings.group_size
        valued = objective.advantage.sources(learner, episodes, size, settings.seed)
        collector = Pipeline(
            run,
            learner,
            episodes,
            _asynchrony(settings, size, seconds),
            engines,
            workers,
            refill=settings.refill,
            regroup=hooks.regrouping(run.path),
            group_rollout=hooks.group_rollout,
            sources=(*valued, *hooks.sources),
        )
        ended = train_steps(run, learner, collector, settings.schedule_of_steps, progress, title, optional, supervised)
        episodes.end(ended)
        with run.writing_weights(learner.role) as folder:
            save_trained(model, learner.master_weights.named, folder)
    return idle_clip(objective, settings.passes, settings.minibatches)


def load_model(config: TrainingSettings, progress: Progress, precision: str = "") -> InProcessModel:
    """Loads the configured model, which is fetched on first use.

    Args:
        config: The settings, which name the model.
        progress: It is told what happens.
        precision: The dtype, which overrides the configured one; "auto" takes the faster one on this machine, and "" the
            configured one.
    """
    from keepworth.base.model_files import ModelKind, path_of

    progress.phase(f"loading {config.model}")
    folder = path_of(config.model, kind=ModelKind.LANGUAGE)
    wanted = precision or config.precision
    chosen = faster_type() if wanted == "auto" else cast(Precision, wanted)
    return InProcessModel.load(folder, name=config.model, precision=chosen)


def settle_model(config: TrainingSettings, run: RunFolder, progress: Progress) -> InProcessModel:
    """Loads the configured model and sets torch's threads: as configured, as the run began, or all cores. Both are recorded, so
    that a run that is continued computes as it began.

    Args:
        config: The settings, which name the model.
        run: The run, which keeps threads and precision.
        progress: It is told what happens.
    """
    then = run.environment
    model = load_model(config, progress, str(then.get("precision", "")))
    threads = settle_threads(model, config.threads or int(then.get("threads", 0)))
    run.record_environment(threads=threads, precision=model.precision, model=config.model)
    return model


@contextmanager
def prepare_learner(
    config: TrainingSettings,
    objective: Objective,
    role: str,
    run: RunFolder,
    progress: Progress,
    hooks: Hooks = NO_HOOKS,
) -> Iterator[tuple[InProcessModel, Learner]]:
    """Yields a model with its trainable part, and its learner, which leads further learners where there are several. The further
    learners, and their part of the cluster, end with the block. For threads and precision see `settle_model`.

    Args:
        config: The settings.
        objective: What is optimised.
        role: The role that the learner trains.
        run: The folder of the run.
        progress: It is told what happens.
        hooks: The recipe's functions inside an update; none by default.
    """
    model = settle_model(config, run, progress)
    named = trainable(model, config)
    if config.train_embeddings and is_tied(model):
        progress.note(f"The head of {config.model} is its embeddings (they are tied): one is trained with the other.")
    if config.entropy and not sets_entropy(config):
        objective = vary_objective(objective, entropy=EntropyBonus(config.entropy))
    if idle := idle_clip(objective, config.passes, config.minibatches):
        progress.note(f"{idle}.")
    shared = _learner_settings(config, objective, role, hooks)
    made: dict[str, Any] = {
        **shared,
        "teacher": teacher_of(config, run, role, progress) if objective.teacher is not None else None,
        "soft_values": {} if objective.needs_soft_values else None,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the learner says the same
        if config.learners == 1:
            learner = Learner(model, named, **made)
        else:
            from keepworth.training.learner_group import LeadingLearner

            settings = {name: getattr(config, name) for name in TrainingSettings.model_fields}
            others = {"settings": settings, "precision": model.precision, **shared}
            part = WorkerPart("keepworth.training.run:follower", others)
            learner = LeadingLearner(model, named, **made, count=config.learners, part=part)
    try:
        yield model, learner
    finally:
        learner.close()


def _learner_settings(config: TrainingSettings, objective: Objective, role: str, hooks: Hooks) -> dict[str, Any]:
    """Returns the arguments that all learners of a group are made with. Settings of optimiser and critic have the names of their
    fields."""
    optimisation = {
        setting.name: getattr(config, setting.name) for setting in fields(Optimisation) if hasattr(config, setting.name)
    }
    critic = {
        name: getattr(config, f"critic_{name}") for name in ("learning_rate", "rank", "warmup", "frozen", "replay")
    }
    return {
        "objective": objective,
        "optimisation": Optimisation(**optimisation | {"steps": config.steps or 0}),
        "role": role,
        "critic": CriticSettings(**critic, seed=config.seed) if objective.needs_critic else None,
        "roles": hooks.roles,
        "mixture": hooks.mixture,
    }


def follower(settings: Mapping[str, Any], precision: str, shares: Shares, **made: Any) -> Learner:
    """Makes one of the further learners, in its own process.

    Args:
        settings: Those of `TrainingSettings`, whatever else the recipe has.
        precision: The dtype of the first learner's model.
        shares: What joins the numbers of all learners.
        made: What all learners are made with: further arguments of `Learner`.
    """
    config = TrainingSettings.model_construct(**settings)
    model = load_model(config, Progress(), precision)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the first learner has raised them
        return Learner(model, trainable(model, config), **made, shares=shares)


def trainable(model: InProcessModel, config: TrainingSettings) -> Named:
    """Makes the part of a freshly loaded model trainable that `config` names, with the values of the run that it begins from, and
    returns its tensors. Raises KeepworthError where that run has not finished, or trained another part."""
    start = find_start(config)
    if config.train == "lora":
        named = attach_lora(
            model,
            config.rank,
            config.alpha,
            config.seed,
            targets=config.lora_targets,
            embeddings=config.train_embeddings,
        )
        if start is not None:
            copy_adapter(model, start.weights)
        return named
    if start is not None:
        load_trained(model, start.weights)
    return unfreeze(model, embeddings=config.train_embeddings)


def find_start(config: TrainingSettings) -> Trained | None:
    """Returns the weights that a training begins with; None for those of its model. Raises KeepworthError where the run that has
    them is not there, has not finished, or trained another model or another part of it."""
    if not config.start:
        return None
    trained = find_trained(RunFolder.open(Path(config.start)))
    part = "lora" if trained.is_adapter else "full"
    if trained.model != config.model or part != config.train:
        raise KeepworthError(
            f"{config.start} trained {trained.model} with train = {part}, and this run trains {config.model} with train = "
            f"{config.train}.",
            "Set model and train as they are there, or export that run and give its folder as the model.",
        )
    return trained


def teacher_of(config: TrainingSettings, run: RunFolder, role: str, progress: Progress) -> InProcessModel:
    """Loads the frozen model that `config.teacher` names: a finished run next to this one or at that path, with its weights, or
    else a model. Raises KeepworthError where the run has not finished this role.

    Args:
        config: The settings.
        run: This run, whose model is loaded already: the teacher gets its precision.
        role: The role whose weights are taken, where the teacher is a run.
        progress: It is told what happens.
    """
    sibling = run.path.parent / config.teacher
    folder = next((path for path in (Path(config.teacher), sibling) if is_run(path)), None)
    precision = cast(Precision, run.environment["precision"])  # this run's model is loaded before its teacher
    if folder is None:
        return load_model(config.model_copy(update={"model": config.teacher}), progress, precision)
    progress.phase(f"loading {config.teacher}")
    return find_trained(RunFolder.open(folder), role).loaded(precision)


def require_room(config: TrainingSettings, row_budget: int) -> None:
    """Raises BudgetTooSmall, before anything is loaded, where the longest possible answer exceeds the budget of a pass.

    `row_budget` is the most tokens that one row can draw. The size of a recomputed pass is known only once the network is loaded,
    so the learner checks that."""
    assert config.token_budget is not None
    shortest_prompt = 16
    room = PassRoom(config.token_budget, config.checkpointing)
    if config.checkpointing == "off" and not room.fits(1, shortest_prompt, round_up(row_budget, 16), recompute=False):
        raise room.refusal(shortest_prompt, row_budget)


RAMP = 5
"""Batches over which the learning rate of a warm start rises, because its first gradients are the largest."""


def imitate_first(
    learner: Learner, batches: Sequence[Sequence[tuple[Tokens, Tokens]]], rate: float, progress: Progress, title: str
) -> None:
    """Trains on (prompt, completion) pairs before reinforcement, then resets the optimiser's moments. Raises KeepworthError
    where it diverges; nothing of it is saved then.

    Args:
        learner: The learner, whose weights change.
        batches: The pairs of each step.
        rate: The learning rate, which the first steps approach in equal parts.
        progress: It is told of each step.
        title: What the progress calls it.
    """
    progress.start(len(batches), title)
    for number, pairs in enumerate(batches):
        try:
            learned = learner.imitate(pairs, rate * min(1.0, (number + 1) / RAMP))
        except FloatingPointError as error:
            # A FloatingPointError would tell the caller that the weights of the step before are saved.
            reason = error.message if isinstance(error, KeepworthError) else str(error)
            raise KeepworthError(
                f"The warm start diverged at its step {number + 1} of {len(batches)} ({reason.rstrip('.')}). "
                "Nothing that it learned is saved.",
                f"Lower warm_start_learning_rate (it is {rate}), with another --name.",
            ) from error
        progress.step(number + 1, learned)
    learner.forget_moments()


def batches_of_calls(
    config: WarmStarted, tasks: Sequence[Task], right: Callable[[Task], list[Pair]], calls: int
) -> list[list[Pair]]:
    """Returns the batches that a warm start imitates.

    Args:
        config: The number of batches, their size and the seed.
        tasks: The tasks that are drawn from.
        right: It returns the right calls of a task, as (prompt, completion).
        calls: The number of calls that `right` returns for each task.
    """
    size, wanted = config.warm_start_batch, config.warm_start * config.warm_start_batch
    drawn = batch(tasks, -(-wanted // calls), 0, config.seed)
    pairs = [pair for task in drawn for pair in right(task)]
    return [pairs[start : start + size] for start in range(0, wanted, size)]


def _asynchrony(settings: TrainingSettings, size: int, episode_seconds: float) -> Asynchrony:
    """Returns the settings of sampling, with `size` members in each group."""
    groups = settings.groups_per_update
    if settings.sampling == "synchronous":
        return synchronous(groups, size, seed=settings.seed)
    return Asynchrony(
        Staleness(groups, settings.max_staleness, settings.pipeline_depth),
        size,
        mode=settings.sampling,
        slots=settings.slots,
        seed=settings.seed,
        episode_seconds=episode_seconds,
    )


# Rollout workers, as this process starts them; `front_door.make_worker` makes the object in each.


@contextmanager
def workers_of(
    settings: TrainingSettings, origin: Origin | None, run: RunFolder, progress: Progress
) -> Iterator[RolloutWorkers | None]:
    """Yields the workers that run a recipe's rollouts, None where this process does, and closes them at the end. Raises
    KeepworthError where a worker cannot make the recipe, and what `Cluster.spawn` raises.

    Args:
        settings: The number of workers and where they run.
        origin: Where a worker finds the recipe; None is refused where there are workers.
        run: The folder of the run, which workers read.
        progress: It is told what happens.
    """
    if not settings.workers:
        yield None
        return
    from keepworth.training.collect.workers import RolloutWorkers
    from keepworth.training.ray import RayCluster

    progress.phase(f"starting {settings.workers} rollout workers")
    if origin is None:
        raise KeepworthError(
            f"workers = {settings.workers}: a worker makes the recipe anew in its own process, and this one "
            "was given as objects of Python.",
            "Put tasks, reward and environment into a file, and train that: keepworth train FILE.py. Or leave workers out.",
        )
    config = settings.model_dump(mode="json")
    record = {name: value for name, value in run.config.items() if name not in ("recipe", *config)}
    folder = str(run.path.resolve())
    made_of = {"origin": asdict(origin.anywhere()), "config": config, "record": record, "run": folder}
    cluster = RayCluster(settings.ray_address)
    try:
        part = WorkerPart("keepworth.training.front_door:make_worker", made_of)
        yield RolloutWorkers(cluster, part, settings.workers, progress.note, settings.worker_label)
    finally:
        cluster.close()


# The engines that a recipe samples from, where its settings name any. They are checked before anything slow is loaded.


@contextmanager
def engines_of(settings: TrainingSettings, run: RunFolder, progress: Progress) -> Iterator[tuple[HttpModel, ...]]:
    """Yields the engines to sample from, an empty tuple where this process samples. At the end the published adapters are
    unloaded.

    Raises EngineUnreachable, MissingCapability where an engine takes no adapters, UnknownName or EngineError where one serves
    another model, and whatever else `HttpModel.connect` raises.

    Args:
        settings: The addresses of the engines, and what is trained.
        run: The run, which names the published adapters.
        progress: It is told what happens.
    """
    if not settings.engine_urls:
        yield ()
        return
    if settings.train == "full":
        raise KeepworthError(
            "Engines are sent adapters, and train = full trains all weights.", "Set train = lora, or no engine."
        )
    from keepworth.base.model_files import ModelKind, path_of
    from keepworth.models.http_engine import HttpModel, require_alike

    with ExitStack() as connections:
        engines = []
        for url in settings.engine_urls:
            progress.phase(f"asking the engine at {url} what it can do")
            engine = HttpModel.connect(
                url,
                path_of(settings.model, kind=ModelKind.LANGUAGE),
                model=settings.engine_model,
                adapters=True,
                max_staleness=settings.max_staleness,
                api_key=os.environ.get(KEY) or None,
                concurrency=max(8, settings.slots),
            )
            engines.append(connections.enter_context(engine))
            if settings.temperature != 1:  # raises where the engine's log-probabilities are of another temperature
                engine.sample([engine.encode("The")], SamplingParams(1, temperature=settings.temperature))
        require_alike(engines)
        run.record_environment(
            engine="; ".join(f"{engine.name} at {engine.url} ({engine.software})" for engine in engines)
        )
        try:
            yield tuple(engines)
        finally:
            _unload(engines)


def _unload(engines: Sequence[HttpModel]) -> None:
    """Unloads the adapters at all engines at once, and waits for 60 seconds at most, because an engine may be gone and never
    answer."""
    threads = [threading.Thread(target=engine.unload, daemon=True, name=f"unload {engine.url}") for engine in engines]
    for thread in threads:
        thread.start()
    ends = time.monotonic() + 60.0
    for thread in threads:
        thread.join(max(0.0, ends - time.monotonic()))


def finish(run: RunFolder, tables: Sequence[Mapping[str, Any]], **more: Any) -> None:
    """Writes the result of a run.

    Args:
        run: The folder of the run.
        tables: The tables of the report. The headline of the first is the run's.
        more: Further facts that the result keeps.
    """
    run.write_result({"headline": tables[0].get("headline", "") if tables else "", "tables": list(tables), **more})
