"""Measures whether naming the path helps a model traverse a tree that it knows edge by edge.

A made-up tree of four levels is imitated: every edge by itself, and for half of the families questions with their answers in two
forms, straight away and with the path named from the leaf upwards. The test asks for the family, order or realm of leaves of the
other families, whose edges were trained and whose questions were not. After "Reinforcement Learning Improves Traversal of
Hierarchical Knowledge in LLMs", arXiv 2511.05933, where a prompt that names the path recovers most of what reinforcement gains.
With `rewarded`, right answers about some of the other families are rewarded, or imitated as often.

Controls: leaves without any edge, where right answers are guesses; rewards of other answers; and the family, which is the first
hop of every path: a model that cannot name it when asked, though the edge is known, cannot walk a path in either form. A model of
135M that learned the edges fails at this; a tiny network whose tokens are whole names does not.

`keepworth methods run hierarchy` (minutes)
`keepworth eval run RUN --diagnose hierarchy`, of a run of tasks of one's own whose rows have a `path`
`keepworth methods run hierarchy --set model=tiny --set branches=4 --set passes=30 --set rate=3e-3 --set rewarded=60`
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from keepworth.base.errors import KeepworthError
from keepworth.evaluation.study import Rows, Study, differences, need_clusters, rows_of, wrap_names
from keepworth.registry import Method
from keepworth.worlds.own import messages_of
from keepworth.worlds.splits import draw_order

if TYPE_CHECKING:
    from keepworth.evaluation.finished_runs import FinishedRun
    from keepworth.records.episode import Task

LEVELS = ("family", "order", "realm")
"""The levels one, two and three edges above a leaf."""
BATCH = 16
NAME_PATH = " Name the path."
"""The suffix of a question that asks for the path."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf with its path: its family, order and realm."""

    name: str
    path: tuple[str, ...]

    def question(self, level: int, path: bool) -> str:
        return f"Which {LEVELS[level]} is {self.name} of?{NAME_PATH if path else ''}"

    def ask(self, level: int, path: bool) -> tuple[str, str]:
        """Returns a question with its right answer."""
        return self.question(level, path), f" {', '.join(self.path[0 if path else level : level + 1])}."


def draw_tree(branches: int, seed: int) -> list[Leaf]:
    """Returns the leaves of a tree with `branches` children of every node, in the order of families. Names are distinct."""
    draw = random.Random(f"hierarchy/{seed}")
    names = ["".join(parts).capitalize() for parts in product("bdfgklmnprst", "aeiou", "bdgklmnprt", ("a", "o", "us"))]
    fresh = iter(draw.sample(names, sum(branches**depth for depth in range(1, 5))))
    above: list[tuple[str, ...]] = [()]
    for _ in range(4):
        above = [(next(fresh), *path) for path in above for _ in range(branches)]
    return [Leaf(path[0], path[1:]) for path in above]


def edges_of(leaves: Sequence[Leaf]) -> list[tuple[str, str]]:
    """Returns every edge of the tree once, as (below, above)."""
    pairs = [pair for leaf in leaves for pair in zip((leaf.name, *leaf.path), leaf.path, strict=False)]
    return list(dict.fromkeys(pairs))


def stated(text: str) -> tuple[str, ...]:
    """Returns the names of an answer, up to its full stop."""
    return tuple(name.strip() for name in text.partition(".")[0].split(","))


