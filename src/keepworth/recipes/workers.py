"""Rollout workers for a recipe: where it is found again in another process, and what cannot run in one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keepworth.episodes.errors import KeepworthError

if TYPE_CHECKING:
    from keepworth.learning.collect.workers import RolloutWorkers
    from keepworth.learning.placement import Cluster
    from keepworth.learning.run_folder import RunFolder
    from keepworth.learning.watch.progress import Progress
    from keepworth.recipes.settings import TrainingSettings


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a recipe was found, as it was written on a command line: a name or a file, or tasks and what goes with them."""

    recipe: str = ""
    tasks: str | None = None
    source: str | None = None
    kinds: str = ""
    reward: tuple[str, ...] = ()
    environment: str | None = None
    memory: str | None = None

    def anywhere(self) -> Origin:
        """The same for a process that was started in another folder."""
        return replace(
            self,
            recipe=_absolute(self.recipe) or "",
            tasks=_absolute(self.tasks),
            source=_absolute(self.source),
            reward=tuple(_absolute(each) or "" for each in self.reward),
            environment=_absolute(self.environment),
            memory=_absolute(self.memory),
        )


def _absolute(reference: str | None) -> str | None:
    """`FILE.py:NAME` and other files with the whole path; names of modules and of recipes as they are."""
    file, colon, name = (reference or "").partition(".py:")
    path = Path(f"{file}.py" if colon else file).expanduser()
    return f"{path.resolve()}{f':{name}' if colon else ''}" if reference and path.exists() else reference


@contextmanager
def workers_of(
    settings: TrainingSettings,
    origin: Origin | None,
    run: RunFolder,
    progress: Progress,
) -> Iterator[RolloutWorkers | None]:
    """The workers that run a recipe's rollouts; None where this process does. At the end they are closed.

    Raises KeepworthError where a worker cannot make the recipe, and what `Cluster.spawn` raises."""
    if not settings.workers:
        yield None
        return
    from keepworth.learning.collect.workers import RolloutWorkers
    from keepworth.learning.placement import Needs, WorkerPart

    progress.phase(f"starting {settings.workers} rollout workers")
    given = {**made_there(settings, origin, run), "run": str(run.path.resolve())}
    cluster = cluster_of(settings)
    try:
        part = WorkerPart("keepworth.recipes.rollout_worker:RolloutWorker", given)
        needs = Needs(label=settings.worker_label)
        yield RolloutWorkers(cluster, part, settings.workers, progress.note, needs)
    finally:
        cluster.close()


def made_there(settings: TrainingSettings, origin: Origin | None, run: RunFolder) -> dict[str, Any]:
    """What a recipe is made of in another process. Raises KeepworthError where it cannot be found there."""
    if origin is None:
        raise KeepworthError(
            f"workers = {settings.workers}: a worker makes the recipe anew in its own process, and this one "
            "was given as objects of Python.",
            "Put tasks, reward and environment into a file, and train that: keepworth train FILE.py. Or leave workers out.",
        )
    config = settings.model_dump(mode="json")
    record = {name: value for name, value in run.config.items() if name not in ("recipe", *config)}
    return {"origin": asdict(origin.anywhere()), "config": config, "record": record}


def cluster_of(settings: TrainingSettings) -> Cluster:
    from keepworth.cluster.ray import RayCluster

    return RayCluster(settings.ray_address)


def refuse_workers(settings: TrainingSettings, why: str) -> None:
    """Raises KeepworthError where workers are set, in a recipe whose rollouts need something that no worker has."""
    if settings.workers:
        raise KeepworthError(
            f"workers = {settings.workers} cannot be: {why}.", "Leave workers out: rollouts then run in this process."
        )
