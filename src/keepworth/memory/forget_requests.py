"""Finds in a message the requests not to keep what it says, and to forget what was said before.

    asks_not_to_keep("I have diabetes. Please don't save this.")  ->  True
    forget_requests("Please forget the gate code.")  ->  one, about the stems of "gate" and "code"

A message in which somebody asks not to keep something is not kept at all: what is private is worth more than a note. The words,
in `forget.toml`, are English, German, French and Spanish, and those not to keep something also of other languages.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from keepworth.memory.change_signs import like
from keepworth.memory.patterns import read_file
from keepworth.memory.wording import content_of, cue, read

LONGEST = 200
"""The most characters of a request to forget."""
MOST_BESIDE = 2
"""The most words beside a request not to keep what was said that say nothing of their own: "please", "this"."""
_HEAD = r"(?:^|[,;:.!?–—(-]\s*|\b(?:but|so|and|please|pls|just|aber|also|bitte|mais|pero|por favor|s'il te plaît)[, ]+)"


@dataclass(frozen=True, slots=True)
class ForgetRequest:
    """A request to forget something.

    Args:
        about: The stems of the words that name it.
        kind: "last" for what was said just before, "every" for all that was said about it, "that" for one statement, "thing"
            for what one is about.
    """

    about: frozenset[str]
    kind: str

    def names(self, text: str) -> bool:
        """Return whether it asks to forget a note with this text."""
        wording = read(text)
        if not all(like(word, wording.content) for word in self.about):
            return False
        if self.kind == "every":
            return True
        if self.kind == "that":  # of a note that says more, the rest would be lost
            more = len(wording.content) - len(self.about)
            return more == 0 or (2 * more <= len(self.about) and cue("clauses").search(wording.plain) is None)
        return all(like(word, self.about) for word in wording.subject) and bool(wording.subject)


def asks_not_to_keep(sentences: Sequence[str]) -> bool:
    """Return whether one of the sentences that somebody says asks not to keep what is said."""
    head, anywhere = _keep_not()
    return any(head.search(plain) or anywhere.search(plain) for plain in map(_plain, sentences))


def takes_back(sentences: Sequence[str]) -> bool:
    """Return whether what somebody says only asks not to keep what was said before: "Don't save this."."""
    if len(sentences) != 1 or not asks_not_to_keep(sentences):
        return False
    plain, (head, anywhere) = _plain(sentences[0]), _keep_not()
    match = head.match(plain) or anywhere.search(plain)
    more = re.findall(r"\w+", plain[match.end() :]) if match is not None else []
    return match is not None and ":" not in plain.replace("：", ":") and len(more) <= MOST_BESIDE


def forget_requests(sentences: Sequence[str]) -> list[ForgetRequest]:
    """Return what the sentences that somebody says ask to forget."""
    requests = (_request(_plain(sentence)) for sentence in sentences if len(sentence) <= LONGEST)
    return [request for request in requests if request is not None]


def _request(plain: str) -> ForgetRequest | None:
    if _pattern("negated").search(plain) is not None:
        return None
    polite = _pattern("polite").match(plain)
    start = polite.end() if polite is not None else 0
    if _pattern("last").match(plain, start) and _pattern("every").match(plain, start) is None:
        return ForgetRequest(frozenset(), "last")
    for kind in ("every", "that", "thing"):
        match = _pattern(kind).match(plain, start)
        if match is None or (kind == "thing" and _pattern("surely").search(plain) is None):
            continue
        about = content_of(_pattern("ends").split(plain[match.end() :], maxsplit=1)[0])
        return ForgetRequest(about, kind) if about else None
    return None


def _plain(sentence: str) -> str:
    return " ".join(sentence.replace("’", "'").split())


def _words() -> dict[str, Any]:
    return read_file("forget")


@cache
def _keep_not() -> tuple[re.Pattern[str], re.Pattern[str]]:
    words = _words()["keep_not"]
    listed = "|".join(words["patterns"])
    return re.compile(f"{_HEAD}(?:please |pls |just |bitte )?(?:{listed})", re.IGNORECASE), re.compile(
        words["anywhere"]
    )


@cache
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(_words()["forget"][name], re.IGNORECASE)
