"""Rules for single kinds of change between an older statement and a newer one, and for what keeps the two apart.

What they say is weighed with other signs by `change_signs`.
"""

from __future__ import annotations

from functools import lru_cache

from keepworth.memory.patterns import read_words
from keepworth.memory.wording import Value, Wording, cue, stem, stem_list, word_list

MOST_BESIDE = 3
"""The most content words of an older statement that neither have ended nor are named in the newer: one that says more is kept."""


def same_owner(old: Wording, new: Wording) -> bool:
    """Return whether both statements may be about the same person or thing."""
    if old.speaker != new.speaker:
        return False
    if not old.subject and not old.speaks_of_me:
        return old.verb < len(old.tokens) and not old.content.isdisjoint(new.content)  # an instruction
    if not old.others <= new.content or (new.owned and not new.subject - stem_list("generic") <= old.content):
        return False
    if new.others - old.content:
        return False
    if old.speaks_of_me:
        same = bool(old.subject) and old.subject <= new.content
        return new.speaks_of_me or same or not _somebody(new, old)
    if old.owned and not old.subject <= new.content:
        return False
    if not old.subject.isdisjoint(new.content):
        return True
    # "The default branch is master": "We renamed master to main".
    value = old.content - old.subject - stem_list("light")
    return (
        old.tokens[0] in word_list("the")
        and not new.subject
        and any(value <= {*gone} <= old.content for gone in new.gone)
    )


def _somebody(new: Wording, old: Wording) -> bool:
    """Return whether the subject of `new` looks like a person or thing by name that `old` does not name."""
    head = new.raw[0] if new.raw else ""
    return (
        head[:1].isupper()
        and not new.light[0]
        and 0 < new.verb < 4
        and new.stems[0] not in old.content
        and new.tokens[0] not in word_list("agents")
        and not new.tokens[0].endswith("ly")
        and not new.may_be_verb(0, new.tokens[0])
    )


@lru_cache(1024)
def told_apart(old: Wording, new: Wording) -> bool:
    """Return whether something says that the two statements are about different things of the same name."""
    theirs = word_list("theirs")
    if len({word for wording in (old, new) for word in wording.tokens[: wording.verb] if word in theirs}) > 1:
        return True  # "Her office", "his office"
    verbs = {wording.stems[wording.verb] if wording.verb < len(wording.tokens) else "" for wording in (old, new)}
    if len(verbs) == 1 and old.subject and new.subject and not (old.subject & new.content or new.subject & old.content):
        return True  # "My train leaves", "my bus leaves"
    qualified = stem_list("qualifiers")
    if (old.subject & qualified) - new.content or (new.subject & qualified) - old.content:
        return True
    return bool(_fixed(old) - new.content or (new.subject & old.content and _fixed(new) - old.content))


@lru_cache(1024)
def may_be_apart(old: Wording, new: Wording) -> bool:
    """Return whether the two name what they share with other words beside it, which may mean another thing."""
    if new.subject & old.subject and new.subject - old.content - stem_list("generic") - stem_list("change verbs"):
        return True  # "The museum opens at 10": "The museum shop opens at 11 now"
    for word in old.subject & new.content:
        one, other = old.modifiers(word), new.modifiers(word)
        plain = stem_list("verbs") | stem_list("generic")
        if (one - other - new.content - plain) and (other - one - old.content - plain):
            return True
    return False


def _fixed(wording: Wording) -> frozenset[str]:
    """Return the values in the subject, which tell one thing from another: "the red line"."""
    kinds = ("colour", "ordinal")
    places = [
        place
        for value in wording.values
        if value.kind in kinds
        for place in value.at
        if place < wording.verb < len(wording.tokens)
    ]
    return frozenset(wording.stems[place] for place in places)


def named_as_gone(old: Wording, new: Wording) -> float:
    """Return how surely `new` names something as ended of which `old` says that it is so."""
    if new.apart and len(new.apart & old.content) >= 2:
        return 0.9
    if old.is_past:
        return 0.0
    rest = old.content - old.subject
    for gone in new.gone:
        shared = frozenset(gone) & old.content
        if 2 * len(shared) < len(gone) or gone[0] not in old.content:
            continue
        if not old.speaks_of_me and old.tokens and old.verb:
            if not (old.subject & (new.content - shared)) and not shared >= rest - stem_list("light"):
                continue
        elif not new.speaks_of_me and not old.subject & new.content and old.verb and not shared:
            continue
        if told_apart(old, new) or may_be_apart(old, new) or (shared <= old.subject and len(shared) < len(old.content)):
            continue
        if len(old.content - shared - new.content) > MOST_BESIDE or ("old" in new.tokens and "new" in old.tokens):
            continue  # it says more than what has ended, or is about what came in its place
        return 0.7 + 0.2 * len(shared) / len(old.content)
    return 0.0


def attained(old: Wording, new: Wording) -> bool:
    """Return whether `new` says that what was looked for is found, or that what was going on is done."""
    if new.silent or not same_owner(old, new):
        return False
    if old.sought is not None and new.obtained is not None:
        return 0 < len(old.sought) <= MOST_BESIDE and old.sought <= new.obtained
    aim = new.completed
    if aim is None or not old.goes_on:
        return False
    return len(aim) > 0 and aim <= old.content and len(old.content) <= len(aim) + 2


