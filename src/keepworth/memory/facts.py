"""Extracts facts from a conversation without a language model: what users state about themselves, one sentence each.

The rule is coarse on purpose and the same everywhere: a user's sentence in the first person that is not a question, a request or
a courtesy. It is never improved by looking at the answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from keepworth.base.metrics import tokens
from keepworth.memory.sentences import COURTESY, FIRST_PERSON, OPENING, QUESTION_TAIL, sentences
from keepworth.records.episode import Session, Task, Turn

USER = "user"
FACT_WORDS = 40
"""Words after which a sentence is cut, with an ellipsis."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One stated fact and its source. `date`: ISO 8601, as in the session; `turn`: index in the session."""

    statement: str
    session: str
    date: str
    turn: int
    sentence: int

    @property
    def place(self) -> tuple[str, int]:
        """Returns the turn it comes from: (session id, turn index)."""
        return self.session, self.turn


def facts_of_turn(turn: Turn, session: Session) -> list[Fact]:
    """Returns the facts that one turn states, in order; none where the speaker is not the user."""
    if turn.speaker != USER:
        return []
    return [
        Fact(statement, session.id, session.date_of(turn), turn.index, number)
        for number, statement in enumerate(filter(None, map(_statement, sentences(turn.text))))
    ]


def facts_of(sessions: Iterable[Session]) -> list[Fact]:
    """Returns the facts of the sessions by date, then by turn."""
    in_time = sorted(sessions, key=lambda session: (session.date, session.id))
    return [fact for session in in_time for fact in _facts_of_session(session)]


@lru_cache(maxsize=4096)
def _facts_of_session(session: Session) -> tuple[Fact, ...]:
    """Returns the facts of one session. Cached, since many tasks share sessions."""
    return tuple(fact for turn in session.turns for fact in facts_of_turn(turn, session))


def _statement(sentence: str) -> str:
    """Returns the fact in a sentence, or "" where it states none."""
    text = " ".join(sentence.replace("’", "'").split())
    if text.endswith("?"):
        tails = list(QUESTION_TAIL.finditer(text))
        if not tails:
            return ""
        text = text[: tails[0].start()].rstrip(" ,;-–—") + "."
    if COURTESY.match(text) or not FIRST_PERSON.search(text):
        return ""
    text = OPENING.sub("", text)
    words = text.split()
    if len(words) < 4:
        return ""
    text = " ".join(words[:FACT_WORDS]) + (" ..." if len(words) > FACT_WORDS else "")
    return text[0].upper() + text[1:]


def decisive_facts(task: Task, facts: Sequence[Fact]) -> list[Fact]:
    """Returns the facts from turns marked as evidence (hidden key) that hold enough words of a gold answer: at least one, and at
    least half as many as the fact that holds most."""
    marked = evidence_turns(task)
    wanted = {word for answer in task.answers for word in tokens(answer)}
    shared = [(fact, len(wanted & set(tokens(fact.statement)))) for fact in facts if fact.place in marked]
    most = max((count for _, count in shared), default=0)
    return [fact for fact, count in shared if count and 2 * count >= most]


def evidence_turns(task: Task) -> set[tuple[str, int]]:
    """Returns the places of the turns that are marked as evidence."""
    return {(session.id, turn.index) for session in task.sessions for turn in session.turns if turn.evidence}
