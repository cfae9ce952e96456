from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepworth.memory.sentences import sentences
from keepworth.records.episode import Session, Task, Turn
from keepworth.worlds.data_sets.longmemeval import longmemeval
from keepworth.worlds.entries import candidates, covers, entries, windows_of


def task_of(question: str, answer: str, *sessions: Session, **more: Any) -> Task:
    return Task("k", "s", question, (answer,), "token_f1", sessions=sessions, **more)


TEA = (Turn("user", "I like tea.", 0), Turn("assistant", "Good.", 1), Turn("user", "Bye now.", 2))
CAT = Turn("user", "The cat sleeps here. It rains all day. Luna is calm. Luna eats.", 0, True)
OLD = Session("old", "2023-01-01T00:00", TEA)
NEW = Session("new", "2023-02-01T00:00", (CAT, Turn("assistant", "Luna!", 1)))
TASK = task_of("What is the name of my cat?", "Luna", OLD, NEW, evidence=("new",))


def test_entries_hold_the_users_turns_with_provenance() -> None:
    found = entries(TASK, words=8)
    assert [(e.text, e.session, e.turn, e.window, e.speaker, e.date, e.evidence) for e in found] == [
        ("I like tea.", "old", 0, 0, "user", "2023-01-01T00:00", False),
        ("Bye now.", "old", 2, 0, "user", "2023-01-01T00:00", False),
        ("The cat sleeps here. It rains all day.", "new", 0, 0, "user", "2023-02-01T00:00", True),
        ("Luna is calm. Luna eats.", "new", 0, 1, "user", "2023-02-01T00:00", True),
    ]
    assert {e.speaker for e in entries(TASK, speakers=("assistant",))} == {"assistant"}


def test_entries_keep_the_right_speakers_by_default() -> None:
    about = replace(TASK, tags={"type": "single-session-assistant"})
    assert {e.speaker for e in entries(about)} == {"user", "assistant"}
    people = Session("d", "2023", (Turn("Ann", "Hi.", 0), Turn("Bob", "Yo.", 1)))
    assert [e.speaker for e in entries(task_of("q", "a", people))] == ["Ann", "Bob"]


def test_candidates_take_the_evidence_window_that_holds_the_answer() -> None:
    found = candidates(TASK, 3, seed=0, words=8)
    assert {e.text for e in found} == {"Luna is calm. Luna eats.", "I like tea.", "Bye now."}
    assert len(candidates(TASK, 9, seed=0, words=8)) == 3  # no other window of an evidence turn fills up
    assert [e.text for e in candidates(TASK, 1, seed=0, words=8)] == ["Luna is calm. Luna eats."]
    with pytest.raises(ValueError, match="count=0"):
        candidates(TASK, 0, seed=0)


def test_limited_evidence_keeps_the_turns_that_cover_the_answer() -> None:
    turns = tuple(Turn("user", text, index, True) for index, text in enumerate(["red and more red", "red", "blue"]))
    task = task_of("Which colours?", "red and blue", Session("d", "2023", turns))
    assert {e.text for e in candidates(task, 2, seed=0)} == {"red and more red", "blue"}


def test_real_candidate_sets() -> None:
    tasks = longmemeval("train", extractive=True)
    places = [0, 0, 0]
    holding = 0
    for task in tasks:
        found = candidates(task, 3, seed=0)
        assert len(found) == 3
        assert all(len(e.text.split()) <= 60 for e in found)
        assert any(e.evidence for e in found)
        assert len({e.text for e in found}) == 3
        assert candidates(task, 3, seed=0) == found
        if sum(e.evidence for e in found) == 1:
            places[[e.evidence for e in found].index(True)] += 1
        holding += any(covers(answer, [e.text for e in found]) for answer in task.answers)
    assert min(places) > sum(places) / 6  # about a third each: the place says nothing
    assert holding >= len(tasks) - 2  # lists of more than three things do not fit
    assert [candidates(task, 3, seed=1) for task in tasks] != [candidates(task, 3, seed=0) for task in tasks]


@given(st.text(alphabet="ab .!?\n\"')", max_size=200), st.integers(1, 9))
def test_windows_lose_no_word_and_keep_the_limit(text: str, words: int) -> None:
    pieces = windows_of(text, words)
    assert " ".join(pieces).split() == text.split()
    assert all(1 <= len(piece.split()) <= words for piece in pieces)


def test_windows_are_cut_between_sentences() -> None:
    assert windows_of("One two three. Four five. Six.", 5) == ["One two three. Four five.", "Six."]
    assert windows_of("One two three. Four five six.", 5) == ["One two three.", "Four five six."]
    assert windows_of("one two three four five six seven", 3) == ["one two three", "four five six", "seven"]
    assert windows_of("", 5) == []
    with pytest.raises(ValueError, match="words=0"):
        windows_of("x", 0)


def test_sentences() -> None:
    said = ["I saw Dr. Smith.", 'She said "stop."', "I did!", "So", "fine"]
    assert sentences('I saw Dr. Smith. She said "stop." I did!\nSo\n\nfine') == said
    assert sentences("John F. Kennedy spoke. So did I. Good.") == ["John F. Kennedy spoke.", "So did I.", "Good."]
    assert sentences("It cost 3.5 dollars, e.g. little.") == ["It cost 3.5 dollars, e.g. little."]
