"""MemoryArena: chains of tasks that need the results of earlier tasks (arXiv 2602.16313; CC BY 4.0).

The loader was tested on a fixture written after its public code, never on the set itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from keepworth.methods.benchmarks._rows import asked_in, pairs
from keepworth.records.episode import Session, Task
from keepworth.registry import Method
from keepworth.worlds.benchmark import Benchmark
from keepworth.worlds.data_sets.files import PathName, assign_sides, find_data, read_records
from keepworth.worlds.data_sets.passages import name_of, passage


def _right(value: Any) -> tuple[str, str]:
    """Returns the right answer as one text, and its verifier: a product is compared by its number, a plan by its words."""
    if isinstance(value, Mapping) and "target_asin" in value:
        return str(value["target_asin"]), "contains_answer"
    if isinstance(value, Mapping | list):
        return json.dumps(value, ensure_ascii=False), "token_f1"
    return str(value), "contains_answer"


def memory_arena(split: str, *, data: PathName | None = None) -> list[Task]:
    """Returns the tasks of one side of a file `data.jsonl` of MemoryArena: bundled shopping, progressive search, group travel, or
    formal reasoning.

    A row is a chain of tasks. The sessions before a task are its background and, for each earlier task, the question and its
    right answer: this measures whether a memory brings that forward, not the agent's own actions, which need the set's web sites
    and its model judge. Scored by `contains_answer` (of a product, by its number) or, for plans, `token_f1`. tags: type
    (category, or the paper), split, cluster (the row), step. No evidence is marked. Raises MissingData, WrongFormat.
    """
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
