"""The made samples hold what `expected.json` says, and are as whole or as broken as it says."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
SAMPLES = HERE / "samples"
EXPECTED: dict[str, Any] = json.loads((SAMPLES / "expected.json").read_text(encoding="utf-8"))
FORMATS = sorted(EXPECTED)


def texts(value: object) -> Iterator[str]:
    """Yield every text in a JSON value, and in the JSON that such texts hold."""
    if isinstance(value, str):
        yield value
        if value[:1] in "[{":
            try:
                yield from texts(json.loads(value))
            except ValueError:
                return
    elif isinstance(value, dict):
        for entry in value.values():
            yield from texts(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from texts(entry)


def documents(path: Path) -> list[Any]:
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else [json.loads(text)]


def listed(name: str) -> set[str]:
    entry = EXPECTED[name]
    sessions = [*entry["sessions"], *entry.get("legacy", [])]
    return {file for session in sessions for file in session["files"]} | set(entry.get("same_sessions", {}).values())


@pytest.mark.parametrize("name", FORMATS)
def test_every_file_of_a_format_is_listed_and_whole(name: str) -> None:
    cut = EXPECTED[name]["cut"]["file"]
    settings = {"verifiers/legacy/metadata.json"}
    present = {str(path.relative_to(SAMPLES).as_posix()) for path in (SAMPLES / name).rglob("*") if path.is_file()}
    assert present == listed(name) | {cut} | (present & settings)
    for file in listed(name):
        if file.endswith((".json", ".jsonl")):
            assert documents(SAMPLES / file), file


@pytest.mark.parametrize("name", FORMATS)
def test_expected_questions_occur_in_the_sample_files(name: str) -> None:
    for session in [*EXPECTED[name]["sessions"], *EXPECTED[name].get("legacy", [])]:
        words = [
            text
            for file in session["files"]
            if "json" in file
            for row in documents(SAMPLES / file)
            for text in texts(row)
        ]
        for question in session["asked"]:
            assert question in words, (session.get("id"), question)
        for tool, _ in session.get("tools", []):
            assert tool in words, (session["id"], tool)


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_has_a_success_a_failure_a_tool_an_interrupt_and_text_beyond_ascii(name: str) -> None:
    sessions = EXPECTED[name]["sessions"]
    assert len(sessions) >= 2
    results = [result for session in sessions for _, result in session["tools"]]
    values = [value for session in sessions for _, value in session["outcomes"]]
    assert True in results or any(isinstance(value, int | float) and value > 0 for value in values)
    assert False in results or any(isinstance(value, int | float) and value <= 0 for value in values)
    assert results
    assert name == "plain" or any(session["interrupted"] for session in sessions)
    assert any(not question.isascii() for session in sessions for question in session["asked"])


@pytest.mark.parametrize("name", FORMATS)
def test_samples_have_exactly_one_truncated_line(name: str) -> None:
    cut = EXPECTED[name]["cut"]
    lines = (SAMPLES / cut["file"]).read_bytes().splitlines()
    assert len(lines) == cut["lines"]
    if cut["file"].endswith(".json"):
        lines, cut = [b"".join(lines)], {**cut, "line": 1}
    for number, line in enumerate(lines, 1):
        if number == cut["line"]:
            with pytest.raises(ValueError):  # noqa: PT011  (UnicodeDecodeError or JSONDecodeError)
                json.loads(line)
        else:
            json.loads(line)


def test_the_database_has_the_sessions_of_the_exports() -> None:
    connection = sqlite3.connect(":memory:")
    connection.executescript((SAMPLES / "opencode/opencode.sql").read_text(encoding="utf-8"))
    ids = {row[0] for row in connection.execute("SELECT id FROM session")}
    assert ids == {session["id"] for session in EXPECTED["opencode"]["sessions"]}
    for session in EXPECTED["opencode"]["sessions"]:
        count = len(documents(SAMPLES / session["files"][0])[0]["messages"])
        query = "SELECT count(*) FROM message WHERE session_id = ?"
        assert connection.execute(query, (session["id"],)).fetchone() == (count,)


def test_the_page_has_a_section_and_a_sign_for_each_format() -> None:
    page = (HERE / "FORMATS.md").read_text(encoding="utf-8")
    sections = [line for line in page.splitlines() if line.startswith("## ")]
    signs = [
        line for line in page.splitlines() if line.startswith("| ") and "---" not in line and "| format |" not in line
    ]
    assert len(sections) - 2 == len(signs) == len(FORMATS)
    for section in page.split("\n## ")[3:]:
        assert "**Sources.**" in section or section.startswith("Plain"), section[:20]
