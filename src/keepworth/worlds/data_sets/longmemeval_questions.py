"""The questions of LongMemEval, oracle variant, as the package ships them (Wu et al., ICLR 2025, arXiv 2410.10813; MIT)."""

from __future__ import annotations

import hashlib
import json
import lzma
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from importlib import resources
from typing import Any

from keepworth.base.metrics import tokens
from keepworth.records.episode import Session, Turn
from keepworth.worlds.entries import covers
from keepworth.worlds.splits import side, tied

TYPES = (
    "knowledge-update",
    "multi-session",
    "single-session-assistant",
    "single-session-preference",
    "single-session-user",
    "temporal-reasoning",
)
EXTRACTIVE_TYPES = ("knowledge-update", "multi-session", "single-session-user", "temporal-reasoning")
_SHARED_TURN = 8  # normalised words; a shorter turn ("Thanks, that helps!") may recur by chance


@dataclass(frozen=True, slots=True)
class LongMemEvalQuestion:
    """One question of the file. `sessions` are its evidence sessions in order of date, `tie` the smallest id of its tied set."""

    id: str
    type: str
    text: str
    answers: tuple[str, ...]
    asked_at: str
    sessions: tuple[Session, ...]
    split: str
    tie: str
    abstention: bool
    extractive: bool


@lru_cache(maxsize=1)
def questions() -> tuple[LongMemEvalQuestion, ...]:
    """Returns all 500 questions, in order of id, with their splits.

    Questions are tied, and so on one side, if they share a session id or any turn of 8 or more normalised words. Ids alone do not
    suffice: most "..._abs" questions and many pairs of questions contain edited copies of each other's sessions under new ids.
    """
    records = sorted(_records(), key=lambda record: str(record["question_id"]))
    marks = {record["question_id"]: set(_marks(record)) for record in records}
    ties = tied(marks)
    return tuple(_question(record, ties[record["question_id"]]) for record in records)


def iso_date(text: str) -> str:
    """Converts `2023/05/20 (Sat) 02:21` to ISO 8601, `2023-05-20T02:21`."""
    return datetime.strptime(re.sub(r"\s*\(\w+\)", "", text), "%Y/%m/%d %H:%M").isoformat(timespec="minutes")


def gold_answers(answer: str | int) -> tuple[str, ...]:
    """Returns the answers that count as right, as the key's prose states them.

    `7 days. 8 days (including the last day) is also acceptable.` gives `7 days` and `8 days`; `One week. Answers ranging from 7
    days to 10 days are also acceptable.` gives `One week` and the four numbers of days; anything else is one answer.
    """
    text = str(answer).strip()
    ranged = re.fullmatch(r"(.+?)\. Answers ranging from (\d+) (\w+) to (\d+) \3 are also acceptable\.", text)
    if ranged:
        return (ranged[1], *(f"{n} {ranged[3]}" for n in range(int(ranged[2]), int(ranged[4]) + 1)))
    second = re.fullmatch(r"(.+?)\. (.+?)(?: \([^)]*\))? is also acceptable\.", text)
    return (second[1], second[2]) if second else (text,)


def _question(record: dict[str, Any], tie: str) -> LongMemEvalQuestion:
    identifier, kind = str(record["question_id"]), str(record["question_type"])
    answers = gold_answers(record["answer"])
    sessions = sorted(_sessions(record), key=lambda session: (session.date, session.id))
    abstention = identifier.endswith("_abs")
    evidence = [turn.text for session in sessions for turn in session.turns if turn.evidence and turn.speaker == "user"]
    return LongMemEvalQuestion(
        id=identifier,
        type=kind,
        text=str(record["question"]),
        answers=answers,
        asked_at=iso_date(str(record["question_date"])),
        sessions=tuple(sessions),
        split=side(tie),
        tie=tie,
        abstention=abstention,
        extractive=not abstention and kind in EXTRACTIVE_TYPES and any(covers(gold, evidence) for gold in answers),
    )


def _sessions(record: dict[str, Any]) -> Iterable[Session]:
    for identifier, date, turns in zip(
        record["haystack_session_ids"], record["haystack_dates"], record["haystack_sessions"], strict=True
    ):
        yield Session(
            id=identifier,
            date=iso_date(date),
            turns=tuple(
                Turn(speaker=turn["role"], text=turn["content"], index=index, evidence=bool(turn.get("has_answer")))
                for index, turn in enumerate(turns)
            ),
        )


def _marks(record: dict[str, Any]) -> Iterable[str]:
    for session in _sessions(record):
        yield f"session {session.id}"
        for turn in session.turns:
            words = tokens(turn.text)
            if len(words) >= _SHARED_TURN:
                yield "turn " + hashlib.sha256(" ".join(words).encode()).hexdigest()


def _records() -> list[dict[str, Any]]:
    packed = resources.files("keepworth.worlds").joinpath("data/longmemeval/longmemeval_oracle.json.xz").read_bytes()
    records: list[dict[str, Any]] = json.loads(lzma.decompress(packed))
    return records
