"""String composition: evaluating `f(g(red sun cat))` in words, with adjustable depth and held-out compositions.

After "From f(x) and g(x) to f(g(x)): LLMs Learn New Skills in RL by Composing Old Ones" (arXiv 2509.25123): functions with
meaningless names, learned one at a time, then composed. Training and test questions differ in the composition itself: which
functions come in which order. Different from the paper, for a small model: the functions move whole words, not characters.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise, product
from math import perm
from types import MappingProxyType

from keepworth.base.errors import require_known
from keepworth.records.episode import Task
from keepworth.worlds.splits import SPLITS, draw_order

Words = tuple[str, ...]

FUNCTIONS: Mapping[str, Callable[[Words], Words]] = MappingProxyType(
    {
        "f": lambda x: x[::-1],  # reverse
        "g": lambda x: x[1:] + x[:1],  # the first word goes last
        "h": lambda x: x[-1:] + x[1:-1] + x[:1] if len(x) > 1 else x,  # first and last change places
        "k": lambda x: x[1:],  # without the first
        "m": lambda x: x + x[:1],  # the first word again at the end
        "n": lambda x: x[-1:] + x,  # the last word again in front
        "p": lambda x: x[:-1],  # without the last
        "q": lambda x: x[:1] + x,  # the first word twice
        "r": lambda x: x[-1:] + x[:-1],  # the last word goes first
        "s": lambda x: x[1:2] + x[:1] + x[2:],  # the first two change places
        "t": lambda x: x + x[-1:],  # the last word twice
        "v": lambda x: x[:1] + x[2:],  # without the second
    }
)
WORDS = (
    *("red", "blue", "green", "black", "white", "cat", "dog", "bird", "fish", "horse", "sun", "moon"),
    *("star", "rain", "snow", "wind", "tree", "leaf", "rock", "sand", "milk", "bread", "salt", "rice"),
)
_HELD_OUT = {"train": range(5), "dev": range(5, 7), "test": range(7, 10)}


def string_tasks(
    split: str, count: int, seed: int = 0, *, depth: int = 2, length: int = 4, only: int | None = None
) -> list[Task]:
    """Returns `count` distinct tasks whose compositions belong to `split`. With `only`, they use the first `only` compositions of
    `covering`.

    depth: how many functions are composed. At depth 1 every function belongs to every split and only the words differ, since
    single functions are known before. From depth 2 on, no composition of one split occurs in another; a deeper composition
    belongs to training only if every neighbouring pair in it does, so that depth 3 of "test" has pairs that were never trained
    on. A composition is held out only if it does something new (`novel`).
    length: words of the argument. answers: the value, words joined by blanks. tags: split, depth, composition.
    Raises UnknownName for a split; ValueError for more tasks than there are.
    """
    require_known("split", split, SPLITS)
    chosen = novel(split, depth, length) if only is None else covering(split, depth)[:only]
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
    """Returns the function names, outermost first, of every composition of `split`, in a fixed shuffled order."""
    every = [names for names in product(FUNCTIONS, repeat=depth) if depth == 1 or _side(names) == split]
    return tuple(sorted(every, key=lambda names: draw_order("strings", *names)))


@lru_cache(maxsize=32)
def novel(split: str, depth: int, length: int) -> tuple[tuple[str, ...], ...]:
    """Returns the compositions of `split`. For a held-out split, only those whose effect on `length` words differs from that of
    every single function and training composition up to this depth: `h(h(x))` is `f(f(x))`, held out by name but known by
    effect."""
    in_split = compositions(split, depth)
    if split == "train" or depth == 1:
        return in_split
    argument = WORDS[:length]
    reachable = {value(names, argument) for upto in range(1, depth + 1) for names in compositions("train", upto)}
    return tuple(names for names in in_split if value(names, argument) not in reachable)


@lru_cache(maxsize=32)
def covering(split: str, depth: int) -> tuple[tuple[str, ...], ...]:
    """Returns the compositions of `split` in a greedy order: the first few show as many functions in as many places as
    possible."""
    left = list(compositions(split, depth))
    covers: list[tuple[str, ...]] = []
    shown: set[tuple[int, str]] = set()
    while left:
        best = max(left, key=lambda names: len(set(enumerate(names)) - shown))  # the first of equals
        left.remove(best)
        covers.append(best)
        shown |= set(enumerate(best))
    return tuple(covers)


def composition_of(key: str) -> str:
    """Returns a task's composition from its key: `f(g`."""
    return key.partition("/")[2].rpartition("(")[0]


def value(names: Sequence[str], words: Words) -> Words:
    """Returns names[0](names[1](...(words)))."""
    for name in reversed(names):
        words = FUNCTIONS[name](words)
    return words


def written(names: Sequence[str], words: Words) -> str:
    """Returns the question as text: `f(g(red sun))`."""
    return "".join(f"{name}(" for name in names) + " ".join(words) + ")" * len(names)


def steps(names: Sequence[str], words: Words) -> list[str]:
    """Returns each function with its value, the innermost first: `g(red sun) = sun red`."""
    operations = []
    for name in reversed(names):
        result = FUNCTIONS[name](words)
        operations.append(f"{written((name,), words)} = {' '.join(result)}")
        words = result
    return operations


def worked_out(task: Task) -> str:
    """Returns the text after the `=` of a question with every step written out: `g(red sun) = sun red, f(sun red) = red sun`; for
    a single function its value alone. Every step is a single function's question and its answer."""
    words = tuple(task.input.rpartition("(")[2].rstrip(")").split())
    names = tuple(task.tags["composition"])
    return ", ".join(steps(names, words)) if len(names) > 1 else " ".join(value(names, words))


def _side(names: tuple[str, ...]) -> str:
    """Returns the side of a composition: that of a pair is by the hash of its names; a longer one takes the most held-out side of
    its pairs."""
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
