"""Recall that nobody asked for: what a gateway or a host's hook looks up by itself before a user's turn.

Such a search costs tokens in every turn, so it has two limits that a search by a person has not. Words that ask for nothing
("ok", "thanks", "?!") recall nothing, and hits below a floor of relevance are left out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from unicodedata import category

if TYPE_CHECKING:
    from keepworth.memory.memory import Memory

FLOOR = 0.01
"""The least score of a hit with a neural encoder. With all-MiniLM-L6-v2 it leaves out 2 of 20 answers to short questions about
short notes of one person (.04 leaves out 4), and no evidence of two conversations of LoCoMo (350 questions); of 100 questions of
arithmetic, asked among the notes of such a conversation, 47 recall nothing (77 with .04)."""
_MOST_WORDS = 8
"""A longer text is never a courtesy."""
_QUESTIONS_OF_FORM = re.compile(
    r"(?:how are you|how's it going|what's up|sup)(?: (?:doing|today|there))*|(?:do it|no worries)"
)


def asks(words: str) -> bool:
    """Whether a user's words ask for anything that a memory could know: not if they are a courtesy, a consent or a greeting, in
    one of some thirty languages, nor if they hold no word at all."""
    from keepworth.memory.speech import ask_for_nothing

    spoken = _words_in(words[:1000].lower().replace("’", "'"))
    if all(word.isascii() and len(word) == 1 for word in spoken):  # "?!", a thumb, "y", the number of a choice
        return False
    if len(spoken) > _MOST_WORDS:
        return True
    if _QUESTIONS_OF_FORM.fullmatch(" ".join(spoken)):
        return False
    return not ask_for_nothing(spoken)


def _words_in(text: str) -> list[str]:
    plain = "".join(sign if sign == "'" or category(sign)[0] in "LMN" else " " for sign in text)
    return [word for part in plain.split() if any(map(str.isalnum, word := part.strip("'")))]


def floor_of(memory: Memory) -> float:
    """Return the least score of a hit of automatic recall: `FLOOR` with a neural encoder. With hashed words or none the score
    says little of whether an answer is known, as for most answers it is near 0, so that the floor is 0."""
    embedder = memory.store.embedder
    return 0.0 if embedder is None or embedder.by_spelling else FLOOR
