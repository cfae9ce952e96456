"""A name that must be one of a known set, and the error that says which one was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UnknownName(ValueError):
    """A split, type, option value or verifier that does not exist."""


def require_known(kind: str, name: str, known: Iterable[str]) -> str:
    """`name` itself, if it is one of `known`; otherwise UnknownName with the nearest known one and the whole list."""
    names = list(known)
    if name in names:
        return name
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.0)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise UnknownName(f"unknown {kind} {name!r}: {hint}known: {', '.join(names)}")
