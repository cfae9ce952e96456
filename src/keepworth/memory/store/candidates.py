"""The candidates of a decision, as its row stores them: the items that a search considered, best first.

Three forms are read: "[]" (no candidates, or dropped by `compact`); JSON `[["m7", 0.25], ...]`, for what the packed form cannot
hold; and the packed form, which is written otherwise: four bytes for the number of each item, then four for each score in
millionths, lowest byte first. It takes some two fifths of the bytes of JSON. In Postgres, whose columns have one type, the packed
form is text: \\x and its bytes in hexadecimal digits.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Sequence

from keepworth.memory.store.rows import from_json, number_of

Pairs = Sequence[tuple[str, float]]
DIGITS = 6
"""Decimal places of a stored score."""
_ONE = 10**DIGITS
_WIDTH = 8
"""Bytes of a candidate in the packed form."""
_NAMED = re.compile(r'"m(\d+)"')


def packed(pairs: Pairs) -> str | bytes:
    """Return the stored form of (id, score) pairs: packed where possible, else JSON."""
    if not pairs:
        return "[]"
    try:
        numbers = [number_of(id) for id, _ in pairs]
        return struct.pack(f"<{len(pairs)}I{len(pairs)}i", *numbers, *[round(score * _ONE) for _, score in pairs])
    except (struct.error, ValueError, OverflowError):  # another id, or a number too large or not finite
        return as_json(pairs)


def unpacked(candidates: str | bytes) -> tuple[tuple[str, float], ...]:
    """Return the pairs that `packed` was given, scores with DIGITS places. Raises ValueError or TypeError for anything else."""
    candidates = _plain(candidates)
    if isinstance(candidates, str):
        return tuple([(item, score) for item, score in from_json(candidates)])
    count, rest = divmod(len(candidates), _WIDTH)
    if rest:
        raise ValueError("the last candidate is cut off")
    values = struct.unpack(f"<{count}I{count}i", candidates)
    return tuple([(f"m{number}", score / _ONE) for number, score in zip(values[:count], values[count:], strict=True)])


def named(listed: str | bytes) -> set[int]:
    """Return the item numbers in a list of candidates, or in a JSON list of ids, also where the row is damaged."""
    listed = _plain(listed)
    if isinstance(listed, str):
        return set(map(int, _NAMED.findall(listed)))
    return {number for (number,) in struct.iter_unpack("<I", listed[: len(listed) // _WIDTH * _WIDTH // 2])}


def _plain(listed: str | bytes) -> str | bytes:
    """Return the packed form as bytes, also where Postgres has it as text; leaves JSON as it is."""
    return bytes.fromhex(listed[2:]) if isinstance(listed, str) and listed.startswith("\\x") else listed


def as_json(pairs: Pairs) -> str:
    """Return pairs as JSON, which is for exports and for what cannot be packed."""
    return json.dumps([[id, round(score, DIGITS)] for id, score in pairs])
