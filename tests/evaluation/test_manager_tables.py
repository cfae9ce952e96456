"""The manager's two tables: policies whose score is known beforehand, and intervals against a closed form."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from keepworth.agents.manager import ManagerState
from keepworth.episodes.episode import Session, Task, Turn
from keepworth.evaluation.statistics import paired_gain
from keepworth.memory.overlay import Bank
from keepworth.methods.recipes._memory_r1.measures import (
    always,
    answer_rows,
    fact_stream,
    keeping_evidence,
    maintained_answers,
    operation_accuracy,
    operation_rows,
)
from keepworth.tasks.operations import operation_tasks, shown_memories
from tests.rollouts.scripted_model import FunctionReader


def test_pairing_removes_what_both_share() -> None:
    baseline = [float(number % 7) for number in range(50)]
    gain = paired_gain([value + 0.5 for value in baseline], baseline)
    assert (gain.low, gain.mean, gain.high) == (0.5, 0.5, 0.5)
    with pytest.raises(ValueError, match="same questions"):
        paired_gain([1.0], [1.0, 2.0])


def test_oracle_and_constant_managers_on_the_operation_table() -> None:
    tasks = operation_tasks("test", 200, seed=4)
    gold = {(shown_memories(task), task.input): task.answers[0] for task in tasks}

    def oracle(states: Sequence[ManagerState]) -> list[str]:
        return [gold[state.memories, state.fact] for state in states]

    perfect = operation_accuracy(oracle, tasks)
    assert perfect.accuracy.mean == 1.0
    assert perfect.invalid == perfect.repaired == 0.0
    assert set(perfect.by_operation) == {"ADD", "UPDATE", "DELETE", "NOOP"}
    assert sum(part.n for part in perfect.by_operation.values()) == 200

    lazy = operation_accuracy(always("none"), tasks)
    share = sum(task.tags["operation"] == "NOOP" for task in tasks) / 200
    assert lazy.accuracy.mean == pytest.approx(share)
    assert lazy.by_operation["NOOP"].mean == 1.0
    assert lazy.by_operation["ADD"].mean == 0.0
    assert lazy.repaired == 1.0
    assert lazy.asked == {"NOOP": 200}

    first = operation_accuracy(always("UPDATE 0"), tasks)
    assert sum(first.kind_only) == sum(task.tags["operation"] == "UPDATE" for task in tasks) > sum(first.exact)

    silent = operation_accuracy(always("?"), tasks)
    assert (silent.accuracy.mean, silent.invalid, silent.asked) == (0.0, 1.0, {"invalid": 200})
    metrics = [row["metric"] for row in operation_rows("oracle", perfect)]
    assert metrics[0] == "operation_accuracy"
    assert len(set(metrics)) == len(metrics) == 7


def _session(id: str, day: int, *texts: str, evidence: Sequence[int] = ()) -> Session:
    return Session(
        id, f"2023-05-{day:02d}T10:00", tuple(Turn("user", t, i, i in evidence) for i, t in enumerate(texts))
    )


def _tasks() -> list[Task]:
    bikes = (
        _session("a", 1, "My bikes number three today.", "My cat is called Pepper.", evidence=(0,)),
        _session("b", 2, "My bikes number four today.", evidence=(0,)),
        _session("c", 3, "I like tea a lot.", "I like jam a lot."),
    )
    cat = (_session("d", 1, "My cat eats tuna daily.", evidence=(0,)),)
    return [
        Task("bikes", "made", "What do my bikes number", ("four",), "token_f1", sessions=bikes, evidence=("a", "b")),
        Task("cat", "made", "What is it my cat eats", ("tuna",), "token_f1", sessions=cat, evidence=("d",)),
    ]


def _first_match(question: str, memories: Sequence[str]) -> str:
    """Believes the *first* memory that speaks of the last word of the question: an old value left behind misleads it."""
    wanted = question.split()[-1]
    for memory in memories:
        words = memory.strip(".").split()
        if wanted in words[:-1]:
            return words[words.index(wanted) + 1]
    return "unknown"


READER = FunctionReader("first-match@1", _first_match)


def _careful(states: Sequence[ManagerState]) -> list[str]:
    """Updates the memory that starts with the same three words, else adds."""
    lines = []
    for state in states:
        head = state.fact.split()[:3]
        same = [number for number, memory in enumerate(state.memories) if memory.split()[:3] == head]
        lines.append(f"UPDATE {same[0]}" if same else "ADD")
    return lines


def test_a_careful_manager_beats_append_only_and_an_idle_one() -> None:
    tasks = _tasks()

    def run(choose: object) -> tuple[tuple[float, ...], tuple[int, ...], tuple[float, ...]]:
        found = maintained_answers(choose, tasks, READER, Bank.empty(None), mode="lexical")  # type: ignore[arg-type]
        assert found.reader == "first-match@1"
        assert found.facts == 6
        return found.f1, found.bank_sizes, found.evidence_kept

    assert run(keeping_evidence(tasks)) == ((1.0, 1.0), (1, 1), (1.0, 1.0))
    assert run(_careful) == ((1.0, 1.0), (4, 1), (1.0, 1.0))
    assert run(always("ADD")) == ((0.0, 1.0), (5, 1), (1.0, 1.0))
    assert run(always("NOOP")) == ((0.0, 0.0), (0, 0), (0.0, 0.0))
    assert run(always("rubbish")) == run(always("NOOP"))


def test_what_was_executed_is_counted() -> None:
    found = maintained_answers(always("rubbish"), _tasks(), READER, Bank.empty(None), mode="lexical")
    assert (found.invalid, found.operations) == (1.0, {"NOOP": 6})
    added = maintained_answers(always("ADD"), _tasks(), READER, Bank.empty(None), mode="lexical")
    assert (added.invalid, added.operations) == (0.0, {"ADD": 6})
    rows = answer_rows("always ADD", added)
    assert [row["metric"] for row in rows] == ["f1", "evidence_kept", "bank_size", "invalid"]
    assert [row.get("values") for row in rows] == [
        {"bikes": 0.0, "cat": 1.0},
        {"bikes": 1.0, "cat": 1.0},
        {"bikes": 5.0, "cat": 1.0},
        None,
    ]


def test_the_stream_holds_the_evidence_and_then_others_in_the_order_of_time() -> None:
    bikes = _tasks()[0]
    everything = fact_stream(bikes, 99)
    assert [fact.session for fact in everything] == ["a", "a", "b", "c", "c"]
    assert [fact.statement for fact in fact_stream(bikes, 1)] == [
        "My bikes number three today.",
        "My bikes number four today.",
    ]
    for seed in range(5):
        three = fact_stream(bikes, 3, seed)
        assert len(three) == 3
        assert three == [fact for fact in everything if fact in three]
        assert {fact.statement for fact in fact_stream(bikes, 1)} <= {fact.statement for fact in three}
    with pytest.raises(ValueError, match="at least 1"):
        fact_stream(bikes, 0)


def test_bad_input_is_named() -> None:
    full = Bank.empty(None)
    full.add("I like tea.")
    with pytest.raises(ValueError, match="empty bank"):
        maintained_answers(always("ADD"), _tasks(), READER, full)
    with pytest.raises(ValueError, match="no tasks"):
        maintained_answers(always("ADD"), [], READER, Bank.empty(None))
    with pytest.raises(ValueError, match="no tasks"):
        operation_accuracy(always("ADD"), [])
