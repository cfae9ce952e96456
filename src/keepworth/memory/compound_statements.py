"""Tells whether a statement says more than what a newer one replaces: "I live in Bonn and I'm allergic to penicillin".

Whoever moves is still allergic. A statement is closed as a whole, so that one of several clauses or of several things named in a
row is not closed if a newer statement is about another of them only.
"""

from __future__ import annotations

from collections.abc import Callable

from keepworth.memory.wording import Wording, cue, read, sign, word_list

_ENDS = ("ended", "denied")
"""Kinds of words by which a statement says that something is over, or not so."""


def says_more(old: str, new: str, is_replaced: Callable[[str], bool]) -> bool:
    """Return whether an older statement that a newer one seems to replace says more than that.

    Args:
        old: The older statement.
        new: The newer one.
        is_replaced: Says of a clause, taken as a statement of its own, whether the newer statement replaces it.
    """
    parts, joined = _parts(read(old).plain)
    if len(parts) < 2:
        return False
    whole = read(new).content
    verbs = [_has_verb(part) or _seems_a_clause(part) for part in parts]
    if not verbs[0] and verbs[1] and joined[1] and _names_one(_last_thing(parts[0]), parts[1].subject, whole):
        return True  # "Mia and Tom go to school here"
    clauses = [part for place, part in enumerate(parts) if verbs[place] and _stands_alone(part, joined[place])]
    if any(part.content and not is_replaced(part.text) for part in clauses if len(clauses) > 1):
        return True
    after = read(new)
    over = any(sign(kind).search(after.plain) for kind in _ENDS)
    rows = [(_named_before(parts[:place], part), part) for place, part in enumerate(parts) if joined[place] and place]
    return any(
        _names_one(things, members, whole) and (over or _names_one(things, members, after.subject))
        for things, part in rows
        if not _has_verb(part)
        for members in (_first_thing(part), _first_thing(part) - _last_thing(part))  # "Thai and Indian food"
    )


def _parts(plain: str) -> tuple[list[Wording], list[bool]]:
    """Return the parts of a statement between commas and words such as "and", and of each whether such a word joins it to what is
    before it, as that is with the first."""
    parts, joined, start, by_word = list[Wording](), list[bool](), 0, True
    for match in [*cue("clauses").finditer(plain), None]:
        part = read(plain[start : match.start() if match is not None else None].strip())
        if part.tokens:
            parts.append(part)
            joined.append(by_word)
            by_word = False
        if match is not None:
            start, by_word = match.end(), by_word or match[0].strip().isalpha()
    return parts, joined


def _has_verb(part: Wording) -> bool:
    return part.verb < len(part.tokens)


def _seems_a_clause(part: Wording) -> bool:
    """Return whether a part without a known verb begins as a clause does: "mon vol part à 8 heures", "odio las olivas"."""
    first, *rest = part.tokens
    owner = first in word_list("me") and len(rest) > 1
    return owner or (not part.light[0] and bool(rest) and rest[0] in word_list("the"))


def _stands_alone(part: Wording, joined: bool) -> bool:
    """Return whether a clause says something by itself: it has a subject of its own that points to nothing before it, or takes
    that of the clause to which a word such as "and" joins it."""
    leans = part.tokens[0] in word_list("leaning")
    points_back = len(part.content) < 2 and not word_list("leaning").isdisjoint(part.tokens)  # "I like it there"
    return not (leans or points_back) and (part.verb > 0 or joined)


def _names_one(things: frozenset[str], others: frozenset[str], words: frozenset[str]) -> bool:
    """Return whether some words name one of two things beside each other, and not the other."""
    return bool(things and others) and things.isdisjoint(words) != others.isdisjoint(words)


def _first_thing(part: Wording) -> frozenset[str]:
    """Return the stems of the words up to the first preposition."""
    end = next(
        (at for at, word in enumerate(part.tokens) if at and word in word_list("prepositions")), len(part.tokens)
    )
    return _content(part, 0, end)


def _last_thing(part: Wording) -> frozenset[str]:
    """Return the stem of the last word with a content of its own."""
    return frozenset([one for one, light in zip(part.stems, part.light, strict=True) if not light][-1:])


def _named_before(parts: list[Wording], member: Wording) -> frozenset[str]:
    """Return the stems of the words that name what stands beside `member` in a row: those of all earlier members, and of the
    first of them what is behind its verb, or behind its last preposition if `member` has none that it has, too."""
    first, small = parts[0], word_list("prepositions")
    parallel = small & {*first.tokens} & {*member.tokens}
    ends = [at + 1 for at, word in enumerate(first.tokens) if word in small and not parallel]
    start = max([*ends, _after_verb(first)])
    end = next((at for at, word in enumerate(first.tokens) if at > start and word in parallel), len(first.tokens))
    return _content(first, start, end).union(*(_first_thing(part) for part in parts[1:]))


def _after_verb(part: Wording) -> int:
    """Return the place behind the verb, of "am learning" behind both words; 0 where there is none."""
    if not _has_verb(part):
        return 0
    place = part.verb + 1
    return place + 1 if part.tokens[place : place + 1] and part.tokens[place].endswith("ing") else place


def _content(part: Wording, start: int, end: int) -> frozenset[str]:
    return frozenset(part.stems[at] for at in range(start, end) if not part.light[at])
