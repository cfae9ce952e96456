"""Needles: facts unrelated to the conversation that contains them, among similar facts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from keepworth.base.errors import KeepworthError
from keepworth.records.episode import Task, Turn
from keepworth.registry import Method
from keepworth.worlds.benchmark import Benchmark
from keepworth.worlds.data_sets.longmemeval import TEXTS, chats
from keepworth.worlds.data_sets.passages import with_evidence
from keepworth.worlds.data_sets.people import names_of
from keepworth.worlds.json_lines import mark_evidence

_THINGS = (
    *("archive", "boathouse", "greenhouse", "observatory", "workshop"),
    *("cellar", "attic", "library", "garage", "studio"),
)
_SAID = (
    "By the way, the door code of {n}'s {t} is {v}.",
    "Before I forget: the door code of {n}'s {t} is {v}.",
    "One more thing, {n}'s {t} has the door code {v}.",
)


def needles(split: str, *, sessions: int = 20, depths: int = 5, seed: int = 0) -> list[Task]:
    """Returns questions about door codes in unrelated chats, in each of 10 or 20 haystacks.

    Needles stand at equal steps of depth, at the end of a user's turn. Each person has a second place with another code, and
    each place a second person, so that a search by person or place alone is not enough. The tags are type (the depth, as a
    share of the haystack), split, cluster (the haystack).

    Args:
        split: "train", "dev" or "test".
        sessions: The sessions of a haystack.
        depths: The needles of a haystack, 1 to 10.
        seed: The seed of the haystacks and of the codes.
    """
    if sessions < 1 or not 1 <= depths <= 10:
        raise KeepworthError(
            f"sessions={sessions}, depths={depths}: sessions are 1 or more, depths 1 to 10.", "Change them."
        )
    return [task for number in range(TEXTS[split]) for task in _needles(split, number, sessions, depths, seed)]


def _needles(split: str, number: int, count: int, depths: int, seed: int) -> list[Task]:
    draw = random.Random(f"needles/{split}/{seed}/{number}")
    people = draw.sample(names_of(split), min(depths + 1, len(names_of(split))))
    things = draw.sample(_THINGS, depths + 1) if depths < len(_THINGS) else [*_THINGS, "barn"]
    codes = draw.sample(range(10_000, 100_000), 2 * depths)
    facts = [(people[index % len(people)], things[index], codes[index]) for index in range(depths)]
    near = [(people[(index + 1) % len(people)], things[index], codes[depths + index]) for index in range(depths)]
    planted: dict[tuple[str, int], list[str]] = {}
    sessions = chats(split, number, count, seed)
    places = [(s.id, turn.index) for s in sessions for turn in s.turns if turn.speaker == "user"]
    where: list[tuple[str, int]] = []
    for step, fact in enumerate(facts):
        at = places[round(step * (len(places) - 1) / max(1, depths - 1))] if depths > 1 else places[len(places) // 2]
        planted.setdefault(at, []).append(_state(draw, fact))
        where.append(at)
    for fact in near:
        planted.setdefault(draw.choice([index for index in places if index not in where] or places), []).append(
            _state(draw, fact)
        )
    talk = [
        replace(s, turns=tuple(_with(turn, planted.get((s.id, turn.index), ())) for turn in s.turns)) for s in sessions
    ]
    tasks = []
    for step, ((person, thing, code), at) in enumerate(zip(facts, where, strict=True)):
        haystack = tuple(mark_evidence(session, {at[1]}) if session.id == at[0] else session for session in talk)
        depth = step / max(1, depths - 1) if depths > 1 else 0.5
        tasks.append(
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
    return tasks


def _state(draw: random.Random, fact: tuple[str, str, int]) -> str:
    return draw.choice(_SAID).format(n=fact[0], t=fact[1], v=fact[2])


def _with(turn: Turn, more: Sequence[str]) -> Turn:
    return replace(turn, text=" ".join((turn.text, *more))) if more else turn


METHOD = Method(
    kind="benchmark",
    name="needles",
    title="Needles",
    about="Find door codes that were said in passing in long chats",
    tags=("factual",),
    make=Benchmark("needles", needles, licence="MIT", metric="score", shipped=True),
)
