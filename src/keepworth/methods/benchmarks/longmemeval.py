"""LongMemEval: the shipped edition, alone or among sessions of other users, and other editions by path (S, M, the cleaned
ones)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from keepworth.base.metrics import normalise
from keepworth.records.episode import Session, Task, Turn
from keepworth.registry import Method
from keepworth.worlds.benchmark import Benchmark
from keepworth.worlds.data_files import WrongFormat
from keepworth.worlds.data_sets.files import PathName, assign_sides, find_data, read_records
from keepworth.worlds.data_sets.longmemeval import longmemeval, longmemeval_shared
from keepworth.worlds.data_sets.longmemeval_questions import gold_answers, iso_date, questions
from keepworth.worlds.data_sets.passages import name_of

_S = (
    *("longmemeval_s_cleaned.json", "longmemeval_s.json", "longmemeval_s"),
    *("longmemeval_m_cleaned.json", "longmemeval_m.json", "longmemeval_m", "longmemeval_oracle.json"),
)
_FIELDS = ("question_id", "question_type", "question", "answer", "haystack_sessions", "answer_session_ids")


def longmemeval_file(split: str, *, data: PathName | None = None, abstention: bool = False) -> list[Task]:
    """Returns the tasks of one split of a file in LongMemEval's format, with the haystacks that are in it.

    Sides are those of the edition that ships, by the question's id; questions that it lacks follow the rule of `splits`, tied
    by evidence. Sessions are renamed: the names of evidence sessions in the file begin with "answer". M is a file of
    gigabytes, read whole. The tags are type, split, abstention. Raises MissingData.

    Args:
        split: "train", "dev" or "test".
        data: The file, or its folder; None reads KEEPWORTH_DATA.
        abstention: Whether questions that must be declined are asked.
    """
    source = "huggingface.co/datasets/xiaowu0162/longmemeval-cleaned"
    names = tuple(name + end for name in _S for end in ("", ".gz"))
    path = find_data("LongMemEval S or M", names, data, folder="longmemeval", source=source)
    records_by_id = {str(record["question_id"]): record for record in read_records(path, "LongMemEval", _FIELDS)}
    split_of = {question.id: question.split for question in questions()}
    marks = {
        id: {*map(str, record["answer_session_ids"]), f"question {normalise(str(record['question']))}"}
        for id, record in records_by_id.items()
    }
    side_of = assign_sides(marks)
    return [
        _task(id, record, split)
        for id, record in records_by_id.items()
        if split_of.get(id, side_of[id]) == split and (abstention or not id.endswith("_abs"))
    ]


def _task(id: str, record: Mapping[str, Any], split: str) -> Task:
    ids, dates = record["haystack_session_ids"], record["haystack_dates"]
    if not len(ids) == len(dates) == len(record["haystack_sessions"]):
        raise WrongFormat(
            f"question {id}: it has {len(record['haystack_sessions'])} sessions, {len(ids)} ids and {len(dates)} dates.",
            "Get the file again.",
        )
    sessions_by_id: dict[str, Session] = {}
    for name, date, turns in zip(ids, dates, record["haystack_sessions"], strict=True):
        session_id = name_of("longmemeval", name)
        spoken = (
            Turn(str(turn["role"]), str(turn["content"]), index, bool(turn.get("has_answer")))
            for index, turn in enumerate(turns)
            if str(turn["content"]).strip()
        )
        sessions_by_id.setdefault(session_id, Session(session_id, iso_date(str(date)), tuple(spoken)))
    haystack = sorted(sessions_by_id.values(), key=lambda session: (session.date, session.id))
    evidence = [name_of("longmemeval", name) for name in record["answer_session_ids"]]
    return Task(
        key=f"longmemeval-file/{id}",
        source="longmemeval-file",
        input=str(record["question"]),
        answers=gold_answers(record["answer"]),
        verifier="token_f1",
        asked_at=iso_date(str(record["question_date"])) if record.get("question_date") else "",
        sessions=tuple(haystack),
        evidence=tuple(session for session in evidence if session in sessions_by_id),
        tags={"type": str(record["question_type"]), "split": split, "abstention": str(id.endswith("_abs")).lower()},
    )


LONGMEMEVAL = Method(
    kind="benchmark",
    name="longmemeval",
    title="LongMemEval",
    paper="arXiv 2410.10813",
    about="Answer questions about a user's own chats from the sessions that hold the answer",
    tags=("factual",),
    differs="It is the oracle edition: a haystack has only the sessions with evidence, unlike LongMemEval_S.",
    make=Benchmark("longmemeval", longmemeval, licence="MIT", shipped=True),
)
METHODS = (
    LONGMEMEVAL,
    replace(
        LONGMEMEVAL,
        name="longmemeval+50",
        title="LongMemEval among 50 sessions",
        about="Answer LongMemEval's questions among 50 sessions of other users",
        differs="Distractors are sessions with the evidence of other questions.",
        make=Benchmark("longmemeval+50", longmemeval, licence="MIT", shipped=True, dials={"distractors": 50}),
    ),
    replace(
        LONGMEMEVAL,
        name="longmemeval+500",
        title="LongMemEval over one haystack",
        about="Answer LongMemEval's questions over one haystack of all evidence and 500 sessions more",
        differs="All questions of a split share one haystack.",
        make=Benchmark("longmemeval+500", longmemeval_shared, licence="MIT", shipped=True),
    ),
    replace(
        LONGMEMEVAL,
        name="longmemeval-file",
        title="LongMemEval from a file",
        about="Answer the questions of LongMemEval S, M or another file of its shape",
        differs="Answers are judged by F1 of words, not by a model.",
        make=Benchmark("longmemeval-file", longmemeval_file, licence="MIT"),
    ),
)
