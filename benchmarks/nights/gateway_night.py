"""A night of a gateway: conversations of several people through two gateways over one file, before an upstream that misbehaves.

The upstream, the disk, the clients, the clock and the threads are the simulation's. The model is a dictionary of what people
said, each with whether it must be in the memory, must not be, or may be, and for each conversation what stood in its prompts.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import os
import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import apsw
import httpx

from benchmarks.nights.disk import Disk, Event, Fault, Image, Platters
from benchmarks.nights.loop import Lane, SimulatedLoop, Stuck
from benchmarks.nights.night import ENCODER, LETTERS, MANY, Failure, Step, Tally, play
from benchmarks.nights.world import simulated
from keepworth.memory.errors import MemoryProblem
from keepworth.memory.headline import MARK
from keepworth.memory.memory import Memory
from keepworth.memory.store.checks import check
from keepworth.memory.store.database import Database
from keepworth.serving import gateway, memory_routes
from keepworth.serving.access import Access
from keepworth.serving.application import ServerLimits, application
from keepworth.serving.calls import NotServed
from keepworth.serving.gateway import Gateway
from keepworth.serving.memory_routes import memory_table
from keepworth.serving.open_memories import OpenMemories
from keepworth.serving.page_routes import list_episode_summaries
from keepworth.serving.upstream import Upstream

PEOPLE = ("ana", "bob", "cy")
PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/responses")
VERBS = {
    "say": 10, "ask": 8, "several": 9, "go on": 8, "retry": 4, "regenerate": 3, "same words": 4, "reward": 6, "delete": 4,
    "erase": 3, "restart": 3,
}  # fmt: skip
"""How often each kind of step is drawn."""
SCRIPTS = {
    "answer": 6, "stream": 8, "tool": 3, "stream of a tool": 3, "429": 2, "500": 2, "no JSON": 1, "refuses": 2, "hangs": 2,
    "ends in the middle": 3, "ends in an answer": 2, "no end": 1,
}  # fmt: skip
"""How often the upstream does each of these."""
FAULTS = ("full", "write", "sync", "read", "dead", "slow", "between", "between", "between", "no room")
ROOM = 2**40
TOOL = "run"


@dataclass(slots=True, eq=False)
class Note:
    """A statement of a person: whether it must be in the memory, or must not; None for either. `waits` names the process which
    the disk refused to store it: until that process has recorded another turn, or one opens the file, it may be missing."""

    text: str
    user: str
    word: str
    must: bool | None = None
    waits: str = ""
    erased: bool = False


@dataclass(slots=True, eq=False)
class Conversation:
    """Messages of a person and a model. `lines` are those that stood in the prompt before each of the person's messages, by
    index; `tool` says that the model waits for what a tool answers."""

    user: str
    path: str
    pieces: list[dict[str, Any]] = field(default_factory=list)
    lines: dict[int, list[str]] = field(default_factory=dict)
    turns: int = 0
    tool: bool = False


@dataclass(slots=True, eq=False)
class Call:
    """One call of a client, what the upstream makes of it, and what the client has seen."""

    id: str
    talk: Conversation
    script: str
    mode: str
    process: int
    stream: bool
    body: bytes
    new: bool
    """Whether it begins a turn of the person, by words that were not sent before."""
    note: Note | None = None
    asks: Note | None = None
    leaves: float = -1.0
    """Seconds after which the client hangs up; below 0 for never."""
    begins: float = 0.0
    at_once: bool = True
    # What happened.
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    content: bytearray = field(default_factory=bytearray)
    ended: bool = False
    left: bool = False
    lost: bool = False
    """Whether its process was killed, or is not there."""
    sent: list[bytes] = field(default_factory=list)
    """The bodies that the upstream was sent."""
    answered: bytes = b""
    """The bytes that the upstream has answered."""
    whole: bool = False
    closed: bool = True
    erasures: int = 0
    before: dict[Note, bool | None] = field(default_factory=dict)
    deleted: set[Note] = field(default_factory=set)
    gone: set[Note] = field(default_factory=set)
    """The notes that were erased before its turn began: its prompt may not quote them."""


@dataclass(slots=True)
class Recorded:
    """A turn that a receipt names."""

    episode: str
    user: str
    sent: bytes
    lines: list[str]
    erasures: int
    rewarded: bool = False


class Process:
    """A process that serves the memory at a path: a gateway, its threads and the application around it.

    Args:
        name: That under which the disk knows it.
        path: That of the memory.
        options: Those of `Memory`.
        night: Whose loop, upstream and draws it uses.
    """

    def __init__(self, name: str, path: str, options: dict[str, Any], night: GatewayNight) -> None:
        self.name, self.alive, self._night = name, True, night
        self.lanes: list[Lane] = []
        self.calls: dict[asyncio.Task[None], Call] = {}
        self.memories = OpenMemories(path, options, workers=2)
        with patch.object(gateway, "ThreadPoolExecutor", lambda *_: self.lane()):
            upstream = Upstream("http://upstream/v1", "key", transport=night.upstream)
            self.gateway = Gateway(self.memories, upstream, self.lane())
        self.memories.when_opened(self.gateway.resume)
        self.memory: Memory = self.memories.of(Access("whole")).memory
        self.table = memory_table(self.memories, (list_episode_summaries,))
        self.app = application(
            self.table,
            self._access,
            self.lane(),
            ServerLimits(),
            streamed=self.gateway.streamed(),
            hosts=None,
        )

    def lane(self) -> Lane:
        night = self._night

        def pause() -> float:
            return night.world.draw.choice((0.0, 0.0, 0.001, 0.01, 0.2))

        self.lanes.append(Lane(night.loop, pause, lambda: night.at_work(self)))
        return self.lanes[-1]

    def _access(self, _: str, token: str) -> Access:
        user = token.removeprefix("Bearer ")
        return Access("whole") if user == "whole" else Access(f"of {user}", user_id=user)

    def die(self) -> None:
        """End as a killed process does: those who wait get nothing, and nothing is written any more."""
        self.alive = False
        for lane in self.lanes:
            lane.dead = True
        for task, call in list(self.calls.items()):
            call.lost = True
            task.cancel()


class Scripted(httpx.AsyncBaseTransport):
    """The upstream: it answers each call as the call's script says."""

    def __init__(self, night: GatewayNight) -> None:
        self._night = night

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        call = self._night.calls[request.headers["x-request-id"]]
        call.sent.append(request.content)
        if request.headers["authorization"] != "Bearer key":
            raise Failure("the upstream gets what was sent", f"the key {request.headers['authorization']!r}")
        draw = random.Random(f"upstream/{self._night.seed}/{call.id}")
        await asyncio.sleep(draw.choice((0.0, 0.01, 0.3, 2.0)))
        if call.script == "refuses":
            raise httpx.ConnectError("refused")
        if call.script == "hangs":
            await asyncio.sleep(600.0)
            raise httpx.ReadTimeout("nothing came")
        status, kind, parts, breaks = answer_of(call, draw)
        headers = [("content-type", kind), ("x-request-id", call.id), ("retry-after", "7"), ("set-cookie", "a=b")]
        call.closed = False
        return httpx.Response(status, headers=headers, stream=_Parts(call, parts, breaks, draw))

    async def aclose(self) -> None:
        pass


