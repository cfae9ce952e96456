"""One night: drawn work on one file by several handles, drawn faults, and after each of them the claims.

A night is a list of steps. Each step holds all numbers that are drawn for it, so that a night without some of its steps is a
night too: that is how a failure is shrunk.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import numpy as np

from benchmarks.nights.disk import Disk, Event, Fault, Image, Platters
from benchmarks.nights.model import Entry, Model, State
from benchmarks.nights.world import simulated
from keepworth.memory import by_name
from keepworth.memory.errors import (
    Busy,
    ClosedEpisode,
    InvalidFilter,
    InvalidPolicy,
    MemoryProblem,
    Purged,
    UnknownEpisode,
)
from keepworth.memory.memory import Memory
from keepworth.memory.store.checks import check
from keepworth.memory.store.maintenance import compact
from keepworth.records.episode import Operation, OperationKind
from keepworth.serving.access import Access
from keepworth.serving.calls import NotServed, ReadyAnswer, ServedCall
from keepworth.serving.memory_routes import BASE, memory_table
from keepworth.serving.open_memories import OpenMemories

ENCODER = "hashing:16"
USERS = ("ana", "bob", "cy")
LETTERS = "bcdfghjklmnpqrtvwxz"
MANY = 10**6
VERBS = {
    "add": 16, "many": 5, "repeat": 2, "update": 5, "metadata": 3, "archive": 2, "supersede": 6, "merge": 2,
    "delete": 6, "delete all": 1, "episode": 3, "search": 6, "look": 3, "remember": 3, "reward": 9, "repeat reward": 2,
    "undo episode": 2, "undo source": 2, "undo since": 4, "undo entry": 4, "undo undo": 3, "undo rewarder": 1,
    "erase": 2, "purge": 2, "bank": 2, "compact": 1, "flush": 2, "reopen": 4,
}  # fmt: skip
"""How often each kind of step is drawn."""


class Failure(AssertionError):
    """A claim that does not hold. `claim` is one of a few phrases, `place` says after which fault."""

    def __init__(self, claim: str, detail: object, place: str = "") -> None:
        super().__init__(f"{claim}: {detail}")
        self.claim, self.detail, self.place = claim, str(detail), place
        self.step = -1


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a night: a verb, the handle that does it, and numbers from 0 to 1 by which it chooses its arguments. `number`
    is its place in the night as it was drawn, from which its faults are drawn too."""

    number: int
    verb: str
    handle: float
    numbers: tuple[float, ...]


def drawn_steps(seed: int, count: int) -> list[Step]:
    """Return the steps of the night with a seed."""
    draw = random.Random(f"steps/{seed}")
    verbs = draw.choices([*VERBS], [*VERBS.values()], k=count)
    return [
        Step(number, verb, draw.random(), tuple(draw.random() for _ in range(6))) for number, verb in enumerate(verbs)
    ]


@dataclass(slots=True)
class Tally:
    """What a night did: faults by kind and place, how many were distinct, and how much of what was looked at."""

    steps: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    places: Counter[str] = field(default_factory=Counter)
    at_clients: int = 0  # of the faults, those while a server answered a client
    repeated: int = 0
    checks: int = 0

    def add(self, other: Tally) -> None:
        self.steps += other.steps
        self.faults += other.faults
        self.places += other.places
        self.at_clients += other.at_clients
        self.repeated += other.repeated
        self.checks += other.checks


@dataclass(frozen=True, slots=True)
class Request:
    """What a client sends: the verb's method and path, the values in the path, and the fields of the body. `key` is the same
    however often it is sent."""

    method: str
    path: str
    fields: dict[str, Any]
    key: str
    id: str = ""


class Server:
    """What answers the requests of clients to a memory, without the network.

    Args:
        path: That of the memory.
        options: Those of `Memory`.
    """

    def __init__(self, path: str, options: dict[str, Any]) -> None:
        self._memories = OpenMemories(path, options)
        self._table = memory_table(self._memories)
        self._access = Access("client")
        self.memory = self._memories.of(self._access).memory

    def answer(self, request: Request) -> Any:
        """Answer a request, as often as it comes. Raises NotServed."""
        call = ServedCall(
            request.fields,
            {},
            {"id": request.id} if request.id else {},
            self._access,
            json.dumps(request.fields).encode() if request.fields else b"",
            {"idempotency-key": request.key},
        )
        answer = self._table[request.method, BASE + request.path](call)
        return json.loads(answer.content) if isinstance(answer, ReadyAnswer) else answer


@dataclass(slots=True)
class Act:
    """What a step does: `call` does it with a memory, `entries` says which entries of the journal it makes, given their numbers,
    `after` notes its result, and `refusals` are the errors that it may raise without any fault."""

    call: Callable[[Memory], Any]
    entries: Callable[[Sequence[int], str], list[Entry]] = lambda numbers, at: []
    after: Callable[[Any, Sequence[int]], None] = lambda result, numbers: None
    refusals: tuple[type[Exception], ...] = ()
    least: int = 0
    """How many entries it makes at least, if it is done."""
    request: Request | None = None
    """What a client sends for it, where the handle is a server's; None for what only the handle itself does."""


@dataclass(slots=True)
class Handle:
    """A memory that a process has open. `server` is what answers clients there; None where it is a program's own."""

    name: str
    memory: Memory
    policy: str | None
    server: Server | None = None


