"""A night of hooks: events of coding assistants in any order, repeated, cut and several at once, before a server that fails.

Each event runs the code of `keepworth hook` in a thread that gives way before each access to a file and each request, so that the
processes of several events interleave as drawn, and each can be killed at any of these places, or in the middle of a write. The
model knows what people said, what each model's context holds, and which turns ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import os
import random
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import apsw

from benchmarks.nights.disk import Disk, Fault
from benchmarks.nights.night import ENCODER, LETTERS, MANY, Failure, Step, Tally, play
from benchmarks.nights.world import simulated
from benchmarks.serving.hook_signals import HOSTS, event_json
from keepworth.memory.headline import MARK
from keepworth.serving import hook
from keepworth.serving.access import Access
from keepworth.serving.calls import NotServed, ReadyAnswer, ServedCall
from keepworth.serving.memory_routes import BASE, memory_table
from keepworth.serving.open_memories import OpenMemories

USERS = ("ana", "bob")
SECRET = "ghp_" + "a1B2" * 9
VERBS = {
    "begin": 4, "prompt": 14, "passed": 5, "failed": 5, "interrupted": 2, "ends": 7, "compact": 2, "end": 4, "resume": 2,
    "several": 7, "repeat": 3, "cut": 2, "strange": 1, "delete": 3, "settle": 5,
}  # fmt: skip
"""How often each kind of step is drawn."""
TROUBLES = {
    "killed": 6, "refused": 3, "503": 2, "500": 1, "lost": 3, "stopped": 3, "disk full": 1, "disk write": 1, "disk read": 1,
    "server killed": 2, "down": 3,
}  # fmt: skip
"""How often each kind of trouble is drawn."""


MOST_WAITING = 14
"""So many prompts may wait before all is settled: a hook keeps 20 of them."""


class Killed(BaseException):
    """A process was killed here."""


@dataclass(slots=True, eq=False)
class Said:
    """A statement of a person: whether it must be in the memory at last, or must not; None for either. `waits` counts how often
    the memory may still be sent it."""

    text: str
    user: str
    must: bool | None = None
    waits: int = 0


@dataclass(slots=True, eq=False)
class HostSession:
    """A session of a host. `context` are the lines of notes that its model was shown, None where that is not sure; `ended` says
    whether the host said that the last turn ended, None where that is not sure."""

    host: str
    id: str
    user: str
    context: set[str] | None = field(default_factory=set)
    ended: bool | None = True
    over: bool = False


class Running:
    """A process that handles an event, as a thread which runs only while it is let.

    Args:
        number: The number of the process.
        session: Whose event it is.
        event: What the host says, as bytes.
        what: The kind of the event.
        kill_at: The number of the access at which it is killed; below 0 for never.
    """

    def __init__(self, number: int, session: HostSession, event: bytes, what: str, kill_at: int = -1) -> None:
        self.number, self.session, self.event, self.what, self.kill_at = number, session, event, what, kill_at
        self.dead = self.ended = False
        self.count = 0
        self.killed_at = ""
        self.error: BaseException | None = None
        self.shown: list[str] = []
        self.asked = ""
        self.request: tuple[str, str, dict[str, Any]] | None = None
        self.reply: Any = None
        self.answers: list[tuple[str, dict[str, Any], int, dict[str, Any]]] = []
        """The requests that were answered: path, fields, status, answer."""
        self.said: Said | None = None
        self.troubled = False
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread: threading.Thread | None = None

    def start(self, work: Callable[[Running], None]) -> None:
        def run() -> None:
            self._go.acquire()
            LOCAL.process = self
            try:
                if not self.dead:
                    work(self)
            except Killed:
                pass
            except BaseException as error:
                self.error = error
            self.ended = True
            self._back.release()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def go_on(self) -> None:
        """Let it run until it gives way, or ends."""
        self._go.release()
        self._back.acquire()

    def kill(self) -> None:
        self.dead = True
        while not self.ended:
            self.go_on()

    # Called in the thread.

    def access(self, name: str, give_way: bool = True) -> bool:
        """Give way before an access. Returns whether it is killed in the middle of it; raises Killed if it is dead."""
        if self.dead:
            raise Killed
        number, self.count = self.count, self.count + 1
        if number == self.kill_at:
            self.killed_at = name
            self.dead = self.troubled = True
            if name == "write":
                return True
            raise Killed
        if give_way:
            self.asked = name
            self._back.release()
            self._go.acquire()
            if self.dead:
                raise Killed
        return False


LOCAL = threading.local()


def process() -> Running | None:
    """Return the process that runs in this thread, None in that of the night itself."""
    found: Running | None = getattr(LOCAL, "process", None)
    return found


HELD: dict[int, Running] = {}
"""Which process holds the lock of each file, by the number of the file."""


def lock(descriptor: int, _: int) -> None:
    """Take the lock of a file, once no process that lives holds it."""
    here, file = process(), os.fstat(descriptor).st_ino
    while here is not None and (holder := HELD.get(file)) is not None and not (holder.dead or holder.ended):
        here.access("lock")
    if here is not None:
        HELD[file] = here


class _Connection:
    """A connection of a hook to the simulated server."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._asked: tuple[str, str, dict[str, Any]] = ("", "", {})

    def request(self, method: str, path: str, body: str, headers: dict[str, str]) -> None:
        self._asked = (method, path, json.loads(body))

    def getresponse(self) -> Any:
        here = process()
        assert here is not None
        here.request = self._asked
        here.access("request")
        here.request = None
        reply = here.reply
        if isinstance(reply, BaseException):
            raise reply
        status, content = reply
        return SimpleNamespace(status=status, read=lambda: content)

    def close(self) -> None:
        pass


