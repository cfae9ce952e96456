"""LongMemEval-V2: questions about what agents met on web sites, over their trajectories (arXiv 2605.12493; Apache-2.0).

The loader was tested on a fixture written after its public code, never on the set itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from keepworth.base.errors import KeepworthError, require_known
from keepworth.base.metrics import normalise
from keepworth.records.episode import Session, Task
from keepworth.registry import Method
from keepworth.worlds.benchmark import Benchmark
from keepworth.worlds.data_files import WrongFormat
from keepworth.worlds.data_sets.files import PathName, assign_sides, find_data, read_records
from keepworth.worlds.data_sets.passages import name_of, passage


def longmemeval_v2(split: str, *, data: PathName | None = None, tier: str = "small", words: int = 400) -> list[Task]:
    """Returns the tasks of one split of LongMemEval-V2: `questions.jsonl`, `trajectories.jsonl`, `haystacks/lme_v2_{tier}.json`.

    A trajectory is a session, each of its states a turn: address, thought, action and the beginning of the page. Pictures and
    questions with one are left out. The set does not say which trajectory holds the answer, so no evidence is marked. The set
    judges some answers with a model; here all are scored by token F1, and tags["judged by"] names theirs. The tags are type,
    split, cluster (the domain and the trajectories, as questions share them).

    Raises MissingData, WrongFormat, UnknownName.

    Args:
        split: "train", "dev" or "test".
        data: The folder of the three files; None reads KEEPWORTH_DATA.
        tier: "small" or "medium", which is how large haystacks are.
        words: The words of a page that a turn holds, at most.
    """
    require_known("tier", tier, ("small", "medium"))
    if words < 1:
        raise KeepworthError(f"words={words}: a state has 1 or more.", "Write words=400 or another number.")

    def read(file: str, *fields: str) -> Sequence[Mapping[str, Any]]:
        source = "huggingface.co/datasets/xiaowu0162/longmemeval-v2"
        path = find_data("LongMemEval-V2", (file,), data, folder="longmemeval-v2", source=source, several=True)
        return read_records(path, "LongMemEval-V2", fields)

    questions = read("questions.jsonl", "id", "domain", "question", "answer")
    trajectories = {str(trajectory["id"]): trajectory for trajectory in read("trajectories.jsonl", "id", "states")}
    haystacks = read(f"haystacks/lme_v2_{tier}.json")[0]
    side_of = assign_sides({str(question["id"]): {normalise(str(question["question"]))} for question in questions})
    made: dict[str, Session] = {}
    tasks = []
    for question in questions:
        id = str(question["id"])
        if side_of[id] != split or question.get("image"):
            continue
        names = [str(name) for name in haystacks.get(id, ())]
        missing = [name for name in names if name not in trajectories]
        if missing or not names:
            lacks = f"trajectory {missing[0]}" if missing else f"haystack of the question {id}"
            raise WrongFormat(f"LongMemEval-V2 here has no {lacks}.", "Get all its files anew.")
        for name in names:
            if name not in made:
                made[name] = _trajectory(trajectories[name], words)
        tasks.append(
            Task(
                key=f"longmemeval-v2/{id}",
                source=f"longmemeval-v2-{tier}",
                input=str(question["question"]),
                answers=(str(question["answer"]),),
                verifier="token_f1",
                sessions=tuple(made[name] for name in names),
                tags={
                    "type": str(question.get("question_type", question["domain"])),
                    "split": split,
                    "cluster": f"{question['domain']} {name_of(*sorted(names))}",
                    "judged by": str(question.get("eval_function", "")),
                },
            )
        )
    return tasks


def _trajectory(record: Mapping[str, Any], words: int) -> Session:
    texts = [f"The goal is: {record['goal']}"] if record.get("goal") else []
    for state in record["states"]:
        page = " ".join(str(state.get("accessibility_tree", state.get("text")) or "").split()[:words])
        parts = {
            "At": state.get("url"),
            "Thought": state.get("thought", state.get("thoughts")),
            "Action": state.get("action"),
            "Page": page,
        }
        text = " ".join(f"{name}: {value}" for name, value in parts.items() if value)
        texts += [text] if text else []
    texts += [f"The outcome was: {record['outcome']}"] if record.get("outcome") else []
    return passage(name_of("longmemeval-v2", record["id"]), texts, "agent")


METHOD = Method(
    kind="benchmark",
    name="longmemeval-v2",
    title="LongMemEval-V2",
    paper="arXiv 2605.12493",
    about="Answer what agents met on web sites, from their trajectories",
    tags=("experiential",),
    differs=(
        "Pictures are left out and answers are judged by F1 of words; the loader was tested only on made-up files."
    ),
    label="protocol",
    make=Benchmark("longmemeval-v2", longmemeval_v2),
)
