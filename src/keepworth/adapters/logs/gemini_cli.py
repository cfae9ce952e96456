"""Session files of Gemini CLI: `~/.gemini/tmp/PROJECT/chats/session-TIME-ID.jsonl`, or `.json` in earlier versions."""

from __future__ import annotations

import re
from typing import Any

from keepworth.adapters.logs.session import LONGEST_ASKED, LogReader, LogSession, shorten, texts_in
from keepworth.base.json_values import as_object, objects_in

NAME = "gemini-cli"
_ENDED = re.compile(r"^Exit Code: (-?\d+)", re.MULTILINE)
_PARTS = ("text",)


def fits(row: dict[str, Any]) -> bool:
    """Return whether a line, or a whole file, is of this format."""
    return "sessionId" in row and "projectHash" in row


class GeminiReader(LogReader):
    """Reads a file, which holds one session. A message that changed is written again, and a rewind takes messages back, so that
    the turns are put together at the end."""

    def __init__(self) -> None:
        super().__init__()
        self._messages: dict[str, dict[str, Any]] = {}

    def read(self, row: dict[str, Any], file: str) -> LogSession | None:
        """Read the first line, a message, a change of the first line, or a whole file."""
        session = next(iter(self.sessions.values()), None)
        if fits(row):
            if row.get("kind") != "subagent":
                session = self.sessions[""] = LogSession(NAME, str(row["sessionId"]), file)
                session.see(row.get("startTime"))
            self._add(row.get("messages"))
        elif isinstance(changed := row.get("$set"), dict):
            if "messages" in changed:
                self._messages.clear()
            self._add(changed.get("messages"))
        elif "$rewindTo" in row:
            ids = list(self._messages)
            for id in ids[ids.index(row["$rewindTo"]) :] if row["$rewindTo"] in ids else ():
                del self._messages[id]
        else:
            self._add([row])
        return session

    def _add(self, messages: object) -> None:
        for message in messages if isinstance(messages, list) else ():
            if isinstance(message, dict) and isinstance(message.get("id"), str):
                text = shorten(texts_in(message.get("content"), _PARTS), LONGEST_ASKED)
                calls = [call for call in message.get("toolCalls") or () if isinstance(call, dict)]
                plain = {name: message.get(name) for name in ("type", "timestamp")}
                self._messages[message["id"]] = {**plain, "text": text, "calls": calls}

    def close(self) -> None:
        """Make turns of the messages that are left."""
        for session in self.sessions.values():
            for id, message in self._messages.items():
                time, text = session.see(message["timestamp"]), message["text"]
                if message["type"] == "user":
                    session.ask(text, time, id)
                elif message["type"] == "gemini":
                    session.say(text)
                    for call in message["calls"]:
                        _read_call(session, call)
                elif message["type"] == "info" and text.startswith("Request cancelled"):
                    session.interrupt()


def _read_call(session: LogSession, call: dict[str, Any]) -> None:
    id, status, output = str(call.get("id")), call.get("status"), _output_of(call.get("result"))
    session.call(id, str(call.get("name")), call.get("args"))
    ended = _ENDED.search(output)
    failed = {"success": ended is not None and ended[1] != "0", "error": True}.get(str(status))
    session.finish(id, failed, output)
    if status == "cancelled":
        session.interrupt()


def _output_of(result: object) -> str:
    """Return what a tool answered: its output, or its error."""
    texts = list[str]()
    for part in objects_in(result):
        response = as_object(part.get("functionResponse", {}).get("response"))
        texts += [value for value in response.values() if isinstance(value, str)]
    return "\n".join(texts)
