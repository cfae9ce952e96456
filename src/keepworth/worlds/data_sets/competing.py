"""Competing sessions: conversations that must not be put next to a question's evidence, because they answer it too.

Sessions of different people are mixed into one haystack, so that a stranger's "my cat Luna" would make the key wrong. What is
detectable without a judge is dropped; a paraphrase of another answer to the same question is not detected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from keepworth.base.metrics import tokens
from keepworth.records.episode import Session
from keepworth.worlds.entries import topic_words

_NUMBER_WORDS_TEXT = """
one two three four five six seven eight nine ten eleven twelve once twice thrice twenty thirty forty fifty sixty
seventy eighty ninety hundred
"""
_NUMBER_WORDS = frozenset(_NUMBER_WORDS_TEXT.split())
_SHARE = 2 / 3

Spoken = tuple[tuple[tuple[tuple[str, ...], frozenset[str]], ...], frozenset[str]]
"""The turns as tokens, in order and as a set, and the set of all tokens."""


def competes(session: Session, question: str, answers: Sequence[str]) -> bool:
    """Returns whether the user's side of a session (any speaker but "assistant") could answer the question. Either

    * a turn contains a gold answer as consecutive normalised tokens (a bare number, digits or a word, counts only where the turn
      also holds a topic word of the question, because "3" is everywhere), or
    * a turn holds at least two thirds, and at least two, of the question's topic words: it is about the same thing, so it may
      hold another value of it.

    Args:
        session: The session that may compete with the evidence.
        question: The text of the question.
        answers: Its gold answers, each of which counts.
    """
    return rivals_of(question, answers)(tokenise_turns(session))


def rivals_of(question: str, answers: Sequence[str]) -> Callable[[Spoken], bool]:
    """Returns a test of sessions: `competes` for one question."""
    topic = topic_words(question)
    golds = [gold for gold in (tuple(tokens(answer)) for answer in answers) if gold]
    least = max(2.0, _SHARE * len(topic))

    def competing(session_words: Spoken) -> bool:
        turns, whole = session_words
        near = [gold for gold in golds if whole.issuperset(gold)]
        if not near and len(topic & whole) < least:
            return False
        for turn, words in turns:
            shared = len(topic & words)
            if shared >= least:
                return True
            for gold in near:
                numeric = len(gold) == 1 and (gold[0].isdigit() or gold[0] in _NUMBER_WORDS)
                if (shared or not numeric) and words.issuperset(gold) and contains(turn, gold):
                    return True
        return False

    return competing


def contains(text: Sequence[str], part: Sequence[str]) -> bool:
    """Returns whether `part` occurs in `text` as consecutive tokens."""
    size = len(part)
    return any(tuple(text[start : start + size]) == tuple(part) for start in range(len(text) - size + 1))


@lru_cache(maxsize=4096)
def tokenise_turns(session: Session) -> Spoken:
    """Returns the tokens of each turn of the user's side (any speaker but "assistant")."""
    turns = [tuple(tokens(turn.text)) for turn in session.turns if turn.speaker != "assistant"]
    words = [frozenset(turn) for turn in turns]
    return tuple(zip(turns, words, strict=True)), frozenset().union(*words)
