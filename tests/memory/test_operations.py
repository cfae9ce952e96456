"""The executor is total, changes nothing when it refuses, and does what its table says when it applies."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.episodes import Operation, OperationKind
from keepworth.memory.item import ItemKind, from_record, text_problem, to_record
from keepworth.memory.overlay import Bank

K = OperationKind


def clock() -> str:
    return "2026-01-01T00:00:00"


def bank() -> Bank:
    return Bank.empty(None, clock=clock)


def texts(b: Bank) -> list[str]:
    return [item.text for item in b.items()]


def test_add_then_duplicate():
    b = bank()
    first = b.apply(Operation(K.ADD, text="Ana lives in Rome"))
    again = b.apply(Operation(K.ADD, text="  Ana lives\n in Rome "))
    assert first.applied
    assert first.changed == ("m1",)
    assert not again.applied
    assert again.reason == "duplicate of m1"
    assert again.item == "m1"
    assert len(b) == 1


def test_update_keeps_id_and_validity():
    b = bank()
    b.apply(Operation(K.ADD, text="Ana lives in Rom"), event_time="2025-05-01")
    before = b.get("m1")
    out = b.apply(Operation(K.UPDATE, ("m1",), "Ana lives in Rome"))
    after = b.get("m1")
    assert out.changed == ("m1",)
    assert (after.text, after.revision) == ("Ana lives in Rome", 1)
    assert (after.event_time, after.written_at, after.valid_from) == (
        before.event_time,
        before.written_at,
        before.valid_from,
    )


def test_supersede_by_a_text_already_there_links_to_it():
    b = bank()
    b.add("Ana lives in Rome")
    b.add("Ana lives in Oslo")
    out = b.apply(Operation(K.SUPERSEDE, ("m1",), "Ana lives in Oslo"))
    assert out.applied
    assert out.item == "m2"
    assert b.get("m1").superseded_by == "m2"
    assert len(b) == 1


def test_delete_merge_link():
    b = bank()
    for text in ("a cat", "one cat", "a dog"):
        b.add(text)
    assert b.apply(Operation(K.LINK, ("m1", "m3"), "chases")).applied
    assert b.apply(Operation(K.LINK, ("m1", "m3"), "chases")).reason == "already linked"
    merged = b.apply(Operation(K.MERGE, ("m1", "m2"), "exactly one cat"))
    assert merged.changed == ("m1", "m2", "m4")
    assert {b.get("m1").superseded_by, b.get("m2").superseded_by} == {"m4"}
    assert b.apply(Operation(K.DELETE, ("m4",))).applied
    assert texts(b) == ["a dog"]
    assert b.apply(Operation(K.DELETE, ("m4",))).reason == "unknown target 'm4'"
    assert b.apply(Operation(K.UPDATE, ("m1",), "x")).reason.startswith("target m1 was superseded")


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        (Operation(K.ADD, text=""), "empty"),
        (Operation(K.ADD, text="a\x00b"), "control character U+0000"),
        (Operation(K.ADD, text="\ud800"), "not valid Unicode"),
        (Operation(K.ADD, text="x" * 1_000_001), "the limit is"),
        (Operation(K.ADD, ("m1",), "y"), "no targets"),
        (Operation(K.UPDATE, (), "y"), "one target"),
        (Operation(K.UPDATE, ("m9",), "y"), "unknown target"),
        (Operation(K.UPDATE, ("m1",), "here"), "unchanged"),
        (Operation(K.SUPERSEDE, (), "y"), "needs a target"),
        (Operation(K.SUPERSEDE, ("m1",), "here"), "unchanged"),
        (Operation(K.SUPERSEDE, ("m1", "m9"), "y"), "unknown target"),
        (Operation(K.DELETE, ("'; DROP TABLE items; --",)), "unknown target"),
        (Operation(K.MERGE, ("m1", "m1"), "y"), "two different"),
        (Operation(K.LINK, ("m1", "m1")), "itself"),
        (Operation(K.LINK, ("m1",)), "two targets"),
        (Operation(K.NOOP), "noop"),
        (Operation(K.UPDATE, ("m1",), "a\udc80"), "not valid Unicode"),
        (Operation(K.DELETE, ([1],)), "targets must be ids"),
        (Operation(K.DELETE, None), "targets must be ids"),
        (Operation(K.DELETE, (b"m1",)), "targets must be ids"),
        (Operation("ERASE", ("m1",)), "not an operation"),
        (None, "not an operation"),
    ],
)
def test_refused_operations_change_nothing_and_say_why(operation, reason):
    b = bank()
    b.add("here")
    before = b.content_hash()
    out = b.apply(operation)
    assert not out.applied
    assert reason in out.reason
    assert out.changed == ()
    assert b.content_hash() == before
    assert b.journal[1:] == []


ids = st.sampled_from([f"m{i}" for i in range(9)]) | st.text(max_size=5)
operations = st.builds(
    Operation,
    st.sampled_from(list(K)),
    st.lists(ids, max_size=3).map(tuple),
    st.sampled_from(["a", "b", "a b", "c c", "d"]) | st.text(max_size=12),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(operations, max_size=25))
def test_any_sequence_of_operations_has_outcomes_and_keeps_the_invariants(sequence):
    b = bank()
    for operation in sequence:
        before = b.content_hash()
        out = b.apply(operation)
        assert out.applied == (b.content_hash() != before)
        assert out.applied == bool(out.changed)
        assert out.reason
    everything = list(b.items(all_states=True))
    assert len(b) == sum(item.current for item in everything)
    for item in everything:
        assert text_problem(item.text) is None
        assert from_record(to_record(item)) == item
        if item.superseded_by:
            assert not item.current
            assert b.get(item.superseded_by) is not None
    folded = [(item.kind, " ".join(item.text.split())) for item in everything if item.open]
    assert len(folded) == len(set(folded))


def test_supersede_keeps_the_kind_of_what_it_replaces():
    b = bank()
    b.add("look before you leap", kind=ItemKind.LESSON)
    out = b.apply(Operation(K.SUPERSEDE, ("m1",), "look twice before you leap"))
    assert b.get(out.item).kind is ItemKind.LESSON
