"""Public sets of others for agents with a memory, by path. Shapes are checked on fixtures written after their public code, never
run on the sets. What needs their own simulators is not scored here; each loader says what is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from keepworth.episodes.episode import Session, Task
from keepworth.episodes.errors import KeepworthError, require_known
from keepworth.tasks.benchmarks.passages import name_of, passage
from keepworth.tasks.data_files import PathName, WrongFormat, located, records
from keepworth.tasks.entries import windows_of
from keepworth.tasks.metrics import normalise
from keepworth.tasks.splits import SPLITS, sides

# MemoryAgentBench: a long context told once, many questions about it (arXiv 2507.05257; MIT).

COMPETENCIES = ("Accurate_Retrieval", "Test_Time_Learning", "Long_Range_Understanding", "Conflict_Resolution")


def memory_agent_bench(
    split: str, *, data: PathName | None = None, competency: str = "Conflict_Resolution"
) -> list[Task]:
    """The tasks of one side of one competency: its parquet file as JSON lines (`pandas.read_parquet(...).to_json(orient=
    "records", lines=True)`), named after it or given itself.

    A context is cut at its lines, and long lines into windows; the numbered facts of Conflict_Resolution are a turn each, in
    their order, of which the last that speaks of a thing holds. Scored by `contains_answer`, which is their "substring exact
    match"; they judge summaries with a model, so Long_Range_Understanding is measured only in part. A context is on one side.
    No evidence is marked. tags: type (the source), split, cluster (the context). Errors: MissingData, WrongFormat,
    UnknownName."""
    require_known("split", split, SPLITS)
    require_known("competency", competency, COMPETENCIES)
    path = located(
        "MemoryAgentBench",
        (f"{competency}.jsonl", f"{competency}.json", f"{competency}.jsonl.gz"),
        data,
        folder="memoryagentbench",
        source="huggingface.co/datasets/ai-hyz/MemoryAgentBench",
    )
    rows = {
        name_of("memoryagentbench", each["context"]): each
        for each in records(path, "MemoryAgentBench", ("context", "questions", "answers"))
    }
    side_of = sides({id: set(_asked_in(each)) for id, each in rows.items()})
    tasks = []
    for id, row in rows.items():
        if side_of[id] != split:
            continue
        told = passage(id, (window for line in str(row["context"]).splitlines() for window in windows_of(line)))
        about = row.get("metadata") or row
        kind = str(about.get("source", competency))
        for number, (question, answers) in enumerate(_pairs(row, path)):
            tasks.append(
                Task(
                    key=f"memoryagentbench/{id}/{number}",
                    source="memoryagentbench",
                    input=question,
                    answers=answers,
                    verifier="contains_answer",
                    sessions=(told,),
                    tags={"type": kind, "split": split, "cluster": id},
                )
            )
    return tasks


def _asked_in(row: Mapping[str, Any]) -> Iterable[str]:
    for question, answers in zip(row["questions"], row["answers"], strict=False):
        yield f"{normalise(str(question))} {sorted(map(normalise, _texts(answers)))}"


def _pairs(row: Mapping[str, Any], path: Path) -> list[tuple[str, tuple[str, ...]]]:
    if len(row["questions"]) != len(row["answers"]):
        raise WrongFormat(
            f"{path}: a row has {len(row['questions'])} questions and {len(row['answers'])} answers.",
            "Get the file again.",
        )
    return [
        (str(question), _texts(answers)) for question, answers in zip(row["questions"], row["answers"], strict=True)
    ]


def _texts(value: Any) -> tuple[str, ...]:
    """What counts as right: a text, or any of several."""
    return tuple(dict.fromkeys(map(str, value))) if isinstance(value, list) and value else (str(value),)


def _right(value: Any) -> tuple[str, str]:
    """What is right as one text, and how it is judged: a product by its number, a plan by its words."""
    if isinstance(value, Mapping) and "target_asin" in value:
        return str(value["target_asin"]), "contains_answer"
    if isinstance(value, Mapping | list):
        return json.dumps(value, ensure_ascii=False), "token_f1"
    return str(value), "contains_answer"


# MemoryArena: tasks in a row, each of which needs what the ones before it found out (arXiv 2602.16313; CC BY 4.0).


def memory_arena(split: str, *, data: PathName | None = None) -> list[Task]:
    """The tasks of one side of a file `data.jsonl` of MemoryArena: bundled shopping, progressive search, group travel, or formal
    reasoning.

    A row is a chain of tasks. What is told before a task is its background and, for each task before it, what was asked and
    what was right: whether a memory brings that forward is measured, not how its own actions went, which takes the set's web
    sites and its model judge. Scored by `contains_answer` (of a
    product, by its number) or, for plans, `token_f1`. tags: type (category, or the paper), split, cluster (the row), step.
    No evidence is marked. Errors: MissingData, WrongFormat."""
    require_known("split", split, SPLITS)
    path = located(
        "MemoryArena",
        ("data.jsonl", "data.jsonl.gz"),
        data,
        folder="memoryarena",
        source="huggingface.co/datasets/ZexueHe/memoryarena (a folder for each kind of task)",
    )
    rows = {
        f"{number}-{each.get('id', number)}": each
        for number, each in enumerate(records(path, "MemoryArena", ("questions", "answers")))
    }
    side_of = sides({id: set(_asked_in(each)) for id, each in rows.items()})
    tasks = []
    for id, row in rows.items():
        if side_of[id] != split:
            continue
        whole = row.get("background")
        backgrounds = row.get("backgrounds") or ([whole] if whole else [])
        known: list[Session] = []
        for number, (question, _) in enumerate(_pairs(row, path)):
            answer, verifier = _right(row["answers"][number])
            own = [str(backgrounds[number])] if number < len(backgrounds) and backgrounds[number] else []
            if own:
                known.append(passage(name_of("memoryarena", id, number, "background"), own))
            tasks.append(
                Task(
                    key=f"memoryarena/{id}/{number}",
                    source="memoryarena",
                    input=question,
                    answers=(answer,),
                    verifier=verifier,
                    sessions=tuple(known),
                    tags={
                        "type": str(row.get("category", row.get("paper_name", ""))),
                        "split": split,
                        "cluster": id,
                        "step": str(number),
                    },
                )
            )
            done = [f"Task: {question}", f"What was right: {answer}"]
            known.append(passage(name_of("memoryarena", id, number), done, "log"))
    return tasks


# LifelongAgentBench: tasks on databases and knowledge graphs, whose skills come again (arXiv 2505.11942).


def lifelong_agent_bench(split: str, *, data: PathName | None = None, memories: int = 100) -> list[Task]:
    """The tasks of one side of a file of LifelongAgentBench: database tasks (`answer_info`) or knowledge graph tasks
    (`answer_list`), as one JSON object by number.

    What is told are the first `memories` tasks of the train side with what solved them; those are asked nowhere. Database tasks
    are answered in SQL and scored by `exact_match` with the set's own statement: a lower bound, since another statement may
    do the same, and no database is run here. Knowledge graph tasks are scored by `set_f1` over names. Tasks on an operating
    system need its container and are refused. tags: type (the first skill), split, skills. No evidence is marked.

    Errors: MissingData, WrongFormat."""
    require_known("split", split, SPLITS)
    if memories < 0:
        raise KeepworthError(f"memories={memories}: there are 0 or more.", "Write 0 or another number.")
    path = located(
        "LifelongAgentBench",
        ("db_bench.json", "knowledge_graph.json", "data.json"),
        data,
        folder="lifelongagentbench",
        source="huggingface.co/datasets/csyq/LifelongAgentBench",
    )
    found = {str(each.get("id", number)): each for number, each in enumerate(records(path, "LifelongAgentBench"))}
    read = {id: _lifelong(each, path) for id, each in found.items()}
    side_of = sides({id: {normalise(question)} for id, (question, _, _) in read.items()})
    train = [id for id in read if side_of[id] == "train"]
    told = train[: min(memories, len(train) // 2)]
    haystack = tuple(
        passage(name_of("lifelong", id), [f"Task: {read[id][0]}", f"What solved it: {read[id][1]}"], "log")
        for id in told
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
                "type": str(next(iter(found[id].get("skill_list") or ["none"]))),
                "split": split,
                "skills": " ".join(map(str, found[id].get("skill_list") or [])),
            },
        )
        for id, (question, answer, verifier) in read.items()
        if side_of[id] == split and id not in told
    ]


def _lifelong(record: Mapping[str, Any], path: Path) -> tuple[str, str, str]:
    """What is asked, what is right, and how that is judged."""
    if "answer_info" in record and "table_info" in record:
        table = record["table_info"]
        columns = ", ".join(f"{each['name']} {each['type']}" for each in table["column_info_list"])
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


# tau2-bench: customers who want something, tools that can do it, and a policy (github.com/sierra-research/tau2-bench; MIT).


def tau2_bench(split: str, *, data: PathName | None = None, memories: int = 20) -> list[Task]:
    """The tasks of one domain of tau2-bench: a folder with `tasks.json`, and `policy.md` and `split_tasks.json` if there are any.

    Only its task files are read: which tools does what this customer wants take, each once (`set_f1` over their names, "none"
    where nothing may be done)? Its own reward compares the database after a talk with a simulated user, for which run their
    simulator with a memory behind an endpoint. What is told is the policy, and the first `memories` tasks of the train side with
    their tools, which are asked nowhere. Sides are those of `split_tasks.json` (dev is a tenth of its train), else the rule of
    `splits`. tags: type (the domain), split. No evidence is marked. Errors: MissingData, WrongFormat."""
    require_known("split", split, SPLITS)
    if memories < 0:
        raise KeepworthError(f"memories={memories}: there are 0 or more.", "Write 0 or another number.")
    source = "github.com/sierra-research/tau2-bench (data/tau2/domains/DOMAIN)"
    path = located("tau2-bench", ("tasks.json",), data, folder="tau2", source=source)
    found = {
        str(each["id"]): each for each in records(path, "tau2-bench", ("id", "user_scenario", "evaluation_criteria"))
    }
    wanted = {id: _wanted(each) for id, each in found.items()}
    side_of = sides({id: {normalise(text)} for id, text in wanted.items()})
    cut = path.parent / "split_tasks.json"
    if cut.is_file():
        given = json.loads(cut.read_text(encoding="utf-8"))
        fixed = {str(id): part for part in ("train", "test") for id in given.get(part, ())}
        own = {id: "dev" if fixed[id] == "train" and side_of[id] == "dev" else fixed[id] for id in found if id in fixed}
        # Tasks that ask the same in other words' spelling keep together: with a test task they are no train task.
        tested = {normalise(wanted[id]) for id, part in own.items() if part == "test"}
        side_of = {id: part for id, part in own.items() if part == "test" or normalise(wanted[id]) not in tested}
    train = [id for id, part in side_of.items() if part == "train"]
    told = train[: min(memories, len(train) // 2)]
    haystack = [passage(name_of("tau2", id), [f"{wanted[id]} It took: {_tools(found[id])}"], "log") for id in told]
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
            answers=(_tools(found[id]),),
            verifier="set_f1",
            sessions=tuple(haystack),
            tags={"type": path.parent.name, "split": split},
        )
        for id, part in side_of.items()
        if part == split and id not in told
    ]


def _wanted(record: Mapping[str, Any]) -> str:
    said = record["user_scenario"]["instructions"]
    if isinstance(said, str):
        return " ".join(said.split())
    parts: Sequence[str] = ("reason_for_call", "known_info", "task_instructions")
    return " ".join(" ".join(str(said[part]).split()) for part in parts if said.get(part))


def _tools(record: Mapping[str, Any]) -> str:
    actions = (record["evaluation_criteria"] or {}).get("actions") or ()
    return "; ".join(dict.fromkeys(str(action["name"]) for action in actions)) or "none"
