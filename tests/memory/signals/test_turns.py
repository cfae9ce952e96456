"""The labelled turns have the form that their page describes, and their halves share no session, person or turn."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
HALVES = ("dev", "test")
LANGUAGES = {"en", "de", "fr", "es", "zh", "ru", "ja", "pt"}
FIELDS = ["session", "turn", "language", "person", "before", "tools", "answer", "end", "next", "next_person", "labels"]
CHECKS = {"check_failed", "check_passed", "check_passed_after_failure"}
EVENTS = CHECKS | {"tool_failed", "tool_succeeded", "commit", "revert"}
MESSAGES = {"correction", "repetition", "thanks", "new_subject", "commit", "revert"}
ENDS = {"interrupt": "interrupt", "regenerate": "regenerated"}


def turns(half: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((HERE / f"turns_{half}.json").read_text(encoding="utf-8"))
    return rows


def people(half: str) -> set[tuple[str, str]]:
    return {(row["language"], name) for row in turns(half) for name in (row["person"], row["next_person"]) if name}


def plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


@pytest.mark.parametrize("half", HALVES)
def test_each_turn_has_the_form_of_the_page(half: str) -> None:
    for row in turns(half):
        place, labels, tools = (row["session"], row["turn"]), row["labels"], row["tools"]
        assert list(row) == FIELDS, place
        assert row["language"] in LANGUAGES, place
        assert row["session"].startswith(row["language"]), place
        assert row["before"], place
        assert row["answer"], place
        assert row["end"] in {"message", "interrupt", "regenerate", "left"}, place
        assert (row["next"] is None) == (row["next_person"] is None) == (labels["message"] is None), place
        assert row["next"] is not None or row["end"] != "message", place
        assert row["next"] is None or row["end"] in {"message", "interrupt"}, place
        for tool in tools:
            assert list(tool) == ["name", "ok", "command", "output"], place
            assert type(tool["ok"]) is bool, place
        assert list(labels) == ["outcome", "signal", "person", "tools", "message"], place
        assert labels["outcome"] in {"good", "bad", "none"}, place
        assert len(labels["tools"]) == len(tools), place
        assert set(labels["tools"]) <= EVENTS | {"none"}, place
        assert labels["message"] in MESSAGES | {"none", None}, place
        assert labels["person"] in {row["person"], row["next_person"]}, place


@pytest.mark.parametrize("half", HALVES)
def test_the_signal_of_a_turn_is_in_the_turn(half: str) -> None:
    for row in turns(half):
        place, labels = (row["session"], row["turn"]), row["labels"]
        possible = {*labels["tools"], labels["message"], ENDS.get(row["end"], "silent"), "silent"} - {"none", None}
        assert labels["signal"] in possible, place
        if labels["signal"] == "silent":
            assert labels["outcome"] == "none", place
            assert set(labels["tools"]) <= {"none"}, place
        if row["end"] in ENDS:
            assert labels["signal"] == ENDS[row["end"]], place
        elif labels["message"] in MESSAGES - {"new_subject"}:
            assert labels["signal"] == labels["message"], place
        for tool, label in zip(row["tools"], labels["tools"], strict=True):
            assert tool["ok"] or label in {"tool_failed", "check_failed", "none"}, place
            assert not tool["ok"] or label not in {"tool_failed", "check_failed"}, place


def test_samples_hold_enough_turns_of_each_signal() -> None:
    for half in HALVES:
        rows = turns(half)
        by_language = Counter(row["language"] for row in rows)
        assert len(rows) >= 240
        assert set(by_language) == LANGUAGES
        assert min(by_language.values()) >= 15
        assert 0.45 <= by_language["en"] / len(rows) <= 0.55
        outcomes = Counter(row["labels"]["outcome"] for row in rows)
        assert 0.5 <= outcomes["none"] / len(rows) <= 0.7, "most turns say nothing"
        assert min(outcomes.values()) >= 40
        signals = Counter(row["labels"]["signal"] for row in rows)
        assert set(signals) == EVENTS | MESSAGES | {"interrupt", "regenerated", "silent"}
        assert min(signals.values()) >= 5


def test_samples_hold_no_turn_twice() -> None:
    rows = [row for half in HALVES for row in turns(half)]
    assert len({(row["session"], row["turn"]) for row in rows}) == len(rows)
    texts = Counter((row["before"], row["answer"], row["next"]) for row in rows)
    assert [text for text, count in texts.items() if count > 1] == []


def test_the_halves_share_no_session_and_no_person() -> None:
    sessions = [{row["session"] for row in turns(half)} for half in HALVES]
    assert sessions[0] & sessions[1] == set()
    assert people("dev") & people("test") == set()


def test_the_turns_of_a_session_follow_each_other() -> None:
    for half in HALVES:
        rows = turns(half)
        for row, later in pairwise(rows):
            if row["session"] == later["session"]:
                assert later["turn"] == row["turn"] + 1
                assert row["end"] != "left"
                assert later["before"] == (row["before"] if row["end"] == "regenerate" else row["next"])


def test_wordings_are_enough_and_absent_from_the_turns() -> None:
    wordings = json.loads((HERE / "wordings.json").read_text(encoding="utf-8"))
    assert set(wordings) == LANGUAGES
    messages = {plain(text) for half in HALVES for row in turns(half) for text in (row["before"], row["next"]) if text}
    texts = []
    for language, kinds in wordings.items():
        assert list(kinds) == ["correction", "thanks", "repetition"]
        for kind, lines in kinds.items():
            assert len(lines) == (12 if language == "en" else 4), (language, kind)
            assert all(line.count("{task}") == (kind == "repetition") for line in lines), (language, kind)
            texts += lines
    assert len(set(texts)) == len(texts)
    assert {plain(text) for text in texts} & messages == set()
