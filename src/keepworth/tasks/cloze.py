"""Cloze tasks: a user's own sentence with its name, number or date hidden, to be restored from memory.

They need no labels, so that any log of conversations gives training tasks: the answer is in the memory word for word,
and nowhere else in what the agent is asked.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from keepworth.episodes.episode import Session, Task
from keepworth.memory.sentences import sentences
from keepworth.tasks.competing import competes
from keepworth.tasks.longmemeval import sessions_of
from keepworth.tasks.metrics import tokens
from keepworth.tasks.passages import marked
from keepworth.tasks.splits import draw_order

KINDS = ("name", "number", "date")
BLANK = "____"

_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_DAYS = "Mondays?|Tuesdays?|Wednesdays?|Thursdays?|Fridays?|Saturdays?|Sundays?"
_ORDINAL = r"\d{1,2}(?:st|nd|rd|th)?"
_DATE = re.compile(
    rf"\b(?:(?:{_DAYS})(?:, )?)?(?:(?:{_MONTHS}) {_ORDINAL}|{_ORDINAL} (?:of )?(?:{_MONTHS}))\b(?:,? \d{{4}}\b)?"
    rf"|\b(?:{_MONTHS})(?:,? \d{{4}})?\b|\b(?:{_DAYS})\b"
    r"|\b\d{1,2}/\d{1,2}(?:/\d{2,4})?\b|\b(?:19|20)\d\d\b(?!-)"
    r"|\b\d{1,2}(?::\d\d)? ?(?:[ap]\.m\.|[AaPp][Mm]\b)|\b\d{1,2}:\d\d\b"
)
_NUMBER = re.compile(
    r"(?<![\w.,:/#-])\$?\d+(?:,\d{3})*(?:\.\d+)?(?:-\d+)?(?:%|[A-Za-z]{1,3}\b)?(?![\w/:-])"
    r"|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen|twenty|thirty|forty|fifty|hundred)\b(?!-)"
)
_WORD = r"[A-Z][A-Za-z'’&]*[A-Za-z]"
_NAME = re.compile(rf"\b{_WORD}(?:(?: (?:of|the|and|de|in|&))?[ -]{_WORD}| \d+\b)*")
_NO_NAME_TEXT = """
I I'm I've I'd I'll OK Okay TV DIY FAQ PS ID AM PM CEO USA US UK USB AI HR PhD Mr Mrs Ms Dr Mom Dad Also And But So
Then The Thanks Hi Hey Yes No Not My We Our You Your It Its This That These Those There Here If When While Since
Because After Before What Which Who How Why Can Could Would Should Do Does Did Is Are Was Were By In On At For From
With To As An Or Please Maybe Speaking Actually
"""
_NO_NAME = frozenset(_NO_NAME_TEXT.split())
_QUOTES = frozenset('"“”')
_FIRST_PERSON = re.compile(r"\b(?:I|I'm|I've|my|My|we|We|our|Our|me)\b")


@dataclass(frozen=True, slots=True)
class _Blank:
    """One way to hide something: the span [start, end) of `sentence`, said by turn number `turn` of `session`."""

    kind: str
    session: Session
    turn: int
    sentence: str
    start: int
    end: int

    @property
    def answer(self) -> str:
        return self.sentence[self.start : self.end]

    @property
    def question(self) -> str:
        return f'Complete: "{self.sentence[: self.start]}{BLANK}{self.sentence[self.end :]}"'


def cloze(
    sessions: Iterable[Session],
    seed: int = 0,
    limit: int | None = None,
    *,
    distractors: int = 0,
    later: bool = False,
    speaker: str = "user",
    source: str = "cloze",
    split: str = "train",
) -> list[Task]:
    """At most `limit` tasks from anybody's conversations, kinds as balanced as the text allows; None is every usable
    sentence.

    A usable sentence is a statement of 6 to 40 words by `speaker`, in the first person, with a name, number or date
    that occurs once in it and is not given away by its other words. Each sentence gives one task, each wording of it
    one. The haystack is the sentence's session and `distractors` of the others given, dated before it or on its day,
    that do not compete with the answer. later: those dated after it, too, so that the answer is not always in the last
    session. tags: type ("cloze-name" ...), split, distractors.

    The draw depends only on seed and text, so a larger limit adds to a smaller one. A session id given twice is an
    error."""
    if limit is not None and limit < 1:
        raise ValueError(f"limit={limit}: ask for at least one task, or None for all")
    if distractors < 0:
        raise ValueError(f"distractors={distractors}: must be 0 or more")
    log = list(sessions)
    names = [session.id for session in log]
    if len(set(names)) < len(names):
        raise ValueError(
            f"session id {next(name for name in names if names.count(name) > 1)!r} is given more than once"
        )
    if not any(turn.speaker == speaker for session in log for turn in session.turns):
        present = sorted({turn.speaker for session in log for turn in session.turns})
        raise ValueError(f"nobody called {speaker!r} speaks in these {len(log)} sessions: their speakers are {present}")
    blanks = _balanced(_distinct(blank for session in log for blank in _blanks(session, speaker)), seed)
    return [_task(blank, log, seed, distractors, later, source, split) for blank in blanks[:limit]]


def training_cloze(seed: int = 0, limit: int | None = None, *, distractors: int = 0) -> list[Task]:
    """Cloze tasks from the sessions of LongMemEval's training questions only: no test conversation is touched."""
    return cloze(sessions_of("train"), seed, limit, distractors=distractors, source="longmemeval-cloze")


