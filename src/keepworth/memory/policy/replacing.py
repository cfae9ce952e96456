"""Whether a statement takes the place of an older one, where no rule of `claims` says so: from how near they are in meaning and a
few signs in their words.

The weights were fitted (`benchmarks/agents/replacing.json`) on planted changes and on LongMemEval, where nearly everything
that is said later leaves the older standing. The bound is chosen so that next to nothing gives way wrongly: a fact too many costs
a line, a fact lost is lost.
"""

from __future__ import annotations

import math

from keepworth.memory.english import Patterns, read_english
from keepworth.memory.policy.claims import Claim, stems

_WORDS = Patterns("replacing")
_NO_NAME = frozenset(("i", "i'm", "i've", "i'd", "i'll", "my", "we", "we're", "our", "dr", "mr", "mrs", "ms"))
BOUND = 0.5
"""What the sum of the weights must reach."""


def signs(old: Claim, new: Claim, cosine: float) -> dict[str, float]:
    """What says for or against that `new` takes the place of `old`."""
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
    """Whether its words tell of a change at all: what does not leaves the older standing."""
    return any(pattern.search(claim.text) for pattern in (_WORDS.now, _WORDS.became, _WORDS.left))


def replaces(old: Claim, new: Claim, cosine: float) -> float:
    """How surely `new` takes the place of `old`, which was said on an earlier day: from `BOUND` on it does."""
    if old.about != new.about or not told_as_change(new) or "past" in (old.attribute, new.attribute):
        return -math.inf
    weights = read_english()["weights"]
    return float(sum(weights[name] * value for name, value in signs(old, new, cosine).items()))


def _names(text: str) -> set[str]:
    """Names and numbers in lower case; the first word is none, as every sentence begins with a capital letter."""
    names = (match for match in _WORDS.name.finditer(text) if match.start() or match[0][0].isdigit())
    return {name for match in names if (name := match[0].lower().rstrip(".,:-").removesuffix("'s")) not in _NO_NAME}
