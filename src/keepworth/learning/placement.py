"""Processes that work for a run, here or on other machines: what the loop asks of whoever places them.

The controller stays one loop, and the run folder the only truth. A worker is built where it runs, from the name of its class
and from plain data; closures and models never travel. `keepworth.cluster` has the implementations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from keepworth.episodes.errors import KeepworthError

STARTS = 3
"""So many times a worker is begun that dies before its object stands."""


class WorkerDied(KeepworthError):
    """A worker's process ended, or its machine is gone. Its state is lost; what it was doing may or may not have been done."""


class WorkerFailed(KeepworthError):
    """A call raised in a worker that goes on. The message names the worker, its host and what was raised there."""


class CannotPlace(KeepworthError):
    """There is no place for a worker: the message names what is missing and where."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a worker needs where it runs. cores: processor cores; gpus: whole ones. apart: on other hosts than the workers that
    were placed with the same word. label: KEY=VALUE that its host was begun with."""

    cores: int = 1
    gpus: int = 0
    apart: str = ""
    label: str = ""


ONE_CORE = Needs()


@dataclass(frozen=True, slots=True)
class Part:
    """What a worker is made of: `module:Class`, called with `settings`, which is plain data (it is pickled)."""

    target: str
    settings: Mapping[str, Any] = field(default_factory=dict)


class Worker(Protocol):
    """A process that answers calls, one after the other in the order in which they were made."""

    @property
    def name(self) -> str:
        """For messages, such as "learner 1"."""
        ...

    @property
    def host(self) -> str: ...

    @property
    def alive(self) -> bool: ...

    def call(self, method: str, *given: Any) -> Future[Any]:
        """Call a method of the worker's object. The future raises WorkerDied or WorkerFailed. given: plain data.

        Those of methods that are `async def` begin in that order, and go on beside each other."""
        ...

    def close(self) -> None:
        """End it. Called twice, it does nothing."""
        ...


class Cluster(Protocol):
    """Places workers."""

    @property
    def address(self) -> str:
        """Under which workers reach this process: a host's name or number."""
        ...

    def spawn(self, part: Part, name: str, needs: Needs = ONE_CORE) -> Worker:
        """Begin a worker; returns when its object stands. Raises CannotPlace within a time limit, WorkerDied, WorkerFailed."""
        ...

    def hosts(self) -> Sequence[str]:
        """Where workers can be placed."""
        ...

    def close(self) -> None:
        """End every worker that was placed."""
        ...


def spawn_lasting(cluster: Cluster, part: Part, name: str, needs: Needs, note: Callable[[str], None]) -> Worker:
    """A worker that stands. One that dies as it begins (its memory ran out, its host left) is begun again, `STARTS` times in all.

    note: is told of it. Raises what `Cluster.spawn` raises; WorkerDied, where the last of them died too."""
    died: WorkerDied | None = None
    for started in range(STARTS):
        try:
            worker = cluster.spawn(part, name, needs)
        except WorkerDied as error:
            died = error
            if started == STARTS - 1:
                raise WorkerDied(
                    f"{name} died {STARTS} times as it began; the last: {error.message}", error.fix
                ) from error
        else:
            if died is not None:
                note(f"{died.message} That was as it began; it was begun again.")
            return worker
    raise AssertionError
