"""Sessions of opencode: what `opencode export` and `opencode run --format json` write, and its database."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from keepworth.adapters.logs.session import LogReader, LogSession, parsed_object
from keepworth.base.json_values import objects_in, parse
from keepworth.base.text import unquoted

NAME = "opencode"
_EVENTS = ("user", "step_start", "text", "reasoning", "tool_use", "step_finish", "error")


def fits(row: dict[str, Any]) -> bool:
    """Return whether a line is an event of a session, or a whole file an export of one."""
    info = row.get("info")
    if isinstance(info, dict):
        return str(info.get("id")).startswith("ses_") and isinstance(row.get("messages"), list)
    return str(row.get("sessionID")).startswith("ses_") and row.get("type") in _EVENTS


def is_database(path: str) -> bool:
    """Return whether a file is a database with sessions of opencode."""
    with open(path, "rb") as file:
        if file.read(16) != b"SQLite format 3\0":
            return False
    with closing(sqlite3.connect(f"{Path(path).as_uri()}?mode=ro", uri=True)) as database:
        try:
            names = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        except sqlite3.DatabaseError:
            return False
    return names >= {"session", "message", "part"}


def read_database(path: str, note: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """Yield the sessions of a database, each as its export would be. Those of subagents are left out. What cannot be read is told
    to `note`, and the rest is read."""
    columns = "id, directory, revert, time_created, time_updated"
    with closing(sqlite3.connect(f"{Path(path).as_uri()}?mode=ro", uri=True)) as database:
        try:
            listed = database.execute(
                f"SELECT {columns} FROM session WHERE parent_id IS NULL ORDER BY time_created"
            ).fetchall()
        except sqlite3.Error as error:
            note(f"its sessions are not as opencode writes them ({error})")
            return
        for id, directory, revert, created, updated in listed:
            info = {"id": id, "directory": directory, "time": {"created": created, "updated": updated}}
            try:
                info |= {"revert": parse(revert)} if revert else {}
                messages = list(_messages(database, id))
            except (sqlite3.Error, ValueError, TypeError) as error:
                note(f"the session {id!r:.80} cannot be read ({error})")
                continue
            yield {"info": info, "messages": messages}


def _messages(database: sqlite3.Connection, session: str) -> Iterator[dict[str, Any]]:
    rows = database.execute("SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id", (session,))
    for message, data in rows.fetchall():
        parts = database.execute("SELECT data FROM part WHERE message_id = ? ORDER BY id", (message,))
        yield {"info": {**parse(data), "id": message}, "parts": [parse(text) for (text,) in parts.fetchall()]}


class OpencodeReader(LogReader):
    """Reads exports, and streams of events. Sessions of subagents are left out."""

    def read(self, row: dict[str, Any], file: str) -> LogSession | None:
        """Read an event, or a whole session."""
        info = row.get("info")
        if isinstance(info, dict):
            return None if info.get("parentID") else self._read_export(info, row["messages"], file)
        if not fits(row):
            return None
        id = str(row["sessionID"])
        session = self.sessions.setdefault(id, LogSession(NAME, id, file))
        time = session.see(row.get("timestamp"))
        parts = row.get("parts") if row["type"] == "user" else [row.get("part")]
        if row["type"] == "error":
            _read_error(session, row.get("error"))
        self._read_parts(session, row["type"] == "user", parts, time)
        return session

    def _read_export(self, info: dict[str, Any], messages: list[Any], file: str) -> LogSession:
        session = LogSession(NAME, str(info.get("id")), file, str(info.get("directory") or ""))
        self.sessions[session.id] = session
        revert, back = info.get("revert"), False
        for time in dict(info.get("time") or {}).values():
            session.see(time)
        for message in messages:
            about = message.get("info") if isinstance(message, dict) else None
            if not isinstance(about, dict):
                continue
            times = dict(about.get("time") or {})
            for time in times.values():
                session.see(time)
            self._read_parts(
                session, about.get("role") == "user", message.get("parts"), session.see(times.get("created"))
            )
            _read_error(session, about.get("error"))
            back = back or (isinstance(revert, dict) and revert.get("messageID") == about.get("id"))
            if back and session.turns:
                session.turns[-1].taken_back = True
        return session

    def _read_parts(self, session: LogSession, by_user: bool, parts: object, time: str) -> None:
        """Read the parts of a message: what the user asked, else what the agent said and did."""
        listed = objects_in(parts)
        texts = [
            str(part.get("text") or "") for part in listed if part.get("type") == "text" and not part.get("synthetic")
        ]
        if by_user:
            session.ask(unquoted("\n".join(texts).strip()), time)
            return
        for text in texts:
            session.say(text)
        for part in listed:
            state = part.get("state")
            if part.get("type") == "tool" and isinstance(state, dict):
                _read_call(session, part, state)


def _read_call(session: LogSession, part: dict[str, Any], state: dict[str, Any]) -> None:
    id, status = str(part.get("callID")), state.get("status")
    metadata = parsed_object(state.get("metadata"))
    output = str(state.get("output") or state.get("error") or "")
    stopped = bool(metadata.get("interrupted")) or "User aborted the command" in output
    if id not in session.calls:
        session.call(id, str(part.get("tool")), state.get("input"))
    if stopped:
        session.interrupt()
    if status in ("completed", "error"):
        session.finish(id, None if stopped else status == "error" or bool(metadata.get("exit")), output)


def _read_error(session: LogSession, error: object) -> None:
    if isinstance(error, dict) and error.get("name") == "MessageAbortedError":
        session.interrupt()
