from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from keepworth.cluster.local import LocalCluster, LocalWorker
from keepworth.episodes.errors import KeepworthError
from keepworth.learning.placement import (
    ONE_CORE,
    STARTS,
    CannotPlace,
    Cluster,
    Needs,
    Part,
    Worker,
    WorkerDied,
    WorkerFailed,
    spawn_lasting,
)
from tests.cluster.parts import Counter

COUNTER = "tests.cluster.parts:Counter"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    made = LocalCluster(tmp_path / "workers")
    yield made
    made.close()


@pytest.fixture(scope="module")
def counting() -> Iterator[LocalWorker]:
    """One for all tests that leave it alive."""
    made = LocalCluster()
    yield made.spawn(Part(COUNTER, {"start": 5}), "worker 1")
    made.close()


def gone(pid: int, within: float = 60.0) -> bool:
    """Whether a process ends. One whose parent has not asked for it is as good as gone."""
    for _ in range(int(within / 0.05)):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False


def test_calls_are_answered_in_the_order_in_which_they_were_made(counting: LocalWorker) -> None:
    before = counting.call("add", 0).result()
    answers = [counting.call("add", 1) for _ in range(50)]
    assert [each.result() for each in answers] == [before + number for number in range(1, 51)]


def test_what_a_call_raises_names_worker_and_host_and_the_worker_goes_on(counting: LocalWorker) -> None:
    failed = counting.call("fails", "no such house")
    after = counting.call("add", 0)
    with pytest.raises(WorkerFailed, match=r"worker 1 on .*: fails raised ValueError: no such house") as caught:
        failed.result()
    assert counting.host in str(caught.value)
    assert "in fails" in str(caught.value.__cause__)  # the traceback of there
    assert after.result() >= 5
    with pytest.raises(WorkerFailed, match="AttributeError"):
        counting.call("nothing_of_the_kind").result()


def test_arrays_travel_whole_also_past_what_a_socket_holds(counting: LocalWorker) -> None:
    sent = np.arange(3_000_000, dtype=np.float64)
    slow = counting.call("slowly", 0.2)  # the next call does not wait for room
    doubled = counting.call("array", sent)
    assert slow.result() == 0.2
    assert np.array_equal(doubled.result(), sent * 2)


def test_what_cannot_be_sent_is_named_before_anything_is_sent(counting: LocalWorker, cluster: LocalCluster) -> None:
    before = counting.call("add", 0).result()
    with pytest.raises(KeepworthError, match=r"worker 1\.add: argument 2 is function and cannot be sent"):
        counting.call("add", 1, lambda: 0)
    assert counting.call("add", 0).result() == before
    with pytest.raises(KeepworthError, match="settings of worker 9: 'start' is generator"):
        cluster.spawn(Part(COUNTER, {"start": (each for each in ())}), "worker 9")
    with pytest.raises(WorkerFailed, match="closure raised KeepworthError: what it returned cannot be sent"):
        counting.call("closure").result()


def test_a_killed_worker_is_noticed_at_once_and_its_last_words_are_kept(cluster: LocalCluster, tmp_path: Path) -> None:
    worker = cluster.spawn(Part(COUNTER), "learner 2")
    worker.call("says", "almost there").result()
    begun = worker.call("begins").result()
    waiting = [worker.call("slowly", 600.0), worker.call("add", 1)]
    os.kill(worker.pid, signal.SIGKILL)
    for each in waiting:
        with pytest.raises(WorkerDied, match=r"learner 2 on .* was ended by SIGKILL") as caught:
            each.result(timeout=30)
    assert worker.host in str(caught.value)
    assert "almost there, as an error" in str(caught.value)
    assert str(tmp_path / "workers" / "learner-2.log") in caught.value.fix
    assert (tmp_path / "workers" / "learner-2.log").read_text().splitlines() == [
        "almost there",
        "almost there, as an error",
    ]
    assert not worker.alive
    assert gone(begun)  # what it began has ended with it
    with pytest.raises(WorkerDied, match="learner 2"):
        worker.call("add", 1).result()


def test_a_worker_that_hangs_counts_as_dead_and_one_that_takes_its_time_does_not(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "workers", silence=4.0)
    try:
        hangs, slow = cluster.spawn(Part(COUNTER), "learner 2"), cluster.spawn(Part(COUNTER), "worker 1")
        hangs.call("says", "almost there").result()
        begun = hangs.call("begins").result()
        took = slow.call("slowly", 8.0)
        waiting = [hangs.call("slowly", 600.0), hangs.call("add", 1)]
        os.kill(hangs.pid, signal.SIGSTOP)
        for each in waiting:
            with pytest.raises(
                WorkerDied, match=r"learner 2 on .* gave no sign of life for 4 s, and was ended"
            ) as caught:
                each.result(timeout=30)
        assert hangs.host in str(caught.value)
        assert "almost there, as an error" in str(caught.value)
        assert "learner-2.log" in caught.value.fix
        assert not hangs.alive
        assert gone(hangs.pid)
        assert gone(begun)
        assert took.result(timeout=30) == 8.0  # twice as long as the silence that is borne
        assert slow.call("add", 1).result() == 1
    finally:
        cluster.close()


def test_a_worker_that_hangs_in_the_middle_of_an_answer_or_a_question_counts_as_dead() -> None:
    cluster = LocalCluster(silence=2.0)
    try:
        for calls in (1, 6):
            worker = cluster.spawn(Part(COUNTER), "worker 1")
            large = np.zeros(2_000_000)
            waiting = [worker.call("array", large) for _ in range(calls)]  # more than a socket holds
            time.sleep(0.01 * calls)
            os.kill(worker.pid, signal.SIGSTOP)
            with pytest.raises(WorkerDied, match="no sign of life"):
                [each.result(timeout=30) for each in (*waiting, worker.call("array", large))]
    finally:
        cluster.close()


