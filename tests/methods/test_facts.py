"""Facts cut out of conversations, and windows that questions speak of, against a calendar: 22 June 2023 was a Thursday."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepworth.memory.facts import FACT_WORDS, Fact, decisive_facts, facts_of, facts_of_turn
from keepworth.memory.time_window import TimeWindow, window_of
from keepworth.records.episode import Session, Task, Turn


def session_of(*texts: str, id: str = "s1", date: str = "2023-05-20T02:21", evidence: tuple[int, ...] = ()) -> Session:
    return Session(id, date, tuple(Turn("user", text, i, i in evidence) for i, text in enumerate(texts)))


@pytest.mark.parametrize(("text", "expected"), [
    ("I moved to Oslo last week.", ["I moved to Oslo last week."]),
    ("Thanks! By the way, my cat is called Pepper.", ["My cat is called Pepper."]),
    ("I met Dr. Smith in Oslo. She was kind.", ["I met Dr. Smith in Oslo."]),
    ("I own three bikes, do you think I need more?", ["I own three bikes."]),
    ("I got pre-approved for $2.5 million - can you believe it?", ["I got pre-approved for $2.5 million."]),
    ("Do you know my name?", []),
    ("Can you recommend a hotel? Paris is big.", []),
    ("That sounds great, I love it.", []),
    ("I'd like some tips on running.", []),
    ("We won.", []),
    ("", []),
])  # fmt: skip
def test_facts_of_a_turn_are_recognised(text: str, expected: list[str]) -> None:
    session = session_of(text)
    assert [fact.statement for fact in facts_of_turn(session.turns[0], session)] == expected


def test_only_the_user_states_facts_and_places_are_kept() -> None:
    turns = (Turn("assistant", "I moved to Oslo last week.", 0), Turn("user", "My cat is Pepper.", 1))
    (fact,) = facts_of([Session("s9", "2023-05-20T02:21", turns)])
    assert fact == Fact("My cat is Pepper.", "s9", "2023-05-20T02:21", 1, 0)


def test_a_long_sentence_is_cut_where_it_says() -> None:
    session = session_of("I " + " ".join(["really"] * 60) + " moved.")
    words = facts_of([session])[0].statement.split()
    assert len(words) == FACT_WORDS + 1
    assert words[-1] == "..."


def test_facts_come_in_the_order_of_time() -> None:
    later = session_of("I sold my car today.", id="b", date="2023-06-01T00:00")
    earlier = session_of("I bought a red car.", id="c", date="2023-05-01T00:00")
    assert [fact.session for fact in facts_of([later, earlier])] == ["c", "b"]


OLD = session_of("I have three bikes now.", "I like tea a lot.", id="old", date="2023-01-01T00:00", evidence=(0,))
NEW = session_of("I have four bikes now.", "I like jam a lot.", id="new", date="2023-02-01T00:00", evidence=(0,))


def test_decisive_facts_are_those_of_evidence_that_hold_words_of_the_answer() -> None:
    for answer, decisive in (("four", ["I have four bikes now."]), ("xylophone", [])):
        task = Task("t", "made", "q?", (answer,), "token_f1", sessions=(NEW, OLD))
        assert [fact.statement for fact in decisive_facts(task, facts_of(task.sessions))] == decisive


ASKED = "2023-06-22T11:12"
IF = "If it rained on May 3, 2020, what was done between May 1, 2020, at 19:45 and May 2, 2020, at 9:27 AM"


@pytest.mark.parametrize(("question", "window"), [
    ("Who did I meet 5 days ago?", "2023-06-17T00:00/2023-06-17T23:59"),
    ("What did I bake a couple of days ago?", "2023-06-20T00:00/2023-06-20T23:59"),
    ("Which event was a week ago?", "2023-06-12T00:00/2023-06-18T23:59"),
    ("What did I buy two months ago?", "2023-04-07T00:00/2023-05-07T23:59"),
    ("What have I written since I began three weeks ago?", "2023-05-29T00:00/2023-06-22T11:12"),
    ("Who did I meet last Tuesday?", "2023-06-20T00:00/2023-06-20T23:59"),
    ("Who did I meet last Thursday?", "2023-06-15T00:00/2023-06-15T23:59"),
    ("Which bike did I fix the past weekend?", "2023-06-17T00:00/2023-06-18T23:59"),
    ("How many hours did I jog last week?", "2023-06-12T00:00/2023-06-18T23:59"),
    ("Which shoes did I clean last month?", "2023-05-01T00:00/2023-05-31T23:59"),
    ("How many plants did I get in the last month?", "2023-05-23T00:00/2023-06-22T23:59"),
    ("How much did I spend in the past three months?", "2023-03-22T00:00/2023-06-22T11:12"),
    ("Where did I fly in March and April?", "2023-03-01T00:00/2023-04-30T23:59"),
    ("How often did I run from July to October?", "2022-07-01T00:00/2022-10-31T23:59"),
    ("Which airline was it on Valentine's day?", "2023-02-14T00:00/2023-02-14T23:59"),
    ("What was done on October 13, 2023?", "2023-10-13T00:00/2023-10-13T23:59"),
    ("What was done on 1 February, 2023?", "2023-02-01T00:00/2023-02-01T23:59"),
    ("What was done in October 2023?", "2023-10-01T00:00/2023-10-31T23:59"),
    ("What was done in 2022?", "2022-01-01T00:00/2022-12-31T23:59"),
    ("What was done between April 1, 2020, and April 9, 2020", "2020-04-01T00:00/2020-04-09T23:59"),
    (IF, "2020-05-01T19:45/2020-05-02T09:27"),
    ("between 13:30:20 and 23:53:46 on January 10, 2024", "2024-01-10T13:30/2024-01-10T23:53"),
    ("from 2023-12-30 16:27:30 to 2023-12-30 21:24:36", "2023-12-30T16:27/2023-12-30T21:24"),
    ("in just 4 days after 8:11 pm, March 10, 2020", "2020-03-10T20:11/2020-03-14T20:11"),
    ("in just 1 month before 12:00 am, March 31, 2020", "2020-02-29T00:00/2020-03-31T00:00"),
    ("What came after May 3?", "2023-05-03T00:00/2023-06-22T11:12"),
])  # fmt: skip
def test_time_window_of_a_question_is_recognised(question: str, window: str) -> None:
    assert str(window_of(question, ASKED)) == window


@pytest.mark.parametrize(
    "question",
    ["How many days ago did I meet Emma?", "Which came first?", "May I ask?", "on February 31, 2022", "Who marches?"],
)
def test_question_without_a_time_has_no_window(question: str) -> None:
    assert window_of(question, ASKED) is None


def test_relative_time_needs_the_date_of_the_question() -> None:
    assert window_of("What did I do a week ago?") is None
    assert window_of("What did I do in May?") is None
    assert str(window_of("What did I do in May 2020?")) == "2020-05-01T00:00/2020-05-31T23:59"


@given(st.text(max_size=80), st.sampled_from(["", ASKED]))
def test_any_text_is_read(text: str, asked_at: str) -> None:
    window = window_of(text, asked_at)
    assert window is None or window.start <= window.end


@given(st.text("0123456789 :-,/abetwnd", max_size=40), st.sampled_from(["in may ", "between 2020-01-01 and ", "last "]))
def test_numbers_that_are_no_dates_are_read_too(text: str, before: str) -> None:
    window = window_of(before + text, ASKED)
    assert window is None or window.start <= window.end


def test_how_far_a_day_is_from_a_window() -> None:
    window = TimeWindow(datetime(2023, 5, 10), datetime(2023, 5, 12))
    assert [window.gap(datetime(2023, 5, day)) for day in (8, 10, 11, 12, 15)] == [-2.0, 0.0, 0.0, 0.0, 3.0]
    assert window.days == 2.0
