"""LifelongAgentBench: tasks on databases and knowledge graphs that need recurring skills (arXiv 2505.11942).

The loader was tested on a fixture written after its public code, never on the set itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keepworth.base.errors import KeepworthError
from keepworth.base.metrics import normalise
from keepworth.records.episode import Task
from keepworth.registry import Method
from keepworth.worlds.benchmark import Benchmark
from keepworth.worlds.data_files import WrongFormat
from keepworth.worlds.data_sets.files import PathName, assign_sides, find_data, read_records
from keepworth.worlds.data_sets.passages import name_of, passage


def lifelong_agent_bench(split: str, *, data: PathName | None = None, memories: int = 100) -> list[Task]:
    """Returns the tasks of one side of a file of LifelongAgentBench: database tasks (`answer_info`) or knowledge graph tasks
    (`answer_list`), as one JSON object by number.

    Database tasks are answered in SQL and scored by `exact_match` with the set's own statement: a lower bound, since another
    statement may do the same, and no database is run here. Knowledge graph tasks are scored by `set_f1` over names. Tasks on
    an operating system need its container and are refused. The tags are type (the first skill), split, skills. No evidence is
    marked. Raises MissingData, WrongFormat.

    Args:
        split: "train", "dev" or "test".
        data: The file, or its folder; None reads KEEPWORTH_DATA.
        memories: The haystack is so many first tasks of the train side with their solutions, which no question asks.
    """
    if memories < 0:
        raise KeepworthError(f"memories={memories}: there are 0 or more.", "Write 0 or another number.")
    path = find_data(
        "LifelongAgentBench",
        ("db_bench.json", "knowledge_graph.json", "data.json"),
        data,
        folder="lifelongagentbench",
        source="huggingface.co/datasets/csyq/LifelongAgentBench",
    )
    records_by_id = {
        str(record.get("id", number)): record for number, record in enumerate(read_records(path, "LifelongAgentBench"))
    }
    read = {id: _lifelong(record, path) for id, record in records_by_id.items()}
    side_of = assign_sides({id: {normalise(question)} for id, (question, _, _) in read.items()})
    train = [id for id in read if side_of[id] == "train"]
    remembered = train[: min(memories, len(train) // 2)]
    haystack = tuple(
        passage(name_of("lifelong", id), [f"Task: {read[id][0]}", f"What solved it: {read[id][1]}"], "log")
        for id in remembered
    )
    return [
        Task(
            key=f"lifelongagentbench/{id}",
            source="lifelongagentbench",
            input=question,
            answers=(answer,),
            verifier=verifier,
            sessions=haystack,
            tags={
                "type": str(next(iter(records_by_id[id].get("skill_list") or ["none"]))),
                "split": split,
                "skills": " ".join(map(str, records_by_id[id].get("skill_list") or [])),
            },
        )
        for id, (question, answer, verifier) in read.items()
        if side_of[id] == split and id not in remembered
    ]


def _lifelong(record: Mapping[str, Any], path: Path) -> tuple[str, str, str]:
    """Returns the question, the right answer and the name of the verifier."""
    if "answer_info" in record and "table_info" in record:
        table = record["table_info"]
        columns = ", ".join(f"{column['name']} {column['type']}" for column in table["column_info_list"])
        question = f"{record['instruction']} The table is {table['name']} ({columns}). Answer with one SQL statement."
        return question, str(record["answer_info"]["sql"]).strip(), "exact_match"
    if "answer_list" in record and "question" in record:
        names = ", ".join(record.get("entity_dict", {}))
        return (
            f"{record['question']} Entities: {names}.",
            "; ".join(map(str, record["answer_list"])) or "none",
            "set_f1",
        )
    if "evaluation_info" in record:
        raise WrongFormat(
            f"{path} holds tasks on an operating system, which only their container can check.",
            "Give the database or the knowledge graph tasks.",
        )
    raise WrongFormat(
        f"{path}: a task has neither answer_info nor answer_list, so this is no file of LifelongAgentBench.",
        "Give db_bench.json or knowledge_graph.json.",
    )


METHOD = Method(
    kind="benchmark",
    name="lifelongagentbench",
    title="LifelongAgentBench",
    paper="arXiv 2505.11942",
    about="Solve database and graph tasks by the solutions of others",
    tags=("experiential",),
    differs=(
        "No database is run and tasks on an operating system are refused; the loader was tested only on made-up files."
    ),
    label="protocol",
    make=Benchmark("lifelongagentbench", lifelong_agent_bench, licence="see its page", metric="score"),
)
