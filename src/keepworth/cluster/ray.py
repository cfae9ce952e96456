"""Workers as actors of Ray, on this machine and others. Only this file imports it.

An actor wraps the object of a `Part`, as a process of `LocalCluster` does. Ray restarts nothing: whoever asked for a worker knows
what its death means, and begins another. Arrays of NumPy travel without copies on one host, and arrive read-only.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import platform
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from typing import Any

from keepworth import __version__
from keepworth.cluster.heartbeat import SILENCE, WHY_SILENT, Heartbeats, silence_of
from keepworth.cluster.process import STANDS, answers_beside, made
from keepworth.cluster.sending import Raised, failure, raised, require_plain
from keepworth.episodes import clocks, extras
from keepworth.episodes.errors import KeepworthError
from keepworth.learning.placement import ONE_CORE, CannotPlace, Needs, Part, WorkerDied, WorkerFailed

PLACING = 30.0
"""Seconds in which there has to be a place for a worker."""
REACHED = 10.0
"""Seconds in which an address answers."""
STANDING = 120.0
"""Seconds in which an actor that has its place is there."""
AGAIN = 0.5
"""Seconds before an actor is asked again that was out of reach for a moment."""
STORE = 512 * 2**20
"""Bytes of the object store of a Ray that is started here."""
OUTPUT = "What it wrote is in the logs of Ray on that host, by default under /tmp/ray/session_latest/logs."


_open: weakref.WeakSet[RayCluster] = weakref.WeakSet()
"""Clusters of this process: they share one connection, which the last one closes."""
_joining = threading.Lock()


def _begin(ray: Any, address: str) -> None:
    where: dict[str, Any] = {"address": address}
    if not address:
        where = {"address": "local", "include_dashboard": False, "object_store_memory": STORE}
    try:
        host, _, port = address.rpartition(":")
        if host and port.isdigit() and "://" not in address:  # Ray itself would try for minutes
            socket.create_connection((host, int(port)), REACHED).close()
        ray.init(**where, namespace="keepworth", logging_level=logging.ERROR, log_to_driver=True)
    except (OSError, RuntimeError, ValueError) as error:
        said = str(error).strip().split("\n")[0].rstrip(".")
        raise KeepworthError(
            f"There is no Ray at {address or 'this machine'}: {said}.",
            "Start one with `ray start --head`, of the same version of Ray and Python, and give its address; where it asks for a "
            "token, set RAY_AUTH_TOKEN.",
        ) from error


class RayCluster:
    """An actor for each worker. address: of a Ray that runs; "" starts one on this machine, and ends it. placing: seconds in
    which there has to be a place for a worker; silence: after which one that gives no sign of life counts as dead."""

    def __init__(self, address: str = "", *, placing: float = PLACING, silence: float = SILENCE) -> None:
        extras.require("ray", "cluster = ray", "ray")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_DEDUP_LOGS", "0")  # what a worker writes is never left out
        os.environ.setdefault("RAY_SCHEDULER_EVENTS", "0")  # what cannot be placed, we say
        os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")  # what is asked after the end begins no other Ray
        import ray

        with _joining:
            if not ray.is_initialized():
                _begin(ray, address)
            _open.add(self)
        self._ray, self._placing = ray, placing
        self._workers: list[RayWorker] = []
        self._heartbeats = Heartbeats(silence)
        self._lock, self._spawning = threading.Lock(), threading.Condition()
        self._spawns, self._closed = 0, False
        try:
            self._require_alike()
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> str:
        return str(self._ray.util.get_node_ip_address())

    def hosts(self) -> Sequence[str]:
        names = self._names()
        return [names[str(each["NodeID"])] for each in self._alive()]

    def spawn(self, part: Part, name: str, needs: Needs = ONE_CORE) -> RayWorker:
        """Raises CannotPlace that says what every host has, where there is no place in time."""
        require_plain(dict(part.settings), f"settings of {name}")
        with self._spawning:
            self._require_open(name)
            self._spawns += 1
        try:
            with self._lock if needs.apart else nullcontext():
                self._release()
                others = [each for each in self._workers if each.apart == needs.apart] if needs.apart else []
                worker = RayWorker(self._ray, self._place(name, needs, others), name, needs, self._names)
                self._workers.append(worker)
            self._heartbeats.watch(worker)
            try:
                self._require_open(name)
                worker.make(part)
            except BaseException:
                worker.close()
                raise
            return worker
        finally:
            with self._spawning:
                self._spawns -= 1
                self._spawning.notify_all()

    def _place(self, name: str, needs: Needs, others: Sequence[RayWorker]) -> Any:
        """A place on no node of `others`, and on one with the label."""
        from ray.util.placement_group import placement_group, remove_placement_group

        asked = {"CPU": float(needs.cores), "GPU": float(needs.gpus)}
        taken = {each.node for each in others}
        large = [
            each
            for each in self._alive()
            if each["NodeID"] not in taken
            and needs.label in ("", *_labels(each))
            and all(each["Resources"].get(kind, 0) >= asked[kind] for kind in asked)
        ]
        if large:
            where = {"ray.io/node-id": f"!in({','.join(sorted(taken))})"} if taken else {}
            if needs.label:
                key, _, value = needs.label.partition("=")
                where[key] = value
            selected = {"bundle_label_selector": [where]} if where else {}
            place = placement_group([{kind: count for kind, count in asked.items() if count}], **selected)
            until = time.monotonic() + self._placing
            while time.monotonic() < until and not self._closed:
                if place.wait(1):
                    return place
            remove_placement_group(place)
            self._require_open(name)
        label = f" on a host with the label {needs.label}" if needs.label else ""
        apart = f" on another host than {', '.join(each.name for each in others)}" if others else ""
        raise CannotPlace(
            f"There is no place for {name}, which needs {_listed(asked)}{label}{apart}: {self._listed_hosts()}.",
            "Ask for fewer workers, wait until others are done, or add a host: ray start --address=HOST:PORT"
            f"{f' --labels={needs.label}' * bool(needs.label)}.",
        )

    def _release(self) -> None:
        """What workers that have died took is free again."""
        for each in [each for each in self._workers if not each.alive]:
            each.close()
            with suppress(ValueError):  # another thread was faster
                self._workers.remove(each)

    def _require_open(self, name: str) -> None:
        if self._closed:
            raise CannotPlace(f"There is no place for {name}: the cluster was closed.")

    def close(self) -> None:
        """Also waits for workers that are being placed: Ray does not bear to be left in the middle of it."""
        self._closed = True
        for each in [*self._workers]:
            each.close()
        with self._spawning:
            self._spawning.wait_for(lambda: not self._spawns, timeout=2 * self._placing)
        with _joining:
            if self in _open:
                _open.discard(self)
                if not _open:
                    self._ray.shutdown()

    def _alive(self) -> list[Mapping[str, Any]]:
        return [each for each in self._ray.nodes() if each["Alive"]]

    def _names(self) -> dict[str, str]:
        """node id -> its host's name, with a part of the id where several nodes are on one host."""
        names = {str(each["NodeID"]): str(each["NodeManagerHostname"]) for each in self._ray.nodes()}
        shared = [*names.values()]
        return {node: f"{name} (node {node[:8]})" if shared.count(name) > 1 else name for node, name in names.items()}

    def _listed_hosts(self) -> str:
        names = self._names()
        has = [
            f"{names[each['NodeID']]} has {_listed(each['Resources'])}{', '.join(['', *_labels(each)])}"
            for each in self._alive()
        ]
        return f"{'; '.join(has)}. Of all of it {_listed(self._ray.available_resources())} are free"

    def _require_alike(self) -> None:
        """Raises KeepworthError that names the host where another version runs, or where this package is not installed; warns of
        one whose clock differs."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        names, here, began = self._names(), _versions(), time.time()
        asked = {
            node: self._ray.remote(_there)
            .options(num_cpus=0, max_retries=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False))
            .remote()
            for node in (str(each["NodeID"]) for each in self._alive())
        }
        for node, answer in asked.items():
            try:
                there, clock = self._ray.get(answer, timeout=2 * self._placing)
            except Exception as error:
                raise KeepworthError(
                    f"{names[node]} cannot run a worker: {str(error).strip().splitlines()[-1]}.",
                    "Install the same keepworth there: pip install 'keepworth[train,ray]'.",
                ) from error
            if there != here:
                differs = ", ".join(
                    f"{name} {there[name]} (here {here[name]})" for name in here if there[name] != here[name]
                )
                raise KeepworthError(f"{names[node]} has {differs}.", "Install the same versions on every host.")
            clocks.warn(began, clock, time.time(), names[node], "times in a run's records come from both")


class RayWorker:
    """An actor, and what was asked of it and is not answered."""

    def __init__(self, ray: Any, place: Any, name: str, needs: Needs, names: Callable[[], Mapping[str, str]]) -> None:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        self.name, self.apart, self._ray, self._place = name, needs.apart, ray, place
        self._lock = threading.RLock()  # an answer that is there at once is taken within `_ask`, by the same thread
        self._number, self._unanswered = STANDS, dict[int, Future[Any]]()
        self._dead = self._closed = False
        self._signs, self._sign_asked, self._silent = 0, False, 0.0
        self.host = "a host of Ray"
        self._actor = (
            ray.remote(concurrency_groups={"signs": 1})(_Actor)
            .options(
                num_cpus=needs.cores,
                num_gpus=needs.gpus,
                max_restarts=0,
                max_task_retries=0,
                max_concurrency=1000,
                scheduling_strategy=PlacementGroupSchedulingStrategy(place),
                runtime_env={"env_vars": {"OMP_NUM_THREADS": str(max(1, needs.cores))}},
            )
            .remote(name, [each for each in sys.path if each])
        )
        try:
            self.node, self.pid = ray.get(self._actor.where.remote(), timeout=STANDING)
        except ray.exceptions.RayError as error:
            late = isinstance(error, ray.exceptions.GetTimeoutError)  # as where the part of Ray on this host has died
            died = (
                WorkerDied(f"{name} was placed, and not there in {STANDING:g} seconds.", OUTPUT)
                if late
                else self._death(error)
            )
            self.close()
            raise died from error
        self.host = names()[self.node]

    def make(self, part: Part) -> None:
        """Make its object. Raises WorkerDied, WorkerFailed."""
        self._ask("", (part.target, dict(part.settings))).result()

    @property
    def alive(self) -> bool:
        """As far as its last call told."""
        return not (self._dead or self._closed)

    def call(self, method: str, *given: Any) -> Future[Any]:
        """Raises KeepworthError, before anything is sent, for what cannot be pickled."""
        require_plain(given, f"{self.name}.{method}")
        return self._ask(method, given)

    def signs(self) -> int:
        if not self._sign_asked:
            self._sign_asked = True
            self._actor.sign.options(concurrency_group="signs").remote().future().add_done_callback(self._signed)
        return self._signs

    def _signed(self, sign: Future[None]) -> None:
        self._signs += sign.exception() is None
        self._sign_asked = False

    def give_up(self, seconds: float) -> None:
        with self._lock:
            if self._dead or self._closed:
                return
            self._dead, self._silent = True, seconds
            asked, self._unanswered = self._unanswered, {}
        self.close()
        for future in asked.values():
            future.set_exception(self._death())

    def close(self) -> None:
        from ray.util.placement_group import remove_placement_group

        with self._lock:
            if self._closed:
                return
            self._closed = True
        with suppress(Exception):  # the Ray may be gone already
            self._ray.kill(self._actor)
            remove_placement_group(self._place)

    def _ask(self, method: str, given: Sequence[Any]) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            if self._closed or self._dead:
                future.set_exception(self._death())
                return future
            number, self._number = self._number, self._number + 1
            self._unanswered[number] = future
            self._send(future, number, method, given)
        return future

    def _send(self, future: Future[Any], number: int, method: str, given: Sequence[Any]) -> None:
        with self._lock:
            heard = min(self._unanswered, default=number)
            asked = self._actor.call.remote(number, heard, method, *given).future()
        asked.add_done_callback(lambda done: self._answered(done, future, number, method, given))

    def _answered(self, done: Future[Any], future: Future[Any], number: int, method: str, given: Sequence[Any]) -> None:
        error = done.exception()
        if isinstance(error, self._ray.exceptions.ActorUnavailableError) and not self._closed:
            # Out of reach for a moment. What was asked may have been done: the actor knows numbers that come again.
            threading.Timer(AGAIN, self._send, (future, number, method, given)).start()
            return
        with self._lock:
            if self._unanswered.pop(number, None) is None:  # it was given up
                return
        if error is None and not isinstance(answer := done.result(), Raised):
            future.set_result(answer)
        elif error is None:
            future.set_exception(failure(self.name, self.host, method or "its beginning", answer))
        elif isinstance(error, self._ray.exceptions.RayTaskError):
            said = str(error).strip().splitlines()[-1]
            future.set_exception(WorkerFailed(f"{self.name} on {self.host}: {method} raised {said}"))
        else:
            self._dead = True
            future.set_exception(self._death(error))

    def _death(self, error: BaseException | None = None) -> WorkerDied:
        if self._silent:
            return WorkerDied(silence_of(self.name, self.host, self._silent), f"{WHY_SILENT} {OUTPUT}")
        if self._closed or error is None:
            return WorkerDied(f"{self.name} on {self.host} {'was closed' if self._closed else 'died'}.")
        told = " ".join(str(error).split())
        # Of a page of possible causes, what happened: it stands behind these words.
        for before in ("Worker exit type:", "The actor is dead because", "The actor died because"):
            if before in told:
                told = told[told.index(before) :]
                break
        return WorkerDied(
            f"{self.name} on {self.host} died. Ray says: {told.split(' Some common causes')[0]}",
            OUTPUT,
        )


class _Actor:
    """Begins calls in the order of their numbers, whatever order they arrive in, and no call twice."""

    def __init__(self, name: str, path: Sequence[str]) -> None:
        self._name = name
        sys.path[:] = [*path, *(each for each in sys.path if each not in path)]
        self._served: Any = None
        self._beside = False
        self._thread = ThreadPoolExecutor(1)  # of an object without coroutines: it may run loops of its own
        self._turn, self._begun = STANDS, asyncio.Condition()
        self._answers: dict[int, asyncio.Task[Any]] = {}

    def __repr__(self) -> str:
        return self._name  # stands before what it writes

    async def where(self) -> tuple[str, int]:
        import ray

        return ray.get_runtime_context().get_node_id(), os.getpid()

    async def sign(self) -> None:
        """Answered by a thread of its own, whatever the calls do: that of a concurrency group."""

    async def call(self, number: int, heard: int, method: str, *given: Any) -> Any:
        for each in [each for each in self._answers if each < heard]:
            del self._answers[each]
        if number not in self._answers:
            self._answers[number] = asyncio.get_running_loop().create_task(self._answer(number, method, given))
        return await asyncio.shield(self._answers[number])

    async def _answer(self, number: int, method: str, given: Sequence[Any]) -> Any:
        async with self._begun:
            await self._begun.wait_for(lambda: self._turn == number)
            answering = self._begin(method, given)
            self._turn += 1
            self._begun.notify_all()
        try:
            answer = await answering
            require_plain((answer,), f"the answer of {method}")  # Ray would send more than processes here do
            return answer
        except BaseException as error:
            return raised(error)

    def _begin(self, method: str, given: Sequence[Any]) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        if not self._beside:
            return loop.run_in_executor(self._thread, self._called, method, given)
        done: asyncio.Future[Any] = loop.create_future()
        try:
            found = getattr(self._served, method)(*given)
        except Exception as error:
            done.set_exception(error)
            return done
        if inspect.isawaitable(found):
            return asyncio.ensure_future(found)
        done.set_result(found)
        return done

    def _called(self, method: str, given: Sequence[Any]) -> Any:
        if method:
            return getattr(self._served, method)(*given)
        self._served = made(*given)
        self._beside = answers_beside(type(self._served))
        return None


def _there() -> tuple[dict[str, str], float]:
    return _versions(), time.time()


def _versions() -> dict[str, str]:
    return {"keepworth": __version__, "Python": platform.python_version()}


def _labels(node: Mapping[str, Any]) -> list[str]:
    """What people said of a host as they began Ray there."""
    labels: Mapping[str, str] = node.get("Labels") or {}
    return [f"{key}={value}" for key, value in sorted(labels.items()) if not key.startswith("ray.io/")]


def _listed(resources: Mapping[str, float]) -> str:
    """Of what Ray counts, what workers ask for."""
    return f"{resources.get('CPU', 0):g} cores and {resources.get('GPU', 0):g} GPUs"
