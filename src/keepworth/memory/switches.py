"""Tells whether a statement says that somebody switched from what an older statement says they use.

    switch("We use npm.", "We switched to pnpm.")  ->  True
    switch("We use npm.", "We switched to Postgres.")  ->  False

Both have to be sentences that are known as a whole, in one of the languages of `switches.toml`, of the same people and for the
same purpose, and the two things are of one kind, or the older one is named as what was switched from. So it takes nothing for a
switch that only has the words of one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache

from keepworth.memory.patterns import read_file
from keepworth.memory.wording import read, word_list

LONGEST = 160
"""The most characters of a statement that is read."""
MOST_OF_A_NAME = 5
"""The most words of the name of a thing, with its article."""
_LANGUAGES = ("en", "de", "fr", "es", "zh", "ru")
_NAME = r"[^\s,;，。]+(?: [^\s,;，。]+){0,3}?"
_REST = r"(?: (?P<rest>\S.{0,80}))?"
_SHORT = {"i'm": "i am", "i've": "i have", "we're": "we are", "we've": "we have", "team's": "team has"}
_VERSION = re.compile(r"(?<=\w) ?v?\d[\d.]*\+?$")
_WORD = re.compile(r"[^\W_]+(?:['’.+#&!-][^\W_]*)*")


@dataclass(frozen=True, slots=True)
class StatedUse:
    """What somebody uses. owner: who it is; thing: what they use, or have switched to; before: what they switched from, "" if it
    is not said; purpose: words that say what for."""

    owner: str
    thing: str
    before: str
    purpose: frozenset[str]


@cache
def _kinds() -> tuple[dict[str, frozenset[str]], dict[str, frozenset[str]]]:
    """Return the kinds of each thing by its name, and the words for the purpose of each kind."""
    kinds: dict[str, frozenset[str]] = {}
    purposes: dict[str, frozenset[str]] = {}
    for kind, listed in read_file("switches")["kinds"].items():
        things, _, purpose = " ".join(listed.split()).partition(" for ")
        purposes[kind] = frozenset(purpose.split())
        for thing in things.split(" / "):
            kinds[thing] = kinds.get(thing, frozenset()) | {kind}
    return kinds, purposes


@cache
def _patterns(what: str) -> tuple[re.Pattern[str], ...]:
    """Return the patterns of all languages for "uses" or "switched"."""
    data, patterns = read_file("switches"), []
    for language in _LANGUAGES:
        who = {name: rf"(?P<{name}>{data[name].get(language, '(?!)')})" for name in ("me", "us")}
        who["them"] = rf"(?P<them>{data[language]['them']})"
        names = {name: rf"(?P<{name}>{_NAME})" for name in ("thing", "from", "to", "to2")}
        for pattern in data[language][what]:
            for name, text in {**who, **names, "rest": _REST}.items():
                pattern = pattern.replace(f"{{{name}}}", text)
            patterns.append(re.compile(pattern, re.IGNORECASE))
    return tuple(patterns)


def switch(old: str, new: str) -> bool | None:
    """Return whether the statement `new` tells of a switch from what `old` says is used; None where that cannot be told, as one
    of them says something else, or the things are not known or are the same, such as two versions."""
    switches = _read(new, "switched")
    uses = _read(old, "uses") if switches else ()
    if not uses:
        return None
    if any(_ends(use, switch) for use in uses for switch in switches):
        return True
    kinds, _ = _kinds()
    before, after = ({use.thing for use in read} for read in (uses, switches))
    decided = not (before & after or before.isdisjoint(kinds) or after.isdisjoint(kinds))
    return False if decided else None


def kinds_of(thing: str) -> frozenset[str]:
    """Return the kinds of things of which one is used at a time to which one belongs, by its name in small letters."""
    return _kinds()[0].get(thing, frozenset())


def purposes_of(kind: str) -> frozenset[str]:
    """Return words that tell no more than what things of a kind are for."""
    return _kinds()[1].get(kind, frozenset())


def tells_switch(text: str) -> bool:
    """Return whether a statement tells of a switch to something."""
    return bool(_read(text, "switched"))


def _ends(use: StatedUse, switch: StatedUse) -> bool:
    if use.owner != switch.owner or use.thing in (switch.thing, ""):
        return False
    kinds, purposes = _kinds()
    shared = kinds.get(use.thing, frozenset()) & kinds.get(switch.thing, frozenset())
    if switch.before:
        if switch.before != use.thing:
            return False
    elif not shared:
        return False
    idle = frozenset(word for kind in shared for word in purposes[kind])
    return switch.purpose - idle == use.purpose - idle


@cache
def _signs() -> tuple[str, ...]:
    return tuple(read_file("switches")["around"]["signs"].split())


def has_sign(text: str) -> bool:
    """Return whether a text has a piece of a word that each sentence has which tells of a switch."""
    folded = text.casefold()
    return any(sign in folded for sign in _signs())


@lru_cache(8192)
def _read(text: str, what: str) -> tuple[StatedUse, ...]:
    """Return what a statement says is used or was switched to, in each way in which it can be read."""
    if len(text) > LONGEST or "?" in text or "？" in text:
        return ()
    if what == "switched" and not has_sign(text):  # as nearly all statements that a search compares
        return ()
    plain = read(text).plain.rstrip(".!。！ ")  # without the dates and the name that a writer of notes adds
    plain = " ".join(_SHORT.get(word.lower(), word) for word in plain.split(" "))
    if what == "switched":
        plain = _around("reason").split(plain, maxsplit=1)[0].rstrip()
    return tuple(dict.fromkeys(_uses(plain, what)))


@cache
def _around(what: str) -> re.Pattern[str]:
    words = "|".join(read_file("switches")["around"][what])
    return re.compile(rf"(?<!\w)(?:{words})(?!\w)" if what == "when" else words, re.IGNORECASE)


def _uses(plain: str, what: str) -> Iterator[StatedUse]:
    for pattern in _patterns(what):
        match = pattern.fullmatch(plain)
        if match is None:
            continue
        groups = match.groupdict()
        owner = next((who for who in ("me", "us") if groups.get(who)), "") or (groups.get("them") or "").lower()
        phrase = groups.get("to") or groups.get("to2") or groups.get("thing") or ""
        thing, rest = _divide(f"{phrase} {groups.get('rest') or ''}".split())
        yield StatedUse(owner, thing, _name(groups.get("from") or ""), _words(groups.get("lead")) | _words(rest))


def _divide(words: list[str]) -> tuple[str, str]:
    """Return the name of a thing and what stands behind it: the longest name that is known, else the first word."""
    for count in range(min(len(words), MOST_OF_A_NAME), 0, -1):
        name = _name(" ".join(words[:count]))
        if name in _kinds()[0]:
            return name, " ".join(words[count:])
    return _name(words[0]), " ".join(words[1:])


def _name(thing: str) -> str:
    """Return the name of a thing without articles, a version, and words for what it is."""
    around, words = read_file("switches")["around"], thing.lower().replace("l'", "").split()
    before, behind = around["before"].split(), around["behind"].split()
    while len(words) > 1 and words[0] in before:
        words = words[1:]
    while len(words) > 1 and words[-1] in behind:
        words = words[:-1]
    name = " ".join(words)
    for ending in behind:
        name = name.removesuffix(ending) if not ending.isascii() else name
    name = name.removesuffix("了")
    return name if name in _kinds()[0] else _VERSION.sub("", name)


def _words(phrase: str | None) -> frozenset[str]:
    """Return the words of a phrase that say what something is used for: neither times nor small words."""
    if not phrase:
        return frozenset()
    return frozenset(word.lower() for word in _WORD.findall(_around("when").sub(" ", phrase))) - _small()


@cache
def _small() -> frozenset[str]:
    return frozenset(word_list("small")) | {"both", "zur", "zum"}
