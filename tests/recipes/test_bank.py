"""Whatever a writer says, the bank stays within its budget; and what it says about importance is what stays."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.episodes.errors import KeepworthError
from keepworth.methods.recipes._bank.bounded_bank import BankEntry, BoundedBank

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
def test_what_is_pinned_stays(unit: str, data: st.DataObject) -> None:
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
    assert bank.write("UPDATE 0", "one two three") == "kept"
    assert bank.texts == ("one two three",)


def test_an_update_that_cannot_be_done_leaves_the_bank_as_it_was() -> None:
    """The new fact takes the importance of the old one: where that is too little for its length, nothing happens."""
    bank = BoundedBank(4, "tokens")
    for line, fact in (("ADD 1", "a"), ("ADD 8", "b c d")):
        bank.write(line, fact)
    assert bank.write("UPDATE 0", "e f") == "passed"
    assert bank.texts == ("a", "b c d")
    assert bank.write("UPDATE 1", "e f") == "kept"
    assert [(entry.text, entry.matters, entry.number) for entry in bank.entries] == [("a", 1.0, 0), ("e f", 8.0, 3)]


def test_a_fact_that_matters_too_little_pushes_nothing_out() -> None:
    """Room for it would need the entry that matters more, too: the one that matters less stays as well."""
    bank = BoundedBank(10, "tokens")
    bank.write("ADD 1", "a b")
    bank.write("ADD 5", "c d e f g h i j")
    assert bank.write("ADD 3", "k l m n o p q r s") == "passed"
    assert bank.numbers == (0, 1)


@given(st.permutations(range(10)), st.integers(1, 10))
def test_saying_importance_keeps_the_most_important_whatever_the_order(order: Sequence[int], budget: int) -> None:
    bank = BoundedBank(budget)
    for matters in order:
        bank.write(f"ADD {matters}", str(matters))
    assert sorted(map(int, bank.texts)) == list(range(10 - budget, 10))


def test_a_bank_that_cannot_be_is_refused() -> None:
    with pytest.raises(KeepworthError, match="holds nothing"):
        BoundedBank(0)
    with pytest.raises(KeepworthError, match="2 tokens was given entries of 3"):
        BoundedBank(2, "tokens", entries=[BankEntry(0, "a b c", pinned=True)])


@pytest.mark.parametrize(
    ("line", "matters"),
    [("ADD", 5), ("ADD 7", 7), ("add 7.5 ", 7.5), ("\n ADD 2\nDELETE 0", 2), ("ADD 12", 9), ("ADD " + "9" * 5000, 9)],
)
def test_how_much_it_matters(line: str, matters: float) -> None:
    bank = BoundedBank(2)
    assert bank.write(line, "a") == "kept"
    assert bank.entries[0].matters == matters
