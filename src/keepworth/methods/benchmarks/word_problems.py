"""Word problems as questions, with solved problems as memories: GSM8K, SVAMP and MATH-500.

The train side is halved by the hash of the text: one half serves as memory, the other is asked on that side. So no side asks a
problem that is in the memory.
"""

from __future__ import annotations

import re
from dataclasses import replace

from keepworth.base.metrics import normalise
from keepworth.records.episode import Session, Task
from keepworth.registry import Method
from keepworth.worlds.benchmark import Benchmark
from keepworth.worlds.data_files import WrongFormat
from keepworth.worlds.data_sets.arithmetic import arithmetic
from keepworth.worlds.data_sets.files import PathName, assign_sides, find_data, read_records
from keepworth.worlds.data_sets.passages import draw_solved, serves_as_memory


def gsm8k(split: str, *, data: PathName | None = None, memories: int = 500, seed: int = 0) -> list[Task]:
    """Returns GSM8K (Cobbe et al., arXiv 2110.14168; MIT): the memories are worked solutions of other problems.

    Questions, answers and sides are those of `arithmetic`; the worked solutions are read from the data. No memory is marked
    as evidence. The tags are type, split. Raises MissingData, WrongFormat.

    Args:
        split: "train", "dev" or "test".
        data: The file of worked solutions, or its folder; None reads KEEPWORTH_DATA.
        memories: The number of memories, drawn from the half of the train side that is for memory.
        seed: The seed of the memories.
    """
    tasks, solved_tasks = _halves("gsm8k", split)
    path = find_data(
        "GSM8K with worked solutions",
        ("train.jsonl.gz", "train.jsonl"),
        data,
        folder="gsm8k",
        source="github.com/openai/grade-school-math (grade_school_math/data)",
    )
    worked = {
        record["question"]: _worked(str(record["answer"]))
        for record in read_records(path, "GSM8K", ("question", "answer"))
    }
    missing = next((task.input for task in solved_tasks if task.input not in worked), None)
    if missing is not None:
        raise WrongFormat(f"{path} has no solution of the problem {missing:.60}...", "Get the whole file train.jsonl.")
    haystack = draw_solved("gsm8k", [f"{task.input}\n{worked[task.input]}" for task in solved_tasks], memories, seed)
    return [_over(task, haystack) for task in tasks]


def svamp(split: str, *, memories: int = 300, seed: int = 0) -> list[Task]:
    """Returns SVAMP (Patel et al., NAACL 2021; MIT), as `gsm8k`; a memory is a problem with the equation that solves it.

    Args:
        split: "train", "dev" or "test".
        memories: The number of memories, drawn from the half of the train side that is for memory.
        seed: The seed of the memories.
    """
    tasks, solved_tasks = _halves("svamp", split)
    texts = [f"{task.input}\n{task.tags['equation']} = {task.answers[0]}" for task in solved_tasks]
    haystack = draw_solved("svamp", texts, memories, seed)
    return [_over(task, haystack) for task in tasks]


def math500(split: str, *, data: PathName | None = None, memories: int = 150, seed: int = 0) -> list[Task]:
    """Returns MATH-500 (Hendrycks et al., arXiv 2103.03874, chosen for arXiv 2305.20050; MIT), as `gsm8k`, with its own
    solutions.

    It has no train side: its 500 problems are divided by the hash of their names. Scored by `latex`: equal as LaTeX once that is
    normalised, or equal as numbers. tags: type (the subject), split, level. Raises MissingData, WrongFormat.

    Args:
        split: "train", "dev" or "test".
        data: The file, or its folder; None reads KEEPWORTH_DATA.
        memories: The number of memories, drawn from the half of the train side that is for memory.
        seed: The seed of the memories.
    """
    source = "github.com/ZubinGou/math-evaluation-harness (data/math_oai/test.jsonl) or github.com/openai/prm800k"
    path = find_data("MATH-500", ("test.jsonl", "test.jsonl.gz"), data, folder="math500", source=source)
    rows = {
        str(record["unique_id"]): record
        for record in read_records(path, "MATH-500", ("problem", "solution", "answer", "unique_id"))
    }
    side_of = assign_sides({id: {normalise(str(row["problem"]))} for id, row in rows.items()})
    solved_ids = [id for id in rows if side_of[id] == "train" and serves_as_memory(id)]
    ids = [id for id in rows if side_of[id] == split and (split != "train" or not serves_as_memory(id))]
    haystack = draw_solved(
        "math500", [f"{rows[id]['problem']}\n{rows[id]['solution']}" for id in solved_ids], memories, seed
    )
    return [
        Task(
            key=f"math500/{id}",
            source="math500",
            input=str(rows[id]["problem"]),
            answers=(str(rows[id]["answer"]),),
            verifier="latex",
            sessions=haystack,
            tags={"type": str(rows[id].get("subject", "")), "split": split, "level": str(rows[id].get("level", ""))},
        )
        for id in ids
    ]


def _halves(source: str, split: str) -> tuple[list[Task], list[Task]]:
    solved_tasks = [task for task in arithmetic(source, "train") if serves_as_memory(task.input)]
    tasks = arithmetic(source, split)
    return [task for task in tasks if split != "train" or not serves_as_memory(task.input)], solved_tasks


def _worked(text: str) -> str:
    """Returns the solution without the calculator's marks, and with the answer in words."""
    return re.sub(r"<<[^>]*>>", "", text).replace("####", "The answer is")


def _over(task: Task, haystack: tuple[Session, ...]) -> Task:
    return replace(task, sessions=haystack, tags={key: value for key, value in task.tags.items() if key != "equation"})


GSM8K = Method(
    kind="benchmark",
    name="gsm8k",
    title="GSM8K",
    paper="arXiv 2110.14168",
    about="Solve word problems by the worked solutions of others",
    tags=("experiential",),
    differs="Solved problems are the memory, and the half of the train split that is remembered is never asked.",
    make=Benchmark("gsm8k", gsm8k, licence="MIT", metric="score"),
)
METHODS = (
    GSM8K,
    replace(
        GSM8K,
        name="svamp",
        title="SVAMP",
        paper="NAACL 2021",
        about="Solve word problems of one step by the solutions of others",
        make=Benchmark("svamp", svamp, licence="MIT", metric="score", shipped=True),
    ),
    replace(
        GSM8K,
        name="math500",
        title="MATH-500",
        paper="arXiv 2103.03874",
        about="Solve competition problems by the solutions of others",
        differs="Solved problems are the memory, and hashes of names decide the splits.",
        make=Benchmark("math500", math500, licence="MIT", metric="score"),
    ),
)
