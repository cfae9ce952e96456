"""LongMemEval's other editions, by path: S, M and the cleaned ones (a file like the one that ships), and V2 (a folder).

S and M have the shape on which `tasks.longmemeval` rests. That of V2 (arXiv 2605.12493; Apache-2.0) is checked on a fixture
written after its public code, never run on the set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from keepworth.episodes.episode import Session, Task, Turn
from keepworth.episodes.errors import KeepworthError, require_known
from keepworth.tasks.benchmarks.passages import name_of, passage
from keepworth.tasks.data_files import PathName, WrongFormat, located, records
from keepworth.tasks.longmemeval import gold_answers, iso_date, questions
from keepworth.tasks.metrics import normalise
from keepworth.tasks.splits import SPLITS, sides

_S = (
    *("longmemeval_s_cleaned.json", "longmemeval_s.json", "longmemeval_s"),
    *("longmemeval_m_cleaned.json", "longmemeval_m.json", "longmemeval_m", "longmemeval_oracle.json"),
)
_FIELDS = ("question_id", "question_type", "question", "answer", "haystack_sessions", "answer_session_ids")


def longmemeval_file(split: str, *, data: PathName | None = None, abstention: bool = False) -> list[Task]:
    """The tasks of one split of a file of LongMemEval's own shape, with the haystacks that are in it.

    Sides are those of the edition that ships, by the question's id; questions that it lacks follow the rule of `splits`, tied by
    evidence. Sessions are renamed: the names of evidence sessions in the file begin with "answer". abstention: whether
    questions that must be declined are asked. M is a file of gigabytes, read whole. tags: type, split, abstention.

    Errors: MissingData, WrongFormat, UnknownName."""
    require_known("split", split, SPLITS)
    source = "huggingface.co/datasets/xiaowu0162/longmemeval-cleaned"
    names = tuple(name + end for name in _S for end in ("", ".gz"))
    path = located("LongMemEval S or M", names, data, folder="longmemeval", source=source)
    found = {str(each["question_id"]): each for each in records(path, "LongMemEval", _FIELDS)}
    known = {question.id: question.split for question in questions()}
    marks = {
        id: {*map(str, each["answer_session_ids"]), f"question {normalise(str(each['question']))}"}
        for id, each in found.items()
    }
    own = sides(marks)
    return [
        _task(id, each, split)
        for id, each in found.items()
        if known.get(id, own[id]) == split and (abstention or not id.endswith("_abs"))
    ]


def _task(id: str, record: Mapping[str, Any], split: str) -> Task:
    ids, dates = record["haystack_session_ids"], record["haystack_dates"]
    if not len(ids) == len(dates) == len(record["haystack_sessions"]):
        raise WrongFormat(
            f"question {id}: it has {len(record['haystack_sessions'])} sessions, {len(ids)} ids and {len(dates)} dates.",
            "Get the file again.",
        )
    told: dict[str, Session] = {}
    for name, date, turns in zip(ids, dates, record["haystack_sessions"], strict=True):
        own = name_of("longmemeval", name)
        spoken = (
            Turn(str(turn["role"]), str(turn["content"]), place, bool(turn.get("has_answer")))
            for place, turn in enumerate(turns)
            if str(turn["content"]).strip()
        )
        told.setdefault(own, Session(own, iso_date(str(date)), tuple(spoken)))
    haystack = sorted(told.values(), key=lambda session: (session.date, session.id))
    evidence = [name_of("longmemeval", name) for name in record["answer_session_ids"]]
    return Task(
        key=f"longmemeval-file/{id}",
        source="longmemeval-file",
        input=str(record["question"]),
        answers=gold_answers(record["answer"]),
        verifier="token_f1",
        asked_at=iso_date(str(record["question_date"])) if record.get("question_date") else "",
        sessions=tuple(haystack),
        evidence=tuple(session for session in evidence if session in told),
        tags={"type": str(record["question_type"]), "split": split, "abstention": str(id.endswith("_abs")).lower()},
    )


# V2: questions about what agents met on the web and in an enterprise, over trajectories of them.


def longmemeval_v2(split: str, *, data: PathName | None = None, tier: str = "small", words: int = 400) -> list[Task]:
    """The tasks of one split of LongMemEval-V2: `questions.jsonl`, `trajectories.jsonl`, `haystacks/lme_v2_{tier}.json`.

    A trajectory is a session, a state of it a turn: address, thought, action and the first `words` words of the page. Pictures
    are left out, and questions with one are too. Which trajectory holds the answer the set does not say, so no evidence is
    marked. tier: "small" or "medium". The set judges some answers with a model; here all are scored by token F1, and
    tags["judged by"] names theirs. tags: type, split, cluster (the domain and the trajectories, as questions share them).

    Errors: MissingData, WrongFormat, UnknownName."""
    require_known("split", split, SPLITS)
    require_known("tier", tier, ("small", "medium"))
    if words < 1:
        raise KeepworthError(f"words={words}: a state has 1 or more.", "Write words=400 or another number.")

    def read(file: str, *fields: str) -> Sequence[Mapping[str, Any]]:
        source = "huggingface.co/datasets/xiaowu0162/longmemeval-v2"
        path = located("LongMemEval-V2", (file,), data, folder="longmemeval-v2", source=source, several=True)
        return records(path, "LongMemEval-V2", fields)

    asked = read("questions.jsonl", "id", "domain", "question", "answer")
    told = {str(each["id"]): each for each in read("trajectories.jsonl", "id", "states")}
    haystacks = read(f"haystacks/lme_v2_{tier}.json")[0]
    side_of = sides({str(each["id"]): {normalise(str(each["question"]))} for each in asked})
    made: dict[str, Session] = {}
    tasks = []
    for question in asked:
        id = str(question["id"])
        if side_of[id] != split or question.get("image"):
            continue
        names = [str(name) for name in haystacks.get(id, ())]
        missing = [name for name in names if name not in told]
        if missing or not names:
            lacks = f"trajectory {missing[0]}" if missing else f"haystack of the question {id}"
            raise WrongFormat(f"LongMemEval-V2 here has no {lacks}.", "Get all its files anew.")
        for name in names:
            if name not in made:
                made[name] = _trajectory(told[name], words)
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
        said = " ".join(f"{name}: {value}" for name, value in parts.items() if value)
        texts += [said] if said else []
    texts += [f"The outcome was: {record['outcome']}"] if record.get("outcome") else []
    return passage(name_of("longmemeval-v2", record["id"]), texts, "agent")
