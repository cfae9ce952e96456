"""Several learners that make every update together, by torch.distributed (gloo) on this machine.

The first is the learner of this process, which samples, saves and loads like any other. The others are processes with the same
weights, moments and controls: each runs its share of the micro-batches, `all_reduce` sums the gradients, and all take the same
step. If a learner dies the run ends, and can be continued from its last checkpoint.

The others are told what to do through a pipe from the first. What comes over a socket is read as numbers, texts and tensors: no
code can come with it."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from keepworth.base.needs import needs_train

import torch
import torch.distributed

from keepworth.base.errors import KeepworthError
from keepworth.models.threads import threads_set
from keepworth.records.episode import Group
from keepworth.records.model import Tokens
from keepworth.training.learner import Learner
from keepworth.training.placement import WorkerPart
from keepworth.training.shares import Shares, fingerprints

distributed: Any = torch.distributed  # it does not tell type checkers what it exports

LONGEST = timedelta(hours=24)
"""The longest wait for another learner, and so the longest time between two updates."""


class Distributed:
    """Sums and gathers over the default process group. `spent` counts the seconds of all sums, including waiting."""

    def __init__(self) -> None:
        self.spent = 0.0

    def add(self, tensor: torch.Tensor) -> None:
        """Sums a tensor over all learners, in place. Every learner calls it with one shape and type, on the CPU, and gets the
        same sum, bit for bit."""
        begun = time.perf_counter()
        distributed.all_reduce(tensor)
        self.spent += time.perf_counter() - begun

    def gather(self, value: Any) -> list[Any]:
        """Returns the values of all learners, by rank."""
        body = torch.frombuffer(bytearray(write_value(value)), dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(distributed.get_world_size())]
        distributed.all_gather(sizes, torch.tensor([body.numel()]))
        longest = max(map(int, sizes))
        bodies = [torch.zeros(longest, dtype=torch.uint8) for _ in sizes]
        distributed.all_gather(bodies, torch.nn.functional.pad(body, (0, longest - body.numel())))
        return [read_value(body[: int(size)].numpy().tobytes()) for body, size in zip(bodies, sizes, strict=True)]


def write_value(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def read_value(body: bytes) -> Any:
    """Reads a value that `write_value` wrote. Raises KeepworthError for anything but numbers, texts, tensors, and lists, tuples
    and dictionaries of them."""
    try:
        return torch.load(io.BytesIO(body), weights_only=True)
    except pickle.UnpicklingError:
        raise KeepworthError(
            "Another program sent to the learners what no learner sends.",
            "Look which programs of this machine open connections to it, then continue the run.",
        ) from None


class LeadingLearner(Learner):
    """The first of `count` learners. The others, which are made as `part` says, are started at the first update."""

    def __init__(self, *given: Any, count: int, part: WorkerPart, **settings: Any) -> None:
        self._distributed = Distributed()
        super().__init__(*given, **settings, shares=Shares(0, count, self._distributed))
        self._part = part
        self._processes: list[subprocess.Popen[bytes]] = []
        self._synchronised = False
        weakref.finalize(self, _end, self._processes)  # also where `close` is never called

    def update(self, groups: Sequence[Group]) -> dict[str, float]:
        return self._together("update", super().update, groups)

    def imitate(self, pairs: Sequence[tuple[Tokens, Tokens]], learning_rate: float | None = None) -> dict[str, float]:
        return self._together("imitate", super().imitate, pairs, learning_rate)

    def forget_moments(self) -> None:
        super().forget_moments()
        self._synchronised = False

    def validated(self, score: float) -> None:
        super().validated(score)
        self._synchronised = False

    def load(self, state: Mapping[str, Any]) -> None:
        super().load(state)
        self._synchronised = False

    def close(self) -> None:
        """Ends the other learners. The next update starts them again."""
        self._synchronised = False
        if self._processes:
            _end(self._processes)
            distributed.destroy_process_group()

    def _together(self, name: str, call: Callable[..., dict[str, float]], *given: Any) -> dict[str, float]:
        try:
            if not self._processes:
                self._start()
            if not self._synchronised:
                self._tell(("load", _packed(self)))
                self._compare(_weights_of(self, whole=True))
                self._synchronised = True
            self._tell((name, given))
            spent = self._distributed.spent
            with threads_set(max(1, torch.get_num_threads() // self.shares.count)):
                measured = call(*given)
            self._compare(_weights_of(self))
            return measured | {"seconds/all_reduce": self._distributed.spent - spent}
        except BaseException as error:
            lost = self._lost() if isinstance(error, RuntimeError | OSError) else ""
            self.close()
            if not lost:
                raise
            raise KeepworthError(lost, "See above why, then continue the run: its last checkpoint stands.") from error

    def _tell(self, message: Any) -> None:
        """Sends a message to the other learners."""
        body = pickle.dumps(message)
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(body)
            process.stdin.flush()

    def _compare(self, weights: Sequence[int]) -> None:
        for rank, theirs in enumerate(self._distributed.gather(weights)):
            if theirs != weights:
                raise KeepworthError(
                    f"Learner {rank} has other weights than the first.",
                    "Learners need the same files of the model. Continue from the last checkpoint.",
                )

    def _start(self) -> None:
        count = self.shares.count
        if distributed.is_initialized():
            raise KeepworthError(
                "torch.distributed is in use in this process already.",
                "Train with learners = 1, or in another process.",
            )
        folder = Path(tempfile.mkdtemp(prefix="keepworth-learners-"))  # of this user alone
        try:
            for rank in range(1, count):
                environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
                if self.model.device.type == "cuda":
                    environment["CUDA_VISIBLE_DEVICES"] = _device(rank)
                arguments = [str(folder), str(rank), str(count), str(os.getpid())]
                command = [sys.executable, "-m", "keepworth.training.learner_group", *arguments]
                self._processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, env=environment))
            while len([*folder.glob("ready-*")]) < count - 1:
                if lost := self._lost(0.0):
                    raise KeepworthError(lost, "See above why.")
                time.sleep(0.05)
            _join(folder, 0, count)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self._tell((self._part, max(1, torch.get_num_threads() // count)))

    def _lost(self, seconds: float = 5.0) -> str:
        """Returns a message about a learner that ended, or "" after `seconds`: a connection may break before its process has
        ended."""
        until = time.monotonic() + seconds
        while True:
            for rank, process in enumerate(self._processes, 1):
                if (code := process.poll()) is not None:
                    return f"Learner {rank} of {self.shares.count} ended with exit code {code}."
            if time.monotonic() >= until:
                return ""
            time.sleep(0.05)


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.kill()
    while processes:
        with contextlib.suppress(OSError), processes.pop() as process:
            process.wait()


def _device(rank: int) -> str:
    """Returns the GPU of a learner: the first learner has the first GPU."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(torch.cuda.device_count())))
    devices = visible.split(",")
    if rank >= len(devices):
        raise KeepworthError(f"Learner {rank} has no GPU: {len(devices)} are visible.", "Ask for fewer learners.")
    return devices[rank]