def coverage(old: Wording, new: Wording, unit: str = "") -> float:
    """Return the share of what the older statement is about that the newer one names.

    Args:
        old, new: The older statement, and the newer one.
        unit: A unit in which both count, which is a part of what the older one is about; "" for none.
    """
    about = (old.anchors | old.action) - stem_list("generic") or old.anchors | old.action
    shared, units = len(about & new.content), int(unit != "" and unit in new.content)
    return (shared + units) / (len(about) + units) if about or units else 0.0


def other_state(old: Wording, new: Wording) -> float:
    """Return how surely `new` tells another state of what `old` is about, of which one holds at a time."""
    if any(value.kind in ("day", "clock") for value in (*old.values, *new.values)) and not new.changes:
        return 0.0  # "The pool is closed on Mondays"
    about = old.subject - stem_list("generic") or old.subject
    for (table, group), state in new.states.items():
        other = old.states.get((table, group), state) != state
        same = about <= new.content if about else table == "conditions" and new.speaks_of_me and not new.subject
        if other and same:
            return 0.6 + 0.2 * coverage(old, new)
    return 0.0


def other_place(old: Wording, new: Wording) -> float:
    same = old.subject <= new.subject <= old.content and not new.values
    return 0.6 if not (old.stays_in | old.enters).isdisjoint(new.enters) and same else 0.0


def other_value(old: Wording, new: Wording) -> float:
    """Return how surely `new` gives another value of the same kind for what `old` is about."""
    pair = next(((one, other) for one in old.values for other in new.values if exclude(one, other, old, new)), None)
    if pair is None:
        return 0.0
    covered = coverage(old, new, pair[0].of.removesuffix(" _"))
    if new.changes and covered >= 0.5:
        return 0.3 + 0.4 * covered
    if new.is_past or old.is_past:
        return 0.0
    same = old.anchors == new.anchors and old.anchors and _settles(old) and _settles(new)
    return 0.5 if same and not _habit(old) else 0.0


def _settles(wording: Wording) -> bool:
    verb = slice(wording.verb, wording.verb + 1)
    return not word_list("settles").isdisjoint(wording.tokens[verb]) or not stem_list("settles").isdisjoint(
        wording.stems[verb]
    )


def _habit(wording: Wording) -> bool:
    """Return whether it says what is done on a day, of which there may be several: "I work from home on Mondays"."""
    return (
        wording.speaks_of_me and not wording.subject and any(value.kind in ("day", "clock") for value in wording.values)
    )


def exclude(one: Value, other: Value, old: Wording, new: Wording) -> bool:
    """Return whether two values may not both hold.

    Args:
        one, other: A value of the older statement, and one of the newer.
        old, new: The two statements, for what the values are about.
    """
    if one.kind != other.kind or one.value == other.value:
        return False
    if any(value.kind == one.kind and value.value == one.value and value.of == one.of for value in new.values):
        return False  # it repeats the value
    if one.kind != "number":
        return one.of == other.of
    if one.of == other.of:
        return True
    was, now = one.of.removesuffix(" _"), other.of.removesuffix(" _")
    if now == "" and was != one.of and old.subject and old.subject <= new.content:
        return True  # "Staging runs on port 4000": "Staging runs on 4100 now"
    money = stem_list("money") | {""}
    return (was in money or was in new.content) and (now in money or now in old.content)


def other_role(old: Wording, new: Wording) -> float:
    """Return how surely `new` says who or what has the place that somebody or something else has in `old`."""
    if not new.changes or old.is_past:
        return 0.0
    departed = new.departed
    if departed and departed <= old.content - {value.of for value in old.values}:
        rest = old.anchors - departed
        if rest and (2 * len(rest & (new.content - departed)) >= len(rest) or rest & new.leaves):
            return 0.7
    if old.values or new.values:
        return 0.0
    if not old.subject or not old.says_what_it_is or not new.says_what_it_is:
        return 0.0
    same = old.subject == new.subject  # "My manager is Anna": "My manager is now Bo"
    ours = old.speaks_of_me == new.speaks_of_me
    other_way = ours and old.subject in (new.complement, new.subject)  # "Bo is my manager now"
    turned = ours and old.complement and old.complement == new.subject  # "Anna is my manager": "My manager is now Bo"
    differ = old.content - new.content and new.content - old.content
    named = bool(old.complement and new.complement and differ)
    if named and (other_way or turned or same):
        return 0.6
    functional = frozenset(map(stem, read_words("functional")))
    other = not (old.content - old.subject) & new.content
    return 0.6 if same and other and old.subject & functional else 0.0


def other_of_the_same(old: Wording, new: Wording) -> float:
    """Return how surely `new` says of the same action, under the same circumstances, that it is done with something else now."""
    if not new.changes or old.values or new.values or old.subject - new.content:
        return 0.0
    shared, lost, added = old.content & new.content, old.content - new.content, new.content - old.content
    # "I drink tea in the morning": "I prefer coffee in the morning now"
    taste = bool(stem_list("taste") & old.content and stem_list("taste") & new.content - stem_list("additive"))
    passing = stem_list("taste") if taste else frozenset[str]()
    lost, added = lost - old.action - passing, added - stem_list("change verbs") - passing
    if len(lost) != 1 or not 1 <= len(added) <= 2:
        return 0.0
    to_another = cue("to another").search(new.plain) is not None
    acts = old.action & new.content & stem_list("exclusive")
    if len(shared) >= 2:
        parallel = len(added) == 1 and old.action & new.content - stem_list("additive")
        return 0.5 if acts or to_another or parallel else 0.0
    if taste and len(added) == 1 and shared - stem_list("taste"):
        return 0.5
    short = to_another and len(old.content) <= 3
    return 0.5 if len(added) == 1 and shared and (short or shared <= acts) else 0.0
