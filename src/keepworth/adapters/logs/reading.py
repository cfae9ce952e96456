"""Reads logs: finds files, tells their format by their content, and yields sessions. A file is read line by line."""

from __future__ import annotations

import codecs
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from keepworth.adapters.logs import atif, chats, claude_code, codex, gemini_cli, opencode, plain, spans
from keepworth.adapters.logs.session import LogReader, LogSession
from keepworth.base.json_values import parse, parsed
from keepworth.memory.headline import MARK

LONGEST_LINE = 2**26
"""The most bytes of a line, and of a file that is one JSON document."""
LOOKED_AT = 20
"""How many lines at the beginning of a file tell its format."""
WRONG = (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError)
"""What readers raise for values that are not of the kinds that a format has."""
HEAVY = 4_000
"""From so many turns and steps on, the earlier turns of a session are given on before its end, so that memory stays bounded."""
_MARK = MARK.encode()


@dataclass(frozen=True, slots=True)
class LogFormat:
    """A format of logs. `rows` are sessions each; `across` says that the files of a folder belong together, and `scanned` that
    ids of searches may stand anywhere in a line."""

    name: str
    fits: Callable[[dict[str, Any]], bool]
    make: Callable[[], LogReader]
    rows: bool = False
    across: bool = False
    scanned: bool = False


FORMATS = (
    LogFormat(claude_code.NAME, claude_code.fits, claude_code.ClaudeCodeReader, scanned=True),
    LogFormat(codex.NAME, codex.fits, codex.CodexReader, scanned=True),
    LogFormat(gemini_cli.NAME, gemini_cli.fits, gemini_cli.GeminiReader),
    LogFormat(opencode.NAME, opencode.fits, opencode.OpencodeReader),
    LogFormat(atif.NAME, atif.fits, atif.AtifReader, rows=True),
    LogFormat("verifiers", chats.fits_verifiers, chats.VerifiersReader, rows=True),
    LogFormat("art", chats.fits_art, chats.ArtReader, rows=True),
    LogFormat("langchain", chats.fits_langchain, chats.LangChainReader, rows=True),
    LogFormat("otlp", spans.fits_otlp, spans.OtlpReader, across=True),
    LogFormat("agent-lightning", spans.fits_lightning, spans.LightningReader, across=True),
    LogFormat("langfuse", spans.fits_langfuse, spans.LangfuseReader, across=True),
    LogFormat("langsmith", spans.fits_langsmith, spans.LangSmithReader, across=True),
    LogFormat(plain.NAME, plain.fits, plain.PlainReader, rows=True),
)


