"""Texts about people: the answer is always there, once, and the newest; nobody of one split is met in another."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.episodes.errors import UnknownName
from keepworth.methods.benchmarks._people import ATTRIBUTES, names_of
from keepworth.methods.recipes._people_reading import QUESTIONS, evidence_of, memories_of, people_reading, text_of
from keepworth.tasks.splits import SPLITS


@settings(max_examples=25, deadline=None)
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


def test_what_there_is_not_is_refused() -> None:
    with pytest.raises(UnknownName, match="tset"):
        people_reading("tset", 1)
    with pytest.raises(ValueError, match="at least two sections"):
        people_reading("train", 1, sections=1)
