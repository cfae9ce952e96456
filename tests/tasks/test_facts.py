"""Facts and manager steps cut out of conversations, on sentences written for the purpose and on the shipped data."""

from __future__ import annotations

import dataclasses

import pytest

from keepworth.episodes.episode import Session, Task, Turn
from keepworth.tasks.facts import FACT_WORDS, Fact, decisive_facts, facts_of, facts_of_turn, manager_tuples
from keepworth.tasks.longmemeval import longmemeval


def _session(*texts: str, id: str = "s1", date: str = "2023-05-20T02:21", evidence: tuple[int, ...] = ()) -> Session:
    return Session(id, date, tuple(Turn("user", text, i, i in evidence) for i, text in enumerate(texts)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
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
    ],
)
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


def test_a_step_is_the_last_decisive_fact_with_the_old_value_in_the_bank() -> None:
    steps, counts = manager_tuples([_task("t", (NEW, OLD), "four")])
    assert (counts.tasks, counts.tuples, counts.no_fact) == (1, 2, 0)
    decisive, bystander = steps
    assert decisive.fact.statement == "I have four bikes now."
    assert [fact.statement for fact in decisive.before] == ["I have three bikes now.", "I like tea a lot."]
    assert [(q.task, q.answers, q.linked) for q in decisive.questions] == [("t", ("four",), True)]
    assert bystander.fact.statement == "I like jam a lot."
    assert not bystander.questions[0].linked
    assert decisive.fact in bystander.before


def test_questions_whose_evidence_is_in_the_bank_must_survive() -> None:
    tea = dataclasses.replace(OLD, turns=(OLD.turns[0], dataclasses.replace(OLD.turns[1], evidence=True)))
    tasks = [_task("bikes", (OLD, NEW), "four"), _task("tea", (tea,), "tea", "What do I like?")]
    steps, _ = manager_tuples(tasks)
    assert [(q.task, q.linked) for q in steps[0].questions] == [("bikes", True), ("tea", False)]
    assert [[q.task for q in step.questions] for step in steps if step.questions[0].task == "tea"] == [["tea"]]


def test_a_task_without_a_fact_is_counted_and_bad_input_is_named() -> None:
    _, counts = manager_tuples([_task("t", (OLD,), "xylophone")])
    assert (counts.tuples, counts.no_fact) == (0, 1)
    with pytest.raises(ValueError, match="no tasks"):
        manager_tuples([])
    with pytest.raises(ValueError, match="several splits"):
        manager_tuples([_task("a", (OLD,), "three"), _task("b", (OLD,), "three", split="test")])


def test_on_the_shipped_conversations() -> None:
    tasks = longmemeval("train", extractive=True, distractors=3)
    steps, counts = manager_tuples(tasks)
    assert counts.no_fact <= 0.1 * counts.tasks
    assert counts.tuples == len(steps) >= len(tasks)
    by_key = {task.key: task for task in tasks}
    for step in steps:
        own = by_key[step.questions[0].task]
        facts = facts_of(own.sessions)
        assert step.fact in facts
        assert step.fact not in step.before
        times = [(fact.date, fact.session, fact.turn, fact.sentence) for fact in (*step.before, step.fact)]
        assert times == sorted(times), "a bank before a step holds earlier facts only"
        decisive = decisive_facts(own, facts)
        if step.questions[0].linked:
            assert step.fact in decisive
        else:
            assert set(decisive) <= set(step.before)
    assert sum(len(step.questions) > 1 for step in steps) > 20
