"""What was said last holds, whenever and by whichever verb it is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from keepworth import Facts, Memory
from keepworth.memory.errors import InvalidTime
from keepworth.memory.item import Item
from keepworth.memory.store.checks import check
from keepworth.memory.store.transfer import exported
from keepworth.records.episode import Operation, OperationKind

TURIN, LYON, OSLO = "I live in Turin.", "I live in Lyon.", "I live in Oslo."
SAID = {OSLO: "2021-05-01", LYON: "2023-05-01", TURIN: "2025-05-01"}
WHERE = "Where do I live?"


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory(encoder="hashing", writer="rules", policy=None) as memory:
        yield memory


def said(text: str) -> dict[str, str]:
    return {"role": "user", "content": text, "said_at": SAID[text]}


def held(memory: Memory) -> dict[str, Item]:
    return {item.id: item for item in memory.store.items(memory.scope)}


def found(memory: Memory, **options: Any) -> list[str]:
    return [hit.text for hit in memory.search(WHERE, **options)]


@pytest.mark.parametrize("order", list(permutations(SAID)))
@pytest.mark.parametrize("how", ["one call", "several calls", "event_time"])
def test_statements_hold_in_the_order_of_their_event_times(memory: Memory, order: list[str], how: str) -> None:
    if how == "one call":
        memory.add([said(text) for text in order], infer=True)
    for text in order if how != "one call" else ():
        if how == "event_time":
            memory.add(text, infer=True, event_time=SAID[text])
        else:
            memory.add([said(text)], infer=True)
    assert found(memory) == [TURIN]
    times = ["2022-01-01", "2024-01-01", "2026-01-01"]
    assert [found(memory, as_of=time) for time in times] == [[OSLO], [LYON], [TURIN]]
    item = memory.search(WHERE)[0].item
    assert (item.event_time, item.provenance.date) == ("2025-05-01T00:00:00",) * 2
    again = memory.add([said(text) for text in order], infer=True)
    assert [item.text for item in again] == [TURIN]
    assert len(list(memory.store.items(memory.scope))) == 3
    assert check(memory.store) == []


@pytest.mark.parametrize("name", ["timestamp", "created_at", "create_time", "date"])
@pytest.mark.parametrize("time", ["2023-05-01T00:00:00Z", 1682899200, 1682899200.0, 1682899200000])
def test_times_of_exported_messages_say_when_they_were_said(memory: Memory, name: str, time: str | float) -> None:
    memory.add([said(TURIN)], infer=True)
    memory.add([{"role": "user", "content": LYON, name: time}], infer=True)
    assert found(memory) == [TURIN]
    assert found(memory, as_of="2024-01-01") == [LYON]


def test_other_contents_of_such_fields_are_ignored(memory: Memory) -> None:
    for number, value in enumerate(("2:30 pm", True, None, {"seconds": 5}, float("nan"), 10**400)):
        memory.add([{"role": "user", "content": f"I have {number} cats.", "date": value}], infer=True)
    assert {item.event_time for item in memory.get_all(all_states=True)} == {""}


def test_messages_kept_after_a_failure_of_the_writer_keep_their_times() -> None:
    def fail(messages: Any) -> list[str]:
        raise ConnectionError("no model")

    with Memory(encoder=None, writer=Facts(fail), policy=None) as memory:
        memory.add([said(TURIN), {"role": "user", "content": OSLO}], infer=True)
        assert [item.event_time for item in memory.get_all()] == ["2025-05-01T00:00:00", ""]
        assert found(memory, until="2025-12-31")[:1] == [TURIN]


def test_earlier_statement_does_not_replace_an_added_item(memory: Memory) -> None:
    memory.add(TURIN)  # said when it is written
    memory.add([said(LYON)], infer=True)
    assert found(memory) == [TURIN]
    assert found(memory, as_of="2024-01-01") == [LYON]


def test_equal_times_hold_in_the_order_of_writing(memory: Memory) -> None:
    memory.add([{**said(LYON), "said_at": "2025-05-01"}, said(TURIN)], infer=True)
    assert found(memory) == [TURIN]
    # A day without hours may be any time of that day.
    memory.add([{**said(LYON), "said_at": "2025-05-01T09:00"}, {**said(OSLO), "said_at": "2025-05-01"}], infer=True)
    assert found(memory) == [OSLO]


@pytest.mark.parametrize("kind", [OperationKind.SUPERSEDE, OperationKind.UPDATE, OperationKind.DELETE])
def test_operations_do_not_let_earlier_statements_replace_later_ones(memory: Memory, kind: OperationKind) -> None:
    new = memory.add(TURIN, event_time=SAID[TURIN])
    text = "" if kind is OperationKind.DELETE else LYON
    memory.apply(Operation(kind, (new.id,), text), event_time=SAID[LYON])
    assert found(memory) == [TURIN]
    assert found(memory, as_of="2024-01-01") == ([] if kind is OperationKind.DELETE else [LYON])


def test_a_merge_was_said_when_the_last_of_its_items_was(memory: Memory) -> None:
    one, other = memory.add(TURIN, event_time=SAID[TURIN]), memory.add("Home is Turin.", event_time=SAID[LYON])
    memory.apply(Operation(OperationKind.MERGE, (one.id, other.id), "Home is in Turin."), event_time=SAID[OSLO])
    (hit,) = memory.search(WHERE)
    assert (hit.text, hit.item.event_time) == ("Home is in Turin.", "2025-05-01T00:00:00")


def test_supersede_with_an_earlier_event_time_is_refused(memory: Memory) -> None:
    new = memory.add(TURIN, event_time=SAID[TURIN])
    with pytest.raises(InvalidTime, match=r"2025-05-01T00:00:00, after event_time 2023-05-01"):
        memory.supersede(new.id, LYON, event_time=SAID[LYON])
    assert len(list(memory.store.items(memory.scope))) == 1
    assert memory.supersede(new.id, LYON).open


def test_an_insertion_is_undone_by_a_rollback(memory: Memory) -> None:
    memory.add(TURIN, event_time=SAID[TURIN])
    memory.add([said(LYON)], infer=True, source="chats")
    memory.rollback(source="chats")
    (item,) = memory.store.items(memory.scope)
    assert (item.text, item.links, item.open) == (TURIN, (), True)
    assert check(memory.store) == []


def test_erasing_a_successor_restores_the_validity_of_the_old_item(memory: Memory) -> None:
    memory.add([{"role": "user", "content": LYON}], infer=True)
    old = memory.search(WHERE)[0].item
    memory.add([{"role": "user", "content": TURIN}], infer=True)
    before = held(memory)[old.id]
    assert before.valid_to
    memory.forget(memory.search(WHERE)[0].item.id, purge_history=True)
    assert check(memory.store) == []
    assert replace(held(memory)[old.id], superseded_by="") == replace(before, superseded_by="")


def test_an_older_wording_that_an_update_stored_is_erased_from_the_journal(memory: Memory) -> None:
    new = memory.add(TURIN, event_time="2025-05-01")
    older = memory.apply(Operation(OperationKind.UPDATE, (new.id,), LYON), event_time="2023-05-01")
    assert older.item != new.id
    memory.forget(older.item, purge_history=True)
    assert check(memory.store) == []
    assert LYON not in "".join(exported(memory.store))


def test_older_wording_is_rolled_back_with_its_update(memory: Memory) -> None:
    new = memory.add(TURIN, event_time="2025-05-01")
    update = Operation(OperationKind.UPDATE, (new.id,), LYON)
    first = memory.apply(update, event_time="2023-05-01", source="first")
    memory.apply(update, event_time="2023-05-01", source="second")  # it says nothing new, until the first is taken back
    before = held(memory)
    undone = memory.rollback(source="first")
    assert first.item not in held(memory)
    assert check(memory.store) == []
    memory.rollback(undone.id)
    assert held(memory) == before
    assert check(memory.store) == []