def run(
    *,
    branches: int = 3,
    passes: int = 12,
    rate: float = 1e-3,
    model: str = "smollm2-135m-instruct",
    rewarded: int = 0,
    seed: int = 0,
) -> Rows:
    """Measures the share of right answers by level, straight away and with the path named.

    Args:
        branches: Children of every node of the tree.
        passes: Passes over the edges, and over questions of the trained families.
        rate: Learning rate of the weights.
        model: The model that learns; a name or a folder, or "tiny", a small network whose tokens are whole names.
        rewarded: Updates with a reward for right answers to questions of a quarter of the other families, which are then not
            tested; compared with as many that imitate these answers, and as many with permuted rewards.
        seed: Seed of the tree and of the weights that learn.
    """
    if not 2 <= branches <= 5 or passes < 1 or rewarded < 0:
        raise KeepworthError(
            f"branches={branches}, passes={passes}, rewarded={rewarded}: 2 to 5 branches, 1 pass or more.",
            "Write branches=3, say.",
        )
    from keepworth.methods.studies._readers import imitate, learning_reader, tiny_reader

    leaves = draw_tree(branches, seed)
    families = list(dict.fromkeys(leaf.path[0] for leaf in leaves))
    trained = set(random.Random(f"hierarchy/trained/{seed}").sample(families, len(families) // 2))
    others = [family for family in families if family not in trained]
    practised = set(others[::4] if rewarded else ())
    shown = [leaf for leaf in leaves if leaf.path[0] in trained]
    tested = [leaf for leaf in leaves if leaf.path[0] not in trained | practised]
    strangers = [
        Leaf(stranger.name, leaf.path)
        for stranger, leaf in zip(draw_tree(branches, seed + 1), tested, strict=False)
        if stranger.name not in {name for of in leaves for name in (of.name, *of.path)}
    ]
    texts = ["".join(leaf.ask(level, True)) for leaf in leaves for level in range(len(LEVELS))]
    texts += [f"{leaf.name} belongs to" for leaf in (*leaves, *strangers)]
    reader, learner = tiny_reader(texts, rate, seed) if model == "tiny" else learning_reader(model, rate, seed)
    draw = random.Random(f"hierarchy/order/{seed}")
    for _ in range(passes):
        pairs = [(f"{below} belongs to", f" {above}.") for below, above in edges_of(leaves)]
        pairs += [leaf.ask(draw.randrange(len(LEVELS)), path) for leaf, path in product(shown, (False, True))]
        draw.shuffle(pairs)
        for start in range(0, len(pairs), BATCH):
            imitate(reader, learner, pairs[start : start + BATCH])
    clusters = [leaf.path[0] for leaf in tested]
    answers = say(reader, [f"{leaf.name} belongs to" for leaf in tested])
    edges = [float(names == leaf.path[:1]) for names, leaf in zip(answers, tested, strict=True)]
    rows = rows_of({"a leaf's edge": edges}, clusters)
    for level, name in enumerate(LEVELS):
        right = {way: _score_answers(reader, tested, level, path) for path, way in WAYS.items()}
        paths = say(reader, [leaf.question(level, True) for leaf in tested])
        whole = [float(names == leaf.path[: level + 1]) for names, leaf in zip(paths, tested, strict=True)]
        rows += wrap_names(_compare_ways(right, whole, clusters), f"{name}: ")
    for (path, arm), level in product(WAYS.items(), (0, len(LEVELS) - 1)):
        by_chance = {f"{LEVELS[level]} of leaves never met: {arm}": _score_answers(reader, strangers, level, path)}
        rows += rows_of(by_chance, [leaf.path[0] for leaf in strangers])
    if not rewarded:
        return rows
    practice, before = [leaf for leaf in leaves if leaf.path[0] in practised], deepcopy(learner.state())
    after: dict[str, dict[str, list[float]]] = {}
    for arm in TEACHERS:
        learner.load(deepcopy(before))
        practise(reader, learner, practice, arm, rewarded, seed)
        for (level, name), (path, way) in product(enumerate(LEVELS), WAYS.items()):
            after.setdefault(f"{name}: {way}", {})[arm] = _score_answers(reader, tested, level, path)
        rows += rows_of({f"{name}, {arm}": of[arm] for name, of in after.items()}, clusters)
        shares = [float(np.mean([_score_answers(reader, [leaf], 2, path)[0] for path in WAYS])) for leaf in practice]
        rows += rows_of({f"realm of practised families, {arm}": shares}, [leaf.path[0] for leaf in practice])
    for name, arms in after.items():
        rows += wrap_names(differences(arms, product(TEACHERS[:1], TEACHERS[1:]), clusters), f"{name}, ")
    return rows


WAYS = {False: "straight away", True: "path named"}
TEACHERS = ("rewarded", "imitated", "rewards of other answers")
"""How questions of practised families are trained; the last is the control."""


def _compare_ways(right: Mapping[str, list[float]], whole: list[float], clusters: Sequence[str]) -> Rows:
    """Returns the rows of right answers in both ways, of paths that are right as a whole, and of the difference of the ways."""
    gap = differences(right, [("path named", "straight away")], clusters)
    return rows_of({**right, "whole path right": whole}, clusters) + gap


def _score_answers(reader: Any, leaves: Sequence[Leaf], level: int, path: bool) -> list[float]:
    """Returns whether the last name of each leaf's answer is right."""
    answers = say(reader, [leaf.question(level, path) for leaf in leaves])
    return [float(names[-1] == leaf.path[level]) for names, leaf in zip(answers, leaves, strict=True)]


def practise(reader: Any, learner: Any, leaves: Sequence[Leaf], arm: str, updates: int, seed: int) -> None:
    """Trains a reader on questions of these leaves.

    Args:
        reader: The model that answers.
        learner: It updates the reader.
        leaves: Those that are asked about.
        arm: "imitated" for right answers that are imitated; else eight answers to each are sampled and rewarded if the
            last name is right, or by a permutation of the update's rewards.
        updates: The number of updates.
        seed: That of the questions and the samples.
    """
    from keepworth.methods.studies._readers import imitate, reinforce
    from keepworth.records import SamplingParams

    draw, stops = random.Random(f"hierarchy/practice/{seed}"), frozenset(reader.encode_continuation("."))
    for update in range(updates):
        asked = [(draw.choice(leaves), draw.randrange(len(LEVELS)), draw.random() < 0.5) for _ in range(BATCH // 2)]
        if arm == "imitated":
            imitate(reader, learner, [leaf.ask(level, path) for leaf, level, path in asked])
            continue
        prompts = [reader.encode(leaf.question(level, path)) for leaf, level, path in asked]
        drawn = reader.sample(prompts, SamplingParams(24, n=8, seed=seed * updates + update, stop_ids=stops))
        earned = [
            float(stated(reader.decode(sample.ids))[-1] == leaf.path[level])
            for (leaf, level, _), samples in zip(asked, drawn, strict=True)
            for sample in samples
        ]
        if arm != TEACHERS[0]:
            random.Random(f"{seed}/{update}").shuffle(earned)
        reinforce(learner, prompts, drawn, earned, str(update))


def say(reader: Any, prompts: Sequence[str]) -> list[tuple[str, ...]]:
    """Returns the names in the reader's greedy answers."""
    from keepworth.methods.studies._readers import complete

    return list(map(stated, complete(reader, prompts, 24)))


def diagnose(runs: Sequence[FinishedRun], *, samples: int = 4, questions: int = 40, seed: int = 0) -> Rows:
    """Measures the share of right answers of one's own runs, straight away and with the path named, by the number of edges.

    Args:
        runs: Runs of tasks whose rows have a `path`: the list of names from the one above the asked name up to the answer. With
            several runs, each row begins with the name of its run.
        samples: Answers to each question.
        questions: Limit for each length of path.
        seed: Seed of the draws.
    """
    rows: Rows = []
    for run in runs:
        before = f"{run.name}: " if len(runs) > 1 else ""
        rows += wrap_names(walk(run, samples, questions, seed), before)
    return rows


def walk(run: FinishedRun, samples: int, questions: int, seed: int) -> Rows:
    """Returns the rows of one run. Raises KeepworthError where none of its test questions has a path.

    Args:
        run: The trained weights with their test questions.
        samples: The answers to a question.
        questions: The most questions for each length of a path.
        seed: That of the choice and of the samples.
    """
    from keepworth.methods.studies._finished_runs import clusters_of, episodes_of, share_out

    by_length: dict[int, dict[str, list[Task]]] = {}
    for name, of_set in run.test.items():
        for task in sorted(of_set, key=lambda task: draw_order("hierarchy", seed, task.key)):
            if path := path_of(task):
                by_length.setdefault(len(path), {}).setdefault(name, []).append(task)
    if not by_length:
        raise KeepworthError(
            f"no test question of {run.name} has a path to walk, which is a list of names in the `path` of its row.",
            "`keepworth methods run hierarchy` trains weights on a tree of its own.",
        )
    asked = {length: share_out(by_length[length], questions) for length in sorted(by_length)}
    for length, sets in asked.items():
        need_clusters(f"the test of {run.name} with paths of {length}", clusters_of(run, sets))
    model, rows = run.weights(), Rows()
    for length, sets in asked.items():
        paths = [path_of(task) for tasks in sets.values() for task in tasks]
        right, whole = dict[str, list[float]](), list[float]()
        for path_named, way in WAYS.items():
            words = NAME_PATH if path_named else ""
            asking = {name: [replace(task, input=task.input + words) for task in of] for name, of in sets.items()}
            groups = episodes_of(run, model, asking, samples, seed)
            answers = [[stated(episode.answer) for episode in group] for group in groups]
            pairs = list(zip(answers, paths, strict=True))
            right[way] = [float(np.mean([names[-1] == path[-1] for names in of])) for of, path in pairs]
            whole = [float(np.mean([names == path for names in of])) for of, path in pairs]
        edges = "1 edge" if length == 1 else f"{length} edges"
        rows += wrap_names(_compare_ways(right, whole, clusters_of(run, sets)), f"{edges}: ")
    return rows


def path_of(task: Task) -> tuple[str, ...]:
    """Returns the path in a question's row; empty where it has none, or where the task is a conversation."""
    path = task.row.get("path", ())
    return tuple(map(str, path)) if isinstance(path, list | tuple) and not messages_of(task) else ()


METHOD = Method(
    kind="study",
    name="hierarchy",
    title="Traversal of hierarchical knowledge",
    paper="arXiv 2511.05933",
    about="Asks weights that learned a tree edge by edge what a leaf is of, straight away and with the path named, by depth",
    claim="Naming the path from level to level recovers most of what a model fails to recall of a hierarchy (24 to 7 points).",
    differs="The tree is made up, and a tiny network learns it; a 135M model that did could not take the first hop.",
    tags=("parametric", "factual", "retrieval"),
    label="small",
    make=Study(run, "share of answers that are right", diagnose),
    extra="train",
)
