"""LoCoMo as tasks: ten very long conversations of two people with 1,986 questions (Maharana et al., ACL 2024, arXiv
2402.17753).

The data is CC BY-NC 4.0 and is never shipped: it is read from a path that the user names.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from keepworth.base.errors import require_known
from keepworth.records.episode import Session, Task, Turn
from keepworth.registry import Method
from keepworth.worlds.benchmark import Benchmark
from keepworth.worlds.data_files import MissingData, WrongFormat
from keepworth.worlds.data_sets.files import find_data, read_records
from keepworth.worlds.json_lines import mark_evidence
from keepworth.worlds.splits import SPLITS

CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
PROTOCOLS: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "memory-r1": {"train": (0,), "dev": (1,), "test": tuple(range(2, 10))},
    "wide": {"train": tuple(range(6)), "dev": (6, 7), "test": (8, 9)},
}
# Answers that the benchmark's own scoring accepts for an unanswerable question.
UNANSWERABLE = ("No information available", "Not mentioned")
_NAMES = ("locomo10.json.gz", "locomo10.json")
_CORRECTIONS = "answer_key_errors.json"
_Corrections = Mapping[str, Mapping[str, Any]]
_EVIDENCE = re.compile(r"D:?(\d+):(\d+)")
# Remarks of the audit in brackets after an answer, which are not part of it.
_REMARK = re.compile(r"\s*\((?:[^()]*\bcorrect\b|but |D\d|from |per |as stated)[^()]*\)$")


def locomo(
    split: str,
    *,
    data: str | os.PathLike[str] | None = None,
    protocol: str = "memory-r1",
    categories: Sequence[str] | None = None,
    corrected: bool = False,
) -> list[Task]:
    """Returns the tasks of one split by conversation, in the order of the file; the haystack is the whole conversation.

    Adversarial questions cannot be answered: their answers are UNANSWERABLE. Turns that show a photo carry its caption in
    brackets. The tags are type, split, conversation, abstention, correction ("" for none), unresolved (evidence marks of the
    file that name no turn).

    Raises UnknownName; MissingData, which says what was looked for and where, and how to get it.

    Args:
        split: "train", "dev" or "test".
        data: `locomo10.json[.gz]`, the folder that holds it, or a folder with a folder `locomo`; None reads the environment
            variable KEEPWORTH_DATA.
        protocol: "memory-r1" is conversation 0 train, 1 dev (the paper's validation), 2 to 9 test: 152 / 81 / 1,307 questions
            without the adversarial ones (arXiv 2508.19828); "wide" is 0-5, 6-7, 8-9, for more training data.
        categories: Names of CATEGORIES; None is all but "adversarial". Papers permute these names; here they follow the ids
            of the file.
        corrected: Whether to apply `answer_key_errors.json`, expected next to the data (errors.json of
            github.com/dial481/locomo-audit: 156 documented faults). Citations are replaced; answers too, but for faults of
            citation alone. tags["correction"] names the fault. Several corrections explain why the question is wrong and are
            no answer, so leave tasks with that tag out where this matters.
    """
    require_known("split", split, SPLITS)
    require_known("protocol", protocol, PROTOCOLS)
    for name in categories or ():
        require_known("category", name, CATEGORIES.values())
    if categories is not None and not categories:
        raise ValueError("categories=() leaves no question: name at least one, or leave it out for all but adversarial")
    wanted = {*CATEGORIES.values()} - {"adversarial"} if categories is None else {*categories}
    path = find(data)
    corrections = _corrections(path.parent / _CORRECTIONS) if corrected else {}
    conversations = PROTOCOLS[protocol][split]
    tasks = (task for number in conversations for task in _conversation(path, number, split, corrections))
    return [task for task in tasks if task.tags["type"] in wanted]


def find(data: str | os.PathLike[str] | None = None) -> Path:
    """Returns the path of the data file. Raises MissingData, which says where it was looked for."""
    source = "github.com/snap-research/locomo (data/locomo10.json)"
    return find_data("LoCoMo", _NAMES, data, folder="locomo", source=source, licence="CC BY-NC 4.0")


def iso_date(text: str) -> str:
    """Converts `1:56 pm on 8 May, 2023` to ISO 8601, `2023-05-08T13:56`."""
    return datetime.strptime(text.strip().upper(), "%I:%M %p ON %d %B, %Y").isoformat(timespec="minutes")


def _conversation(path: Path, index: int, split: str, corrections: _Corrections) -> list[Task]:
    conversations = read_records(path, "LoCoMo", ("conversation", "qa"))
    if index >= len(conversations):
        raise WrongFormat(
            f"{path} holds {len(conversations)} conversations; number {index} is needed.", "Get the full locomo10.json."
        )
    record = conversations[index]
    sessions, places = _sessions(record["conversation"], f"locomo_{index}")
    return [
        _task(question, f"locomo_{index}_qa{number}", index, split, sessions, places, corrections)
        for number, question in enumerate(record["qa"])
    ]


def _task(
    question: Mapping[str, Any],
    identifier: str,
    conversation: int,
    split: str,
    sessions: Sequence[Session],
    places: Mapping[str, tuple[str, int]],
    corrections: _Corrections,
) -> Task:
    category = CATEGORIES[int(str(question["category"]))]
    adversarial = category == "adversarial"
    text = str(question["question"])
    answers = UNANSWERABLE if adversarial else (str(question["answer"]),)
    cited: Sequence[str] = question["evidence"]
    correction = corrections.get(identifier)
    if correction:
        if correction["question"].strip() != text.strip():
            raise ValueError(
                f"{_CORRECTIONS}: {identifier} is about {correction['question']!r}, but the data has {text!r} there: "
                "versions differ"
            )
        cited = correction["correct_evidence"]
        if correction["error_type"] != "WRONG_CITATION" and not adversarial:
            answers = (_REMARK.sub("", str(correction["correct_answer"])),)
    marks = [f"D{int(a)}:{int(b)}" for citation in cited for a, b in _EVIDENCE.findall(citation)]
    evidence = {places[mark] for mark in marks if mark in places}
    haystack = tuple(
        mark_evidence(session, {turn for name, turn in evidence if name == session.id}) for session in sessions
    )
    unresolved = [mark for mark in marks if mark not in places] + [mark for mark in cited if not _EVIDENCE.search(mark)]
    return Task(
        key=f"locomo/{identifier}",
        source="locomo10-corrected" if corrections else "locomo10",
        input=text,
        answers=answers,
        verifier="token_f1",
        asked_at=sessions[-1].date,
        sessions=haystack,
        evidence=tuple(session.id for session in haystack if any(turn.evidence for turn in session.turns)),
        tags={
            "type": category,
            "split": split,
            "conversation": str(conversation),
            "abstention": "true" if adversarial else "false",
            "correction": correction["error_type"] if correction else "",
            "unresolved": " ".join(unresolved),
        },
    )


def _sessions(conversation: Mapping[str, Any], prefix: str) -> tuple[list[Session], dict[str, tuple[str, int]]]:
    """Returns the sessions in order, and for each dialogue id the session and turn it names."""
    numbers = sorted(int(match[1]) for match in (re.fullmatch(r"session_(\d+)", key) for key in conversation) if match)
    sessions: list[Session] = []
    places: dict[str, tuple[str, int]] = {}
    for number in numbers:
        name = f"{prefix}_session_{number}"
        turns: list[Turn] = []
        for index, turn in enumerate(conversation[f"session_{number}"]):
            caption = turn.get("blip_caption")
            turns.append(
                Turn(turn["speaker"], turn["text"] + (f" [shows a photo: {caption}]" if caption else ""), index)
            )
            places[turn["dia_id"]] = (name, index)
        sessions.append(Session(name, iso_date(str(conversation[f"session_{number}_date_time"])), tuple(turns)))
    return sessions, places


def _corrections(path: Path) -> _Corrections:
    if not path.is_file():
        raise MissingData(
            f"corrected=True needs {path}, which is not there.",
            "Get errors.json from github.com/dial481/locomo-audit and save it under that name.",
        )
    return {record["question_id"]: record for record in json.loads(path.read_text(encoding="utf-8"))}


LOCOMO = Method(
    kind="benchmark",
    name="locomo",
    title="LoCoMo",
    paper="arXiv 2402.17753",
    about="Answer questions about ten very long conversations of two people",
    tags=("factual",),
    make=Benchmark("locomo", locomo, licence="CC BY-NC 4.0"),
)
METHODS = (
    LOCOMO,
    replace(
        LOCOMO,
        name="locomo-corrected",
        title="LoCoMo, corrected",
        about="Answer LoCoMo's questions, with the answer key corrected by an audit",
        differs="The answer key of an audit replaces the published one.",
        make=Benchmark("locomo-corrected", locomo, licence="CC BY-NC 4.0", dials={"corrected": True}),
    ),
)
