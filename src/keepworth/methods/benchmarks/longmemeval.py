"""LongMemEval: the shipped edition, alone or among sessions of other users, and other editions by path (S, M, the cleaned
ones)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from keepworth.base.errors import KeepworthError, require_known
from keepworth.base.metrics import normalise
from keepworth.records.episode import Session, Task, Turn
from keepworth.registry import Method
from keepworth.worlds.benchmark import Benchmark
from keepworth.worlds.data_files import WrongFormat
from keepworth.worlds.data_sets.competing import rivals_of, tokenise_turns
from keepworth.worlds.data_sets.files import PathName, assign_sides, find_data, read_records
from keepworth.worlds.data_sets.longmemeval import content_of, longmemeval, sessions_of
from keepworth.worlds.data_sets.longmemeval_questions import gold_answers, iso_date, questions
from keepworth.worlds.data_sets.passages import name_of
from keepworth.worlds.json_lines import mark_evidence
from keepworth.worlds.splits import SPLITS, draw_order

_S = (
    *("longmemeval_s_cleaned.json", "longmemeval_s.json", "longmemeval_s"),
    *("longmemeval_m_cleaned.json", "longmemeval_m.json", "longmemeval_m", "longmemeval_oracle.json"),
)
_FIELDS = ("question_id", "question_type", "question", "answer", "haystack_sessions", "answer_session_ids")


def longmemeval_shared(split: str, *, distractors: int = 500, seed: int = 0) -> list[Task]:
    """Returns the tasks of one split over one haystack: the evidence of all its questions, and `distractors` more sessions,
    or as many as there are, that are not evidence of any question.

    Distractors come from earlier sides only: "test" takes sessions of "train" and "dev", "dev" of "train", and "train" takes
    none, so that a system which learns on one side never meets a session of a later one. To a system without training, a session
    of another side is a stranger's like any other. One trained on "train" may have memorised some, which helps it to ignore
    them: tags["seen in training"] counts them, and distractors=0 leaves them out.

    Sessions that compete with no question (`competing.competes`) come first, then those that compete with the fewest. The number
    of competing sessions, evidence of other questions included, is tags["competing"], so that results can exclude such questions.
    In a haystack of many people it is not certain that something was never said: abstention questions are left out.
    Sessions may be dated after a question. Sessions of equal text are one, which keeps the date of the smallest question id.

    tags: as `longmemeval`, and competing, "seen in training", later (sessions dated after the question), redated ("true" where an
    evidence session stands on another day than in the question's own haystack).

    Args:
        split: "train", "dev" or "test".
        distractors: The sessions that are added to the evidence, at most.
        seed: It decides which of equally good distractors are taken, and the names of the sessions.
    """
    require_known("split", split, SPLITS)
    if distractors < 0:
        raise KeepworthError(f"distractors={distractors}: there are 0 or more.", "Write 0 or another number.")
    asked = [(task, _evidence_of(task)) for task in longmemeval(split, abstention=False)]
    evidence_sessions: dict[tuple[str, ...], Session] = {}
    for _, held in asked:
        for session in held:
            evidence_sessions.setdefault(content_of(session), mark_evidence(session))
    earlier = {name: sessions_of(name) for name in SPLITS[: SPLITS.index(split)]}
    rivals = {task.key: rivals_of(task.input, task.answers) for task, _ in asked}

    def rank(session: Session) -> tuple[int, str]:
        text = tokenise_turns(session)
        return sum(competes_with(text) for competes_with in rivals.values()), draw_order(seed, "shared", session.id)

    strangers = [
        session for group in earlier.values() for session in group if content_of(session) not in evidence_sessions
    ]
    drawn = sorted(strangers, key=rank)[:distractors]
    trained_on = {session.id for session in earlier.get("train", ())}
    from_training = sum(session.id in trained_on for session in drawn)
    haystack = sorted((*evidence_sessions.values(), *drawn), key=lambda session: (session.date, session.id))
    said_in = [(session.id, tokenise_turns(session)) for session in haystack]
    tasks = []
    for task, held in asked:
        evidence = {evidence_sessions[content_of(session)].id: session for session in held}
        sessions = tuple(
            replace(session, turns=evidence[session.id].turns) if session.id in evidence else session
            for session in haystack
        )
        more = {
            "distractors": str(len(haystack) - len(evidence)),
            "competing": str(sum(rivals[task.key](text) for id, text in said_in if id not in evidence)),
            "seen in training": str(from_training),
            "later": str(sum(session.date > task.asked_at for session in haystack)),
            "redated": str(
                any(evidence_sessions[content_of(session)].date[:10] != session.date[:10] for session in held)
            ).lower(),
        }
        source = f"longmemeval-oracle-shared+{len(drawn)}"
        tasks.append(
            replace(task, source=source, sessions=sessions, evidence=tuple(evidence), tags={**task.tags, **more})
        )
    return tasks


def _evidence_of(task: Task) -> list[Session]:
    sessions_by_id = {session.id: session for session in task.sessions}
    return [sessions_by_id[id] for id in task.evidence]


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
