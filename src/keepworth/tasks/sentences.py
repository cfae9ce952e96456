"""Where a sentence ends: one rule for cutting memory entries and for finding sentences to hide something in."""

from __future__ import annotations

import re

_END = re.compile(r"""(?<=[.!?])\s+|(?<=[.!?]["')\]])\s+|\n+""")
_ABBREVIATION = re.compile(r"\b(?:Dr|Mr|Mrs|Ms|Mt|St|Ave|Jr|Sr|Prof|vs|etc|approx|e\.g|i\.e|[A-Z])\.$")
_NOT_A_WORD = frozenset("I")  # "So did I. Then ..." ends a sentence; "John F. Kennedy" does not


def sentences(text: str) -> list[str]:
    """The sentences of `text`, stripped, none empty. No word is lost.

    Cut after . ! ? (and a closing quote or bracket) and at line breaks, but not after a title, an initial or a common
    abbreviation."""
    found: list[str] = []
    for line in text.splitlines():
        glued = False
        for piece in _END.split(line):
            part = piece.strip()
            if not part:
                continue
            if glued:
                found[-1] += " " + part
            else:
                found.append(part)
            last = part.split()[-1]
            glued = _ABBREVIATION.search(last) is not None and last.rstrip(".") not in _NOT_A_WORD
    return found
