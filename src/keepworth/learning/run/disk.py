"""Files of a run on a disk that may fill up, by a process that may be killed: sync, rename, and say what went wrong.

JSON files are written whole or not at all, and read back with the file and line of what is wrong.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from keepworth.episodes.errors import KeepworthError
from keepworth.models.files import is_disk_full, sync

FULL_BELOW = 1 << 20
"""Bytes. A write that failed with less than this left is taken to have failed for want of space."""

_FIXES = {
    errno.ENAMETOOLONG: "Choose a shorter name.",
    errno.EEXIST: "A file stands where a folder should be: move it, or choose another place.",
    errno.ENOTDIR: "A file stands where a folder should be: move it, or choose another place.",
    errno.ENOENT: "A folder is missing: make it, or choose another place.",
}
_OTHER_FIX = "Choose another place with --runs, or change its permissions."


class DiskTrouble(KeepworthError):
    """The disk is full, read-only, not ours to write to, or has something else in the place."""


@contextmanager
def disk(path: Path) -> Iterator[None]:
    """Turns what the operating system says about a disk into a sentence that names the place and the fix.

    torch and safetensors report a failed write as a RuntimeError or an exception of their own, often without the
    cause: with next to no space left on the disk, that is the cause.
    """
    try:
        yield
    except KeepworthError:
        raise
    except ConnectionError:  # whoever read our output is gone: nothing is wrong with the disk
        raise
    except OSError as error:
        if _is_full(error, path):
            raise _full(path) from error
        place = error.filename or path
        raise DiskTrouble(
            f"{place} cannot be written ({error.strerror or error}).", _FIXES.get(error.errno or 0, _OTHER_FIX)
        ) from error
    except Exception as error:
        if not _says_little_about_disks(error):
            raise
        if _is_full(error, path):
            raise _full(path) from error
        if _is_failed_write(error):
            raise DiskTrouble(f"A file in {path} cannot be written ({error}).", _OTHER_FIX) from error
        raise


def _is_full(error: Exception, path: Path) -> bool:

    if is_disk_full(error):
        return True
    if isinstance(error, OSError) and error.errno is not None:
        return False  # it said what it was
    free = _free(path)
    return free is not None and free < FULL_BELOW


def _full(path: Path) -> DiskTrouble:
    free = _free(path)
    left = "how much is left cannot be read" if free is None else f"{free / 2**20:.0f} MiB are left"
    return DiskTrouble(
        f"The disk that holds {path} is full ({left}).",
        "Free some space and give the same command again: the run continues from its last checkpoint.",
    )


def _free(path: Path) -> int | None:
    """Bytes left on the disk that holds `path`, which need not exist yet; None where the system does not say."""
    for place in (path, *path.absolute().parents):
        try:
            return shutil.disk_usage(place).free
        except OSError:
            continue
    return None


def _says_little_about_disks(error: Exception) -> bool:
    return isinstance(error, RuntimeError) or type(error).__module__.startswith("safetensors")


def _is_failed_write(error: Exception) -> bool:
    words = str(error)
    return "PytorchStreamWriter failed" in words or "inline_container" in words or "I/O error" in words


def check_writable(path: Path) -> None:
    """Make sure that a file can be written at `path`, before the hours of work whose result goes there.

    Makes the folders above it. Raises DiskTrouble.
    """
    with disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise DiskTrouble(f"{path} is a folder.", f"Name a file, such as {path / 'numbers.json'}.")
        existed = path.exists()
        open(path, "ab").close()
        if not existed:
            path.unlink()


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside `path` that takes its place, synced, when the block ends well."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        yield temporary
        sync(temporary)
        os.replace(temporary, path)
        sync(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """The same for a folder: what is in it when the block ends well is synced and then has the name, all of it or none.

    Raises DiskTrouble, judged before what was half written is removed and its space is free again."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        with disk(path):
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            yield temporary
            for each in sorted(temporary.rglob("*"), reverse=True):  # a folder after what is in it
                sync(each)
            sync(temporary)
            shutil.rmtree(path, ignore_errors=True)
            os.rename(temporary, path)
            sync(path.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


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


def read_rows(path: Path, fields: Fields, renamed: Mapping[str, str] = MappingProxyType({})) -> Iterator[Row]:
    """Rows of a JSON-lines file, each with `fields`. Raises KeepworthError naming file and line of any other.
    renamed: what fields were called before, with their names of today.

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
            if renamed and isinstance(row, dict):
                row = {renamed.get(name, name): value for name, value in row.items()}
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


def read_json(path: Path, fix: str) -> Row:
    """The object in a file. Raises KeepworthError, with `fix`, where it cannot be read or is none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise KeepworthError(f"{path} cannot be read ({error}).", fix) from error
    if not isinstance(value, dict):
        raise KeepworthError(f"{path} does not hold a JSON object.", fix)
    return value
