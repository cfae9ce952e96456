"""The generator's right answers, checked by a rule that reads only the sentences; its splits; its verifier and parser."""

from __future__ import annotations

import itertools
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepworth.episodes.episode import OperationKind, ParseStatus
from keepworth.episodes.errors import UnknownName
from keepworth.methods.benchmarks._people import ATTRIBUTES, NAMES, names_of, values_of
from keepworth.methods.recipes._memory_r1.operation_tasks import operation_tasks, shown_memories
from keepworth.methods.recipes._memory_r1.operations import LEVELS, operation_case
from keepworth.methods.recipes._memory_r1.utterances import renumbered, utterances
from keepworth.tasks.operations import read_operation
from keepworth.tasks.splits import SPLITS


def _read_sentence(text: str) -> tuple[str, str, str, str] | None:
    """(form, person, attribute, value), recovered from the words by matching every template; None where none matches."""
    found = set()
    for attribute in ATTRIBUTES:
        for form, templates in (("state", attribute.states), ("change", attribute.changes), ("end", attribute.ends)):
            for template in templates:
                pattern = (
                    re.escape(template).replace(r"\{n\}", "(?P<n>[A-Z][a-z]+)").replace(r"\{v\}", "(?P<v>[A-Za-z]+)")
                )
                match = re.fullmatch(pattern, text)
                if match and match["v"] in attribute.values:
                    found.add((form, match["n"], attribute.key, match["v"]))
    assert len(found) <= 1, f"{text!r} reads as {found}"
    return found.pop() if found else None


def _about_somebody(text: str) -> tuple[str, str, str, str]:
    read = _read_sentence(text)
    assert read is not None, text
    return read


_ANY_NUMBER = re.compile(r"\d+|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)\b")


def _rule(memories: list[str], fact: str) -> str:
    """The right operation, worked out from the sentences alone."""
    read = _read_sentence(fact)
    if read is None:
        if fact in memories:
            return "NOOP"
        bare = [_ANY_NUMBER.sub("#", memory) for memory in memories]
        same = [number for number, memory in enumerate(bare) if memory == _ANY_NUMBER.sub("#", fact)]
        assert len(same) <= 1
        return f"UPDATE {same[0]}" if same else "ADD"
    form, person, attribute, value = read
    for number, memory in enumerate(memories):
        _, other_person, other_attribute, other_value = _read_sentence(memory) or ("", "", "", "")
        if (other_person, other_attribute) != (person, attribute):
            continue
        if form == "end":
            return f"DELETE {number}" if other_value == value else "NOOP"
        return "NOOP" if other_value == value else f"UPDATE {number}"
    return "NOOP" if form == "end" else "ADD"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("split", SPLITS)
def test_gold_is_what_a_rule_on_the_sentences_says(split: str, level: str) -> None:
    tasks = operation_tasks(split, 400, seed=3, level=level)
    for task in tasks:
        assert task.answers == (_rule(list(shown_memories(task)), task.input),), task
    kinds = Counter(task.tags["operation"] for task in tasks)
    # Half of the plain cases are of what users said, and that is mostly new.
    expected = {"ADD": 190, "UPDATE": 80, "DELETE": 50, "NOOP": 80} if level == "plain" else dict.fromkeys(kinds, 100)
    assert set(kinds) == {"ADD", "UPDATE", "DELETE", "NOOP"}
    assert all(abs(kinds[kind] - expected[kind]) < 35 for kind in kinds), kinds


def test_no_name_and_no_held_out_value_leaks_between_splits() -> None:
    seen = {
        split: {
            _about_somebody(text)[1:]
            for task in operation_tasks(split, 600)
            for text in (*shown_memories(task), task.input)
        }
        for split in SPLITS
    }
    for one, other in itertools.combinations(SPLITS, 2):
        assert not {person for person, _, _ in seen[one]} & {person for person, _, _ in seen[other]}
    for split in ("dev", "test"):
        new = {pair[1:] for pair in seen[split]} - {pair[1:] for pair in seen["train"]}
        assert len(new) >= 5, f"{split} has no value of its own"
    assert sorted(name for split in SPLITS for name in names_of(split)) == sorted(NAMES)
    said = {split: {text.lower() for talk in utterances(split) for text in talk} for split in SPLITS}
    for one, other in itertools.combinations(SPLITS, 2):
        assert not said[one] & said[other]
    for attribute in ATTRIBUTES:
        own = {split: set(values_of(attribute, split)) for split in SPLITS}
        assert own["dev"] & own["test"] == own["train"]
        assert len(own["train"]) >= 2


