"""Tells a reaction to an answer, such as "spot on, that fixed it" or "nope, still wrong", from a statement.

A reaction is a signal (`signals`), and states nothing that is worth a note. All its words are words by which signals are read
(`reply_words.toml`), words of talk about the task at hand (`speech.toml`) or function words. A statement has others: a thing, a
name or a number, as in "no, the port is 9090", or a word for somebody else than the one who answers, as in "my car is broken".
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache

from keepworth.memory.patterns import read_file, split_alternatives
from keepworth.memory.search.terms import function_words, latin_words

JUDGING = ("thanks", "praise", "mild_praise", "relief", "insight", "credit", "nay", "wrong", "scorn")
"""Kinds of words by which somebody judges an answer."""
OPINIONS = (*JUDGING, "adopts", "asked", "negation", "still", "contrast", "light")
"""Kinds of words for what somebody thinks of an answer."""
EVENTS = ("works", "fails", "damage", "blame")
"""Kinds of words for what came of an answer, or what was done in it. Behind "I" they tell of the speaker."""
ALL = (*OPINIONS, *EVENTS)
LONGEST = 120
"""The most characters of a reaction."""
_ANY_WORD = re.compile(r"\\[wSdb]|\[\^|\.[*+]|\$|^\^")
"""Signs in a pattern that stand for any word: entries with them are left out of the vocabulary."""
_PLAIN, _STEM = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?"), re.compile(r"([^\W\d_]+(?:'[^\W\d_]+)?)\*")
_JOINED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]+")
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*")
_CITED = re.compile(r"\d|[\"“”„«»`「」]")
"""A digit or a quotation mark: a sentence with one states something."""


class _Vocabulary:
    """Words, beginnings of words, phrases, and signs of scripts that do not divide words, of several kinds."""

    def __init__(self, kinds: Collection[str]) -> None:
        plain: set[str] = set()
        stems: set[str] = set()
        phrases: list[str] = []
        inside: list[str] = []
        for kind in kinds:
            for language, text in read_file("reply_words")[kind].items():
                for entry in split_alternatives(text):
                    if _ANY_WORD.search(entry):
                        continue
                    if language in ("ja", "zh"):
                        inside.append(entry)
                    elif _PLAIN.fullmatch(entry):
                        plain.add(entry)
                    elif (stem := _STEM.fullmatch(entry)) is not None:
                        stems.add(stem[1])
                    elif language != "all":
                        phrases.append(entry)
        self.plain, self.stems, self.phrases, self.inside = frozenset(plain), tuple(stems), phrases, inside

    def has(self, word: str) -> bool:
        """Return whether a word is one of them."""
        return word in self.plain or word.startswith(self.stems)


def is_reaction(text: str, others: Collection[str], beyond: Collection[str]) -> bool:
    """Return whether a sentence only says how an answer was.

    Args:
        text: The sentence.
        others: More words that state nothing, in lower case.
        beyond: Words that speak of somebody else, or of how things always are, in lower case.
    """
    if len(text) > LONGEST or _CITED.search(text):
        return False
    plain = " ".join(text.lower().replace("’", "'").split())
    of_speaker = not _words("first_persons").isdisjoint(_WORD.findall(plain))
    written = _WORD.findall(text)
    if "I" in written and any(word.istitle() and word != "I" for word in written[1:]):
        return False  # it holds a name
    rest = _phrases(OPINIONS if of_speaker else ALL).sub(" ", plain)
    if any(_joined().fullmatch(run) is None for run in _JOINED.findall(rest)):
        return False
    words = _WORD.findall(_JOINED.sub(" ", rest))
    if any(word in beyond or word.partition("'")[0] in beyond for word in words if word not in _words("homographs")):
        return False
    judges = rest != plain or any(map(_vocabulary(JUDGING).has, words))
    return all(
        _thinks(word)
        or (word in others and (judges or not of_speaker))
        or (_vocabulary(EVENTS).has(word) and not of_speaker)
        for word in words
    )


def _thinks(word: str) -> bool:
    """Return whether a word says what somebody thinks of an answer, or is a function word, or is put together from such."""
    if word in _words("opinions") or _vocabulary(OPINIONS).has(word):
        return True
    runs = latin_words(word)
    longer = [run for run in runs if len(run) > 1] or runs
    return bool(longer) and all(function_words([run]) for run in longer)


@cache
def _vocabulary(kinds: tuple[str, ...]) -> _Vocabulary:
    return _Vocabulary(kinds)


@cache
def _words(name: str) -> frozenset[str]:
    return frozenset(read_file("speech")["reaction"][name].split())


@cache
def _phrases(kinds: tuple[str, ...]) -> re.Pattern[str]:
    """Return the phrases of some kinds, the longest first, as one pattern."""
    phrases = {*_vocabulary(kinds).phrases, *read_file("speech")["reaction"]["subjects"]}
    return re.compile(rf"(?<!\w)(?:{'|'.join(sorted(phrases, key=len, reverse=True))})(?!\w)")


@cache
def _joined() -> re.Pattern[str]:
    """Return the signs of scripts that do not divide words, with what may stand between them, as one pattern."""
    signs = {*_vocabulary(ALL).inside, *read_file("speech")["reaction"]["joints"]}
    return re.compile(f"(?:{'|'.join(sorted(signs, key=len, reverse=True))})+")
