"""Choosing a memory operation: synthetic facts about people, with the right operation known by construction.

A case is a short list of memories, a new fact, and the one operation that keeps the memory true:

* ADD       nothing in the list covers the fact;
* UPDATE i  entry i is about the same person and attribute, and the value changed;
* DELETE i  the fact says that entry i no longer holds, and gives nothing in its place;
* NOOP      the fact is stored already (in the same or in other words), or ends something that was never stored.

The four operations are those of "Memory-R1: Enhancing Large Language Model Agents to Manage and Utilize Memories via
Reinforcement Learning" (arXiv 2508.19828). They are drawn equally often, at one of two levels:

* near-miss: every list holds the same person with another attribute, and another person with the same attribute.
  Wording does not give the operation away: a change may be told in the words of a plain statement, a first mention in
  the words of a change, and what is stored already may be told in other words.
* plain: the other entries share neither person nor attribute with the fact, a change is told as a change, and what is
  stored already is told in the same words. What is left is to tell a first mention from a repetition and to name the
  right entry.

Held out: no name of one split occurs in another, and some values occur in one held-out split only. Both are decided
by the sha256 of the word (`recollect.tasks.splits.side`), so that they never depend on a seed.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from recollect.episodes.operation import OperationKind, ParseStatus
from recollect.episodes.task import Session, Task, Turn
from recollect.tasks.options import require_known
from recollect.tasks.splits import SPLITS, side

GENERATOR_VERSION = 1
MEMORY_SESSION = "memory"
DEFAULT_ENTRIES = 4
LEVELS = ("near-miss", "plain")


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NAMES = _words(
    "Adam Aisha Alba Alma Amir Andrea Anton Astrid Beatriz Bella Bruno Carla Carlos Cecilia Clara Daniel "
    "Daria David Diego Dora Edith Elena Elias Emil Emma Erik Esther Eva Felix Fatima Fiona Frank Frida "
    "Georg Gina Grace Greta Hana Hannah Hassan Helen Henry Hugo Ibrahim Ida Ines Irene Isaac Ivan Jack "
    "Jan Jana Javier Joel Jonas Julia Kai Karin Kenji Klara Lars Laura Leila Leo Linda Lucia Luis Lukas "
    "Magda Marco Maria Martin Mary Max Maya Mei Mila Mina Mohamed Nadia Nina Noah Nora Olga Oliver Omar "
    "Oscar Otto Paula Pedro Peter Petra Priya Rachel Rafael Ravi Rita Robert Rosa Ruth Samir Sara Sofia "
    "Stefan Susan Tara Theo Thomas Tobias Uma Vera Victor Walter Wanda Yara Yusuf Zara Zoe"
)


@dataclass(frozen=True, slots=True)
class Attribute:
    """One thing a person has at most one of. `{n}` is the person, `{v}` the value.

    states: wordings of "it holds"; changes: "it holds from now on"; ends: "it no longer holds"."""

    key: str
    states: tuple[str, ...]
    changes: tuple[str, ...]
    ends: tuple[str, ...]
    values: tuple[str, ...]


ATTRIBUTES = (
    Attribute(
        "city",
        ("{n} lives in {v}.", "{n}'s home is in {v}.", "{n} has a flat in {v}."),
        ("{n} moved to {v}.", "{n} now lives in {v}."),
        ("{n} no longer lives in {v}.", "{n} left {v}."),
        _words(
            "Oslo Rome Paris Boston Lima Tokyo Berlin Madrid Vienna Cairo Dublin Athens Seattle Prague "
            "Lisbon Toronto Chicago Warsaw"
        ),
    ),
    Attribute(
        "job",
        ("{n} works as a {v}.", "{n} is a {v}.", "{n} earns a living as a {v}."),
        ("{n} became a {v}.", "{n} now works as a {v}."),
        ("{n} no longer works as a {v}.", "{n} gave up the job as a {v}."),
        _words(
            "nurse teacher pilot baker lawyer painter plumber farmer dentist waiter tailor banker gardener "
            "driver writer chef"
        ),
    ),
    Attribute(
        "pet",
        ("{n} has a pet {v}.", "{n} keeps a {v}.", "{n}'s pet is a {v}."),
        ("{n} now has a pet {v} instead.", "{n}'s pet is now a {v}."),
        ("{n} no longer has a {v}.", "{n} gave the {v} away."),
        _words("dog cat parrot rabbit hamster turtle snake goldfish pony lizard canary ferret"),
    ),
    Attribute(
        "drink",
        ("{n}'s favourite drink is {v}.", "{n} likes {v} best.", "{n} always orders {v}."),
        ("{n} switched to drinking {v}.", "{n}'s favourite drink is now {v}."),
        ("{n} no longer drinks {v}.", "{n} gave up {v}."),
        _words("tea coffee cocoa cider lemonade milk cola espresso water juice wine beer"),
    ),
    Attribute(
        "language",
        ("{n} is learning {v}.", "{n} studies {v}.", "{n} takes {v} lessons."),
        ("{n} switched to learning {v}.", "{n} is now learning {v}."),
        ("{n} stopped learning {v}.", "{n} no longer takes {v} lessons."),
        _words("Spanish French German Greek Arabic Danish Polish Hindi Korean Turkish Dutch Swedish Czech Welsh"),
    ),
    Attribute(
        "instrument",
        ("{n} plays the {v}.", "{n}'s instrument is the {v}.", "{n} practises the {v}."),
        ("{n} switched to the {v}.", "{n} now plays the {v}."),
        ("{n} no longer plays the {v}.", "{n} stopped playing the {v}."),
        _words("piano violin cello flute drums guitar harp trumpet banjo clarinet organ oboe"),
    ),
    Attribute(
        "car",
        ("{n} drives a {v}.", "{n}'s car is a {v}.", "{n} owns a {v}."),
        ("{n} now drives a {v}.", "{n} changed the car for a {v}."),
        ("{n} no longer drives a {v}.", "{n} sold the {v}."),
        _words("Volvo Toyota Fiat Ford Honda Skoda Tesla Jeep Mazda Renault Seat Kia"),
    ),
    Attribute(
        "sport",
        ("{n} trains in {v}.", "{n}'s sport is {v}.", "{n} does {v} every week."),
        ("{n} took up {v} instead.", "{n}'s sport is now {v}."),
        ("{n} no longer does {v}.", "{n} stopped training in {v}."),
        _words("boxing rowing judo tennis rugby fencing cycling hockey golf karate swimming climbing skating archery"),
    ),
    Attribute(
        "class day",
        ("{n}'s cooking class is on {v}.", "{n} goes to a cooking class on {v}.", "{n} has a cooking class every {v}."),
        ("{n}'s cooking class moved to {v}.", "{n}'s cooking class is now on {v}."),
        ("{n} no longer goes to the {v} cooking class.", "{n} dropped the cooking class on {v}."),
        _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday"),
    ),
)
BY_KEY = {attribute.key: attribute for attribute in ATTRIBUTES}


class Form(str, Enum):
    """What a sentence says of its fact."""

    STATE = "state"
    CHANGE = "change"
    END = "end"


@dataclass(frozen=True, slots=True)
class Statement:
    """A fact in structure and in words: person, attribute key, value, and what `text` says of it."""

    person: str
    attribute: str
    value: str
    form: Form
    text: str


@dataclass(frozen=True, slots=True)
class OperationCase:
    """memories: as shown, entry i under the number i; fact: the new one; kind and target: the right operation;
    trait: which construction made it (`changed`, `paraphrase`, `ended unknown` ...)."""

    memories: tuple[Statement, ...]
    fact: Statement
    kind: OperationKind
    target: int | None
    trait: str

    @property
    def gold(self) -> str:
        return written(self.kind, self.target)


def written(kind: OperationKind, target: int | None = None) -> str:
    """The canonical line of an operation: `ADD`, `UPDATE 1`, `DELETE 0`, `NOOP`."""
    return kind.value if target is None else f"{kind.value} {target}"


def names_of(split: str) -> tuple[str, ...]:
    """The people of one split. No two splits share one."""
    return tuple(name for name in NAMES if side(name) == _checked(split))


def values_of(attribute: Attribute, split: str) -> tuple[str, ...]:
    """The values an attribute takes in a split: training values everywhere, the others in their own split only."""
    allowed = {"train", _checked(split)}
    return tuple(value for value in attribute.values if side(f"{attribute.key}/{value}") in allowed)


def operation_case(
    split: str, index: int, seed: int = 0, entries: int = DEFAULT_ENTRIES, level: str = "near-miss"
) -> OperationCase:
    """Case `index` of the endless sequence that (split, seed, entries, level) names; 2 to `entries` memories are shown."""
    plain = require_known("level", level, LEVELS) == "plain"
    if entries < 2:
        raise ValueError(f"operation_case: entries must be at least 2 (a near miss needs a place), not {entries}")
    name = f"operations/{GENERATOR_VERSION}/{_checked(split)}/{seed}/{entries}/{index}"
    draw = random.Random(f"{name}/plain" if plain else name)
    kind = draw.choice((OperationKind.ADD, OperationKind.UPDATE, OperationKind.DELETE, OperationKind.NOOP))
    person = draw.choice(names_of(split))
    attribute = draw.choice(ATTRIBUTES)
    value, other_value = draw.sample(values_of(attribute, split), 2)
    count = draw.randint(2, entries)

    target: Statement | None = None
    if kind is OperationKind.ADD:
        told: tuple[tuple[Form, str], ...] = ((Form.STATE, "new"),) * 2
        form, trait = draw.choice(told if plain else (*told, (Form.CHANGE, "new in words of change")))
        fact = _statement(person, attribute, value, form, split, draw)
    elif kind is OperationKind.UPDATE:
        told = ((Form.CHANGE, "changed"),) * 2
        form, trait = draw.choice(told if plain else (*told, (Form.STATE, "changed in plain words")))
        fact = _statement(person, attribute, value, form, split, draw)
        target = _statement(person, attribute, other_value, Form.STATE, split, draw)
    elif kind is OperationKind.DELETE:
        trait = "ended"
        fact = _statement(person, attribute, value, Form.END, split, draw)
        target = _statement(person, attribute, value, Form.STATE, split, draw)
    else:
        trait = "verbatim" if plain else draw.choice(("paraphrase", "paraphrase", "verbatim", "ended unknown"))
        if trait == "ended unknown":
            fact = _statement(person, attribute, value, Form.END, split, draw)
        else:
            fact = _statement(person, attribute, value, Form.STATE, split, draw)
            target = fact
            while trait == "paraphrase" and target.text == fact.text:
                target = _statement(person, attribute, value, Form.STATE, split, draw)

    memories = [] if target is None else [target]
    others = _strangers if plain else _near_misses
    memories += others(person, attribute, value, count - len(memories), split, draw)
    draw.shuffle(memories)
    shown_target = None
    if target is not None and kind is not OperationKind.NOOP:
        shown_target = next(number for number, memory in enumerate(memories) if memory is target)
    return OperationCase(tuple(memories), fact, kind, shown_target, trait)


def operation_tasks(
    split: str, count: int, seed: int = 0, entries: int = DEFAULT_ENTRIES, level: str = "near-miss"
) -> list[Task]:
    """`count` tasks: `input` is the new fact, the memories are the turns of one session, `answers` is the right line.

    The first n tasks of a larger count are the same n tasks."""
    return [
        as_task(
            operation_case(split, index, seed, entries, level),
            f"operations/{level}/{split}/{seed}/{entries}/{index}",
            split,
        )
        for index in range(count)
    ]


def as_task(case: OperationCase, key: str, split: str) -> Task:
    """Entry i of the memory is the turn with index i; the right entry is marked as evidence (hidden)."""
    turns = tuple(
        Turn(speaker=MEMORY_SESSION, text=memory.text, index=number, evidence=number == case.target)
        for number, memory in enumerate(case.memories)
    )
    return Task(
        key=key,
        source=f"operations-v{GENERATOR_VERSION}",
        input=case.fact.text,
        answers=(case.gold,),
        verifier="operation",
        sessions=(Session(id=MEMORY_SESSION, date="", turns=turns),),
        evidence=() if case.target is None else (MEMORY_SESSION,),
        tags={
            "split": split,
            "operation": case.kind.value,
            "target": "" if case.target is None else str(case.target),
            "trait": case.trait,
            "entries": str(len(case.memories)),
        },
    )


def shown_memories(task: Task) -> tuple[str, ...]:
    """The memories of an operation task, in the order in which they are numbered."""
    if task.verifier != "operation" or len(task.sessions) != 1:
        raise ValueError(f"task {task.key!r} is not an operation task: make those with operation_tasks()")
    return tuple(turn.text for turn in task.sessions[0].turns)


_VERBS = {
    "ADD": OperationKind.ADD,
    "INSERT": OperationKind.ADD,
    "NEW": OperationKind.ADD,
    "UPDATE": OperationKind.UPDATE,
    "SUPERSEDE": OperationKind.UPDATE,
    "REPLACE": OperationKind.UPDATE,
    "DELETE": OperationKind.DELETE,
    "REMOVE": OperationKind.DELETE,
    "NOOP": OperationKind.NOOP,
    "NO-OP": OperationKind.NOOP,
    "NO_OP": OperationKind.NOOP,
    "NONE": OperationKind.NOOP,
    "SKIP": OperationKind.NOOP,
}
_LINE = re.compile(
    r"[\s\[({\"'*`<:.-]*(?P<verb>" + "|".join(sorted(_VERBS, key=len, reverse=True)) + r")(?![A-Za-z0-9_])(?P<rest>.*)",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"(?<![A-Za-z0-9_.])([0-9]{1,4})(?![A-Za-z0-9_])")
_NUMBERED = (OperationKind.UPDATE, OperationKind.DELETE)


def read_operation(text: str, shown: int | None = None) -> tuple[OperationKind, int | None, ParseStatus]:
    """What a model's text asks for: kind, number of the entry, and how well it was said. Never raises.

    Only the first line that is not blank counts. OK is the canonical line; REPAIRED has another spelling (`none`,
    `Update [1].`, `ADD 2`, words after it); everything else is INVALID and means NOOP: no known verb, no number or
    several where one is needed, or a number that was not among the `shown` entries (None: any number will do)."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    match = _LINE.match(line)
    if match is None:
        return OperationKind.NOOP, None, ParseStatus.INVALID
    kind = _VERBS[match["verb"].upper()]
    target: int | None = None
    if kind in _NUMBERED:
        numbers = {int(number) for number in _NUMBER.findall(match["rest"])}
        if len(numbers) != 1:
            return OperationKind.NOOP, None, ParseStatus.INVALID
        target = numbers.pop()
        if shown is not None and target >= shown:
            return OperationKind.NOOP, None, ParseStatus.INVALID
    status = ParseStatus.OK if line == written(kind, target) else ParseStatus.REPAIRED
    return kind, target, status


