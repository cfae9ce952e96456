"""MemoryArena: tasks in a row, for which what the ones before found out is needed (arXiv 2602.16313; CC BY 4.0).

Its shape is checked on a fixture written after its public code, never run on the set.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from keepworth.episodes.episode import Session, Task
from keepworth.episodes.errors import require_known
from keepworth.methods.benchmarks._files import PathName, assign_sides, find_data, read_records
from keepworth.methods.benchmarks._passages import name_of, passage
from keepworth.methods.benchmarks._rows import asked_in, pairs
from keepworth.registry import Method
from keepworth.tasks.benchmark import Benchmark
from keepworth.tasks.splits import SPLITS


def _right(value: Any) -> tuple[str, str]:
    """What is right as one text, and how it is judged: a product by its number, a plan by its words."""
    if isinstance(value, Mapping) and "target_asin" in value:
        return str(value["target_asin"]), "contains_answer"
    if isinstance(value, Mapping | list):
        return json.dumps(value, ensure_ascii=False), "token_f1"
    return str(value), "contains_answer"


def memory_arena(split: str, *, data: PathName | None = None) -> list[Task]:
    """The tasks of one side of a file `data.jsonl` of MemoryArena: bundled shopping, progressive search, group travel, or formal
    reasoning.

    A row is a chain of tasks. What is told before a task is its background and, for each task before it, what was asked and
    what was right: whether a memory brings that forward is measured, not how its own actions went, which takes the set's web
    sites and its model judge. Scored by `contains_answer` (of a
    product, by its number) or, for plans, `token_f1`. tags: type (category, or the paper), split, cluster (the row), step.
    No evidence is marked. Errors: MissingData, WrongFormat."""
    require_known("split", split, SPLITS)
    path = find_data(
        "MemoryArena",
        ("data.jsonl", "data.jsonl.gz"),
        data,
        folder="memoryarena",
        source="huggingface.co/datasets/ZexueHe/memoryarena (a folder for each kind of task)",
    )
    rows = {
        f"{number}-{record.get('id', number)}": record
        for number, record in enumerate(read_records(path, "MemoryArena", ("questions", "answers")))
    }
    side_of = assign_sides({id: set(asked_in(row)) for id, row in rows.items()})
    tasks = []
    for id, row in rows.items():
        if side_of[id] != split:
            continue
        whole = row.get("background")
        backgrounds = row.get("backgrounds") or ([whole] if whole else [])
        earlier: list[Session] = []
        for number, (question, _) in enumerate(pairs(row, path)):
            answer, verifier = _right(row["answers"][number])
            background = [str(backgrounds[number])] if number < len(backgrounds) and backgrounds[number] else []
            if background:
                earlier.append(passage(name_of("memoryarena", id, number, "background"), background))
            tasks.append(
                Task(
                    key=f"memoryarena/{id}/{number}",
                    source="memoryarena",
                    input=question,
                    answers=(answer,),
                    verifier=verifier,
                    sessions=tuple(earlier),
                    tags={
                        "type": str(row.get("category", row.get("paper_name", ""))),
                        "split": split,
                        "cluster": id,
                        "step": str(number),
                    },
                )
            )
            lines = [f"Task: {question}", f"What was right: {answer}"]
            earlier.append(passage(name_of("memoryarena", id, number), lines, "log"))
    return tasks


METHOD = Method(
    kind="benchmark",
    name="memoryarena",
    title="MemoryArena",
    paper="arXiv 2602.16313",
    about="Solve tasks that need what earlier tasks found",
    tags=("experiential",),
    differs=(
        "Earlier questions come with their right answers, and no web site is used; the loader was tested only on made-up files."
    ),
    label="protocol",
    make=Benchmark("memoryarena", memory_arena, licence="CC BY 4.0", metric="score"),
)
