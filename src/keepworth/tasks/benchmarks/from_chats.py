"""Made from LongMemEval's conversations: needles in them, and the order in which things were said. Both ship with the package."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from keepworth.episodes.episode import Session, Task, Turn
from keepworth.episodes.errors import KeepworthError, require_known
from keepworth.memory.sentences import sentences
from keepworth.tasks.benchmarks.passages import mixed, name_of, with_evidence
from keepworth.tasks.longmemeval import sessions_of
from keepworth.tasks.metrics import normalise
from keepworth.tasks.people import names_of
from keepworth.tasks.splits import SPLITS, draw_order

_TEXTS = {"train": 20, "dev": 10, "test": 20}
"""Haystacks of a side."""


def _chats(split: str, number: int, count: int, seed: int) -> list[Session]:
    """`count` sessions of a side in order of date, drawn for haystack `number`, under names that say nothing."""
    drawn = sorted(sessions_of(split), key=lambda session: draw_order("chats", seed, number, session.id))[:count]
    drawn.sort(key=lambda session: (session.date, session.id))
    return [replace(session, id=name_of("chats", split, seed, number, session.id)) for session in drawn]


# Needles: a fact that has nothing to do with what is spoken of, and others that are nearly it.

_THINGS = (
    "archive",
    "boathouse",
    "greenhouse",
    "observatory",
    "workshop",
    "cellar",
    "attic",
    "library",
    "garage",
    "studio",
)
_SAID = (
    "By the way, the door code of {n}'s {t} is {v}.",
    "Before I forget: the door code of {n}'s {t} is {v}.",
    "One more thing, {n}'s {t} has the door code {v}.",
)


def needles(split: str, *, sessions: int = 20, depths: int = 5, seed: int = 0) -> list[Task]:
    """Door codes said in passing in conversations of others: `depths` in each of 10 or 20 haystacks of `sessions` sessions.

    Needles stand at equal steps of depth, at the end of a user's turn. Each person has a second place with another code, and
    each place a second person: half of what is asked for does not find it. tags: type (the depth, as a share of the
    haystack), split, cluster (the haystack). The dials make it longer or denser."""
    require_known("split", split, SPLITS)
    if sessions < 1 or not 1 <= depths <= 10:
        raise KeepworthError(
            f"sessions={sessions}, depths={depths}: sessions are 1 or more, depths 1 to 10.", "Change them."
        )
    return [task for number in range(_TEXTS[split]) for task in _needles(split, number, sessions, depths, seed)]


def _needles(split: str, number: int, count: int, depths: int, seed: int) -> list[Task]:
    draw = random.Random(f"needles/{split}/{seed}/{number}")
    people = draw.sample(names_of(split), min(depths + 1, len(names_of(split))))
    things = draw.sample(_THINGS, depths + 1) if depths < len(_THINGS) else [*_THINGS, "barn"]
    codes = draw.sample(range(10_000, 100_000), 2 * depths)
    asked = [(people[place % len(people)], things[place], codes[place]) for place in range(depths)]
    near = [(people[(place + 1) % len(people)], things[place], codes[depths + place]) for place in range(depths)]
    planted: dict[tuple[str, int], list[str]] = {}
    chats = _chats(split, number, count, seed)
    places = [(s.id, turn.index) for s in chats for turn in s.turns if turn.speaker == "user"]
    where: list[tuple[str, int]] = []
    for step, fact in enumerate(asked):
        at = places[round(step * (len(places) - 1) / max(1, depths - 1))] if depths > 1 else places[len(places) // 2]
        planted.setdefault(at, []).append(_stated(draw, fact))
        where.append(at)
    for fact in near:
        planted.setdefault(draw.choice([place for place in places if place not in where] or places), []).append(
            _stated(draw, fact)
        )
    told = [
        replace(s, turns=tuple(_with(turn, planted.get((s.id, turn.index), ())) for turn in s.turns)) for s in chats
    ]
    found = []
    for step, ((person, thing, code), at) in enumerate(zip(asked, where, strict=True)):
        haystack = tuple(
            replace(s, turns=tuple(replace(t, evidence=t.index == at[1]) for t in s.turns)) if s.id == at[0] else s
            for s in told
        )
        depth = step / max(1, depths - 1) if depths > 1 else 0.5
        found.append(
            with_evidence(
                Task(
                    key=f"needles/{split}/{seed}/{number}/{step}",
                    source=f"needles+{count}",
                    input=f"What is the door code of {person}'s {thing}?",
                    answers=(str(code),),
                    verifier="numeric",
                    sessions=haystack,
                    tags={"type": f"depth {depth:.2f}", "split": split, "cluster": f"{split}/{number}"},
                )
            )
        )
    return found


def _stated(draw: random.Random, fact: tuple[str, str, int]) -> str:
    return draw.choice(_SAID).format(n=fact[0], t=fact[1], v=fact[2])


def _with(turn: Turn, more: Sequence[str]) -> Turn:
    return replace(turn, text=" ".join((turn.text, *more))) if more else turn


# Order: which of two things was said first.

_DISTANCES = (1, 2, 4, 8, 16, 32)
_WORDS = (8, 40)
"""Words of a sentence that may be asked about, at least and at most."""


def order_recall(
    split: str, *, sessions: int = 4, distances: Sequence[str] = tuple(map(str, _DISTANCES)), seed: int = 0
) -> list[Task]:
    """Which of two sentences came first in what was told: sequence order recall (SORT, arXiv 2410.08133) from conversations.

    A text is `sessions` conversations without their dates, so that only order says what came first. distances: in turns
    between the two, one question for each and text. Chance is one half; which sentence stands first in the question says
    nothing. SORT's own set (Book-SORT) takes segments of nine books. tags: type (the distance), split, cluster (the text).
    Raises KeepworthError."""
    require_known("split", split, SPLITS)
    steps = []
    for step in distances:
        if not str(step).isdigit() or not int(step):
            raise KeepworthError(f"distances={step}: a distance is a number of turns.", "Write distances=1,2,4.")
        steps.append(int(step))
    if sessions < 1:
        raise KeepworthError(f"sessions={sessions}: a text has 1 or more.", "Write sessions=4 or another number.")
    return [task for number in range(_TEXTS[split]) for task in _orders(split, number, sessions, steps, seed)]


def _orders(split: str, number: int, count: int, distances: Sequence[int], seed: int) -> list[Task]:
    draw = random.Random(f"order/{split}/{seed}/{number}")
    chats = [replace(session, date="") for session in _chats(split, -number - 1, count, seed)]
    turns = [(session.id, turn) for session in chats for turn in session.turns]
    met: dict[str, int] = {}
    for _, turn in turns:
        for sentence in sentences(turn.text):
            met[normalise(sentence)] = met.get(normalise(sentence), 0) + 1
    usable = [
        [s for s in sentences(turn.text) if met[normalise(s)] == 1 and _WORDS[0] <= len(s.split()) <= _WORDS[1]]
        for _, turn in turns
    ]
    found = []
    for distance in distances:
        starts = [place for place in range(len(turns) - distance) if usable[place] and usable[place + distance]]
        if not starts:
            continue
        first = draw.choice(starts)
        pair = (draw.choice(usable[first]), draw.choice(usable[first + distance]))
        marks = {(turns[place][0], turns[place][1].index) for place in (first, first + distance)}
        key = f"order-recall/{split}/{seed}/{number}/{distance}"
        one, other = options = mixed(key, pair)
        found.append(
            with_evidence(
                Task(
                    key=key,
                    source="order-recall",
                    input=f'Which of these came first in what you were told? "{one}" Or: "{other}"',
                    answers=(pair[0],),
                    verifier="exact_match",
                    sessions=tuple(
                        replace(s, turns=tuple(replace(t, evidence=(s.id, t.index) in marks) for t in s.turns))
                        for s in chats
                    ),
                    tags={"type": f"distance {distance:02}", "split": split, "cluster": f"{split}/{number}"},
                    options=options,
                )
            )
        )
    return found
