"""Shared code of loaders: finds data that is not shipped, reads its records, and assigns questions to sides."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from keepworth.worlds.data_files import VARIABLE, MissingData, WrongFormat, rows_of
from keepworth.worlds.splits import side, tied

PathName = str | os.PathLike[str]


def find_data(
    name: str,
    names: Sequence[str],
    data: PathName | None,
    *,
    folder: str = "",
    source: str,
    licence: str = "",
    several: bool = False,
) -> Path:
    """Returns the first of some files that is there: the file itself, in a folder, or in its subfolder. Raises MissingData, which
    says what was looked for, where, and how to get it; WrongFormat.

    Args:
        name: The data set, for the message.
        names: The names that the file may have, in order of preference.
        data: The file, or a folder; None reads the environment variable KEEPWORTH_DATA.
        folder: The name of the subfolder of `data` that may hold the file.
        source: Where the data set can be had, for the message.
        licence: Its licence, for the message.
        several: Whether the set has more files, so that a file alone is refused.
    """
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


def read_records(path: Path, name: str, fields: Iterable[str] = ()) -> Sequence[Mapping[str, Any]]:
    """Returns the objects of a file, see `rows_of`. Raises WrongFormat, which names the file, the line and the field.

    Args:
        path: The file.
        name: The data set, for the message.
        fields: The names that every record must have.
    """
    rows = rows_of(path)
    for location, record in rows:
        for field in fields:
            if field not in record:
                raise WrongFormat(
                    f"{location}: there is no {field!r}, so this is no file of {name}.",
                    f"A record of {name} has {', '.join(fields)}.",
                )
    return [record for _, record in rows]


def assign_sides(marks: Mapping[str, Iterable[Hashable]]) -> dict[str, str]:
    """Returns the side of each id; tied ids get the same side."""
    return {identifier: side(smallest) for identifier, smallest in tied(marks).items()}
