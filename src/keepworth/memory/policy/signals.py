"""What comes after an answer says how good it was: the user thanks, corrects or asks again, a tool fails, a test passes.

signal_of("No, I meant Lisbon.")          ->  "corrected", -1
signal_of("3 failed, 9 passed in 2 s", role="tool")  ->  "tests failed", -1

After "OpenClaw-RL" (arXiv 2603.10165), where a judge votes on what the next state says of an action; these rules take its place.
In doubt they say nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from keepworth.memory.english import Patterns
from keepworth.memory.policy.claims import stems

SIGNALS = {
    "thanked": 1,
    "corrected": -1,
    "asked again": -1,
    "tool failed": -1,
    "tests passed": 1,
    "tests failed": -1,
}
"""Names, and what each says of the answer before."""
PREFIX = "signal"
"""Of the name of whoever rewards by a signal: before ":" and the person that memory is asked for."""
_WORDS = Patterns("signals")
LONGEST = 20_000
ALIKE, WORDS_ALIKE = 0.6, 3
"""What two questions share to be the same one: of all their words, and at least so many."""


@dataclass(frozen=True, slots=True)
class UseSignal:
    """name: see `SIGNALS`; vote: -1, 0 or 1, of what was done before."""

    name: str
    vote: float


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
    if _WORDS.correction.match(text):
        return UseSignal("corrected", -1.0)
    if _WORDS.thanks.match(first) and not _WORDS.but.search(first):
        return UseSignal("thanked", 1.0)
    if asked_before and _same_question(text, asked_before):
        return UseSignal("asked again", -1.0)
    return None


def _of_tool(text: str) -> UseSignal | None:
    if _WORDS.tests_bad.search(text):
        return UseSignal("tests failed", -1.0)
    if _WORDS.failed.search(text):
        return UseSignal("tool failed", -1.0)
    return UseSignal("tests passed", 1.0) if _WORDS.tests_good.search(text) else None


def _same_question(text: str, before: str) -> bool:
    new, old = stems(text), stems(before)
    shared = len(new & old)
    return shared >= WORDS_ALIKE and shared >= ALIKE * len(new | old)
