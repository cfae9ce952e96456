"""Tasks of choosing a memory operation; see `operations` for the cases."""

from __future__ import annotations

from keepworth.methods.recipes._memory_r1.memory_manager import completion, render
from keepworth.methods.recipes._memory_r1.operations import (
    DEFAULT_ENTRIES,
    GENERATOR_VERSION,
    MEMORY_SESSION,
    OperationCase,
    operation_case,
)
from keepworth.records.episode import Session, Task, Turn


def operation_tasks(split: str, count: int, seed: int = 0, level: str = "near-miss") -> list[Task]:
    """Returns `count` tasks: `input` is the new fact, the memories are the turns of one session, `answers` is the right line. The
    first n tasks of a larger count are the same n tasks."""
    name = f"operations/{level}/{split}/{seed}/{DEFAULT_ENTRIES}"
    cases = (operation_case(split, index, seed, level=level) for index in range(count))
    return [as_task(case, f"{name}/{index}", split) for index, case in enumerate(cases)]


def as_task(case: OperationCase, key: str, split: str) -> Task:
    """Converts a case to a task: entry i of the memory is the turn of index i; the right entry is evidence (hidden)."""
    turns = tuple(
        Turn(speaker=MEMORY_SESSION, text=memory.text, index=number, evidence=number == case.target)
        for number, memory in enumerate(case.memories)
    )
    return Task(
        key=key,
        source=f"operations-v{GENERATOR_VERSION}",
        input=case.fact.text,
        answers=(case.gold,),
        verifier="operation",
        sessions=(Session(id=MEMORY_SESSION, date="", turns=turns),),
        evidence=() if case.target is None else (MEMORY_SESSION,),
        tags={
            "split": split,
            "operation": case.kind.value,
            "target": "" if case.target is None else str(case.target),
            "trait": case.trait,
            "entries": str(len(case.memories)),
        },
    )


def warm_start_examples(count: int, seed: int = 0, level: str = "near-miss") -> list[tuple[str, str]]:
    """Returns (prompt, completion) pairs with right operations for a supervised start, from the training names only."""
    return [
        (render(shown_memories(task), task.input), completion(task.answers[0]))
        for task in operation_tasks("train", count, seed, level=level)
    ]


def shown_memories(task: Task) -> tuple[str, ...]:
    """Returns the memories of an operation task, in the order of their numbers."""
    return tuple(turn.text for turn in task.sessions[0].turns)
