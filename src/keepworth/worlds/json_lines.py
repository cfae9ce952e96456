"""Questions of the user: a file of JSON lines, with one haystack and its questions on each line.

    {"id": "chat-7",
     "writes": [{"id": "a", "text": "I moved to Leeds.", "speaker": "user", "time": "2026-01-03T10:00"}],
     "questions": [{"text": "Where do I live?", "answers": ["Leeds"], "evidence": ["a"]},
                   {"text": "What is my car called?", "unanswerable": true}]}

docs/benchmarks.md describes every field."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from keepworth.base.errors import nearest
from keepworth.records.episode import Session, Task, Turn
from keepworth.worlds.benchmark import LeakingSplit
from keepworth.worlds.data_files import WrongFormat, rows_of
from keepworth.worlds.splits import SPLITS
from keepworth.worlds.verifiers import ABSTAINED, VERIFIERS

TIME = re.compile(r"\d{4}-\d\d-\d\d([T ]([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?(Z|[+-]\d\d(:?\d\d)?)?)?", re.ASCII)
UNSAYABLE = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ud800-\udfff]")
LINE = ("id", "writes", "questions", "split", "cluster")
WRITE = ("text", "id", "speaker", "time", "session")
QUESTION = ("text", "answers", "options", "unanswerable", "evidence", "type", "time", "verifier", "id")
DECLINED = ("I don't know",)
"""The right answer that is shown for an unanswerable question where the file gives none."""


def json_lines(split: str, *, data: Path) -> list[Task]:
    """Reads the questions of one split. Raises WrongFormat, which names the file, the line and the field, and LeakingSplit where
    a line's id is in two splits."""
    lines = rows_of(data)
    sides, numbers = dict[str, str](), dict[str, str]()
    clusters, first_asked = dict[tuple[str, ...], str](), dict[tuple[str, ...], tuple[str, str]]()
    named = any("split" in line for _, line in lines)
    tasks: list[Task] = []
    for where, line in lines:
        number = where.rpartition(", ")[2]
        _known(line, LINE, where)
        side = str(_of(line, "split", str, where, "test"))
        if side not in SPLITS:
            raise WrongFormat(f"{where}: split is {side!r}.", f"Write one of {', '.join(SPLITS)}.")
        id = str(_of(line, "id", (str, int), where, number.rpartition(" ")[2]))
        if sides.setdefault(id, side) != side:
            raise LeakingSplit(
                f"{where}: the id {id!r} is in {sides[id]!r} and in {side!r}.", "Give each line its own id."
            )
        if numbers.setdefault(id, number) != number:
            raise WrongFormat(
                f"{where}: the id {id!r:.60} is that of {numbers[id]}.", "Give each line an id of its own."
            )
        tasks_of_line = _tasks(line, id, side, data.stem, where)
        # Copies are not independent: lines with the same writes are one cluster, whatever their ids.
        writes = tuple(_fold(turn.text) for session in tasks_of_line[0].sessions for turn in session.turns)
        alike = writes or tuple(_fold(task.input) for task in tasks_of_line)
        cluster = str(_of(line, "cluster", (str, int), where, "")) or clusters.get(alike, id)
        clusters.setdefault(alike, cluster)
        for task in tasks_of_line:
            before = first_asked.setdefault((*alike, "", _fold(task.input)), (cluster, number))
            if before[0] != cluster:
                raise WrongFormat(
                    f"{where}: {before[1]} asks {task.input!r:.60} of the same writes, in the cluster {before[0]!r:.60}.",
                    "Give both one cluster, or take one out.",
                )
        if side == split or not named:
            tasks += [replace(task, tags={**task.tags, "cluster": cluster}) for task in tasks_of_line]
    return tasks


def _fold(text: str) -> str:
    return " ".join(text.casefold().split())


def _tasks(line: Mapping[str, Any], id: str, side: str, source: str, where: str) -> list[Task]:
    sessions, places = sessions_of(line, id, where)
    questions = _of(line, "questions", list, where)
    if not questions:
        raise WrongFormat(f"{where}: there is no question.", 'Add "questions": [{"text": ..., "answers": [...]}].')
    tasks: list[Task] = []
    for number, question in enumerate(questions):
        at = f"{where}, question {number + 1}"
        _known(question, QUESTION, at)
        text = str(_of(question, "text", str, at))
        if not text.strip():
            raise WrongFormat(f"{at}: its text is empty.", "Leave it out, or ask something.")
        unanswerable = bool(_of(question, "unanswerable", bool, at, False))
        answers = _texts(question, "answers", at) or (DECLINED if unanswerable else ())
        options = _texts(question, "options", at)
        if not answers:
            fix = 'Add "answers": ["..."], or "unanswerable": true where the writes do not say.'
            raise WrongFormat(f"{at}: there is no right answer.", fix)
        if unanswerable and options:
            fix = "Leave it out, and name the option that says so as the answer."
            raise WrongFormat(f"{at}: unanswerable says nothing about a choice among options.", fix)
        if unanswerable and "verifier" in question:
            fix = "Leave the verifier out."
            raise WrongFormat(f"{at}: the answer to an unanswerable question is judged by whether it says so.", fix)
        if options and not set(answers) <= set(options):
            raise WrongFormat(f"{at}: the answer {answers[0]!r:.60} is none of its options.", "Spell it as the option.")
        marks = _texts(question, "evidence", at)
        for mark in marks:
            if mark not in places:
                raise WrongFormat(f"{at}: evidence names {mark!r:.60}, which is no write.", "Name the id of a write.")
        verifier = str(_of(question, "verifier", str, at, "token_f1"))
        if verifier not in VERIFIERS:
            raise WrongFormat(f"{at}: there is no verifier {verifier!r}.", f"Write one of {', '.join(VERIFIERS)}.")
        evidence = {places[mark] for mark in marks}
        haystack = tuple(
            mark_evidence(session, {turn for id, turn in evidence if id == session.id}) for session in sessions
        )
        key = f"{source}/{id}/{_of(question, 'id', (str, int), at, number)}"
        if key in (task.key for task in tasks):
            raise WrongFormat(f"{at}: {key} comes twice.", "Give each question of a line an id of its own.")
        tasks.append(
            Task(
                key=key,
                source=source,
                input=text,
                answers=answers,
                verifier=ABSTAINED if unanswerable else verifier,
                asked_at=_time(question, at, ""),
                sessions=haystack,
                evidence=tuple(dict.fromkeys(session for session, _ in sorted(evidence))),
                tags={
                    "type": str(_of(question, "type", (str, int), at, "")),
                    "split": side,
                    **({"abstention": "true"} if unanswerable else {}),
                },
                options=options,
            )
        )
    return tasks


