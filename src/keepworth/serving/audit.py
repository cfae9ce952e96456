"""Who did what, when, to which ids, and what came of it: lines of JSON beside the memory, to which only more are added.

Nothing that anybody said is in it: no text, no query, no path, no token. A token goes by its id; people go by theirs.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from keepworth.memory.durable_file import PRIVATE
from keepworth.memory.item import now, timestamp
from keepworth.serving.access import Access
from keepworth.serving.calls import known_method

_LOG = logging.getLogger("keepworth.serving")
REFUSALS_PER_SECOND = 10
"""Of callers without a right. Of more in a second only the number is noted, so that nobody can fill a disk by knocking."""
_READS = ("/search",)
_TELLS = ("/export", "/quarantine", "/diff")
_QUIET = ("/health", "/openapi.json", "/")
_FILES = "/page/"
"""Of the page, which hold nothing of a memory."""
MOST_IDS = 100
_ID = re.compile(r"[ms]\d{1,18}|[de][0-9a-f]{16}|t[0-9a-f]{8}|(user_id|agent_id)=.*", re.DOTALL)
"""Of an item, a snapshot, a decision, an episode, a token; and who somebody was, where a request that was carried out says it.
What a caller puts in the place of an id may be any words, and is left out."""


def audit_of(memory: Path) -> Path:
    """The file that holds the audit log of a memory."""
    return memory.with_name(f"{memory.name}.audit.jsonl")


class AuditLog:
    """Notes what writes, rewards, exports or gives rights, and what was refused for want of them. Thread-safe; several processes
    may write to one file, a line at a time."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._lock = threading.Lock()
        self._second, self._refused = "", 0

    def answered(self, scope: Mapping[str, Any], status: int, episode: str = "") -> None:
        """Of one request, as ASGI describes it, once it is answered."""
        route = getattr(scope.get("route"), "path", "") or ("/mcp" if scope["path"] == "/mcp" else "(no such route)")
        method = known_method(scope["method"])
        tool = dict(scope.get("tool", {}))
        changes = tool.pop("changes", "")
        if not self._wanted(method, route, status) or (route == "/mcp" and status < 400 and not changes):
            return
        ids = [*scope.get("path_params", {}).values(), *scope.get("touched", ()), *([episode] if episode else [])]
        self.note(scope.get("access"), f"{method} {route}", status, ids, tool)

    def refused(self, method: str, status: int) -> None:
        """Of a caller at the door, who has no rights that could be named. Where it wanted to go is its own text, so that is left
        out."""
        at = timestamp(now())
        with self._lock:
            if at[:19] != self._second:
                dropped, self._second, self._refused = self._refused - REFUSALS_PER_SECOND, at[:19], 0
                if dropped > 0:
                    self._write({"at": at, "what": "(refused)", "times": dropped})
            self._refused += 1
            if self._refused <= REFUSALS_PER_SECOND:
                self._write({"at": at, "what": f"{known_method(method)} (refused)", "status": status})

    def note(
        self, access: Access | None, what: str, status: int, ids: Iterable[str], tool: Mapping[str, str] | None = None
    ) -> None:
        """tool: its name and the outcome of its call, where one was called: the status is 200 whatever came of it."""
        who: dict[str, Any] = {}
        if access is not None:
            who = {"token": access.id, "tenant": access.tenant, "user": access.user_id, "agent": access.agent_id}
        line = {
            "at": timestamp(now()),
            **who,
            "what": what,
            "status": status,
            **(tool or {}),
            "ids": list(dict.fromkeys(identifier for identifier in ids if _ID.fullmatch(identifier)))[:MOST_IDS],
        }
        with self._lock:
            self._write({name: value for name, value in line.items() if value not in ("", [])})

    def _wanted(self, method: str, route: str, status: int) -> bool:
        if route in _QUIET or route.startswith(_FILES):
            return False
        if status in (401, 403):
            return True
        return route.endswith(_TELLS) or (method != "GET" and not route.endswith(_READS))

    def _write(self, line: Mapping[str, Any]) -> None:
        data = (json.dumps(line, ensure_ascii=True, separators=(",", ":")) + "\n").encode()
        try:
            # Opened for each line, so that it can be moved away while the server runs.
            file = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, PRIVATE)
            try:
                os.write(file, data)
            finally:
                os.close(file)
        except OSError as error:
            _LOG.error("the audit log %s cannot be written: %s", self.file, error)


def entries(file: Path) -> Iterator[dict[str, Any]]:
    """Oldest first; a line that a killed process left half is left out."""
    try:
        with open(file, "rb") as lines:
            for line in lines:
                try:
                    entry = json.loads(line)
                except ValueError:
                    continue
                if isinstance(entry, dict):
                    yield entry
    except FileNotFoundError:
        return
