"""Signs of what a user's next message says of the answer before it: numbers between 0 and 4, each with a name.

Most are words of one kind, in eight languages beside each other (`reply_words.toml`): praise, what works, what fails, what is
lost, "still", "I asked", "you forgot". Others tell how a message stands to the one before it: how many of its words return, and
how many are new. `signals` weighs them, by weights that `benchmarks/memory/reply_weights.py` fits.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import cache
from itertools import pairwise

from keepworth.memory.patterns import read_file, split_alternatives
from keepworth.memory.search.terms import function_words
from keepworth.memory.speech import is_command, is_question

LONGEST = 600
"""The most characters of a message, and of the one before it, that are read for signs."""
GOOD = (
    "praise", "mild_praise", "good_word", "thanks", "works", "insight", "relief", "adopts", "reception", "credit",
)  # fmt: skip
"""Kinds of words of somebody who is content."""
BAD = (
    "bad_word", "negation", "nay", "fails", "printed", "damage", "wrong", "missing", "outdated", "blame", "scorn", "still",
)  # fmt: skip
"""Kinds of words of somebody who is not."""
AGAINST = (
    "too", "compared", "not_but", "right_is", "source", "our_way", "asked", "you_did", "it_does", "points_at", "contrast",
)  # fmt: skip
"""Kinds of words with which an answer is set right."""
ASKING = ("wants", "tells", "follows", "question_word", "thanks_ahead", "person_first")
"""Kinds of words of somebody who goes on."""
ANYWHERE = (
    "thanks", "thanks_ahead", "praise", "mild_praise", "relief", "scorn", "repeats", "question_word", "amounts", "negation",
)  # fmt: skip
"""Kinds of words that count in questions and requests as they do in statements."""
BEGINNING = (
    "thanks", "praise", "mild_praise", "works", "relief", "adopts", "insight", "nay", "still", "negation", "fails", "source",
    "it_does", "too", "you_did", "our_way",
)  # fmt: skip
"""Kinds of words for which it matters whether a message begins with them."""
KINDS = (*GOOD, *BAD, *AGAINST, *ASKING, "repeats", "amounts")
SHORT = 4.5
"""The most words of a message that is short."""
_JOINED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*|\d+(?:[.,:]\d+)*")
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_SENTENCE = re.compile(r"(?<=[.!?…。！？])[\s)]*|\n+")
_QUOTED = re.compile(r"[\"“«「『][^\"”»」』]{1,40}[\"”»」』]|(?<!\w)'[^']{1,40}'(?!\w)|`[^`]+`")
_PLAIN, _STEM = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?"), re.compile(r"([^\W\d_]+(?:'[^\W\d_]+)?)\*")


class Words:
    """The words of one kind.

    Args:
        kind: The kind.
        english: Whether those of English alone are meant; else those of all languages.
    """

    def __init__(self, kind: str, english: bool) -> None:
        plain: set[str] = set()
        stems: set[str] = set()
        phrases: list[str] = []
        inside: list[str] = []
        for language, text in read_file("reply_words")[kind].items():
            if english and language not in ("en", "all"):
                continue
            for one in split_alternatives(text):
                if language in ("ja", "zh", "all"):
                    inside.append(one)
                elif _PLAIN.fullmatch(one):
                    plain.add(one)
                elif (stem := _STEM.fullmatch(one)) is not None:
                    stems.add(stem[1])
                else:
                    phrases.append(one)
        self._plain, self._stems = frozenset(plain), tuple(stems)
        self._phrases = _compile(phrases, inside)
        self._all = _compile([*phrases, *plain, *(stem + r"\w*" for stem in stems)], inside)

    def stand_in(self, text: str, words: Sequence[str]) -> bool:
        """Return whether one of them is in a text, of which these are the words."""
        return any(map(self._has, words)) or self._phrases.search(text) is not None

    def begin(self, text: str, words: Sequence[str]) -> bool:
        """Return whether a text, of which these are the words, begins with one of them."""
        return (
            bool(words and text.startswith(words[0]) and self._has(words[0])) or self._phrases.match(text) is not None
        )

    def without(self, text: str) -> str:
        """Return a text without them."""
        return self._all.sub(" ", text)

    def found_in(self, text: str) -> set[str]:
        """Return those that are in a text."""
        return {match.group() for match in self._all.finditer(text)}

    def _has(self, word: str) -> bool:
        return word in self._plain or word.startswith(self._stems)


def _compile(phrases: Sequence[str], inside: Sequence[str]) -> re.Pattern[str]:
    divided = [rf"(?<!\w)(?:{'|'.join(phrases)})(?!\w)"] if phrases else []
    return re.compile("|".join([*divided, *inside]) or r"(?!)")


@cache
def words_of(kind: str, english: bool = False) -> Words:
    """Return the words of one kind, of English alone or of all languages."""
    return Words(kind, english)


class _Text:
    """A piece of a message, with its words."""

    def __init__(self, text: str, english: bool) -> None:
        self.text, self.words, self.english = text, _WORD.findall(text), english

    def has(self, kind: str) -> bool:
        return words_of(kind, self.english).stand_in(self.text, self.words)

    def begins(self, kind: str) -> bool:
        return words_of(kind, self.english).begin(self.text, self.words)

    def without(self, kind: str) -> _Text:
        return _Text(words_of(kind, self.english).without(self.text), self.english)


def _is_english(text: str) -> bool:
    """Return whether a text is in English as far as its function words tell. "was" asks in German, and tells in English."""
    if any(letter.isalpha() and not letter.isascii() for letter in text):
        return False
    counts = function_words(_WORD.findall(text.replace("'", " ")))
    english = counts.pop("en", 0.0)
    return english > 0.0 and english >= 1.5 * max(counts.values(), default=0.0)


def signs(message: str, before: str, rules: str = "") -> dict[str, float]:
    """Return the signs of what a message says of the answer before it, by name.

    Args:
        message: What the user says, without quotes.
        before: What the user said before it, which the answer answered; "" if unknown.
        rules: What rules for single wordings make of the message, see `signals`.
    """
    message, before = message[:LONGEST], before[:LONGEST]
    english = _is_english(message.lower())
    text = _Text(message.lower(), english)
    written = [piece for piece in _SENTENCE.split(message) if _WORD.search(piece)] or [message]
    sentences = [_Text(piece.lower(), english) for piece in written]
    asks = [is_question(piece) or one.begins("question_word") for piece, one in zip(written, sentences, strict=True)]
    orders = [
        not ask and not any(map(one.begins, ("thanks", "praise", "mild_praise"))) and is_command(piece)
        for piece, one, ask in zip(written, sentences, asks, strict=True)
    ]
    states = not any(asks) and not any(orders)
    going_on = [ask or order for ask, order in zip(asks, orders, strict=True)]
    values = _words_of_kinds(text, sentences, going_on)
    good, bad = (any(values[kind] for kind in kinds) for kinds in (GOOD, BAD))
    count = len(text.words) + sum(map(len, _JOINED.findall(text.text))) / 3
    rest = text
    for kind in (*GOOD, "filler"):
        rest = rest.without(kind)
    values |= {
        "asks": all(asks),
        "asks at last": asks[-1],
        "orders": any(orders),
        "states": states,
        "one word": count <= 1.5,
        "two words": count <= 2.5,
        "four words": count <= SHORT,
        "eight words": count <= 8.5,
        "many words": count > 16,
        "very many words": count > 40,
        "sentences": min(3, len(sentences)) - 1,
        "exclaims": text.text.rstrip().endswith(("!", "！")),
        "question mark": "?" in text.text or "？" in text.text,
        "quotes": _QUOTED.search(text.text) is not None,
        "praise or thanks, nothing bad": (values["praise"] or values["thanks"]) and not bad,
        "good, nothing bad": good and not bad,
        "bad, nothing good": bad and not good,
        "good and bad": good and bad,
        "thanks behind a request": values["thanks"] and any(going_on) and not text.begins("thanks"),
        "good, and goes on": good and (any(going_on) or values["wants"]),
        "mild, and goes on": good
        and not (values["praise"] or values["thanks"] or values["works"])
        and (any(going_on) or values["wants"]),
        "praise of a deed, and more": text.begins("deed") and len(text.words) > 4,
        "neither good nor bad": not good and not bad,
        "praised in few words": (values["praise"] or values["mild_praise"]) and count <= SHORT,
        "works, in few words": values["works"] and count <= SHORT,
        "nothing but praise": good and not rest.words,
        "little but praise": good and len(rest.words) <= 2,
        "kinds of good words": min(4, sum(values[kind] for kind in GOOD)),
        "kinds of bad words": min(4, sum(values[kind] for kind in BAD)),
        "denies what it begins with": values["points_at"] and values["negation"],
        "says of it neither": values["points_at"] and not good and not bad and states,
        "bad, and tells of somebody": bad and (values["tells"] or values["person_first"]),
        "tells of somebody alone": values["tells"] and not values["points_at"],
        **{f"the rules say {name}": rules == name for name in ("thanks", "correction", "repetition")},
    }
    if before:
        values |= _compare(text, before, asks[-1], states, any(orders))
        returns = values["words shared"]
        values |= {
            "bad, where trouble was told": values["trouble before"] and bad and not good,
            "words shared, repeating": returns * values["repeats"],
            "words shared, going on": returns * (values["follows"] or values["follows, going on"]),
            "words shared, bad": returns * bad,
            "words shared, good": returns * good,
            "words shared, you did": returns * (values["you_did"] or values["it_does"]),
        }
    return {name: float(value) for name, value in values.items()}


def list_words(message: str) -> set[str]:
    """Return the words and the pairs of neighbouring words of a message as signs, and its first word as one more; where words are
    not divided, pairs of characters."""
    words = _WORD.findall(message[:LONGEST].lower())
    single = [word for word in words if not _JOINED.search(word)]
    every = {*single, *map(" ".join, pairwise(single))}
    for word in words:
        for run in _JOINED.findall(word):
            every.update(map("".join, pairwise(run)))
    if single and words[0] == single[0]:
        every.add(f"^{single[0]}")
    return {f"says {word}" for word in every}


def _words_of_kinds(text: _Text, sentences: Sequence[_Text], going_on: Sequence[bool]) -> dict[str, float]:
    """Return which kinds of words are in a message. Most count in statements, and have a second sign for questions and requests.
    Good words do not count where they are denied, nor bad ones."""
    stated, rest = (
        _Text(
            "\n".join(one.text for one, goes_on in zip(sentences, going_on, strict=True) if goes_on == kind),
            text.english,
        )
        for kind in (False, True)
    )
    good, bad = stated.without("denied_good"), stated.without("denied_bad")
    good_anywhere, besides = text.without("thanks_ahead").without("denied_good"), rest.without("denied_bad")
    values: dict[str, float] = {}
    for kind in KINDS:
        if kind in ANYWHERE:
            values[kind] = (good_anywhere if kind in GOOD else text).has(kind)
        else:
            values[kind] = (good if kind in GOOD else bad if kind in BAD else stated).has(kind)
            if kind not in GOOD:
                values[f"{kind}, going on"] = besides.has(kind)
    return values | {f"begins: {kind}": text.begins(kind) for kind in BEGINNING}


def _compare(text: _Text, before: str, asks: bool, states: bool, orders: bool) -> dict[str, float]:
    """Return the signs of how a message stands to the one before it.

    Args:
        text: The message.
        before: The one before it.
        asks: Whether the message ends with a question.
        states: Whether it only states.
        orders: Whether it holds a request.
    """
    past = _Text(before.lower(), text.english)
    ours, theirs = content(text.text), content(past.text)
    back = [word for word in theirs if is_like(word, ours)]
    new = [word for word in ours if not is_like(word, theirs)]
    lost = len(theirs) - len(back)
    returned = len(back) / len(theirs) if theirs else 0.0
    old = 1.0 - len(new) / len(ours) if ours else 0.0
    shared = 2.0 * returned * old / (returned + old) if returned + old else 0.0
    grams, others = _grams(text.text), _grams(past.text)
    common = sum((grams & others).values())
    alike = 2.0 * common / max(1, grams.total() + others.total())
    numbers, numbers_before = set(_NUMBER.findall(text.text)), set(_NUMBER.findall(past.text))
    questions, others_asked = (
        bool(words_of(kind, text.english).found_in(text.text) - words_of(kind, text.english).found_in(past.text))
        for kind in ("other_question", "other_one")
    )
    amounts, amounts_before = (words_of("amounts", text.english).found_in(one.text) for one in (text, past))
    was_question = is_question(before) or past.begins("question_word")
    opening = content(" ".join(text.text.split()[:4]))
    return {
        "words return": returned,
        "words are old": old,
        "words shared": shared,
        "words shared, most": max(0.0, shared - 0.5),
        "words shared, nearly all": max(0.0, shared - 0.8),
        "letters shared": alike,
        "letters shared, most": max(0.0, alike - 0.5),
        "letters return": common / max(1, others.total()),
        "all words return": returned == 1.0,
        "all of three words return": returned == 1.0 and len(theirs) >= 3,
        "no word returns": not back and len(ours) >= 2,
        "new words": min(4, len(new)),
        "lost words": min(4, lost),
        "exchanged words": min(2, len(new), lost),
        "one word in the place of another": _exchanges(text, past, ours, theirs),
        "asks for something else": questions * shared,
        "asks for another one": others_asked * shared,
        "a word before": len(theirs) <= 1,
        "two words before": len(theirs) <= 2,
        "begins with a word that returns": bool(opening) and is_like(opening[0], theirs),
        "new number": bool(numbers - numbers_before),
        "other number": bool(numbers - numbers_before) and bool(numbers_before - numbers),
        "same number": bool(numbers & numbers_before),
        "other amount stated": states and bool(amounts_before) and bool(amounts - amounts_before),
        "new amount stated": states and not amounts_before and bool(amounts),
        "asks what was asked": asks == was_question and shared >= 0.5,
        "states after a question": states and was_question and shared < 0.5,
        "states after a request": states and not was_question and shared < 0.5,
        "requests after a question": orders and was_question,
        "trouble before": past.has("trouble"),
        "a choice before": past.has("offer"),
        "a choice before, and denies": past.has("offer") and (text.has("negation") or text.has("nay")),
        "words shared, states": states * shared,
    }


def content(text: str) -> list[str]:
    """Return the words of a text that are more than function words, and pairs of neighbouring characters of scripts that do not
    divide words. text: in lower case."""
    words: list[str] = []
    light = _light()
    for word in _WORD.findall(text):
        runs = _JOINED.findall(word)
        for run in runs:
            words += ["".join(pair) for pair in pairwise(run)] or [run]
        if runs:
            words += [piece for piece in _JOINED.split(word) if piece]
        elif word[0].isdigit() or not (word in light or function_words([word.partition("'")[0]])):
            words.append(word)
    return list(dict.fromkeys(words))


@cache
def _light() -> frozenset[str]:
    return frozenset(split_alternatives(read_file("reply_words")["light"]["all"]))


def is_like(word: str, others: Sequence[str]) -> bool:
    """Return whether a word is among others, perhaps in another form or with a slip of the keyboard."""
    if word in others:
        return True
    if len(word) < 4 or not word.isalpha() or _JOINED.match(word):
        return False
    return any(len(other) >= 4 and other.isalpha() and _begin_alike(word, other) for other in others)


def _begin_alike(word: str, other: str) -> bool:
    same = 0
    while same < min(len(word), len(other)) and word[same] == other[same]:
        same += 1
    return same >= 5 or same >= max(3.0, 0.6 * max(len(word), len(other)))


def _exchanges(text: _Text, past: _Text, ours: Sequence[str], theirs: Sequence[str]) -> float:
    """Return how much of the message before stays if the message has one word in the place of another: "the capital of Peru",
    "the capital of Chile"; else 0."""
    if len(past.words) < 3 or not text.words:
        return 0.0
    steps = SequenceMatcher(None, past.words, text.words, autojunk=False).get_opcodes()
    share = sum(end - start for kind, start, end, _, _ in steps if kind == "equal") / len(past.words)
    exchanged = any(
        kind == "replace"
        and any(word in theirs and not is_like(word, text.words) for word in past.words[start:end])
        and any(word in ours and not is_like(word, past.words) for word in text.words[from_:to])
        for kind, start, end, from_, to in steps
    )
    return share if exchanged and share >= 0.5 else 0.0


def _grams(text: str) -> Counter[str]:
    """Count the runs of three letters in a text; of two where words are not divided."""
    plain = " ".join(_WORD.findall(text))
    size = 2 if 2 * len(_JOINED.sub("", plain)) < len(plain) else 3
    return Counter(plain[at : at + size] for at in range(max(1, len(plain) - size + 1)))
