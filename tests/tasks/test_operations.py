"""The generator's right answers, checked by a rule that reads only the sentences; its splits; its verifier and parser."""

from __future__ import annotations

import itertools
import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.episodes.errors import UnknownName
from recollect.episodes.operation import OperationKind, ParseStatus
from recollect.tasks.operations import (
    ATTRIBUTES,
    LEVELS,
    NAMES,
    Form,
    names_of,
    operation,
    operation_case,
    operation_tasks,
    read_operation,
    shown_memories,
    values_of,
    written,
)
from recollect.tasks.splits import SPLITS


def _read_sentence(text: str) -> tuple[str, str, str, str]:
    """(form, person, attribute, value), recovered from the words by matching every template."""
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
    assert len(found) == 1, f"{text!r} reads as {found}"
    return found.pop()


def _rule(memories: list[str], fact: str) -> str:
    """The right operation, worked out from the sentences alone."""
    form, person, attribute, value = _read_sentence(fact)
    for number, memory in enumerate(memories):
        _, other_person, other_attribute, other_value = _read_sentence(memory)
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
    assert all(70 < kinds[kind] < 130 for kind in ("ADD", "UPDATE", "DELETE", "NOOP")), kinds


def test_no_name_and_no_held_out_value_leaks_between_splits() -> None:
    seen = {
        split: {
            _read_sentence(text)[1:]
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
    for attribute in ATTRIBUTES:
        own = {split: set(values_of(attribute, split)) for split in SPLITS}
        assert own["dev"] & own["test"] == own["train"]
        assert len(own["train"]) >= 2


def test_near_misses_share_the_person_or_the_attribute_and_both_kinds_occur_in_every_list_of_three() -> None:
    for index in range(300):
        case = operation_case("train", index)
        others = [m for m in case.memories if (m.person, m.attribute) != (case.fact.person, case.fact.attribute)]
        same_person = [m for m in others if m.person == case.fact.person]
        same_attribute = [m for m in others if m.attribute == case.fact.attribute]
        assert same_person or same_attribute
        if len(others) >= 2:
            assert same_person
            assert same_attribute
        pairs = [(m.person, m.attribute) for m in case.memories]
        assert len(set(pairs)) == len(pairs), "two memories about one thing: the right entry would be ambiguous"


def test_the_sequence_depends_on_seed_and_index_only() -> None:
    assert operation_tasks("dev", 5, seed=1) == operation_tasks("dev", 20, seed=1)[:5]
    assert operation_tasks("dev", 5, seed=1) != operation_tasks("dev", 5, seed=2)
    first = operation_tasks("test", 1)[0]
    # A change here is a change of the data on file: it needs a new GENERATOR_VERSION.
    assert shown_memories(first) == (
        "Fatima has a pet ferret.",
        "Thomas keeps a ferret.",
        "Stefan's cooking class is on Sunday.",
        "Stefan's sport is boxing.",
    )
    assert (first.input, first.answers) == ("Stefan keeps a ferret.", ("ADD",))


def test_the_place_of_the_right_entry_tells_nothing() -> None:
    cases = [operation_case("train", index) for index in range(1500)]
    for size in (2, 3, 4):
        places = Counter(case.target for case in cases if case.target is not None and len(case.memories) == size)
        total = sum(places.values())
        assert all(abs(places[place] / total - 1 / size) < 0.08 for place in range(size)), places


def test_constant_policies_and_the_oracle_score_what_they_should() -> None:
    tasks = operation_tasks("test", 800)
    shares = Counter(task.tags["operation"] for task in tasks)

    def score(line: str) -> float:
        return sum(operation(line, task.answers) for task in tasks) / len(tasks)

    assert score("NOOP") == shares["NOOP"] / 800
    assert score("ADD") == shares["ADD"] / 800
    assert score("banana") == 0.0
    assert sum(operation(task.answers[0], task.answers) for task in tasks) == 800


@pytest.mark.parametrize(
    ("text", "expected"),
    [
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
    ],
)
def test_parser(text: str, expected: tuple[OperationKind, int | None, ParseStatus]) -> None:
    assert read_operation(text, shown=3) == expected


@settings(deadline=None)
@given(st.text(), st.integers(0, 5))
def test_any_text_parses_and_an_invalid_one_is_a_noop(text: str, shown: int) -> None:
    kind, target, status = read_operation(text, shown)
    assert (target is not None) == (kind in (OperationKind.UPDATE, OperationKind.DELETE))
    assert target is None or 0 <= target < shown
    if status is ParseStatus.INVALID:
        assert (kind, target) == (OperationKind.NOOP, None)


@settings(deadline=None)
@given(
    st.sampled_from((OperationKind.ADD, OperationKind.NOOP, OperationKind.UPDATE, OperationKind.DELETE)),
    st.integers(0, 9999),
)
def test_what_is_written_is_read_back(kind: OperationKind, number: int) -> None:
    target = number if kind in (OperationKind.UPDATE, OperationKind.DELETE) else None
    assert read_operation(written(kind, target)) == (kind, target, ParseStatus.OK)


def test_bad_input_is_named() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'test'"):
        operation_tasks("tset", 1)
    with pytest.raises(ValueError, match="at least 2"):
        operation_case("train", 0, entries=1)
    with pytest.raises(UnknownName):
        names_of("valid")


def test_plain_cases_share_nothing_with_the_other_entries_and_are_told_as_what_they_are() -> None:
    told = {"ADD": Form.STATE, "UPDATE": Form.CHANGE, "DELETE": Form.END, "NOOP": Form.STATE}
    seen = set()
    for index in range(300):
        case = operation_case("dev", index, level="plain")
        seen.add(case.kind.value)
        assert case.fact.form is told[case.kind.value]
        same = [m for m in case.memories if m.person == case.fact.person or m.attribute == case.fact.attribute]
        if case.kind.value == "ADD":
            assert same == []
        elif case.kind.value == "NOOP":
            assert [m.text for m in same] == [case.fact.text]
        else:
            assert case.target is not None
            assert same == [case.memories[case.target]]
            assert (same[0].value == case.fact.value) == (case.kind.value == "DELETE")
    assert seen == set(told)
    assert {t.key for t in operation_tasks("dev", 9, level="plain")}.isdisjoint(
        t.key for t in operation_tasks("dev", 9)
    )
    with pytest.raises(UnknownName, match="Did you mean 'plain'"):
        operation_tasks("dev", 1, level="plane")
