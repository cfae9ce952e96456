"""Facts from a conversation without a language model: what the user states about themselves, one sentence each.

The rule is coarse on purpose and the same everywhere: a user's sentence in the first person that is not a question, a
request or a courtesy. What it misses is counted by `coverage`, and never fixed by looking at the answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from keepworth.episodes.task import Session, Turn
from keepworth.tasks.sentences import sentences

USER = "user"
FACT_WORDS = 40
"""A longer sentence is cut here, with an ellipsis."""

_FIRST_PERSON = re.compile(r"\b(?:I|I'm|I've|I'd|I'll|my|mine|me|myself|we|we're|we've|our|us)\b", re.IGNORECASE)
_ASKING = (
    r"(?:do|does|did|can|could|would|will|is|are|have|has|should) (?:you|there|it|that|i|we|they|any)\b",
    r"(?:what|how|which|where)\b",
    r"any (?:tips|ideas|suggestions|recommendations|advice|thoughts)\b",
    r"(?:i was|i'm) wondering\b",
)
# Where a statement turns into a question: what stands before it may still be a fact.
_QUESTION_TAIL = re.compile(
    r"(?:\s+[-–—]\s*|[,;]\s*(?:so|and|but|because)?\s*)(?:speaking of which,\s*)?(?:" + "|".join(_ASKING) + ")",
    re.IGNORECASE,
)
_OPENINGS = (
    "oh|ok|okay|great|thanks|thank you|sure|yes|no|wow|well|also|so|and|but|wait|anyway|actually|by the way|btw|cool|awesome|"
    "perfect|alright|speaking of [^,.;]{1,40}"
)
_OPENING = re.compile(rf"^(?:(?:{_OPENINGS})[,!]?\s+)+", re.IGNORECASE)
_COURTESIES = (
    r"(?:that|this|those|these|it) (?:sounds?|looks?|is|are|was|would|helps?)\b",
    r"(?:that's|it's|thanks|thank you|i appreciate|let me know|please|i see|i understand|i agree|i hope|i wonder)\b",
    r"i(?:'ll| will) (?:definitely|be sure|try|check|keep|look|make sure|start|consider|go with)\b",
    r"i think i(?:'ll| will)\b",
    r"i(?:'d| would) (?:like|love|appreciate)\b",
    r"i(?: was|'m| am) wondering\b",
    r"i(?:'ve| have) been meaning to ask\b",
    r"i need (?:some )?help\b",
    r"(?:can you|could you|do you|what|how|which)\b",
)
_COURTESY = re.compile(rf"^(?:(?:{_OPENINGS})\b[,!. ]*)*(?:" + "|".join(_COURTESIES) + ")", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Fact:
    """One stated fact and where it was said. `date`: ISO 8601, as the session has it; `turn`: index in the session."""

    statement: str
    session: str
    date: str
    turn: int
    sentence: int
    speaker: str = USER

    @property
    def text(self) -> str:
        """With its date, for people to read: `2023-05-20: I moved to Oslo.`; another speaker is named after the date."""
        who = "" if self.speaker == USER else f" {self.speaker}"
        return f"{self.date[:10]}{who}: {self.statement}"

    @property
    def place(self) -> tuple[str, int]:
        """The turn it comes from: (session id, turn index)."""
        return self.session, self.turn


def facts_of_turn(turn: Turn, session: Session) -> list[Fact]:
    """The facts one turn states, in the order of saying; none where the speaker is not the user."""
    if turn.speaker != USER:
        return []
    return [
        Fact(statement, session.id, session.date, turn.index, number)
        for number, statement in enumerate(filter(None, map(_statement, sentences(turn.text))))
    ]


def facts_of(sessions: Iterable[Session]) -> list[Fact]:
    """The facts of some sessions in the order of time: by date, then by turn."""
    return [
        fact
        for session in sorted(sessions, key=lambda session: (session.date, session.id))
        for turn in session.turns
        for fact in facts_of_turn(turn, session)
    ]


def _statement(sentence: str) -> str:
    """The fact in a sentence, or "" where it states none."""
    text = " ".join(sentence.replace("’", "'").split())
    if text.endswith("?"):
        tails = list(_QUESTION_TAIL.finditer(text))
        if not tails:
            return ""
        text = text[: tails[0].start()].rstrip(" ,;-–—") + "."
    if _COURTESY.match(text) or not _FIRST_PERSON.search(text):
        return ""
    text = _OPENING.sub("", text)
    words = text.split()
    if len(words) < 4:
        return ""
    text = " ".join(words[:FACT_WORDS]) + (" ..." if len(words) > FACT_WORDS else "")
    return text[0].upper() + text[1:]


def coverage(facts: Sequence[Fact], places: Iterable[tuple[str, int]]) -> float:
    """The share of turns (session id, turn index) that gave at least one fact; 1.0 where no turn is asked for."""
    wanted = set(places)
    return len(wanted & {fact.place for fact in facts}) / len(wanted) if wanted else 1.0
