"""Rows of several questions and answers, as MemoryAgentBench and MemoryArena have them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from keepworth.base.metrics import normalise
from keepworth.worlds.data_files import WrongFormat


def asked_in(row: Mapping[str, Any]) -> Iterable[str]:
    for question, answers in zip(row["questions"], row["answers"], strict=False):
        yield f"{normalise(str(question))} {sorted(map(normalise, texts(answers)))}"


def pairs(row: Mapping[str, Any], path: Path) -> list[tuple[str, tuple[str, ...]]]:
    if len(row["questions"]) != len(row["answers"]):
        raise WrongFormat(
            f"{path}: a row has {len(row['questions'])} questions and {len(row['answers'])} answers.",
            "Get the file again.",
        )
    return [(str(question), texts(answers)) for question, answers in zip(row["questions"], row["answers"], strict=True)]


def texts(value: Any) -> tuple[str, ...]:
    """Returns the right answers: a text, or each text of a list."""
    return tuple(dict.fromkeys(map(str, value))) if isinstance(value, list) and value else (str(value),)
