"""Processes that work for a run: what the loop asks of whoever starts them (`keepworth.cluster.ray`).

The controller stays one loop, and the run folder the only truth. A worker is built where it runs, from the name of its class
and from plain data; closures and models never travel.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from keepworth.episodes.errors import KeepworthError


class WorkerDied(KeepworthError):
    """A worker's process ended, or its host is gone. What it was doing may or may not have been done."""


class WorkerFailed(KeepworthError):
    """A call raised in a worker that goes on. The message names the worker, its host and what was raised there."""


@dataclass(frozen=True, slots=True)
class WorkerPart:
    """What a worker is made of: `module:Class`, called with `settings`, which is plain data."""

    target: str
    settings: Mapping[str, Any] = field(default_factory=dict)


class Worker(Protocol):
    """A process that answers calls."""

    name: str
    host: str

    def call(self, method: str, *given: Any) -> Future[Any]:
        """Call a method of the worker's object. The future raises WorkerDied or WorkerFailed."""
        ...

    def restarted(self) -> Future[Any]:
        """Done once a worker that died stands again. The future raises WorkerDied where it is not started again."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class Cluster(Protocol):
    """Starts workers."""

    def spawn(self, part: WorkerPart, name: str, label: str = "") -> Worker:
        """Start a worker, on a core of its own, and wait until its object is made. label: KEY=VALUE that its host was started
        with, "" for any. Raises KeepworthError where there is no room for it, WorkerDied, WorkerFailed."""
        ...

    def close(self) -> None:
        """End every worker that was started."""
        ...
