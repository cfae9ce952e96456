"""What the log is asked is answered by an index: it does not take longer the longer the log is."""

from __future__ import annotations

from keepworth.memory.memory import Memory
from keepworth.memory.store import decision_log
from keepworth.memory.store.connection import select


def scans(memory: Memory, query: str, values: tuple[object, ...]) -> list[str]:
    with memory.store.database.reading() as connection:
        return [row[3] for row in select(connection, f"EXPLAIN QUERY PLAN {query}", values) if "SCAN" in row[3]]


def test_choices_and_entries_of_an_episode_are_found_by_the_index() -> None:
    memory = Memory(encoder=None)
    with memory.episode("x"):
        pass
    for table in ("decisions", "events"):
        assert scans(memory, f"SELECT 1 FROM {table} WHERE {decision_log.IN_EPISODE}", ("e",)) == []
