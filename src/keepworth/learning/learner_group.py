"""A group of learners: several processes, here or on other machines, make every update together.

The first is the learner of this process, which samples, saves and loads like any other; the others are workers. Before each
update all have the same weights, moments and controls, and workers have nothing else: one that dies is replaced, and the update
is done again.

Sums go over TCP (torch.distributed, gloo), from the CPU: gradients on a GPU are copied there and back. On one machine the
learners listen on its loopback alone and meet at a file of this user; on several, on the addresses by which Ray knows them.
"""

from __future__ import annotations

import contextlib
import copy
import io
import ipaddress
import shutil
import socket
import tempfile
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from concurrent.futures import TimeoutError as TimedOut
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from keepworth.episodes.needs import needs_train

import torch
import torch.distributed

from keepworth.episodes.episode import Group
from keepworth.episodes.errors import KeepworthError
from keepworth.episodes.model import Model, Tokens
from keepworth.learning.learner import CriticSettings, Learner, Optimisation
from keepworth.learning.objective.batch import PassRoom
from keepworth.learning.objective.options import Objective
from keepworth.learning.placement import ONE_CORE, Cluster, Needs, Part, Worker, WorkerDied
from keepworth.learning.shares import GroupBroken, Shares, fingerprints
from keepworth.models.adapter import Named
from keepworth.models.inprocess import InProcessModel

distributed: Any = torch.distributed  # it does not say to type checkers what it exports

MOST_DEATHS = 3
"""In one update; with so many the run ends."""
NOTICE = 10.0
"""Seconds from a sum that failed until it is known which worker died."""
LONGEST = 1800.0
"""Seconds that a learner waits for the others in one sum."""


class LearnersDiffer(KeepworthError):
    """Learners of a group that should hold the same weights, or run the same versions, do not."""


class GroupLost(KeepworthError):
    """Too many workers of a group died in one update, which was not made. The last checkpoint stands."""


# Sums between processes.


class Gloo:
    """Sums over TCP, between processes that meet at a store.

    here: this host's address, as the others reach it. seconds: after which a sum has failed. watch: called while this learner
    waits; raises what it knows of a death. bytes, spent: of all sums so far, the seconds with waiting."""

    def __init__(
        self,
        store: Any,
        here: str,
        rank: int,
        count: int,
        seconds: float,
        watch: Callable[[], None] = lambda: None,
    ) -> None:
        gloo = distributed.ProcessGroupGloo
        options = gloo._Options()
        options._timeout = timedelta(seconds=seconds)
        options._devices = [gloo.create_device(hostname=here)]
        self._group: list[Any] = [gloo(store, rank, count, options)]
        self._store, self._watch, self._seconds = store, watch, seconds
        self.bytes, self.spent = 0, 0.0

    def add(self, tensor: torch.Tensor) -> None:
        if not self._group:
            raise GroupBroken("This learner has left its group.")
        begun, pause = time.perf_counter(), 1e-4
        try:
            sent = self._group[0].allreduce([tensor])
            while not sent.is_completed():
                self._watch()
                time.sleep(pause)
                pause = min(2 * pause, 0.01)
            sent.wait()
        except RuntimeError as error:
            raise GroupBroken(f"A sum over the learners failed: {str(error).partition(chr(10))[0]}") from error
        self.bytes += tensor.nbytes
        self.spent += time.perf_counter() - begun

    def close(self) -> None:
        """Leave the group: whoever waits for this learner is told at once."""
        group, self._group = self._group, []
        threading.Thread(target=group.clear, daemon=True).start()  # it waits for a sum that hangs


def open_store(address: str, seconds: float) -> tuple[Any, str | int]:
    """A store where the learners of a group meet, and where the others find it: a file in a folder of this user where all are on
    this machine, a port of this address alone where they are not."""
    if ipaddress.ip_address(address).is_loopback:
        path = str(Path(tempfile.mkdtemp(prefix="keepworth-learners-")) / "store")
        return distributed.FileStore(path), path
    listener = socket.create_server((address, 0))
    port = int(listener.getsockname()[1])
    store = distributed.TCPStore(
        address,
        port,
        is_master=True,
        timeout=timedelta(seconds=seconds),
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )
    return store, port


