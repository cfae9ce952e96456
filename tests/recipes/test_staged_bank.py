"""Three stages of writing: any text is legal in each, and the context holds what was left in it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.methods.recipes._bank.bounded_bank import BoundedBank
from keepworth.methods.recipes._bank.parted import DONE, PartedBank
from keepworth.methods.recipes._bank.staged import STORE, StagedWriting, WritingStage

FACTS = ("a b", "c", "d e f", "g")
MESSAGES = ("x y z", "u v", "w")
WORDS = st.builds(
    "{}{}{}{}".format,
    *map(st.sampled_from, (["", "-"], "LMRX", ["", "0", "1", "2", "9"], ["", "=0", "=1", "=99"])),
)
SAID = st.one_of(st.text(max_size=20), st.lists(WORDS, max_size=6).map(" ".join))


def writing(budget: int = 2, window: int = 6, retrievals: int = 2) -> StagedWriting:
    bank = PartedBank(BoundedBank(budget), (STORE,))
    return StagedWriting(
        FACTS, MESSAGES, "which?", bank, chunk=2, recent=9, window=window, retrievals=retrievals, words=2
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3), st.integers(1, 9), st.integers(1, 3), st.lists(SAID, min_size=4, max_size=4))
def test_any_text_is_legal_and_four_turns_end_it(budget: int, window: int, retrievals: int, said: list[str]) -> None:
    course = writing(budget, window, retrievals)
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
    course = writing()
    assert course.prompt(9) == "New:\n0 a b\n1 c\nStore as L:"
    course.act("L0 L1 R0 -M1")
    assert [call.outcome for call in course.turns[0].calls] == ["kept", "kept", "invalid", "invalid"]
    course.act("L1=0")  # d e f in the place of c
    assert course.stage is WritingStage.FILTER
    assert course.prompt(9) == "M0 x y z\nM1 u v\nM2 w\nDrop as -M, shorten as M:"
    assert [call.outcome for call in course.act("M0 M1 -M2 -M2 R0 L0").calls] == [
        "shortened", "duplicate", "deleted", "invalid", "invalid", "invalid",
    ]  # fmt: skip
    assert course.prompt(9) == "M0 x y\nM1 u v\nR0 a b\nR1 d e f\nQuestion: which?\nRetrieve as R:"
    assert [call.outcome for call in course.act("-M1 R1 R1 R0 R7").calls] == [
        "deleted", "retrieved", "duplicate", "retrieved", "invalid",
    ]  # fmt: skip
    assert [each.text for each in course.context] == ["x y", "d e f", "a b"]
    assert course.used == 7
    # Six words fit: the last entry does not.
    assert [each.text for each in course.shown] == ["x y", "d e f"]
    assert course.stored == (0, 2)


def test_more_than_may_be_retrieved_is_refused() -> None:
    course = writing(retrievals=1)
    for line in ("L0 L1", "none", "-M0 -M1 -M2"):
        course.act(line)
    assert [call.outcome for call in course.act("R1 R0").calls] == ["retrieved", "refused"]
    assert [each.text for each in course.shown] == ["c"]


@pytest.mark.parametrize("messages", [(), MESSAGES])
def test_without_facts_it_begins_with_the_messages(messages: tuple[str, ...]) -> None:
    bank = PartedBank(BoundedBank(2), (STORE,))
    course = StagedWriting((), messages, "which?", bank, chunk=2, recent=9, window=6, retrievals=2)
    course.act("")
    assert course.prompt(9) is not None
    course.act("R0")
    assert course.prompt(9) is None
