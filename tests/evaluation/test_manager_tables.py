"""The manager's two tables: policies whose score is known beforehand, and intervals against a closed form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from keepworth.memory.overlay import Bank
from keepworth.methods.recipes._memory_r1.measures import (
    always,
    fact_stream,
    keeping_evidence,
    maintained_answers,
    operation_rows,
)
from keepworth.methods.recipes._memory_r1.memory_manager import Choose, ManagerState
from keepworth.methods.recipes._memory_r1.operation_tasks import operation_tasks, shown_memories
from keepworth.records.episode import Session, Task, Turn
from tests.rollouts.scripted_model import FunctionReader


def test_oracle_and_constant_managers_on_the_operation_table() -> None:
    tasks = operation_tasks("test", 200, seed=4)
    gold = {(shown_memories(task), task.input): task.answers[0] for task in tasks}

    def oracle(states: Sequence[ManagerState]) -> list[str]:
        return [gold[state.memories, state.fact] for state in states]

    def means(choose: Choose) -> dict[str, float]:
        rows = operation_rows("arm", choose, tasks)
        assert len({row["metric"] for row in rows}) == len(rows) == 7
        return {str(row["metric"]): float(str(row["mean"])) for row in rows}

    of = Counter(task.tags["operation"] for task in tasks)
    perfect = means(oracle)
    assert perfect == {name: float(name != "invalid") for name in perfect}
    lazy = means(always("none"))
    assert lazy["operation_accuracy"] == pytest.approx(of["NOOP"] / 200)
    assert (lazy["accuracy_noop"], lazy["accuracy_add"], lazy["invalid"]) == (1.0, 0.0, 0.0)
    first = means(always("UPDATE 0"))
    assert first["operation_kind"] == pytest.approx(of["UPDATE"] / 200)
    assert first["operation_accuracy"] < first["operation_kind"]
    silent = means(always("?"))
    assert (silent["operation_accuracy"], silent["invalid"]) == (0.0, 1.0)


def _session(id: str, day: int, *texts: str, evidence: Sequence[int] = ()) -> Session:
    turns = tuple(Turn("user", text, place, place in evidence) for place, text in enumerate(texts))
    return Session(id, f"2023-05-{day:02d}T10:00", turns)


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

    def run(choose: Choose) -> tuple[tuple[float, ...], ...]:
        rows, _ = maintained_answers("arm", choose, tasks, READER, Bank.empty(None), mode="lexical")
        assert (rows[-1]["metric"], rows[-1]["n"]) == ("invalid", 6)
        return tuple(tuple(row["values"][task.key] for task in tasks) for row in rows[:3])  # type: ignore[index]

    assert run(keeping_evidence(tasks)) == ((1.0, 1.0), (1.0, 1.0), (1, 1))
    assert run(_careful) == ((1.0, 1.0), (1.0, 1.0), (4, 1))
    assert run(always("ADD")) == ((0.0, 1.0), (1.0, 1.0), (5, 1))
    assert run(always("NOOP")) == ((0.0, 0.0), (0.0, 0.0), (0, 0))
    assert run(always("rubbish")) == run(always("NOOP"))


@pytest.mark.parametrize(("line", "invalid", "operations"), [("rubbish", 1.0, {"NOOP": 6}), ("ADD", 0.0, {"ADD": 6})])
def test_executed_operations_are_counted(line: str, invalid: float, operations: dict[str, int]) -> None:
    rows, executed = maintained_answers("arm", always(line), _tasks(), READER, Bank.empty(None), mode="lexical")
    assert [row["metric"] for row in rows] == ["f1", "evidence_kept", "bank_size", "invalid"]
    assert (rows[-1]["mean"], executed) == (invalid, operations)


def test_the_stream_holds_the_evidence_and_then_others_in_the_order_of_time() -> None:
    bikes = _tasks()[0]
    everything = fact_stream(bikes, 99)
    assert [fact.session for fact in everything] == ["a", "a", "b", "c", "c"]
    evidence = ["My bikes number three today.", "My bikes number four today."]
    assert [fact.statement for fact in fact_stream(bikes, 1)] == evidence
    for seed in range(5):
        three = fact_stream(bikes, 3, seed)
        assert len(three) == 3
        assert three == [fact for fact in everything if fact in three]
        assert {fact.statement for fact in fact_stream(bikes, 1)} <= {fact.statement for fact in three}
