"""Workers on a real Ray of two nodes on this machine. `make test-ray` has an environment for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from typing import Any

import numpy as np
import pytest

from keepworth.cluster.ray import RayCluster, RayWorker  # imports Ray when it is used
from keepworth.episodes.clocks import ClockDiffers
from keepworth.episodes.errors import KeepworthError
from keepworth.learning.placement import CannotPlace, Needs, Part, WorkerDied, WorkerFailed
from tests.cluster.test_local import gone

pytest.importorskip("ray", reason="Ray is not installed: make test-ray")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

COUNTER = "tests.cluster.parts:Counter"


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    nodes.add_node(num_cpus=2)
    yield nodes
    nodes.shutdown()


@pytest.fixture(scope="module")
def cluster(two_nodes: Any) -> Iterator[RayCluster]:
    made = RayCluster(two_nodes.address)
    yield made
    made.close()


@pytest.fixture(scope="module")
def counting(cluster: RayCluster) -> RayWorker:
    return cluster.spawn(Part(COUNTER, {"start": 5}), "worker 1")


def test_calls_are_answered_in_order_and_errors_name_worker_and_host(counting: RayWorker) -> None:
    before = counting.call("add", 0).result()
    answers = [counting.call("add", 1) for _ in range(50)]
    assert [each.result() for each in answers] == [before + number for number in range(1, 51)]
    with pytest.raises(WorkerFailed, match=r"worker 1 on .*: fails raised ValueError: no such house") as caught:
        counting.call("fails", "no such house").result()
    assert counting.host in str(caught.value)
    assert "in fails" in str(caught.value.__cause__)


def test_arrays_travel_and_what_cannot_be_sent_is_named(counting: RayWorker) -> None:
    sent = np.arange(3_000_000, dtype=np.float64)
    assert np.array_equal(counting.call("array", sent).result(), sent * 2)
    with pytest.raises(KeepworthError, match=r"worker 1\.add: argument 2 is function and cannot be sent"):
        counting.call("add", 1, lambda: 0)
    with pytest.raises(WorkerFailed, match="worker 1 on"):
        counting.call("closure").result()
    assert counting.call("add", 0).result() >= 5


def test_a_call_that_comes_again_is_not_done_again(counting: RayWorker) -> None:
    """What is sent anew after a moment out of reach has the number that it had."""
    before = counting.call("add", 1).result()
    with counting._lock:
        number = counting._number
        counting._number += 1
        counting._unanswered[number] = Future()
    import ray

    asked = [counting._actor.call.remote(number, number, "add", 1) for _ in range(3)]
    assert ray.get(asked) == [before + 1] * 3
    counting._unanswered.pop(number)
    assert counting.call("add", 0).result() == before + 1


class AtOnce:
    """An actor whose answers are there before anybody can ask to be told of them."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    @property
    def call(self) -> AtOnce:
        return self

    def remote(self, *given: Any) -> AtOnce:
        self._answer = self._actor.call.remote(*given).future()
        return self

    def __getattr__(self, name: str) -> Any:  # signs of life are asked for meanwhile
        return getattr(self._actor, name)

    def future(self) -> Future[Any]:
        wait([self._answer])
        return self._answer