def test_a_worker_that_leaves_says_with_which_code(cluster: LocalCluster) -> None:
    worker = cluster.spawn(Part(COUNTER), "worker 3")
    left, after = worker.call("leaves", 7), worker.call("add", 1)
    with pytest.raises(WorkerFailed, match="SystemExit: 7"):
        left.result(timeout=30)
    with pytest.raises(WorkerDied, match=r"worker 3 on .* ended with exit code 7\. It last wrote:\ngoing"):
        after.result(timeout=30)


def test_a_worker_that_cannot_be_made_says_why(cluster: LocalCluster) -> None:
    with pytest.raises(WorkerFailed, match=r"worker 4 on .*ValueError: start = -1 is below 0"):
        cluster.spawn(Part(COUNTER, {"start": -1}), "worker 4")
    with pytest.raises(WorkerFailed, match=r"there is no 'tests.cluster.parts:Missing' for a worker"):
        cluster.spawn(Part("tests.cluster.parts:Missing"), "worker 4")


def test_a_worker_that_dies_as_it_begins_is_begun_again(cluster: LocalCluster, tmp_path: Path) -> None:
    notes = list[str]()
    frail = Part("tests.cluster.parts:Frail", {"folder": str(tmp_path), "deaths": STARTS - 1})
    worker = spawn_lasting(cluster, frail, "worker 6", ONE_CORE, notes.append)
    assert worker.call("stands").result(timeout=30)
    (note,) = notes
    for said in ("worker 6 on ", "exit code 3", "no memory", "begun again"):
        assert said in note


def test_one_that_dies_each_time_as_it_begins_is_given_up(cluster: LocalCluster, tmp_path: Path) -> None:
    notes = list[str]()
    frail = Part("tests.cluster.parts:Frail", {"folder": str(tmp_path), "deaths": 100})
    with pytest.raises(WorkerDied, match=r"worker 6 died 3 times as it began; the last: .*exit code 3"):
        spawn_lasting(cluster, frail, "worker 6", ONE_CORE, notes.append)
    assert len([*tmp_path.glob("death-*")]) == STARTS
    assert not notes


def test_what_a_worker_writes_is_passed_on_with_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = LocalCluster()
    worker = cluster.spawn(Part(COUNTER), "worker 5")
    worker.call("says", "hello").result()
    cluster.close()
    worker.call("add", 1).exception()
    said, ends = "", time.monotonic() + 60
    while "as an error" not in said and time.monotonic() < ends:
        said += capsys.readouterr().err
        time.sleep(0.02)
    assert said == "worker 5: hello\nworker 5: hello, as an error\n"


def test_calls_that_are_coroutines_go_on_beside_the_others(cluster: LocalCluster) -> None:
    worker = cluster.spawn(Part("tests.cluster.parts:Waits"), "worker 6")
    waits = worker.call("until")
    assert worker.call("comes").result() is None
    assert waits.result(timeout=30) == "it came"
    with pytest.raises(WorkerFailed, match="ValueError: beside"):
        worker.call("fails").result()


def test_closing_ends_every_worker_and_what_it_began(cluster: LocalCluster) -> None:
    idle, busy = cluster.spawn(Part(COUNTER), "idle"), cluster.spawn(Part(COUNTER), "busy")
    begun = idle.call("begins").result()
    last = idle.call("add", 1)
    waits = busy.call("slowly", 600.0)
    cluster.close()
    assert last.result() == 1  # what was asked before is answered
    with pytest.raises(WorkerDied, match="busy"):
        waits.result(timeout=30)
    assert gone(idle.pid)
    assert gone(busy.pid)
    assert gone(begun)
    cluster.close()
    idle.close()
    with pytest.raises(CannotPlace, match="the cluster was closed"):
        cluster.spawn(Part(COUNTER), "late")
    with pytest.raises(WorkerDied, match=r"idle on .* was closed"):
        idle.call("add", 1).result()


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_controller(ending: signal.Signals) -> None:
    command = [sys.executable, "-m", "tests.cluster.controller"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as controller:
        assert controller.stdout is not None
        pid = int(controller.stdout.readline())
        controller.send_signal(ending)
        controller.wait(timeout=30)
    assert gone(pid)


def test_what_one_machine_has_not_is_named(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    two = LocalCluster()
    try:
        with pytest.raises(CannotPlace, match=r"learner 1 needs 3 GPUs: .* has 2, of which 2 free"):
            two.spawn(Part(COUNTER), "learner 1", Needs(gpus=3))
        first = two.spawn(Part(COUNTER), "learner 1", Needs(gpus=1, cores=3))
        assert first.call("variable", "CUDA_VISIBLE_DEVICES").result() == "3"
        assert first.call("variable", "OMP_NUM_THREADS").result() == "3"
        with pytest.raises(CannotPlace, match="of which 1 free"):
            two.spawn(Part(COUNTER), "learner 2", Needs(gpus=2))
        first.close()
        again = two.spawn(Part(COUNTER), "learner 2", Needs(gpus=2, apart="learners"))
        assert again.call("variable", "CUDA_VISIBLE_DEVICES").result() == "3,5"
        with pytest.raises(CannotPlace, match="learner 3 is to be on another host than learner 2"):
            two.spawn(Part(COUNTER), "learner 3", Needs(apart="learners"))
    finally:
        two.close()


def test_the_protocols_are_met(counting: LocalWorker, cluster: LocalCluster) -> None:
    placed: Cluster = cluster
    worker: Worker = counting
    assert placed.hosts() == [worker.host]
    assert worker.alive
    assert Counter(1).add(1) == 2
