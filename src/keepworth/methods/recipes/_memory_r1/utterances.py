"""Sentences of users in the LongMemEval conversations of one split, as realistic memories.

The sentences are those that the rule of `keepworth.memory.facts` finds; no question, answer or mark of evidence is
used.
"""

from __future__ import annotations

import re
from functools import lru_cache

from keepworth.memory.facts import facts_of
from keepworth.worlds.data_sets.longmemeval import longmemeval
from keepworth.worlds.data_sets.people import check_split
from keepworth.worlds.splits import SPLITS, draw_order

UTTERANCE_WORDS = 24
"""Longer sentences are left out: if they were cut, they would be the only ones with an ellipsis."""

_NUMBERS_IN_TEXT = re.compile(r"(?<![\w.,:/$#-])(\d{1,3})(?![\w.,:/%-]*\d)(?![\w:/%-])")
_WORDS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_WORD = re.compile(rf"(?<![\w-])({'|'.join(_WORDS)})(?![\w-])")


def utterances(split: str) -> tuple[tuple[str, ...], ...]:
    """Returns the sentences of each conversation with at least two of them, in order; each sentence occurs once, in one
    conversation of one split."""
    return _all()[check_split(split)]


@lru_cache(maxsize=1)
def _all() -> dict[str, tuple[tuple[str, ...], ...]]:
    unique: set[str] = set()
    facts: dict[str, tuple[tuple[str, ...], ...]] = {}
    for split in SPLITS:
        sessions = {session.id: session for task in longmemeval(split) for session in task.sessions}
        usable = []
        for name in sorted(sessions):
            usable_statements = []
            for fact in facts_of([sessions[name]]):
                text, words = fact.statement, len(fact.statement.split())
                if words <= UTTERANCE_WORDS and text.lower() not in unique:
                    unique.add(text.lower())
                    usable_statements.append(text)
            if len(usable_statements) >= 2:
                usable.append(tuple(usable_statements))
        facts[split] = tuple(usable)
    return facts


def renumbered(sentence: str) -> str:
    """Returns `sentence` with its only number changed, like a later update; "" where it has none or several.

    A count of up to three digits grows, a number word becomes another one. The change is a function of the sentence.
    """
    digits, words = list(_NUMBERS_IN_TEXT.finditer(sentence)), list(_WORD.finditer(sentence))
    if len(digits) + len(words) != 1:
        return ""
    (match,) = digits or words
    step = 1 + int(draw_order("renumbered", sentence)[:8], 16) % 9
    other = str(int(match[1]) + step) if digits else _WORDS[(_WORDS.index(match[1]) + step) % len(_WORDS)]
    return sentence[: match.start()] + other + sentence[match.end() :]