@dataclass(frozen=True, slots=True)
class LogProblem:
    """What could not be read: `line` counts from 1, and is 0 for the whole file."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}{f':{self.line}' if self.line else ''}: {self.reason}"


@dataclass(slots=True)
class LogFiles:
    """Reads all logs under some paths. After `sessions` has ended, `sizes` holds the bytes of each file that was read, and
    `problems` what could not be read, and `of_nobody` counts scores that name nothing in the files.

    Args:
        paths: Files and folders.
        report: Is called with the name of each file before it is read.
    """

    paths: Sequence[str | os.PathLike[str]]
    report: Callable[[str], None] = lambda _: None
    sizes: dict[str, int] = field(default_factory=dict)
    formats: dict[str, str] = field(default_factory=dict)
    problems: list[LogProblem] = field(default_factory=list)
    of_nobody: int = 0

    def sessions(self) -> Iterator[LogSession]:
        """Yield the sessions, and long ones in parts. Raises FileNotFoundError for a path that is not there."""
        waiting: dict[str, LogReader] = {}
        folder = ""
        for path in self._files():
            if os.path.dirname(path) != folder:
                yield from self._closed(waiting.values())
                folder, waiting = os.path.dirname(path), {}
            self.report(path)
            self.sizes[path] = os.path.getsize(path)
            try:
                yield from self._read(path, waiting)
            except OSError as error:
                self.problems.append(LogProblem(path, 0, f"it cannot be read ({error.strerror})"))
        yield from self._closed(waiting.values())

    def _closed(self, readers: Iterable[LogReader]) -> Iterator[LogSession]:
        for reader in readers:
            try:
                reader.close()
            except WRONG as error:
                place = next((session.file for session in reader.sessions.values()), "the files of a folder")
                self.problems.append(
                    LogProblem(place, 0, f"a part of it is not as its format has it ({_brief(error)})")
                )
            self.of_nobody += reader.of_nobody
            yield from reader.sessions.values()

    def _files(self) -> Iterator[str]:
        for path in map(os.path.abspath, self.paths):
            if not os.path.isdir(path):
                if not os.path.exists(path):
                    raise FileNotFoundError(path)
                yield path
                continue
            for folder, folders, files in os.walk(path, onerror=self._note_unread):
                folders.sort()
                listed = (os.path.join(folder, name) for name in sorted(files))
                yield from (file for file in listed if os.path.isfile(file))  # a pipe would be waited for

    def _note_unread(self, error: OSError) -> None:
        """Note that a file or a folder cannot be read."""
        self.problems.append(LogProblem(str(error.filename), 0, f"it cannot be read ({error.strerror})"))

    def _read(self, path: str, waiting: dict[str, LogReader]) -> Iterator[LogSession]:
        chosen = self._format_of(path)
        if chosen is None and atif.belongs(path):
            return
        if chosen is None:
            large = os.path.getsize(path) > LONGEST_LINE
            more = f", and too large to be one document ({LONGEST_LINE >> 20} MB at most)" if large else ""
            self.problems.append(LogProblem(path, 0, f"it is in no known form{more}"))
            return
        self.formats[path] = chosen.name
        reader = waiting.setdefault(chosen.name, chosen.make()) if chosen.across else chosen.make()
        for number, raw, row in self._rows(path):
            try:
                session = reader.read(row, path)
            except WRONG as error:
                self.problems.append(
                    LogProblem(path, number, f"it is not as {chosen.name} writes it ({_brief(error)})")
                )
                continue
            if session is not None:
                session.marked = session.marked or _MARK in raw
                if chosen.scanned and session.turns:
                    session.turns[-1].note_receipts(raw.decode("utf-8", "replace"))
                if session.weight > HEAVY and len(session.turns) > 1 and not chosen.across:
                    yield _split(session)
            if chosen.rows:
                yield from list(reader.sessions.values())
                reader.sessions.clear()
        if not chosen.across:
            yield from self._closed([reader])

    def _format_of(self, path: str) -> LogFormat | None:
        """Return the format of a file, from its first lines, or from the whole of it where it is one document."""
        if opencode.is_database(path):
            return next(entry for entry in FORMATS if entry.name == opencode.NAME)
        with _open_text(path) as file:
            for _ in range(LOOKED_AT):
                for row in _objects(parsed(file.readline(LONGEST_LINE))):
                    if (chosen := format_of(row)) is not None:
                        return chosen
            file.seek(0)
            start = file.read() if os.path.getsize(path) <= LONGEST_LINE else b""
        whole = parsed(start) or _parsed_start(start)
        return next((chosen for row in _objects(whole) if (chosen := format_of(row)) is not None), None)

    def _rows(self, path: str) -> Iterator[tuple[int, bytes, dict[str, Any]]]:
        """Yield the objects of a file, each with its line and its bytes. What is broken is noted, and the rest is read."""
        if opencode.is_database(path):
            sessions = opencode.read_database(path, lambda reason: self.problems.append(LogProblem(path, 0, reason)))
            yield from ((0, b"", row) for row in sessions)
            return
        with _open_text(path) as file:
            first = [line for _ in range(LOOKED_AT) if (line := file.readline(LONGEST_LINE)).strip()]
            by_lines = any(format_of(row) is not None for line in first for row in _objects(parsed(line)))
            file.seek(0)
            if not by_lines:
                yield from self._document(path, file.read())
                return
            number = 0
            while line := file.readline(LONGEST_LINE):
                number += 1
                if not line.endswith(b"\n") and len(line) == LONGEST_LINE:
                    self.problems.append(LogProblem(path, number, f"it is longer than {LONGEST_LINE >> 20} MB"))
                    while (rest := file.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
                        pass
                    continue
                if not line.strip():
                    continue
                try:
                    value = parse(line.strip())
                except ValueError as error:
                    self.problems.append(LogProblem(path, number, f"it is no JSON ({_brief(error)})"))
                    continue
                yield from ((number, line, row) for row in _objects(value))

    def _document(self, path: str, text: bytes) -> Iterator[tuple[int, bytes, dict[str, Any]]]:
        try:
            value = parse(text)
        except ValueError as error:
            line = len(text.splitlines())
            if isinstance(error, json.JSONDecodeError) and not error.msg.startswith("Unterminated"):
                line = min(line, error.lineno)
            self.problems.append(LogProblem(path, line, f"it is no JSON ({_brief(error)})"))
            return
        yield from ((0, text, row) for row in _objects(value))


def _open_text(path: str) -> IO[bytes]:
    """Open a file of text as UTF-8. What begins with the mark of UTF-16, as PowerShell writes it, is read from a copy."""
    file = open(path, "rb")  # noqa: SIM115
    if file.read(2) not in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        file.seek(0)
        return file
    file.close()
    copy = tempfile.TemporaryFile()  # noqa: SIM115
    with open(path, encoding="utf-16", errors="replace", newline="") as text:
        while part := text.read(1 << 20):
            copy.write(part.encode("utf-8", "replace"))
    copy.seek(0)
    return copy


def format_of(row: Mapping[str, Any]) -> LogFormat | None:
    """Return the format to which an object belongs, None if it is in no known form."""
    return next((candidate for candidate in FORMATS if candidate.fits(dict(row))), None)


def _parsed_start(text: bytes) -> Any:
    """Return the fields at the beginning of a document that was cut, as far as they can be told."""
    fields = re.findall(rb'^\s{0,4}"(\w+)":\s*("(?:[^"\\]|\\.)*"|\[|\{)', text, re.MULTILINE)
    empty: dict[bytes, Any] = {b"[": [], b"{": {}}
    return {name.decode(): empty[value] if value in empty else parsed(value) for name, value in fields}


def _objects(value: Any) -> Iterable[dict[str, Any]]:
    """Return the objects of a JSON value: itself, or those in a list; messages in a list are one object."""
    if isinstance(value, list):
        if value and all(isinstance(entry, dict) and ("data" in entry or "lc" in entry) for entry in value):
            return [{"messages": value}]
        return [entry for entry in value if isinstance(entry, dict)]
    return [value] if isinstance(value, dict) and value else []


def _brief(error: Exception) -> str:
    return str(error).partition("\n")[0][:120]


def _split(session: LogSession) -> LogSession:
    """Take all turns but the last out of a session, and return them as a part of it."""
    part = LogSession(
        session.format, session.id, session.file, session.folder, session.person, session.started, session.ended
    )
    part.turns, session.turns = session.turns[:-1], session.turns[-1:]
    part.marked, part.before = session.marked, session.before
    session.before += len(part.turns)
    return part
