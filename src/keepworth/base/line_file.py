"""Files of JSON lines that grow while a process may be killed: one object a line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from keepworth.base.errors import KeepworthError
from keepworth.base.json_values import parse


def to_line(record: Any, default: Callable[[Any], Any] | None = None) -> bytes:
    """Returns the record as a line. `default` converts what is no JSON value."""
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"), default=default)
    return text.encode("utf-8", "surrogatepass") + b"\n"


def append_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Appends the records, after removing a last line that a killed process did not finish."""
    with path.open("a+b") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - 1))
        if file.read() not in (b"", b"\n"):
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
        file.writelines(map(to_line, records))


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the objects of a file, none where there is no file, and not a last line that was never finished. Raises
    KeepworthError, which names the file and the line, for any other line."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                record = parse(line)
            except ValueError as error:
                raise no_line(path, number, f"no JSON: {error}") from error
            if not isinstance(record, dict):
                raise no_line(path, number, "no object")
            yield record


def no_line(path: Path, number: int, what: str) -> KeepworthError:
    """Makes the error about a line that cannot be read.

    Args:
        path: The file.
        number: The number of the line, from 1 on.
        what: What the line is instead, behind "this is", such as "no object".
    """
    return KeepworthError(f"{path}, line {number}: this is {what}.", "Take the line out.")