def find_store(address: str, place: str | int, seconds: float) -> tuple[Any, str]:
    """The store that another process opened, and this host's address as the others reach it."""
    if isinstance(place, str):
        return distributed.FileStore(place), address
    store = distributed.TCPStore(address, place, is_master=False, timeout=timedelta(seconds=seconds))
    return store, address_towards(address, place)


def address_towards(host: str, port: int) -> str:
    """This host's address on the way to another."""
    family, kind, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as way:
        way.connect(place)  # nothing is sent
        return str(way.getsockname()[0])


# The others: each in a worker.


class Follower:
    """A learner in a worker, which makes the updates that the first one makes. learner: with its shares of the group."""

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self._gloo: Gloo | None = None

    def versions(self) -> dict[str, str]:
        return versions()

    def join(self, address: str, place: str | int, seconds: float) -> None:
        """Meet the others at the store that the first learner opened there (`open_store`)."""
        shares = self._learner.shares
        store, here = find_store(address, place, seconds)
        self._gloo = Gloo(store, here, shares.rank, shares.count, seconds)
        shares.collective = self._gloo

    def begin(self, state: bytes, room: PassRoom, threads: int) -> list[int]:
        """Take the first learner's state, and what a pass may hold. Returns the fingerprints of all weights."""
        torch.set_num_threads(threads)
        with torch.no_grad():
            unpacked(self._learner, state)
        self._learner.room = room
        return weights_of(self._learner, whole=True)

    def act(self, call: str, *given: Any) -> list[int] | str:
        """Make an update with the others. Returns the fingerprints of what is trained, or why it was not made."""
        assert self._gloo is not None
        try:
            getattr(self._learner, call)(*given)
        except GroupBroken as error:
            self._gloo.close()
            return error.message
        except BaseException:
            self._gloo.close()
            raise
        return weights_of(self._learner)


def versions() -> dict[str, str]:
    """What learners of a group must have in common."""
    import transformers

    import keepworth

    return {"keepworth": keepworth.__version__, "torch": torch.__version__, "transformers": transformers.__version__}


def weights_of(learner: Learner, whole: bool = False) -> list[int]:
    """Fingerprints of what is trained; whole: and of the frozen weights."""
    trained = [*learner.master_weights.named.values()]
    if learner.critic is not None:
        trained += learner.critic.master_weights.named.values()
    return fingerprints([*trained, *learner.model.network.parameters()] if whole else trained)


def packed(learner: Learner) -> bytes:
    """The learner's state, with its reference."""
    buffer = io.BytesIO()
    reference = {} if learner.reference is None else learner.reference.state()
    torch.save({**learner.state(), "reference": reference}, buffer)
    return buffer.getvalue()


def unpacked(learner: Learner, state: bytes) -> None:
    learner.load(torch.load(io.BytesIO(state), weights_only=False, map_location=learner.model.device))


# The first one.


@dataclass(frozen=True, slots=True)
class Company:
    """The others of a group, and how they are placed.

    count: of all learners, the first included. part: makes a `Follower`; its settings get `rank` and `count` besides. say: is
    told of deaths. seconds: that a learner waits for the others in one sum."""

    cluster: Cluster
    part: Part
    count: int
    say: Callable[[str], None]
    needs: Needs = ONE_CORE
    seconds: float = LONGEST


