"""Words of single scopes in memory: the same scores as the index beside, whatever was written meanwhile, and by whom."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth import Memory
from keepworth.memory.errors import InvalidText, Purged
from keepworth.memory.search import scope_words
from keepworth.memory.search.index import CorpusStatistics
from keepworth.memory.search.scope_words import ScopeWords
from keepworth.memory.store import decision_log, log
from keepworth.memory.store.connection import select
from keepworth.memory.store.derived import Derived

WORDS = st.sampled_from(["ana", "oslo", "tea", "cafe", "rain", "night"])
TEXT = st.lists(WORDS, min_size=1, max_size=6).map(" ".join)


def test_a_scope_most_of_whose_rows_count_no_more_is_read_anew() -> None:
    held = ScopeWords()
    held.put(1, [(1, "tea tea"), (2, "rain")])
    held.change(1, 2, None)
    for number in (3, 4, 5):
        held.change(1, number, f"tea n{number}")
    found = held.scores([1], ["tea", "rain"], CorpusStatistics(4, 8, {"tea": 4}), 3)
    assert [number for number, _ in found or []] == [1, 3, 4]
    assert held.scores([1, 2], ["tea"], CorpusStatistics(4, 8, {"tea": 4}), 3) is None  # the second is not held
    for _ in range(80):
        held.change(1, 3, "tea")
    assert held.missing([1]) == [1]


def test_scopes_asked_least_recently_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scope_words, "MOST_WORDS", 8)
    held = ScopeWords()
    for scope in range(1, 6):
        held.put(scope, [(scope, "tea rain")])
    assert len(held) <= 8
    assert held.missing([5]) == []
    assert held.missing([1]) == [1]


def shown(memory: Memory, query: str, user: str) -> list[tuple[str, str]]:
    return [(hit.id, hit.text) for hit in memory.search(query, user_id=user, top_k=5)]


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_who_asks_again_finds_what_a_memory_opened_anew_finds(data: st.DataObject) -> None:
    with Memory(":memory:", encoder=None, policy=None) as memory:
        for user in ("ana", "bo"):
            memory.add_many(data.draw(st.lists(TEXT, min_size=1, max_size=4)), user_id=user)
        mark = memory.snapshot()
        for query in ("tea", "rain"):
            shown(memory, query, "ana")  # from the second time on the scope is held
        for _ in range(data.draw(st.integers(1, 5))):
            items = memory.get_all(user_id="ana")
            verb = data.draw(st.sampled_from(["add", "update", "delete", "supersede", "rollback", "purge"]))
            if verb == "add" or not items:
                memory.add(data.draw(TEXT), user_id=data.draw(st.sampled_from(["ana", "bo", "cy"])))
                continue
            id = data.draw(st.sampled_from(items)).id
            if verb == "update":
                with contextlib.suppress(InvalidText):  # it says that already
                    memory.update(id, text=data.draw(TEXT))
            elif verb == "delete":
                memory.delete(id)
            elif verb == "supersede":
                with contextlib.suppress(InvalidText):
                    memory.supersede(id, data.draw(TEXT))
            elif verb == "rollback":
                with contextlib.suppress(Purged):
                    memory.rollback(since=mark)
            else:
                memory.forget(id, purge_history=True)
            query = data.draw(WORDS)
            again = shown(memory, query, "ana")
            memory.store.reset_caches()
            assert again == shown(memory, query, "ana")


def test_a_look_that_others_overtook_reads_no_vectors_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[int] = []
    loaded: Any = Derived._load
    monkeypatch.setattr(Derived, "_load", lambda *given: loads.append(1) or loaded(*given))
    with Memory(tmp_path / "a.mem", encoder="hashing", policy=None) as memory:
        memory.add("tea in Oslo", user_id="ana")
        memory.search("tea", user_id="ana")
        with memory.store.database.reading() as connection:
            select(connection, "SELECT max(seq) FROM events")  # what is seen from here is as of now

            def other() -> None:
                memory.add("more tea", user_id="ana")
                assert len(memory.search("tea", user_id="ana")) == 2

            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
            assert [hit.text for hit in memory.search("tea", user_id="ana")] == ["tea in Oslo"]
        assert len(memory.search("tea", user_id="ana")) == 2
    assert len(loads) == 1


def test_what_every_search_or_episode_asks_is_asked_of_an_index() -> None:
    """Every search that is logged asks whether something was erased: reading the whole journal took 14 ms where it had 100,000
    entries."""
    with Memory(":memory:", encoder=None) as memory:
        memory.add("tea")
        asked: list[str] = []
        with memory.store.database.reading() as connection:
            connection.set_exec_trace(lambda cursor, sql, values: asked.append(sql) or True)
            decision_log.newest_purge(connection)
            connection.set_exec_trace(None)
            plans = [row[3] for sql in asked for row in select(connection, f"EXPLAIN QUERY PLAN {sql}")]
            inside = [f"SELECT 1 FROM {table} WHERE {decision_log.IN_EPISODE}" for table in ("decisions", "events")]
            of_episode = [row[3] for sql in inside for row in select(connection, f"EXPLAIN QUERY PLAN {sql}", ("e",))]
    assert plans
    assert all("events_by_kind" in plan for plan in plans)
    assert not any("SCAN" in plan for plan in of_episode)


def test_what_is_new_to_learn_is_read_without_a_look_at_all_scopes() -> None:
    """After a reward the next search read the names of all users: 100 ms where there were 20,000."""
    with Memory(":memory:", encoder=None) as memory:
        memory.add("tea")
        memory.reward(memory.search("tea").decision, 1.0)
        asked: list[tuple[str, tuple[Any, ...]]] = []
        with memory.store.database.reading() as connection:
            connection.set_exec_trace(lambda cursor, sql, values: asked.append((sql, values or ())) or True)
            assert len(log.news(connection, memory.scope, log.NOTHING)) == 1
            connection.set_exec_trace(None)
            plans = [row[3] for sql, values in asked for row in select(connection, f"EXPLAIN QUERY PLAN {sql}", values)]
    assert any("events_by_kind" in plan for plan in plans)
    assert not any("SCAN" in plan for plan in plans)
