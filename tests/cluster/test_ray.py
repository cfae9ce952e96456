"""Workers on a real Ray of two nodes on this machine. `make test-ray` has an environment for it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from keepworth.base.errors import KeepworthError
from keepworth.training.placement import WorkerDied, WorkerFailed, WorkerPart
from keepworth.training.ray import RayCluster, RayWorker  # imports Ray when it is used

pytest.importorskip("ray", reason="Ray is not installed: make test-ray")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

COUNTER = "tests.cluster.parts:Counter"


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    nodes.add_node(num_cpus=2, labels={"room": "judge"})
    yield nodes
    nodes.shutdown()


@pytest.fixture(scope="module")
def cluster(two_nodes: Any) -> Iterator[RayCluster]:
    made = RayCluster(two_nodes.address)
    yield made
    made.close()


@pytest.fixture
def counting(cluster: RayCluster) -> Iterator[RayWorker]:
    worker = cluster.spawn(WorkerPart(COUNTER, {"start": 5}), "worker 1")
    yield worker
    worker.close()


def test_calls_are_answered_and_errors_name_worker_and_host(counting: RayWorker) -> None:
    assert counting.call("add", 1).result() == 6
    assert (counting.call("array", np.arange(3)).result() == np.arange(3) * 2).all()
    with pytest.raises(WorkerFailed, match=r"worker 1 on .*: fails raised ValueError: no such house"):
        counting.call("fails", "no such house").result()
    assert counting.call("add", 1).result() == 7


def test_worker_that_cannot_start_names_the_reason(cluster: RayCluster) -> None:
    with pytest.raises(WorkerFailed, match=r"worker 2 on .*start = -1 is below 0"):
        cluster.spawn(WorkerPart(COUNTER, {"start": -1}), "worker 2")


def test_a_worker_that_is_killed_is_started_again_by_ray(counting: RayWorker) -> None:
    asked = counting.call("add", 1)
    asked.result()
    pid = counting.call("pid").result()
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(WorkerDied, match=r"worker 1 on .* died\. Ray says"):
        call_until_it_fails(counting)
    counting.restarted().result()
    assert counting.call("pid").result() != pid
    assert counting.call("add", 0).result() == 5  # made anew


def call_until_it_fails(worker: RayWorker) -> None:
    while True:
        worker.call("add", 0).result()


def test_closed_worker_refuses_calls(cluster: RayCluster) -> None:
    worker = cluster.spawn(WorkerPart(COUNTER), "worker 3")
    worker.close()
    worker.close()
    with pytest.raises(WorkerDied, match="was closed"):
        worker.call("add", 1).result()


def test_where_there_is_no_room_each_host_is_listed(two_nodes: Any, cluster: RayCluster) -> None:
    cluster = RayCluster(two_nodes.address, placing=5.0)
    with pytest.raises(
        KeepworthError, match=r"needs a core on a host with the label room=attic: .* has 2 cores.*room=judge"
    ) as caught:
        cluster.spawn(WorkerPart(COUNTER), "worker 4", "room=attic")
    assert "ray start --address" in caught.value.fix


def test_a_label_chooses_the_host(cluster: RayCluster) -> None:
    cluster.spawn(WorkerPart(COUNTER), "worker 4", "room=judge").close()


def test_an_address_without_a_ray_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    with pytest.raises(KeepworthError, match=r"There is no Ray at 127\.0\.0\.1:1"):
        RayCluster("127.0.0.1:1")
