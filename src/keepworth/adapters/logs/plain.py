"""Lines of `{"task": ..., "steps": [...], "reward": ...}`, with `person`, `time` and `folder` if they are known."""

from __future__ import annotations

from typing import Any

from keepworth.adapters.logs.session import LogOutcome, LogReader, LogSession, plain_time

NAME = "plain"


def fits(row: dict[str, Any]) -> bool:
    """Return whether a line is of such a file."""
    return isinstance(row.get("task"), str) and isinstance(row.get("steps"), list) and "reward" in row


class PlainReader(LogReader):
    """Reads the lines of a file: each is a session of one turn."""

    def read(self, row: dict[str, Any], file: str) -> LogSession | None:
        """Read a line. A step is a text, or an object with `tool`, `input`, `output` and `ok`."""
        if not fits(row):
            return None
        number = len(self.sessions)
        id, folder, person = (str(row.get(name) or "") for name in ("id", "folder", "person"))
        session = self.sessions[str(number)] = LogSession(NAME, id, file, folder, person)
        session.started = plain_time(row.get("time"))
        session.ask(row["task"], session.started)
        for place, step in enumerate(row["steps"]):
            given = step if isinstance(step, dict) else {"tool": "", "input": str(step)}
            session.call(str(place), str(given.get("tool") or ""), given.get("input"))
            ok = given.get("ok")
            session.finish(str(place), None if ok is None else not ok, str(given.get("output") or ""))
        if isinstance(row["reward"], int | float):
            session.outcomes.append(LogOutcome("reward", row["reward"]))
        return session
