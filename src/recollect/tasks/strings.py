"""String composition: `f(g(red sun cat))` worked out in words, with a dial for depth and compositions that are held out.

After "From f(x) and g(x) to f(g(x)): LLMs Learn New Skills in RL by Composing Old Ones" (arXiv 2509.25123): functions
with names that mean nothing, learned one at a time, then composed. What is asked for in training and in testing differs
in the composition itself: which functions stand in which order. What differs from the paper, because a small model has to
read it: the functions move whole words, not characters.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise, product
from math import perm
from types import MappingProxyType

from recollect.episodes.task import Task
from recollect.tasks.options import require_known
from recollect.tasks.splits import SPLITS, draw_order

Words = tuple[str, ...]

FUNCTIONS: Mapping[str, Callable[[Words], Words]] = MappingProxyType(
    {
        "f": lambda x: x[::-1],  # reverse
        "g": lambda x: x[1:] + x[:1],  # the first word goes last
        "h": lambda x: x[-1:] + x[1:-1] + x[:1] if len(x) > 1 else x,  # first and last change places
        "k": lambda x: x[1:],  # without the first
        "p": lambda x: x[:-1],  # without the last
        "q": lambda x: x[:1] + x,  # the first word twice
    }
)
WORDS = (
    *("red", "blue", "green", "black", "white", "cat", "dog", "bird", "fish", "horse", "sun", "moon"),
    *("star", "rain", "snow", "wind", "tree", "leaf", "rock", "sand", "milk", "bread", "salt", "rice"),
)
_HELD_OUT = {"train": range(6), "dev": range(6, 7), "test": range(7, 10)}


def string_tasks(
    split: str, count: int, seed: int = 0, *, depth: int = 2, length: int = 4, only: int | None = None
) -> list[Task]:
    """`count` tasks whose compositions belong to `split`, no two alike; `only`: of the first so many compositions.

    depth: how many functions are composed. At depth 1 every function belongs to every split and only the words differ:
    single functions are what is known before. From depth 2 on, no composition of one split occurs in another; a deeper
    composition belongs to training only if every neighbouring pair in it does, so that depth 3 of "test" has pairs that
    were never trained on.
    length: words of the argument. answers: the value, words joined by blanks. tags: split, depth, composition.

    Errors: UnknownName for a split; ValueError for numbers out of range, or for more tasks than there are.
    """
    require_known("split", split, SPLITS)
    if count < 1 or depth < 1 or not depth < length <= 8:
        raise ValueError(
            f"string_tasks: count and depth are at least 1 and length is depth + 1 to 8, not count={count}, depth={depth}, "
            f"length={length}"
        )
    chosen = compositions(split, depth)[:only]
    if not chosen:
        raise ValueError(f"string_tasks: {split} has no composition of depth {depth}")
    if 2 * count > len(chosen) * perm(len(WORDS), length):
        raise ValueError(f"string_tasks: {count} tasks are more than {split} has at depth {depth} and length {length}")
    draw = random.Random(f"strings/{split}/{seed}/{depth}/{length}")
    tasks: dict[str, Task] = {}
    while len(tasks) < count:
        names = chosen[len(tasks) % len(chosen)]
        task = _task(names, tuple(draw.sample(WORDS, length)), split)
        tasks.setdefault(task.key, task)
    return list(tasks.values())


@lru_cache(maxsize=32)
def compositions(split: str, depth: int) -> tuple[tuple[str, ...], ...]:
    """Function names, outermost first, of every composition of `split`, in a fixed mixed order."""
    every = [names for names in product(FUNCTIONS, repeat=depth) if depth == 1 or _side(names) == split]
    return tuple(sorted(every, key=lambda names: draw_order("strings", *names)))


def value(names: Sequence[str], words: Words) -> Words:
    """names[0](names[1](...(words)))."""
    for name in reversed(names):
        words = FUNCTIONS[name](words)
    return words


def written(names: Sequence[str], words: Words) -> str:
    """`f(g(red sun))`"""
    return "".join(f"{name}(" for name in names) + " ".join(words) + ")" * len(names)


def steps(names: Sequence[str], words: Words) -> list[str]:
    """The call, then each rewriting of its innermost call, down to the value."""
    found = [written(names, words)]
    for last in range(len(names) - 1, -1, -1):
        words = FUNCTIONS[names[last]](words)
        found.append(written(names[:last], words))
    return found


def worked_out(task: Task) -> str:
    """What stands behind the `=` of a question where every step is written out: `f(sun cat) = cat sun`."""
    words = tuple(task.input.rpartition("(")[2].rstrip(")").split())
    return " = ".join(steps(tuple(task.tags["composition"]), words)[1:])


def last_value(text: str) -> str:
    """What stands after the last `=` of the first line, blanks collapsed: the answer in a chain of rewritings."""
    lines = text.strip().splitlines()
    return " ".join(lines[0].rpartition("=")[2].split()) if lines else ""


def same_words(prediction: str, golds: Sequence[str]) -> float:
    """1.0 if the value at the end of `prediction` is a gold's words in order. Nothing is normalised away but blanks."""
    return float(last_value(prediction) in {" ".join(gold.split()) for gold in golds})


def _side(names: tuple[str, ...]) -> str:
    """Pairs by the hash of their names; a longer composition is as held out as the most held-out pair in it."""
    sides = {_side_of_pair(pair) for pair in pairwise(names)}
    return next(side for side in ("test", "dev", "train") if side in sides)


def _side_of_pair(pair: tuple[str, str]) -> str:
    last = int(draw_order("strings", "pair", *pair), 16) % 10
    return next(side for side, digits in _HELD_OUT.items() if last in digits)


def _task(names: tuple[str, ...], words: Words, split: str) -> Task:
    call = written(names, words)
    return Task(
        key=f"strings/{call.replace(' ', '_')}",
        source=f"strings-depth{len(names)}",
        input=call,
        answers=(" ".join(value(names, words)),),
        verifier="same_words",
        tags={"type": f"depth-{len(names)}", "split": split, "composition": "".join(names)},
    )
