"""Splits English text into sentences, and tells by their words statements, questions and courtesies apart."""

from __future__ import annotations

from keepworth.memory.patterns import Patterns

_WORDS = Patterns("sentences")
_NOT_A_WORD = frozenset("I")  # "So did I. Then ..." ends a sentence; "John F. Kennedy" does not


def sentences(text: str) -> list[str]:
    """Return the sentences of `text`, stripped and not empty. No word is lost.

    The text is cut after . ! ? (and a closing quote or bracket) and at line breaks, but not after a title, an initial or a common
    abbreviation."""
    parts: list[str] = []
    for line in text.splitlines():
        glued = False
        for piece in _WORDS.sentence_end.split(line):
            part = piece.strip()
            if not part:
                continue
            if glued:
                parts[-1] += " " + part
            else:
                parts.append(part)
            last = part.split()[-1]
            glued = _WORDS.abbreviation.search(last) is not None and last.rstrip(".") not in _NOT_A_WORD
    return parts


FIRST_PERSON, OPENING, COURTESY = _WORDS.first_person, _WORDS.opening, _WORDS.courtesy
QUESTION_TAIL = _WORDS.question_tail
"""Matches where a statement turns into a question; the words before it may still state a fact."""
