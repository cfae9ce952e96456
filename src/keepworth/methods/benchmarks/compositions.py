"""Generated questions that take several facts. No third-party text, any size, and no name on two sides."""

from __future__ import annotations

import random
from dataclasses import replace

from keepworth.base.errors import KeepworthError
from keepworth.records.episode import Task
from keepworth.registry import Method
from keepworth.worlds.benchmark import Benchmark
from keepworth.worlds.data_sets.passages import name_of, passage, with_evidence
from keepworth.worlds.data_sets.people import ATTRIBUTES, names_of, values_of
from keepworth.worlds.json_lines import mark_evidence
from keepworth.worlds.splits import draw_order

_BOOKS = {"train": 6, "dev": 3, "test": 10}
"""The number of books of a side."""

_LINKS = (
    ("{a}'s boss is {b}.", "{a}'s boss"),
    ("{b} is the landlord of {a}.", "{a}'s landlord"),
    ("{a} was taught by {b}.", "{a}'s teacher"),
    ("The mentor of {a} is {b}.", "{a}'s mentor"),
)


def compositions(split: str, *, hops: int = 2, people: int = 8, questions: int = 12, seed: int = 0) -> list[Task]:
    """Returns questions whose answer takes facts from different sessions: "What is the job of Anna's boss?"

    A search by the question's words finds the first fact only. Every fact stands in a session of its own, in random order.
    The tags are type (the attribute), split, cluster (the book). Raises KeepworthError.

    Args:
        split: "train", "dev" or "test".
        hops: The number of facts, 2 or 3, of which the last is the attribute.
        people: The people of a book: one link each to another, and attributes of all.
        questions: The number of questions about a book.
        seed: The seed of the books.
    """
    most = len(names_of(split))
    if hops not in (2, 3) or not 4 <= people <= most or questions < 1:
        raise KeepworthError(
            f"hops={hops}, people={people}, questions={questions}: hops are 2 or 3, people 4 to {most}, questions 1 or more.",
            "Change what is out of range.",
        )
    return [task for number in range(_BOOKS[split]) for task in _composed(split, number, hops, people, questions, seed)]


def _composed(split: str, number: int, hops: int, count: int, questions: int, seed: int) -> list[Task]:
    draw = random.Random(f"compositions/{split}/{seed}/{number}/{hops}")
    people = draw.sample(names_of(split), count)
    ring = people[1:] + people[:1]
    linked = {person: (other, draw.randrange(len(_LINKS))) for person, other in zip(people, ring, strict=True)}
    facts: dict[tuple[str, str], str] = {}
    for person, (other, kind) in linked.items():
        facts[person, "link"] = _LINKS[kind][0].format(a=person, b=other)
    value_of: dict[tuple[str, str], str] = {}
    for attribute in ATTRIBUTES:
        for person in people:
            value_of[person, attribute.key] = draw.choice(values_of(attribute, split))
            facts[person, attribute.key] = draw.choice(attribute.states).format(
                n=person, v=value_of[person, attribute.key]
            )
    order = sorted(facts, key=lambda fact: draw_order(seed, number, *fact))
    names = {fact: name_of("compositions", split, seed, number, hops, *fact) for fact in order}
    book = {fact: passage(names[fact], [facts[fact]]) for fact in order}
    wanted = [(person, attribute.key) for person in people for attribute in ATTRIBUTES]
    compositions = []
    for person, key in sorted(wanted, key=lambda one: draw_order("asked", seed, number, *one))[:questions]:
        chain, at, called = [(person, "link")], linked[person][0], _LINKS[linked[person][1]][1].format(a=person)
        if hops == 3:
            chain.append((at, "link"))
            called = _LINKS[linked[at][1]][1].format(a=called)
            at = linked[at][0]
        chain.append((at, key))
        haystack = tuple(mark_evidence(session, {0}) if fact in chain else session for fact, session in book.items())
        compositions.append(
            with_evidence(
                Task(
                    key=f"compositions/{split}/{seed}/{number}/{hops}/{person}/{key}",
                    source=f"compositions-{hops}",
                    input=f"What is the {key} of {called}?",
                    answers=(value_of[at, key],),
                    verifier="exact_match",
                    sessions=haystack,
                    tags={"type": key, "split": split, "cluster": f"{split}/{number}"},
                )
            )
        )
    return compositions


COMPOSITIONS = Method(
    kind="benchmark",
    name="compositions",
    title="Compositions",
    about="Answer what follows from two facts that were told apart",
    tags=("factual",),
    make=Benchmark("compositions", compositions, metric="em", shipped=True),
)
METHODS = (
    COMPOSITIONS,
    replace(
        COMPOSITIONS,
        name="compositions-3",
        title="Compositions of three",
        about="Answer what follows from three facts that were told apart",
        make=Benchmark("compositions-3", compositions, metric="em", shipped=True, dials={"hops": 3}),
    ),
)