class _Part:
    """A file that is written piece by piece, so that a process can be killed between them, or in one."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, text: str) -> int:
        here = process()
        if here is not None and here.access("write", give_way=False):
            self._file.write(text[: len(text) // 2])
            self._file.flush()
            raise Killed
        return int(self._file.write(text))

    def __enter__(self) -> _Part:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _system() -> SimpleNamespace:
    """Return the module `os` as a hook sees it: accesses give way, and each process has a number of its own."""

    def opened(path: Any, flags: int, mode: int = 0o777) -> int:
        here = process()
        if here is not None:
            here.access("open")
        return os.open(path, flags, mode)

    def replaced(source: Any, target: Any) -> None:
        here = process()
        if here is not None:
            here.access("rename")
        os.replace(source, target)

    def closed(descriptor: int) -> None:
        HELD.pop(os.fstat(descriptor).st_ino, None)
        os.close(descriptor)

    def number() -> int:
        here = process()
        return os.getpid() if here is None else 1000 + here.number

    names = {name: getattr(os, name) for name in dir(os) if not name.startswith("__")}
    changed = {
        "open": opened,
        "replace": replaced,
        "getpid": number,
        "fdopen": lambda *a, **k: _Part(os.fdopen(*a, **k)),
    }
    changed["close"] = closed
    return SimpleNamespace(**{**names, **changed})


def drawn_steps(seed: int, count: int) -> list[Step]:
    """Return the steps of the night with a seed."""
    draw = random.Random(f"hook steps/{seed}")
    verbs = draw.choices([*VERBS], [*VERBS.values()], k=count)
    return [Step(number, verb, 0.0, ()) for number, verb in enumerate(verbs)]


class HooksNight:
    """A night of hooks in a folder.

    Args:
        seed: Of everything that is drawn.
        steps: What is done.
        folder: Where the memory and the states of sessions lie, best in memory.
        faulty: The numbers of the steps at which there is trouble; None for all.
    """

    def __init__(self, seed: int, steps: Sequence[Step], folder: Path, *, faulty: set[int] | None = None) -> None:
        self.seed, self.steps, self.folder, self.faulty = seed, steps, folder, faulty
        self.path, self.states = str(folder / "a.mem"), folder / "hooks"
        self.tally = Tally()
        draw = random.Random(f"hook night/{seed}")
        self.policy = draw.choice(("default", None))
        self.sessions: list[HostSession] = []
        self.said: dict[tuple[str, str], Said] = {}
        self.words = self.processes = self.drawn_sessions = 0
        self.present = ""
        self.events: list[tuple[HostSession, bytes, str, Said | None]] = []
        self.trouble = ""
        self.trouble_at = 0
        self.requests = self.outage = self.unsettled = 0

    def run(self) -> Tally:
        """Do all steps. Raises Failure."""
        self.states.mkdir(parents=True, mode=0o700)
        client = SimpleNamespace(
            HTTPConnection=_Connection, HTTPSConnection=_Connection, HTTPException=http.client.HTTPException
        )
        read, unlink = hook.read_session, Path.unlink

        def reads(file: Path) -> hook.HookSession:
            here = process()
            if here is not None:
                here.access("read")
            return read(file)

        def unlinks(path: Path, missing_ok: bool = False) -> None:
            here = process()
            if here is not None:
                here.access("unlink")
            unlink(path, missing_ok)

        variables = {"KEEPWORTH_URL": "http://memory", "KEEPWORTH_TOKEN": "kw_t", "KEEPWORTH_HOOKS": str(self.states)}
        with (
            simulated(self.seed) as world,
            patch.dict(os.environ, variables),
            patch.object(hook, "http", SimpleNamespace(client=client)),
            patch.object(hook, "os", _system()),
            patch.object(hook, "read_session", reads),
            patch.object(Path, "unlink", unlinks),
            patch.object(fcntl, "flock", lock),
            patch.object(hook, "_input", lambda: getattr(process(), "event", b"")),
            patch.object(hook, "_say", lambda _: None),
        ):
            self.world = world
            self.disk = Disk(f"hooks night {self.seed} {id(self)}", self.path, self.seed)
            apsw.set_default_vfs(self.disk.name)
            try:
                self.open("server")
                for step in self.steps:
                    self.tally.steps += 1
                    try:
                        self.take(step)
                    except Failure as failure:
                        failure.step, failure.place = step.number, failure.place or self.present
                        raise
            finally:
                self.bury()
                apsw.set_default_vfs("unix")
                self.disk.unregister()
        return self.tally

    # The server.

    def open(self, name: str) -> None:
        self.name = name
        with self.acting():
            options: dict[str, Any] = {"encoder": ENCODER, "policy": self.policy, "clock": self.world.clock}
            options |= {} if self.policy is None else {"seed": 1}
            self.memories = OpenMemories(self.path, options)
            self.memory = self.memories.of(Access("whole")).memory
            self.table = memory_table(self.memories)
            self.routes = [
                (method, re.compile(re.sub(r"\{\w+\}", "([^/]+)", path) + r"\Z"), path) for method, path in self.table
            ]

    @contextlib.contextmanager
    def acting(self) -> Iterator[None]:
        before, self.disk.acting = self.disk.acting, self.name
        try:
            yield
        finally:
            self.disk.acting = before

    def bury(self) -> None:
        with self.acting(), contextlib.suppress(Exception):
            self.disk.fault = None
            self.disk.dead.add(self.name)
            self.memory._decisions._waiting.clear()
            self.memory.store.database.close()
        self.disk.dead.discard(self.name)

    def serve(self, running: Running) -> None:
        """Answer the request of a process, or do what is drawn instead."""
        assert running.request is not None
        method, path, fields = running.request
        number, self.requests = self.requests, self.requests + 1
        trouble = self.trouble if number == self.trouble_at or self.trouble == "down" else ""
        place = re.sub(r"/[er][0-9a-f]{6,}", "", path.removeprefix(BASE))
        if SECRET in json.dumps(fields):
            raise Failure("no secret leaves the host", f"{path}: {json.dumps(fields)[:200]}")
        if running.said is not None:
            self.reached(running)
        if trouble in ("refused", "down"):
            self.troubled(running, trouble, place)
            running.reply = ConnectionRefusedError("refused")
        elif trouble in ("503", "500"):
            self.troubled(running, trouble, place)
            problem = {"detail": "The server is closing.", "fix": "Ask again once it runs."}
            running.reply = (int(trouble), json.dumps(problem).encode() if trouble == "503" else b"<h1>Broken</h1>")
        elif trouble == "stopped" and number % 2:
            self.troubled(running, "stopped", f"before {place}")
            running.kill()
        else:
            status, answer = self.answer(method, path, fields, trouble, running, place)
            if trouble == "stopped":
                self.troubled(running, "stopped", f"after {place}")
                running.kill()
            elif trouble == "lost" or status == 0:
                if status:
                    self.troubled(running, "lost", place)
                running.reply = http.client.RemoteDisconnected("it hung up")
            else:
                running.answers.append((path, fields, status, answer))
                running.reply = (status, json.dumps(answer).encode())

    def troubled(self, running: Running, kind: str, place: str) -> None:
        running.troubled = True
        self.count(kind, running.session.host, running.what, place)

    def answer(
        self, method: str, path: str, fields: dict[str, Any], trouble: str, running: Running, place: str
    ) -> tuple[int, dict[str, Any]]:
        """Carry out a request. Returns status and answer; (0, {}) where the server was killed."""
        route, match = next(
            (route, match)
            for verb, pattern, route in self.routes
            if verb == method and (match := pattern.match(path)) is not None
        )
        kinds = {"disk full": "full", "disk write": "write", "disk read": "read", "server killed": "dead"}
        if trouble in kinds:
            at = random.Random(f"disk/{self.seed}/{self.requests}").randrange(14)
            self.disk.fault = Fault(kinds[trouble], at, lasting=True)
        call = ServedCall(
            fields, {}, {"id": match[1]} if match.groups() else {}, Access("whole"), json.dumps(fields).encode(), {}
        )
        with self.acting():
            try:
                result = self.table[method, route](call)
                answer: tuple[int, dict[str, Any]] = (200, self.plain(result))
            except NotServed as refused:
                answer = (refused.status, {"detail": refused.message, "fix": refused.fix})
            except Exception as foreign:
                raise Failure(
                    "errors are the engine's own", f"{path}: {type(foreign).__name__}: {foreign}"
                ) from foreign
        fault, self.disk.fault = self.disk.fault, None
        if fault is not None and fault.fired:
            self.troubled(running, trouble, f"{place} {fault.fired}")
        if self.name in self.disk.dead:
            self.bury()
            self.open(f"{self.name}!")
            return 0, {}
        return answer

    def plain(self, result: Any) -> dict[str, Any]:
        if isinstance(result, ReadyAnswer):
            loaded: dict[str, Any] = json.loads(result.content)
            return loaded
        return json.loads(json.dumps(result)) if result else {}

    # Steps.

    def take(self, step: Step) -> None:
        """Do one step, with the trouble that is drawn for it."""
        draw = random.Random(f"hook faults/{self.seed}/{step.number}")
        faulty = self.faulty is None or step.number in self.faulty
        self.world.seconds += draw.choice((1.0, 20.0))
        self.trouble, self.trouble_at, self.requests = "", 0, 0
        # A session keeps only so many prompts that wait.
        verb = "settle" if self.unsettled >= MOST_WAITING else step.verb
        if faulty and not self.outage and draw.random() < 0.1:
            self.outage = draw.randrange(2, 9)  # for so many steps the server is down
        runnings = getattr(self, "_" + verb)(draw)
        self.outage = max(0, self.outage - 1)
        if self.outage:
            self.present, self.trouble = f"an outage, {verb}", "down"
        elif faulty and verb != "settle" and draw.random() < 0.6:
            kind = draw.choices([*TROUBLES], [*TROUBLES.values()])[0]
            self.present = f"{kind} in {step.verb}"
            if kind == "killed" and runnings:
                draw.choice(runnings).kill_at = int(draw.random() ** 2 * 90)
            else:
                self.trouble, self.trouble_at = kind, draw.randrange(6)
        self.play(runnings, draw)
        self.judge(runnings)
        self.check_files()
        self.check_items(settled=verb == "settle")
        self.present = ""

    def play(self, runnings: Sequence[Running], draw: random.Random) -> None:
        """Let processes run, in drawn order, until all ended."""
        live = list(runnings)
        for running in live:
            running.start(self.work)
        while live:
            running = draw.choice(live)
            if running.request is not None and not running.dead:
                self.serve(running)
            if not running.ended:
                running.go_on()
            live = [each for each in live if not each.ended]

    def work(self, running: Running) -> None:
        chosen = hook.parser().parse_args(["--user", running.session.user])
        try:
            hook._once(chosen, self.world.seconds, running.shown.append)
        except hook.HookProblem:
            running.troubled = running.troubled or running.what not in ("cut", "strange")

    def event(self, session: HostSession, what: str, said: Said | None = None, **more: Any) -> Running:
        """Return the process for an event of a session."""
        place = {"session_id": session.id, "cwd": "/home/ana/website"}
        begins = {"begin": "startup", "resume": "resume", "compact": "compact"}
        opencode = session.host == "opencode"
        if what == "compact" and opencode:
            fields: dict[str, Any] = {"hook_event_name": "session.compacted"}
        elif what in begins:
            fields = {"hook_event_name": "session.created" if opencode else "SessionStart", "source": begins[what]}
        elif what == "end":
            fields = {"hook_event_name": "session.deleted" if opencode else "SessionEnd"}
        elif what == "interrupted":
            tool = {"tool_name": "Bash", "tool_input": {"command": "make test"}, "is_interrupt": True}
            fields = {"hook_event_name": "PostToolUseFailure", **tool}
        elif what in ("passed", "failed"):
            fields = event_json(session.host, what, tool_input={"command": "make test"})
        else:
            fields = event_json(session.host, what, prompt=more.get("prompt", ""))
        text = json.dumps({**place, **fields}).encode()
        self.events.append((session, text, what, said))
        return self.running(session, text, what, said)

    def running(self, session: HostSession, text: bytes, what: str, said: Said | None) -> Running:
        self.processes += 1
        running = Running(self.processes, session, text, what)
        running.said = said
        return running

    def session(self, draw: random.Random) -> HostSession:
        """Return a session that goes on, or a new one, which may not have been begun."""
        open = [session for session in self.sessions if not session.over]
        if open and (len(open) > 3 or draw.random() < 0.8):
            return draw.choice(open)
        self.drawn_sessions += 1
        self.sessions.append(HostSession(draw.choice([*HOSTS]), f"s{self.drawn_sessions}", draw.choice(USERS)))
        return self.sessions[-1]

    def _one(self, what: str, draw: random.Random) -> list[Running]:
        return [self.event(self.session(draw), what)]

    def _begin(self, draw: random.Random) -> list[Running]:
        return self._one("begin", draw)

    def _resume(self, draw: random.Random) -> list[Running]:
        return self._one("resume", draw)

    def _compact(self, draw: random.Random) -> list[Running]:
        return self._one("compact", draw)

    def _ends(self, draw: random.Random) -> list[Running]:
        return self._one("ends", draw)

    def _passed(self, draw: random.Random) -> list[Running]:
        return self._one("passed", draw)

    def _failed(self, draw: random.Random) -> list[Running]:
        return self._one("failed", draw)

    def _interrupted(self, draw: random.Random) -> list[Running]:
        return self._one("interrupted", draw)

    def _end(self, draw: random.Random) -> list[Running]:
        return self._one("end", draw)

    def _prompt(self, draw: random.Random, session: HostSession | None = None) -> list[Running]:
        """Say something that is worth keeping, ask for what was said, or say both with a secret."""
        session = session or self.session(draw)
        self.words += 1
        self.unsettled += 1
        source = random.Random(f"hook words/{self.seed}/{self.words}")
        thing, word = ("".join(source.choices(LETTERS, k=size)) for size in (8, 12))
        said = Said(f"Our {thing} service needs the flag {word}.", session.user)
        prompt = said.text
        if draw.random() < 0.3 and self.said:
            prompt = f"Which flag needs the {draw.choice([*self.said.values()]).text.split()[1]} service, {self.words}?"
            return [self.event(session, "prompt", prompt=prompt)]
        if draw.random() < 0.2:
            prompt = f"{said.text}\nMy token for it is {SECRET}."
        self.said[session.user, said.text] = said
        return [self.event(session, "prompt", said, prompt=prompt)]

    def _several(self, draw: random.Random) -> list[Running]:
        """Events at once, of one session or of several."""
        first = self.session(draw)
        runnings = []
        for _ in range(draw.choice((2, 2, 3))):
            session = first if draw.random() < 0.6 else self.session(draw)
            what = draw.choice(("prompt", "prompt", "passed", "failed", "ends", "begin"))
            runnings += self._prompt(draw, session) if what == "prompt" else [self.event(session, what)]
        return runnings

    def _repeat(self, draw: random.Random) -> list[Running]:
        """An event comes once more, right away or later."""
        events = [event for event in self.events[-6:] if not event[0].over]
        if not events:
            return []
        session, text, what, said = draw.choice(events)
        return [self.running(session, text, what, said)]

    def _cut(self, draw: random.Random) -> list[Running]:
        """Cut an event that a host sends somewhere in its middle."""
        running = self.event(self.session(draw), "ends")
        self.events.pop()
        running.event, running.what = running.event[: draw.randrange(len(running.event))], "cut"
        return [running]

    def _strange(self, draw: random.Random) -> list[Running]:
        running = self.event(self.session(draw), "ends")
        self.events.pop()
        running.event = draw.choice(
            (b"[]", b"\xff", b'{"hook_event_name": 7}', b'{"hook_event_name": "Stop", "session_id": {}}')
        )
        running.what = "strange"
        return [running]

    def _delete(self, draw: random.Random) -> list[Running]:
        """A person deletes what was kept."""
        items = self.memory.get_all(limit=MANY)
        if items:
            item = draw.choice(items)
            with self.acting():
                self.memory.delete(item.id)
            if (said := self.said.get((item.scope.user, item.text))) is not None:
                said.must = False if said.waits <= 0 else None
        return []

    def _settle(self, draw: random.Random) -> list[Running]:
        """All sessions end, perhaps in an outage, and each person begins a new one, while all is well: what waits is stored
        then."""
        self.trouble = "down" if self.outage else ""
        for session in self.sessions:
            if not session.over:
                self.play(ended := [self.event(session, "end")], draw)
                self.judge(ended)
        self.trouble, self.outage, self.unsettled = "", 0, 0
        for user in draw.sample(USERS, len(USERS)):
            self.drawn_sessions += 1
            session = HostSession(draw.choice([*HOSTS]), f"s{self.drawn_sessions}", user)
            self.sessions.append(session)
            for what in ("begin", "end"):  # what the first one takes for the second waits until it is over
                self.play(running := [self.event(session, what)], draw)
                self.judge(running)
        return []

    # Claims.

    def count(self, kind: str, *place: str) -> None:
        self.tally.faults[kind] += 1
        self.tally.places[" / ".join((kind, *place))] += 1

    def reached(self, running: Running) -> None:
        """A process calls the memory: from here on what the person said is not lost."""
        said = running.said
        if said is not None and running.what == "prompt" and not running.answers:
            said.must = True
            said.waits += 1

    def judge(self, runnings: Sequence[Running]) -> None:
        """Hold claims against what processes did, and note what they showed."""
        for running in runnings:
            session, quiet = running.session, len(runnings) == 1 and not running.troubled and not running.dead
            if running.dead:
                # Rather twice than never: what a killed process moved to its session may be in two of them.
                for said in self.said.values():
                    said.waits += 1
            if running.dead and running.killed_at:
                self.count("killed", session.host, running.what, running.killed_at)
            if running.error is not None:
                error = running.error
                if isinstance(error, Failure):
                    raise error
                raise Failure("a hook does not break", f"{running.what}: {type(error).__name__}: {error}") from error
            if len(runnings) > 1:
                self.count("at once", running.what, *sorted({each.what for each in runnings}))
            self.tally.checks += 1
            self.check_posts(running, len(runnings) > 1)
            self.check_signals(running, quiet)
            self.check_shown(running, quiet)
            if running.what == "end" and not running.dead:
                session.over = True

    def check_posts(self, running: Running, overlapping: bool) -> None:
        """Check that a hook sends no words that the memory has taken, and each under its own person."""
        for path, fields, status, _ in running.answers:
            if not path.endswith("/items"):
                continue
            texts = "\n".join(message["content"] for message in fields["content"])
            for said in self.said.values():
                if said.text not in texts:
                    continue
                if fields.get("user_id") != said.user:
                    raise Failure(
                        "notes are the person's own", f"{said.text!r} of {said.user} goes to {fields.get('user_id')}"
                    )
                again = running.said is said
                if status == 200 and not running.dead and not overlapping:
                    said.waits -= 1
                    if said.waits < 0:
                        raise Failure("what the memory has taken is not sent again", f"{running.what}: {said.text!r}")
                if again and said.must is False:
                    said.must = None  # it was deleted, and is said again

    def check_signals(self, running: Running, quiet: bool) -> None:
        """No turn counts as stopped by the user that the host said has ended."""
        session, what = running.session, running.what
        stops = [
            fields
            for path, fields, _, _ in running.answers
            if path.endswith("/signal") and fields.get("name") == "interrupt"
        ]
        if what == "prompt" and stops and session.ended is True:
            raise Failure("a turn that ended was not stopped", f"{session.host}: {what} sends {stops}")
        if not quiet:
            session.ended = None
        elif what in ("ends", "end"):
            session.ended = True
        elif what in ("prompt", "passed", "failed", "interrupted"):
            session.ended = False
        # At its beginning a session keeps how the last turn ended.

    def check_shown(self, running: Running, quiet: bool) -> None:
        """Check that each recalled note stands in the context of the model, by an answer in the form that the host takes."""
        session, what = running.session, running.what
        text = "".join(running.shown)
        lines = set[str]()
        if text:
            answer = json.loads(text)
            block = answer["hookSpecificOutput"]["additionalContext"]
            if not block.startswith(MARK + "\n") or len(running.shown) != 1:
                raise Failure("a hook shows a block of notes", f"{what}: {block[:200]!r}")
            lines = {line for line in block.split("\n")[1:] if line.startswith("- ")}
            for line in lines:
                texts = [said for said in self.said.values() if said.text == line.removeprefix("- ")]
                if not any(said.user == session.user for said in texts):
                    raise Failure("notes are the person's own", f"{session.user} is shown {line!r}")
        fresh = what == "begin" or what == "compact"
        if not quiet:
            session.context = None
            return
        if fresh:
            session.context = set()
        if session.context is None or what in ("cut", "strange"):
            return
        session.context |= lines
        recalled = {
            line
            for path, _, status, answer in running.answers
            if path.endswith("/search") and status == 200
            for line in answer["lines"].values()
        }
        if missing := recalled - session.context:
            raise Failure("what is recalled is shown", f"{session.host}, {what}: {sorted(missing)[:2]}")

    def check_files(self) -> None:
        """Check that no secret lies in the states of sessions."""
        for file in self.states.iterdir():
            if SECRET.encode() in file.read_bytes():
                raise Failure("no secret leaves the host", f"it is in {file.suffix}")

    def check_items(self, settled: bool) -> None:
        """Check that each note is there once, if all is settled, and none that was deleted."""
        self.tally.checks += 1
        there: dict[tuple[str, str], int] = {}
        with self.acting():
            for item in self.memory.get_all(limit=MANY):
                key = (item.scope.user, item.text)
                there[key] = there.get(key, 0) + 1
        for key, said in self.said.items():
            count = there.get(key, 0)
            if count > 1:
                raise Failure("what is said is stored once", f"{count} times {said.text!r}")
            if said.must and settled and not count:
                raise Failure("what was said is stored at last", f"{said.text!r} of {said.user}")
            if said.must is False and count:
                raise Failure("what is deleted does not come back", f"{said.text!r} of {said.user}")
        for user, text in there:
            if (user, text) not in self.said:
                raise Failure("notes are the person's own", f"{user!r} has {text!r}")


run_night = partial(play, HooksNight)
