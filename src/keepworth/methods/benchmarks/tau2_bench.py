"""tau2-bench: customers' requests, tools that can serve them, and a policy (github.com/sierra-research/tau2-bench; MIT).

The loader was tested on a fixture written after its public code, never on the set itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keepworth.base.errors import KeepworthError
from keepworth.base.metrics import normalise
from keepworth.records.episode import Task
from keepworth.registry import Method
from keepworth.worlds.benchmark import Benchmark
from keepworth.worlds.data_sets.files import PathName, assign_sides, find_data, read_records
from keepworth.worlds.data_sets.passages import name_of, passage
from keepworth.worlds.entries import windows_of


def tau2_bench(split: str, *, data: PathName | None = None, memories: int = 20) -> list[Task]:
    """Returns the tasks of one domain of tau2-bench: a folder with `tasks.json`, and `policy.md` and `split_tasks.json` if there
    are any.

    Only its task files are read. A question asks which tools a customer's request takes, each once (`set_f1` over their
    names, "none" where nothing may be done). The set's own reward compares the database after a talk with a simulated user;
    for that, run its simulator with a memory behind an endpoint. Sides are those of `split_tasks.json` (dev is a tenth of its
    train), else the rule of `splits`. The tags are type (the domain), split. No evidence is marked. Raises MissingData,
    WrongFormat.

    Args:
        split: "train", "dev" or "test".
        data: The folder of the domain; None reads KEEPWORTH_DATA.
        memories: The haystack is the policy, and so many first tasks of the train side with their tools, which no question
            asks.
    """
    if memories < 0:
        raise KeepworthError(f"memories={memories}: there are 0 or more.", "Write 0 or another number.")
    source = "github.com/sierra-research/tau2-bench (data/tau2/domains/DOMAIN)"
    path = find_data("tau2-bench", ("tasks.json",), data, folder="tau2", source=source)
    records_by_id, fixed = read_domain(path)
    wanted = {id: _wanted(record) for id, record in records_by_id.items()}
    side_of = assign_sides({id: {normalise(text)} for id, text in wanted.items()})
    if fixed:
        statements = {id: "dev" if part == "train" and side_of[id] == "dev" else part for id, part in fixed.items()}
        # Tasks equal up to spelling stay together: a train task equal to a test task is dropped.
        tested = {normalise(wanted[id]) for id, part in statements.items() if part == "test"}
        side_of = {id: part for id, part in statements.items() if part == "test" or normalise(wanted[id]) not in tested}
    train = [id for id, part in side_of.items() if part == "train"]
    remembered = train[: min(memories, len(train) // 2)]
    haystack = [
        passage(name_of("tau2", id), [f"{wanted[id]} It took: {_tools(records_by_id[id])}"], "log") for id in remembered
    ]
    policy = path.parent / "policy.md"
    if policy.is_file():
        lines = policy.read_text(encoding="utf-8").splitlines()
        texts = [window for line in lines for window in windows_of(line)]
        haystack.insert(0, passage(name_of("tau2", "policy", *texts), texts, "policy"))
    return [
        Task(
            key=f"tau2/{id}",
            source="tau2-bench",
            input=f"{wanted[id]} Which tools does this take? Name each once, separated by semicolons, or say none.",
            answers=(_tools(records_by_id[id]),),
            verifier="set_f1",
            sessions=tuple(haystack),
            tags={"type": path.parent.name, "split": split},
        )
        for id, part in side_of.items()
        if part == split and id not in remembered
    ]


def read_domain(path: Path) -> tuple[dict[str, Mapping[str, Any]], dict[str, str]]:
    """Returns the tasks of a `tasks.json` by id, and their sides in the `split_tasks.json` beside it, if there is one."""
    fields = ("id", "user_scenario", "evaluation_criteria")
    records = {str(record["id"]): record for record in read_records(path, "tau2-bench", fields)}
    cut = path.parent / "split_tasks.json"
    cuts = json.loads(cut.read_text(encoding="utf-8")) if cut.is_file() else {}
    sides = {str(id): part for part in ("train", "test") for id in cuts.get(part, ())}
    return records, {id: sides[id] for id in records if id in sides}


def _wanted(record: Mapping[str, Any]) -> str:
    instructions = record["user_scenario"]["instructions"]
    if isinstance(instructions, str):
        return " ".join(instructions.split())
    parts: Sequence[str] = ("reason_for_call", "known_info", "task_instructions")
    return " ".join(" ".join(str(instructions[part]).split()) for part in parts if instructions.get(part))


def _tools(record: Mapping[str, Any]) -> str:
    actions = (record["evaluation_criteria"] or {}).get("actions") or ()
    return "; ".join(dict.fromkeys(str(action["name"]) for action in actions)) or "none"


METHOD = Method(
    kind="benchmark",
    name="tau2-bench",
    title="tau2-bench",
    about="Say which tools a customer's wish takes, by a policy and by solved tasks",
    tags=("experiential",),
    differs=(
        "Questions ask only which tools are needed, and no user is simulated; the loader was tested only on made-up files."
    ),
    label="protocol",
    make=Benchmark("tau2-bench", tau2_bench, licence="MIT", metric="score"),
)