class Night:
    """A night on a file in a folder.

    Args:
        seed: Of everything that is drawn.
        steps: What is done.
        folder: Where the file lies, best in memory.
        faulty: The numbers of the steps at which faults happen; None for all.
        images: The most images of the disk that are looked at after a step.
        earlier: Whether it is as nights were before there were interrupts, states that are saved after every second reward, and
            searches for the words of what is gone, so that a seed that failed then draws the same.
    """

    def __init__(
        self,
        seed: int,
        steps: Sequence[Step],
        folder: Path,
        *,
        faulty: set[int] | None = None,
        images: int = 14,
        earlier: bool = False,
    ) -> None:
        self.seed, self.steps, self.folder, self.faulty, self.images = seed, steps, folder, faulty, images
        self.earlier = earlier
        self.path, self.copy = str(folder / "a.mem"), str(folder / "image" / "a.mem")
        self.tally, self.model = Tally(), Model()
        draw = random.Random(f"night/{seed}")
        self.durability = draw.choice(("process", "power"))
        self.policies = [draw.choice(("default", None)), "default", None]
        self.serving = draw.choice(("h0", "h2", "none"))  # the handle that is a server's, if one is
        self.heads = {0}
        self.words = self.generation = self.sent = 0
        self.lines: dict[str, str] = {}  # the unique word of each text, by text
        self.users = {name: name for name in USERS}
        self.episodes: list[tuple[str, str, list[str]]] = []  # id, user, ids of what it has shown
        self.decisions: list[tuple[str, str, str, tuple[str, ...]]] = []  # id, user, episode, ids of what it has shown
        self.undone: list[int] = []
        self.named: set[str] = set()  # ids of episodes and decisions
        self.known: set[bytes] = set()  # digests of the images that were looked at
        self.usual: Counter[tuple[str, str]] = Counter()  # how many accesses a verb makes, by the kind of fault
        self.present = ""  # the fault that is looked at
        # Whether a killed process left a write that it did not publish: images hold it until the next write takes its place.
        self.cut_off = False
        self.started = 0  # the newest entry when the present step began
        self.encoder = by_name.encoder(ENCODER)
        self.vectors: dict[str, Any] = {}

    # The night.

    def run(self) -> Tally:
        """Do all steps. Raises Failure."""
        (self.folder / "image").mkdir(parents=True, exist_ok=True)
        with simulated(self.seed, often_saved=not self.earlier) as world:
            self.world = world
            self.disk = Disk(f"night {self.seed} {id(self)}", self.path, self.seed)
            apsw.set_default_vfs(self.disk.name)
            self.handles: list[Handle] = []
            try:
                for number in range(len(self.policies)):
                    self.handles.append(self.open(f"h{number}", self.policies[number]))
                for step in self.steps:
                    self.tally.steps += 1
                    try:
                        self.take(step)
                    except Failure as failure:
                        failure.step, failure.place = step.number, failure.place or self.present
                        raise
            finally:
                for handle in self.handles:
                    self.bury(handle)
                apsw.set_default_vfs("unix")
                self.disk.unregister()
        return self.tally

    def open(self, name: str, policy: str | None) -> Handle:
        options: dict[str, Any] = {"encoder": ENCODER, "writer": None, "policy": policy, "clock": self.world.clock}
        options |= {"durability": self.durability, "signals": (), **({} if policy is None else {"seed": 1})}
        with self.acting(name):
            if name.startswith(self.serving):
                server = Server(self.path, options)
                return Handle(name, server.memory, policy, server)
            return Handle(name, Memory(self.path, **options), policy)

    @contextlib.contextmanager
    def acting(self, name: str) -> Iterator[None]:
        before, self.disk.acting = self.disk.acting, name
        try:
            yield
        finally:
            self.disk.acting = before

    def bury(self, handle: Handle) -> None:
        """Drop a handle as a killed process drops it: nothing is written any more."""
        with self.acting(handle.name), contextlib.suppress(Exception):
            self.disk.fault = None
            self.disk.dead.add(handle.name)
            handle.memory._decisions._waiting.clear()
            handle.memory.store.database.close()
        self.disk.dead.discard(handle.name)

    def take(self, step: Step) -> None:
        """Do one step, with the faults that are drawn for it, and look at images of the disk."""
        draw = random.Random(f"faults/{self.seed}/{step.number}")
        faulty = self.faulty is None or step.number in self.faulty
        self.world.seconds += 1.0
        number = int(step.handle * len(self.handles))
        if step.verb == "reopen":
            handle = self.handles[number]
            self.disk.begin()
            with self.acting(handle.name):
                handle.memory.close()
            self.handles[number] = self.open(f"{handle.name}+", handle.policy)
            self.compare(self.handles[number].memory, {self.model.head}, "a handle opened anew")
            return
        act = getattr(self, "_" + step.verb.replace(" ", "_"))(step.numbers)
        if act is None:
            return
        for _ in range(draw.choice((1, 2, 3)) if faulty else 0):
            if self.trouble(number, step, act, draw):
                break
        else:
            before, cut_off = self.disk.begin(), self.cut_off
            self.do(number, step.verb, act)
            if faulty and not (cut_off or self.cut_off):
                self.look_at_images(before, self.disk.events, step.verb, draw)
        self.present = ""
        other = self.handles[int(draw.random() * len(self.handles))]
        with self.acting(other.name):
            self.compare(other.memory, {self.model.head}, f"{other.name} after {step.verb}")
            if draw.random() < 0.4:
                self.search(other.memory, self.model.fold(self.model.head), draw)
            if draw.random() < 0.15:
                self.look_back(other.memory, draw)
            if draw.random() < 0.2:
                self.sound(other.memory, "a handle")
            if other.policy is not None and draw.random() < (0.5 if step.verb.startswith("undo") else 0.1):
                self.learned_alike(other, draw)

    def do(self, number: int, verb: str, act: Act, fault: Fault | None = None) -> bool:
        """Do what a step does, and take it into the model. Returns whether it was done; False where it was refused, or
        interrupted before it was done."""
        handle, before = self.handles[number], self.model.head
        self.started, self.disk.fault = before, fault
        if fault is not None and fault.kind == "interrupt":
            fault.interrupt(handle.memory.store.database._writer)
        error: BaseException | None = None
        result = None
        with self.acting(handle.name):
            try:
                result = self.send(handle, act)
            except act.refusals as refusal:
                error = refusal
            except (MemoryProblem, NotServed) as problem:
                if fault is None or not fault.fired:
                    raise Failure(
                        "no error without a fault", f"{verb}: {type(problem).__name__}: {problem}"
                    ) from problem
                error = problem
            except KeyboardInterrupt as pressed:
                if fault is None or not fault.fired:
                    raise
                error = pressed
            except Failure:
                raise
            except Exception as foreign:
                raise Failure(
                    "errors are the engine's own", f"{verb}: {type(foreign).__name__}: {foreign}"
                ) from foreign
            finally:
                self.disk.fault = None
                handle.memory.store.database._writer.exec_trace = None
        dead = handle.name in self.disk.dead
        # Neither says whether it was done.
        silent = dead or isinstance(error, KeyboardInterrupt)
        if dead:
            self.bury(handle)
            handle = self.handles[number] = self.open(f"{handle.name}!", handle.policy)
            if handle.server is not None and act.request is not None:
                # The client got no answer, and sends the same again.
                with self.acting(handle.name):
                    result, error = self.send(handle, act), None
        else:
            with self.acting(handle.name):
                self.world.work_off()
        watch = self.handles[number]
        with self.acting(watch.name):
            head = int(watch.memory.snapshot()[1:])
        there = {entry.seq for entry in self.model.entries}
        numbers = [seq for seq in range(before + 1, head + 1) if seq not in there]
        # What a killed process had written but not published lies in the log until the next write, and whoever opens the file
        # after a kill of all processes finds it.
        self.cut_off = not numbers and (dead or self.cut_off)
        if error is not None and numbers and not silent:
            raise Failure("what was refused did not happen", f"{verb}: {type(error).__name__} and entries {numbers}")
        if error is None or numbers:
            made = act.entries(numbers, self.world.clock())
            if len(made) != len(numbers) or len(made) < act.least:
                expected = max(len(made), act.least)
                raise Failure("each act is journaled once", f"{verb}: entries {numbers}, expected {expected}")
            self.model.entries = sorted([*self.model.entries, *made], key=lambda entry: entry.seq)
            self.heads |= {before, head}
            for entry in made:
                if entry.kind == "purge":
                    self._bury_words(entry)
            if error is None:
                act.after(result, numbers)
        if error is None and handle.server is not None and act.request is not None and fault is None:
            with self.acting(handle.name):  # the answer was lost on the way: the same again changes nothing
                self.send(handle, act)
        self.compare(watch.memory, {self.model.head}, f"the same handle after {verb}")
        return error is None or bool(numbers)

    def send(self, handle: Handle, act: Act) -> Any:
        """Do an act with the memory of a handle, or, where that is a server's, by the request of a client."""
        if handle.server is None or act.request is None:
            return act.call(handle.memory)
        return handle.server.answer(act.request)

    # Faults.

    def trouble(self, number: int, step: Step, act: Act, draw: random.Random) -> bool:
        """Do a step while something goes wrong. Returns whether it was done all the same."""
        kind = draw.choice(("full", "write", "sync", "read", "dead", "slow", *([] if self.earlier else ["interrupt"])))
        usual = self.usual[step.verb, kind] or 12
        at = int(draw.random() * usual * 1.1)
        fault = Fault(kind, at, lasting=kind == "dead" or (kind not in ("slow", "interrupt") and draw.random() < 0.5))
        handle = self.handles[number]
        if kind == "slow":
            other = self.handles[(number + 1) % len(self.handles)]
            write = draw.random() < 0.4 and not step.verb.startswith(("undo", "delete all", "bank", "erase", "purge"))
            fault.meanwhile = lambda: self.meanwhile(other, write, draw)
        self.present = f"{kind} at {at}{' and on' if fault.lasting else ''} of {step.verb}"
        before, cut_off = self.disk.begin(), self.cut_off
        done = self.do(number, step.verb, act, fault)
        self.usual[step.verb, kind] = max(self.usual[step.verb, kind], fault.count)
        if fault.fired:
            served = handle.server is not None and act.request is not None
            self.count(kind, f"a client's {step.verb}" if served else step.verb, fault.fired)
            self.tally.at_clients += served
        elif done:  # it went well, and no fault came
            self.present = ""
        if handle is not self.handles[number]:  # it was killed, and may have been in the middle of a step
            return True
        if not done and fault.fired and not self.cut_off:
            # Whoever opens it after a kill must not see what was refused.
            self.inspect(self.disk.platters.after_kill(), {self.model.head}, f"refused {kind}", step.verb, draw)
        if done and not (cut_off or self.cut_off):
            self.look_at_images(before, self.disk.events, step.verb, draw)
        return done or not fault.fired

    def meanwhile(self, other: Handle, write: bool, draw: random.Random) -> None:
        """Let another handle work while the disk is slow for one that is in the middle of something."""
        fault, self.disk.fault = self.disk.fault, None
        before = self.model.head
        try:
            with self.acting(other.name):
                self.watching(other.memory, before)
                if write:
                    text = self.line(draw.random())
                    seconds = self.world.seconds
                    try:
                        item = other.memory.add(text, user_id=self.users["ana"])
                    except Busy:
                        self.world.seconds = seconds
                        return
                    seq = int(item.id[1:])
                    user = self.users["ana"]
                    self.model.entries.append(Entry(seq, self.world.clock(), "add", user, text))
                    self.heads.add(seq)
        finally:
            self.disk.fault = fault

    def watching(self, memory: Memory, before: int) -> None:
        """Compare what a handle sees while another writes: what was there before, or all of what is written."""
        head = int(memory.snapshot()[1:])
        if head == before:
            self.compare(memory, {before}, "a handle that reads while another writes")

    def look_at_images(self, before: Platters, events: Sequence[Event], verb: str, draw: random.Random) -> None:
        """Look at what would be on the disk after faults in the middle of what was just done, and after it."""
        model, heads = self.model, sorted(self.heads)
        last = model.head
        between = {head for head in heads if head >= self.started}
        cuts = {len(events)}
        while len(cuts) < min(self.images, len(events) + 1):
            cuts.add(draw.randrange(len(events) + 1))
        platters, position = before, 0
        lying = draw.random() < 0.15
        for cut in sorted(cuts):
            while position < cut:
                if not (lying and events[position].kind == "sync"):
                    platters.take(events[position])
                position += 1
            ended = cut == len(events)
            allowed = {last} if ended else between
            kind = "lie" if lying else draw.choices(("kill", "torn", "power", "rot"), (4, 3, 4, 1 if ended else 0))[0]
            if kind == "torn" and (ended or events[cut].kind != "write"):
                kind = "kill"
            name = f"{events[cut].kind}{events[cut].part}" if not ended else "end"
            self.present = f"{kind} before access {cut} ({name}) of {verb}"
            if kind == "kill":
                image = platters.after_kill()
            elif kind == "torn":
                torn = events[cut]
                image = platters.after_kill(torn, draw.randrange(1, max(2, len(torn.data))))
            elif kind == "rot":
                image = _rotten(platters.after_kill(), draw)
            else:
                image = platters.after_power_loss(draw, draw.choice((0.0, 0.3, 0.8)), draw.choice((0.0, 0.5)))
                if self.durability == "process" or kind == "lie":
                    allowed = set(heads)
            self.inspect(image, allowed, kind, f"{verb} {name}", draw)

    def inspect(self, image: Image, allowed: set[int], kind: str, place: str, draw: random.Random) -> None:
        """Open an image of the disk as the next process does, and hold the claims against it.

        Args:
            image: The contents of the files.
            allowed: The entries of the journal that may be the newest.
            kind: The kind of the fault.
            place: Where it happened.
            draw: Says how closely it is looked at.
        """
        digest = hashlib.blake2b(repr(sorted(allowed)).encode(), digest_size=12)
        for part, content in sorted(image.items()):
            digest.update(part.encode() + content)
        if digest.digest() in self.known:
            self.tally.repeated += 1
            return
        self.known.add(digest.digest())
        self.count(kind, place)
        damaged = kind in ("lie", "rot")
        for part in ("-shm", "-wal", ""):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.copy + part)
        for part, content in image.items():
            Path(self.copy + part).write_bytes(content)
        apsw.set_default_vfs("unix")
        try:
            self._inspect(allowed, damaged, kind, draw)
        except Failure:
            raise
        except MemoryProblem as problem:
            if not damaged:
                raise Failure("it opens after a fault", f"{type(problem).__name__}: {problem}") from problem
        except Exception as foreign:
            raise Failure("errors are the engine's own", f"{type(foreign).__name__}: {foreign}") from foreign
        finally:
            apsw.set_default_vfs(self.disk.name)

    def _inspect(self, allowed: set[int], damaged: bool, kind: str, draw: random.Random) -> None:
        closely = draw.random()
        policy = "default" if closely < 0.15 else None
        memory = Memory(
            self.copy, encoder=ENCODER, policy=policy, writer=None, clock=self.world.clock, log="off", signals=()
        )
        try:
            self.world.later.clear()
            if damaged and check(memory.store, deep=True):
                return  # the damage has a name
            head = int(memory.snapshot()[1:])
            self.compare(memory, allowed, f"after {kind}")
            state = self.model.fold(head)
            self.search(memory, state, draw)
            if closely < 0.25:
                self.sound(memory, f"after {kind}")
            elif closely < 0.35:
                self.look_back(memory, draw)
            if closely > 0.85 and not damaged:
                self.goes_on(memory, draw)
            if not damaged:
                self.without_secrets(head)
        finally:
            memory.close()

    def count(self, kind: str, *place: str) -> None:
        self.tally.faults[kind] += 1
        self.tally.places[" / ".join((kind, *place))] += 1

    # Claims.

    def compare(self, memory: Memory, allowed: set[int], place: str) -> None:
        """Compare items, their values and the rewards with the model's."""
        self.tally.checks += 1
        head = int(memory.snapshot()[1:])
        if head not in allowed:
            newest = max(allowed)
            claim = "what was acknowledged is there" if head < newest else "what was refused did not happen"
            raise Failure(claim, f"{place}: newest entry {head}, expected {sorted(allowed)[-4:]}")
        state = self.model.fold(head)
        there = {
            item.id: (
                item.text,
                item.scope.user,
                tuple(sorted(item.metadata.items())),
                item.status.value,
                item.open,
                item.deleted,
                item.revision,
                item.values.credited,
                round(item.values.total, 9),
            )
            for item in memory.get_all(limit=MANY, all_states=True)
        }
        expected = {
            id: (
                note.text,
                note.user,
                note.metadata,
                note.status,
                note.open and not note.deleted,
                note.deleted,
                note.revision,
                len(note.credits),
                round(sum(note.credits), 9),
            )
            for id, note in state.items()
        }
        if there != expected:
            differing = [id for id in sorted({*there, *expected}) if there.get(id) != expected.get(id)]
            listed = [(id, there.get(id), expected.get(id)) for id in differing[:2]]
            raise Failure("items are those of the model", f"{place}, entry {head}: {listed}")
        current = sum(note.current for note in state.values())
        if len(memory) != current:
            raise Failure("items are those of the model", f"{place}: counts {len(memory)} current items, not {current}")
        rewards = self.model.rewards(head)
        people = next((source for source in memory.outcomes() if source.kind == "people"), None)
        count, mean = (people.rewards, people.mean) if people is not None else (0, None)
        if count != len(rewards) or (rewards and abs((mean or 0.0) - sum(rewards) / len(rewards)) > 1e-9):
            raise Failure("rewards are those of the model", f"{place}: {count} of mean {mean}, expected {rewards}")

    def search(self, memory: Memory, state: State, draw: random.Random) -> None:
        """Compare a search of all current items of a scope with a scan by hand."""
        self.tally.checks += 1
        mode, user = draw.choice(("lexical", "dense", "dense", "hybrid")), draw.choice(("", *self.users.values()))
        value = draw.choice((None, None, 0, 1))
        expected = {
            id: note
            for id, note in state.items()
            if note.current and user in ("", note.user) and (value is None or dict(note.metadata).get("v") == value)
        }
        options: dict[str, Any] = {"mode": mode, "top_k": MANY, "explore": False}
        options |= {"user_id": user} if user else {}
        options |= {} if value is None else {"where": {"v": value}}
        hits = memory._unlogged().search("alpha", **options)
        place = f"{mode}, user {user!r}, v {value}"
        if len(hits) != len({hit.id for hit in hits}) or {hit.id for hit in hits} != {*expected}:
            missing, more = {*expected} - {hit.id for hit in hits}, {hit.id for hit in hits} - {*expected}
            raise Failure("a search is a scan", f"{place}: missing {sorted(missing)[:4]}, more {sorted(more)[:4]}")
        if mode == "dense" and len(hits) > 1:
            # A long text has a vector for each of its parts, and a policy puts first what earned rewards.
            short = [hit for hit in hits if len(expected[hit.id].text) < 200]
            wrong = [hit.id for hit in short if abs(hit.score - self.cosine(expected[hit.id].text)) > 0.01]
            ordered = memory.policy is not None or not (np.diff([hit.score for hit in short]) > 1e-6).any()
            if wrong or not ordered:
                raise Failure(
                    "a search is a scan", f"{place}: out of order by meaning, or wrong cosines of {wrong[:4]}"
                )
        if expected:
            id = draw.choice(sorted(expected))
            text = expected[id].text
            word = self.lines.get(text, "")
            same = {other for other, note in expected.items() if word in note.text}
            hits = memory._unlogged().search(word, **{**options, "mode": "lexical"})
            if {hit.id for hit in hits} != same:
                raise Failure("a search is a scan", f"{place}: the word of {id} finds {[hit.id for hit in hits]}")

    def cosine(self, text: str) -> float:
        for each in ("alpha", text):
            if each not in self.vectors:
                vector = np.asarray(self.encoder.encode([each]))[0]
                self.vectors[each] = vector / max(1e-12, float(np.linalg.norm(vector)))
        return float(self.vectors[text] @ self.vectors["alpha"])

    def look_back(self, memory: Memory, draw: random.Random) -> None:
        """Compare the past with the model's: a bank at a snapshot, a difference, a search as of a time, and a history."""
        self.tally.checks += 1
        head = int(memory.snapshot()[1:])
        heads = [each for each in sorted(self.heads) if each <= head]
        position = draw.choice(heads)
        erased = any(position < seq <= head for seq in self.model.erasures)
        past, state = self.model.fold(position), self.model.fold(head)
        try:
            bank = memory.bank(at=f"s{position}")
            there = {item.id: item.text for item in bank.items()}
            differing = {each.id for each in memory.diff(f"s{position}")}
        except Purged:
            if not erased:
                raise Failure(
                    "the past is that of the model", f"Purged at s{position}, and nothing was erased"
                ) from None
        else:
            expected = {id: note.text for id, note in past.items() if note.current}
            if there != expected:
                missing, more = {*expected} - {*there}, {*there} - {*expected}
                raise Failure(
                    "the past is that of the model",
                    f"bank at s{position} of s{head}: missing {sorted(missing)[:4]}, more {sorted(more)[:4]}, or reworded",
                )
            wanted = {id for id in {*past, *state} if past.get(id) != state.get(id)}
            if differing != wanted:
                raise Failure(
                    "the past is that of the model", f"diff since s{position}: {sorted(differing ^ wanted)[:4]}"
                )
        at = draw.choice([entry for entry in self.model.entries if entry.seq <= head] or [Entry(0, "", "")]).at
        if at:
            hits = memory._unlogged().search("alpha", as_of=at, top_k=MANY, mode="lexical")
            wanted = {
                id
                for id, note in state.items()
                if note.status == "active"
                and not note.deleted
                and note.born <= at
                and (not note.died or at < note.died)
            }
            if {hit.id for hit in hits} != wanted:
                raise Failure(
                    "the past is that of the model", f"as of {at}: {sorted({hit.id for hit in hits} ^ wanted)[:4]}"
                )

    def sound(self, memory: Memory, place: str) -> None:
        self.tally.checks += 1
        if problems := check(memory.store, deep=True):
            raise Failure("check is clean", f"{place}: {problems[:3]}")

    def goes_on(self, memory: Memory, draw: random.Random) -> None:
        """Write something to a memory after a fault, and look for it."""
        word = "".join(draw.choices(LETTERS, k=12))
        item = memory.add(f"alpha after the fault {word}")
        if [hit.id for hit in memory.search(word, mode="lexical")] != [item.id]:
            raise Failure("it goes on after a fault", f"{item.id} is not there")

    def without_secrets(self, head: int) -> None:
        """Look for what was erased in the bytes of the image, after it was opened."""
        words = [word for word, seq in self.model.secrets.items() if seq <= head]
        if words:
            content = b"".join(
                Path(self.copy + part).read_bytes() for part in ("", "-wal") if os.path.exists(self.copy + part)
            )
            for word in words:
                if word[3:].encode() in content:
                    raise Failure("what was erased is gone", f"{word} is in the bytes, at entry {head}")

    def learned_alike(self, handle: Handle, draw: random.Random) -> None:
        """Compare what a handle has learned on the way with what a process learns that opens a copy of the file."""
        state = self.model.fold(self.model.head)
        rewarded = {id for entry in self.model.entries if entry.kind == "reward" for id in entry.targets}
        ids = sorted(id for id in rewarded if id in state and state[id].current)[:3]  # also where the reward was undone
        if not ids:
            return
        self.tally.checks += 1

        def worths(memory: Memory) -> list[Any]:
            listed = []
            for id in ids:
                worth = memory.worth(id, "alpha task")
                listed.append((id, round(worth.earned, 6), round(worth.seen, 6), round(worth.times, 6)))
            return listed

        here = worths(handle.memory)
        for part in ("-shm", "-wal", ""):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.copy + part)
        for part, content in self.disk.platters.after_kill().items():
            Path(self.copy + part).write_bytes(content)
        apsw.set_default_vfs("unix")
        try:
            with Memory(
                self.copy, encoder=ENCODER, writer=None, policy="default", seed=1, clock=self.world.clock, signals=()
            ) as memory:
                there = worths(memory)
        finally:
            apsw.set_default_vfs(self.disk.name)
        if here != there:
            raise Failure("what was learned is the same after opening", f"{here[:2]}, opened {there[:2]}")

    # What steps do. Each returns what it does with a memory, or None where there is nothing to do it to.

    def line(self, number: float) -> str:
        """Return a text that nobody wrote before, with a word of its own."""
        self.words += 1
        draw = random.Random(f"line/{self.seed}/{self.words}/{number}")
        word = "".join(draw.choices(LETTERS, k=12))
        text = f"alpha t{draw.randrange(5)} {word} z{draw.randrange(3)}"
        if draw.random() < 0.08:
            text += " long" * draw.randrange(50, 90)
        self.lines[text] = word
        return text

    def new_name(self, id: str) -> str:
        """Return the id of an episode or a decision, which must be new."""
        if id in self.named:
            raise Failure("ids are unique", f"{id} is the id of two")
        self.named.add(id)
        return id

    @property
    def state(self) -> State:
        return self.model.fold(self.model.head)

    def _open_items(self) -> list[str]:
        return [id for id, note in self.state.items() if note.open and not note.deleted]

    def _user(self, number: float) -> str:
        return self.users[USERS[int(number * len(USERS))]]

    def _request(self, method: str, path: str, id: str = "", **fields: Any) -> Request:
        self.sent += 1
        fields = {name: value for name, value in fields.items() if value not in ("", {})}
        return Request(method, path, fields, f"request {self.sent}", id)

    def _add(self, n: Sequence[float]) -> Act:
        text, user, source = self.line(n[0]), self._user(n[1]), ("", "", "srcA", "srcB")[int(n[2] * 4)]
        metadata = (("v", int(n[3] * 3)),) if n[4] < 0.5 else ()
        return Act(
            lambda m: m.add(text, user_id=user, metadata=dict(metadata), source=source),
            lambda numbers, at: [
                Entry(seq, at, "add", user, text, metadata=metadata, source=source) for seq in numbers[:1]
            ],
            lambda item, numbers: _same(_ids(item), numbers),
            least=1,
            request=self._request("POST", "/items", content=text, user_id=user, source=source, metadata=dict(metadata)),
        )

    def _many(self, n: Sequence[float]) -> Act:
        texts, user = [self.line(n[0]) for _ in range(1 + int(n[1] * 12))], self._user(n[2])
        return Act(
            lambda m: m.add_many(texts, user_id=user),
            lambda numbers, at: [Entry(seq, at, "add", user, text) for seq, text in zip(numbers, texts, strict=False)],
            lambda items, numbers: _same(_ids(items), numbers),
            least=len(texts),
            request=self._request("POST", "/items", texts=texts, user_id=user),
        )

    def _repeat(self, n: Sequence[float]) -> Act | None:
        current = [(id, note) for id, note in self.state.items() if note.current]
        if not current:
            return None
        _, note = current[int(n[0] * len(current))]
        return Act(
            lambda m: m.add(note.text, user_id=note.user),
            lambda numbers, at: [Entry(seq, at, "add", note.user, note.text) for seq in numbers],
        )

    def _of_open(self, n: Sequence[float]) -> tuple[str, str] | None:
        ids = self._open_items()
        if not ids:
            return None
        id = ids[int(n[0] * len(ids))]
        return id, self.state[id].user

    def _update(self, n: Sequence[float]) -> Act | None:
        if (target := self._of_open(n)) is None:
            return None
        (id, user), text = target, self.line(n[1])
        return Act(
            lambda m: m.update(id, text),
            lambda numbers, at: [Entry(seq, at, "update", user, text, (id,)) for seq in numbers[:1]],
            least=1,
            request=self._request("PATCH", "/items/{id}", id, text=text),
        )

    def _metadata(self, n: Sequence[float]) -> Act | None:
        if (target := self._of_open(n)) is None:
            return None
        id, user = target
        metadata = (("v", int(n[1] * 3)), ("x", self.words + int(n[2] * 1000)))
        return Act(
            lambda m: m.update(id, metadata=dict(metadata)),
            lambda numbers, at: [Entry(seq, at, "metadata", user, "", (id,), metadata) for seq in numbers[:1]],
            least=1,
        )

    def _archive(self, n: Sequence[float]) -> Act | None:
        if (target := self._of_open(n)) is None:
            return None
        id, user = target
        status = "active" if self.state[id].status != "active" else "archived"
        return Act(
            lambda m: m.update(id, status=status),
            lambda numbers, at: [Entry(seq, at, "status", user, "", (id,), status=status) for seq in numbers[:1]],
            least=1,
        )

    def _supersede(self, n: Sequence[float]) -> Act | None:
        if (target := self._of_open(n)) is None:
            return None
        (id, user), text, source = target, self.line(n[1]), ("", "srcA")[int(n[2] * 2)]
        return Act(
            lambda m: m.supersede(id, text, source=source),
            lambda numbers, at: [Entry(seq, at, "supersede", user, text, (id,), source=source) for seq in numbers[:1]],
            lambda item, numbers: _same(_ids(item), numbers),
            least=1,
            request=self._request("POST", "/items/{id}/supersede", id, text=text, source=source),
        )

    def _merge(self, n: Sequence[float]) -> Act | None:
        user = self._user(n[0])
        ids = [id for id in self._open_items() if self.state[id].user == user]
        if len(ids) < 2:
            return None
        first = int(n[1] * (len(ids) - 1))
        targets, text = (ids[first], ids[first + 1]), self.line(n[2])
        return Act(
            lambda m: m.apply(Operation(OperationKind.MERGE, targets, text), user_id=user),
            lambda numbers, at: [Entry(seq, at, "merge", user, text, targets) for seq in numbers[:1]],
        )

    def _delete(self, n: Sequence[float]) -> Act | None:
        if (target := self._of_open(n)) is None:
            return None
        id, user = target
        return Act(
            lambda m: m.delete(id),
            lambda numbers, at: [Entry(seq, at, "delete", user, "", (id,)) for seq in numbers[:1]],
            least=1,
            request=self._request("DELETE", "/items/{id}", id),
        )

    def _delete_all(self, n: Sequence[float]) -> Act:
        user = self._user(n[0])
        ids = sorted(
            (id for id, note in self.state.items() if note.user == user and not note.deleted),
            key=lambda id: int(id[1:]),
        )
        return Act(
            lambda m: m.delete_all(user_id=user),
            lambda numbers, at: [
                Entry(seq, at, "delete", user, "", (id,)) for seq, id in zip(numbers, ids, strict=False)
            ],
            lambda count, numbers: _same([count], [len(ids)], ""),
            least=len(ids),
        )

    def _episode(self, n: Sequence[float]) -> Act:
        user, by = self._user(n[0]), ("", "judge")[int(n[1] * 2)]
        task = f"alpha task t{int(n[2] * 5)}"
        return Act(
            lambda m: m.episode(task, user_id=user, by=by).id,
            after=lambda id, numbers: self.episodes.append((self.new_name(id), user, [])),
        )

    def _search(self, n: Sequence[float]) -> Act | None:
        """A search that is logged, of an episode or of none, in which the policy may try something."""
        user = self._user(n[0])
        query = f"alpha t{int(n[1] * 5)}"
        if n[2] < 0.3 and (ids := [id for id, note in self.state.items() if note.current and note.user == user]):
            query += f" {self.lines.get(self.state[ids[int(n[3] * len(ids))]].text, '')}"
        inside = [each for each in self.episodes if each[1] == user]
        episode = inside[int(n[4] * len(inside))] if inside and n[5] < 0.7 else None
        options: dict[str, Any] = {"user_id": user, **({"episode": episode[0]} if episode else {})}

        def after(hits: Any, _: Sequence[int]) -> None:
            shown = tuple(hit.id for hit in hits)
            state = self.state
            if wrong := [id for id in shown if id not in state or not state[id].current or state[id].user != user]:
                raise Failure("a search is a scan", f"a logged search of {user!r} shows {wrong}")
            if hits.decision:
                self.new_name(hits.decision)
            if hits.decision and shown:
                self.decisions.append((hits.decision, user, episode[0] if episode else "", shown))
                if episode:
                    episode[2].extend(shown)

        return Act(lambda m: m.search(query, top_k=1 + int(n[3] * 3), **options), after=after)

    def _look(self, n: Sequence[float]) -> Act:
        """A search that is compared with a scan, while faults may happen."""
        draw = random.Random(n[0])
        return Act(lambda m: self.search(m, self.state, random.Random(n[0])) if draw else None)

    def _remember(self, n: Sequence[float]) -> Act | None:
        if not self.episodes:
            return None
        id, user, _ = self.episodes[int(n[0] * len(self.episodes))]
        text = self.line(n[1])
        return Act(
            lambda m: m.reopen(id).remember(text),
            lambda numbers, at: [
                Entry(seq, at, "add", user, text, source="episode", episode=id) for seq in numbers[:1]
            ],
            least=1,
        )

    def _reward(self, n: Sequence[float], repeat: bool = False) -> Act | None:
        episode = n[0] < 0.3
        pool: Sequence[Any] = [each for each in self.episodes if each[2]] if episode else self.decisions
        if not pool:
            return None
        about = pool[int(n[1] * len(pool))]
        target, user = about[0], about[1]
        shown = tuple(about[2] if episode else about[3])
        inside = target if episode else about[2]
        value, by = float(n[2] < 0.6), ("ana", "mal")[int(n[3] * 2)]
        return Act(
            lambda m: m.reward(target, value, by=by),
            lambda numbers, at: [
                Entry(seq, at, "reward", user, "", shown, value=value, source=by, episode=inside) for seq in numbers
            ],
            # A reward of what is not there any more is journaled, too.
            lambda outcome, numbers: _same(
                [True] * (outcome.applied or (bool(numbers) and outcome.reason == "no known item was shown")),
                [True] * len(numbers),
                "",
            ),
            refusals=(UnknownEpisode, ClosedEpisode),
        )

    def _repeat_reward(self, n: Sequence[float]) -> Act | None:
        return self._reward(n, repeat=True)

    def _undo(self, cancels: Callable[[int], set[int]], **argument: Any) -> Act:
        def entries(numbers: Sequence[int], at: str) -> list[Entry]:
            return [Entry(seq, at, "rollback", cancels=frozenset(cancels(seq))) for seq in numbers[:1]]

        def after(_: Any, numbers: Sequence[int]) -> None:
            self.undone.extend(numbers)

        refusals = (UnknownEpisode, InvalidFilter, InvalidPolicy, Purged)
        return Act(lambda m: m.rollback(**argument), entries, after, refusals, least=1)

    def _undo_episode(self, n: Sequence[float]) -> Act | None:
        if not self.episodes:
            return None
        id = self.episodes[int(n[0] * len(self.episodes))][0]
        return self._undo(lambda end: {e.seq for e in self.model.entries if e.episode == id}, target=id)

    def _undo_source(self, n: Sequence[float]) -> Act:
        source = ("srcA", "srcB")[int(n[0] * 2)]

        def cancels(end: int) -> set[int]:
            return {
                e.seq for e in self.model.entries if e.source == source and e.kind != "reward" and e.erased_at > end
            }

        return self._undo(cancels, source=source)

    def _undo_since(self, n: Sequence[float]) -> Act:
        heads = sorted(self.heads)[-8:]
        position = heads[int(n[0] * len(heads))]
        return self._undo(lambda end: set(range(position + 1, end)), since=f"s{position}")

    def _undo_entry(self, n: Sequence[float]) -> Act | None:
        if not self.model.entries:
            return None
        seq = self.model.entries[int(n[0] * len(self.model.entries))].seq
        return self._undo(lambda end: {seq}, entry=seq)

    def _undo_undo(self, n: Sequence[float]) -> Act | None:
        if not self.undone:
            return None
        seq = self.undone[int(n[0] * len(self.undone))]
        return self._undo(lambda end: {seq}, target=f"r{seq}")

    def _undo_rewarder(self, n: Sequence[float]) -> Act:
        by = ("ana", "mal")[int(n[0] * 2)]

        def cancels(end: int) -> set[int]:
            return {e.seq for e in self.model.entries if e.kind == "reward" and e.source == by and e.erased_at > end}

        return self._undo(cancels, rewarder=by)

    def _erase(self, n: Sequence[float]) -> Act:
        base = USERS[1:][int(n[0] * 2)]
        user = self.users[base]

        def entries(numbers: Sequence[int], at: str) -> list[Entry]:
            return [Entry(seq, at, "purge", user, "*") for seq in numbers[:1]]

        def after(erased: Any, numbers: Sequence[int]) -> None:
            if not numbers:
                return
            if erased.log_emptied:
                self._gone_from_disk()

        return Act(lambda m: m.erase(user_id=user), entries, after)

    def _purge(self, n: Sequence[float]) -> Act | None:
        ids = [id for id in self.state if id not in self._tied()]
        if not ids:
            return None
        gone = [] if self.earlier else [id for id in ids if not self.state[id].current]
        ids = gone if gone and n[1] < 0.5 else ids
        id = ids[int(n[0] * len(ids))]
        note = self.state[id]

        def call(m: Memory) -> Any:
            if id in gone:  # a search that does not find it any more is logged with its words
                m.search(f"alpha {self.lines.get(note.text, '')}", user_id=note.user)
            return m.forget(id, purge_history=True)

        def after(erased: Any, numbers: Sequence[int]) -> None:
            if erased.log_emptied:
                self._gone_from_disk()

        return Act(
            call,
            lambda numbers, at: [Entry(seq, at, "purge", note.user, "", (id,)) for seq in numbers[:1]],
            after,
            least=1,
        )

    def _tied(self) -> set[str]:
        """Return the items from which others were made, and those that were said twice: what is left of such an item after it is
        erased is the engine's affair."""
        tied, texts = set[str](), Counter(entry.text for entry in self.model.entries if entry.text)
        for entry in self.model.entries:
            if entry.kind in ("supersede", "merge"):
                tied |= {*entry.targets, f"m{entry.seq}"}
            if texts[entry.text] > 1:
                tied |= {*entry.targets, f"m{entry.seq}"}
        return tied

    def _bury_words(self, entry: Entry) -> None:
        """Take what an entry erases out of the model, and note the words that may not be on the disk any more."""
        whole = entry.text == "*"
        dead = set(entry.targets)
        if whole:
            dead |= {f"m{e.seq}" for e in self.model.entries if e.user == entry.user and e.text and e.kind != "purge"}
        before = {id(e): e.erased_at for e in self.model.entries}
        self.model.erase(dead, entry.user if whole else "", entry.seq)
        entry.erased_at = before.get(id(entry), entry.erased_at) if not whole else 2**62
        for each in self.model.entries:
            if each.erased_at == entry.seq and each.text in self.lines:
                self.model.secrets[self.lines[each.text]] = entry.seq
        if whole:
            self.generation += 1
            base = next(name for name, user in self.users.items() if user == entry.user)
            name = "".join(random.Random(f"user/{self.seed}/{self.generation}").choices(LETTERS, k=12))
            if entry.user != base:
                self.model.secrets[entry.user] = entry.seq
            self.users[base] = name
            self.episodes = [each for each in self.episodes if each[1] != entry.user]
            self.decisions = [each for each in self.decisions if each[1] != entry.user]

    def _gone_from_disk(self) -> None:
        for part, content in self.disk.platters.after_kill().items():
            for word in self.model.secrets:
                if word[3:].encode() in content:
                    raise Failure("what was erased is gone", f"{word} is in the bytes of a.mem{part}, at once")

    def _bank(self, n: Sequence[float]) -> Act:
        user, text = self._user(n[0]), self.line(n[1])

        def call(m: Memory) -> Any:
            bank = m.bank(user_id=user)
            bank.add(text)
            return m.commit(bank)

        return Act(call, lambda numbers, at: [Entry(seq, at, "add", user, text) for seq in numbers[:1]], least=1)

    def _compact(self, n: Sequence[float]) -> Act:
        return Act(lambda m: compact(m.store))

    def _flush(self, n: Sequence[float]) -> Act:
        return Act(lambda m: m.flush())


