"""Made data: right answers by a rule that reads only the sentences, texts about people, streams of facts; no split leaks."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.base.errors import KeepworthError, UnknownName
from keepworth.memory.facts import decisive_facts, facts_of
from keepworth.methods.recipes._memory_r1.operation_tasks import operation_tasks, shown_memories
from keepworth.methods.recipes._memory_r1.operations import LEVELS, operation_case
from keepworth.methods.recipes._memory_r1.utterances import renumbered, utterances
from keepworth.methods.recipes._people_reading import QUESTIONS, evidence_of, memories_of, people_reading, text_of
from keepworth.records.episode import OperationKind, ParseStatus, Session, Task, Turn
from keepworth.records.operations import read_operation
from keepworth.worlds.data_sets.people import ATTRIBUTES, NAMES, names_of, values_of
from keepworth.worlds.fact_streams import FactStream, fact_streams, folds_of, longmemeval_streams
from keepworth.worlds.splits import SPLITS


def _read_sentence(text: str) -> tuple[str, str, str, str] | None:
    """(form, person, attribute, value), recovered from the words by matching every template; None where none matches."""
    found = set()
    for attribute in ATTRIBUTES:
        for form, templates in (("state", attribute.states), ("change", attribute.changes), ("end", attribute.ends)):
            for template in templates:
                pattern = re.escape(template).replace(r"\{n\}", "(?P<n>[A-Z][a-z]+)")
                match = re.fullmatch(pattern.replace(r"\{v\}", "(?P<v>[A-Za-z]+)"), text)
                if match and match["v"] in attribute.values:
                    found.add((form, match["n"], attribute.key, match["v"]))
    assert len(found) <= 1, f"{text!r} reads as {found}"
    return found.pop() if found else None


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
def test_gold_operations_follow_a_rule_on_the_sentences(split: str, level: str) -> None:
    tasks = operation_tasks(split, 400, seed=3, level=level)
    for task in tasks:
        assert task.answers == (_rule(list(shown_memories(task)), task.input),), task
    kinds = Counter(task.tags["operation"] for task in tasks)
    # Half of the plain cases are of what users said, and that is mostly new.
    expected = {"ADD": 190, "UPDATE": 80, "DELETE": 50, "NOOP": 80} if level == "plain" else dict.fromkeys(kinds, 100)
    assert set(kinds) == {"ADD", "UPDATE", "DELETE", "NOOP"}
    assert all(abs(kinds[kind] - expected[kind]) < 35 for kind in kinds), kinds


def test_no_name_and_no_held_out_value_leaks_between_splits() -> None:
    seen: dict[str, set[tuple[str, ...]]] = {}
    for split in SPLITS:
        texts = [text for task in operation_tasks(split, 600) for text in (*shown_memories(task), task.input)]
        seen[split] = {(_read_sentence(text) or pytest.fail(text))[1:] for text in texts}
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
        "Joel earns a living as a nurse.", "Ivan works as a banker.", "Ivan has a pet hamster.", "Kai is a painter.",
    )  # fmt: skip
    assert (first.input, first.answers) == ("Ivan is a nurse.", ("UPDATE 1",))
    plain = operation_tasks("test", 1, level="plain")[0]
    assert shown_memories(plain) == (
        "Helen likes milk best.", "Emil practises the banjo.", "Ruth works as a driver.",
        "I think The Goonies sounds like a great addition to the marathon.",
    )  # fmt: skip
    assert (plain.input, plain.answers) == ("Lukas lives in Dublin.", ("ADD",))
    assert plain.source == "operations-v2"


def test_place_of_the_right_entry_is_uniform() -> None:
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


@pytest.mark.parametrize(("draw", "says"), [
    (lambda: operation_tasks("tset", 1), "Did you mean 'test'"),
    (lambda: names_of("valid"), "valid"),
    (lambda: people_reading("tset", 1), "tset"),
])  # fmt: skip
def test_bad_input_is_named(draw: Callable[[], object], says: str) -> None:
    with pytest.raises((UnknownName, ValueError), match=says):
        draw()


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
def test_renumbering_changes_exactly_one_number(sentence: str, changes: bool) -> None:
    other = renumbered(sentence)
    assert bool(other) == changes
    if changes:
        assert other != sentence
        assert _ANY_NUMBER.sub("#", other) == _ANY_NUMBER.sub("#", sentence)


# Texts about people: the answer is always there, once, and the newest; nobody of one split is met in another.


@settings(max_examples=25)
@given(st.sampled_from(SPLITS), st.integers(0, 3), st.integers(2, 4), st.integers(1, 3))
def test_a_text_holds_its_answer_once_and_last(split: str, seed: int, sections: int, sentences: int) -> None:
    for task in people_reading(split, 8, seed, sections=sections, sentences=sentences):
        text = text_of(task)
        assert len(text) == sections
        every = [turn.text for session in task.sessions for turn in session.turns]
        assert len(every) == sections * sentences == len(set(every))
        (evidence,) = evidence_of(task)
        assert task.answers[0] in evidence
        (person,) = [name for name in names_of(split) if name in task.input.replace("'s", "").replace("?", "").split()]
        assert person in evidence
        # What is asked for is said once, or twice where it changed, and then the later one counts.
        (attribute,) = [each for each in ATTRIBUTES if each.key == task.tags["type"]]
        said = [
            place
            for place, sentence in enumerate(every)
            for wording in (*attribute.states, *attribute.changes)
            if sentence in {wording.format(n=person, v=value) for value in attribute.values}
        ]
        assert len(said) == (2 if task.tags["changed"] == "true" else 1)
        assert every.index(evidence) == max(said)
        memories = memories_of(task, "nothing")
        assert memories[-1] == evidence
        assert all(memory in ("nothing", *(every[place] for place in said)) for memory in memories)
        assert [memory != "nothing" for memory in memories] == [
            number >= min(said) // sentences for number in range(sections)
        ]


def test_every_attribute_has_a_question() -> None:
    assert set(QUESTIONS) == {attribute.key for attribute in ATTRIBUTES}


def test_a_larger_set_begins_with_the_smaller_and_changes_come() -> None:
    assert people_reading("train", 40)[:10] == people_reading("train", 10)
    changed = sum(task.tags["changed"] == "true" for task in people_reading("train", 200))
    assert 40 <= changed <= 80
    assert not set(names_of("train")) & set(names_of("test"))


LENGTH, BUDGET = 16, 4


def _session(number: int, *texts: str, evidence: bool = False) -> Session:
    turns = tuple(Turn("user", text, i, evidence) for i, text in enumerate(texts))
    return Session(f"s{number}", f"2023-05-{number + 1:02}T10:00", turns)


def task(key: str = "t", others: int = 12) -> Task:
    """A bicycle that is counted twice, the later count being right, among facts about tea."""
    sessions = [_session(number, f"I drank tea number {number} today.") for number in range(others)]
    sessions[2] = _session(2, "I own three bikes now.", evidence=True)
    sessions[7] = _session(7, "I own four bikes now.", evidence=True)
    return Task(key, "made", "How many bikes do I own?", ("four bikes",), "token_f1", sessions=tuple(sessions))


def test_decisive_facts_keep_their_order_with_rising_dates() -> None:
    made = fact_streams([task()], 6, streams=40)
    places = Counter[int]()
    for stream in made:
        decisive = [fact.statement for fact, decides in zip(stream.facts, stream.evidence, strict=True) if decides]
        assert decisive == ["I own three bikes now.", "I own four bikes now."]
        assert len({fact.statement for fact in stream.facts}) == 6
        dates = [fact.date for fact in stream.facts]
        assert dates == sorted(dates)
        places.update(place for place, decides in enumerate(stream.evidence) if decides)
    assert set(places) == set(range(6)), "every place may hold what is asked for"
    assert len({tuple(stream.facts) for stream in made}) > 35
    assert [stream.key for stream in made[:2]] == ["t~6/0", "t~6/1"]


def test_the_same_seed_draws_the_same_and_another_seed_others() -> None:
    assert fact_streams([task()], 6, seed=1) == fact_streams([task()], 6, seed=1)
    assert fact_streams([task()], 6, seed=1) != fact_streams([task()], 6, seed=2)


def test_the_share_of_evidence() -> None:
    (stream,) = fact_streams([task()], 6)
    first, last = (place for place, decides in enumerate(stream.evidence) if decides)
    assert [stream.evidence_kept(kept) for kept in ((), (first,), (first, last), range(6))] == [0.0, 0.5, 1.0, 1.0]


def test_unusable_tasks_are_left_out_of_streams() -> None:
    unstated = replace(task("unstated"), answers=("seven bikes and a car",))
    assert [stream.task.key for stream in fact_streams([task(), unstated, task("few", others=8)], 10)] == ["t"]
    # Of three facts two would be evidence.
    for length, says in ((30, "none of 1 tasks has 30 facts"), (3, "none of 1 tasks")):
        with pytest.raises(KeepworthError, match=says):
            fact_streams([task()], length)


@settings(max_examples=50)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=60), st.integers(1, 6))
def test_folds_hold_clusters_whole_and_are_even(clusters: list[int], folds: int) -> None:
    streams = [FactStream(task(), (), (), str(cluster)) for cluster in clusters]
    found = folds_of(streams, folds)
    assert len({(cluster, fold) for cluster, fold in zip(clusters, found, strict=True)}) == len(set(clusters))
    sizes = [found.count(fold) for fold in range(folds)]
    assert max(sizes) - min(sizes) <= max(Counter(clusters).values())


@cache
def real() -> Sequence[FactStream]:
    return longmemeval_streams(LENGTH)


def test_evidence_position_is_uninformative_in_real_streams() -> None:
    """Whoever keeps the first or the last four of sixteen keeps a quarter of the evidence, up to four standard errors of
    evenly drawn places (0.02 over 460 streams)."""
    streams = real()
    assert len(streams) > 400
    for kept in (range(BUDGET), range(LENGTH - BUDGET, LENGTH), range(0, LENGTH, LENGTH // BUDGET)):
        mean = sum(stream.evidence_kept(kept) for stream in streams) / len(streams)
        assert abs(mean - BUDGET / LENGTH) < 4 * (0.25 * 0.75 / len(streams)) ** 0.5


def test_real_streams_keep_decisive_facts_in_time_order() -> None:
    several = 0
    for stream in real()[::9]:
        decisive = [fact.statement for fact in decisive_facts(stream.task, facts_of(stream.task.sessions))]
        found = [fact.statement for fact, decides in zip(stream.facts, stream.evidence, strict=True) if decides]
        assert found == list(dict.fromkeys(decisive))
        several += len(found) > 1
    assert several


def test_no_fact_of_one_split_stands_in_a_stream_of_another() -> None:
    sessions: dict[str, set[str]] = {split: set() for split in SPLITS}
    for stream in real():
        sessions[stream.task.tags["split"]].update(fact.session for fact in stream.facts)
    assert all(sessions.values())
    assert sum(map(len, sessions.values())) == len(set().union(*sessions.values()))


def test_folds_keep_tied_questions_together() -> None:
    streams = real()
    found = folds_of(streams)
    assert set(found) == set(range(5))
    for tied in ("cluster", "question"):
        keys = [stream.cluster if tied == "cluster" else stream.task.key for stream in streams]
        assert len(set(zip(keys, found, strict=True))) == len(set(keys))
