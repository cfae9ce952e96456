"""JSON files of a run folder: written whole or not at all, and read back with the file and line of what is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from keepworth.episodes.errors import KeepworthError
from keepworth.learning.run.disk import replacing

Row = dict[str, Any]

# What readers of the rows rely on: name, what it has to be, in words and as types.
Fields = Mapping[str, tuple[str, tuple[type, ...]]]
NUMBER = ("a number", (int, float))
METRIC: Fields = {"step": ("a whole number", (int,))}
EVAL: Fields = {
    "step": ("a whole number", (int,)),
    "arm": ("a text", (str,)),
    "metric": ("a text", (str,)),
    "mean": NUMBER,
    "low": ("a number or null", (int, float, type(None))),
    "high": ("a number or null", (int, float, type(None))),
    "n": ("a whole number", (int,)),
}


def line(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def read_rows(path: Path, fields: Fields) -> Iterator[Row]:
    """Rows of a JSON-lines file, each with `fields`. Raises KeepworthError naming file and line of any other.

    A last line without its newline was being written when the process died: dropped."""
    if not path.exists():
        return
    with open(path, "rb") as lines:
        for number, text in enumerate(lines, 1):
            if not text.endswith(b"\n"):
                return
            try:
                row = json.loads(text)
            except ValueError as error:
                raise KeepworthError(f"{path} line {number} is not JSON ({error}).", "Delete the line.") from error
            wrong = mismatch(row, fields)
            if wrong:
                raise KeepworthError(f"{path} line {number} {wrong}.", "Delete the line.")
            yield row


def mismatch(row: object, fields: Fields) -> str:
    """What is wrong with a row, in words ("has no step"); empty where nothing is."""
    if not isinstance(row, dict):
        return f"holds {json.dumps(row)[:40]}, not a JSON object"
    for name, (words, types) in fields.items():
        if name not in row:
            if type(None) in types:
                continue
            return f"has no {name!r}"
        if not isinstance(row[name], types) or isinstance(row[name], bool):
            return f"has {json.dumps(row[name])[:40]} as {name!r}, not {words}"
    return ""


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Replaces the file at once: a reader sees the old or the new one."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path, mend: str) -> Row:
    """The object in a file. Raises KeepworthError, with `mend`, where it cannot be read or is none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise KeepworthError(f"{path} cannot be read ({error}).", mend) from error
    if not isinstance(value, dict):
        raise KeepworthError(f"{path} does not hold a JSON object.", mend)
    return value