def _blanks(session: Session, speaker: str) -> Iterable[_Blank]:
    for turn in session.turns:
        if turn.speaker == speaker:
            for sentence in sentences(turn.text):
                if _usable(sentence):
                    yield from (
                        _Blank(kind, session, turn.index, sentence, start, end) for kind, start, end in spans(sentence)
                    )


def spans(sentence: str) -> list[tuple[str, int, int]]:
    """(kind, start, end) of what can be hidden in `sentence`: dates and times first, then numbers and names that do
    not overlap them.

    Left out: names that begin the sentence or a quotation, I and common capitals; anything that its other words
    repeat."""
    found: list[tuple[str, int, int]] = []
    for kind, pattern in (("date", _DATE), ("number", _NUMBER), ("name", _NAME)):
        for match in pattern.finditer(sentence):
            start, end = match.span()
            if kind == "name" and match[0].endswith(("'s", "’s")):
                end -= 2
            overlaps = any(start < other_end and other_start < end for _, other_start, other_end in found)
            if not overlaps and (kind != "name" or _is_name(sentence, start, end)):
                found.append((kind, start, end))
    return sorted((span for span in found if _hidden(sentence, *span[1:])), key=lambda span: span[1])


def _is_name(sentence: str, start: int, end: int) -> bool:
    if not re.search(r"[\w,;)] $|[\w,;)] [\"'“‘(]$|-$", sentence[:start]):
        return False
    words = re.split(r"[ -]", sentence[start:end])
    return not _NO_NAME & {words[0], words[-1]} and not (len(words) == 1 and (len(words[0]) < 3 or words[0].isupper()))


def _hidden(sentence: str, start: int, end: int) -> bool:
    answer = tokens(sentence[start:end])
    rest = set(tokens(sentence[:start] + " " + sentence[end:]))
    return 1 <= len(answer) <= 5 and not any(
        token in rest for token in answer if token not in {"of", "in", "and", "de"}
    )


def _usable(sentence: str) -> bool:
    return (
        6 <= len(sentence.split()) <= 40
        and sentence.endswith((".", "!"))
        and sentence[0].isupper()
        and not _QUOTES & set(sentence)
        and BLANK not in sentence
        and _FIRST_PERSON.search(sentence) is not None
    )


def _distinct(blanks: Iterable[_Blank]) -> list[_Blank]:
    """Each wording of a question once: the first session by id keeps it. The rest of a sentence seen twice may have
    two answers: none keeps it."""
    kept: dict[str, _Blank] = {}
    torn: set[str] = set()
    for blank in sorted(blanks, key=lambda one: (one.session.id, one.turn, one.sentence, one.start)):
        key = " ".join(tokens(blank.question))
        first = kept.setdefault(key, blank)
        if tokens(first.answer) != tokens(blank.answer):
            torn.add(key)
    return [blank for key, blank in kept.items() if key not in torn]


def _balanced(blanks: Sequence[_Blank], seed: int) -> list[_Blank]:
    """One blank a sentence, the kinds in turn while they last, each in seeded order."""
    queues = {
        kind: sorted(
            (blank for blank in blanks if blank.kind == kind),
            key=lambda one: draw_order(seed, one.session.id, one.turn, one.sentence, one.start),
        )
        for kind in KINDS
    }
    taken: set[str] = set()
    order: list[_Blank] = []
    while any(queues.values()):
        for kind in KINDS:
            while queues[kind]:
                blank = queues[kind].pop(0)
                if blank.sentence not in taken:
                    taken.add(blank.sentence)
                    order.append(blank)
                    break
    return order


def _task(
    blank: _Blank, log: Sequence[Session], seed: int, distractors: int, later: bool, source: str, split: str
) -> Task:
    own = marked(blank.session, {blank.turn})
    name = hashlib.sha256(
        f"{blank.session.id}\x1f{blank.turn}\x1f{blank.sentence}\x1f{blank.start}".encode()
    ).hexdigest()[:16]
    rest = f"{blank.sentence[: blank.start]} {blank.sentence[blank.end :]}"
    drawn: list[Session] = []
    if distractors:
        others = [session for session in log if session.id != own.id]
        if not later:
            others = [session for session in others if session.date[:10] <= own.date[:10]]
        others.sort(key=lambda session: draw_order(seed, name, session.id))
        for session in others:
            if len(drawn) == distractors:
                break
            if not competes(session, rest, (blank.answer,)):
                drawn.append(marked(session, ()))
    haystack = tuple(sorted((own, *drawn), key=lambda session: (session.date, session.id)))
    return Task(
        key=f"cloze/{name}",
        source=f"{source}+{distractors}",
        input=blank.question,
        answers=(blank.answer,),
        verifier="token_f1",
        asked_at=max(session.date for session in haystack),
        sessions=haystack,
        evidence=(own.id,),
        tags={"type": f"cloze-{blank.kind}", "split": split, "abstention": "false", "distractors": str(len(drawn))},
    )
