"""Facts and manager steps cut out of conversations, on sentences written for the purpose and on the shipped data."""

from __future__ import annotations

import pytest

from keepworth.episodes.episode import Session, Task, Turn
from keepworth.methods.writers._facts import FACT_WORDS, Fact, decisive_facts, facts_of, facts_of_turn


def _session(*texts: str, id: str = "s1", date: str = "2023-05-20T02:21", evidence: tuple[int, ...] = ()) -> Session:
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
def test_what_counts_as_a_fact(text: str, expected: list[str]) -> None:
    session = _session(text)
    assert [fact.statement for fact in facts_of_turn(session.turns[0], session)] == expected


def test_only_the_user_states_facts_and_places_are_kept() -> None:
    session = Session(
        "s9",
        "2023-05-20T02:21",
        (Turn("assistant", "I moved to Oslo last week.", 0), Turn("user", "My cat is Pepper.", 1)),
    )
    (fact,) = facts_of([session])
    assert fact == Fact("My cat is Pepper.", "s9", "2023-05-20T02:21", 1, 0)
    assert fact.text == "2023-05-20: My cat is Pepper."


def test_a_long_sentence_is_cut_where_it_says() -> None:
    session = _session("I " + " ".join(["really"] * 60) + " moved.")
    words = facts_of([session])[0].statement.split()
    assert len(words) == FACT_WORDS + 1
    assert words[-1] == "..."


def test_facts_come_in_the_order_of_time() -> None:
    later = _session("I sold my car today.", id="b", date="2023-06-01T00:00")
    earlier = _session("I bought a red car.", id="c", date="2023-05-01T00:00")
    assert [fact.session for fact in facts_of([later, earlier])] == ["c", "b"]


def _task(key: str, sessions: tuple[Session, ...], answer: str, question: str = "q?", split: str = "train") -> Task:
    return Task(key, "made", question, (answer,), "token_f1", sessions=sessions, tags={"split": split})


OLD = _session("I have three bikes now.", "I like tea a lot.", id="old", date="2023-01-01T00:00", evidence=(0,))
NEW = _session("I have four bikes now.", "I like jam a lot.", id="new", date="2023-02-01T00:00", evidence=(0,))


def test_decisive_facts_are_those_of_evidence_that_hold_words_of_the_answer() -> None:
    task = _task("t", (NEW, OLD), "four")
    assert [fact.statement for fact in decisive_facts(task, facts_of(task.sessions))] == ["I have four bikes now."]
    none = _task("t", (OLD,), "xylophone")
    assert decisive_facts(none, facts_of(none.sessions)) == []
