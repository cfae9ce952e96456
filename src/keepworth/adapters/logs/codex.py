"""Session files of Codex: `~/.codex/sessions/YEAR/MONTH/DAY/rollout-TIME-ID.jsonl`."""

from __future__ import annotations

import re
from typing import Any

from keepworth.adapters.logs.session import LogReader, LogSession, parsed_object, texts_in

NAME = "codex"
_NOBODY = re.compile(r"\s*(?:<[a-z_ ]+>|# AGENTS\.md instructions)")
"""How messages begin that the program adds in the user's name."""
_ENDED = re.compile(r"^(?:Process exited with code|Exit code:) (-?\d+)", re.MULTILINE)
_CALLS = ("function_call", "custom_tool_call", "local_shell_call")


def fits(row: dict[str, Any]) -> bool:
    """Return whether a line is of such a file."""
    if "payload" in row:
        return row.get("type") in ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
    return row.keys() >= {"id", "timestamp", "instructions"}


class CodexReader(LogReader):
    """Reads the lines of a file, which holds one session. Of a subagent's file nothing is read."""

    def __init__(self) -> None:
        super().__init__()
        self._session: LogSession | None = None
        self._subagent = False

    def read(self, row: dict[str, Any], file: str) -> LogSession | None:
        """Read a line, and return the session that it belongs to."""
        payload = row.get("payload", row)
        if not isinstance(payload, dict) or self._subagent:
            return None
        kind = row.get("type") if "payload" in row else "response_item"
        if kind == "session_meta" or row.keys() >= {"id", "timestamp", "instructions"}:
            source = payload.get("source")
            self._subagent = isinstance(source, dict) and "subagent" in source
            if self._session is None and not self._subagent:
                id = str(payload.get("id") or "")
                self._session = self.sessions[id] = LogSession(NAME, id, file, str(payload.get("cwd") or ""))
                self._session.see(payload.get("timestamp"))
            return self._session
        session = self._session
        if session is None:  # a file without its first line
            session = self._session = self.sessions[file] = LogSession(NAME, "", file)
        time = session.see(row.get("timestamp"))
        session.folder = session.folder or str(payload.get("cwd") or "")
        if kind == "event_msg":
            self._read_event(session, payload, time)
        elif kind == "response_item":
            self._read_item(session, payload, time)
        return session

    def _read_event(self, session: LogSession, event: dict[str, Any], time: str) -> None:
        kind = event.get("type")
        if kind == "user_message":
            self._ask(session, str(event.get("message") or ""), time)
        elif kind == "turn_aborted" and event.get("reason") == "interrupted":
            session.interrupt()
        elif kind == "thread_rolled_back" and isinstance(event.get("num_turns"), int):
            session.take_back(event["num_turns"])

    def _read_item(self, session: LogSession, item: dict[str, Any], time: str) -> None:
        kind, call = item.get("type"), str(item.get("call_id") or item.get("id") or "")
        if kind == "message":
            text = texts_in(item.get("content"))
            if item.get("role") == "assistant":
                session.say(text)
            elif item.get("role") == "user" and not _NOBODY.match(text):
                self._ask(session, text, time)
        elif kind in _CALLS:
            given = item.get("arguments", item.get("input", item.get("action")))
            session.call(call, str(item.get("name") or "shell"), given)
        elif isinstance(kind, str) and kind.endswith("_output"):
            output = item.get("output")
            output = output if isinstance(output, str) else texts_in(output)
            session.finish(call, _failed(output), output)

    def _ask(self, session: LogSession, text: str, time: str) -> None:
        """Begin a turn. The file has what the user wrote twice, as an event and as a message."""
        last = session.turns[-1] if session.turns else None
        if last is None or last.asked != text.strip() or last.steps or last.answer:
            session.ask(text, time)


def _failed(output: str) -> bool | None:
    """Return whether a command failed, which stands in its output; None if it does not."""
    metadata = parsed_object(output).get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("exit_code"), int):
        return bool(metadata["exit_code"])
    ended = _ENDED.search(output[:2000])
    return None if ended is None else ended[1] != "0"
