"""Files of data that are not shipped: where they are looked for, and how they are read."""

from __future__ import annotations

import gzip
import json
import os
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
    given = os.fspath(data) if data is not None else os.environ.get(VARIABLE, "")
    shipped = f"{name} is not shipped{f' ({licence})' if licence else ''}"
    inside = f", itself or in a folder `{folder}`" if folder else ""
    if not given:
        raise MissingData(
            f"{shipped} and no place was named.",
            f"Get it from {source}, then pass --data FOLDER (data= in Python) or set {VARIABLE}=FOLDER, where FOLDER holds "
            f"{' or '.join(names)}{inside}.",
        )
    root = Path(given).expanduser()
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
    """The objects of a file: JSON lines, a JSON list, or a JSON object of objects, whose names are then in the field `id`.

    name: of the data set, for people. fields: what every record must have. Raises WrongFormat, which names the file, the record
    and the field."""
    stat = path.stat()
    found = _records(path, stat.st_mtime_ns)
    for number, record in enumerate(found, start=1):
        for field in fields:
            if field not in record:
                raise WrongFormat(
                    f"{path}, record {number}: there is no {field!r}, so this is no file of {name}.",
                    f"A record of {name} has {', '.join(fields)}.",
                )
    return found


def text_of(path: Path) -> str:
    """A text file, packed or not. Raises WrongFormat."""
    packed = path.read_bytes()
    try:
        return (gzip.decompress(packed) if path.suffix == ".gz" else packed).decode("utf-8-sig")
    except (UnicodeDecodeError, EOFError, OSError) as error:
        raise WrongFormat(f"{path} is no text in UTF-8: {error}.", "Save it as UTF-8, or get it again.") from error


@lru_cache(maxsize=16)
def _records(path: Path, changed: int) -> tuple[Mapping[str, Any], ...]:
    text = text_of(path)
    lines = [line for line in text.split("\n") if line.strip()]
    try:
        is_one = path.name.removesuffix(".gz").endswith(".json") or text.lstrip().startswith("[")
        whole = json.loads(text) if is_one else None
        found = [json.loads(line) for line in lines] if whole is None else whole
    except ValueError as error:
        raise WrongFormat(f"{path} is no JSON: {error}.", "Get it again, or name another file.") from error
    if isinstance(found, dict):
        parts = found.items()
        found = [{"id": key, **value} for key, value in parts if isinstance(value, Mapping)]
        found = found if found and len(found) == len(parts) else [whole]
    if not found or not all(isinstance(record, Mapping) for record in found):
        raise WrongFormat(f"{path} holds no list of objects.", "Name a file of questions.")
    return tuple(found)