def test_an_answer_that_is_there_at_once_holds_nobody_up(counting: RayWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    before = counting.call("add", 0).result()
    with monkeypatch.context() as patched:
        patched.setattr(counting, "_actor", AtOnce(counting._actor))
        found = list[Future[Any]]()
        asking = threading.Thread(target=lambda: found.append(counting.call("add", 1)), daemon=True)
        asking.start()
        asking.join(30)
        assert found, "the call waits for itself"
    assert found[0].result(30) == before + 1
    assert counting.call("add", 0).result() == before + 1


def test_calls_that_are_coroutines_go_on_beside_the_others(cluster: RayCluster) -> None:
    worker = cluster.spawn(Part("tests.cluster.parts:Waits"), "worker 2")
    waits = worker.call("until")
    assert worker.call("comes").result() is None
    assert waits.result(timeout=60) == "it came"
    with pytest.raises(WorkerFailed, match="ValueError: beside"):
        worker.call("fails").result()
    worker.close()
    with pytest.raises(WorkerDied, match=r"worker 2 on .* was closed"):
        worker.call("comes").result()


def test_what_cannot_be_made_or_placed_says_why_and_what_there_is(cluster: RayCluster) -> None:
    with pytest.raises(WorkerFailed, match=r"worker 3 on .*ValueError: start = -1 is below 0"):
        cluster.spawn(Part(COUNTER, {"start": -1}), "worker 3")
    begun = time.monotonic()
    with pytest.raises(
        CannotPlace, match=r"no place for worker 3, which needs 64 cores and 0 GPUs: .*2 cores"
    ) as caught:
        cluster.spawn(Part(COUNTER), "worker 3", Needs(cores=64))
    assert all(host in str(caught.value) for host in cluster.hosts())
    with pytest.raises(CannotPlace, match="needs 1 cores and 1 GPUs"):
        cluster.spawn(Part(COUNTER), "worker 3", Needs(gpus=1))
    assert time.monotonic() - begun < 20  # it does not wait for what will never be there


def test_an_actor_that_does_not_come_is_not_waited_for(cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keepworth.cluster.ray.STANDING", 0.001)  # no process begins as fast
    with pytest.raises(WorkerDied, match=r"worker 3 was placed, and not there in 0\.001 seconds\."):
        cluster.spawn(Part(COUNTER), "worker 3")


def test_a_clock_that_differs_is_named(two_nodes: Any, cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 60.0)
    with pytest.warns(ClockDiffers, match="the clock of .* is 0:0[01]:.. behind this machine's") as warned:
        RayCluster(two_nodes.address).close()
    assert len({str(each.message) for each in warned}) == 2  # a node each


def test_workers_apart_are_on_different_nodes(cluster: RayCluster) -> None:
    both = [cluster.spawn(Part(COUNTER), f"learner {number}", Needs(apart="learners")) for number in (1, 2)]
    assert len({each.node for each in both}) == 2
    assert len({each.host for each in both}) == 2
    with pytest.raises(CannotPlace, match="on another host than learner 1, learner 2"):
        cluster.spawn(Part(COUNTER), "learner 3", Needs(apart="learners"))
    for each in both:
        each.close()


def test_a_killed_worker_is_noticed_and_what_it_took_is_free_again(cluster: RayCluster) -> None:
    for _ in range(5):  # more than there are cores
        worker = cluster.spawn(Part(COUNTER), "learner 2")
        waits = worker.call("slowly", 600.0)
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(WorkerDied, match=r"learner 2 on .* died\. Ray says: ") as caught:
            waits.result(timeout=60)
        assert worker.host in str(caught.value)
        assert not worker.alive
        with pytest.raises(WorkerDied, match="learner 2"):
            worker.call("add", 1).result()


def test_a_worker_that_hangs_counts_as_dead_and_one_that_takes_its_time_does_not(two_nodes: Any) -> None:
    cluster = RayCluster(two_nodes.address, silence=2.0)
    hangs = cluster.spawn(Part(COUNTER), "learner 2")
    slow = cluster.spawn(Part("tests.cluster.parts:Waits"), "worker 2")
    took, waiting = slow.call("blocks", 8.0), hangs.call("slowly", 600.0)
    os.kill(hangs.pid, signal.SIGSTOP)
    with pytest.raises(WorkerDied, match=r"learner 2 on .* gave no sign of life for 2 s, and was ended") as caught:
        waiting.result(timeout=60)
    assert hangs.host in str(caught.value)
    assert "logs of Ray" in caught.value.fix
    with pytest.raises(WorkerDied, match=r"learner 2 on .* gave no sign of life"):
        hangs.call("add", 1).result()
    assert not hangs.alive
    assert gone(hangs.pid, within=60.0)
    assert took.result(timeout=60) == 8.0  # also where it holds up what goes on beside it
    cluster.close()


def test_a_killed_raylet_takes_its_workers_with_it_and_the_message_names_the_node(
    two_nodes: Any, cluster: RayCluster
) -> None:
    third = two_nodes.add_node(num_cpus=3)
    worker = cluster.spawn(Part(COUNTER), "learner 2", Needs(cores=3))
    waits = worker.call("slowly", 600.0)
    two_nodes.remove_node(third, allow_graceful=False)
    with pytest.raises(WorkerDied, match="learner 2 on") as caught:
        waits.result(timeout=120)
    assert worker.host in str(caught.value)
    with pytest.raises(CannotPlace, match="3 cores"):
        cluster.spawn(Part(COUNTER), "learner 2", Needs(cores=3))


def test_there_is_no_ray_there() -> None:
    code = "from keepworth.cluster.ray import RayCluster; RayCluster('127.0.0.1:1')"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert ran.returncode != 0
    assert "There is no Ray at 127.0.0.1:1" in ran.stderr


def test_workers_end_with_their_controller() -> None:
    """Also those of a Ray that was started for them."""
    command = [sys.executable, "-m", "tests.cluster.controller", "ray"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as controller:
        assert controller.stdout is not None
        pid = next(int(line) for line in controller.stdout if line.strip().isdigit())
        controller.kill()
    assert gone(pid, within=60.0)
