"""Workers as actors of Ray, on this machine or on several hosts. Only this file imports Ray.

Ray places an actor, notices its death and starts it again. Pending calls then fail with `WorkerDied`, and the caller decides
whether to repeat them."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from keepworth import __version__
from keepworth.base import extras
from keepworth.base.errors import KeepworthError
from keepworth.training.placement import WorkerDied, WorkerFailed, WorkerPart

PLACING = 60.0
"""Seconds to wait for a free core for a worker."""
REACHING = 10.0
"""Seconds to wait for an address to answer."""
RESTARTS = 64
"""How often Ray starts a worker again in one run."""
STORE = 256 * 2**20
"""Bytes of the object store of a Ray that is started here."""
LOGS = "What it wrote is in the logs of Ray on that host, by default under /tmp/ray/session_latest/logs."


class RayCluster:
    """Starts workers on a Ray.

    Args:
        address: HOST:PORT of a running Ray; "" starts one on this machine, which ends with `close`.
        placing: Seconds to wait for a free core for a worker.
    """

    def __init__(self, address: str = "", *, placing: float = PLACING) -> None:
        extras.require("ray", "A run with workers", "ray")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_DEDUP_LOGS", "0")
        import ray

        self._ray, self._local, self._placing = ray, not address, placing
        self._workers: list[RayWorker] = []
        self._started = not ray.is_initialized()
        if self._started:
            _start(ray, address)

    def spawn(self, part: WorkerPart, name: str, label: str = "") -> RayWorker:
        """Starts a worker and waits until its object is made.

        Raises:
            KeepworthError: No host has room for it in time.
            WorkerDied: Its process ended at once.
            WorkerFailed: Its object could not be made.
        """
        options: dict[str, Any] = {"num_cpus": 0 if self._local else 1}
        if label:
            key, _, value = label.partition("=")
            options["label_selector"] = {key: value}
        actor = (
            self._ray.remote(_Actor)
            .options(
                **options,
                max_restarts=RESTARTS,
                max_concurrency=1000,
                runtime_env={"env_vars": {"OMP_NUM_THREADS": "1"}},
            )
            .remote(name, [path for path in sys.path if path], part.target, dict(part.settings))
        )
        worker = RayWorker(self._ray, actor, name)
        self._workers.append(worker)
        try:
            self._wait_until_ready(worker, label)
        except BaseException:
            worker.close()
            raise
        return worker

    def _wait_until_ready(self, worker: RayWorker, label: str) -> None:
        try:
            worker.host, version = self._ray.get(worker.actor.where.remote(), timeout=self._placing)
        except self._ray.exceptions.GetTimeoutError as error:
            where = f" on a host with the label {label}" if label else ""
            raise KeepworthError(
                f"There is no room for {worker.name}, which needs a core{where}: {self._hosts()}.",
                "Ask for fewer workers, wait until others are done, or add a host: ray start --address=HOST:PORT"
                f"{f' --labels={label}' * bool(label)}.",
            ) from error
        except self._ray.exceptions.RayError as error:
            raise worker.death(error) from error
        if version != __version__:
            raise KeepworthError(
                f"{worker.host} has keepworth {version}, and this host {__version__}.",
                "Install the same version on every host.",
            )
        worker.call("").result()

    def _hosts(self) -> str:
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        return "; ".join(
            f"{node['NodeManagerHostname']} has {node['Resources'].get('CPU', 0):g} cores"
            f"{', '.join(['', *_labels(node)])}"
            for node in nodes
        )

    def close(self) -> None:
        """Ends every worker, and the Ray that was started here. A second call does nothing."""
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.close()
        if self._started:
            self._started = False
            self._ray.shutdown()


class RayWorker:
    """A worker that is an actor of Ray."""

    def __init__(self, ray: Any, actor: Any, name: str) -> None:
        self.name, self.host, self.actor = name, "a host of Ray", actor
        self._ray = ray
        self._closed = False

    def call(self, method: str, *given: Any) -> Future[Any]:
        """Calls a method of the worker's object; the future raises WorkerDied or WorkerFailed."""
        if self._closed:
            answer: Future[Any] = Future()
            answer.set_exception(WorkerDied(f"{self.name} on {self.host} was closed."))
            return answer
        return self._answer(self.actor.call.remote(method, *given), method)

    def restarted(self) -> Future[Any]:
        """Returns a future that is done once the worker runs again. It raises WorkerDied where Ray does not restart it."""
        return self._answer(self.actor.call.options(max_task_retries=-1).remote(""), "")

    def close(self) -> None:
        """Ends the worker. A second call does nothing."""
        if not self._closed:
            self._closed = True
            with suppress(Exception):  # the Ray may be gone already
                self._ray.kill(self.actor)

    def death(self, error: BaseException) -> WorkerDied:
        reason = " ".join(str(error).split())
        for before in ("Worker exit type:", "The actor died because", "The actor is temporarily unavailable"):
            if before in reason:
                reason = reason[reason.index(before) :]
                break
        return WorkerDied(f"{self.name} on {self.host} died. Ray says: {reason.split(' Some common causes')[0]}", LOGS)

    def _answer(self, reference: Any, method: str) -> Future[Any]:
        answer: Future[Any] = Future()
        answer.set_running_or_notify_cancel()

        def done(future: Future[Any]) -> None:
            error = future.exception()
            if error is None and isinstance(value := future.result(), _Failure):
                where = f"{self.name} on {self.host}: {method or 'its beginning'}"
                answer.set_exception(WorkerFailed(f"{where} raised {value.summary}", value.fix))
            elif error is None:
                answer.set_result(value)
            elif isinstance(error, self._ray.exceptions.RayTaskError):
                last = str(error).strip().splitlines()[-1]
                answer.set_exception(WorkerFailed(f"{self.name} on {self.host}: {method} raised {last}"))
            else:
                answer.set_exception(self.death(error))

        reference.future().add_done_callback(done)
        return answer