def operation(answer: str, answers: Sequence[str]) -> float:
    """Verifier: 1.0 where `answer` asks for one of `answers`, however it is spelled; otherwise, or where invalid, 0.0."""
    kind, target, status = read_operation(answer)
    return float(status is not ParseStatus.INVALID and written(kind, target) in answers)


def _checked(split: str) -> str:
    return require_known("split", split, SPLITS)


def _statement(person: str, attribute: Attribute, value: str, form: Form, split: str, draw: random.Random) -> Statement:
    wordings = {Form.STATE: attribute.states, Form.CHANGE: attribute.changes, Form.END: attribute.ends}[form]
    return Statement(person, attribute.key, value, form, draw.choice(wordings).format(n=person, v=value))


def _strangers(
    person: str, attribute: Attribute, value: str, count: int, split: str, draw: random.Random
) -> list[Statement]:
    """Memories about `count` different people, none of them the fact's, and other attributes than the fact's."""
    names = draw.sample([name for name in names_of(split) if name != person], count)
    kinds = draw.sample([other for other in ATTRIBUTES if other is not attribute], count)
    return [
        _statement(who, what, draw.choice(values_of(what, split)), Form.STATE, split, draw)
        for who, what in zip(names, kinds, strict=True)
    ]


def _near_misses(
    person: str, attribute: Attribute, value: str, count: int, split: str, draw: random.Random
) -> list[Statement]:
    """Memories that share the person or the attribute with the fact, never both; no (person, attribute) twice."""
    others = [name for name in names_of(split) if name != person]
    taken = {(person, attribute.key)}
    misses: list[Statement] = []
    while len(misses) < count:
        # The first two are the hard ones, in either order; what follows is any of the three.
        same_person = draw.random() < 0.5 if len(misses) != 1 else misses[0].person != person
        who = person if same_person else draw.choice(others)
        what = attribute
        if same_person or (len(misses) >= 2 and draw.random() < 0.3):
            what = draw.choice([other for other in ATTRIBUTES if other is not attribute])
        if (who, what.key) in taken:
            continue
        taken.add((who, what.key))
        same_value = what is attribute and draw.random() < 0.3
        miss_value = value if same_value else draw.choice(values_of(what, split))
        misses.append(_statement(who, what, miss_value, Form.STATE, split, draw))
    return misses
