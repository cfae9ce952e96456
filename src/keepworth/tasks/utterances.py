"""What users of the LongMemEval conversations of one split said, sentence by sentence: the material of a memory as it is met.

"LongMemEval: Benchmarking Chat Assistants on Long-Term Interactive Memory" (arXiv 2410.10813). The sentences are those
that the rule of `keepworth.tasks.facts` finds; no question, answer or mark of evidence is looked at.
"""

from __future__ import annotations

import re
from functools import lru_cache

from keepworth.tasks.facts import facts_of
from keepworth.tasks.people import checked_split
from keepworth.tasks.splits import SPLITS, draw_order

UTTERANCE_WORDS = 24
"""Longer sentences are left out: cut ones would be the only ones with an ellipsis."""
_NUMBER = re.compile(r"(?<![\w.,:/$#-])(\d{1,3})(?![\w.,:/%-]*\d)(?![\w:/%-])")
_WORDS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_WORD = re.compile(rf"(?<![\w-])({'|'.join(_WORDS)})(?![\w-])")


def utterances(split: str) -> tuple[tuple[str, ...], ...]:
    """The sentences of each conversation with at least two of them, in the order of saying; each sentence occurs once,
    in one conversation of one split."""
    return _all()[checked_split(split)]


@lru_cache(maxsize=1)
def _all() -> dict[str, tuple[tuple[str, ...], ...]]:
    from keepworth.tasks.longmemeval import longmemeval

    seen: set[str] = set()
    found: dict[str, tuple[tuple[str, ...], ...]] = {}
    for split in SPLITS:
        sessions = {session.id: session for task in longmemeval(split) for session in task.sessions}
        kept = []
        for name in sorted(sessions):
            said = []
            for fact in facts_of([sessions[name]]):
                text, words = fact.statement, len(fact.statement.split())
                if words <= UTTERANCE_WORDS and text.lower() not in seen:
                    seen.add(text.lower())
                    said.append(text)
            if len(said) >= 2:
                kept.append(tuple(said))
        found[split] = tuple(kept)
    return found


def renumbered(sentence: str) -> str:
    """`sentence` with its only number changed, as when the same is said again later; "" where it has none or several.

    A count of up to three digits grows, a number word becomes another one. Which one follows from the sentence alone."""
    digits, words = list(_NUMBER.finditer(sentence)), list(_WORD.finditer(sentence))
    if len(digits) + len(words) != 1:
        return ""
    (match,) = digits or words
    step = 1 + int(draw_order("renumbered", sentence)[:8], 16) % 9
    other = str(int(match[1]) + step) if digits else _WORDS[(_WORDS.index(match[1]) + step) % len(_WORDS)]
    return sentence[: match.start()] + other + sentence[match.end() :]
