"""The candidates of a decision as its row has them: what a search considered, best first.

Three forms are read: "[]" (none, or dropped by `compact`), JSON `[["m7", 0.25], ...]` (what the packed form cannot say), and the
packed one, which is written: four bytes for the number of each item, then four for each
score in millionths, lowest byte first. It takes some two fifths of the bytes of JSON. In Postgres, whose columns have one type,
the packed form is text: \\x and its bytes in hexadecimal digits.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Sequence

from keepworth.memory.store.rows import from_json, number_of

Pairs = Sequence[tuple[str, float]]
DIGITS = 6
"""Of a score, behind the point."""
_ONE = 10**DIGITS
_WIDTH = 8
"""Bytes of a candidate."""
_NAMED = re.compile(r'"m(\d+)"')


def packed(pairs: Pairs) -> str | bytes:
    """(id, score) of each candidate as the row has them."""
    if not pairs:
        return "[]"
    try:
        numbers = [number_of(id) for id, _ in pairs]
        return struct.pack(f"<{len(pairs)}I{len(pairs)}i", *numbers, *[round(score * _ONE) for _, score in pairs])
    except (struct.error, ValueError, OverflowError):  # another id, a number that is too large, or none
        return as_json(pairs)


def unpacked(candidates: str | bytes) -> tuple[tuple[str, float], ...]:
    """What `packed` was given, scores with DIGITS digits. Raises ValueError or TypeError where no search wrote it."""
    candidates = _plain(candidates)
    if isinstance(candidates, str):
        return tuple([(item, score) for item, score in from_json(candidates)])
    count, rest = divmod(len(candidates), _WIDTH)
    if rest:
        raise ValueError("the last candidate is cut off")
    values = struct.unpack(f"<{count}I{count}i", candidates)
    return tuple([(f"m{number}", score / _ONE) for number, score in zip(values[:count], values[count:], strict=True)])


def named(listed: str | bytes) -> set[int]:
    """The numbers of the items in a list of candidates, or in one of ids, also where the row is damaged."""
    listed = _plain(listed)
    if isinstance(listed, str):
        return set(map(int, _NAMED.findall(listed)))
    return {number for (number,) in struct.iter_unpack("<I", listed[: len(listed) // _WIDTH * _WIDTH // 2])}


def _plain(listed: str | bytes) -> str | bytes:
    """The packed form as a file has it."""
    return bytes.fromhex(listed[2:]) if isinstance(listed, str) and listed.startswith("\\x") else listed


def as_json(pairs: Pairs) -> str:
    """As an export has them, and a row that cannot be packed."""
    return json.dumps([[id, round(score, DIGITS)] for id, score in pairs])