def _ids(result: Any) -> list[str]:
    """Return the ids of one item or several, also as a server says them."""
    if isinstance(result, dict):
        result = result.get("items", [result])
    listed = result if isinstance(result, list) else [result]
    return [item["id"] if isinstance(item, dict) else item.id for item in listed]


def _same(ids: Sequence[Any], numbers: Sequence[int], prefix: str = "m") -> None:
    expected: list[Any] = [f"{prefix}{seq}" if prefix else seq for seq in numbers]
    if [*ids] != expected:
        raise Failure("each act is journaled once", f"it returned {ids}, expected {expected}")


def _rotten(image: Image, draw: random.Random) -> Image:
    """Return an image in whose main file a few bytes, or a sector, changed by themselves."""
    content = bytearray(image.get("", b""))
    if content:
        begin = draw.randrange(len(content))
        size = draw.choice((1, 4, 512))
        content[begin : begin + size] = draw.randbytes(len(content[begin : begin + size]))
    return {**image, "": bytes(content)}


def play(
    kind: Callable[..., Any], seed: int, steps: Sequence[Step], folder: Path, **options: Any
) -> tuple[Tally, Failure | None]:
    """Run a night in a fresh folder.

    Args:
        kind: The class of the night: each layer has one.
        seed: That of the night.
        steps: What is done.
        folder: It is made for the night and removed after it.
        **options: What this class takes beside them, such as `faulty`.

    Returns:
        What the night did, and the claim that failed; None if all hold.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    night = kind(seed, steps, folder, **options)
    try:
        return night.run(), None
    except Failure as failure:
        return night.tally, failure
    finally:
        shutil.rmtree(folder, ignore_errors=True)


run_night = partial(play, Night)
