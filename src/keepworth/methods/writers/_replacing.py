"""Decides whether a statement replaces an older one: by rules, and otherwise by their similarity in meaning and features of their
words.

By the rules an older statement is replaced where the newer one has another value of a single-valued attribute, says the opposite,
or calls the older one over or replaced. In doubt both stay, since a superfluous fact costs less than a lost one.

The weights were fitted (`benchmarks/agents/replacing.json`) on planted changes and on LongMemEval, where nearly all later
statements replace nothing. The bound is chosen so that hardly any statement is replaced wrongly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from keepworth.memory.english import Patterns, read_english, read_words
from keepworth.methods.writers._claims import USER, Claim, stems

_RULES, _WORDS = Patterns("claims"), Patterns("replacing")
_NO_NAME = frozenset(("i", "i'm", "i've", "i'd", "i'll", "my", "we", "we're", "our", "dr", "mr", "mrs", "ms"))
BOUND = 0.5
"""The weighted sum from which a statement is replaced."""


def asked_for(claim: Claim) -> list[str]:
    """Returns searches that find the statements which `claim` may replace."""
    about = "" if claim.about == USER else f"{claim.about} "
    more = read_english()["texts"]["expansions"].get(claim.attribute, claim.attribute.removeprefix("to "))
    wanted = [claim.text, f"{about}{more}".strip()]
    if claim.instead:
        wanted.append(f"{about}{claim.instead}")
    return [search for search in dict.fromkeys(wanted) if search.strip()]


def gives_way(old: Claim, new: Claim) -> bool:
    """Returns whether `new` makes the earlier statement `old` untrue. An equal text does not."""
    if old.text == new.text:
        return False
    if old.about != new.about or "plan" in (old.attribute, new.attribute) or "past" in (old.attribute, new.attribute):
        return False
    theirs, ours = stems(old.value), stems(new.value)
    same = old.attribute == new.attribute != ""
    alike = bool(theirs and ours) and (theirs <= ours or ours <= theirs)
    whole_old, whole_new = stems(old.text), stems(new.text)
    if new.over:
        if old.over:
            return False
        if same and (alike or not ours):
            return True
        left = ours | stems(new.instead)
        return bool(left) and left <= whole_old and (same or len(left) >= 2 or 2 * len(left) >= len(whole_old))
    if new.instead:
        gone = stems(new.instead) - read_words("points")
        context = (whole_old & whole_new) - gone
        if gone and gone <= whole_old and not old.over and (same or context or 2 * len(gone) >= len(whole_old)):
            return True
    if same and old.over and not new.denies:
        return new.single or alike
    if same and alike:
        return old.denies != new.denies
    if same and new.single and not new.denies:
        return not old.denies and bool(theirs and ours)
    # An announced change of an unknown attribute: the same verb, and nearly the same words.
    if _RULES.nowadays.search(new.text) and not new.denies and not old.denies and theirs and ours:
        # "I like my coffee black" is not replaced by "I prefer coffee in the morning now": both are about coffee.
        taste = {old.attribute, new.attribute} <= read_words("taste") and _thing(old) != _thing(new)
        return (same or taste) and theirs != ours and 2 * len(theirs & ours) >= max(len(theirs), len(ours))
    return False


def _thing(claim: Claim) -> frozenset[str]:
    """Returns the stem of the first content word of a value."""
    return next((result for word in claim.value.split() if (result := stems(word))), frozenset())


def taken_over(new: Claim, earlier: Sequence[Sequence[Claim]]) -> list[int]:
    """Returns the positions of the items that `new` replaces: an item of several statements only if all of them give way."""
    return [index for index, olds in enumerate(earlier) if olds and all(gives_way(old, new) for old in olds)]


def signs(old: Claim, new: Claim, cosine: float) -> dict[str, float]:
    """Returns features for or against `new` replacing `old`."""
    before, after = _WORDS.day_shown.sub("", old.text), _WORDS.day_shown.sub("", new.text)
    old_names, new_names = _names(before), _names(after)
    low_before, low_after = before.lower(), after.lower()
    shared = any(name in low_after for name in old_names) or any(name in low_before for name in new_names)
    other = sum(name not in low_before for name in new_names)
    gone = any(name not in low_after for name in old_names)
    old_words, new_words, value = stems(before), stems(after), stems(old.value)
    left, became, now = (bool(pattern.search(after)) for pattern in (_WORDS.left, _WORDS.became, _WORDS.now))
    return {
        "one": 1.0,
        "cosine": cosine,
        "now": now,
        "now, alike": now * cosine,
        "became": became,
        "left": left,
        "left, of what was said": left and (shared or bool(value and value <= new_words)),
        "another name": bool(other) and gone,
        "changed, from one name to another": (left or became or now) and shared and bool(other),
        "new names": min(other, 2.0),
        "same attribute": old.attribute == new.attribute != "",
        "little differs": bool(old_words & new_words) and len(old_words - new_words) <= 2,
        "same person": old.about == new.about,
        "denied": new.denies,
        "beside": bool(_WORDS.beside.search(after)),
        "ahead": bool(_WORDS.ahead.search(after)),
        "was ahead": bool(_WORDS.ahead.search(before)),
        "once": bool(_WORDS.once.search(after)),
        "was once": bool(_WORDS.once.search(before)),
        "words": math.log(1 + len(after.split())),
        "words before": math.log(1 + len(before.split())),
    }


def told_as_change(claim: Claim) -> bool:
    """Returns whether the words of a claim announce a change; otherwise it replaces nothing by similarity."""
    return any(pattern.search(claim.text) for pattern in (_WORDS.now, _WORDS.became, _WORDS.left))


def replaces(old: Claim, new: Claim, cosine: float) -> float:
    """Returns the score with which `new` replaces `old`, which was said on an earlier day: from `BOUND` on it does."""
    if old.about != new.about or not told_as_change(new) or "past" in (old.attribute, new.attribute):
        return -math.inf
    weights = read_english()["weights"]
    return float(sum(weights[name] * value for name, value in signs(old, new, cosine).items()))


def _names(text: str) -> set[str]:
    """Returns names and numbers in lower case, without the sentence's first word, which is always capitalised."""
    names = (match for match in _WORDS.name.finditer(text) if match.start() or match[0][0].isdigit())
    return {name for match in names if (name := match[0].lower().rstrip(".,:-").removesuffix("'s")) not in _NO_NAME}
