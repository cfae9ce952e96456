"""A bank in parts: any text is a legal response, and the budget holds whatever is said."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.methods.recipes._bank.bounded_bank import BoundedBank
from keepworth.methods.recipes._bank.parted import DONE, BankCall, ChunkedWriting, PartedBank, calls_of

FACTS = ("a", "b", "c", "d", "e f", "g h i")
WORDS = st.one_of(
    st.text("ECS-=0123 ,;xD", max_size=6),
    st.builds(
        "{}{}{}{}".format, *map(st.sampled_from, (["", "-"], "ESCX", ["", "0", "1", "2", "9"], ["", "=0", "=3", "=99"]))
    ),
)
SAID = st.one_of(st.text(max_size=30), st.lists(WORDS, max_size=6).map(" ".join))


def writing(
    budget: int = 4, unit: str = "items", chunk: int = 2, recent: int = 9, facts: tuple[str, ...] = FACTS
) -> ChunkedWriting:
    bank = PartedBank(BoundedBank(budget, unit), ("E", "S"), {"C": 2})  # type: ignore[arg-type]
    return ChunkedWriting(FACTS, bank, chunk, recent, "Store:")


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 5),
    st.sampled_from(["items", "tokens"]),
    st.integers(1, 4),
    st.integers(0, 3),
    st.lists(SAID, min_size=6, max_size=6),
)
def test_any_text_is_legal_and_the_budget_holds(
    budget: int, unit: str, chunk: int, recent: int, said: list[str]
) -> None:
    course = writing(budget, unit, chunk, recent)
    lines = iter(said)
    while course.prompt(9) is not None:
        bank, before = course.bank.bank, list(course.bank.bank.entries)
        invalid = bank.invalid
        turn = course.act(next(lines))
        assert bank.invalid - invalid == sum(call.outcome == "invalid" for call in turn.calls)
        assert sum(map(bank.size, bank.texts)) <= budget
        assert len(course.bank.entries("C")) <= 1
        assert sorted(map(id, course.shown)) == sorted(map(id, bank.entries)), "every entry is in one part, and is read"
        if not any(call.changed for call in turn.calls):
            assert bank.entries == before
        assert {call.outcome for call in turn.calls} <= DONE | {"duplicate", "refused", "invalid", "passed"}
        for part in "ES":
            texts = [entry.text for entry in course.bank.entries(part)]
            assert len(set(texts)) == len(texts), "a duplicate is skipped"
    assert sum(len(turn.chunk) for turn in course.turns) == len(FACTS)


@pytest.mark.parametrize(("text", "calls"), [
    ("E1 S0\nE2", [BankCall("E", None, 1, "E1"), BankCall("S", None, 0, "S0")]),
    ("E0=1, -S2", [BankCall("E", 0, 1, "E0=1"), BankCall("S", 2, None, "-S2")]),
    ("-C C3", [BankCall("C", None, None, "-C"), BankCall("C", None, 3, "C3")]),
    ("\n none", []),
    ("", []),
    ("E x1 -E1=2 E= e1", [None] * 5),
    ("E٣ E1234", [None, None]),
])  # fmt: skip
def test_what_a_response_asks_for(text: str, calls: list[BankCall | None]) -> None:
    assert calls_of(text) == calls


def test_insert_update_delete_and_the_core_by_hand() -> None:
    course = writing(budget=3)
    assert [call.outcome for call in course.act("E0 S1 E0").calls] == ["kept", "kept", "duplicate"]
    assert [call.outcome for call in course.act("C1 E0=0 E7=0").calls] == ["kept", "kept", "invalid"]
    assert [(each.part, each.text, each.number) for each in course.shown] == [
        ("C", "d", 3),
        ("E", "c", 2),
        ("S", "b", 1),
    ]
    assert course.prompt(9) == "C0 d\nE0 c\nS0 b\nNew:\n0 e f\n1 g h i\nStore:"
    turn = course.act("C1 -S0 -S0 E0 S0")
    # The core is cut to two words; the second deletion finds nothing; the last insertion pushes out the oldest, not the core.
    assert [call.outcome for call in turn.calls] == ["kept", "deleted", "invalid", "kept", "kept"]
    assert [(each.part, each.text) for each in course.shown] == [("C", "g h ..."), ("E", "e f"), ("S", "e f")]
    assert course.prompt(9) is None
    assert course.stored == (5, 4, 4)


def test_of_the_latest_entries_the_writer_sees_so_many_and_of_a_blind_bank_none() -> None:
    course = writing(budget=6, chunk=4, recent=2)
    course.act("E0 E1 E2 S3")
    assert course.prompt(9) == "E1 b\nE2 c\nS0 d\nNew:\n0 e f\n1 g h i\nStore:"
    assert course.prompt(1) == "E1 b\nE2 c\nS0 d\nNew:\n0 e\n1 g\nStore:"
    blind = writing(chunk=4, recent=0)
    blind.act("E0 C1")
    assert blind.prompt(9) == "New:\n0 e f\n1 g h i\nStore:"


def test_a_core_that_fills_the_bank_keeps_its_place() -> None:
    course = writing(budget=1)
    assert [call.outcome for call in course.act("C0 E1").calls] == ["kept", "refused"]
    assert [call.outcome for call in course.act("-C E1").calls] == ["deleted", "kept"]
