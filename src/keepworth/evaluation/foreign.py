"""Runs a memory system in its own process, which reads and writes JSON lines. Rivals that need other packages run this way, and
so can systems of users in any language.

    -> {"op": "begin", "seed": 0, "folder": "PATH"}             forget everything; the folder is yours, and empty
    -> {"op": "write", "entries": [{"id", "text", "speaker", "time"}, ...]}
    -> {"op": "ask", "question": "...", "most": 50, "asked_at": "", "options": []}
    <- {"shown": ["id", {"id": "id", "text": "...", "score": 0.5}, ...]}      best first; an id alone stands for the entry's text
    <- {"answer": "...", "calls": 1}                                of a system that answers by itself
    -> {"op": "learn", "reward": 1.0, "shown": ["id"]}              the last answer's reward, and its items within the budget
    -> {"op": "holds", "ids": [...]}    <- {"holds": [...]}         {} where it cannot tell
    -> {"op": "size"}                   <- {"bytes": 4096}          likewise

Every request has one answer: {} where there is nothing to report, {"error": "..."} where it failed. Before it answers, the system
may ask for vectors, {"embed": ["text", ...]}, and is sent {"vectors": [[...], ...]} of the encoder that all systems use. It may
answer `begin` with {"versions": {"package": "1.0"}}. Its standard input is closed at the end."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, NonNegativeInt, ValidationError

from keepworth.evaluation.system import (
    Answered,
    AskedQuestion,
    NeverAnswered,
    SystemFailed,
    as_remembered,
)
from keepworth.records.episode import Shown
from keepworth.worlds.benchmark import place
from keepworth.worlds.entries import MemoryEntry

EXCERPT = 300
"""The most characters of a process's output that an error quotes."""
SECONDS_TO_END = 5.0
PAUSE = 0.5
"""Seconds to wait for the end of a process that closed its output."""

Encode = Callable[[Sequence[str]], Any]


class _Entry(BaseModel):
    model_config = ConfigDict(strict=True)

    id: str = ""
    text: str | None = None
    score: float | None = None


Listed = Annotated[_Entry, BeforeValidator(lambda given: {"id": given} if isinstance(given, str) else given)]
"""An entry, which may be given as its id alone."""


class _Reply(BaseModel):
    """A line that the program wrote in reply to any request."""

    model_config = ConfigDict(strict=True)

    embed: list[str] | None = None
    error: object = None
    versions: dict[str, object] = {}
    shown: list[Listed] | None = None
    answer: str | None = None
    calls: NonNegativeInt = 0
    holds: list[str] | None = None
    bytes: NonNegativeInt | None = None


