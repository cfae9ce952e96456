"""Workers as processes of this machine.

What a worker writes goes to a file, or to the errors of this process with its name before each line. Its last lines stand in the
message when it dies.
"""

from __future__ import annotations

import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

from keepworth.cluster.heartbeat import SILENCE, WHY_SILENT, Heartbeats, silence_of
from keepworth.cluster.process import ALIVE, STANDS
from keepworth.cluster.sending import Raised, failure, sent
from keepworth.learning.placement import ONE_CORE, CannotPlace, Needs, Part, WorkerDied, WorkerFailed

LAST_LINES = 8
"""Of what a worker wrote, so many stand in the message when it dies."""
CLOSING = 3.0
"""Seconds that a worker has to end by itself before it is killed."""


_UNFIT = re.compile(r"[^\w.-]+")  # for the name of a file


class LocalCluster:
    """A process for each worker. logs: a folder, where each worker has a file; None writes to the errors of this process.
    silence: seconds after which a worker that gives no sign of life counts as dead."""

    def __init__(self, logs: Path | None = None, *, silence: float = SILENCE) -> None:
        if os.name != "posix":
            raise CannotPlace("cluster = local runs on Linux and macOS.", "Set cluster = ray, or leave workers out.")
        self._logs = logs
        self._workers: list[LocalWorker] = []
        self._apart: dict[str, LocalWorker] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._devices = _devices()
        self._in_use: dict[LocalWorker, list[str]] = {}
        self._heartbeats = Heartbeats(silence)

    address = "127.0.0.1"

    def spawn(self, part: Part, name: str, needs: Needs = ONE_CORE) -> LocalWorker:
        """Raises CannotPlace for what one machine has not, KeepworthError for settings that cannot be sent."""
        settings = sent(dict(part.settings), f"settings of {name}")
        with self._lock:
            if self._closed:
                raise CannotPlace(f"There is no place for {name}: the cluster was closed.")
            self._release()
            if needs.label:
                raise CannotPlace(
                    f"{name} is to be on a host with the label {needs.label}, and cluster = local has this one, {_host()}, "
                    "without labels.",
                    "Set cluster = ray, with hosts that were begun with labels, or leave the label out.",
                )
            if needs.apart and needs.apart in self._apart:
                raise CannotPlace(
                    f"{name} is to be on another host than {self._apart[needs.apart].name}, and cluster = local has this one, "
                    f"{_host()}, alone.",
                    "Set cluster = ray with several hosts, or let them be together.",
                )
            devices = self._free(needs, name)
            worker = LocalWorker(part.target, settings, name, needs, devices, self._logs, self._heartbeats.pause)
            self._workers.append(worker)
            self._in_use[worker] = devices
            if needs.apart:
                self._apart[needs.apart] = worker
        self._heartbeats.watch(worker)
        try:
            worker.stands()
        except BaseException:
            worker.close()
            raise
        return worker

    def hosts(self) -> Sequence[str]:
        return [_host()]

    def close(self) -> None:
        with self._lock:
            self._closed = True
            workers, self._workers = self._workers, []
        for each in workers:
            each.ask_to_end()
        for each in workers:
            each.close()

    def _release(self) -> None:
        """What workers that have ended held is free again."""
        self._workers = [each for each in self._workers if each.alive]
        self._in_use = {each: devices for each, devices in self._in_use.items() if each.alive}
        self._apart = {word: each for word, each in self._apart.items() if each.alive}

    def _free(self, needs: Needs, name: str) -> list[str]:
        held = {device for devices in self._in_use.values() for device in devices}
        free = [each for each in self._devices if each not in held]
        if needs.gpus > len(free):
            raise CannotPlace(
                f"{name} needs {needs.gpus} GPU{'s' * (needs.gpus > 1)}: {_host()} has {len(self._devices)}, "
                f"of which {len(free)} free.",
                "Ask for fewer workers, or leave GPUs out.",
            )
        return free[: needs.gpus]


