"""What is derived from a memory says which state of it that was, and is made again where it does not fit."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path

from keepworth.memory.durable_file import PRIVATE


class Unfit(Exception):
    """A file beside a memory that cannot be used, and why. Whoever reads it makes the file again."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """store, vector_set, made, model, dimension: which vectors; head, chain: the newest journal entry, and its chain in hex."""

    store: str
    vector_set: int
    made: str
    model: str
    dimension: int
    head: int
    chain: str


def mode_beside(path: Path) -> int:
    """What is derived from a memory may be read by whoever may read the memory."""
    try:
        return stat.S_IMODE(path.stat().st_mode) & 0o666
    except OSError:
        return PRIVATE