def test_the_sequence_depends_on_seed_and_index_only() -> None:
    assert operation_tasks("dev", 5, seed=1) == operation_tasks("dev", 20, seed=1)[:5]
    assert operation_tasks("dev", 5, seed=1) != operation_tasks("dev", 5, seed=2)
    first = operation_tasks("test", 1)[0]
    # A change here is a change of the data on file: it needs a new GENERATOR_VERSION.
    assert shown_memories(first) == (
        "Joel earns a living as a nurse.",
        "Ivan works as a banker.",
        "Ivan has a pet hamster.",
        "Kai is a painter.",
    )
    assert (first.input, first.answers) == ("Ivan is a nurse.", ("UPDATE 1",))
    plain = operation_tasks("test", 1, level="plain")[0]
    assert shown_memories(plain) == (
        "Helen likes milk best.",
        "Emil practises the banjo.",
        "Ruth works as a driver.",
        "I think The Goonies sounds like a great addition to the marathon.",
    )
    assert (plain.input, plain.answers) == ("Lukas lives in Dublin.", ("ADD",))
    assert plain.source == "operations-v2"


def test_the_place_of_the_right_entry_tells_nothing() -> None:
    cases = [operation_case("train", index) for index in range(1500)]
    for size in (2, 3, 4):
        places = Counter(case.target for case in cases if case.target is not None and len(case.memories) == size)
        total = sum(places.values())
        assert all(abs(places[place] / total - 1 / size) < 0.08 for place in range(size)), places


@pytest.mark.parametrize(("text", "expected"), [
    ("UPDATE 1", (OperationKind.UPDATE, 1, ParseStatus.OK)),
    (" DELETE 0\n\nMemory:", (OperationKind.DELETE, 0, ParseStatus.OK)),
    ("ADD", (OperationKind.ADD, None, ParseStatus.OK)),
    ("none", (OperationKind.NOOP, None, ParseStatus.REPAIRED)),
    ("No-Op.", (OperationKind.NOOP, None, ParseStatus.REPAIRED)),
    ("SKIP", (OperationKind.NOOP, None, ParseStatus.REPAIRED)),
    ("INSERT", (OperationKind.ADD, None, ParseStatus.REPAIRED)),
    ("ADD 1", (OperationKind.ADD, None, ParseStatus.REPAIRED)),
    ("supersede [2]", (OperationKind.UPDATE, 2, ParseStatus.REPAIRED)),
    ("UPDATE: 01", (OperationKind.UPDATE, 1, ParseStatus.REPAIRED)),
    ("UPDATE 3", (OperationKind.NOOP, None, ParseStatus.INVALID)),  # three entries are shown
    ("UPDATE", (OperationKind.NOOP, None, ParseStatus.INVALID)),
    ("DELETE 0 1", (OperationKind.NOOP, None, ParseStatus.INVALID)),
    ("DELETE " + "9" * 5000, (OperationKind.NOOP, None, ParseStatus.INVALID)),
    ("UPDATE ٣", (OperationKind.NOOP, None, ParseStatus.INVALID)),
    ("ADDITION", (OperationKind.NOOP, None, ParseStatus.INVALID)),
    ("I would ADD this", (OperationKind.NOOP, None, ParseStatus.INVALID)),
    ("", (OperationKind.NOOP, None, ParseStatus.INVALID)),
    (" \n \t", (OperationKind.NOOP, None, ParseStatus.INVALID)),
])  # fmt: skip
def test_parser(text: str, expected: tuple[OperationKind, int | None, ParseStatus]) -> None:
    assert read_operation(text, shown=3) == expected


@given(st.text(), st.integers(0, 5))
def test_any_text_parses_and_an_invalid_one_is_a_noop(text: str, shown: int) -> None:
    kind, target, status = read_operation(text, shown)
    assert (target is not None) == (kind in (OperationKind.UPDATE, OperationKind.DELETE))
    assert target is None or 0 <= target < shown
    if status is ParseStatus.INVALID:
        assert (kind, target) == (OperationKind.NOOP, None)


def test_bad_input_is_named() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'test'"):
        operation_tasks("tset", 1)
    with pytest.raises(ValueError, match="at least 2"):
        operation_case("train", 0, entries=1)
    with pytest.raises(UnknownName):
        names_of("valid")


@pytest.mark.parametrize(("sentence", "changes"), [
    ("I have 3 bikes.", True),
    ("I own seven cats.", True),
    ("I have 3 bikes and 2 cars.", False),  # which one changed could not be told
    ("I like tea.", False),
    ("I ran 5:30 today.", False),
    ("I paid $20 for it.", False),
    ("I live at number 1,204.", False),
    ("I moved here in 2021.", False),
])  # fmt: skip
def test_one_number_is_changed_and_nothing_else(sentence: str, changes: bool) -> None:
    other = renumbered(sentence)
    assert bool(other) == changes
    if changes:
        assert other != sentence
        assert _ANY_NUMBER.sub("#", other) == _ANY_NUMBER.sub("#", sentence)
