"""What callers bring through the front doors: arguments of mem0, dates, parts of messages, filters, copies, other spellings."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from keepworth import Memory
from keepworth.adapters import mem0
from keepworth.memory.errors import InvalidFilter, InvalidText, InvalidTime
from tests.memory.helpers import command


def test_mem0_takes_the_arguments_of_its_present_version() -> None:
    memory = mem0.Memory(Memory(encoder=None, writer="rules"))
    today = datetime.now(UTC).date()
    (kept,) = memory.add(
        "I live in Oslo.", user_id="ana", infer=False, timestamp="2025-03-01", expiration_date=today.isoformat()
    )["results"]
    item = memory.memory.get(kept["id"])
    assert (item.event_time, item.expires_at) == ("2025-03-01T00:00:00", f"{today + timedelta(days=1)}T00:00:00")
    record: Any = memory.get(kept["id"])
    assert record["expiration_date"] == today.isoformat()
    assert [each["id"] for each in memory.get_all(user_id="ana")["results"]] == [kept["id"]]
    memory.update(kept["id"], data="I live in Bergen.", expiration_date=None)
    record = memory.get(kept["id"])
    assert (record["memory"], "expiration_date" in record) == ("I live in Bergen.", False)
    memory.update(kept["id"], metadata={"home": True}, expiration_date=today - timedelta(days=2))
    assert memory.get_all(user_id="ana")["results"] == [], "it has expired"
    with pytest.raises(InvalidText, match="two names of the new text"):
        memory.update(kept["id"], "one", data="other")
    with pytest.raises(InvalidTime, match="expiration_date is 'soon'"):
        memory.add("x", user_id="ana", infer=False, expiration_date="soon")


@pytest.mark.parametrize("infer", [True, False])
def test_plain_texts_are_parts_of_a_message(infer: bool) -> None:
    memory = Memory(encoder=None, writer="rules")
    memory.add([{"role": "user", "content": ["I live in Oslo.", {"type": "text", "text": "I like tea."}]}], infer=infer)
    kept = "\n".join(item.text for item in memory.get_all())
    assert "Oslo" in kept
    assert "tea" in kept
    with pytest.raises(InvalidText, match="message 0 has a part of type int"):
        memory.add([{"role": "user", "content": [1]}], infer=infer)


@pytest.mark.parametrize("make", [pickle.dumps, copy.deepcopy])
def test_pickling_an_open_memory_raises_an_error_with_a_fix(make: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.mem"
    with Memory(path, encoder=None) as memory:
        for each in (memory, memory.within(user_id="ana"), memory.episode("x"), mem0.Memory(memory)):
            with pytest.raises(TypeError, match="cannot be pickled") as refusal:
                make(each)
            assert str(path) in str(refusal.value)
        memory.add("I live in Oslo.")
        hits = pickle.loads(pickle.dumps(memory.search("Oslo")))
        assert hits.within(100).text == "- I live in Oslo."
    with pytest.raises(TypeError, match="give the other process a Client"):
        make(Memory())


def test_empty_condition_in_a_filter_is_refused() -> None:
    memory = Memory(encoder=None)
    memory.add("x", metadata={"n": {}})
    for where in ({"n": {}}, {"$or": [{"n": {}}]}, {"$not": {"n": {}}}):
        for look in (
            lambda where=where: memory.search("x", where=where),
            lambda where=where: memory.get_all(where=where),
        ):
            with pytest.raises(InvalidFilter, match=r"\['n'\] is empty, so that it asks for nothing"):
                look()
    assert len(memory.get_all(where={"n": {"$eq": {}}})) == 1


def test_dates_are_accepted_as_times() -> None:
    memory = Memory(encoder=None)
    item = memory.add("x", event_time=date(2026, 1, 31), valid_to=date(2100, 1, 1))
    assert (item.event_time, item.valid_to) == ("2026-01-31T00:00:00", "2100-01-01T00:00:00")
    assert len(memory.search("x", since=date(2026, 1, 31), until=date(2026, 2, 1))) == 1
    assert not memory.search("x", since=date(2026, 2, 1))


def test_prompt_lines_hold_duplicate_notes_once(tmp_path: Path) -> None:
    with Memory(tmp_path / "a.mem", encoder=None) as memory:
        for _ in range(3):
            memory.add("It rained.", repeat=True, user_id="ana")
        memory.add("It snowed.", user_id="ana")
    lines = str(tmp_path / "a.jsonl")
    assert command("export", lines, "--to", "jsonl", "--file", str(tmp_path / "a.mem")).exit_code == 0
    for _ in range(2):
        assert command("import", lines, "--from", "jsonl", "--file", str(tmp_path / "b.mem")).exit_code == 0
        with Memory(tmp_path / "b.mem", encoder=None) as memory:
            assert [item.text for item in memory.get_all()] == ["It rained."] * 3 + ["It snowed."]


@pytest.mark.parametrize("query", ["strasse", "STRASSE", "straße", "STRAẞE"])
@pytest.mark.parametrize(
    "text", ["Straße 5", "Die Strasse nach Rom", "In der Hauptstadt ist die Straße schön und breit."]
)
def test_composed_and_decomposed_spellings_match(query: str, text: str) -> None:
    memory = Memory(encoder=None)
    memory.add("My class has a password")
    item = memory.add(text)
    assert [hit.id for hit in memory.search(query)] == [item.id]


def test_hits_mark_whether_rewards_moved_them_up_or_down() -> None:
    memory = Memory(encoder="hashing", seed=1)
    wrong, right = memory.add("Coffee machine: press the red button"), memory.add("Coffee: press the green button")
    query = "how do I start the coffee machine?"
    assert [hit.id for hit in memory.search(query, explore=False)] == [wrong.id, right.id]
    assert {hit.why.moved for hit in memory.search(query, explore=False)} == {""}
    for _ in range(12):
        hits = memory.search(query, top_k=1)
        memory.reward(hits.decision, float(hits[0].id == right.id))
    moved = {hit.id: hit.why.moved for hit in memory.search(query, explore=False)}
    if next(iter(moved)) != right.id:
        for _ in range(8):
            hits = memory.search(query)
            memory.reward(hits.decision, float(hits[0].id == right.id))
        moved = {hit.id: hit.why.moved for hit in memory.search(query, explore=False)}
    assert moved == {right.id: "up", wrong.id: "down"}
