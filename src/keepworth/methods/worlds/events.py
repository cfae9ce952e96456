"""A question about who went where and when is answered from reports of earlier tasks.

An agent sees one scene at a time, and reports stay valid after their task, so that only memory can help.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from keepworth.registry import Method
from keepworth.worlds.course import Course, only_way, stream_task
from keepworth.worlds.made_up import check_split, leanings, phrase, words
from keepworth.worlds.scene import Scene, Stream, StreamTask
from keepworth.worlds.streams import World

NOWHERE = "say nobody knows"


@dataclass(frozen=True, slots=True)
class EventStream:
    """Reports of who went where and when, then a question about one of them, for which there are none to many reports.

    An event has a time, a place, an entity and a content, after "Episodic Memories Generation and Evaluation Benchmark for Large
    Language Models" (arXiv 2501.13121). A later report about an entity replaces the earlier ones, all of which are equally
    similar to the question; "nothing reported yet" is an answer too.

    Args:
        entities, places: Their numbers.
        reports: Most reports before a question. At least one comes, and the last is about another entity, so that the answer lies
            two scenes back or more.
        length, held_out: Numbers of tasks.
    """

    family: str = "events"
    entities: int = 12
    places: int = 5
    reports: int = 2
    length: int = 300
    held_out: int = 60


def events(parameters: EventStream, *, split: str, seed: int, order: str = "random") -> Stream:
    """Builds the stream. A task's `rule` is the number of reports about the entity in question ("6+" from six).

    Args:
        parameters: The dials of the stream.
        split: "dev" for tuning, "held-out" for the final run, whose words are others.
        seed: The seed of the whole stream.
        order: An order other than "random" has the same reports and other questions, since time cannot be shuffled.
    """
    generator = np.random.default_rng([65, check_split(split, order), seed])
    vocabulary = words(split, parameters.entities + parameters.places + 60, generator)
    entities = vocabulary[: parameters.entities]
    others = vocabulary[parameters.entities :]
    places, fillers = tuple(f"go to {word}" for word in others[: parameters.places]), others[parameters.places :]
    goal = "find them"
    reported: dict[int, list[str]] = {number: [] for number in range(parameters.entities)}
    news = [
        [
            (int(generator.integers(parameters.entities)), places[int(generator.integers(parameters.places))])
            for _ in range(int(generator.integers(1, parameters.reports + 1)))
        ]
        for _ in range(parameters.length)
    ]
    asking = np.random.default_rng([66, check_split(split, order), len(order), seed])

    def question(key: str, scenes: list[Scene], but: int) -> StreamTask:
        entity = int(asking.choice([number for number in reported if number != but]))
        places_of = reported[entity]
        right = places_of[-1] if places_of else NOWHERE
        actions = (*places, NOWHERE)
        leaning = leanings(len(actions), asking)
        ask = Scene(goal, f"where is {entities[entity]}", actions, right=frozenset({right}), leaning=leaning)
        matches = "6+" if len(places_of) > 5 else str(len(places_of))
        return stream_task(key, partial(Course, *scenes, ask), matches, 1.0 - 1.0 / len(actions), goal)

    prefix = f"{parameters.family}/{split}/{seed}"
    tasks = []
    for number, reports in enumerate(news):
        scenes = []
        for entity, place in reports:
            reported[entity].append(place)
            time, content = phrase(fillers, 1, asking), phrase(fillers, 2, asking)
            scenes.append(only_way(goal, f"{time} {entities[entity]} {content} {place}", "read on", (place,)))
        tasks.append(question(f"{prefix}/{number}", scenes, reports[-1][0]))
    held_out = [question(f"{prefix}/held-out/{number}", [], -1) for number in range(parameters.held_out)]
    return Stream(
        parameters.family, split, seed, order, tuple(tasks), tuple(held_out), horizons=(2,), context=0, lasting=True
    )


METHOD = Method(
    kind="world",
    name="events",
    title="Events",
    paper="arXiv 2501.13121",
    about="Reports say who went where, and a question about one of them follows",
    tags=("factual",),
    differs="Reports are templates and outlast their task.",
    make=World(events, "seen-before", parameters=EventStream()),
)
