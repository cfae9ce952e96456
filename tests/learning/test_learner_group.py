"""Learners in processes of their own: their updates are those of one, and a death ends the run at its last checkpoint."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from keepworth.base.errors import KeepworthError
from keepworth.training.learner import Learner
from keepworth.training.learner_group import Distributed, _join
from tests.learning.group_parts import leading, train
from tests.learning.turns import sampled_groups, weights
from tests.models.tiny import tiny_model

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="this PyTorch has no torch.distributed")


@pytest.fixture(scope="module")
def batches() -> list[Any]:
    model = tiny_model(hidden=16)
    return [sampled_groups(model, seed=seed) for seed in (0, 7, 14)]


def learned(learner: Learner, batches: list[Any]) -> list[dict[str, float]]:
    return [learner.update(batch) for batch in batches]


def require_close(ours: Learner, theirs: Learner, relative: float = 1e-6) -> None:
    for (name, mine), other in zip(weights(ours).items(), weights(theirs).values(), strict=True):
        assert float((mine - other).abs().max()) <= relative * max(1.0, float(other.abs().max())), name


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("name", "count"), [("ppo", 2), pytest.param("grpo", 4, marks=pytest.mark.slow)])
def test_learner_group_equals_a_single_learner(name: str, count: int, batches: list[Any]) -> None:
    alone, group = leading(name, 1), leading(name, count)
    supervised = [(tuple(b"say:"), tuple(b"yes")), (tuple(b"and:"), tuple(b"no"))]
    measured = learned(alone, batches)
    try:
        together = learned(group, batches)
        for learner in (alone, group):
            learner.forget_moments()
            learner.imitate(supervised, 1e-3)
    finally:
        group.close()
    require_close(group, alone)
    for ours, theirs in zip(together, measured, strict=True):
        names = [name for name in theirs if "seconds" not in name]
        assert {name: ours[name] for name in names} == pytest.approx({name: theirs[name] for name in names}, rel=1e-4)
    assert all(row["seconds/all_reduce"] > 0 for row in together)


def listening() -> dict[str, str]:
    """The sockets on which this process and its children listen, with their addresses as the kernel writes them."""
    processes, inodes = [os.getpid()], set()
    for process in processes:
        for task in Path(f"/proc/{process}/task").iterdir():
            processes += map(int, (task / "children").read_text().split())
        for handle in Path(f"/proc/{process}/fd").iterdir():
            with contextlib.suppress(OSError):
                inodes.add(os.readlink(handle))
    sockets = [
        line.split() for file in ("tcp", "tcp6") for line in Path(f"/proc/net/{file}").read_text().splitlines()[1:]
    ]
    return {
        socket[9]: socket[1].partition(":")[0]
        for socket in sockets
        if socket[3] == "0A" and f"socket:[{socket[9]}]" in inodes
    }


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="who listens is read from Linux's /proc")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_learners_listen_on_the_loopback_alone(batches: list[Any]) -> None:
    before = listening()
    group = leading("grpo", 2)
    try:
        group.update(batches[0])
        assert {address for number, address in listening().items() if number not in before} == {"0100007F"}
    finally:
        group.close()


STRANGER = """
import sys
from pathlib import Path
import torch
from keepworth.training.learner_group import _join
class Planted:
    def __reduce__(self):
        return Path.touch, (Path(sys.argv[2]),)
_join(Path(sys.argv[1]), 1, 2)
torch.distributed.all_gather_object([None, None], Planted())
"""


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_pickle_that_another_sends_is_refused_and_not_read(tmp_path: Path) -> None:
    planted = tmp_path / "was read"
    stranger = subprocess.Popen(
        [sys.executable, "-c", STRANGER, str(tmp_path), str(planted)], stderr=subprocess.DEVNULL
    )
    _join(tmp_path, 0, 2)
    try:
        with pytest.raises(KeepworthError, match="what no learner sends"):
            Distributed().gather({"loss": 1.0})
    finally:
        torch.distributed.destroy_process_group()
        stranger.kill()
        stranger.wait()
    assert not planted.exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_learner_that_ends_or_differs_ends_the_run_by_name(batches: list[Any]) -> None:
    failing = leading("fails", 2)
    with pytest.raises(KeepworthError, match="Learner 1 of 2 ended with exit code 7"):
        failing.update(batches[0])
    assert failing.steps == 0
    group = leading("grpo", 2)
    try:
        group.update(batches[0])
        state = group.state()
        with torch.no_grad():  # something else has written to this learner's weights
            next(iter(group.master_weights.named.values())).view(-1)[0] += 1.0
            next(iter(group.master_weights._master_weights.values())).view(-1)[0] += 1.0
        with pytest.raises(KeepworthError, match="Learner 1 has other weights"):
            group.update(batches[1])
        group.load(state)
        group.update(batches[0])
    finally:
        group.close()


STEPS = 12
KILLS = 3


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_controller_that_is_killed_continues_as_if_it_had_not_been(tmp_path: Path) -> None:
    (tmp_path / "undisturbed").mkdir()
    undisturbed = weights(train(tmp_path / "undisturbed" / "run", STEPS, 2))
    random_, kills = random.Random(5), 0
    command = [sys.executable, "-m", "tests.learning.group_parts", str(tmp_path / "run"), str(STEPS)]
    while True:
        controller = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        metrics = tmp_path / "run" / "metrics.jsonl"
        begun = len(metrics.read_text().splitlines()) if metrics.is_file() else 0
        while kills < KILLS and controller.poll() is None:
            if metrics.is_file() and len(metrics.read_text().splitlines()) > begun:
                time.sleep(random_.uniform(0.0, 0.3))
                controller.send_signal(signal.SIGKILL)
                kills += 1
                break
            time.sleep(0.01)
        if controller.wait() == 0:
            break
    assert kills == KILLS
    weights_there = torch.load(tmp_path / "weights.pt")
    assert all(torch.equal(value, undisturbed[name]) for name, value in weights_there.items())
    for name, value in weights(train(tmp_path / "alone" / "run", STEPS, 1)).items():
        torch.testing.assert_close(value, undisturbed[name], atol=1e-4, rtol=0)
