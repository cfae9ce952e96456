"""Readers of logs find what `expected.json` says, and name what they cannot read."""

from __future__ import annotations

import json
import os
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from keepworth import Memory
from keepworth.adapters.logs.learning import LogLearner, TurnNames
from keepworth.adapters.logs.reading import FORMATS, HEAVY, LogFiles
from keepworth.adapters.logs.session import LogSession, plain_time
from tests.memory.outcomes.test_samples import EXPECTED, SAMPLES, documents

NAMES = [name for name in EXPECTED if name.replace("_", "-") in {format.name for format in FORMATS}]


def read(*files: str) -> tuple[list[LogSession], LogFiles]:
    files_read = LogFiles([SAMPLES / file for file in files])
    return list(files_read.sessions()), files_read


def tools(session: LogSession) -> list[list[Any]]:
    steps = [step for turn in session.turns for step in turn.steps]
    return [[step.tool, None if step.failed is None else not step.failed] for step in steps if step.tool]


def described(session: LogSession) -> dict[str, Any]:
    return {
        "asked": [turn.asked for turn in session.turns],
        "tools": tools(session),
        "interrupted": [number for number, turn in enumerate(session.turns, 1) if turn.interrupted],
        "outcomes": sorted([outcome.name, outcome.value] for outcome in session.outcomes),
        "folder": session.folder or None,
        "person": session.person or None,
        "started": session.started[:19] or None,
        "ended": session.ended[:19] or None,
    }


def wanted(entry: dict[str, Any]) -> dict[str, Any]:
    times = {name: plain_time(entry[name])[:19] if entry.get(name) else None for name in ("started", "ended")}
    plain = {"folder": entry.get("folder"), "person": entry.get("person"), "outcomes": sorted(entry["outcomes"])}
    return {**{name: entry[name] for name in ("asked", "tools", "interrupted")}, **plain, **times}


