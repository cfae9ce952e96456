"""Worlds in which something seen earlier has to be remembered: a maze, cards, keys and doors.

The agent sees its last `context` observations, and the relevant one lies further back: that distance is the correlation horizon
xi of a world ("Unraveling the Complexity of Memory in RL Agents", arXiv 2412.06531). With context < xi only memory can help.
Words are new in every (split, seed): nothing can be known from their names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from keepworth.registry import Method
from keepworth.worlds.course import Course, only_way, stream_task
from keepworth.worlds.environment import Step
from keepworth.worlds.made_up import ORDERS, check_split, leanings, phrase, words
from keepworth.worlds.scene import Scene, Stream, StreamTask, ends
from keepworth.worlds.streams import World

WALK = "walk on"


@dataclass(frozen=True, slots=True)
class CorridorStream:
    """T-maze: a sign at the start names the way out, a corridor of posters that also name doors follows, and the doors come at
    the end.

    length: steps between the sign and the doors (a fixed horizon); doors: their number; posters: probability of a poster at a
    step of the corridor; context: past scenes that the agent itself sees; episodes, held_out: numbers of tasks.
    """

    family: str = "t-maze"
    length: int = 8
    doors: int = 4
    context: int = 3
    posters: float = 0.5
    episodes: int = 300
    held_out: int = 60


@dataclass(frozen=True, slots=True)
class CardStream:
    """RepeatPrevious ("POPGym: Benchmarking Partially Observable Reinforcement Learning", arXiv 2303.01859): cards are turned one
    after the other, and questions ask for the card `lag` cards back. Places keep their names from episode to episode while the
    cards on them change, so most of the items that are most similar to the question are out of date.

    lag: how many cards back is asked for (xi lies above it); asked: questions of an episode; cards: how many kinds; context,
    episodes, held_out: as in a `CorridorStream`.
    """

    family: str = "repeat-previous"
    lag: int = 6
    asked: int = 2
    cards: int = 4
    context: int = 3
    episodes: int = 300
    held_out: int = 60


@dataclass(frozen=True, slots=True)
class KeyStream:
    """Key and door: notes on the way say which key opens which door, and at the end one key is in the hand. Its note comes
    anywhere on the way except in the last `context` steps, so xi varies from episode to episode; the other notes name other keys.

    length: steps before the doors; keys: how many notes, one for each key; doors: how many; context, episodes, held_out: as in a
    `CorridorStream`.
    """

    family: str = "key-door"
    length: int = 10
    keys: int = 5
    doors: int = 4
    context: int = 3
    episodes: int = 300
    held_out: int = 60


class Corridor(Course):
    """One maze: walk on, then choose a door. The reward of the episode is the only feedback on the choice."""

    async def step(self, action: str) -> Step:
        step = await super().step(action)
        return ends(step.rewards[-1].value) if step.stop else step


def corridors(parameters: CorridorStream, *, split: str, seed: int, order: str = "random") -> Stream:
    """Builds the stream: what a sign at the beginning named opens the door at the end.

    Args:
        parameters: The dials of the stream.
        split: "dev" for tuning, "held-out" for the final run, whose words are others.
        seed: The seed of the whole stream.
        order: All tasks are equally hard, so an order other than "random" is another shuffle.
    """
    generator = np.random.default_rng([11, check_split(split, order), seed])
    vocabulary = words(split, 60, generator)
    doors = tuple(f"open {word}" for word in vocabulary[: parameters.doors])
    sign, poster, end = (" ".join(vocabulary[first : first + 3]) for first in (10, 13, 16))
    fillers = vocabulary[20:]
    goal = "leave the maze"

    def maze(key: str) -> StreamTask:
        way_out = doors[int(generator.integers(len(doors)))]
        scenes = [only_way(goal, f"{sign} {phrase(fillers, 2, generator)} {way_out}", WALK, (way_out,))]
        for _ in range(parameters.length):
            if generator.random() < parameters.posters:
                other = doors[int(generator.integers(len(doors)))]
                scenes.append(only_way(goal, f"{poster} {phrase(fillers, 2, generator)} {other}", WALK, (other,)))
            else:
                scenes.append(only_way(goal, phrase(fillers, 5, generator), WALK))
        text = f"{end} {phrase(fillers, 2, generator)}"
        choice = Scene(goal, text, doors, right=frozenset({way_out}), leaning=leanings(len(doors), generator))
        return stream_task(key, partial(Corridor, *scenes, choice), "sign", 1.0 - 1.0 / len(doors), goal)

    return _stream(parameters, maze, split, seed, order, (12, ORDERS.index(order)), (parameters.length + 1,))


def cards(parameters: CardStream, *, split: str, seed: int, order: str = "random") -> Stream:
    """Builds the stream: cards are asked for after others were turned.

    Args:
        parameters: The dials of the stream.
        split: "dev" for tuning, "held-out" for the final run, whose words are others.
        seed: The seed of the whole stream.
        order: All tasks are equally hard, so an order other than "random" is another shuffle.
    """
    generator = np.random.default_rng([61, check_split(split, order), seed])
    turned = parameters.lag + parameters.asked
    vocabulary = words(split, parameters.cards + turned + 20, generator)
    names = tuple(f"name {word}" for word in vocabulary[: parameters.cards])
    places = vocabulary[parameters.cards : parameters.cards + turned]
    fillers = vocabulary[parameters.cards + turned :]
    goal = "remember the cards"

    def deck(key: str) -> StreamTask:
        drawn = [names[int(index)] for index in generator.integers(0, len(names), size=turned)]
        scenes = []
        for number, card in enumerate(drawn):
            text = f"at {places[number]} {phrase(fillers, 2, generator)} {card}"
            scenes.append(only_way(goal, text, "turn the next card", (card,)))
            if number >= parameters.lag:
                back = number - parameters.lag
                right, leaning = frozenset({drawn[back]}), leanings(len(names), generator)
                scenes.append(Scene(goal, f"what was at {places[back]}", names, right=right, leaning=leaning))
        return stream_task(key, partial(Course, *scenes), "card", 1.0 - len(names) ** -parameters.asked, goal)

    # Between a card and its question lie `lag` cards and the questions asked meanwhile.
    horizons = tuple(parameters.lag + 1 + before for before in range(parameters.asked))
    return _stream(parameters, deck, split, seed, order, (62, len(order)), horizons)


def keys(parameters: KeyStream, *, split: str, seed: int, order: str = "random") -> Stream:
    """Builds the stream. In every episode the keys open other doors.

    Args:
        parameters: The dials of the stream.
        split: "dev" for tuning, "held-out" for the final run, whose words are others.
        seed: The seed of the whole stream.
        order: All tasks are equally hard, so an order other than "random" is another shuffle.
    """
    generator = np.random.default_rng([63, check_split(split, order), seed])
    vocabulary = words(split, parameters.keys + parameters.doors + 25, generator)
    names = vocabulary[: parameters.keys]
    doors = tuple(f"open {word}" for word in vocabulary[parameters.keys : parameters.keys + parameters.doors])
    fillers = vocabulary[parameters.keys + parameters.doors :]
    goal = "leave the house"

    def house(key: str) -> StreamTask:
        in_hand = int(generator.integers(len(names)))
        opens = [doors[int(index)] for index in generator.integers(0, len(doors), size=len(names))]
        early = int(generator.integers(parameters.length - parameters.context))
        free = [index for index in range(parameters.length) if index != early]
        others = [number for number in range(len(names)) if number != in_hand]
        notes = {int(index): number for index, number in zip(generator.permutation(free), others, strict=False)}
        notes[early] = in_hand
        scenes = []
        for index in range(parameters.length):
            note = notes.get(index)
            if note is None:
                scenes.append(only_way(goal, phrase(fillers, 5, generator), WALK))
            else:
                text = f"key {names[note]} {phrase(fillers, 2, generator)} {opens[note]}"
                scenes.append(only_way(goal, text, WALK, (opens[note],)))
        leaning = leanings(len(doors), generator)
        text = f"in hand key {names[in_hand]} {phrase(fillers, 2, generator)}"
        end = Scene(goal, text, doors, right=frozenset({opens[in_hand]}), leaning=leaning)
        return stream_task(key, partial(Course, *scenes, end), "key", 1.0 - 1.0 / len(doors), goal)

    horizons = tuple(range(parameters.context + 1, parameters.length + 1))
    return _stream(parameters, house, split, seed, order, (64, len(order)), horizons)


def _stream(
    parameters: CorridorStream | CardStream | KeyStream,
    episode: Callable[[str], StreamTask],
    split: str,
    seed: int,
    order: str,
    shuffle: tuple[int, int],
    horizons: tuple[int, ...],
) -> Stream:
    """Builds the stream from tasks made by their keys. All are equally hard, so an order is another shuffle."""
    prefix = f"{parameters.family}/{split}/{seed}"
    tasks = [episode(f"{prefix}/{number}") for number in range(parameters.episodes)]
    held_out = [episode(f"{prefix}/held-out/{number}") for number in range(parameters.held_out)]
    if order != "random":
        tasks = [tasks[index] for index in np.random.default_rng([*shuffle, seed]).permutation(len(tasks))]
    parts = tuple(tasks), tuple(held_out)
    return Stream(parameters.family, split, seed, order, *parts, horizons=horizons, context=parameters.context)


T_MAZE = Method(
    kind="world",
    name="t-maze",
    title="T-maze",
    paper="arXiv 2412.06531",
    about="A sign at the start names the way out, and the choice comes at the end",
    tags=("working",),
    differs="The maze is in words, and the agent prefers some doors by chance.",
    make=World(corridors, "seen-before", parameters=CorridorStream()),
)
METHODS = (
    T_MAZE,
    replace(
        T_MAZE,
        name="repeat-previous",
        title="RepeatPrevious",
        paper="arXiv 2303.01859",
        about="Say which card was turned some steps ago",
        differs="The cards are in words, and places keep their names from episode to episode.",
        make=World(cards, "seen-before", parameters=CardStream()),
    ),
    replace(
        T_MAZE,
        name="key-door",
        title="Key and door",
        about="Notes on the way say which key opens which door",
        differs="The house is in words, and the place of the note that counts varies.",
        make=World(keys, "seen-before", parameters=KeyStream()),
    ),
)
