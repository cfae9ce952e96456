"""Lock boxes: a note names the code of a box; notes on others follow, and then the box asks for its code."""

from functools import partial

import numpy as np

from keepworth.kit import Course, Method, Scene, Stream, World, check_split, leanings, only_way, stream_task, words

GOAL, CODES, BETWEEN, HELD_OUT = "open the box", 4, 3, 20


def boxes(*, split: str, seed: int, order: str, length: int) -> Stream:
    """Every box is asked for once. The codes are the same all over, and which box has which is drawn."""
    generator = np.random.default_rng([7, check_split(split, order), seed])
    codes = tuple(f"dial {word}" for word in words("shared", CODES, generator))
    names = words(split, (length + HELD_OUT) * (1 + BETWEEN), generator)
    tasks = []
    for number in range(length + HELD_OUT):
        here = [(name, codes[generator.integers(CODES)]) for name in names[number :: length + HELD_OUT]]
        notes = [only_way(GOAL, f"box {name} has {code}", "read on", (code,)) for name, code in here]
        name, code = here[0]
        asks = Scene(GOAL, f"box {name}", codes, right=frozenset({code}), leaning=leanings(CODES, generator))
        key = f"lock-box/{split}/{seed}/{number}"
        tasks.append(stream_task(key, partial(Course, *notes, asks), "code", 1 - 1 / CODES, GOAL))
    played, held_out = tuple(tasks[:length]), tuple(tasks[length:])
    return Stream("lock-box", split, seed, order, played, held_out, horizons=(1 + BETWEEN,))


METHOD = Method(
    kind="world",
    name="lock-box",
    title="Lock boxes",
    about="A box asks for the code that a note named, after notes on other boxes",
    make=World(boxes, "seen-before", length=100),
    tags=("experiential",),
    label="unmeasured",
)
