"""Whether a function, a class or an object of others is still what a run began with: a digest of its source and its values.

What it calls by a global name does not count, nor does the inside of objects that it merely holds, nor attributes whose names
begin with "_": what is counted or cached while it works belongs there. Equal in every process: no addresses, no order of sets.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, timedelta
from enum import Enum
from functools import partial
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

PLAIN = (str, bytes, int, float, complex, type(None), range, PurePath, date, timedelta)
"""Whose `repr` says all, in every process."""


def code_digest(given: Any) -> str:
    """Of what was handed over; "" of None."""
    if given is None:
        return ""
    return hashlib.sha256("\x1f".join(_parts(given, {}, whole=True)).encode()).hexdigest()[:16]


def _parts(value: Any, seen: dict[int, Any], whole: bool) -> Iterator[str]:
    """seen: by address, and so kept until the end. whole: of an object its attributes count, too; else its type alone."""
    if isinstance(value, PLAIN) and not isinstance(value, Enum):
        yield repr(value)
        return
    if id(value) in seen:
        return
    seen[id(value)] = value
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _parts(key, seen, whole=False)
            yield from _parts(each, seen, whole)
    elif isinstance(value, list | tuple):
        yield f"{len(value)} of {type(value).__name__}"
        for each in value:
            yield from _parts(each, seen, whole)
    elif isinstance(value, set | frozenset):
        yield from sorted("\x1e".join(_parts(each, {}, whole=False)) for each in value)
    elif isinstance(value, Enum):
        yield f"{type(value).__qualname__}.{value.name}"
    elif isinstance(value, partial):
        yield from _parts(value.func, seen, whole)
        yield from _parts([value.args, value.keywords], seen, whole=False)
    elif isinstance(value, MethodType):
        yield from _parts([value.__func__, value.__self__], seen, whole)
    elif isinstance(value, FunctionType):
        yield _source(value)
        yield from _parts([value.__defaults__, value.__kwdefaults__], seen, whole=False)
        # Ours merely pass on what they were handed.
        yield from _parts(_cells(value), seen, whole=whole and _is_ours(value))
    elif isinstance(value, type):
        yield from (_source(each) for each in value.__mro__ if each.__module__ == value.__module__)
    elif isinstance(value, BuiltinFunctionType):
        yield value.__qualname__
    else:
        yield f"{type(value).__module__}.{type(value).__qualname__}"
        if whole:
            yield from _parts(type(value), seen, whole)
        if whole or is_dataclass(value):
            for name, each in _attributes(value).items():
                yield name
                yield from _parts(each, seen, whole=False)


def _attributes(value: Any) -> dict[str, Any]:
    """Those that count."""
    named = dict(getattr(value, "__dict__", {}))
    if is_dataclass(value):
        named |= {each.name: getattr(value, each.name, None) for each in fields(value)}
    return {name: named[name] for name in sorted(named) if not name.startswith("_")}


def _cells(function: FunctionType) -> list[Any]:
    """What it has from the functions around it."""
    found = []
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # nothing is in it yet
            continue
    return found


def _is_ours(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).partition(".")[0] == __name__.partition(".")[0]


def _source(value: Any) -> str:
    """The text; where there is none, and of ours, which a later version may word otherwise, the name."""
    name = str(getattr(value, "__qualname__", value))
    if _is_ours(value):
        return name
    try:
        return inspect.getsource(value)
    except (OSError, TypeError):
        return name