@dataclass(frozen=True, slots=True)
class _Failure:
    """The error of a call, as text, because this process may not have the class of the error."""

    summary: str
    fix: str


class _Actor:
    """Holds the object of a part, which is made at the first call, and again after a restart."""

    def __init__(self, name: str, path: Sequence[str], target: str, settings: Mapping[str, Any]) -> None:
        self._name, self._target, self._settings = name, target, settings
        sys.path[:] = [*path, *(entry for entry in sys.path if entry not in path)]
        self._lock = asyncio.Lock()
        self._object: Any = None

    def _make(self) -> Any:
        module, _, name = self._target.partition(":")
        return getattr(importlib.import_module(module), name)(**self._settings)

    def __repr__(self) -> str:
        return self._name  # Ray writes it before each line of the worker's output

    async def where(self) -> tuple[str, str]:
        return socket.gethostname(), __version__

    async def call(self, method: str, *given: Any) -> Any:
        try:
            async with self._lock:
                if self._object is None:
                    self._object = await asyncio.to_thread(self._make)
            if not method:
                return None
            answer = getattr(self._object, method)(*given)
            return await answer if inspect.isawaitable(answer) else answer
        except Exception as error:
            text = error.message if isinstance(error, KeepworthError) else str(error)
            return _Failure(f"{type(error).__name__}: {text}", getattr(error, "fix", ""))


def _start(ray: Any, address: str) -> None:
    where: dict[str, Any] = {"address": address}
    if not address:
        where = {"address": "local", "include_dashboard": False, "object_store_memory": STORE}
    try:
        host, _, port = address.rpartition(":")
        if host and port.isdigit() and "://" not in address:  # Ray itself would try for minutes
            socket.create_connection((host, int(port)), REACHING).close()
        ray.init(**where, namespace="keepworth", logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise KeepworthError(
            f"There is no Ray at {address or 'this machine'}: {reason}.",
            "Start one with `ray start --head`, of the same version of Ray and Python, and give its address; where it asks for a "
            "token, set RAY_AUTH_TOKEN.",
        ) from error


def _labels(node: Mapping[str, Any]) -> list[str]:
    """Returns the labels that a host was started with."""
    labels: Mapping[str, str] = node.get("Labels") or {}
    return [f"{key}={value}" for key, value in sorted(labels.items()) if not key.startswith("ray.io/")]
