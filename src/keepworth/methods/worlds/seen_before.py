"""Worlds in which something seen earlier has to be remembered: a maze, cards, keys and doors, reports of events.

The agent sees its last `context` observations, and what counts lies further back: that distance is the correlation horizon xi
of a world ("Unraveling the Complexity of Memory in RL Agents", arXiv 2412.06531). With context < xi only what was written to
memory can help. Words are new in every (split, seed): nothing can be known from their names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from keepworth.environments.environment import Step
from keepworth.environments.made_up import ORDERS, checked, words
from keepworth.environments.scene import Course, Scene, Stream, StreamTask, ends, goes_on, stream_task
from keepworth.environments.streams import World
from keepworth.episodes.episode import Observation, Task
from keepworth.registry import Method

WALK = "walk on"
NOWHERE = "say nobody knows"


@dataclass(frozen=True, slots=True)
class CorridorStream:
    """T-maze: a sign at the start names the way out, a corridor of posters follows that name doors too, doors come at the end.

    length: steps between the sign and the doors (a fixed horizon); doors: how many; posters: how often one is seen in place of
    nothing; context: how many past scenes the agent itself sees; episodes, held_out: how many tasks."""

    family: str = "t-maze"
    length: int = 8
    doors: int = 4
    context: int = 3
    posters: float = 0.5
    episodes: int = 300
    held_out: int = 60


@dataclass(frozen=True, slots=True)
class CardStream:
    """RepeatPrevious ("POPGym: Benchmarking Partially Observable Reinforcement Learning", arXiv 2303.01859): cards are turned
    one after the other, and the one `lag` cards back is asked for. Places keep their names from episode to episode while the
    cards on them change, so that what is most like the question is mostly out of date.

    lag: how many cards back is asked for (xi lies above it); asked: how many questions an episode has; cards: how many kinds;
    context, episodes, held_out: as in a `CorridorStream`."""

    family: str = "repeat-previous"
    lag: int = 6
    asked: int = 2
    cards: int = 4
    context: int = 3
    episodes: int = 300
    held_out: int = 60


@dataclass(frozen=True, slots=True)
class KeyStream:
    """Key and door: notes on the way say which key opens which door, and at the end one key is in the hand. The note that counts
    comes anywhere on the way but in its last `context` steps, so xi varies from episode to episode; the others name other keys.

    length: steps before the doors; keys: how many notes, one for each key; doors: how many; context, episodes, held_out: as in
    a `CorridorStream`."""

    family: str = "key-door"
    length: int = 10
    keys: int = 5
    doors: int = 4
    context: int = 3
    episodes: int = 300
    held_out: int = 60


@dataclass(frozen=True, slots=True)
class EventStream:
    """Reports of who went where and when, then a question about one of them, with none to many reports to go by.

    An event has a time, a place, an entity and a content, after "Episodic Memories Generation and Evaluation Benchmark for Large
    Language Models" (arXiv 2501.13121). A later report about an entity replaces the earlier ones, all of which are equally like
    the question; nothing reported yet is an answer too. Reports outlast the task in which they came.

    entities, places: how many; reports: the most that come before a question (one at least, of another entity, comes last, so
    that what is asked for lies two scenes back or more); length, held_out: how many tasks."""

    family: str = "events"
    entities: int = 12
    places: int = 5
    reports: int = 2
    length: int = 300
    held_out: int = 60


class Corridor:
    """One maze: walk `length` times, then choose a door."""

    __slots__ = ("_doors", "_leaning", "_step", "_texts", "_way_out")

    def __init__(
        self, texts: tuple[str, ...], doors: tuple[str, ...], way_out: str, leaning: tuple[float, ...]
    ) -> None:
        self._texts = texts
        self._doors = doors
        self._way_out = way_out
        self._leaning = leaning
        self._step = 0

    async def reset(self, task: Task, seed: int) -> Observation:
        self._step = 0
        return self.scene.seen

    async def step(self, action: str) -> Step:
        if self._step == len(self._texts) - 1:
            return ends(float(action == self._way_out))
        self._step += 1
        return goes_on(self.scene)

    async def close(self) -> None:
        """There is nothing to give back."""

    @property
    def scene(self) -> Scene:
        text = self._texts[self._step]
        if self._step < len(self._texts) - 1:
            named = tuple(door for door in self._doors if door in text)
            return _passed("leave the maze", text, WALK, named)
        return Scene("leave the maze", text, self._doors, right=frozenset({self._way_out}), leaning=self._leaning)


def corridors(parameters: CorridorStream, *, split: str, seed: int, order: str = "random") -> Stream:
    generator = np.random.default_rng([11, checked(split, order), seed])
    vocabulary = words(split, 60, generator)
    doors = tuple(f"open {word}" for word in vocabulary[: parameters.doors])
    sign, poster, end = vocabulary[10:13], vocabulary[13:16], vocabulary[16:19]
    fillers = vocabulary[20:]

    def maze(key: str) -> StreamTask:
        way_out = doors[int(generator.integers(len(doors)))]
        texts = [" ".join([*sign, *_some(fillers, 2, generator), way_out])]
        for _ in range(parameters.length):
            if generator.random() < parameters.posters:
                other = doors[int(generator.integers(len(doors)))]
                texts.append(" ".join([*poster, *_some(fillers, 2, generator), other]))
            else:
                texts.append(" ".join(_some(fillers, 5, generator)))
        texts.append(" ".join([*end, *_some(fillers, 2, generator)]))
        world = partial(Corridor, tuple(texts), doors, way_out, _leaning(len(doors), generator))
        return stream_task(key, world, "sign", 1.0 - 1.0 / len(doors), "leave the maze")

    return _stream(parameters, maze, split, seed, order, (12, ORDERS.index(order)), (parameters.length + 1,))


def cards(parameters: CardStream, *, split: str, seed: int, order: str = "random") -> Stream:
    generator = np.random.default_rng([61, checked(split, order), seed])
    turned = parameters.lag + parameters.asked
    vocabulary = words(split, parameters.cards + turned + 20, generator)
    names = tuple(f"name {word}" for word in vocabulary[: parameters.cards])
    places = vocabulary[parameters.cards : parameters.cards + turned]
    fillers = vocabulary[parameters.cards + turned :]
    goal = "remember the cards"

    def deck(key: str) -> StreamTask:
        drawn = [names[int(place)] for place in generator.integers(0, len(names), size=turned)]
        scenes = []
        for number, card in enumerate(drawn):
            text = " ".join(["at", places[number], *_some(fillers, 2, generator), card])
            scenes.append(_passed(goal, text, "turn the next card", (card,)))
            if number >= parameters.lag:
                back = number - parameters.lag
                leaning = _leaning(len(names), generator)
                question = f"what was at {places[back]}"
                scenes.append(Scene(goal, question, names, right=frozenset({drawn[back]}), leaning=leaning))
        return stream_task(key, partial(Course, *scenes), "card", 1.0 - len(names) ** -parameters.asked, goal)

    # Between a card and its question lie `lag` cards and the questions asked meanwhile.
    horizons = tuple(parameters.lag + 1 + before for before in range(parameters.asked))
    return _stream(parameters, deck, split, seed, order, (62, len(order)), horizons)


def keys(parameters: KeyStream, *, split: str, seed: int, order: str = "random") -> Stream:
    """Which door a key opens is new in every episode."""
    generator = np.random.default_rng([63, checked(split, order), seed])
    vocabulary = words(split, parameters.keys + parameters.doors + 25, generator)
    names = vocabulary[: parameters.keys]
    doors = tuple(f"open {word}" for word in vocabulary[parameters.keys : parameters.keys + parameters.doors])
    fillers = vocabulary[parameters.keys + parameters.doors :]
    goal = "leave the house"

    def house(key: str) -> StreamTask:
        in_hand = int(generator.integers(len(names)))
        opens = [doors[int(place)] for place in generator.integers(0, len(doors), size=len(names))]
        early = int(generator.integers(parameters.length - parameters.context))
        free = [place for place in range(parameters.length) if place != early]
        others = [number for number in range(len(names)) if number != in_hand]
        notes = {int(place): number for place, number in zip(generator.permutation(free), others, strict=False)}
        notes[early] = in_hand
        scenes = []
        for place in range(parameters.length):
            note = notes.get(place)
            named = () if note is None else (opens[note],)
            filler = _some(fillers, 5 if note is None else 2, generator)
            text = filler if note is None else ["key", names[note], *filler, *named]
            scenes.append(_passed(goal, " ".join(text), WALK, named))
        leaning = _leaning(len(doors), generator)
        text = ["in hand key", names[in_hand], *_some(fillers, 2, generator)]
        end = Scene(goal, " ".join(text), doors, right=frozenset({opens[in_hand]}), leaning=leaning)
        return stream_task(key, partial(Course, *scenes, end), "key", 1.0 - 1.0 / len(doors), goal)

    horizons = tuple(range(parameters.context + 1, parameters.length + 1))
    return _stream(parameters, house, split, seed, order, (64, len(order)), horizons)


def events(parameters: EventStream, *, split: str, seed: int, order: str = "random") -> Stream:
    """An order other than "random" has the same reports and other questions: time cannot be shuffled. `rule` of a task is
    the number of reports there are about what is asked for ("6+" from six)."""
    generator = np.random.default_rng([65, checked(split, order), seed])
    vocabulary = words(split, parameters.entities + parameters.places + 60, generator)
    entities = vocabulary[: parameters.entities]
    places = tuple(
        f"go to {word}" for word in vocabulary[parameters.entities : parameters.entities + parameters.places]
    )
    fillers = vocabulary[parameters.entities + parameters.places :]
    goal = "find them"
    reported: dict[int, list[str]] = {number: [] for number in range(parameters.entities)}
    news = [
        [
            (int(generator.integers(parameters.entities)), places[int(generator.integers(parameters.places))])
            for _ in range(int(generator.integers(1, parameters.reports + 1)))
        ]
        for _ in range(parameters.length)
    ]
    asking = np.random.default_rng([66, checked(split, order), len(order), seed])

    def question(key: str, scenes: list[Scene], but: int) -> StreamTask:
        asked = int(asking.choice([number for number in reported if number != but]))
        known = reported[asked]
        right = known[-1] if known else NOWHERE
        actions = (*places, NOWHERE)
        leaning = _leaning(len(actions), asking)
        ask = Scene(goal, f"where is {entities[asked]}", actions, right=frozenset({right}), leaning=leaning)
        matches = "6+" if len(known) > 5 else str(len(known))
        return stream_task(key, partial(Course, *scenes, ask), matches, 1.0 - 1.0 / len(actions), goal)

    prefix = f"{parameters.family}/{split}/{seed}"
    tasks = []
    for number, reports in enumerate(news):
        scenes = []
        for entity, place in reports:
            reported[entity].append(place)
            time, content = _some(fillers, 1, asking), _some(fillers, 2, asking)
            scenes.append(_passed(goal, " ".join([*time, entities[entity], *content, place]), "read on", (place,)))
        tasks.append(question(f"{prefix}/{number}", scenes, reports[-1][0]))
    held_out = [question(f"{prefix}/held-out/{number}", [], -1) for number in range(parameters.held_out)]
    return Stream(
        parameters.family, split, seed, order, tuple(tasks), tuple(held_out), horizons=(2,), context=0, lasting=True
    )


def _stream(
    parameters: CorridorStream | CardStream | KeyStream,
    episode: Callable[[str], StreamTask],
    split: str,
    seed: int,
    order: str,
    shuffle: tuple[int, int],
    horizons: tuple[int, ...],
) -> Stream:
    """Tasks by their keys. All are equally hard: an order is another shuffle, so that the order gap shows chance alone."""
    prefix = f"{parameters.family}/{split}/{seed}"
    tasks = [episode(f"{prefix}/{number}") for number in range(parameters.episodes)]
    held_out = [episode(f"{prefix}/held-out/{number}") for number in range(parameters.held_out)]
    if order != "random":
        tasks = [tasks[place] for place in np.random.default_rng([*shuffle, seed]).permutation(len(tasks))]
    return Stream(
        parameters.family,
        split,
        seed,
        order,
        tuple(tasks),
        tuple(held_out),
        horizons=horizons,
        context=parameters.context,
    )


def _passed(goal: str, text: str, action: str, named: tuple[str, ...]) -> Scene:
    """A scene in which only one thing can be done."""
    return Scene(goal, text, (action,), named=named, right=frozenset({action}), leaning=(0.0,))


def _leaning(actions: int, generator: np.random.Generator) -> tuple[float, ...]:
    return tuple(generator.normal(0.0, 0.3, size=actions).tolist())


def _some(vocabulary: list[str], count: int, generator: np.random.Generator) -> list[str]:
    return [vocabulary[int(place)] for place in generator.integers(0, len(vocabulary), size=count)]


METHODS = (
    Method(
        kind="world",
        name="t-maze",
        title="T-maze",
        paper="arXiv 2412.06531",
        about="a sign at the start names the way out; the choice comes at the end",
        differs="in words, with an agent that leans to doors by log-odds",
        make=World(corridors, "seen-before", parameters=CorridorStream()),
    ),
    Method(
        kind="world",
        name="repeat-previous",
        title="RepeatPrevious",
        paper="arXiv 2303.01859",
        about="say which card was turned some steps ago",
        differs="in words; places keep their names from episode to episode",
        make=World(cards, "seen-before", parameters=CardStream()),
    ),
    Method(
        kind="world",
        name="key-door",
        title="Key and door",
        paper="arXiv 2412.06531",
        about="notes on the way say which key opens which door",
        differs="in words; where the note comes varies from episode to episode",
        make=World(keys, "seen-before", parameters=KeyStream()),
    ),
    Method(
        kind="world",
        name="events",
        title="Events",
        paper="arXiv 2501.13121",
        about="reports of who went where, then a question about one of them",
        differs="reports are templates, and outlast their task",
        make=World(events, "seen-before", parameters=EventStream()),
    ),
)
