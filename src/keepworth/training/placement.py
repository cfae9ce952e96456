"""The protocol of processes that work for a run, which `keepworth.training.ray` implements.

One process runs the training loop, and the run folder holds all state. A worker is built in its own process, from the name of its
class and from plain data; closures and models are never sent."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from keepworth.base.errors import KeepworthError


class WorkerDied(KeepworthError):
    """A worker's process ended, or its host is gone. Its last call may or may not have taken effect."""


class WorkerFailed(KeepworthError):
    """A call raised in a worker that keeps running. The message names the worker, its host and the error."""


@dataclass(frozen=True, slots=True)
class WorkerPart:
    """How to make a worker's object: call `module:Class` with `settings`, which is plain data."""

    target: str
    settings: Mapping[str, Any] = field(default_factory=dict)


class Worker(Protocol):
    """A process that executes calls."""

    name: str

    def call(self, method: str, *given: Any) -> Future[Any]:
        """Calls a method of the worker's object. The future raises WorkerDied or WorkerFailed."""
        ...

    def restarted(self) -> Future[Any]:
        """Returns a future that is done once a worker that died runs again. It raises WorkerDied where the worker is not
        restarted."""
        ...


class Cluster(Protocol):
    """Starts workers."""

    def spawn(self, part: WorkerPart, name: str, label: str = "") -> Worker:
        """Starts a worker on a core of its own, and waits until its object is made. Raises KeepworthError where no core is free,
        WorkerDied, WorkerFailed.

        Args:
            part: What the worker makes its object of.
            name: The name of the worker, for messages.
            label: KEY=VALUE that its host was started with, "" for any host.
        """
        ...
