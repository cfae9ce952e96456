"""RepeatPrevious in words: cards are turned one after the other, and the one `lag` cards back is asked for.

After "POPGym: Benchmarking Partially Observable Reinforcement Learning" (arXiv 2303.01859). Places keep their names from
episode to episode while the cards on them change, so that what is most like the question is mostly out of date.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from keepworth.environments.rules import checked
from keepworth.environments.scene import Course, Scene, Stream, StreamTask, stream_task
from keepworth.environments.words import words

ON = "turn the next card"
GOAL = "remember the cards"


@dataclass(frozen=True, slots=True)
class CardStream:
    """lag: how many cards back is asked for (xi lies above it); asked: how many questions an episode has; cards: how many
    kinds; context: how many past scenes the agent itself sees."""

    family: str = "repeat-previous"
    lag: int = 6
    asked: int = 2
    cards: int = 4
    context: int = 3
    episodes: int = 300
    held_out: int = 60


FAMILIES = {"repeat-previous": CardStream()}


def generate(parameters: CardStream, *, split: str, seed: int, order: str = "random") -> Stream:
    """Words for places and cards are new in every (split, seed)."""
    generator = np.random.default_rng([61, checked(split, order), seed])
    turned = parameters.lag + parameters.asked
    vocabulary = words(split, parameters.cards + turned + 20, generator)
    cards = tuple(f"name {word}" for word in vocabulary[: parameters.cards])
    places = vocabulary[parameters.cards : parameters.cards + turned]
    fillers = vocabulary[parameters.cards + turned :]

    def episode(key: str) -> StreamTask:
        drawn = [cards[int(place)] for place in generator.integers(0, len(cards), size=turned)]
        scenes = []
        for number, card in enumerate(drawn):
            said = [fillers[int(place)] for place in generator.integers(0, len(fillers), size=2)]
            scenes.append(
                Scene(
                    GOAL,
                    " ".join(["at", places[number], *said, card]),
                    (ON,),
                    named=(card,),
                    right=frozenset({ON}),
                    leaning=(0.0,),
                )
            )
            if number >= parameters.lag:
                back = number - parameters.lag
                leaning = tuple(generator.normal(0.0, 0.3, size=len(cards)).tolist())
                scenes.append(
                    Scene(GOAL, f"what was at {places[back]}", cards, right=frozenset({drawn[back]}), leaning=leaning)
                )
        return stream_task(key, partial(Course, *scenes), "card", 1.0 - len(cards) ** -parameters.asked, GOAL)

    prefix = f"{parameters.family}/{split}/{seed}"
    tasks = [episode(f"{prefix}/{number}") for number in range(parameters.episodes)]
    held_out = [episode(f"{prefix}/held-out/{number}") for number in range(parameters.held_out)]
    if order != "random":  # all episodes are equally hard: an order is another shuffle
        tasks = [tasks[place] for place in np.random.default_rng([62, len(order), seed]).permutation(len(tasks))]
    # Between a card and its question lie `lag` cards and the questions asked meanwhile.
    horizons = tuple(parameters.lag + 1 + before for before in range(parameters.asked))
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
