"""Finds and reads files of data that are not shipped."""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from keepworth.base.errors import KeepworthError
from keepworth.base.json_values import parse

VARIABLE = "KEEPWORTH_DATA"


class MissingData(KeepworthError, FileNotFoundError):
    """A data set that is not shipped was not found."""


class WrongFormat(KeepworthError):
    """A file of questions cannot be read as one."""


def text_of(path: Path) -> str:
    """Reads a text file, which may be gzipped. Raises WrongFormat."""
    packed = path.read_bytes()
    try:
        return (gzip.decompress(packed) if path.suffix == ".gz" else packed).decode("utf-8-sig")
    except (UnicodeDecodeError, EOFError, OSError) as error:
        raise WrongFormat(f"{path} is no text in UTF-8: {error}.", "Save it as UTF-8, or get it again.") from error


def rows_of(path: Path) -> Sequence[tuple[str, dict[str, Any]]]:
    """Reads the objects of a file, each with its place: JSON lines, a JSON list, or an object of objects, whose names become the
    field `id`. Raises WrongFormat, which names the line."""
    if not path.is_file():
        raise WrongFormat(f"{path} is no file.", "Give the path of a file with one JSON object a line.")
    return _rows(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=16)
def _rows(path: Path, changed: int) -> tuple[tuple[str, dict[str, Any]], ...]:
    text = text_of(path)
    if path.name.removesuffix(".gz").endswith(".json") or text.lstrip().startswith("["):
        whole = _parse(text, str(path))
        if isinstance(whole, dict):
            members = [{"id": key, **value} for key, value in whole.items() if isinstance(value, Mapping)]
            whole = members if members and len(members) == len(whole) else [whole]
        if not isinstance(whole, list):
            raise WrongFormat(f"{path} holds no list of objects.", "Write one JSON object a line.")
        rows = [(f"{path}, record {number}", row) for number, row in enumerate(whole, start=1)]
    else:  # not splitlines: texts hold other separators
        lines = [(f"{path}, line {n}", line) for n, line in enumerate(re.split("\r\n?|\n", text), start=1)]
        rows = [(place, _parse(line, place)) for place, line in lines if line.strip()]
    for place, row in rows:
        if not isinstance(row, dict):
            raise WrongFormat(f"{place}: this is no object.", "Write {...} a line.")
    if not rows:
        raise WrongFormat(f"{path} holds no line.", "Write one JSON object a line.")
    return tuple(rows)


def _parse(text: str, place: str) -> Any:
    try:
        return parse(text)
    except ValueError as error:
        raise WrongFormat(f"{place}: this is no JSON: {error}.", "Write one JSON object a line.") from error