class _Parts(httpx.AsyncByteStream):
    """The body of an answer, in parts that come at drawn times."""

    def __init__(self, call: Call, parts: list[bytes], breaks: bool, draw: random.Random) -> None:
        self._call, self._parts, self._breaks, self._draw = call, parts, breaks, draw

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self._parts:
            await asyncio.sleep(self._draw.choice((0.0, 0.01, 0.5)))
            self._call.answered += part
            yield part
        if self._breaks:
            raise httpx.ReadError("it broke off")
        self._call.whole = True

    async def aclose(self) -> None:
        self._call.closed = True


def words_of(call: Call) -> str:
    """Return what the model answers to a call."""
    return f"Noté 🐟 {call.id}."


def answer_of(call: Call, draw: random.Random) -> tuple[int, str, list[bytes], bool]:
    """Return the status, the content type and the parts of an upstream's answer, and whether it breaks off after them."""
    script, path, words = call.script, call.talk.path, words_of(call)
    if script in ("429", "500"):
        body = json.dumps({"error": {"message": f"scripted {script}", "type": "scripted"}}).encode()
        return int(script), "application/json", _cut(body, draw), False
    if script == "no JSON":
        return 200, "text/html", _cut(b"<p>Welcome to the caf\xc3\xa9\xff</p>", draw), False
    tool = script in ("tool", "stream of a tool")
    if not call.stream:
        body = json.dumps(_whole(path, words, tool, call.id), ensure_ascii=False).encode()
        if script in ("ends in an answer", "ends in the middle"):
            return 200, "application/json", [body[: draw.randrange(1, len(body))]], True
        return 200, "application/json", _cut(body, draw), False
    events = b"".join(_events(path, words, tool, call.id))
    if script in ("ends in the middle", "ends in an answer"):
        return 200, "text/event-stream", _cut(events[: draw.randrange(len(events))], draw), True
    if script == "no end":
        events = events[: -draw.randrange(1, 30)]
    return 200, "text/event-stream; charset=utf-8", _cut(events, draw), False


def _cut(content: bytes, draw: random.Random) -> list[bytes]:
    """Return a content in parts, as networks cut it: also in the middle of a character."""
    places = sorted({0, len(content), *(draw.randrange(len(content) + 1) for _ in range(draw.choice((0, 2, 9))))})
    middle = content.find("🐟".encode())
    if middle >= 0 and draw.random() < 0.5:
        places = sorted({*places, middle + draw.randrange(1, 4)})
    return [content[begin:end] for begin, end in pairwise(places)]


def _whole(path: str, words: str, tool: bool, id: str) -> dict[str, Any]:
    arguments = {"command": "make test"}
    if path == PATHS[0]:
        call = {"id": f"t{id}", "type": "function", "function": {"name": TOOL, "arguments": json.dumps(arguments)}}
        message: dict[str, Any] = {"role": "assistant", "content": None if tool else words}
        message |= {"tool_calls": [call]} if tool else {}
        return {"id": f"c{id}", "object": "chat.completion", "choices": [{"index": 0, "message": message}]}
    if path == PATHS[1]:
        used = {"type": "tool_use", "id": f"t{id}", "name": TOOL, "input": arguments}
        part = used if tool else {"type": "text", "text": words}
        return {"id": f"c{id}", "type": "message", "role": "assistant", "content": [part]}
    called = {"type": "function_call", "call_id": f"t{id}", "name": TOOL, "arguments": json.dumps(arguments)}
    spoken = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": words}]}
    return {"id": f"c{id}", "object": "response", "status": "completed", "output": [called if tool else spoken]}


