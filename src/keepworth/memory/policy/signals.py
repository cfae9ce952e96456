"""What comes after an answer says how good it was: the user thanks, corrects or asks again, a tool fails, a test passes.

signal_of("No, I meant Lisbon.")          ->  "corrected", -1, with the correction
signal_of("3 failed, 9 passed in 2 s", role="tool")  ->  "tests failed", -1

After "OpenClaw-RL" (arXiv 2603.10165), section 7.14 of our notes: the next state both grades an action (evaluative) and often
says how it should have been (directive). There a judge votes; these rules take its place where none is configured. In doubt
they say nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from keepworth.memory.policy.claims import stems

SIGNALS = {
    "thanked": 1,
    "corrected": -1,
    "asked again": -1,
    "tool failed": -1,
    "tests passed": 1,
    "tests failed": -1,
    "judged": 0,
}
"""Names, and what each says of the answer before; a judge says that itself."""
PREFIX = "signal"
"""Of the name of whoever rewards by a signal: before ":" and the person that memory is asked for."""
LONGEST = 20_000
ALIKE, WORDS_ALIKE = 0.6, 3
"""What two questions share to be the same one: of all their words, and at least so many."""


@dataclass(frozen=True, slots=True)
class UseSignal:
    """name: see `SIGNALS`; vote: -1, 0 or 1, of what was done before; directive: what is to be done instead, in the user's
    words."""

    name: str
    vote: float
    directive: str = ""


_THANKS = re.compile(
    r"^(?:(?:ah|oh|ok|okay|yes|yep|yeah|wow|great|perfect|cool|nice)[,!. ]+)*(?:(?:many |a lot of )?thanks?\b(?! (?:but|"
    r"anyway|though))|"
    r"thank you\b|thx\b|ty\b|perfect\b|excellent\b|awesome\b|brilliant\b|wonderful\b|(?:that|this|"
    r"it)(?:'s| is| was| looks) (?:exactly |just |"
    r"absolutely )?(?:right|correct|perfect|great|what i (?:needed|wanted|meant|was looking for)|"
    r"very helpful|really helpful|helpful)\b|"
    r"(?:that|this|it|you) (?:works?|worked|helps?|helped|fixed it|did it|solved it|nailed it|"
    r"got it right)\b|works (?:now|great|perfectly)|"
    r"(?:exactly|well done|good job|great job|spot on)\b)",
    re.IGNORECASE,
)
_BUT = re.compile(
    r"\b(?:but|however|although|except|unfortunately|still (?:not|wrong|fails?|broken)|not quite|instead|wrong)\b",
    re.IGNORECASE,
)
_CORRECTION = re.compile(
    r"^(?:(?:sorry|hmm+|um+|well|oh|ah|wait|hey|hold on)[,.! ]+)*(?:"
    r"no+[,.!:;]\s+(?=\S)|nope\b|not (?:quite|really|exactly|what i|like that|that one)\b|wrong\b|incorrect\b|"
    r"(?:that|this|it|which)(?:'s| is| was|(?: answer| result) is) (?:not (?:right|correct|true|"
    r"what i|quite|it)|wrong|incorrect|false|a mistake)\b|"
    r"(?:that|this|it) (?:isn't|wasn't) (?:right|correct|true|what i|quite|it)\b|"
    r"(?:that|this|it) (?:doesn't|does not|didn't|did not) (?:work|help|answer|make sense|run|compile|fix)\b|"
    r"(?:it|that|this)(?:'s| is) still (?:not|wrong|broken|failing|the same)\b|"
    r"you (?:misunderstood|misread|forgot|ignored|missed|got (?:it|that|this|me|my \w+) wrong|"
    r"(?:are|'re) wrong|made a mistake|didn't (?:answer|"
    r"read|listen|use|follow)|used the wrong|keep (?:forgetting|ignoring|using))\b|you're (?:wrong|mistaken)\b|"
    r"i (?:said|told you|asked (?:for|you to)|already (?:said|told)|meant|didn't (?:ask|say|mean|"
    r"want)|did not (?:ask|say|mean|want))\b|"
    r"actually,? (?:it's|it is|that's|my|i)\b)",
    re.IGNORECASE,
)
_CUE = re.compile(
    r"^(?:(?:sorry|hmm+|well|oh|ah|wait|hey|no+|nope|wrong|incorrect|actually|that's (?:wrong|"
    r"not right|incorrect|not what i (?:asked for|"
    r"wanted|meant))|that is (?:wrong|not right|incorrect))[,.!:; ]+)+",
    re.IGNORECASE,
)
_FAILED = re.compile(
    r"Traceback \(most recent call last\)|^\s*(?:\w+\.)*\w*(?:Error|Exception)\b(?::|$)|^\s*(?:fatal|"
    r"error|panic|npm ERR!)[:! ]|"
    r"\bcommand not found\b|\bNo such file or directory\b|\bPermission denied\b|\bSegmentation fault\b|"
    r"\b(?:exit(?:ed with)?(?: code| status)?|return(?:ed)? code|status)[:= ]+[1-9]\d*\b(?!\d* ok)|"
    r"\"(?:error|is_?error)\"\s*:\s*(?:true|\"[^\"]|\{\s*\")",
    re.IGNORECASE | re.MULTILINE,
)
_TESTS_BAD = re.compile(
    r"\b[1-9]\d* (?:tests? )?(?:failed|failures?|failing)\b|^FAILED\b|\bFAILED \((?:failures|errors)=|"
    r"\btest result: FAILED|"
    r"^--- FAIL:|\bBUILD FAILED\b|\bTests:\s+[1-9]\d* failed|\bAssertionError\b",
    re.MULTILINE,
)
_TESTS_GOOD = re.compile(
    r"\b[1-9]\d* (?:tests? )?(?:passed|passing)\b|^OK(?: \(|\s*$)|\btest result: ok\b|^--- PASS:|"
    r"\bBUILD SUCCESS(?:FUL)?\b|"
    r"\bAll tests passed\b|^ok\s+\S+\s+[\d.]+s",
    re.MULTILINE,
)


def from_use(person: str) -> bool:
    """Whether a reward is of this name because of what came next, and not because somebody gave one."""
    return person.startswith(f"{PREFIX}:")


def signal_of(came_next: str, *, role: str = "user", asked_before: str = "") -> UseSignal | None:
    """What the next message, or the answer of a tool, says of what was done before; None where it says nothing that is sure.

    role: "user", or "tool". asked_before: what the user had asked."""
    text = came_next[:LONGEST].replace("’", "'").strip()
    if not text:
        return None
    if role != "user":
        return _of_tool(text)
    first = text.split("\n", 1)[0]
    if _CORRECTION.match(text):
        wish = _CUE.sub("", text, count=1).strip()
        return UseSignal("corrected", -1.0, wish[:1].upper() + wish[1:] if len(wish.split()) >= 3 else "")
    if _THANKS.match(first) and not _BUT.search(first):
        return UseSignal("thanked", 1.0)
    if asked_before and _same_question(text, asked_before):
        return UseSignal("asked again", -1.0)
    return None


def _of_tool(text: str) -> UseSignal | None:
    if _TESTS_BAD.search(text):
        return UseSignal("tests failed", -1.0)
    if _FAILED.search(text):
        return UseSignal("tool failed", -1.0)
    return UseSignal("tests passed", 1.0) if _TESTS_GOOD.search(text) else None


def _same_question(text: str, before: str) -> bool:
    new, old = stems(text), stems(before)
    shared = len(new & old)
    return shared >= WORDS_ALIKE and shared >= ALIKE * len(new | old)
