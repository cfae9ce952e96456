"""Where sentences end, and which words open a statement, a question or a courtesy in English."""

from __future__ import annotations

from keepworth.memory.english import Patterns

_WORDS = Patterns("sentences")
FEWEST_WORDS = 3
_NOT_A_WORD = frozenset("I")  # "So did I. Then ..." ends a sentence; "John F. Kennedy" does not


def sentences(text: str) -> list[str]:
    """The sentences of `text`, stripped, none empty. No word is lost.

    Cut after . ! ? (and a closing quote or bracket) and at line breaks, but not after a title, an initial or a common
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
"""Where a statement turns into a question: what stands before it may still be a fact."""


def says_something(text: str) -> bool:
    """Whether words of a user are kept where no writer says what to keep: no questions, and more than a word or two."""
    return len(text.split()) >= FEWEST_WORDS and not text.rstrip().endswith(("?", "\uff1f"))
