"""Session files of Claude Code: `~/.claude/projects/FOLDER/SESSION.jsonl`."""

from __future__ import annotations

from typing import Any

from keepworth.adapters.logs.session import LogReader, LogSession, texts_in
from keepworth.base.json_values import as_list, as_object, objects_in

NAME = "claude-code"
_NOBODY = ("<command-", "<local-command-", "<bash-", "<system-reminder>", "<user-prompt-submit-hook>", "Caveat: ")
"""How texts begin that the program puts in the place of the user's."""
_INTERRUPTED = "[Request interrupted by user"
_REFUSED = "The user doesn't want to proceed"


def fits(row: dict[str, Any]) -> bool:
    """Return whether a line is of such a file."""
    if row.get("type") in ("summary", "file-history-snapshot"):  # some files begin with many, or hold nothing else
        return "leafUuid" in row or "messageId" in row
    return "sessionId" in row and "uuid" in row and row.get("type") in ("user", "assistant", "system", "attachment")


class ClaudeCodeReader(LogReader):
    """Reads the lines of a file. Lines of subagents are left out: what they did is a step of the session that called them."""

    def __init__(self) -> None:
        super().__init__()
        self._seen = set[int]()

    def read(self, row: dict[str, Any], file: str) -> LogSession | None:
        """Read a line, and return the session that it belongs to."""
        id, uuid = row.get("sessionId"), row.get("uuid")
        if not (isinstance(id, str) and isinstance(uuid, str)) or row.get("isSidechain") or row.get("agentId"):
            return None
        session = self.sessions.setdefault(id, LogSession(NAME, id, file))
        if hash(uuid) in self._seen:  # a resumed session repeats its lines
            return session
        self._seen.add(hash(uuid))
        time = session.see(row.get("timestamp"))
        session.folder = session.folder or str(row.get("cwd") or "")
        content = as_object(row.get("message")).get("content")
        if row.get("type") == "assistant":
            for block in objects_in(content):
                if block.get("type") == "tool_use":
                    session.call(str(block.get("id")), str(block.get("name")), block.get("input"))
            session.say(texts_in(content))
        elif row.get("type") == "user" and not (row.get("isMeta") or row.get("isCompactSummary")):
            self._read_user(session, content, time, uuid)
        return session

    def _read_user(self, session: LogSession, content: object, time: str, uuid: str) -> None:
        """Read a message of the user, in which the results of tools stand as well."""
        texts = list[str]()
        for block in [content] if isinstance(content, str) else as_list(content):
            if isinstance(block, dict) and block.get("type") == "tool_result":
                output = texts_in(block.get("content"))
                refused = output.startswith((_REFUSED, _INTERRUPTED))
                session.finish(str(block.get("tool_use_id")), None if refused else bool(block.get("is_error")), output)
                continue
            text = texts_in([block])
            if text.startswith(_INTERRUPTED):
                session.interrupt()
            elif not text.lstrip().startswith(_NOBODY):
                texts.append(text)
        session.ask("\n".join(texts), time, uuid)
