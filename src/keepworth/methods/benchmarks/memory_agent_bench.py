"""MemoryAgentBench: one long context with many questions about it (arXiv 2507.05257; MIT).

The loader was tested on a fixture written after its public code, never on the set itself.
"""

from __future__ import annotations

from keepworth.base.errors import require_known
from keepworth.methods.benchmarks._rows import asked_in, pairs
from keepworth.records.episode import Task
from keepworth.registry import Method
from keepworth.worlds.benchmark import Benchmark
from keepworth.worlds.data_sets.files import PathName, assign_sides, find_data, read_records
from keepworth.worlds.data_sets.passages import name_of, passage
from keepworth.worlds.entries import windows_of

COMPETENCIES = ("Accurate_Retrieval", "Test_Time_Learning", "Long_Range_Understanding", "Conflict_Resolution")


def memory_agent_bench(
    split: str, *, data: PathName | None = None, competency: str = "Conflict_Resolution"
) -> list[Task]:
    """Returns the tasks of one side of one competency: its parquet file as JSON lines (`pandas.read_parquet(...).to_json(orient=
    "records", lines=True)`), named after it.

    A context is cut at its lines, and long lines into windows; the numbered facts of Conflict_Resolution are a turn each, in
    their order, of which the last one about a thing is valid. Answers are scored by `contains_answer`, which is their
    "substring exact match"; the paper judges summaries with a model, so Long_Range_Understanding is measured in part. A
    context is on one side. No evidence is marked. The tags are type (the source), split, cluster (the context). Raises
    MissingData, WrongFormat, UnknownName.

    Args:
        split: "train", "dev" or "test".
        data: The file, or its folder; None reads KEEPWORTH_DATA.
        competency: A name of COMPETENCIES.
    """
    require_known("competency", competency, COMPETENCIES)
    path = find_data(
        "MemoryAgentBench",
        (f"{competency}.jsonl", f"{competency}.json", f"{competency}.jsonl.gz"),
        data,
        folder="memoryagentbench",
        source="huggingface.co/datasets/ai-hyz/MemoryAgentBench",
    )
    rows = {
        name_of("memoryagentbench", record["context"]): record
        for record in read_records(path, "MemoryAgentBench", ("context", "questions", "answers"))
    }
    side_of = assign_sides({id: set(asked_in(row)) for id, row in rows.items()})
    tasks = []
    for id, row in rows.items():
        if side_of[id] != split:
            continue
        context = passage(id, (window for line in str(row["context"]).splitlines() for window in windows_of(line)))
        about = row.get("metadata") or row
        kind = str(about.get("source", competency))
        for number, (question, answers) in enumerate(pairs(row, path)):
            tasks.append(
                Task(
                    key=f"memoryagentbench/{id}/{number}",
                    source="memoryagentbench",
                    input=question,
                    answers=answers,
                    verifier="contains_answer",
                    sessions=(context,),
                    tags={"type": kind, "split": split, "cluster": id},
                )
            )
    return tasks


METHOD = Method(
    kind="benchmark",
    name="memoryagentbench",
    title="MemoryAgentBench",
    paper="arXiv 2507.05257",
    about="Answer many questions on one long text",
    tags=("factual",),
    differs="No model judges summaries; the loader was tested only on made-up files.",
    label="protocol",
    make=Benchmark("memoryagentbench", memory_agent_bench, licence="MIT", metric="score"),
)