class ForeignSystem:
    """A memory system in a program that speaks the protocol above.

    It is started at the first `begin`, and again by `begin` where it has ended. All its failures raise SystemFailed. `encode`
    maps texts to an array with one row per text; a call may take `seconds`."""

    def __init__(self, command: Sequence[str], encode: Encode, seconds: float = 60.0) -> None:
        self.versions: Mapping[str, str] = {}
        self._command, self._encode, self._seconds = list(command), encode, seconds
        self._folder = Path(tempfile.mkdtemp(prefix="keepworth-system-"))
        self._process: subprocess.Popen[str] | None = None
        self._stderr = self._folder / "stderr.txt"
        self._begun, self._entries, self._trouble = 0, dict[str, str](), ""
        self._answered = self._late = False  # whether it ever answered a line; whether its time was over

    def begin(self, seed: int) -> None:
        """Starts afresh. Raises NeverAnswered for a program that cannot be started, or that ends before its first answer."""
        shutil.rmtree(self._folder / str(self._begun), ignore_errors=True)
        self._begun += 1
        folder = self._folder / str(self._begun)
        folder.mkdir()
        self._entries = {}
        try:
            if self._process is None or self._trouble or self._process.poll() is not None:
                self._start()
            answer = self._ask({"op": "begin", "seed": seed, "folder": str(folder)})
        except SystemFailed as error:
            if self._answered:
                raise
            raise NeverAnswered(error.message, error.fix) from error
        self.versions = {name: str(version) for name, version in answer.versions.items()}

    def write(self, entries: Sequence[MemoryEntry]) -> None:
        messages = [
            {"id": place(entry), "text": as_remembered(entry), "speaker": entry.speaker, "time": entry.date}
            for entry in entries
        ]
        self._entries.update((entry["id"], entry["text"]) for entry in messages)
        self._ask({"op": "write", "entries": messages})

    def ask(self, question: AskedQuestion) -> Answered:
        request = {
            "op": "ask",
            "question": question.text,
            "most": question.most,
            "asked_at": question.asked_at,
            "options": list(question.options),
        }
        answer = self._ask(request)
        if answer.shown is None and answer.answer is None:
            raise self._no_answer("ask", "{}", '"shown" or "answer"')
        shown = enumerate((answer.shown or [])[: question.most])
        return Answered(tuple(self._show(entry, rank) for rank, entry in shown), answer.answer, answer.calls)

    def learn(self, reward: float, shown: Sequence[str]) -> None:
        self._ask({"op": "learn", "reward": reward, "shown": list(shown)})

    def holds(self, ids: Sequence[str]) -> frozenset[str] | None:
        answer = self._ask({"op": "holds", "ids": list(ids)}).holds
        return None if answer is None else frozenset(answer)

    def size(self) -> int | None:
        return self._ask({"op": "size"}).bytes

    def close(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(SECONDS_TO_END)
        self._kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _kill(self) -> str:
        """Kills the program with its children, and returns the last lines of its standard error."""
        process = self._process
        if process is None:
            return ""
        # The process group outlives its leader where that left children running.
        if hasattr(os, "killpg"):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            process.kill()
        process.wait()
        lines = [line.strip() for line in self._stderr.read_text("utf-8", "replace").splitlines() if line.strip()]
        return " | ".join(lines[-3:])[-EXCERPT:]

    def _start(self) -> None:
        self._kill()
        self._trouble, self._process = "", None
        try:
            with self._stderr.open("w") as stderr:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    encoding="utf-8",
                    errors="replace",
                    bufsize=1,
                    start_new_session=True,
                )
        except OSError as error:
            fix = "Give a command that runs."
            raise SystemFailed(f"{self._command[0]} cannot be started: {error}.", fix) from error

    def _ask(self, request: Mapping[str, Any]) -> _Reply:
        operation, self._late = str(request["op"]), False
        # More entries may take longer; the limit is only for a call that never ends.
        timer = threading.Timer(self._seconds * (1.0 + len(request.get("entries", ())) / 100.0), self._end)
        timer.start()
        try:
            self._send(request, operation)
            while (reply := self._reply(operation)).embed is not None:
                self._send({"vectors": self._encode(reply.embed).tolist() if reply.embed else []}, operation)
        finally:
            timer.cancel()
        if reply.error is not None:
            raise SystemFailed(f"{operation} failed in {self._name}: {str(reply.error)[:EXCERPT]}", "")
        return reply

    def _send(self, record: Mapping[str, Any], operation: str) -> None:
        process = self._process
        if self._trouble:
            raise SystemFailed(self._trouble, "It is started again with the next haystack.")
        if process is None or process.poll() is not None:
            raise self._ended(operation)
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(record, ensure_ascii=False) + "\n")
            process.stdin.flush()
        except (OSError, ValueError):
            raise self._ended(operation) from None

    def _reply(self, operation: str) -> _Reply:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._ended(operation)
        self._answered = True
        try:
            return _Reply.model_validate_json(line)
        except ValidationError as error:
            wrong = error.errors()[0]
            if not wrong["loc"]:
                raise self._no_answer(operation, repr(line.strip())[:EXCERPT], "one JSON object on one line") from None
            name = ".".join(map(str, wrong["loc"]))
            raise self._no_answer(
                operation, f"{name} {wrong['input']!r:.80}", f"another value ({wrong['msg']})"
            ) from None

    def _show(self, entry: _Entry, rank: int) -> Shown:
        text = self._entries.get(entry.id) if entry.text is None else entry.text
        if text is None or (entry.id and entry.id not in self._entries):
            raise self._no_answer(
                "ask", f"the id {entry.id!r:.80}", 'ids that it was told, or "" with a text of its own'
            )
        return Shown(entry.id, 1.0 / (1 + rank) if entry.score is None else entry.score, text)

    @property
    def _name(self) -> str:
        return " ".join(self._command)[:80]

    def _no_answer(self, operation: str, got: str, wanted: str) -> SystemFailed:
        """Kills the program after an invalid answer, because its next lines may belong to any request, and returns the error."""
        self._kill()
        self._trouble = f"{operation}: {self._name} answered {got}, where {wanted} is expected."
        fix = "Print answers alone to standard output; everything else belongs on standard error."
        return SystemFailed(self._trouble, fix)

    def _ended(self, operation: str) -> SystemFailed:
        code: int | None = None
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._process.wait(PAUSE)
        text = self._kill()
        if self._late:
            last = f"; it last said: {text}" if text else ""
            self._trouble = f"{operation} did not come back within {self._seconds:.0f} s{last}."
            return SystemFailed(self._trouble, "Give it more time with --patience, or see why it hangs.")
        how = "closed its output" if code is None else f"ended with code {code}"
        self._trouble = f"{operation}: {self._name} {how}{f': {text}' if text else ''}"
        return SystemFailed(self._trouble, "Run it by hand, with a line of its input.")

    def _end(self) -> None:
        """Kills the program when its time is over: the pending read then meets the end of its output."""
        self._late = True
        self._kill()
