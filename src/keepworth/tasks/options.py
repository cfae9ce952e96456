"""What tasks can be asked for: a name that must be one of a known set, a package that must be there."""

from __future__ import annotations

from collections.abc import Iterable

from keepworth.episodes.errors import KeepworthError, UnknownName


class MissingExtra(KeepworthError):
    """A package that is not installed by default; the mend says how."""


def require_known(kind: str, name: str, known: Iterable[str]) -> str:
    """`name` itself, if it is one of `known`; otherwise UnknownName with the nearest known one and the whole list."""
    names = list(known)
    if name not in names:
        raise UnknownName(kind, name, names)
    return name