def _events(path: str, words: str, tool: bool, id: str) -> list[bytes]:
    whole = _whole(path, words, tool, id)
    if path == PATHS[0]:
        message = whole["choices"][0]["message"]
        deltas: list[dict[str, Any]] = [{"content": piece} for piece in ([] if tool else [words[:5], words[5:]])]
        deltas += [{"tool_calls": [{"index": 0, **message["tool_calls"][0]}]}] if tool else []
        chunks = [{"id": f"c{id}", "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
        return [*(_event("", chunk) for chunk in chunks), b"data: [DONE]\n\n"]
    if path == PATHS[1]:
        part = whole["content"][0]
        begun = {"type": "content_block_start", "index": 0, "content_block": part if tool else {**part, "text": ""}}
        delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": words}}
        start = {"type": "message_start", "message": {"id": f"c{id}", "role": "assistant", "content": []}}
        listed = [start, begun, *([] if tool else [delta]), {"type": "message_stop"}]
        return [_event(event["type"], event) for event in listed]
    item = whole["output"][0]
    listed = [{"type": "response.created", "response": {"id": f"c{id}"}}]
    listed += [] if tool else [{"type": "response.output_text.delta", "delta": words}]
    listed += [{"type": "response.output_item.done", "item": item}]
    return [_event(str(event["type"]), event) for event in listed]


def _event(name: str, body: dict[str, Any]) -> bytes:
    text = json.dumps(body, ensure_ascii=False)
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()


def drawn_steps(seed: int, count: int) -> list[Step]:
    """Return the steps of the night with a seed."""
    draw = random.Random(f"gateway steps/{seed}")
    verbs = draw.choices([*VERBS], [*VERBS.values()], k=count)
    return [
        Step(number, verb, draw.random(), tuple(draw.random() for _ in range(4))) for number, verb in enumerate(verbs)
    ]


class GatewayNight:
    """A night of two gateways over one file in a folder.

    Args:
        seed: Of everything that is drawn.
        steps: What is done.
        folder: Where the file lies, best in memory.
        faulty: The numbers of the steps at which faults of disk and processes happen; None for all. The upstream's and the
            clients' happen at all.
        images: The most images of the disk that are looked at after a step.
    """

    def __init__(
        self, seed: int, steps: Sequence[Step], folder: Path, *, faulty: set[int] | None = None, images: int = 5
    ) -> None:
        self.seed, self.steps, self.folder, self.faulty, self.images = seed, steps, folder, faulty, images
        self.path, self.copy = str(folder / "a.mem"), str(folder / "image" / "a.mem")
        self.tally = Tally()
        draw = random.Random(f"gateway night/{seed}")
        self.durability = draw.choice(("process", "power"))
        self.policy = draw.choice(("default", None))
        self.users = {name: name for name in PEOPLE}
        self.notes: dict[tuple[str, str], Note] = {}
        self.talks: list[Conversation] = []
        self.calls: dict[str, Call] = {}
        self.recorded: list[Recorded] = []
        self.rewards: dict[str, str] = {}
        """The users of the rewards that count, by the key of the request."""
        self.secrets: set[str] = set()
        self.erasures = self.generation = self.words = self.keys = 0
        self.marks: list[tuple[int, Note, bool | None]] = []
        self.present = ""
        self.room = ROOM
        self.known: set[bytes] = set()
        self.begun = 0
        self.fault: Fault | None = None
        self.failure: Failure | None = None
        self.under_way: Sequence[Call] = ()

    # The night.

    def run(self) -> Tally:
        """Do all steps. Raises Failure."""
        (self.folder / "image").mkdir(parents=True, exist_ok=True)
        with simulated(self.seed) as world, self._outside():
            self.world = world
            self.loop = SimulatedLoop(world)
            self.loop.set_exception_handler(lambda *_: None)
            self.upstream = Scripted(self)
            self.disk = Disk(f"gateway night {self.seed} {id(self)}", self.path, self.seed)
            apsw.set_default_vfs(self.disk.name)
            self.processes: list[Process] = []
            try:
                for number in range(2):
                    self.processes.append(self.open(f"g{number}"))
                for step in self.steps:
                    self.tally.steps += 1
                    try:
                        self.take(step)
                    except Failure as failure:
                        failure.step, failure.place = step.number, failure.place or self.present
                        raise
            finally:
                for process in self.processes:
                    process.die()
                    self.bury(process)
                self._end_tasks()
                self.loop.close()
                apsw.set_default_vfs("unix")
                self.disk.unregister()
        return self.tally

    @contextlib.contextmanager
    def _outside(self) -> Iterator[None]:
        """Replace what a gateway takes from outside beside what `simulated` replaces."""
        begun, reader = Database._begun, Database._reader

        def between(original: Callable[[Database], Any]) -> Callable[[Database], Any]:
            def begin(database: Database) -> Any:
                fault = self.fault
                if fault is not None and fault.kind == "between" and self.disk.acting and not fault.fired:
                    number, fault.count = fault.count, fault.count + 1
                    if number == fault.at and fault.meanwhile is not None:
                        fault.fired = "between transactions"
                        fault.meanwhile()
                return original(database)

            return begin

        prepare = Gateway.prepare

        def prepared(of: Gateway, format: Any, call: Any, bounds: Any) -> Any:
            turn = prepare(of, format, call, bounds)
            self.calls[call.headers["x-request-id"]].gone = {note for note in self.notes.values() if note.erased}
            return turn

        usage = SimpleNamespace(disk_usage=lambda _: SimpleNamespace(free=self.room))
        with (
            patch.object(gateway, "shutil", usage),
            patch.object(memory_routes, "monotonic", lambda: self.world.seconds),
            patch.object(memory_routes, "describe_routes", lambda _: {}),  # which takes long, and nobody reads it
            patch.object(memory_routes, "sleep", lambda seconds: self.world.sleep(seconds)),
            patch.object(Database, "_begun", between(begun)),
            patch.object(Database, "_reader", between(reader)),
            patch.object(Gateway, "prepare", prepared),
        ):
            yield

    def open(self, name: str) -> Process:
        with self.acting(name):
            options = {"encoder": ENCODER, "writer": None, "policy": self.policy, "clock": self.world.clock}
            options |= {"durability": self.durability, **({} if self.policy is None else {"seed": 1})}
            return Process(name, self.path, options, self)

    @contextlib.contextmanager
    def acting(self, name: str) -> Iterator[None]:
        before, self.disk.acting = self.disk.acting, name
        try:
            yield
        finally:
            self.disk.acting = before

    @contextlib.contextmanager
    def at_work(self, process: Process) -> Iterator[None]:
        """A thread of a process works. If the disk says that it was killed meanwhile, it is."""
        with self.acting(process.name):
            yield
        if process.name in self.disk.dead and process.alive:
            process.die()

    def bury(self, process: Process) -> None:
        with self.acting(process.name), contextlib.suppress(Exception):
            self.disk.fault = self.fault = None
            self.disk.dead.add(process.name)
            process.memory._decisions._waiting.clear()
            process.memory.store.database.close()
        self.disk.dead.discard(process.name)

    def _end_tasks(self) -> None:
        """Cancel all that is left on the loop."""
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            with contextlib.suppress(Stuck, RuntimeError):
                self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))

    def take(self, step: Step) -> None:
        """Do one step, with the faults that are drawn for it, and look at images of the disk."""
        draw = random.Random(f"gateway faults/{self.seed}/{step.number}")
        faulty = self.faulty is None or step.number in self.faulty
        self.world.seconds += draw.choice((1.0, 10.0))
        self.marks, self.failure = [], None
        self.under_way = ()
        calls: list[Call] = []
        before = self.disk.begin()
        start = {note: note.must for note in self.notes.values()}
        acts: list[tuple[float, Callable[[], None]]] = []
        getattr(self, "_" + step.verb.replace(" ", "_"))(step, calls, acts, draw)
        if faulty and draw.random() < 0.6:
            self.trouble(draw, calls, step.verb)
        self.present = "" if self.fault is None else f"{self.fault.kind} at {self.fault.at} of {step.verb}"
        self.play(calls, acts)
        roomy = self.room == ROOM
        fault, self.fault, self.disk.fault, self.room = self.fault, None, None, ROOM
        events = list(self.disk.events)
        hit = fault is not None and bool(fault.fired)
        for call in calls:
            for name in (
                f"upstream {call.script}",
                "caller leaves" if call.left else "",
                "process lost" if call.lost else "",
            ):
                if (name and call.script not in ("answer", "stream", "tool", "stream of a tool")) or name in (
                    "caller leaves",
                ):
                    self.count(name, call.talk.path, "stream" if call.stream else "whole", step.verb)
        if fault is not None and hit:
            self.count(fault.kind, step.verb, fault.fired)
        dead = [process for process in self.processes if not process.alive]
        for call in calls:
            self.judge(call, hit, roomy)
        for process in dead:
            self.bury(process)
            self.processes[self.processes.index(process)] = self.open(f"{process.name}!")
        if dead:
            self.restarted()
        elif not hit and roomy:
            self.recovered(calls)
        if self.failure is not None:
            raise self.failure
        for call in calls:
            self.check_answer(call)
            self.check_prompt(call)
        for call in calls:
            self.check_receipt(call, hit or bool(acts))
        process = self.processes[int(draw.random() * 2)]
        with self.acting(process.name):
            self.check_items(process.memory, f"{process.name} after {step.verb}")
            self.check_rewards(process.memory)
        if self.secrets:
            self.without_secrets(self.disk.platters.after_kill(), "after " + step.verb)
        if faulty and not dead:
            self.look_at_images(before, events, start, step.verb, draw)
        self.present = ""

    def trouble(self, draw: random.Random, calls: list[Call], verb: str) -> None:
        """Draw a fault of the disk, of a process or of another process in between."""
        kind = draw.choice(FAULTS)
        if kind == "no room":
            self.room = 1000
            self.count(kind, verb)
            return
        at = int(draw.random() ** 2 * (60 if kind == "read" else 14 if kind == "between" else 40))
        self.fault = Fault(
            kind, at, lasting=kind == "dead" or (kind not in ("slow", "between") and draw.random() < 0.5)
        )
        if kind in ("slow", "between"):
            users = [call.talk.user for call in calls] or [*self.users.values()]
            # Another process has none of the variables of this one.
            self.fault.meanwhile = lambda: contextvars.Context().run(self.meanwhile, draw, users)
        if kind != "between":
            self.disk.fault = self.fault

    def meanwhile(self, draw: random.Random, users: Sequence[str]) -> None:
        """Let another process work while one is in the middle of something."""
        fault, self.disk.fault = self.disk.fault, None
        mine, self.fault = self.fault, None
        others = [process for process in self.processes if process.name != self.disk.acting and process.alive]
        seconds = self.world.seconds
        try:
            if others:
                verb = draw.choice(("erase", "erase", "delete", "resume"))
                with self.at_work(others[0]):
                    try:
                        self.act(verb, others[0], draw, draw.choice(list(users)))
                    except MemoryProblem:
                        self.world.seconds = seconds
        finally:
            self.disk.fault, self.fault = fault, mine

    def play(self, calls: Sequence[Call], acts: Sequence[tuple[float, Callable[[], None]]]) -> None:
        """Let clients call, each at its time, and do the acts at theirs, until all is quiet."""
        for call in calls:
            self.calls[call.id] = call
        self.under_way = calls
        everything = self._play(calls, acts)
        try:
            self.loop.run_until_complete(everything)
        except Stuck:
            raise Failure(
                "every call ends", f"{[(call.id, call.script) for call in calls if not call.ended]}"
            ) from None

    async def _play(self, calls: Sequence[Call], acts: Sequence[tuple[float, Callable[[], None]]]) -> None:
        for seconds, act in acts:
            self.loop.call_later(seconds, act)
        await asyncio.gather(*(self._call(call) for call in calls), return_exceptions=True)
        await asyncio.sleep(max((seconds for seconds, _ in acts), default=0.0))
        for process in self.processes:
            while process.alive and process.gateway._finishing:
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.5)

    async def _call(self, call: Call) -> None:
        """Call a gateway as a client does."""
        await asyncio.sleep(call.begins)
        process = self.processes[call.process]
        call.erasures = self.erasures
        call.before = {note: note.must for note in self.notes.values()}
        if not process.alive:
            call.lost = call.ended = True
            return
        again = self.notes.get((call.talk.user, last_words(call)))
        if again is not None and again.must is False and not again.erased and call.mode == "on":
            self.mark(again, None)  # it was deleted, and is said again
        leaves = asyncio.Event()
        if call.leaves >= 0:
            self.loop.call_later(call.leaves, leaves.set)
        body = [call.body[: len(call.body) // 2], call.body[len(call.body) // 2 :]]

        async def receive() -> dict[str, Any]:
            if body:
                return {"type": "http.request", "body": body.pop(0), "more_body": bool(body)}
            await leaves.wait()
            call.left = call.left or not call.ended
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if call.lost or call.left:
                return
            if leaves.is_set():
                call.left = True
                raise OSError("the client is gone")
            if message["type"] == "http.response.start":
                call.status = message["status"]
                call.headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
                self.headers_came(call)
            else:
                call.content += message.get("body", b"")
                call.ended = not message.get("more_body", False)

        named = {"host": "127.0.0.1", "content-type": "application/json", "x-request-id": call.id}
        named |= {"content-length": str(len(call.body)), "x-keepworth-memory": call.mode}
        # Not every token opens what an upstream stores.
        bound = call.talk.path != PATHS[2] and int(call.id) % 2
        named |= {"authorization": f"Bearer {call.talk.user if bound else 'whole'}"}
        named |= {} if bound else {"x-keepworth-user": call.talk.user}
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "path": call.talk.path,
            "raw_path": call.talk.path.encode(), "query_string": b"", "scheme": "http", "server": ("127.0.0.1", 80),
            "client": ("127.0.0.1", 1), "headers": [(name.encode(), value.encode()) for name, value in named.items()],
        }  # fmt: skip
        task = self.loop.create_task(process.app(scope, receive, send))
        process.calls[task] = call
        try:
            await asyncio.shield(asyncio.gather(task, return_exceptions=True))
        finally:
            process.calls.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Failure):
            self.failure = self.failure or error
        elif error is not None and not (call.left or call.lost):
            self.failure = self.failure or Failure(
                "a call is answered", f"{call.script}: {type(error).__name__}: {error}"
            )
        if not call.ended and not call.left and not call.lost:
            self.failure = self.failure or Failure("a call is answered", f"{call.script} on {call.talk.path}: no end")

    def headers_came(self, call: Call) -> None:
        """Note what the headers of an answer promise."""
        if call.note is not None and call.headers.get("x-keepworth-memory") == "on" and not call.note.erased:
            self.mark(call.note, True)

    def mark(self, note: Note, must: bool | None) -> None:
        note.must = must
        self.marks.append((len(self.disk.events), note, must))

    def judge(self, call: Call, hit: bool, roomy: bool) -> None:
        """Say what must be in the memory after a call, and take the answer into its conversation."""
        note, talk, mode = call.note, call.talk, call.headers.get("x-keepworth-memory", "")
        if note is not None and not note.erased and note not in call.deleted:
            if mode == "on":
                note.waits = self.processes[call.process].name if hit else ""
            elif (
                mode and note.must is None and call.before.get(note) is None
            ):  # "failed", and no other call said the same
                others = [each for each in self.calls.values() if each.note is note and each is not call]
                note.must = False if not others and not call.lost else None
            elif call.sent and not call.headers.get("x-keepworth-memory") and not hit and not call.lost and roomy:
                note.must = True  # the caller was not told, but the turn was recorded
        if talk.pieces and call.ended and call.whole and call.status == 200 and not call.lost:
            self.continue_talk(call)

    def recovered(self, calls: Sequence[Call]) -> None:
        """Take down that what waited is stored now, as a process recorded a turn without a fault."""
        ended = [call for call in calls if call.erasures == self.erasures]  # else its turn may be erased
        well = {self.processes[call.process].name for call in ended if call.headers.get("x-keepworth-memory") == "on"}
        for note in self.notes.values():
            note.waits = "" if note.waits in well else note.waits

    def restarted(self) -> None:
        """Take down that all turns which waited are stored now, as a process opened the file without a fault."""
        for note in self.notes.values():
            note.waits = ""

    def continue_talk(self, call: Call) -> None:
        """Take the model's answer into a conversation, unless it went on meanwhile."""
        talk = call.talk
        if json.loads(call.body).get("messages" if talk.path != PATHS[2] else "input") != talk.pieces:
            return
        tool, id = call.script in ("tool", "stream of a tool"), call.id
        if call.script not in ("answer", "stream", "tool", "stream of a tool"):
            return
        whole = _whole(talk.path, words_of(call), tool, id)
        output = "exit code 1\nfailed" if int(id) % 2 else "exit code 0\n12 passed"
        if talk.path == PATHS[0]:
            talk.pieces.append(whole["choices"][0]["message"])
            talk.pieces += [{"role": "tool", "tool_call_id": f"t{id}", "content": output}] if tool else []
        elif talk.path == PATHS[1]:
            talk.pieces.append({"role": "assistant", "content": whole["content"]})
            result = {"type": "tool_result", "tool_use_id": f"t{id}", "content": output}
            talk.pieces += [{"role": "user", "content": [result]}] if tool else []
        else:
            talk.pieces += whole["output"]
            talk.pieces += [{"type": "function_call_output", "call_id": f"t{id}", "output": output}] if tool else []
        talk.tool = tool

    # Steps. Each adds the calls of clients, and what else is done at which time.

    def text(self, draw: random.Random) -> Note:
        """Return something that a person says, with words of its own; the person is not known yet."""
        self.words += 1
        word = "".join(random.Random(f"word/{self.seed}/{self.words}").choices(LETTERS, k=12))
        thing = "".join(random.Random(f"thing/{self.seed}/{self.words}").choices(LETTERS, k=8))
        return Note(f"The code of the {thing} shelf is {word} as of today.", "", word)

    def call(self, talk: Conversation, draw: random.Random, *, new: bool = True, note: Note | None = None) -> Call:
        """Return a call that sends a conversation as it is."""
        stream = draw.random() < 0.5
        body: dict[str, Any] = {"model": "scripted", "stream": stream, "max_tokens": 50, "metadata": {"n": "é"}}
        body |= {"input" if talk.path == PATHS[2] else "messages": list(talk.pieces)}
        script = draw.choices([*SCRIPTS], [*SCRIPTS.values()])[0]
        script = {"stream": "answer", "stream of a tool": "tool"}.get(script, script) if not stream else script
        mode = draw.choices(("on", "read", "off"), (8, 1, 1))[0]
        call = Call(
            str(len(self.calls) + 1), talk, script, mode, int(draw.random() * 2), stream,
            json.dumps(body, ensure_ascii=False).encode(), new, note if mode == "on" else None,
        )  # fmt: skip
        if draw.random() < 0.2:
            call.leaves = draw.choice((0.0, 0.005, 0.2, 1.0, 3.0))
        self.calls[call.id] = call
        return call

    def words_in(self, talk: Conversation, text: str) -> None:
        talk.pieces.append({"role": "user", "content": text})
        talk.turns += 1
        talk.tool = False

    def stated(self, note: Note, user: str) -> Note:
        """Return the model's note of what a user says."""
        note = Note(note.text, user, note.word)
        return self.notes.setdefault((user, note.text), note)

    def new_talk(self, draw: random.Random) -> Conversation:
        talk = Conversation(self.users[draw.choice(PEOPLE)], draw.choice(PATHS))
        if talk.path != PATHS[1] and draw.random() < 0.3:
            talk.pieces.append({"role": "system", "content": "Be brief."})
        self.talks.append(talk)
        return talk

    def open_talk(self, draw: random.Random) -> Conversation:
        """Return a conversation that waits for the person, or a new one."""
        open = [talk for talk in self.talks if 0 < talk.turns < 6 and talk.pieces[-1].get("role") != "user"]
        open = [talk for talk in open if not talk.tool and talk.pieces[-1].get("type") != "function_call_output"]
        return draw.choice(open) if open and draw.random() < 0.6 else self.new_talk(draw)

    def call_with_statement(self, talk: Conversation, draw: random.Random) -> Call:
        """Return a call in which a person says something new."""
        note = self.stated(self.text(draw), talk.user)
        self.words_in(talk, note.text)
        return self.call(talk, draw, note=note)

    def call_with_question(self, talk: Conversation, draw: random.Random) -> Call:
        """Return a call in which a person asks for what was said before."""
        there = [note for note in self.notes.values() if note.must and not note.waits]
        note = draw.choice(there) if there else self.text(draw)
        self.words_in(talk, f"What is the code of the {note.text.split()[4]} shelf, {self.words}?")
        self.words += 1
        call = self.call(talk, draw)
        call.asks = note if there else None
        return call

    def _say(self, step: Step, calls: list[Call], acts: list[Any], draw: random.Random) -> None:
        calls.append(self.call_with_statement(self.open_talk(draw), draw))

    def _ask(self, step: Step, calls: list[Call], acts: list[Any], draw: random.Random) -> None:
        calls.append(self.call_with_question(self.open_talk(draw), draw))

    def _several(self, step: Step, calls: list[Call], acts: list[Any], draw: random.Random) -> None:
        """Several people at once, perhaps while something is deleted or erased."""
        talks = list({id(talk): talk for talk in (self.open_talk(draw) for _ in range(3))}.values())
        for talk in talks:
            call = (self.call_with_statement if draw.random() < 0.6 else self.call_with_question)(talk, draw)
            call.begins = draw.choice((0.0, 0.0, 0.01, 0.4))
            calls.append(call)
        if draw.random() < 0.4:
            verb, process = draw.choice(("erase", "delete", "resume")), self.processes[int(draw.random() * 2)]
            user = draw.choice(talks).user
            acts.append((draw.choice((0.0, 0.01, 0.3, 1.0)), lambda: self.act_safely(verb, process, draw, user)))

    def _go_on(self, step: Step, calls: list[Call], acts: list[Any], draw: random.Random) -> None:
        """Send what a tool answered to the model, in a turn that goes on."""
        waiting = [talk for talk in self.talks if talk.tool]
        if waiting:
            calls.append(self.call(draw.choice(waiting), draw, new=False))

    def _retry(self, step: Step, calls: list[Call], acts: list[Any], draw: random.Random) -> None:
        """A call whose answer did not come whole is sent again."""
        broken = [call for call in self.calls.values() if call.talk in self.talks and call.talk.pieces]
        broken = [call for call in broken if call.body and call.talk.pieces == _pieces(call) and not call.talk.tool]
        if broken:
            last = broken[-1]
            again = self.call(last.talk, draw, new=False, note=last.note)
            calls.append(again)

    def _regenerate(self, step: Step, calls: list[Call], acts: list[Any], draw: random.Random) -> None:
        """The last answer of a conversation is made again."""
        talks = [talk for talk in self.talks if len(talk.pieces) > 1 and talk.pieces[-1].get("role") == "assistant"]
        talks = [talk for talk in talks if talk.pieces[-2].get("role") == "user" and not talk.tool]
        talks = [talk for talk in talks if isinstance(talk.pieces[-2]["content"], str)]
        if talks:
            talk = draw.choice(talks)
            talk.pieces.pop()
            note = self.notes.get((talk.user, talk.pieces[-1]["content"]))
            calls.append(self.call(talk, draw, new=False, note=note))

    def _same_words(self, step: Step, calls: list[Call], acts: list[Any], draw: random.Random) -> None:
        """Two people begin a conversation with the same words, one right after the other."""
        first = self.call_with_question(self.new_talk(draw), draw)
        if first.talk.turns != 1:
            return
        others = [user for user in self.users.values() if user != first.talk.user]
        second = Conversation(draw.choice(others), first.talk.path, [dict(piece) for piece in first.talk.pieces])
        second.turns = 1
        self.talks.append(second)
        calls += [first, self.call(second, draw)]
        calls[1].begins = draw.choice((0.0, 1.0))

    def _reward(self, step: Step, calls: list[Call], acts: list[Any], draw: random.Random) -> None:
        """A client rewards a turn by its receipt, twice with the same key, or once more when its answer was lost."""
        if not self.recorded:
            return
        turn = draw.choice(self.recorded)
        self.keys += 1
        key, value, twice = f"reward {self.keys}", float(draw.random() < 0.6), draw.random() < 0.6
        first, second = self.processes if draw.random() < 0.5 else reversed(self.processes)
        if draw.random() < 0.2 and turn.user in self.users.values():
            acts.append((0.0, lambda: self.act_safely("erase", second, draw, turn.user)))
        acts.append((0.1, lambda: self.reward(turn, first, key, value)))
        if twice:
            acts.append((draw.choice((0.1, 0.2)), lambda: self.reward(turn, second, key, value)))
        # Whoever got no answer asks again.
        acts.append((5.0, lambda: self.reward(turn, second, key, value, last=True)))

    def reward(self, turn: Recorded, process: Process, key: str, value: float, last: bool = False) -> None:
        from benchmarks.nights.night import Request  # the form of a request is that of the engine's nights

        if last:
            self.fault = self.disk.fault = None
            process = next((each for each in self.processes if each.alive), process)
        if not process.alive or self.failure is not None:
            return
        request = Request("POST", "/rewards", {"target": turn.episode, "value": value}, key)
        with self.at_work(process):
            try:
                answer = _answered(process, request)
            except NotServed as refused:
                gone = refused.status in (404, 409)
                if last and not gone:
                    self.failure = Failure("a reward counts once", f"{refused.status}: {refused}")
                if refused.code == "AnswerGone":
                    self.rewards[key] = turn.user
                    turn.rewarded = True
                return
            except Exception as foreign:
                self.failure = Failure("errors are the engine's own", f"{type(foreign).__name__}: {foreign}")
                return
        if answer["applied"] or answer.get("reason") == "no known item was shown":
            self.rewards[key] = turn.user
            turn.rewarded = True

    def _delete(self, step: Step, calls: list[Call], acts: list[Any], draw: random.Random) -> None:
        process = self.processes[int(draw.random() * 2)]
        acts.append((0.0, lambda: self.act_safely("delete", process, draw, "")))

    def _erase(self, step: Step, calls: list[Call], acts: list[Any], draw: random.Random) -> None:
        process, user = self.processes[int(draw.random() * 2)], self.users[draw.choice(PEOPLE)]
        acts.append((0.0, lambda: self.act_safely("erase", process, draw, user)))

    def _restart(self, step: Step, calls: list[Call], acts: list[Any], draw: random.Random) -> None:
        number = int(draw.random() * 2)
        process = self.processes[number]
        self.loop.run_until_complete(process.gateway.end(()))
        with self.acting(process.name):
            process.memories.close()
        self.processes[number] = self.open(f"{process.name}+")
        self.restarted()

    def act_safely(self, verb: str, process: Process, draw: random.Random, user: str) -> None:
        if not process.alive or self.failure is not None:
            return
        with self.at_work(process):
            try:
                self.act(verb, process, draw, user)
            except MemoryProblem as problem:
                if self.fault is None or not self.fault.fired:
                    self.failure = Failure("no error without a fault", f"{verb}: {type(problem).__name__}: {problem}")
            except Exception as foreign:
                self.failure = Failure("errors are the engine's own", f"{verb}: {type(foreign).__name__}: {foreign}")

    def act(self, verb: str, process: Process, draw: random.Random, user: str) -> None:
        """Delete an item, erase a person, or store what waits, as a process does by itself."""
        if verb == "resume":
            process.gateway.resume(process.memories.of(Access("whole")))
        elif verb == "delete":
            items = [item for item in process.memory.get_all(limit=MANY) if user in ("", item.scope.user)]
            if not items:
                return
            item = draw.choice(items)
            note = self.notes.get((item.scope.user, item.text))
            if note is None:
                return
            self.mark(note, None)
            for call in self.calls.values():
                call.deleted.add(note)
            process.memory.delete(item.id)
            # A call of this step that says it again may store it after this, even after its answer has ended.
            says = (note.user, note.text, "on")
            again = any((call.talk.user, last_words(call), call.mode) == says for call in self.under_way)
            self.mark(note, None if again else False)
        else:
            if user not in self.users.values():
                return
            mine = [note for note in self.notes.values() if note.user == user]
            bodies = [call.body.decode() for call in self.calls.values() if not (call.ended or call.sent or call.lost)]
            under_way = {
                note for note in mine if any(note.text in body for body in bodies)
            }  # it is said again, after this
            for note in mine:
                self.mark(note, None)
            self.erasures += 1  # from here on blocks may be gone
            erased = process.memory.erase(user_id=user)
            self.erasures += 1
            self.generation += 1
            # Another process may have erased the same person in between.
            for base in [name for name, present in self.users.items() if present == user]:
                self.users[base] = "".join(random.Random(f"user/{self.seed}/{self.generation}").choices(LETTERS, k=12))
            for note in mine:
                if note not in under_way:
                    note.erased = True
                    self.mark(note, False)
            for talk in self.talks:
                talk.lines = {}
            self.talks = [talk for talk in self.talks if talk.user != user]
            self.rewards = {key: whose for key, whose in self.rewards.items() if whose != user}
            self.recorded = [turn for turn in self.recorded if turn.user != user or draw.random() < 0.5]
            others = " ".join(note.text for note in self.notes.values() if note.user != user)
            # What a client sends from now on, it may have said before.
            others += " ".join(call.body.decode() for call in self.calls.values() if not (call.sent or call.ended))
            if erased.log_emptied:
                self.secrets |= {note.word for note in mine if note.erased and note.word not in others}

    # Claims.

    def count(self, kind: str, *place: str) -> None:
        self.tally.faults[kind] += 1
        self.tally.places[" / ".join((kind, *place))] += 1

    def check_answer(self, call: Call) -> None:
        """The client has what the upstream answered, byte by byte, whatever the memory did."""
        self.tally.checks += 1
        content, claim = bytes(call.content), "the upstream's answer comes unchanged"
        where = f"{call.script} on {call.talk.path}, memory {call.headers.get('x-keepworth-memory', '')!r}"
        if call.sent and not call.closed:
            raise Failure("the upstream is hung up", where)
        if len(call.sent) > 1:
            raise Failure("the upstream is asked once", f"{where}: {len(call.sent)} times")
        if call.left or call.lost:
            if (
                call.sent
                and call.stream
                and call.headers
                and not call.answered.startswith(content[: len(call.answered)])
            ):
                raise Failure(claim, f"{where}: {content[:80]!r} of {call.answered[:80]!r}")
            return
        if not call.sent:
            raise Failure("the upstream is asked once", f"{where}: never, {call.status} {content[:200]!r}")
        if call.script in ("refuses", "hangs"):
            expected = 502 if call.script == "refuses" else 504
            if call.status != expected:
                raise Failure(claim, f"{where}: {call.status}")
        elif call.whole:
            status = int(call.script) if call.script in ("429", "500") else 200
            if (call.status, content) != (status, call.answered) or call.headers.get("retry-after") != "7":
                raise Failure(claim, f"{where}: {call.status} {content[:200]!r} of {call.answered[:200]!r}")
        elif call.stream:
            if (
                call.status != 200
                or not content.startswith(call.answered)
                or b"error" not in content[len(call.answered) :]
            ):
                raise Failure(claim, f"{where}: {call.status} {content[-200:]!r} after {call.answered[-100:]!r}")
        elif call.status != 502:
            raise Failure(claim, f"{where}: {call.status} for an answer that broke off")

    def check_prompt(self, call: Call) -> None:
        """The upstream was sent what the client said, with notes of the same person in front of the person's words."""
        if not call.sent:
            return
        self.tally.checks += 1
        claim, mode, talk = (
            "a prompt is the client's with notes of the person",
            call.headers.get("x-keepworth-memory", ""),
            call.talk,
        )
        where = f"{mode or 'no memory'}, {talk.path}"
        if call.mode == "off" or mode == "failed" or (call.whole and call.status and not mode):
            if call.sent[0] != call.body:
                raise Failure(claim, f"{where}: the body is not that of the client")
            return
        if not mode and call.sent[0] == call.body:
            return  # the client is not told how the memory was
        body, mine = json.loads(call.sent[0]), json.loads(call.body)
        name = "input" if talk.path == PATHS[2] else "messages"
        pieces, originals = body.pop(name), mine.pop(name)
        if body != mine or len(pieces) != len(originals):
            raise Failure(claim, f"{where}: other fields or messages")
        lines: dict[int, list[str]] = {}
        for index, (piece, original) in enumerate(zip(pieces, originals, strict=True)):
            rest, lines[index] = without_block(piece)
            if rest != original or (lines[index] and original.get("role") != "user"):
                raise Failure(claim, f"{where}: message {index} is {json.dumps(piece)[:200]}")
            for line in lines[index]:
                note = self.notes.get((talk.user, line.removeprefix("- ")))
                if note is None:
                    raise Failure("notes are the person's own", f"{where}: {talk.user} is shown {line!r}")
                if note in call.gone:
                    raise Failure("what was erased is gone", f"{where}: {line!r} is shown")
        turns = [
            index
            for index, piece in enumerate(originals)
            if piece.get("role") == "user" and isinstance(piece["content"], str)
        ]
        newest = turns[-1]
        went_on = (
            newest < len(originals) - 1
        )  # to call a tool; the words of a call that is sent again may get another block
        quiet = call.erasures == self.erasures
        for line in lines[newest] if call.new and quiet else ():
            note = self.notes[talk.user, line.removeprefix("- ")]
            if call.before.get(note, None) is False:
                raise Failure("what is deleted is not recalled", f"{where}: {line!r}")
        for index in turns:
            if index in talk.lines and quiet and (index != newest or went_on) and lines[index] != talk.lines[index]:
                raise Failure(
                    "prompts grow at their end", f"{where}: message {index} had {talk.lines[index]}, has {lines[index]}"
                )
        if mode in ("on", "read") and quiet:
            talk.lines = {index: lines[index] for index in turns}
        asks = call.asks
        if asks is not None and self.policy is None and mode in ("on", "read") and call.new and quiet:
            there = call.before.get(asks) and asks not in call.deleted and asks.user == talk.user and not asks.waits
            if there and f"- {asks.text}" not in [line for each in lines.values() for line in each]:
                raise Failure("what is there is recalled", f"{where}: {asks.text!r} is not in {lines}")

    def check_receipt(self, call: Call, disturbed: bool) -> None:
        """A receipt names what was sent, and an episode says how the call ended."""
        episode = call.headers.get("x-keepworth-episode", "")
        if not episode or call.lost or call.erasures != self.erasures:
            return
        self.tally.checks += 1
        process = self.processes[0]
        with self.acting(process.name):
            summary = {each["id"]: each for each in self._get(process, "/episode_summaries")["episodes"]}.get(episode)
            receipt = self._get(process, f"/episodes/{episode}/receipt")
        if summary is None:
            raise Failure("an episode says how it ended", f"{episode} is not there")
        rewarded = any(turn.episode == episode and turn.rewarded for turn in self.recorded)
        if call.ended and not disturbed and not rewarded and not call.left:
            ends = "completed" if call.status < 400 else f"stopped by the upstream's {call.status}"
            ends = {"refuses": "stopped by unreachable", "hangs": "stopped by timeout"}.get(call.script, ends)
            if not call.whole and call.script not in ("refuses", "hangs"):
                ends = "stopped by the upstream" if call.stream else "stopped by unreachable"
            if summary["outcome"] != ends:
                raise Failure(
                    "an episode says how it ended", f"{summary['outcome']!r}, not {ends!r}, after {call.script}"
                )
        if not call.new or any(turn.episode == episode for turn in self.recorded):
            return
        import hashlib

        body = json.loads(call.sent[0]) if call.sent else {}
        pieces = body.get("input" if call.talk.path == PATHS[2] else "messages", [])
        lines = sorted({line for piece in pieces for line in without_block(piece)[1]})
        if (receipt["sha256"], receipt["bytes"]) != (hashlib.sha256(call.sent[0]).hexdigest(), len(call.sent[0])):
            raise Failure("a receipt names what was sent", f"{receipt['bytes']} bytes of {len(call.sent[0])}")
        with self.acting(process.name):
            texts = {item.id: item.text for item in process.memory.get_all(limit=MANY, all_states=True)}
        injected = sorted(f"- {texts.get(id)}" for id in receipt["injected"])
        if sorted(receipt["text"].split("\n")[1:]) != lines or injected != lines:
            raise Failure("a receipt names what was sent", f"{injected}, {receipt['text']!r}, sent {lines}")
        self.recorded.append(Recorded(episode, call.talk.user, call.sent[0], lines, self.erasures))

    def _get(self, process: Process, path: str) -> Any:
        from keepworth.serving.calls import ServedCall
        from keepworth.serving.memory_routes import BASE

        parts = path.split("/")
        id = {"id": parts[2]} if len(parts) > 2 else {}
        route = BASE + (path if not id else f"/{parts[1]}/{{id}}/{parts[3]}")
        try:
            return process.table["GET", route](ServedCall({}, {}, id, Access("whole"), b"", {}))
        except NotServed as refused:
            raise Failure("a receipt names what was sent", f"{path}: {refused.status} {refused}") from refused

    def check_items(self, memory: Memory, place: str, required: dict[Note, bool | None] | None = None) -> None:
        """Check that each note that people were promised is there once, and none that was deleted, erased or not taken."""
        self.tally.checks += 1
        there: dict[tuple[str, str], int] = {}
        for item in memory.get_all(limit=MANY):
            key = (item.scope.user, item.text)
            there[key] = there.get(key, 0) + 1
        for user, text in there:
            if (user, text) not in self.notes:
                raise Failure("notes are the person's own", f"{place}: {user!r} has {text!r}")
        for key, note in self.notes.items():
            must, count = note.must if required is None else required.get(note), there.get(key, 0)
            if count > 1:
                raise Failure("what is said is stored once", f"{place}: {count} times {note.text!r}")
            if must and not count and not (note.waits and required is None):
                raise Failure("what was acknowledged is there", f"{place}: {note.text!r} of {note.user!r}")
            if must is False and count:
                claim = "what was erased is gone" if note.erased else "what is deleted does not come back"
                raise Failure(claim, f"{place}: {note.text!r} of {note.user!r}")
            if must is None and required is None and count:
                note.must = True

    def check_rewards(self, memory: Memory) -> None:
        people = next((source for source in memory.outcomes() if source.kind == "people"), None)
        count = 0 if people is None else people.rewards
        if count != len(self.rewards):
            raise Failure("a reward counts once", f"{count} rewards, expected {len(self.rewards)}")

    def without_secrets(self, image: Image, place: str) -> None:
        for suffix, content in image.items():
            for word in self.secrets:
                if word[3:].encode() in content:
                    raise Failure("what was erased is gone", f"{word} is in the bytes of a.mem{suffix}, {place}")

    def look_at_images(
        self, before: Platters, events: Sequence[Event], start: dict[Note, bool | None], verb: str, draw: random.Random
    ) -> None:
        """Look at what the next process would find, had all processes been killed in the middle of a step."""
        cuts = {draw.randrange(len(events) + 1) for _ in range(self.images)} if events else set()
        platters, position = before, 0
        for cut in sorted(cuts):
            while position < cut:
                platters.take(events[position])
                position += 1
            kinds = ("kill", "torn", "power") if self.durability == "power" else ("kill", "kill", "torn")
            kind = draw.choice(kinds)
            if kind == "torn" and (cut == len(events) or events[cut].kind != "write"):
                kind = "kill"
            if kind == "kill":
                image = platters.after_kill()
            elif kind == "torn":
                image = platters.after_kill(events[cut], draw.randrange(1, max(2, len(events[cut].data))))
            else:
                image = platters.after_power_loss(draw, draw.choice((0.0, 0.3, 0.8)), draw.choice((0.0, 0.5)))
            name = f"{events[cut].kind}{events[cut].part}" if cut < len(events) else "end"
            self.present = f"{kind} before access {cut} ({name}) of {verb}"
            required: dict[Note, bool | None] = dict(start)
            required |= {note: must for at, note, must in self.marks if at <= cut}
            required |= dict.fromkeys([note for at, note, _ in self.marks if at > cut])
            self.inspect(image, required, kind, f"{verb} {name}", draw)

    def inspect(
        self, image: Image, required: dict[Note, bool | None], kind: str, place: str, draw: random.Random
    ) -> None:
        """Open an image of the disk with a gateway, as the next process does, and hold the claims against it."""
        import hashlib

        digest = hashlib.blake2b(repr([(note.word, must) for note, must in required.items()]).encode(), digest_size=12)
        for part, content in sorted(image.items()):
            digest.update(part.encode() + content)
        if digest.digest() in self.known:
            self.tally.repeated += 1
            return
        self.known.add(digest.digest())
        self.count(kind, place)
        for part in ("-shm", "-wal", ""):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.copy + part)
        for part, content in image.items():
            Path(self.copy + part).write_bytes(content)
        apsw.set_default_vfs("unix")
        opened = None
        try:
            options = {"encoder": ENCODER, "writer": None, "policy": None, "clock": self.world.clock}
            opened = Process("image", self.copy, options, self)
            self.world.later.clear()
            self.check_items(opened.memory, f"after {kind}", required)
            if draw.random() < 0.2 and (problems := check(opened.memory.store, deep=True)):
                raise Failure("check is clean", f"after {kind}: {problems[:3]}")
        except MemoryProblem as problem:
            raise Failure("it opens after a fault", f"{type(problem).__name__}: {problem}") from problem
        finally:
            if opened is not None:
                opened.memories.close()
            apsw.set_default_vfs(self.disk.name)


