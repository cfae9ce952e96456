"""Rollout workers for a recipe, as this process starts them; what each holds is made by `front_door.make_worker`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from keepworth.episodes.errors import KeepworthError

if TYPE_CHECKING:
    from keepworth.learning.collect.workers import RolloutWorkers
    from keepworth.learning.run_folder import RunFolder
    from keepworth.learning.watch.progress import Progress
    from keepworth.recipes.recipe import Origin
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
        part = WorkerPart("keepworth.recipes.front_door:make_worker", made_of)
        yield RolloutWorkers(cluster, part, settings.workers, progress.note, Needs(label=settings.worker_label))
    finally:
        cluster.close()


def refuse_workers(settings: TrainingSettings, why: str) -> None:
    """Raises KeepworthError where workers are set, in a recipe whose rollouts need something that no worker has."""
    if settings.workers:
        raise KeepworthError(
            f"workers = {settings.workers} cannot be: {why}.", "Leave workers out: rollouts then run in this process."
        )
