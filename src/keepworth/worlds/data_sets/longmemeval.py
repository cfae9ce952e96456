"""LongMemEval, oracle variant, as tasks: questions about a user's own chat history (Wu et al., ICLR 2025, arXiv
2410.10813; MIT).

The file ships inside the package. A haystack is a question's evidence sessions and, on request, N distractor
sessions: call such a set "longmemeval-oracle+N", never LongMemEval_S.

Counts, without the 30 abstention questions (17, 2 and 11 more), and of the extractive subset:

    type                          train   dev  test
    knowledge-update                 43     7    22
    multi-session                    71    14    36
    single-session-assistant         32     6    18
    single-session-preference        16     1    13
    single-session-user              45     2    17
    temporal-reasoning               72    14    41
    all                             279    44   147
    extractive                      113    12    43
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice

from keepworth.base.errors import require_known
from keepworth.base.metrics import tokens
from keepworth.records.episode import Session, Task
from keepworth.worlds.data_sets.competing import competes, contains
from keepworth.worlds.data_sets.longmemeval_questions import EXTRACTIVE_TYPES, TYPES, LongMemEvalQuestion, questions
from keepworth.worlds.data_sets.passages import name_of
from keepworth.worlds.json_lines import mark_evidence
from keepworth.worlds.splits import SPLITS, draw_order


def longmemeval(
    split: str,
    *,
    distractors: int = 0,
    seed: int = 0,
    extractive: bool = False,
    types: Sequence[str] | None = None,
    abstention: bool | None = None,
) -> list[Task]:
    """Returns the tasks of one split, in order of question id.

    `input` is the question alone. The tags are type, split, abstention, extractive, choice ("true" where the question itself
    offers the answer, as in "which came first, A or B"), distractors. A haystack session may be dated later on the day of the
    question: so is the source.

    Raises UnknownName for a split or type; ValueError for options that exclude each other.

    Args:
        split: "train", "dev" or "test"; the rule is in `splits`.
        distractors: The sessions that are added to each haystack, or as many as are eligible (the count is in
            tags["distractors"]). Eligible are sessions of other questions of the same split that are dated before the question,
            are not tied to it (see `questions`) and do not compete with its answer (`competing.competes`).
        seed: Distractors are drawn by a hash of it, the question's id and the session's id, so that 10 are among the 50.
        extractive: Whether there are only questions of EXTRACTIVE_TYPES whose every normalised answer word occurs in the user
            turns that are marked as evidence.
        types: The types of questions; None is all.
        abstention: Whether questions that must be declined ("..._abs") are included; None: not in "train", nor with
            `extractive`. Their answers are explanations, and those of single-session-preference are rubrics: string metrics are
            poor measures of both.
    """
    require_known("split", split, SPLITS)
    for name in types or ():
        require_known("question type", name, TYPES)
    if distractors < 0:
        raise ValueError(f"distractors={distractors}: must be 0 or more")
    if extractive and abstention:
        raise ValueError(
            "extractive=True with abstention=True: an abstention question has no answer in its evidence; drop one of the two"
        )
    impossible = sorted(set(types or ()) - set(EXTRACTIVE_TYPES)) if extractive else []
    if impossible:
        raise ValueError(
            f"extractive=True with types {impossible}: extractive questions are of {', '.join(EXTRACTIVE_TYPES)}"
        )
    if types is not None and not types:
        raise ValueError("types=() leaves no question: name at least one type, or leave it out for all")
    with_abstention = split != "train" if abstention is None else abstention
    chosen = [
        question
        for question in questions()
        if question.split == split
        and (types is None or question.type in types)
        and (question.extractive if extractive else with_abstention or not question.abstention)
    ]
    return [_task(question, distractors, seed) for question in chosen]


def content_of(session: Session) -> tuple[str, ...]:
    """Returns the texts of a session's turns, by which sessions are compared."""
    return tuple(turn.text for turn in session.turns)


def sessions_of(split: str) -> list[Session]:
    """Returns the sessions of the questions of one side, each content once, in order of id, without marks of evidence."""
    require_known("split", split, SPLITS)
    return [session for session, _ in _pool(split)]


def _task(question: LongMemEvalQuestion, distractors: int, seed: int) -> Task:
    drawn = _draw(question, distractors, seed) if distractors else ()
    haystack = sorted((*question.sessions, *drawn), key=lambda session: (session.date, session.id))
    words = tokens(question.text)
    return Task(
        key=f"longmemeval/{question.id}",
        source=f"longmemeval-oracle+{distractors}",
        input=question.text,
        answers=question.answers,
        verifier="token_f1",
        asked_at=question.asked_at,
        sessions=tuple(haystack),
        evidence=tuple(session.id for session in question.sessions),
        tags={
            "type": question.type,
            "split": question.split,
            "abstention": _flag(question.abstention),
            "extractive": _flag(question.extractive),
            "choice": _flag(any(contains(words, gold) for gold in map(tokens, question.answers) if gold)),
            "distractors": str(len(drawn)),
        },
    )


@lru_cache(maxsize=2048)
def _draw(question: LongMemEvalQuestion, count: int, seed: int) -> tuple[Session, ...]:
    eligible = [
        session for session, tie in _pool(question.split) if tie != question.tie and session.date < question.asked_at
    ]
    eligible.sort(key=lambda session: draw_order(seed, question.id, session.id))
    harmless = (session for session in eligible if not competes(session, question.text, question.answers))
    return tuple(islice(harmless, count))


@lru_cache(maxsize=len(SPLITS))
def _pool(split: str) -> tuple[tuple[Session, str], ...]:
    """Returns (session without marks of evidence, tie of its question) of one side, without copies under another id."""
    entries: dict[tuple[str, ...], tuple[Session, str]] = {}
    for question in questions():
        if question.split == split:
            for session in question.sessions:
                entries.setdefault(content_of(session), (mark_evidence(session), question.tie))
    return tuple(sorted(entries.values(), key=lambda pair: pair[0].id))


def _flag(value: bool) -> str:
    return "true" if value else "false"


TEXTS = {"train": 20, "dev": 10, "test": 20}
"""The number of haystacks of a side."""


def chats(split: str, number: int, count: int, seed: int) -> list[Session]:
    """Returns sessions of a side in order of date, under uninformative names.

    Args:
        split: The side that they are drawn from: "train", "dev" or "test".
        number: The number of the haystack; each draws others.
        count: How many sessions there are, at most.
        seed: The seed of the draw, by a hash.
    """
    drawn = sorted(sessions_of(split), key=lambda session: draw_order("chats", seed, number, session.id))[:count]
    drawn.sort(key=lambda session: (session.date, session.id))
    return [replace(session, id=name_of("chats", split, seed, number, session.id)) for session in drawn]
