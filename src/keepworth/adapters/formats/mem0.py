"""The list of memories that `Memory.get_all` of mem0 2 returns."""

from __future__ import annotations

from collections.abc import Iterator

from keepworth.adapters.formats.elements import elements_of, parsed_whole
from keepworth.adapters.formats.taking import FoundRecord, Record
from keepworth.memory.errors import MemoryProblem

_SCOPES = {"user_id": "user_id", "agent_id": "agent_id", "run_id": "session_id"}
LISTS = ("results", "memories")
"""The names under which the list may stand."""


def read_mem0(text: str) -> Iterator[FoundRecord]:
    """Read what mem0's `get_all` returns, as JSON: {"results": [...]}, or the list alone."""
    whole = parsed_whole(text, "Give the file as mem0 wrote it")
    listed = next((whole[name] for name in LISTS if name in whole), None) if isinstance(whole, dict) else whole
    if not isinstance(listed, list):
        raise MemoryProblem("This is no list of mem0's.", 'Give the JSON of its get_all: {"results": [...]}.')
    for line, entry in elements_of(text, *LISTS):
        if not isinstance(entry, dict) or "memory" not in entry:
            yield FoundRecord(f"line {line}", {"problem": "it has no field 'memory'"})
            continue
        record: Record = {"text": entry["memory"], "event_time": entry.get("created_at") or ""}
        if entry.get("expiration_date"):
            record["expires_at"] = entry["expiration_date"]
        for theirs, ours in _SCOPES.items():
            if entry.get(theirs):
                record[ours] = entry[theirs]
        if isinstance(entry.get("metadata"), dict):
            record["metadata"] = entry["metadata"]
        yield FoundRecord(f"line {line}", record)