def sessions_of(row: Mapping[str, Any], id: str, where: str) -> tuple[list[Session], dict[str, tuple[str, int]]]:
    """Returns the `writes` of a row as sessions in order of their first write, and for each id of a write the session and the
    turn that it is. Raises WrongFormat.

    Args:
        row: The object of one line.
        id: The id of the line, with which the names of its sessions begin.
        where: The file and the line, for the message.
    """
    turns: dict[str, list[Turn]] = {}
    dates, last = dict[str, str](), dict[str, str]()
    places: dict[str, tuple[str, int]] = {}
    for number, write in enumerate(_of(row, "writes", list, where), start=1):
        at = f"{where}, write {number}"
        _known(write, WRITE, at)
        text = str(_of(write, "text", str, at))
        if not text.strip():
            raise WrongFormat(f"{at}: its text is empty.", "Leave it out, or say something.")
        # Slashes in ids are escaped, so no two lines have sessions of the same name.
        session = f"{id.replace('%', '%25').replace('/', '%2F')}/{_of(write, 'session', (str, int), at, 0)}"
        turns_of_session = turns.setdefault(session, [])
        time = last[session] = _time(write, at, last.get(session, ""))
        if "id" in write:
            mark = str(_of(write, "id", (str, int), at))
            if mark in places:
                raise WrongFormat(f"{at}: the id {mark!r} is taken.", "Give each write of a line its own id.")
            places[mark] = (session, len(turns_of_session))
        speaker = " ".join(str(_of(write, "speaker", str, at, "user")).split())
        turns_of_session.append(
            Turn(speaker, text, len(turns_of_session), date="" if dates.setdefault(session, time) == time else time)
        )
    return [Session(name, dates[name], tuple(turns_of_session)) for name, turns_of_session in turns.items()], places


def mark_evidence(session: Session, evidence: Collection[int] = ()) -> Session:
    """Returns the session with the turns of these numbers marked as evidence. It is the same object where nothing changes, so
    that tasks share it in memory, as they share unchanged turns."""
    turns = tuple(
        turn if turn.evidence == (turn.index in evidence) else replace(turn, evidence=not turn.evidence)
        for turn in session.turns
    )
    changed = any(new is not old for new, old in zip(turns, session.turns, strict=True))
    return replace(session, turns=turns) if changed else session


def _known(record: Mapping[str, Any], names: Sequence[str], where: str) -> None:
    if not isinstance(record, Mapping):
        raise WrongFormat(f"{where}: {record!r:.60} is no object.", 'Write {"text": ...}.')
    for name in record:
        if name not in names:
            near = nearest(name, names)
            raise WrongFormat(
                f"{where}: there is no field {name!r}.",
                f"Did you mean {near!r}?" if near else f"There are {', '.join(names)}.",
            )


_MISSING = object()


def _of(record: Mapping[str, Any], name: str, kind: Any, where: str, default: Any = _MISSING) -> Any:
    value = record.get(name, default)
    if value is _MISSING:
        raise WrongFormat(f"{where}: {name!r} is missing.", f"There are {', '.join(map(repr, record))}.")
    if value is not default and not isinstance(value, kind):
        fix = {bool: "Write true or false.", list: "Write a list: [...]."}.get(kind, "Write it as text.")
        raise WrongFormat(f"{where}: {name} is {value!r:.60}.", fix)
    if isinstance(value, str):
        _sayable(value, name, where)
    return value


def _time(record: Mapping[str, Any], where: str, default: str) -> str:
    value = str(_of(record, "time", str, where, "")) or default
    with suppress(ValueError):
        if not value or (TIME.fullmatch(value) and date.fromisoformat(value[:10])):
            return value
    raise WrongFormat(f"{where}: time is {value!r:.60}.", "Write it in ISO 8601, such as 2026-01-03T10:00.")


def _sayable(text: str, name: str, where: str) -> None:
    """Raises WrongFormat for a control character or half of a surrogate pair, which no memory stores. All white space separates
    words."""
    match = UNSAYABLE.search(text)
    if match is not None:
        raise WrongFormat(
            f"{where}: {name} has U+{ord(match[0]):04X} at character {match.start()}.", "Take it out: it is no text."
        )


def _texts(record: Mapping[str, Any], name: str, where: str) -> tuple[str, ...]:
    texts = []
    for value in _of(record, name, list, where, []):
        if not isinstance(value, (str, int, float)) or isinstance(value, bool) or not str(value).strip():
            raise WrongFormat(f"{where}: {name} holds {value!r:.60}.", "Write texts or numbers, none of them empty.")
        _sayable(str(value), name, where)
        texts.append(str(value))
    return tuple(texts)
