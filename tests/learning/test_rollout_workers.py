"""Rollouts in other processes: the same episodes as here, whatever becomes of the processes meanwhile."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from keepworth.episodes import Episode, StopReason, Task
from keepworth.learning.collect.groups import CallLog, InGroup, RecordedContext, Terms, log_to_json, run_rollout
from keepworth.learning.collect.workers import DEATHS, EpisodeTry, RolloutWorkers
from keepworth.learning.placement import Cluster, WorkerFailed, WorkerPart
from tests.learning.apart import Playing
from tests.learning.loop_cluster import LoopCluster
from tests.learning.test_rollout_context import Counting

TASK = Task("source/1", "source", "go:", (), "none")
TERMS = Terms(run_seed=3, groups=2, seconds=20.0)
MEMBERS = 3


class Group:
    """Members that are run side by side, and begun again once where they fail, as the pipeline does."""

    def __init__(self, index: int, task: Task = TASK) -> None:
        self.index, self.task = index, task
        self.logs = [CallLog() for _ in range(MEMBERS)]
        self.done: dict[int, Episode] = {}
        self.failed: list[Episode] = []
        self.companions = InGroup(lambda: MEMBERS - len(self.done))

    async def run(self, sampler: Counting, here: Playing | None, workers: RolloutWorkers | None) -> list[Episode]:
        await asyncio.gather(*(self._member(each, sampler, here, workers) for each in range(MEMBERS)))
        if workers is not None:
            workers.done(self.index)
        return [self.done[each] for each in range(MEMBERS)]

    async def _member(
        self, member: int, sampler: Counting, here: Playing | None, workers: RolloutWorkers | None
    ) -> None:
        log = self.logs[member]
        while True:
            if here is not None:
                context = RecordedContext(sampler, log, self.index, member, TERMS, self.companions)
                episode = await run_rollout(here.rollout, self.task, context, 30.0)
            else:
                assert workers is not None
                attempt = EpisodeTry(self.task, self.index, member, log.tries, TERMS, 0, 30.0)
                episode = await workers.episode(attempt, log, self.companions, sampler)
            if episode.segments or log.tries:
                break
            self.failed.append(episode)
            log.entries.clear()
            log.tries += 1
        self.done[member] = episode
        self.companions.look()


async def listening(workers: RolloutWorkers, groups: list[Group], sampler: Counting) -> list[list[Episode]]:
    listens = asyncio.ensure_future(workers.listen())
    runs = asyncio.gather(*(each.run(sampler, None, workers) for each in groups))
    await asyncio.wait((listens, runs), return_when=asyncio.FIRST_COMPLETED)
    if listens.done():
        runs.cancel()
        listens.result()
    listens.cancel()
    return list(await runs)


def here(folder: Path, groups: list[Group]) -> list[list[Episode]]:
    async def run() -> list[list[Episode]]:
        playing = Playing(folder)
        return list(await asyncio.gather(*(each.run(Counting(), playing, None) for each in groups)))

    return asyncio.run(run())


@pytest.fixture(params=["a loop", "ray"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    made: Cluster = LoopCluster() if request.param == "a loop" else ray_here()
    yield made
    made.close()


@pytest.fixture
def ray_cluster() -> Iterator[Cluster]:
    made = ray_here()
    yield made
    made.close()


def ray_here() -> Cluster:
    pytest.importorskip("ray", reason="Ray is not installed: make test-ray")
    from keepworth.cluster.ray import RayCluster

    return RayCluster()


def folder(path: Path) -> Path:
    path.mkdir()
    return path


def logs(groups: list[Group]) -> list[Any]:
    return [log_to_json(log, 0) for group in groups for log in group.logs]


def called(path: Path) -> list[str]:
    return sorted((path / "called").read_text().splitlines())


def test_workers_run_the_same_episodes(cluster: Cluster, tmp_path: Path) -> None:
    require_alike(cluster, tmp_path, kill=False)


def test_a_worker_that_is_killed_loses_nothing(ray_cluster: Cluster, tmp_path: Path) -> None:
    (note,) = require_alike(ray_cluster, tmp_path, kill=True)
    assert "rollout worker" in note
    assert socket.gethostname() in note


def require_alike(cluster: Cluster, path: Path, kill: bool) -> list[str]:
    alone, apart = folder(path / "alone"), folder(path / "apart")
    tasks = [TASK, replace(TASK, key="source/2", tags={"fails": "1"})]
    first, second = ([Group(number, task) for number, task in enumerate(tasks)] for _ in range(2))
    expected = here(alone, first)
    notes: list[str] = []
    sampler = Counting()
    if kill:
        (apart / "kill-2").touch()
    part = WorkerPart("tests.learning.apart:Worker", {"folder": str(apart)})
    workers = RolloutWorkers(cluster, part, 2, notes.append)
    found = asyncio.run(listening(workers, second, sampler))
    assert found == expected
    assert [each.errors for group in second for each in group.failed] == [
        each.errors for group in first for each in group.failed
    ]
    assert "no such door" in second[1].failed[0].errors[0]
    assert logs(second) == logs(first)  # nothing was drawn twice
    assert sampler.drawn == sum(8 for _ in range(2 * MEMBERS)) + 4  # and of the failed try only its first call
    # What the call log holds was not asked for again; only what is shared was made again, in the new process.
    assert [each for each in called(apart) if each != "shared"] == [each for each in called(alone) if each != "shared"]
    return notes


def test_a_group_at_which_every_worker_dies_fails_and_the_others_go_on(ray_cluster: Cluster, tmp_path: Path) -> None:
    apart = folder(tmp_path / "apart")
    notes: list[str] = []
    part = WorkerPart("tests.learning.apart:Fatal", {"folder": str(apart)})
    workers = RolloutWorkers(ray_cluster, part, 1, notes.append)
    group = Group(0)
    (episodes,) = asyncio.run(listening(workers, [group], Counting()))
    assert {each.stop for each in episodes} == {StopReason.ENVIRONMENT_ERROR}
    assert f"{DEATHS} workers died at group 0" in episodes[0].errors[0]
    assert len(notes) >= DEATHS


def test_what_breaks_in_a_worker_beside_the_rollout_ends_the_run(cluster: Cluster, tmp_path: Path) -> None:
    part = WorkerPart("tests.learning.apart:Broken", {"folder": str(tmp_path)})
    workers = RolloutWorkers(cluster, part, 1, lambda note: None)
    with pytest.raises(WorkerFailed, match=r"rollout worker 1 on .*TypeError"):
        asyncio.run(listening(workers, [Group(0)], Counting()))


def test_a_worker_loads_neither_torch_nor_weights(ray_cluster: Cluster, tmp_path: Path) -> None:
    part = WorkerPart("tests.learning.apart:Worker", {"folder": str(tmp_path)})
    worker = ray_cluster.spawn(part, "rollout worker 1")
    assert worker.call("has_loaded", "torch").result() is False
    assert "torch" in sys.modules