def last_words(call: Call) -> str:
    """Return what the person said last in what a call sends."""
    said = [piece["content"] for piece in _pieces(call) if piece.get("role") == "user"]
    return next(content for content in reversed(said) if isinstance(content, str))


def _pieces(call: Call) -> Any:
    body = json.loads(call.body)
    return body.get("input" if call.talk.path == PATHS[2] else "messages")


def _answered(process: Process, request: Any) -> Any:
    from keepworth.serving.calls import ReadyAnswer, ServedCall
    from keepworth.serving.memory_routes import BASE

    call = ServedCall(
        request.fields,
        {},
        {},
        Access("whole"),
        json.dumps(request.fields).encode(),
        {"idempotency-key": request.key},
    )
    answer = process.table[request.method, BASE + request.path](call)
    return json.loads(answer.content) if isinstance(answer, ReadyAnswer) else answer


def without_block(piece: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return a message without its block of memory, and the lines of the block: read without the gateway's own code."""
    content = piece.get("content")
    if isinstance(content, str):
        if not content.startswith(MARK + "\n"):
            return piece, []
        block, _, rest = content.partition("\n\n")
        return {**piece, "content": rest}, block.split("\n")[1:]
    if not isinstance(content, list):
        return piece, []
    blocks = [part for part in content if isinstance(part, dict) and str(part.get("text", "")).startswith(MARK + "\n")]
    if not blocks:
        return piece, []
    rest = [part for part in content if part not in blocks]
    lines = [line for part in blocks for line in part["text"].partition("\n\n")[0].split("\n")[1:]]
    plain = len(rest) == 1 and {*rest[0]} == {"type", "text"}
    return {**piece, "content": rest[0]["text"] if plain else rest}, lines


run_night = partial(play, GatewayNight)
