"""The words that a search compares: lower case, without accents, as stems, in any script.

A stored text is in one language (`language` tells which, where English function words do not; letters that are not Latin tell
by themselves), and each of its words becomes one stem. A question is short and may say nothing of its language: each of its
words becomes a group of stems, one for each language it could be of, and a text that holds one of them holds the word. Where
a script has no spaces between words, and in Korean, whose words end in particles, pairs of neighbouring characters, and
single ones, take the place of words.

Stems are those of Snowball (https://snowballstem.org, by PyStemmer). Pairs of characters: Kwok, "Comparing Representations in
Chinese Information Retrieval" (1997).
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from keepworth.memory.search.language import classify

if TYPE_CHECKING:
    from Stemmer import Stemmer

_GAPS = "".join(chr(code).lower() if chr(code).isalnum() else " " for code in range(128)).encode().ljust(256)
"""Of ASCII, what `bytes.translate` makes of it: small letters and digits, and blanks between them. Sooner than a pattern."""
_BY_LETTERS: dict[int, str] = {}
"""The language that the letters of a text told, by the hash of the text."""
FUNCTION_WORD = 0.2
"""What a function word counts, of what another word counts that is as frequent. Chosen on questions to LongMemEval, LoCoMo,
HotpotQA and 2WikiMultihopQA that are not test questions."""
BESIDE, ALL_BESIDE = 0.5, 2.0
"""What a word beside the sentences that ask counts, of what a word in them does, and the largest ratio of all the former to all
the latter: words of a long paste outnumber those of the question. Chosen on questions for development with another text, from
which they need a name, and amid talk, from which they need nothing."""
_PLAIN = "english"
"""Stems of this language stand as they are, those of others with a tag: "car" of "care" in Italian is no English car."""
ENGLISH = 1.5
"""Votes of function words, each divided among the languages that have it, from which on a text is English."""
READ, SURE = 500, 0.7
"""How many characters say which language a text is in, and how probable that has to be."""
SEVERAL, SURE_IF_MARKED = 4, 0.5
"""How probable it has to be of so many words and more, of which one has letters that English has not."""
MOST_KNOWN = 50_000
"""Words of a language whose stems are remembered."""

_NAMED = (  # the last character of each range of letters, and its script; "" where words are taken as they are
    (0x24F, "LATIN"), (0x36F, ""), (0x3FF, "GREEK"), (0x52F, "CYRILLIC"), (0x58F, "ARMENIAN"), (0x5FF, "HEBREW"),
    (0x6FF, "ARABIC"), (0x74F, ""), (0x77F, "ARABIC"), (0x8FF, ""), (0x97F, "DEVANAGARI"), (0xB7F, ""),
    (0xBFF, "TAMIL"), (0xDFF, ""), (0xEFF, "PAIRS"), (0xFFF, ""), (0x109F, "PAIRS"), (0x10FF, ""), (0x11FF, "PAIRS"),
    (0x177F, ""), (0x17FF, "PAIRS"), (0x1DFF, ""), (0x1EFF, "LATIN"), (0x1FFF, "GREEK"), (0x2E7F, ""),
    (0x9FFF, "PAIRS"), (0xABFF, ""), (0xD7FF, "PAIRS"), (0xF8FF, ""), (0xFAFF, "PAIRS"), (0x1AFFF, ""),
    (0x1B2FF, "PAIRS"), (0x1FFFF, ""), (0x3FFFF, "PAIRS"), (0x10FFFF, ""),
)  # fmt: skip
_ENDS, _SCRIPTS = zip(*_NAMED, strict=True)
"""PAIRS: Thai, Lao, Burmese, Khmer, Chinese, Japanese, Korean."""


@dataclass(frozen=True, slots=True)
class _Languages:
    """The content of `languages.json`."""

    tags: Mapping[str, str]  # the tag of each language name
    names: Mapping[str, str]  # the name of each tag
    scripts: Mapping[str, tuple[str, ...]]  # the languages of the stems of each script, the likeliest first
    votes: Mapping[str, tuple[tuple[str, float], ...]]  # of function words: the languages that have it, with shares
    first: Mapping[str, str]  # for an irregular English form the word whose stem it has


@cache
def _languages() -> _Languages:
    data: Any = json.loads((files(__package__) / "languages.json").read_text(encoding="utf-8"))
    listed = {"LATIN": data["latin"], **data["scripts"]}
    having: dict[str, list[str]] = {}
    for entry in data["latin"]:
        for word in entry["function_words"].split():
            having.setdefault(word, []).append(entry["name"])
    tags = {name["name"]: name["tag"] for names in listed.values() for name in names}
    return _Languages(
        tags,
        {tag: name for name, tag in tags.items()},
        {script: tuple(name["name"] for name in names) for script, names in listed.items()},
        {word: tuple((name, 1.0 / len(names)) for name in names) for word, names in having.items()},
        {form: first for first, forms in data["irregular"].items() for form in forms.split()},
    )


def languages() -> frozenset[str]:
    """Return the names of all languages that have stems here."""
    return frozenset(_languages().tags)


class QueryTerms(list[str]):
    """The terms of a question.

    groups: for each word of the question the terms that stand for it; asking: those of them that ask, all if the question is
    short; weights: what each term counts, less than 1 for function words and question words, and for what stands beside the words
    that ask."""

    __slots__ = ("asking", "groups", "weights")

    def __init__(self, groups: Iterable[Sequence[str]], asking: Iterable[Sequence[str]] = ()) -> None:
        self.groups = tuple(dict.fromkeys(map(tuple, groups)))
        there = frozenset(self.groups)  # a sentence that is cut may begin with half a word
        self.asking = tuple(dict.fromkeys(group for group in map(tuple, asking) if group in there)) or self.groups
        super().__init__(dict.fromkeys(term for group in self.groups for term in group))
        light = _light_terms()
        self.weights = {term: FUNCTION_WORD if term in light else 1.0 for term in self}
        if self.in_parts:
            first = {term for group in self.asking for term in group}
            count = sum(self.weights[group[0]] for group in self.asking)
            others = sum(self.weights[group[0]] for group in self.groups) - count
            share = min(BESIDE, ALL_BESIDE * count / others) if others > 0 else BESIDE
            self.weights = {term: weight if term in first else weight * share for term, weight in self.weights.items()}

    @property
    def in_parts(self) -> bool:
        """Return whether some words of the question ask and others stand beside them."""
        return self.asking is not self.groups

    @property
    def tell(self) -> bool:
        """Return whether a word that asks is more than a function word or a word of requests."""
        return any(self.weights[group[0]] == 1.0 for group in self.asking)


def terms(text: str, latin: str | None = None) -> list[str]:
    """Return the terms of a stored text, in order, with repetition. latin: the language of its Latin words, if known, because
    detecting it takes longer than everything else."""
    return terms_and_languages(text, latin)[0]


def terms_of_each(texts: Iterable[str], latin: str) -> list[list[str]]:
    """Return the terms of each text. latin: the language of Latin words in all of them."""
    stem_of = _stems(latin).__getitem__
    return [list(map(stem_of, latin_words(text))) if text.isascii() else terms(text, latin) for text in texts]


def only_latin(among: Collection[str]) -> str | None:
    """Return the language of all Latin words of texts in these languages, or None if it could be one of several."""
    present = [name for name in _languages().scripts["LATIN"] if name in among]
    return present[0] if len(present) == 1 else None


def terms_of_many(texts: Sequence[str]) -> tuple[list[list[str]], set[str]]:
    """Return the terms of each text, and all languages whose stems are among them. This is faster than one text at a time."""
    out: list[tuple[list[str], frozenset[str]]] = []
    unsure: list[int] = []
    for index, text in enumerate(texts):
        words = latin_words(text)
        language = _language_by_words(words)
        if language is None:
            unsure.append(index)
        out.append(([], frozenset()) if language is None else terms_and_languages(text, language, words))
    for index, language in zip(unsure, _languages_by_letters([texts[index] for index in unsure]), strict=True):
        out[index] = terms_and_languages(texts[index], language)
    return [terms for terms, _ in out], {language for _, languages in out for language in languages}


def terms_and_languages(
    text: str, latin: str | None = None, words: Sequence[str] | None = None
) -> tuple[list[str], frozenset[str]]:
    """Return `terms`, and the languages whose stems are among them.

    Args:
        text: A text in any script.
        latin: The language of its Latin words; None to guess it.
        words: What `latin_words` makes of the text, if that was done before.
    """
    if text.isascii():
        words = latin_words(text) if words is None else words
        language = latin or _language_by_words(words) or _languages_by_letters([text])[0]
        return list(map(_stems(language).__getitem__, words)), frozenset((language,))
    language = latin or _language_by_words(words or latin_words(text)) or _languages_by_letters([text])[0]
    scripts = _languages().scripts
    out: list[str] = []
    spoken = set[str]()
    for run, script in _runs(text):
        if script == "PAIRS":
            out += run
            out += map("".join, pairwise(run))
        elif script in scripts:
            language_of_run = language if script == "LATIN" else _of_letters(script, run)
            spoken.add(language_of_run)
            out.append(_stemmed(language_of_run, run)[0])
        else:
            out.append(run)
    return out, frozenset(spoken)


def asked_terms(text: str, among: Iterable[str] | None = None, asking: Sequence[str] = ()) -> QueryTerms:
    """Return the terms of a question.

    Args:
        text: The question.
        among: The languages of the texts that are searched; None for all languages.
        asking: The sentences in it that ask, if they are read before the rest (see `search.question`).
    """
    wanted = languages() if among is None else frozenset(among) | {_PLAIN}
    return QueryTerms(_groups(text, wanted), _groups("\n".join(asking), wanted))


def _groups(text: str, wanted: frozenset[str]) -> list[Sequence[str]]:
    """Return for each word of a question the terms that stand for it in texts of the `wanted` languages."""
    scripts = _languages().scripts
    groups: list[Sequence[str]] = []
    for run, script in _runs(text):
        if script == "PAIRS":
            groups += [("".join(pair),) for pair in pairwise(run)] or [(run,)]
        elif script in scripts:
            candidates = [one for one in scripts[script] if one in wanted] or scripts[script][:1]
            stems: dict[str, None] = {}
            for one in candidates:
                stems.update(dict.fromkeys(_stemmed(one, run)))
                for other in _other_spellings(run):
                    stems.update(dict.fromkeys(_stemmed(one, other)))
                if (
                    one != _PLAIN
                ):  # other forms may have the word as their stem: Turkish "kutular" "kutu", and that "kut"
                    stems[f"{_without_accents(run)}·{_languages().tags[one]}"] = None
            groups.append(tuple(stems))
        else:
            groups.append((run,))
    return groups


def _other_spellings(word: str) -> list[str]:
    """Return how a word may be spelled in a text: "straße" for "strasse", and the other way round. A stored text keeps the stems
    that it was indexed with, so that the question looks for both."""
    return [other for other in (word.replace("ss", "ß"), word.replace("ß", "ss")) if other != word]


@cache
def _function_terms() -> frozenset[str]:
    return frozenset(
        stem
        for word, having in _languages().votes.items()
        for language, _ in having
        for stem in _stemmed(language, word)
    )


ASKING = (
    "recommend recommendation suggest suggestion advise advice tip tips idea ideas option options way ways help want need look "
    "looking find know think tell give show good great best better nice like please consider try thing things something "
    "anything interested interesting function method code"
)
"""English words of requests, which say little of what is asked for; a question has many of them, and so have other questions.
Who searches code asks for a function, but few functions hold that word, so by its rarity alone it would count most."""


@cache
def _light_terms() -> frozenset[str]:
    return _function_terms().union(stem for word in ASKING.split() for stem in _stemmed(_PLAIN, word))


def telling(term: str) -> bool:
    """Return whether a term is more than a function word. Question words are."""
    return term not in _function_terms()


def words(text: str) -> list[str]:
    """Return the stems of all words as if they were English, in order; single characters in scripts without spaces."""
    if text.isascii():
        return list(map(_stems(_PLAIN).__getitem__, latin_words(text)))
    return [
        word
        for run, script in _runs(text)
        for word in (run if script == "PAIRS" else _stemmed(_PLAIN, _without_accents(run))[:1])
    ]


def term_count(text: str) -> int:
    """Return len(terms(text)) without making the terms."""
    if text.isascii():
        return len(text.encode().translate(_GAPS).split())
    return sum(2 * len(run) - 1 if script == "PAIRS" else 1 for run, script in _runs(text))


def _runs(text: str) -> Iterator[tuple[str, str]]:
    """Return the runs of letters, marks and digits of one script, and single emojis, each with its script."""
    if text.isascii():
        yield from ((run, "LATIN") for run in latin_words(text))
        return
    from bisect import bisect_left

    plain = unicodedata.normalize("NFC", unicodedata.normalize("NFKC", text).lower())
    for match in _pattern().finditer(plain):
        run = match[0]
        start, script = 0, _SCRIPTS[bisect_left(_ENDS, ord(run[0]))]
        for index, letter in enumerate(run):
            name = "LATIN" if letter.isascii() else _SCRIPTS[bisect_left(_ENDS, ord(letter))]
            if name != script and "PAIRS" in (name, script) and not unicodedata.combining(letter):
                if index > start:
                    yield run[start:index], script
                start, script = index, name
        yield run[start:], script


@cache
def _pattern() -> re.Pattern[str]:
    # Not looked at are the tens of thousands of signs of East Asia, which have no marks, and what stands for no letter.
    spans = (0x300, 0x3100), (0xA000, 0xAC00), (0xF900, 0x17000), (0x1B000, 0x20000)
    category, kinds = unicodedata.category, ("Mn", "Mc")
    marks = [letter for span in spans for letter in map(chr, range(*span)) if category(letter) in kinds]
    inside = "".join(mark for mark in marks if mark not in "\ufe0e\ufe0f")
    return re.compile(f"[^\\W_](?:[^\\W_]|[{re.escape(inside)}])*|[\u2600-\u27bf\U0001f000-\U0001faff]")


_ACCENTS = re.compile("[\u0300-\u036f\u064b-\u0652\u0640]")


def _without_accents(word: str) -> str:
    if word.isascii():
        return word
    return _ACCENTS.sub("", unicodedata.normalize("NFD", word))


def latin_words(text: str) -> list[str]:
    """Return the words in Latin letters as they are written, in lower case, without accents."""
    if text.isascii():
        return text.encode().translate(_GAPS).decode().split()
    return [_without_accents(run) for run, script in _runs(text) if script == "LATIN"]


def function_words(words: Iterable[str]) -> dict[str, float]:
    """Return how many of these `latin_words` are function words of each language that has some, by its tag. A word that several
    languages have counts for each of them a share."""
    languages, counts = _languages(), dict[str, float]()
    for word in words:
        for name, share in languages.votes.get(word, ()):
            counts[languages.tags[name]] = counts.get(languages.tags[name], 0.0) + share
    return counts


def _language_by_words(words: Sequence[str]) -> str | None:
    """Return English if enough function words say so or if no word has letters, or None if the letters have to decide."""
    votes, english = _english_votes(), 0.0
    for word in filter(votes.__contains__, words):  # most words have no vote
        english += votes[word]
    if english >= ENGLISH or not any(map(str.isalpha, words)):  # numbers and codes are of no language
        return _PLAIN
    return None


@cache
def _english_votes() -> dict[str, float]:
    """Return for each function word how much it speaks for English and against other languages."""
    return {
        word: sum((part if language == _PLAIN else -part) for language, part in having)
        for word, having in _languages().votes.items()
    }


def _languages_by_letters(texts: Sequence[str]) -> list[str]:
    """Return the language of the Latin words of each text, English if none is sure. Results are cached by the hash of the text,
    because texts may have to be erased."""
    cached = [_BY_LETTERS.get(hash(text)) for text in texts]
    new = [text for text, language in zip(texts, cached, strict=True) if language is None]
    if not new:
        return [language for language in cached if language is not None]
    if len(_BY_LETTERS) > MOST_KNOWN:
        _BY_LETTERS.clear()
    languages = []
    for text, (tag, sure) in zip(new, classify([text[:READ] for text in new]), strict=True):
        marked = not text.isascii() and len(latin_words(text)) >= SEVERAL
        languages.append(_languages().names[tag] if sure >= (SURE_IF_MARKED if marked else SURE) else _PLAIN)
        _BY_LETTERS[hash(text)] = languages[-1]
    fresh = iter(languages)
    return [language or next(fresh) for language in cached]


def _of_letters(script: str, word: str) -> str:
    """Return the language of a word in a script of several: the first, unless it has a letter that only the second has."""
    names = _languages().scripts[script]
    marks = {"CYRILLIC": "ђјљњћџ", "ARABIC": "پچژگ", "DEVANAGARI": ""}.get(script, "")
    return names[1] if len(names) > 1 and any(letter in word for letter in marks) else names[0]


@cache
def _stemmer(language: str) -> Stemmer:
    import Stemmer

    return Stemmer.Stemmer(language)


class _Stems(dict[str, str]):
    """The stems of the ASCII words of a language, computed on first use."""

    def __init__(self, language: str) -> None:
        self._language = language

    def __missing__(self, word: str) -> str:
        if len(self) > MOST_KNOWN:
            self.clear()
        if self._language == _PLAIN and word[-1].isdigit():
            stem = word  # as `_stemmed` has it, without a call
        else:
            stem = _stemmed.__wrapped__(self._language, word)[0]
        self[word] = stem
        return stem


_stems = cache(_Stems)
"""Of a language."""


@lru_cache(maxsize=MOST_KNOWN)
def _stemmed(language: str, word: str) -> tuple[str, ...]:
    """Return the stem of a word as it is written and, if it differs, the stem of the word without accents."""
    if language == _PLAIN and word[-1].isdigit():
        return (word,)  # no ending of English is a digit
    stemmer = _stemmer(language)
    if language == _PLAIN:
        word = _languages().first.get(word, word)
    stem = stemmer.stemWord(word)
    plain = word.isascii() and stem.isascii()  # the usual case: without accents it is the same
    stems = dict.fromkeys((stem,) if plain else (_without_accents(stem), stemmer.stemWord(_without_accents(word))))
    if language == _PLAIN:
        # Snowball leaves "allergi" of allergy, where allergic has "allerg".
        return tuple(stem[:-1] if len(stem) > 6 and stem[-1] == "i" else stem for stem in stems)
    return tuple(f"{stem}·{_languages().tags[language]}" for stem in stems)
