"""Banks, bounded, in parts and in stages: whatever a writer says is legal and the budget holds; what it says is what stays."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.methods.recipes._bank.bounded_bank import BankEntry, BoundedBank
from keepworth.methods.recipes._bank.parted import DONE, BankCall, ChunkedWriting, ChunkTurn, PartedBank, calls_of
from keepworth.methods.recipes._bank.staged import STORE, StagedWriting, WritingStage

ASKED = map(st.sampled_from, (["ADD", " update", "DELETE", "NOOP"], ["", "0", "1", "7", "7.5"]))
LINES = st.one_of(st.text(max_size=30), st.builds("{} {}".format, *ASKED))
BANKS = st.builds(BoundedBank, st.integers(1, 8), st.sampled_from(["items", "tokens"]))


def sized(bank: BoundedBank) -> int:
    return sum(map(bank.size, bank.texts))


@settings(max_examples=60)
@given(BANKS, st.lists(st.tuples(LINES, st.text(max_size=20)), max_size=12))
def test_any_text_is_legal_and_the_budget_holds(bank: BoundedBank, said: list[tuple[str, str]]) -> None:
    for number, (line, fact) in enumerate(said):
        before = bank.entries[:]
        invalid, refused = bank.invalid, bank.refused
        done = bank.write(line, fact)
        assert sized(bank) <= bank.budget
        assert bank.invalid - invalid == (done == "invalid")
        assert bank.refused - refused == (done == "refused")
        assert (number in bank.numbers) == (done == "kept")
        if done in {"invalid", "refused", "passed"}:
            assert bank.entries == before
        assert list(bank.numbers) == sorted(set(bank.numbers))
    assert bank.arrived == len(said)


@settings(max_examples=40)
@given(st.sampled_from(["items", "tokens"]), st.data())
def test_pinned_entries_are_never_dropped(unit: str, data: st.DataObject) -> None:
    texts = data.draw(st.lists(st.sampled_from(["a", "b c", "d e f"]), min_size=1, max_size=4))
    pins = data.draw(st.lists(st.booleans(), min_size=len(texts), max_size=len(texts)))
    numbers = range(-len(texts), 0)
    entries = [BankEntry(number, text, 0.0, pin) for number, text, pin in zip(numbers, texts, pins, strict=True)]
    bank = BoundedBank(sum(len(text.split()) for text in texts), unit, entries=entries)  # type: ignore[arg-type]
    pinned = [entry for entry in bank.entries if entry.pinned]
    for line in data.draw(st.lists(LINES, max_size=8)):
        bank.write(line, data.draw(st.sampled_from(["x", "y z", "u v w x y"])))
        assert [entry for entry in bank.entries if entry.pinned] == pinned
        assert sized(bank) <= bank.budget


def test_a_bank_full_of_pinned_entries_refuses_and_counts() -> None:
    bank = BoundedBank(2, entries=[BankEntry(-2, "a", pinned=True), BankEntry(-1, "b", pinned=True)])
    assert [bank.write(line, "c") for line in ("ADD 9", "UPDATE 0", "DELETE 1", "NOOP", "UPDATE 2")] == [
        "refused", "refused", "refused", "passed", "invalid",
    ]  # fmt: skip
    assert (bank.texts, bank.refused, bank.invalid) == (("a", "b"), 3, 1)


def test_a_fact_longer_than_the_budget_is_refused_and_counted() -> None:
    bank = BoundedBank(3, "tokens")
    assert bank.write("ADD 1", "one two") == "kept"
    assert bank.write("ADD 9", "one two three four") == "refused"
    assert bank.write("UPDATE 0", "one two three four") == "refused"
    assert (bank.texts, bank.refused) == (("one two",), 2)
    assert (bank.write("UPDATE 0", "one two three"), bank.texts) == ("kept", ("one two three",))
    assert (bank.write("DELETE 0", "four"), bank.texts) == ("deleted", ())


def test_an_update_that_cannot_be_done_leaves_the_bank_as_it_was() -> None:
    """The new fact takes the importance of the old one: where that is too little for its length, nothing happens."""
    bank = BoundedBank(4, "tokens")
    for line, fact in (("ADD 1", "a"), ("ADD 8", "b c d")):
        bank.write(line, fact)
    assert bank.write("UPDATE 0", "e f") == "passed"
    assert bank.texts == ("a", "b c d")
    assert bank.write("UPDATE 1", "e f") == "kept"
    assert [(entry.text, entry.matters, entry.number) for entry in bank.entries] == [("a", 1.0, 0), ("e f", 8.0, 3)]


def test_unimportant_fact_displaces_no_entry() -> None:
    """Room for it would need the entry that matters more, too: the one that matters less stays as well."""
    bank = BoundedBank(10, "tokens")
    bank.write("ADD 1", "a b")
    bank.write("ADD 5", "c d e f g h i j")
    assert bank.write("ADD 3", "k l m n o p q r s") == "passed"
    assert bank.numbers == (0, 1)


@given(st.permutations(range(10)), st.integers(1, 10))
def test_stated_importance_decides_in_any_order(order: Sequence[int], budget: int) -> None:
    bank = BoundedBank(budget)
    for matters in order:
        bank.write(f"ADD {matters}", str(matters))
    assert sorted(map(int, bank.texts)) == list(range(10 - budget, 10))


@pytest.mark.parametrize(
    ("line", "matters"),
    [("ADD", 5), ("ADD 7", 7), ("add 7.5 ", 7.5), ("\n ADD 2\nDELETE 0", 2), ("ADD 12", 9), ("ADD " + "9" * 5000, 9)],
)
def test_how_much_it_matters(line: str, matters: float) -> None:
    bank = BoundedBank(2)
    assert bank.write(line, "a") == "kept"
    assert bank.entries[0].matters == matters


FACTS = ("a", "b", "c", "d", "e f", "g h i")
WORDS = st.one_of(
    st.text("ECS-=0123 ,;xD", max_size=6),
    st.builds(
        "{}{}{}{}".format, *map(st.sampled_from, (["", "-"], "ESCX", ["", "0", "1", "2", "9"], ["", "=0", "=3", "=99"]))
    ),
)
SAID = st.one_of(st.text(max_size=30), st.lists(WORDS, max_size=6).map(" ".join))


def writing(budget: int = 4, unit: str = "items", chunk: int = 2, recent: int = 9) -> ChunkedWriting:
    bank = PartedBank(BoundedBank(budget, unit), ("E", "S"), {"C": 2})  # type: ignore[arg-type]
    return ChunkedWriting(FACTS, bank, chunk, recent, "Store:")


def outcomes(turn: ChunkTurn) -> list[str]:
    return [call.outcome for call in turn.calls]


COURSES = st.builds(
    writing, st.integers(1, 5), st.sampled_from(["items", "tokens"]), st.integers(1, 4), st.integers(0, 3)
)


@settings(max_examples=60)
@given(COURSES, st.lists(SAID, min_size=6, max_size=6))
def test_any_text_is_a_legal_response_and_the_budget_holds(course: ChunkedWriting, said: list[str]) -> None:
    lines = iter(said)
    while course.prompt(9) is not None:
        bank, before = course.bank.bank, list(course.bank.bank.entries)
        invalid = bank.invalid
        turn = course.act(next(lines))
        assert bank.invalid - invalid == sum(call.outcome == "invalid" for call in turn.calls)
        assert sum(map(bank.size, bank.texts)) <= bank.budget
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
def test_calls_are_parsed_from_a_response(text: str, calls: list[BankCall | None]) -> None:
    assert calls_of(text) == calls


def test_insert_update_delete_and_the_core_by_hand() -> None:
    course = writing(budget=3)
    assert outcomes(course.act("E0 S1 E0")) == ["kept", "kept", "duplicate"]
    assert outcomes(course.act("C1 E0=0 E7=0")) == ["kept", "kept", "invalid"]
    shown = [(each.part, each.text, each.number) for each in course.shown]
    assert shown == [("C", "d", 3), ("E", "c", 2), ("S", "b", 1)]
    assert course.prompt(9) == "C0 d\nE0 c\nS0 b\nNew:\n0 e f\n1 g h i\nStore:"
    turn = course.act("C1 -S0 -S0 E0 S0")
    # The core is cut to two words; the second deletion finds nothing; the last insertion pushes out the oldest, not the core.
    assert outcomes(turn) == ["kept", "deleted", "invalid", "kept", "kept"]
    assert [(each.part, each.text) for each in course.shown] == [("C", "g h ..."), ("E", "e f"), ("S", "e f")]
    assert course.prompt(9) is None
    assert course.stored == (5, 4, 4)


def test_writer_prompt_shows_the_latest_entries() -> None:
    course = writing(budget=6, chunk=4, recent=2)
    course.act("E0 E1 E2 S3")
    assert course.prompt(9) == "E1 b\nE2 c\nS0 d\nNew:\n0 e f\n1 g h i\nStore:"
    assert course.prompt(1) == "E1 b\nE2 c\nS0 d\nNew:\n0 e\n1 g\nStore:"
    blind = writing(chunk=4, recent=0)
    blind.act("E0 C1")
    assert blind.prompt(9) == "New:\n0 e f\n1 g h i\nStore:"


def test_a_core_that_fills_the_bank_keeps_its_place() -> None:
    course = writing(budget=1)
    assert outcomes(course.act("C0 E1")) == ["kept", "refused"]
    assert outcomes(course.act("-C E1")) == ["deleted", "kept"]


# Three stages.

STAGED = ("a b", "c", "d e f", "g")
MESSAGES = ("x y z", "u v", "w")
STAGE_WORDS = st.builds(
    "{}{}{}{}".format,
    *map(st.sampled_from, (["", "-"], "LMRX", ["", "0", "1", "2", "9"], ["", "=0", "=1", "=99"])),
)
STAGE_SAID = st.one_of(st.text(max_size=20), st.lists(STAGE_WORDS, max_size=6).map(" ".join))


def staged(budget: int = 2, window: int = 6, retrievals: int = 2) -> StagedWriting:
    bank = PartedBank(BoundedBank(budget), (STORE,))
    shown = {"chunk": 2, "recent": 9, "window": window, "retrievals": retrievals, "words": 2}
    return StagedWriting(STAGED, MESSAGES, "which?", bank, **shown)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3), st.integers(1, 9), st.integers(1, 3), st.lists(STAGE_SAID, min_size=4, max_size=4))
def test_any_text_is_legal_and_four_turns_end_it(budget: int, window: int, retrievals: int, said: list[str]) -> None:
    course = staged(budget, window, retrievals)
    for line in said:
        assert course.prompt(9) is not None
        bank, before, context = course.bank.bank, list(course.bank.bank.entries), course.context
        invalid = bank.invalid
        turn = course.act(line)
        assert bank.invalid - invalid == sum(call.outcome == "invalid" for call in turn.calls)
        assert {call.outcome for call in turn.calls} <= DONE | {"duplicate", "refused", "invalid", "passed"}
        assert len(bank.entries) <= budget
        if not any(call.changed for call in turn.calls):
            assert (bank.entries, course.context) == (before, context)
        assert sum(bank.measure(each.text) for each in course.shown) <= window
        assert course.shown == course.context[: len(course.shown)]
        assert len(course.retrieved) <= retrievals
    assert course.prompt(9) is None
    assert [len(turn.chunk) for turn in course.turns[:2]] == [2, 2]


def test_the_three_stages_by_hand() -> None:
    course = staged()
    assert course.prompt(9) == "New:\n0 a b\n1 c\nStore as L:"
    course.act("L0 L1 R0 -M1")
    assert [call.outcome for call in course.turns[0].calls] == ["kept", "kept", "invalid", "invalid"]
    course.act("L1=0")  # d e f in the place of c
    assert course.stage is WritingStage.FILTER
    assert course.prompt(9) == "M0 x y z\nM1 u v\nM2 w\nDrop as -M, shorten as M:"
    assert outcomes(course.act("M0 M1 -M2 -M2 R0 L0")) == [
        "shortened", "duplicate", "deleted", "invalid", "invalid", "invalid",
    ]  # fmt: skip
    assert course.prompt(9) == "M0 x y\nM1 u v\nR0 a b\nR1 d e f\nQuestion: which?\nRetrieve as R:"
    assert outcomes(course.act("-M1 R1 R1 R0 R7")) == [
        "deleted", "retrieved", "duplicate", "retrieved", "invalid",
    ]  # fmt: skip
    assert [each.text for each in course.context] == ["x y", "d e f", "a b"]
    assert course.used == 7
    # Six words fit: the last entry does not.
    assert [each.text for each in course.shown] == ["x y", "d e f"]
    assert course.stored == (0, 2)


def test_more_than_may_be_retrieved_is_refused() -> None:
    course = staged(retrievals=1)
    for line in ("L0 L1", "none", "-M0 -M1 -M2"):
        course.act(line)
    assert outcomes(course.act("R1 R0")) == ["retrieved", "refused"]
    assert [each.text for each in course.shown] == ["c"]


@pytest.mark.parametrize("messages", [(), MESSAGES])
def test_without_facts_it_begins_with_the_messages(messages: tuple[str, ...]) -> None:
    bank = PartedBank(BoundedBank(2), (STORE,))
    course = StagedWriting((), messages, "which?", bank, chunk=2, recent=9, window=6, retrievals=2)
    course.act("")
    assert course.prompt(9) is not None
    course.act("R0")
    assert course.prompt(9) is None
