"""What tasks can be asked for: a name that must be one of a known set."""

from __future__ import annotations

from collections.abc import Iterable

from keepworth.episodes.errors import UnknownName


def require_known(kind: str, name: str, known: Iterable[str]) -> str:
    """`name` itself, if it is one of `known`; otherwise UnknownName with the nearest known one and the whole list."""
    names = list(known)
    if name not in names:
        raise UnknownName(kind, name, names)
    return name