@pytest.mark.parametrize("name", NAMES)
def test_reader_finds_the_expected_sessions(name: str) -> None:
    files = dict.fromkeys(file for session in EXPECTED[name]["sessions"] for file in session["files"])
    sessions, files_read = read(*files)
    assert files_read.problems == []
    sessions = [session for session in sessions if session.turns]
    actual, expected = (
        [described(session) for session in sessions],
        [wanted(entry) for entry in EXPECTED[name]["sessions"]],
    )
    if name == "otlp":  # its file counts from the first span below the agent's
        assert actual[0].pop("started") <= expected[0].pop("started")
    assert actual == expected
    named = [session.id for session in sessions]
    assert all(entry["id"] in (None, id) for id, entry in zip(named, EXPECTED[name]["sessions"], strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_a_broken_line_is_named_and_the_rest_is_read(name: str) -> None:
    cut = EXPECTED[name]["cut"]
    sessions, files_read = read(cut["file"])
    assert [(Path(problem.file).name, problem.line) for problem in files_read.problems] == [
        (Path(cut["file"]).name, cut["line"])
    ]
    whole = [session for session in sessions if session.turns]
    assert whole or cut["lines"] == cut["line"] or files_read.of_nobody  # the cut line of OTLP has all spans


@pytest.mark.parametrize("name", [name for name in NAMES if "of_nobody" in EXPECTED[name]])
def test_reader_counts_scores_without_a_session(name: str) -> None:
    files = dict.fromkeys(file for session in EXPECTED[name]["sessions"] for file in session["files"])
    assert read(*files)[1].of_nobody == EXPECTED[name]["of_nobody"]


@pytest.mark.parametrize("name", [name for name in NAMES if "same_sessions" in EXPECTED[name]])
def test_session_has_the_same_turns_from_the_database_and_the_export(name: str, tmp_path: Path) -> None:
    files = dict.fromkeys(file for session in EXPECTED[name]["sessions"] for file in session["files"])
    names = turn_names(LogFiles([SAMPLES / file for file in files]))
    for file in EXPECTED[name]["same_sessions"].values():
        path = SAMPLES / file
        if path.suffix == ".sql":
            path = tmp_path / "opencode.db"
            with closing(sqlite3.connect(path)) as database:
                database.executescript((SAMPLES / file).read_text(encoding="utf-8"))
        others = turn_names(LogFiles([path]))
        assert others
        assert others <= names, file


def turn_names(files: LogFiles) -> set[str]:
    namer = TurnNames()
    return {namer.name(session, index) for session in files.sessions() for index in range(len(session.turns))}


def test_a_prompt_that_opencode_got_on_its_command_line_is_read_without_its_quotes(tmp_path: Path) -> None:
    """As the hook names its episode, by which a turn that it recorded is found again."""
    parts = [{"type": "text", "text": "Memory of earlier ...", "synthetic": True}, {"type": "text", "text": '"run it"'}]
    export = {"info": {"id": "ses_1"}, "messages": [{"info": {"role": "user"}, "parts": parts}]}
    (tmp_path / "a.json").write_text(json.dumps(export), encoding="utf-8")
    (session,) = LogFiles([tmp_path / "a.json"]).sessions()
    assert [turn.asked for turn in session.turns] == ["run it"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
@pytest.mark.parametrize("name", ["claude_code", "codex", "langfuse"])
def test_files_that_powershell_wrote_are_read(name: str, encoding: str, tmp_path: Path) -> None:
    """`program > log.jsonl` writes UTF-16 in PowerShell 5, and UTF-8 with a mark where it is told to."""
    files = list(dict.fromkeys(file for session in EXPECTED[name]["sessions"] for file in session["files"]))
    plain, _ = read(*files)
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text((SAMPLES / file).read_text(encoding="utf-8"), encoding=encoding)
    marked = LogFiles([tmp_path / file for file in files])
    assert [described(session) for session in marked.sessions()] == [described(session) for session in plain]
    assert marked.problems == []


def test_rows_of_an_earlier_version_of_verifiers_are_read() -> None:
    sessions, files_read = read("verifiers/legacy")
    assert files_read.problems == []
    actual = [
        ([turn.asked for turn in session.turns], [[one.name, one.value] for one in session.outcomes])
        for session in sessions
    ]
    assert actual == [(entry["asked"], entry["outcomes"]) for entry in EXPECTED["verifiers"]["legacy"]]


def test_a_file_that_begins_with_many_summaries_is_read(tmp_path: Path) -> None:
    summaries = [json.dumps({"type": "summary", "summary": f"old {number}", "leafUuid": "x"}) for number in range(50)]
    (tmp_path / "a.jsonl").write_text("\n".join(summaries), encoding="utf-8")
    (tmp_path / "b.jsonl").write_text("\n".join([*summaries, *lines_of(1, 1)]), encoding="utf-8")
    files_read = LogFiles([tmp_path])
    assert [turn.asked for session in files_read.sessions() for turn in session.turns] == ["task 0"]
    assert files_read.problems == []


def test_the_first_form_of_codex_is_read(tmp_path: Path) -> None:
    call = {
        "type": "function_call",
        "name": "shell",
        "call_id": "c",
        "arguments": '{"command": ["bash", "-lc", "make test"]}',
    }
    ended = json.dumps({"output": "2 failed", "metadata": {"exit_code": 1}})
    rows = [
        {"id": "old-1", "timestamp": "2025-05-04T08:00:00Z", "instructions": None},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Run the tests"}]},
        call,
        {"type": "function_call_output", "call_id": "c", "output": ended},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Two fail."}]},
    ]
    (tmp_path / "old.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (session,) = LogFiles([tmp_path]).sessions()
    (turn,) = session.turns
    assert (session.id, turn.asked, turn.answer) == ("old-1", "Run the tests", "Two fail.")
    assert [(step.command, step.failed) for step in turn.steps] == [("make test", True)]


def test_files_in_no_known_form_are_named() -> None:
    sessions, files_read = read("unknown")
    assert sessions == []
    assert sorted(Path(problem.file).name for problem in files_read.problems) == ["events.jsonl", "notes.txt"]
    assert all("no known form" in str(problem) for problem in files_read.problems)


def lines_of(turns: int, steps: int) -> list[str]:
    base = {"sessionId": "s", "cwd": "/p", "timestamp": "2026-05-04T08:00:00Z"}
    rows: list[dict[str, Any]] = []
    for turn in range(turns):
        rows.append({**base, "type": "user", "uuid": f"u{turn}", "message": {"content": f"task {turn}"}})
        for step in range(steps):
            call = {"type": "tool_use", "id": f"c{step}", "name": "Bash", "input": {"command": "make test"}}
            rows.append({**base, "type": "assistant", "uuid": f"a{turn}.{step}", "message": {"content": [call]}})
    return [json.dumps(row) for row in rows]


def test_folder_that_cannot_be_listed_is_named_and_the_rest_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("open", "shut"):
        (tmp_path / folder).mkdir()
        row = {"task": f"Ship the {folder} one", "steps": ["make"], "reward": 1}
        (tmp_path / folder / "a.jsonl").write_text(json.dumps(row), encoding="utf-8")
    listed = os.scandir

    def scan(path: str) -> Any:
        if str(path).endswith("shut"):
            raise PermissionError(13, "Permission denied", path)
        return listed(path)

    monkeypatch.setattr(os, "scandir", scan)
    files = LogFiles([tmp_path])
    assert [session.turns[0].asked for session in files.sessions()] == ["Ship the open one"]
    assert [str(problem) for problem in files.problems] == [f"{tmp_path}/shut: it cannot be read (Permission denied)"]


def test_a_long_session_comes_in_parts_with_every_turn_once(tmp_path: Path) -> None:
    (tmp_path / "long.jsonl").write_text("\n".join(lines_of(2 * HEAVY // 100, 100)), encoding="utf-8")
    held = 0
    asked = []
    for session in LogFiles([tmp_path]).sessions():
        held = max(held, session.weight)
        asked += [(session.before + index, turn.asked) for index, turn in enumerate(session.turns)]
    assert held <= HEAVY + 101
    assert asked == [(turn, f"task {turn}") for turn in range(2 * HEAVY // 100)]


def test_a_line_without_end_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keepworth.adapters.logs.reading.LONGEST_LINE", 2_000)
    lines = lines_of(2, 0)
    (tmp_path / "wide.jsonl").write_text("\n".join([lines[0], "x" * 9_000, lines[1]]), encoding="utf-8")
    files_read = LogFiles([tmp_path])
    (session,) = files_read.sessions()
    assert [turn.asked for turn in session.turns] == ["task 0", "task 1"]
    assert [problem.line for problem in files_read.problems] == [2]


def scrambled(value: Any, chance: random.Random) -> Any:
    """Return a JSON value in which some values are of another kind, or are gone."""
    if chance.random() < 0.06:
        return chance.choice((None, 7, "text", [], {}, [None], {"a": None}, True, -1.5, "\ud800", "9" * 400))
    if isinstance(value, dict):
        return {name: scrambled(entry, chance) for name, entry in value.items() if chance.random() > 0.02}
    return [scrambled(entry, chance) for entry in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", NAMES)
def test_reader_and_learner_survive_values_of_wrong_types(name: str, tmp_path: Path) -> None:
    files = [file for session in EXPECTED[name]["sessions"] for file in session["files"] if "json" in file]
    chance = random.Random(name)
    for number in range(25):
        for file in dict.fromkeys(files):
            rows = [scrambled(row, chance) for row in documents(SAMPLES / file)]
            (tmp_path / f"{number}.{Path(file).name}").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    files_read = LogFiles([tmp_path])
    with Memory(encoder=None, policy=None, writer=None) as memory:
        learner = LogLearner(memory)
        assert sum(learner.learn(files_read.sessions())) > 0
    assert all(Path(problem.file).parent == tmp_path for problem in files_read.problems)
