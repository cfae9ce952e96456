"""Whether naming the path helps weights to walk a tree that they know edge by edge.

A made-up tree of four levels is imitated: every edge by itself, and of half of the families questions with their answers in two
forms, straight away and with the path named from the leaf upwards. Asked are leaves of the other families, of which every edge
was met and no question: which family, order or realm are they of? After "Reinforcement Learning Improves Traversal of
Hierarchical Knowledge in LLMs", arXiv 2511.05933, where a prompt that names the path recovers most of what reinforcement gains.
Controls: leaves that no edge names, who is right there guesses; and the family, which is the first hop of every path: who cannot
tell it when asked for it, though the edge is known, has no path to walk, whichever way the realm is asked for.

`keepworth methods run hierarchy` (minutes)
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from keepworth.episodes.errors import KeepworthError
from keepworth.evaluation.study import Rows, Study, rows_of
from keepworth.methods.studies._passes import difference_row
from keepworth.registry import Method

LEVELS = ("family", "order", "realm")
"""Of what a leaf is, one, two and three edges above it."""
BATCH = 16


@dataclass(frozen=True, slots=True)
class Leaf:
    """name: of the leaf. path: its family, order and realm."""

    name: str
    path: tuple[str, ...]

    def question(self, level: int, path: bool) -> str:
        return f"Which {LEVELS[level]} is {self.name} of?{' Name the path.' if path else ''}"

    def answer(self, level: int, path: bool) -> str:
        return f" {', '.join(self.path[: level + 1] if path else self.path[level : level + 1])}."


def draw_tree(branches: int, seed: int) -> list[Leaf]:
    """The leaves of a tree in which everything has so many children, in the order of their families. No name is used twice."""
    draw = random.Random(f"hierarchy/{seed}")
    names = ["".join(parts).capitalize() for parts in product("bdfgklmnprst", "aeiou", "bdgklmnprt", ("a", "o", "us"))]
    fresh = iter(draw.sample(names, sum(branches**depth for depth in range(1, 5))))
    above: list[tuple[str, ...]] = [()]
    for _ in range(4):
        above = [(next(fresh), *path) for path in above for _ in range(branches)]
    return [Leaf(path[0], path[1:]) for path in above]


def edges_of(leaves: Sequence[Leaf]) -> list[tuple[str, str]]:
    """What is below and what is above, every edge of the tree once."""
    pairs = [pair for leaf in leaves for pair in zip((leaf.name, *leaf.path), leaf.path, strict=False)]
    return list(dict.fromkeys(pairs))


def stated(text: str) -> tuple[str, ...]:
    """The names of an answer, up to its full stop."""
    return tuple(name.strip() for name in text.partition(".")[0].split(","))


def run(
    *, branches: int = 3, passes: int = 12, rate: float = 1e-3, model: str = "smollm2-135m-instruct", seed: int = 0
) -> Rows:
    """The share of right answers by level, straight away and with the path named.

    Args:
        branches: Children of everything in the tree.
        passes: How often the edges are met, and questions of the trained families.
        rate: Learning rate of the weights.
        model: Whose weights learn; a name or a folder.
        seed: Of the tree and of the adapter.
    """
    if not 2 <= branches <= 5 or passes < 1:
        raise KeepworthError(
            f"branches={branches}, passes={passes}: 2 to 5 branches, 1 pass or more.", "Write branches=3, say."
        )
    from keepworth.methods.studies._readers import learning_reader

    leaves = draw_tree(branches, seed)
    families = list(dict.fromkeys(leaf.path[0] for leaf in leaves))
    trained = set(random.Random(f"hierarchy/trained/{seed}").sample(families, len(families) // 2))
    shown = [leaf for leaf in leaves if leaf.path[0] in trained]
    tested = [leaf for leaf in leaves if leaf.path[0] not in trained]
    strangers = [
        Leaf(stranger.name, leaf.path)
        for stranger, leaf in zip(draw_tree(branches, seed + 1), tested, strict=False)
        if stranger.name not in {name for of in leaves for name in (of.name, *of.path)}
    ]
    reader, learner = learning_reader(model, rate, seed)
    draw = random.Random(f"hierarchy/order/{seed}")
    for _ in range(passes):
        pairs = [(f"{below} belongs to", f" {above}.") for below, above in edges_of(leaves)]
        for leaf, path in product(shown, (False, True)):
            level = draw.randrange(len(LEVELS))
            pairs.append((leaf.question(level, path), leaf.answer(level, path)))
        draw.shuffle(pairs)
        for start in range(0, len(pairs), BATCH):
            learner.imitate(
                [
                    (reader.encode(prompt), reader.encode_continuation(completion))
                    for prompt, completion in pairs[start : start + BATCH]
                ]
            )
    clusters = [leaf.path[0] for leaf in tested]
    first = [(f"{leaf.name} belongs to", leaf.path[:1]) for leaf in tested]
    edges = [float(names == right) for names, (_, right) in zip(say(reader, [p for p, _ in first]), first, strict=True)]
    rows = rows_of({"a leaf's edge": edges}, clusters)
    for level, name in enumerate(LEVELS):
        answers = {path: say(reader, [leaf.question(level, path) for leaf in tested]) for path in (False, True)}
        right = {
            path: [float(names[-1] == leaf.path[level]) for names, leaf in zip(answers[path], tested, strict=True)]
            for path in answers
        }
        whole = [float(names == leaf.path[: level + 1]) for names, leaf in zip(answers[True], tested, strict=True)]
        arms: Mapping[str, list[float]] = {
            f"{name}: straight away": right[False],
            f"{name}: path named": right[True],
            f"{name}: whole path right": whole,
        }
        rows += rows_of(arms, clusters)
        gaps = np.subtract(right[True], right[False])
        rows.append(difference_row(f"{name}: path named minus straight away", gaps, clusters))
    for (path, arm), level in product(((False, "straight away"), (True, "path named")), (0, len(LEVELS) - 1)):
        guesses = say(reader, [leaf.question(level, path) for leaf in strangers])
        by_chance = [float(names[-1] == leaf.path[level]) for names, leaf in zip(guesses, strangers, strict=True)]
        rows += rows_of(
            {f"{LEVELS[level]} of leaves never met: {arm}": by_chance}, [leaf.path[0] for leaf in strangers]
        )
    return rows


def say(reader: Any, prompts: Sequence[str]) -> list[tuple[str, ...]]:
    """The names that the reader goes on with, greedily."""
    from keepworth.episodes.model import SamplingParams

    drawn = reader.sample([reader.encode(prompt) for prompt in prompts], SamplingParams(24, temperature=0.0))
    return [stated(reader.decode(samples[0].ids)) for samples in drawn]


METHOD = Method(
    kind="study",
    name="hierarchy",
    title="Traversal of hierarchical knowledge",
    paper="arXiv 2511.05933",
    about="Asks weights that learned a tree edge by edge what a leaf is of, straight away and with the path named, by depth",
    claim="Naming the path from level to level recovers most of what a model fails to recall of a hierarchy (24 to 7 points).",
    differs="The tree is made up and imitated by a 135M model, and there is no arm of reinforcement.",
    tags=("parametric", "factual", "retrieval"),
    label="small",
    make=Study(run, "share of answers that are right"),
    extra="train",
)
