"""Files of data that are not shipped: where they are looked for, and how they are read."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from keepworth.episodes.errors import KeepworthError

VARIABLE = "KEEPWORTH_DATA"
PathName = str | os.PathLike[str]


class MissingData(KeepworthError, FileNotFoundError):
    """A data set that is not shipped was not found where it was looked for."""


class WrongFormat(KeepworthError):
    """A file of questions that cannot be read as one."""


def located(
    name: str,
    names: Sequence[str],
    data: PathName | None,
    *,
    folder: str = "",
    source: str,
    licence: str = "",
    several: bool = False,
) -> Path:
    """The first file of `names` in the place `data`: the file itself, a folder that holds it, or one with a folder `folder`.

    data: None reads the environment variable KEEPWORTH_DATA. name, source, licence: of the data set, for people.
    several: the set has more files, so a file alone is refused.

    Raises MissingData, which says what was looked for, where, and how to get it; WrongFormat."""
    folder_name = os.fspath(data) if data is not None else os.environ.get(VARIABLE, "")
    shipped = f"{name} is not shipped{f' ({licence})' if licence else ''}"
    inside = f", itself or in a folder `{folder}`" if folder else ""
    if not folder_name:
        raise MissingData(
            f"{shipped} and no place was named.",
            f"Get it from {source}, then pass --data FOLDER (data= in Python) or set {VARIABLE}=FOLDER, where FOLDER holds "
            f"{' or '.join(names)}{inside}.",
        )
    root = Path(folder_name).expanduser()
    if root.is_file() and several:
        raise WrongFormat(
            f"{root} is one file; {name} has several.", f"Name the folder that holds {' or '.join(names)}."
        )
    if root.is_file():
        return root
    tried = [root / sub / name for sub in dict.fromkeys(("", folder)) for name in names]
    tried = [root, *tried] if root.suffix in (".gz", ".json", ".jsonl", ".csv") else tried
    for path in tried:
        if path.is_file():
            return path
    raise MissingData(
        f"{shipped} and was not found; looked for {', '.join(map(str, tried))}.",
        f"Get it from {source} and put it there, or name its place by --data (data= in Python) or {VARIABLE}.",
    )


def records(path: Path, name: str, fields: Iterable[str] = ()) -> Sequence[Mapping[str, Any]]:
    """The objects of a file, see `rows_of`.

    name: of the data set, for people. fields: what every record must have. Raises WrongFormat, which names the file, the line
    and the field."""
    rows = rows_of(path)
    for place, record in rows:
        for field in fields:
            if field not in record:
                raise WrongFormat(
                    f"{place}: there is no {field!r}, so this is no file of {name}.",
                    f"A record of {name} has {', '.join(fields)}.",
                )
    return [record for _, record in rows]


def text_of(path: Path) -> str:
    """A text file, packed or not. Raises WrongFormat."""
    packed = path.read_bytes()
    try:
        return (gzip.decompress(packed) if path.suffix == ".gz" else packed).decode("utf-8-sig")
    except (UnicodeDecodeError, EOFError, OSError) as error:
        raise WrongFormat(f"{path} is no text in UTF-8: {error}.", "Save it as UTF-8, or get it again.") from error


def rows_of(path: Path) -> Sequence[tuple[str, dict[str, Any]]]:
    """The objects of a file, each with where it stands: JSON lines, a JSON list, or an object of objects, whose names are then in
    the field `id`. Raises WrongFormat, which names the line."""
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
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WrongFormat(f"{place}: this is no JSON: {error}.", "Write one JSON object a line.") from error
