"""Judges which of some older statements a newer one closes, all of them together.

    closed_by("Sandra left on Friday, so I report to Imran.", ["I work in Leeds", "Sandra is my manager"])  ->  1

Each older statement gets a number: a sum of weighted signs of what the newer one tells, of how far both are about the same person
and thing, of how near they are in meaning where that is known, and of what `replaced_statements` says of the pair. The highest of
them is closed if it is high enough. The words are in `told_changes.toml`, the weights in `told_change_weights.toml`, which
`benchmarks/memory/told_change_weights.py` fits.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from functools import cache, lru_cache

from keepworth.memory.change_signs import reading, shared
from keepworth.memory.patterns import read_file
from keepworth.memory.wording import Wording, topics_of, word_list

CHANGING = ("ended", "no longer", "now", "instead", "moved", "amount", "begun", "correction", "asked")
"""The kinds of words that tell of a change."""
SURELY = ("ended", "no longer", "now", "instead", "moved", "correction")
"""Those that do so even beside words of something else."""
KEEPING = ("also", "still", "modal", "once", "past", "told", "dated")
"""The kinds of words that tell of something else."""
DENIABLE = ("ended", "moved", "amount", "begun", "instead", "now")
"""The kinds of words that say nothing behind a negation."""
TWICE = ("ended", "moved", "now", "begun", "modal", "once", "past")
"""The kinds of words of which two say more than one."""
SUBJECTS = ("me", "mine", "kin", "name", "people", "agents", "thing", "none")
MOST_COMPARED = 12
"""The most older statements that are judged."""
FITTED_TO = "all-minilm-l6-v2"
"""The encoder whose cosines the weights of nearness are fitted to. With another one, words alone are weighed."""
_CLAUSE = re.compile(
    r"[,;:.!?()—–]+\s|\s(?:and|but|so|because|while|und|aber|et|mais|y|pero|since|cause)\s", re.IGNORECASE
)
_DENIED = re.compile(r"(?:n't|\bnot|\bnever|\bnobody|\bno one|\bwithout)\s+(?:\w+\s+){0,2}$", re.IGNORECASE)
_NEW = re.compile(r"\bnew (?!year|york|zealand|orleans)\w", re.IGNORECASE)
_CALLED = re.compile(r"\b(?:is|are|'s) (?:called|named)\b|\bname is\b", re.IGNORECASE)
_ME = frozenset(["i", "we", "i'm", "we're", "i've", "we've", "i'd", "i'll", "we'll", "we'd"])


@cache
def _kinds() -> dict[str, re.Pattern[str]]:
    kinds = {}
    for kind, words in read_file("told_changes")["newer"].items():
        pattern = "|".join(" ".join(words.split()).split(" / "))
        kinds[kind] = re.compile(rf"(?<!\w)(?:{pattern})(?!\w)", re.IGNORECASE)
    return kinds


@cache
def _patterns(section: str) -> dict[str, re.Pattern[str]]:
    listed = read_file("told_changes")[section]
    return {name: re.compile(pattern, re.IGNORECASE) for name, pattern in listed.items()}


@cache
def _words(name: str) -> frozenset[str]:
    return frozenset(read_file("told_changes")["words"][name].split())


class ToldStatement:
    """What the signs need of one statement."""

    def __init__(self, text: str) -> None:
        self.read = reading(text)
        self.wording = wording = self.read.wording
        plain = wording.plain
        cuts = [match.start() for match in _CLAUSE.finditer(plain)]
        self.clauses = [bisect_right(cuts, start) for start in wording.starts]
        self.kinds: dict[str, list[int]] = {}
        for kind, pattern in _kinds().items():
            places = [match.start() for match in pattern.finditer(plain)]
            if kind in DENIABLE:
                places = [at for at in places if _DENIED.search(plain[:at]) is None]
            self.kinds[kind] = [bisect_right(cuts, at) for at in places]
        heads = [[at for at, clause in enumerate(self.clauses) if clause == number] for number in range(len(cuts) + 1)]
        self.subjects = [_subject(wording, places) for places in heads if places]
        self.first = self.subjects[0] if self.subjects else ("none", frozenset[str]())
        self.values = {
            kind: matched
            for kind, pattern in _patterns("values").items()
            if (matched := frozenset(match[0].lower().strip() for match in pattern.finditer(plain)))
        }

    @property
    def persons(self) -> frozenset[str]:
        """The stems that name the person whom it is about, where that is somebody else."""
        kind, words = self.first
        return words if kind in ("kin", "name") else frozenset()


@lru_cache(4096)
def _read_statement(text: str) -> ToldStatement:
    return ToldStatement(text)


def _subject(wording: Wording, places: Sequence[int]) -> tuple[str, frozenset[str]]:
    """Return of what kind the subject of a clause is, with its stems: the one who speaks, relatives, somebody by name, others."""
    tokens, kin = wording.tokens, word_list("kin")
    dates = word_list("weekdays") | word_list("months")
    verb = next(
        (
            at
            for at in places
            if tokens[at] in word_list("auxiliaries") or "'" in tokens[at] or wording.may_be_verb(at, tokens[at])
        ),
        len(tokens),
    )
    if verb == places[0] and "'" not in tokens[verb]:
        return "none", frozenset()
    head = [at for at in places if at < verb or (at == verb and "'" in tokens[at])][:6]
    content = frozenset(wording.stems[at] for at in head if not wording.light[at])
    of_kin = frozenset(wording.stems[at] for at in head if tokens[at].removesuffix("'s") in kin)
    names = [
        at for at in head
        if wording.raw[at][0].isupper() and not wording.light[at] and wording.raw[at] != "I"
        and tokens[at].removesuffix("'s") not in kin and tokens[at] not in dates
    ]  # fmt: skip
    named = frozenset(wording.stems[at] for at in names)
    first = [tokens[at] for at in head[:2]]
    if of_kin:
        return "kin", of_kin | named
    if first[0] in _ME:
        return "me", frozenset()
    if first[0] in ("my", "our"):
        return "mine", content
    if names and names[0] == places[0]:
        return "name", named
    if not _words("people").isdisjoint(first):
        return "people", content
    if not (_words("agents") | word_list("agents")).isdisjoint(first):
        return "agents", frozenset()
    return ("name", named) if names else ("thing", content)


def may_tell_of_a_change(text: str) -> bool:
    """Return whether a statement has words of a change, and not only such as are so beside, once, long ago, or wished."""
    return any(_read_statement(text).kinds[kind] for kind in CHANGING) and not tells_of_none(text)


def tells_of_change(text: str) -> bool:
    """Return whether a statement has words of a change."""
    return any(_read_statement(text).kinds[kind] for kind in CHANGING)


def tells_surely(text: str) -> bool:
    """Return whether it has words of a change that do not only say what has begun."""
    return any(_read_statement(text).kinds[kind] for kind in (*SURELY, "amount"))


def tells_of_end(text: str) -> bool:
    """Return whether it says that something has ended, or is well again."""
    kinds = _read_statement(text).kinds
    return bool(kinds["ended"] or kinds["no longer"])


def tells_of_none(text: str) -> bool:
    """Return whether a statement says again how things are, or how they are beside, once, long ago or by wish, and tells of no
    change surely."""
    kinds = _read_statement(text).kinds
    if kinds["still"]:
        return True
    passing = any(kinds[kind] for kind in ("past", "also", "once", "modal"))
    return passing and not any(kinds[kind] for kind in SURELY)


def tells_no_state(text: str) -> bool:
    """Return whether a statement tells a wish, an opinion, a feeling or what was said, and nothing that could end."""
    kinds = _read_statement(text).kinds
    return bool(kinds["modal"] or kinds["told"]) or tells_a_feeling(text)


def tells_a_feeling(text: str) -> bool:
    """Return whether a statement tells a feeling, encourages or is polite."""
    return _patterns("feelings")["words"].search(_read_statement(text).wording.plain) is not None


@lru_cache(1024)
def _signs_of_new(text: str) -> dict[str, float]:
    """Return the signs that are the same for all older statements."""
    new = _read_statement(text)
    wording, kinds = new.wording, new.kinds
    tokens = set(wording.tokens)
    tokens |= {f"{one}_{other}" for one, other in zip(wording.tokens, wording.tokens[1:], strict=False)}
    tokens |= {f"<{first}" for first in wording.tokens[:1]}
    changing = sum(bool(kinds[kind]) for kind in CHANGING[:-1])
    return {
        **{f"tells {kind}": float(bool(places)) for kind, places in kinds.items()},
        **{f"tells {kind} twice": float(len(kinds[kind]) > 1) for kind in TWICE},
        **{f"first about {kind}": float(new.first[0] == kind) for kind in SUBJECTS},
        **{f"word {word}": float(word in tokens) for word in _words("manner")},
        "asks": float("?" in text),
        "tells of a change": float(bool(changing or kinds["asked"])),
        "kinds that tell of a change": float(min(5, changing)),
        "kinds that tell of something else": float(min(4, sum(bool(kinds[kind]) for kind in KEEPING[:-1]))),
        "something new": float(_NEW.search(wording.plain) is not None),
        "newer is past": float(new.read.is_of_the_past),
        "newer states nothing": float(wording.silent),
    }


def _signs_of_pair(old_text: str, new_text: str) -> dict[str, float]:
    """Return the signs that a pair has by itself, with some that `signs_together` takes for others."""
    old, new = _read_statement(old_text), _read_statement(new_text)
    before, after = old.read, new.read
    theirs, ours = shared(before, after)
    content, words_of_old = new.wording.content, old.wording.content
    clauses = {clause for clause, stem in zip(new.clauses, new.wording.stems, strict=True) if stem in ours}
    kind, subject = new.first
    of_old, persons = old.first[0], old.persons
    stranger = kind in ("kin", "name", "people") and subject.isdisjoint(words_of_old)
    by_name = stranger and kind != "people"
    same = not persons.isdisjoint(content)
    mine, both_mine = of_old in ("me", "mine", "none"), kind in ("me", "mine", "none")
    foreign = content - ours
    strange = sum(topics_of(word).isdisjoint(before.weighed_topics) for word in foreign)
    thing = kind in ("thing", "mine")
    signs: dict[str, bool | float] = {
        **{f"tells {name} of it": not clauses.isdisjoint(places) for name, places in new.kinds.items()},
        "share named": len(theirs) / max(1, len(before.weighed)),
        "something named": bool(ours),
        "older about kin": of_old == "kin",
        "older about me": of_old in ("me", "mine"),
        "older about a name": of_old == "name",
        "older about a thing": of_old == "thing",
        "older about none": of_old == "none",
        "person not named": bool(persons) and not same,
        "relative not named": of_old == "kin" and not same,
        "stranger first": by_name,
        "stranger, older about me": stranger and mine,
        "stranger, older about another": stranger and of_old in ("kin", "name"),
        "strangers alone": all(
            who in ("kin", "name", "people") and words.isdisjoint(words_of_old) for who, words in new.subjects
        ),
        "same person": same,
        "same subject": not subject.isdisjoint(old.first[1]),
        "subject is known": bool(subject) and subject <= words_of_old,
        "both about me": mine and both_mine,
        "about another thing": thing and bool(subject) and subject.isdisjoint(words_of_old),
        "about another such thing": thing and not subject.isdisjoint(words_of_old) and not subject <= words_of_old,
        "another relative": bool(after.kin - words_of_old),
        "another owner": bool(after.owners - words_of_old),
        "relative left out": bool(before.kin - content),
        "name left out": bool(before.capitals - content),
        "words beside": min(8, len(foreign)) / 4,
        "words of a topic": strange < len(foreign),
        "shared topic": not before.weighed_topics.isdisjoint(after.topics),
        "named first": 0 in clauses,
        "older ended": bool(old.kinds["ended"]),
        "older past": bool(old.kinds["past"]) or before.is_of_the_past,
        "older modal": bool(old.kinds["modal"]),
        "older also": bool(old.kinds["also"]),
        "older denied": before.has("denied"),
        "older calls": _CALLED.search(old.wording.plain) is not None,
        "older has a value": bool(old.values),
        "older person": of_old in ("kin", "name"),
        **{f"older {name}": p.search(old.wording.plain) is not None for name, p in _patterns("older").items()},
        "person fits": float(same) - (bool(persons) and not same) + (mine and both_mine) - (stranger and mine),
        "another value": any(
            kind in new.values and values.isdisjoint(new.values[kind]) for kind, values in old.values.items()
        ),
    }
    return {name: float(value) for name, value in signs.items()}


def signs_together(
    olds: Sequence[str], new: str, odds: Sequence[float], nearness: Sequence[float] | None
) -> list[dict[str, float]]:
    """Return for each of the older statements the signs that the newer one closes it.

    Args:
        olds: The older statements.
        new: The newer one.
        odds: What `replaced_statements` gives each pair.
        nearness: How near each is to the newer one in meaning, as a cosine; None if that is not known.
    """
    alike, rows = _signs_of_new(new), [_signs_of_pair(old, new) for old in olds]
    most = max((row["share named"] for row in rows), default=0.0)
    nearest = max(nearness or (), default=0.0)
    clean = (
        alike["tells of a change"] * (1 - alike["tells modal"]) * (1 - alike["tells also"]) * (1 - alike["tells past"])
    )
    for at, row in enumerate(rows):
        share = row["share named"]
        if nearness is None:
            close = max(1.5 * share, 0.3 * row["shared topic"])
        else:
            near = nearness[at]
            close = max(1.5 * share, 1.5 * (near - 0.1))
            row |= {
                "near": near,
                "nearest": float(near >= nearest),
                "far": float(near < 0.2),
                "near, named": near * share,
            }
        close = max(0.0, min(1.0, close))
        row |= {
            "most named": float(share >= most),
            "close": close,
            **{f"close, {kind}": alike[f"tells {kind}"] * close for kind in (*CHANGING, *KEEPING)},
            "close, another value": row["another value"] * close,
            "close, stranger": row["stranger first"] * close,
            "close, changed": clean * (1 - row["stranger first"]) * close,
            "odds": max(-6.0, min(4.0, odds[at])),
            "likely": float(odds[at] > 0),
        }
    return [{**alike, **row} for row in rows]


@cache
def _weights(name: str) -> tuple[float, float, dict[str, float]]:
    weights = read_file("told_change_weights")[name]
    return weights["least"], weights["constant"], weights["weights"]


def judge(olds: Sequence[str], new: str, odds: Sequence[float], nearness: Sequence[float] | None) -> int | None:
    """Return the place of the older statement that the newer one closes, or None.

    Args:
        olds: The older statements.
        new: The newer one.
        odds: What `replaced_statements` gives each pair.
        nearness: How near each is to the newer one in meaning, as a cosine; None if that is not known.
    """
    least, constant, weights = _weights("words" if nearness is None else "meaning")
    sums = [
        constant + sum(weight * row[name] for name, weight in weights.items())
        for row in signs_together(olds, new, odds, nearness)
    ]
    best = max(range(len(sums)), key=sums.__getitem__, default=None)
    return best if best is not None and sums[best] > least else None
