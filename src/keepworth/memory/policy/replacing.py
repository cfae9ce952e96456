"""Whether a statement takes the place of an older one, where no rule of `claims` says so: from how near they are in meaning and a
few signs in their words.

The weights are fitted by `python -m benchmarks.agents.replacing` on planted changes and on LongMemEval, where nearly everything
that is said later leaves the older standing. The bound is chosen so that next to nothing gives way wrongly: a fact too many costs
a line, a fact lost is lost.
"""

from __future__ import annotations

import math
import re

from keepworth.memory.policy.claims import Claim, stems

_NAMED_DAY = (
    "the|last|this|new year|monday|tuesday|wednesday|thursday|friday|saturday|sunday|january|february|march|april|may|june|july|"
    "august|september|october|november|december|spring|summer|autumn|fall|winter|yesterday"
)
_NOW = re.compile(
    r"\b(?:now(?! that)|nowadays|these days|from (?:now|here) on|as of|any ?more|any longer|no longer|after all|"
    rf"since (?:{_NAMED_DAY})|from next|instead|rather than)\b",
    re.IGNORECASE,
)
_BECAME = re.compile(
    r"\b(?:switch\w*|swap\w*|trad(?:ed|ing)|replac\w*|exchang\w*|mov(?:ed?|ing)|relocat\w*|chang\w+|turned into|bec[ao]me|"
    r"w[eo]nt from|gone over|shift\w*|convert\w*|upgrad\w*|transferr?\w*|postpon\w*|reschedul\w*|push\w*|slipped|settl\w*|"
    r"ended up|my new \w+ (?:is|are)|took up|picked up|signed up|joined|hired|turned|updated?|went up|up to)\b",
    re.IGNORECASE,
)
_LEFT = re.compile(
    r"\b(?:left|leav\w+|quit\w*|cancel\w*|dropp\w*|ga?ve up|giv(?:en|ing) up|goodbye|farewell|over|gone|retir\w+|died|dead|"
    r"ditch\w*|laps\w+|turned my back|kick\w*|outgr[eo]w\w*|stopp\w*|came off|took me off|sold|closed?|threw out|ended|finished|"
    r"forget|ignore|tired of|cut out|moved on|aside|let .{1,30} go|no more|haven't|behind|history|lost|resign\w*|handed in|"
    r"used to|broke|disappear\w*)\b",
    re.IGNORECASE,
)
_BESIDE = re.compile(
    r"\b(?:also|too|as well|another|on top of|both|besides|additional\w*|in addition|second|third|more|"
    r"start(?:ed)? (?:to|\w+ing))\b",
    re.IGNORECASE,
)
_AHEAD = re.compile(
    r"\b(?:thinking (?:of|about)|plan(?:s|ning)?|considering|looking (?:for|to|forward|into)|might|may|wants?|wanting|would|will|"
    r"'ll|hop(?:e|ing)|interested|needs?|going to|trying|tried|could|should|excited|wondering|curious|maybe|wish)\b",
    re.IGNORECASE,
)
_ONCE = re.compile(
    r"\b(?:visited|went (?:to|on)|attended|bought|spent|saw|met|came back|got back|watched|ordered|booked|helped|tried|"
    r"made|baked|cooked|participated|flew|travell?ed|volunteered|planted|set)\b",
    re.IGNORECASE,
)
_NAME = re.compile(r"\b[A-Z][\w'-]*|\b\d[\w:.,-]*")
_NO_NAME = frozenset(("i", "i'm", "i've", "i'd", "i'll", "my", "we", "we're", "our", "dr", "mr", "mrs", "ms"))
_DAY_SHOWN = re.compile(r"\s*\([\d\- to]+\)(?=[.!]?$)")

WEIGHTS = {
    "one": -8.011,
    "cosine": 14.151,
    "now": 1.16,
    "now, alike": 0.269,
    "became": 0.814,
    "left": 0.445,
    "left, of what was said": 2.75,
    "another name": 1.885,
    "changed, from one name to another": 1.865,
    "new names": -0.625,
    "same attribute": -0.432,
    "little differs": 0.48,
    "same person": 5.294,
    "denied": -0.165,
    "beside": -3.067,
    "ahead": -1.541,
    "was ahead": -1.642,
    "once": -0.647,
    "was once": -0.612,
    "words": -3.064,
    "words before": -0.391,
}
BOUND = 0.5
"""What the sum of the weights must reach."""


def signs(old: Claim, new: Claim, cosine: float) -> dict[str, float]:
    """What says for or against that `new` takes the place of `old`."""
    before, after = _DAY_SHOWN.sub("", old.text), _DAY_SHOWN.sub("", new.text)
    old_names, new_names = _names(before), _names(after)
    low_before, low_after = before.lower(), after.lower()
    shared = sum(name in low_after for name in old_names) + sum(name in low_before for name in new_names)
    other, gone = (
        sum(name not in low_before for name in new_names),
        sum(name not in low_after for name in old_names),
    )
    old_words, new_words = stems(before), stems(after)
    value = stems(old.value)
    left, became, now = (float(bool(each.search(after))) for each in (_LEFT, _BECAME, _NOW))
    return {
        "one": 1.0,
        "cosine": cosine,
        "now": now,
        "now, alike": now * cosine,
        "became": became,
        "left": left,
        "left, of what was said": left * float(bool(shared) or bool(value and value <= new_words)),
        "another name": float(bool(other) and bool(gone)),
        "changed, from one name to another": float(bool(left or became or now) and bool(shared) and bool(other)),
        "new names": min(other, 2.0),
        "same attribute": float(old.attribute == new.attribute != ""),
        "little differs": float(bool(old_words & new_words) and len(old_words - new_words) <= 2),
        "same person": float(old.about == new.about),
        "denied": float(new.denies),
        "beside": float(bool(_BESIDE.search(after))),
        "ahead": float(bool(_AHEAD.search(after))),
        "was ahead": float(bool(_AHEAD.search(before))),
        "once": float(bool(_ONCE.search(after))),
        "was once": float(bool(_ONCE.search(before))),
        "words": math.log(1 + len(after.split())),
        "words before": math.log(1 + len(before.split())),
    }


def told_as_change(claim: Claim) -> bool:
    """Whether its words tell of a change at all: what does not leaves the older standing."""
    return any(each.search(claim.text) for each in (_NOW, _BECAME, _LEFT))


def replaces(old: Claim, new: Claim, cosine: float) -> float:
    """How surely `new` takes the place of `old`, which was said on an earlier day: from `BOUND` on it does."""
    if old.about != new.about or not told_as_change(new) or "past" in (old.attribute, new.attribute):
        return -math.inf
    return sum(WEIGHTS[name] * value for name, value in signs(old, new, cosine).items())


def _names(text: str) -> set[str]:
    """Names and numbers in lower case; the first word is none, as every sentence begins with a capital letter."""
    found = (match for match in _NAME.finditer(text) if match.start() or match[0][0].isdigit())
    return {name for match in found if (name := match[0].lower().rstrip(".,:-").removesuffix("'s")) not in _NO_NAME}