class LeadingLearner(Learner):
    """The first learner of a group. It is used like any other; its updates are made by all.

    Workers are begun at the first update, and again after one died. An update in which `MOST_DEATHS` died raises GroupLost."""

    def __init__(
        self,
        model: InProcessModel,
        named: Named,
        objective: Objective,
        optimisation: Optimisation,
        role: str,
        company: Company,
        *,
        roles: Sequence[str] = (),
        teacher: Model | None = None,
        soft_values: Mapping[str, float] | None = None,
        critic: CriticSettings | None = None,
    ) -> None:
        super().__init__(
            model,
            named,
            objective,
            optimisation,
            role,
            roles=roles,
            teacher=teacher,
            soft_values=soft_values,
            critic=critic,
            shares=Shares(0, company.count),
        )
        self._company = company
        self._others: list[Worker] = []
        weakref.finalize(self, _end, self._others)  # also where nobody closes it
        self._gloo: Gloo | None = None
        self._asked: list[Future[Any]] = []
        self._state_sent = False  # whether the others have this learner's state
        self._threads = 1

    def update(self, groups: Sequence[Group]) -> dict[str, float]:
        # A step is the last thing that an update does: where it does several, what was before the first is kept.
        several = self.optimisation.passes * self.optimisation.minibatches > 1 or self.critic is not None
        return self._together("update", super().update, (groups,), several)

    def imitate(self, pairs: Sequence[tuple[Tokens, Tokens]], learning_rate: float | None = None) -> dict[str, float]:
        return self._together("imitate", super().imitate, (pairs, learning_rate), False)

    def forget_moments(self) -> None:
        super().forget_moments()
        self._state_sent = False

    def validated(self, score: float) -> None:
        super().validated(score)
        self._state_sent = self._state_sent and self.objective.reset is None

    def load(self, state: Mapping[str, Any]) -> None:
        super().load(state)
        self._state_sent = False

    def close(self) -> None:
        """End the workers. The next update begins others."""
        if self._gloo is not None:
            self._gloo.close()
        self._gloo = self.shares.collective = None
        self._asked, self._state_sent = [], False
        _end(self._others)

    # -- parts ----------------------------------------------------------------------------------------------------

    def _together(
        self, call: str, here: Callable[..., dict[str, float]], given: tuple[Any, ...], several: bool
    ) -> dict[str, float]:
        """Do it in all learners, from the same state until it is done. several: it may fail between two steps."""
        before = copy.deepcopy(self.state()) if several else None
        deaths: list[str] = []
        while True:
            try:
                self._begin()
                return self._tried(call, here, given)
            except WorkerDied as error:
                deaths.append(error.message.rstrip("."))
                self._undo(before)
            except BaseException:
                self.close()
                raise
            if len(deaths) == MOST_DEATHS:
                raise GroupLost(
                    f"{len(deaths)} learners died in one update, which was not made: {'; '.join(deaths)}.",
                    "See what ended them (memory?), then continue the run: its last checkpoint stands.",
                )
            self._company.say(f"{deaths[-1]}. The learners are begun again, and the update is done again.")

    def _tried(self, call: str, here: Callable[..., dict[str, float]], given: tuple[Any, ...]) -> dict[str, float]:
        self._asked = [each.call("act", call, *given) for each in self._others]
        assert self._gloo is not None
        spent = self._gloo.spent
        try:
            with _threads(self._threads):
                measured = here(*given)
        except GroupBroken as error:
            raise self._reason(error) from error
        # Here all sums have ended: this learner has made the update, whatever becomes of the others.
        own, spent, lost = weights_of(self), self._gloo.spent - spent, []
        wait(self._asked, self._company.seconds, FIRST_EXCEPTION)
        for other, asked in self._pairs():
            try:
                theirs = asked.result(NOTICE)
            except WorkerDied as error:
                lost.append(str(error).rstrip("."))
            except TimedOut:
                lost.append(f"{other.name} on {other.host} gave no answer")
            else:
                if isinstance(theirs, str):
                    lost.append(f"{other.name} on {other.host}: {theirs.rstrip('.')}")
                elif theirs != own:
                    raise LearnersDiffer(
                        f"After an update {other.name} on {other.host} has other weights than the first learner.",
                        "Learners of a group need processors of one kind. Continue from the last checkpoint.",
                    )
        if lost:
            self.close()
            self._company.say(f"After an update, which was made: {'; '.join(lost)}. The learners are begun again.")
        return measured | {"seconds/all_reduce": spent}

    def _reason(self, broken: GroupBroken) -> Exception:
        """Why a sum failed: who died, or what a worker raised."""
        wait(self._asked, NOTICE, FIRST_EXCEPTION)
        raised = [each.exception() for each in self._asked if each.done()]
        died = [str(each) for each in raised if isinstance(each, WorkerDied)]
        if died:
            return WorkerDied("; ".join(died))
        if own := next((each for each in raised if isinstance(each, Exception)), None):
            return own
        silent = [each.name + " on " + each.host for each, asked in self._pairs() if not asked.done()]
        lost = f"{' and '.join(silent)} gave no answer" if silent else "The learners lost each other"
        return WorkerDied(f"{lost} ({broken.message.rstrip('.')})")

    def _undo(self, before: Mapping[str, Any] | None) -> None:
        """As it was before the update; the workers are ended."""
        self.close()
        trained = [self.master_weights, *([] if self.critic is None else [self.critic.master_weights])]
        for value in (value for each in trained for value in each.named.values()):
            value.grad = None
        if before is not None:
            super().load(before)

    def _begin(self) -> None:
        """Workers that stand, and have this learner's state."""
        for each in self._others:
            if not each.alive:
                each.call("versions").result()  # says how it ended
        if not self._others:
            self._place()
            self._meet()
        if not self._state_sent:
            given = packed(self), self.room, self._threads
            own = weights_of(self, whole=True)
            for each, theirs in self._of_all("begin", *given):
                if theirs != own:
                    raise LearnersDiffer(
                        f"{each.name} on {each.host} has other weights than this host, before anything was trained there.",
                        f"Give all hosts the same files of {self.model.name}.",
                    )
            self._state_sent = True

    def _place(self) -> None:
        company = self._company

        def spawned(rank: int) -> Worker:
            settings = {**company.part.settings, "rank": rank, "count": company.count}
            return company.cluster.spawn(replace(company.part, settings=settings), f"learner {rank}", company.needs)

        with ThreadPoolExecutor(company.count) as pool:
            begun = [pool.submit(spawned, rank) for rank in range(1, company.count)]
        self._others[:] = [each.result() for each in begun if each.exception() is None]
        for each in begun:
            each.result()
        for other, theirs in self._of_all("versions"):
            for name, version in versions().items():
                if theirs[name] != version:
                    raise LearnersDiffer(
                        f"{other.name} on {other.host} runs {name} {theirs[name]}, and this host {version}.",
                        "Install the same versions on all hosts.",
                    )
        hosts = Counter([socket.gethostname(), *(each.host for each in self._others)])
        self._threads = max(1, torch.get_num_threads() // max(hosts.values()))

    def _meet(self) -> None:
        """Join the group: at a store of this process."""
        company, address = self._company, self._company.cluster.address
        store, place = open_store(address, company.seconds)
        try:
            self._meet_at(store, place)
        except RuntimeError as error:
            raise self._reason(GroupBroken(f"The learners did not meet at {address}: {error}.")) from error
        finally:
            if isinstance(place, str):
                shutil.rmtree(Path(place).parent, ignore_errors=True)

    def _meet_at(self, store: Any, place: str | int) -> None:
        company, address = self._company, self._company.cluster.address
        self._asked = [each.call("join", address, place, company.seconds) for each in self._others]
        met: Future[Gloo] = Future()

        def meet() -> None:
            try:
                met.set_result(Gloo(store, address, 0, company.count, company.seconds, self._watch))
            except Exception as error:
                met.set_exception(error)

        threading.Thread(target=meet, daemon=True).start()  # it cannot be told that another has died
        while not met.done():
            wait([met], 0.05)
            self._watch()
        self._gloo = self.shares.collective = met.result()
        for each in self._asked:
            each.result()

    def _watch(self) -> None:
        """Raises what a worker raised, WorkerDied, or GroupBroken where one has given up."""
        for each in self._asked:
            if each.done() and isinstance(answer := each.result(), str):
                raise GroupBroken(answer)

    def _of_all(self, method: str, *given: Any) -> list[tuple[Worker, Any]]:
        self._asked = [each.call(method, *given) for each in self._others]
        return [(each, asked.result()) for each, asked in self._pairs()]

    def _pairs(self) -> list[tuple[Worker, Future[Any]]]:
        """The others, and what each was asked last."""
        return list(zip(self._others, self._asked, strict=True))


def _end(workers: list[Worker]) -> None:
    while workers:
        workers.pop().close()


@contextlib.contextmanager
def _threads(count: int) -> Iterator[None]:
    """On one host the learners share the processors of the first, which has them to itself otherwise."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
