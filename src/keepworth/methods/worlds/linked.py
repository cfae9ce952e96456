"""Facts that have to be put together: a person owns a thing, the thing is in a room, and the question names the person alone.

The record of the first fact is like the question. That of the second is like the first and not like the question, so a memory
that goes by similarity to the question misses it, and one that follows links between its records can show it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np

from keepworth.base.errors import KeepworthError
from keepworth.registry import Method
from keepworth.worlds.course import Course, stream_task
from keepworth.worlds.made_up import check_split, leanings, phrase, words
from keepworth.worlds.scene import Scene, Stream, StreamTask
from keepworth.worlds.streams import World

NOTE = "note"
ASKED, KEPT = 7, 3
"""Questions after each round of facts, and people of it who are asked about only while memory is frozen."""
SURE = 20.0
"""Log-odds with which the agent leans to what the text before it says, and away from `NOTE` where it is asked for a room."""


@dataclass(frozen=True, slots=True)
class LinkedStream:
    """Rounds of facts, each followed by questions.

    A round tells two facts of each of its people, all in random order: "PERSON THING", where it is right to note it, and
    "THING ROOM", where it is right to go there. The agent does what it is told, and memory keeps both as cases of its own.
    A question is the person with another word, and the right action is the room. Every person is asked about once, so no
    earlier question has the answer. A question offers `NOTE` too, which is never right there, because a memory shows only
    records of something that can be done.

    Persons share words with other persons, things with other things, and questions with other questions.

    Args:
        rooms: Their number.
        names, people, fillers: Numbers of words for things (four each), persons (two each) and questions (one each).
        length: Number of tasks, rounds among them.
    """

    family: str = "linked"
    rooms: int = 6
    names: int = 40
    people: int = 30
    fillers: int = 30
    length: int = 300


def linked(parameters: LinkedStream, *, split: str, seed: int, order: str = "random") -> Stream:
    """Builds the stream. A question's `rule` says which of its two facts was told earlier, since a new record can link only to
    those that are there. Raises KeepworthError where there are too few words for so many tasks.

    Args:
        parameters: The dials of the stream.
        split: "dev" for tuning, "held-out" for the final run, whose words are others.
        seed: The seed of the whole stream.
        order: An order other than "random" has the same facts and asks about them in another order.
    """
    generator = np.random.default_rng([67, check_split(split, order), seed])
    asking = np.random.default_rng([68, check_split(split, order), len(order), seed])
    counts = parameters.rooms, parameters.names, parameters.people, parameters.fillers
    vocabulary = words(split, sum(counts), generator)
    rooms, names, people, fillers = (
        vocabulary[end - count : end] for end, count in zip(np.cumsum(counts), counts, strict=True)
    )
    actions = (*rooms, NOTE)
    size = -(-parameters.length // (1 + ASKED)), ASKED + KEPT
    persons, things = (list(map(" ".join, combinations(part, count))) for part, count in ((people, 2), (names, 4)))
    if size[0] * size[1] > min(len(persons), len(things)):
        raise KeepworthError(
            f"{parameters.family} has words for {len(persons)} persons and {len(things)} things, and needs {size[0] * size[1]}.",
            "Ask for fewer tasks, or turn people or names up.",
        )
    owners, owned = (generator.choice(part, size=size, replace=False).tolist() for part in (persons, things))

    def scene(text: str, right: str, *, question: bool) -> Scene:
        leaning = np.array(leanings(len(actions), asking))
        leaning[actions.index(NOTE if question else right)] += -SURE if question else SURE
        return Scene("", text, actions, right=frozenset({right}), leaning=tuple(leaning.tolist()))

    def ask(key: str, person: str, room: str, rule: str) -> StreamTask:
        asked = scene(f"{person} {phrase(fillers, 1, asking)}", room, question=True)
        return stream_task(key, partial(Course, asked), rule, 1.0 - 1.0 / len(rooms))

    prefix = f"{parameters.family}/{split}/{seed}"
    tasks: list[StreamTask] = []
    held_out: list[StreamTask] = []
    for pairs in map(zip, owners, owned):
        facts: list[tuple[float, str, str]] = []
        questions: list[tuple[str, str, str]] = []
        for person, thing in pairs:
            room = rooms[int(generator.integers(len(rooms)))]
            first, second = generator.random(2).tolist()
            facts += [(first, f"{person} {thing}", NOTE), (second, f"{thing} {room}", room)]
            questions.append((person, room, "room earlier" if second < first else "room later"))
        facts_in_order = [scene(text, right, question=False) for _, text, right in sorted(facts)]
        tasks.append(stream_task(f"{prefix}/{len(tasks)}", partial(Course, *facts_in_order), "facts", 0.0))
        for index in asking.permutation(ASKED):
            tasks.append(ask(f"{prefix}/{len(tasks)}", *questions[index]))
        for question in questions[ASKED:]:
            held_out.append(ask(f"{prefix}/held-out/{len(held_out)}", *question))
    return Stream(
        parameters.family,
        split,
        seed,
        order,
        tuple(tasks[: parameters.length]),
        tuple(held_out),
        horizons=(2,),
        widest=len(actions),
        lasting=True,
    )


METHOD = Method(
    kind="world",
    name="linked",
    title="Linked facts",
    about="A person owns a thing, the thing is in a room, and the question names the person",
    tags=("factual",),
    differs="Not published: this project's own.",
    make=World(linked, "linked", parameters=LinkedStream()),
)