class LocalWorker:
    """A process, and what was asked of it and is not answered. pause: seconds between two signs of life."""

    def __init__(
        self,
        target: str,
        settings: bytes,
        name: str,
        needs: Needs,
        devices: Sequence[str],
        logs: Path | None,
        pause: float,
    ) -> None:
        self.name, self.host = name, _host()
        self._sending, self._lock = threading.Lock(), threading.Lock()
        self._asked: dict[int, tuple[str, Future[Any]]] = {}
        self._number = STANDS
        self._dead = False
        self._closed = False
        self._signs, self._silent = 0, 0.0
        here, there = socket.socketpair()
        with here, there:
            environment = {
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                "PYTHONUNBUFFERED": "1",
                "OMP_NUM_THREADS": str(max(1, needs.cores)),
            }
            if needs.gpus:
                environment["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-X",
                    "faulthandler",
                    "-m",
                    "keepworth.cluster.process",
                    str(there.fileno()),
                    str(pause),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                pass_fds=[there.fileno()],
                start_new_session=True,  # an interruption is the controller's; what the worker begins ends with it
            )
            self._connection = Connection(here.detach())
        self._output = _Output(self._process.stdout, name, logs)
        self._standing = self._ask(target, settings)
        self._reader = threading.Thread(target=self._read, daemon=True, name=f"answers of {name}")
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return not self._dead and self._process.poll() is None

    def stands(self) -> None:
        """Wait until its object is made. Raises WorkerDied, WorkerFailed."""
        self._standing.result()

    def call(self, method: str, *given: Any) -> Future[Any]:
        """Raises KeepworthError, before anything is sent, for what cannot be pickled."""
        return self._ask(method, sent(given, f"{self.name}.{method}"))

    def signs(self) -> int:
        return self._signs

    def give_up(self, seconds: float) -> None:
        self._silent = seconds
        self._kill()  # whoever reads its answers does the rest

    def ask_to_end(self) -> None:
        """Nothing more is asked of it: it ends once it has answered what it is at."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        with suppress(OSError), self._sending:
            self._connection.send_bytes(pickle.dumps((-1, "")))

    def close(self) -> None:
        self.ask_to_end()
        try:
            self._process.wait(CLOSING)
        except subprocess.TimeoutExpired:
            self._kill()
            self._process.wait()
        if threading.current_thread() is not self._reader:
            self._reader.join(CLOSING)

    def _ask(self, method: str, given: bytes) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        with self._sending:
            with self._lock:
                if self._dead or self._closed:
                    future.set_exception(self._death())
                    return future
                number, self._number = self._number, self._number + 1
                self._asked[number] = method, future
            try:
                self._connection.send_bytes(pickle.dumps((number, method)))
                self._connection.send_bytes(given)
            except OSError:  # it has died: whoever reads its answers says so
                pass
        return future

    def _read(self) -> None:
        try:
            while True:
                while not self._connection.poll(0.5):
                    # What the worker began may hold its socket open.
                    if self._process.poll() is not None and not self._connection.poll(0):
                        raise EOFError
                number = pickle.loads(self._connection.recv_bytes())
                self._signs += 1
                if number == ALIVE:
                    continue
                given = self._connection.recv_bytes()
                with self._lock:
                    method, future = self._asked.pop(number)
                try:
                    answer = pickle.loads(given)
                except Exception as error:
                    future.set_exception(WorkerFailed(f"{self.name} on {self.host}: {method} gave no answer: {error}."))
                    continue
                if isinstance(answer, Raised):
                    future.set_exception(failure(self.name, self.host, method, answer))
                else:
                    future.set_result(answer)
        except (EOFError, OSError):
            self._ended()

    def _ended(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSING)
        self._kill()  # what it began; and itself, where it does not hear any more
        self._process.wait()
        self._output.ended()
        with self._lock:
            self._dead = True
            asked, self._asked = self._asked, {}
        with self._sending:  # whoever is sending to it has an error first, now that it has died
            self._connection.close()
        for _, future in asked.values():
            future.set_exception(self._death())

    def _death(self) -> WorkerDied:
        lines = "\n".join(self._output.last)
        wrote = f" It last wrote:\n{lines}\n" if lines and not self._closed else ""
        if self._silent and not self._closed:
            return WorkerDied(f"{silence_of(self.name, self.host, self._silent)}{wrote}", f"{WHY_SILENT} {self._fix()}")
        return WorkerDied(f"{self.name} on {self.host} {self._how()}.{wrote}", self._fix())

    def _how(self) -> str:
        code = self._process.returncode
        if self._closed and code in (None, 0, -signal.SIGKILL):
            return "was closed"
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def _fix(self) -> str:
        where = f"All that it wrote is in {self._output.file}." if self._output.file else ""
        killed = self._process.returncode == -signal.SIGKILL and not self._closed and not self._silent
        return f"{'Was there memory enough? ' * killed}{where}".strip()

    def _kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)


class _Output:
    """Passes on what a worker writes, line by line, and keeps its last lines."""

    def __init__(self, written: IO[bytes] | None, name: str, logs: Path | None) -> None:
        assert written is not None
        self.last: deque[str] = deque(maxlen=LAST_LINES)
        self.file: Path | None = None
        if logs is not None:
            logs.mkdir(parents=True, exist_ok=True)
            self.file = logs / (_UNFIT.sub("-", name) + ".log")
        self._written, self._name = written, name
        self._thread = threading.Thread(target=self._pass_on, daemon=True, name=f"output of {name}")
        self._thread.start()

    def ended(self) -> None:
        """Wait for the last lines; not for what the worker began and left behind."""
        self._thread.join(1.0)

    def _pass_on(self) -> None:
        with self._written, open(self.file or os.devnull, "a", encoding="utf-8") as file:
            for line in self._written:
                text = line.decode("utf-8", "replace").rstrip("\n")
                self.last.append(text)
                if self.file is None:
                    sys.stderr.write(f"{self._name}: {text}\n")
                else:
                    file.write(f"{text}\n")
                    file.flush()


def _devices() -> list[str]:
    """The GPUs that this process may use."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [each for each in given.split(",") if each.strip() not in ("", "-1")]
    return [str(each) for each in range(len(list(Path("/dev").glob("nvidia[0-9]*"))))]


def _host() -> str:
    return socket.gethostname()
