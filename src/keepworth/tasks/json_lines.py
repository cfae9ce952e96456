"""Questions of your own: a file of JSON lines, one haystack a line with its questions.

    {"id": "chat-7",
     "writes": [{"id": "a", "text": "I moved to Leeds.", "speaker": "user", "time": "2026-01-03T10:00"}],
     "questions": [{"text": "Where do I live?", "answers": ["Leeds"], "evidence": ["a"]}]}

| of | name | what it is |
| --- | --- | --- |
| a line | id | names the line |
| | writes | what is to be remembered, in order of time |
| | questions | what is asked afterwards |
| | split | train, dev or test; in a file without any, every line is test |
| | cluster | what lines are alike in, such as a user: intervals resample these; by default the line itself |
| a write | text | what was said |
| | id | names it within the line, for `evidence` |
| | speaker, time, session | who said it, when (ISO 8601), and in which conversation; writes of one session stand together |
| a question | text | what is asked |
| | answers | each of them is right |
| | options | what there is to choose from; the answers are among them |
| | evidence | ids of the writes that hold the answer; without them nobody can say where points go |
| | type, time | a label for tables; when it is asked |
| | verifier | how an answer is judged: token_f1 (default), exact_match, numeric, ... |
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from keepworth.episodes.episode import Session, Task, Turn
from keepworth.episodes.errors import nearest
from keepworth.tasks.benchmark import LeakingSplit
from keepworth.tasks.data_files import WrongFormat, recognised, text_of
from keepworth.tasks.splits import SPLITS
from keepworth.tasks.verifiers import VERIFIERS

LINE = ("id", "writes", "questions", "split", "cluster")
WRITE = ("text", "id", "speaker", "time", "session")
QUESTION = ("text", "answers", "options", "evidence", "type", "time", "verifier", "id")


def json_lines(split: str, *, data: Path | None = None) -> list[Task]:
    """The questions of one split. Raises WrongFormat, which names the file, the line and the field, and LeakingSplit where a line
    id stands on two sides."""
    if data is None:
        raise WrongFormat("no file of questions was named.", "Give the path of a .jsonl file.")
    lines = list(_lines(data))
    sides: dict[str, str] = {}
    named = any("split" in line for _, line in lines)
    found: list[Task] = []
    for number, line in lines:
        where = f"{data}, line {number}"
        side = str(_of(line, "split", str, where, "test"))
        if side not in SPLITS:
            raise WrongFormat(f"{where}: split is {side!r}.", f"Write one of {', '.join(SPLITS)}.")
        id = str(_of(line, "id", (str, int), where, str(number)))
        if sides.setdefault(id, side) != side:
            raise LeakingSplit(
                f"{where}: the id {id!r} is in {sides[id]!r} and in {side!r}.", "Give each line its own id."
            )
        if side == split or not named:
            found += _tasks(line, id, side, data.stem, where)
    keys = [task.key for task in found]
    if len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise WrongFormat(f"{data}: {twice} comes twice.", "Give each line an id of its own.")
    return found


def _tasks(line: Mapping[str, Any], id: str, side: str, source: str, where: str) -> list[Task]:
    _known(line, LINE, where)
    writes, questions = _list(line, "writes", where), _list(line, "questions", where)
    if not questions:
        raise WrongFormat(f"{where}: there is no question.", 'Add "questions": [{"text": ..., "answers": [...]}].')
    sessions, places = _sessions(writes, id, where)
    tasks = []
    for number, question in enumerate(questions):
        at = f"{where}, question {number}"
        _known(question, QUESTION, at)
        answers = tuple(str(each) for each in _list(question, "answers", at))
        options = tuple(str(each) for each in _list(question, "options", at, needed=False))
        if not answers:
            raise WrongFormat(f"{at}: there is no right answer.", 'Add "answers": ["..."].')
        if options and not set(answers) <= set(options):
            raise WrongFormat(f"{at}: the answer {answers[0]!r:.60} is none of its options.", "Spell it as the option.")
        marks = [str(mark) for mark in _list(question, "evidence", at, needed=False)]
        for mark in marks:
            if mark not in places:
                raise WrongFormat(f"{at}: evidence names {mark!r:.60}, which is no write.", "Name the id of a write.")
        verifier = str(_of(question, "verifier", str, at, "token_f1"))
        if verifier not in VERIFIERS:
            raise WrongFormat(f"{at}: there is no verifier {verifier!r}.", f"Write one of {', '.join(VERIFIERS)}.")
        evidence = {places[mark] for mark in marks}
        haystack = tuple(
            replace(s, turns=tuple(replace(t, evidence=(s.id, t.index) in evidence) for t in s.turns)) for s in sessions
        )
        tasks.append(
            Task(
                key=f"{source}/{id}/{question.get('id', number)}",
                source=source,
                input=str(_of(question, "text", str, at)),
                answers=answers,
                verifier=verifier,
                asked_at=str(_of(question, "time", str, at, "")),
                sessions=haystack,
                evidence=tuple(dict.fromkeys(session for session, _ in sorted(evidence))),
                tags={
                    "type": str(question.get("type", "")),
                    "split": side,
                    "cluster": str(_of(line, "cluster", (str, int), where, id)),
                },
                options=options,
            )
        )
    return tasks


def _sessions(
    writes: Sequence[Mapping[str, Any]], id: str, where: str
) -> tuple[list[Session], dict[str, tuple[str, int]]]:
    """The writes as sessions in order of their first write, and where each id is."""
    turns: dict[str, list[Turn]] = {}
    dates: dict[str, str] = {}
    places: dict[str, tuple[str, int]] = {}
    for number, write in enumerate(writes):
        at = f"{where}, write {number}"
        _known(write, WRITE, at)
        text = str(_of(write, "text", str, at))
        if not text.strip():
            raise WrongFormat(f"{at}: its text is empty.", "Leave it out, or say something.")
        session = f"{id}-{_of(write, 'session', (str, int), at, 0)}"
        own = turns.setdefault(session, [])
        dates.setdefault(session, str(_of(write, "time", str, at, "")))
        if "id" in write:
            mark = str(write["id"])
            if mark in places:
                raise WrongFormat(f"{at}: the id {mark!r} is taken.", "Give each write of a line its own id.")
            places[mark] = (session, len(own))
        own.append(Turn(str(_of(write, "speaker", str, at, "user")), text, len(own)))
    return [Session(name, dates[name], tuple(own)) for name, own in turns.items()], places


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    if not path.is_file():
        raise WrongFormat(f"{path} is no file.", "Give the path of a .jsonl file.")
    met = False
    for number, raw in enumerate(text_of(path).splitlines(), start=1):
        if not raw.strip():
            continue
        try:
            line = json.loads(raw)
        except ValueError as error:
            fix = "Write one JSON object a line."
            if number == 1 and raw.lstrip().startswith("["):
                fix = "It begins a list: write one JSON object a line instead."
            raise WrongFormat(f"{path}, line {number}: this is no JSON: {error}.", fix) from error
        if not isinstance(line, dict):
            raise WrongFormat(f"{path}, line {number}: this is no object.", "Write {...} a line.")
        met = True
        yield number, line
    if not met:
        raise WrongFormat(f"{path} holds no line.", "Write at least one line with a question.")


def _known(record: Mapping[str, Any], names: Sequence[str], where: str) -> None:
    if not isinstance(record, Mapping):
        raise WrongFormat(f"{where}: {record!r:.60} is no object.", 'Write {"text": ...}.')
    for name in record:
        if name not in names:
            looks = recognised(record) if names is LINE and "writes" not in record else ""
            if looks:
                raise WrongFormat(f"{where}: {name!r} belongs to another format.", f"It looks like {looks}.")
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
        raise WrongFormat(f"{where}: {name} is {value!r:.60}.", "Write it as text.")
    return value


def _list(record: Mapping[str, Any], name: str, where: str, *, needed: bool = True) -> list[Any]:
    value = record.get(name, [])
    if name not in record and needed:
        raise WrongFormat(f"{where}: {name!r} is missing.", f"There are {', '.join(map(repr, record))}.")
    if not isinstance(value, list):
        raise WrongFormat(f"{where}: {name} is {value!r:.60}.", "Write a list: [...].")
    return value
