"""Rollouts in other processes: the same episodes as here, whatever becomes of the processes meanwhile."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from keepworth.records import Episode, StopReason, Task
from keepworth.training.collect.groups import OpenGroup, run_member
from keepworth.training.collect.workers import DEATHS, RolloutWorkers
from keepworth.training.placement import Cluster, WorkerFailed, WorkerPart
from tests.learning.apart import Playing
from tests.learning.letters import settings
from tests.learning.loop_cluster import LoopCluster
from tests.learning.test_rollout_context import Counting

TASK = Task("source/1", "source", "go:", (), "none")
TERMS = settings(seed=3, groups=2, episode_seconds=30.0)
MEMBERS = 3


def groups() -> list[OpenGroup]:
    """Of two tasks; a member of the second fails at its first try."""
    tasks = [TASK, replace(TASK, key="source/2", tags={"fails": "1"})]
    return [OpenGroup(number, 0, task, MEMBERS) for number, task in enumerate(tasks)]


def episodes(group: OpenGroup) -> list[Episode]:
    return [group.done[member] for member in range(MEMBERS)]


def run_apart(workers: RolloutWorkers, played: list[OpenGroup], sampler: Counting) -> list[Episode]:
    """Run the groups in workers; returns the tries that failed."""
    failed: list[Episode] = []

    async def run() -> None:
        listens = asyncio.ensure_future(workers.listen())
        runs = asyncio.gather(*(workers.run_group(each, TERMS, 0, sampler.sample, failed.append) for each in played))
        await asyncio.wait((listens, runs), return_when=asyncio.FIRST_COMPLETED)
        if listens.done():
            runs.cancel()
            listens.result()
        listens.cancel()
        await runs

    asyncio.run(run())
    return failed


def run_here(folder: Path, played: list[OpenGroup]) -> list[Episode]:
    failed: list[Episode] = []

    async def run() -> None:
        rollout, sampler = Playing(folder).rollout, Counting()
        await asyncio.gather(
            *(
                run_member(each, i, rollout, sampler.sample, TERMS, failed.append)
                for each in played
                for i in range(MEMBERS)
            )
        )

    asyncio.run(run())
    return failed


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
    from keepworth.training.ray import RayCluster

    return RayCluster()


def test_workers_run_the_same_episodes(cluster: Cluster, tmp_path: Path) -> None:
    assert require_alike(cluster, tmp_path, kill=False) == []


def test_the_groups_of_a_worker_that_is_killed_begin_again(ray_cluster: Cluster, tmp_path: Path) -> None:
    (note,) = require_alike(ray_cluster, tmp_path, kill=True)
    assert "rollout worker" in note
    assert socket.gethostname() in note


def require_alike(cluster: Cluster, path: Path, kill: bool) -> list[str]:
    (path / "alone").mkdir()
    (path / "apart").mkdir()
    first, second = groups(), groups()
    failed_here = run_here(path / "alone", first)
    notes: list[str] = []
    if kill:
        (path / "apart" / "kill-2").touch()
    part = WorkerPart("tests.learning.apart:Worker", {"folder": str(path / "apart")})
    failed = run_apart(RolloutWorkers(cluster, part, 2, notes.append), second, Counting())
    assert list(map(episodes, second)) == list(map(episodes, first))
    assert "no such door" in failed[-1].errors[0]
    assert {each.errors for each in failed} == {each.errors for each in failed_here}
    return notes


def test_a_group_at_which_every_worker_dies_fails_and_the_others_go_on(ray_cluster: Cluster, tmp_path: Path) -> None:
    notes: list[str] = []
    part = WorkerPart("tests.learning.apart:Fatal", {"folder": str(tmp_path)})
    group = OpenGroup(0, 0, TASK, MEMBERS)
    run_apart(RolloutWorkers(ray_cluster, part, 1, notes.append), [group], Counting())
    assert {episode.stop for episode in episodes(group)} == {StopReason.ENVIRONMENT_ERROR}
    assert f"{DEATHS} workers died at group 0" in episodes(group)[0].errors[0]
    assert len(notes) >= DEATHS


def test_worker_failure_outside_a_rollout_ends_the_run(cluster: Cluster, tmp_path: Path) -> None:
    part = WorkerPart("tests.learning.apart:Broken", {"folder": str(tmp_path)})
    workers = RolloutWorkers(cluster, part, 1, lambda note: None)
    with pytest.raises(WorkerFailed, match=r"rollout worker 1 on .*TypeError"):
        run_apart(workers, [OpenGroup(0, 0, TASK, MEMBERS)], Counting())


def test_rollout_worker_does_not_load_torch(ray_cluster: Cluster, tmp_path: Path) -> None:
    part = WorkerPart("tests.learning.apart:Worker", {"folder": str(tmp_path)})
    worker = ray_cluster.spawn(part, "rollout worker 1")
    assert worker.call("has_loaded", "torch").result() is False
    assert "torch" in sys.modules
