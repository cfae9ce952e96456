"""Rollout workers for a recipe: what this process starts, and what a worker's process holds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keepworth.episodes.errors import KeepworthError
from keepworth.recipes.recipe import Origin

if TYPE_CHECKING:
    from keepworth.learning.collect.workers import Rollouts, RolloutWorkers
    from keepworth.learning.run_folder import RunFolder
    from keepworth.learning.watch.progress import Progress
    from keepworth.recipes.settings import TrainingSettings


@contextmanager
def workers_of(
    settings: TrainingSettings, origin: Origin | None, run: RunFolder, progress: Progress
) -> Iterator[RolloutWorkers | None]:
    """The workers that run a recipe's rollouts; None where this process does. At the end they are closed.

    Raises KeepworthError where a worker cannot make the recipe, and what `Cluster.spawn` raises."""
    if not settings.workers:
        yield None
        return
    from keepworth.cluster.ray import RayCluster
    from keepworth.learning.collect.workers import RolloutWorkers
    from keepworth.learning.placement import Needs, WorkerPart

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
        part = WorkerPart("keepworth.recipes.workers:make_worker", made_of)
        yield RolloutWorkers(cluster, part, settings.workers, progress.note, Needs(label=settings.worker_label))
    finally:
        cluster.close()


def refuse_workers(settings: TrainingSettings, why: str) -> None:
    """Raises KeepworthError where workers are set, in a recipe whose rollouts need something that no worker has."""
    if settings.workers:
        raise KeepworthError(
            f"workers = {settings.workers} cannot be: {why}.", "Leave workers out: rollouts then run in this process."
        )


def make_worker(origin: Mapping[str, Any], config: Mapping[str, Any], run: str, record: Mapping[str, Any]) -> Rollouts:
    """What the process of a worker holds: a recipe found by its name, with its model's text side.

    Args:
        origin: Where the recipe is found.
        config: How it is configured.
        run: The run's folder, in which a worker writes nothing.
        record: What else the run was begun with; files that are not the same here are refused.
    """
    from keepworth.learning.collect.workers import Rollouts
    from keepworth.learning.run_folder import RunFolder
    from keepworth.models.files import ModelKind, path_of
    from keepworth.models.text_side import TextSide
    from keepworth.recipes.front_door import made_of

    recipe = made_of(Origin(**origin))
    settings: Any = recipe.Config.model_validate(config)
    if recipe.given is not None and record:
        here = json.loads(json.dumps(recipe.given.record(settings)))
        if differ := sorted(name for name in record if record[name] != here.get(name)):
            raise KeepworthError(
                f"What the run was begun with is not the same here: {', '.join(differ)}.",
                "Every host needs the same files.",
            )
    name = str(config["model"])
    text = TextSide.load(path_of(name, kind=ModelKind.LANGUAGE), name)
    load = recipe.rollout(settings, RunFolder(Path(run)), text)
    return Rollouts(load.rollout, text, load.memory)