def _join(folder: Path, rank: int, count: int) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
    store = f"file://{folder / 'store'}"
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=count, timeout=LONGEST)
    distributed.barrier()  # before the first learner removes the store


def _packed(learner: Learner) -> bytes:
    """Serialises the learner's state, with its reference."""
    return write_value({**learner.state(), "reference": learner.reference.state() if learner.reference else {}})


def _weights_of(learner: Learner, whole: bool = False) -> list[int]:
    """Returns fingerprints of the trained weights, with `whole` of the frozen ones as well."""
    trained = [*learner.master_weights.named.values()]
    if learner.critic is not None:
        trained += learner.critic.master_weights.named.values()
    return fingerprints([*trained, *learner.model.network.parameters()] if whole else trained)


def follow(folder: Path, rank: int, count: int, first: int) -> None:
    """Runs one of the other learners until the first learner is gone.

    Args:
        folder: The folder in which the learners of a run meet.
        rank: The number of this learner, from 1 on.
        count: The number of all learners.
        first: The process id of the first learner, with which this process ends.
    """
    threading.Thread(target=_end_with, args=(first,), daemon=True).start()
    (folder / f"ready-{rank}").touch()
    _join(folder, rank, count)
    part, threads = pickle.load(sys.stdin.buffer)
    module, _, name = part.target.partition(":")
    shares = Shares(rank, count, Distributed())
    learner: Learner = getattr(importlib.import_module(module), name)(**part.settings, shares=shares)
    torch.set_num_threads(threads)
    while True:
        try:
            call, given = pickle.load(sys.stdin.buffer)
        except EOFError:  # the first learner is gone
            return
        if call == "load":
            with torch.no_grad():
                learner.load(torch.load(io.BytesIO(given), weights_only=False, map_location=learner.model.device))
        else:
            getattr(learner, call)(*given)
        assert shares.collective is not None
        shares.collective.gather(_weights_of(learner, whole=call == "load"))


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


if __name__ == "__main__":
    follow(Path(sys.argv[1]), *map(int, sys.argv[2:]))
