"""Enter the Mind Palace: retrieve more, look around, or answer, by the value of information (Ginting et al., "Enter the mind
palace: reasoning and planning for long-term active embodied question answering", arXiv 2507.12846).

    V = share of the evidence that has been read;  VOI(option) = E[V after it] - V
    do the option with the largest VOI - cost;  answer when none is above 0

A palace here is many conversations of one user, its rooms. Each option reads one more entry: the next best by words, by
meaning or by both, or a neighbour of the last one read. The VOI of an option is a logistic regression of the rise of V on
features known before reading, fitted on questions with marked evidence: first on random options, then on its own choices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from keepworth.base.arrays import Floats
from keepworth.evaluation.study import Rows, Study, rows_of, wrap_names
from keepworth.methods.studies._logistic import fit
from keepworth.methods.studies._slates import lexical_scores
from keepworth.registry import Method, part
from keepworth.worlds.benchmark import cluster_of, haystack, place, session_of, turn_of
from keepworth.worlds.data_sets.longmemeval import longmemeval

OPTIONS = ("words", "meaning", "both", "beside")
MOST = 16  # entries after which every arm answers
Estimate = Callable[[str, Floats], float]


@dataclass(frozen=True, slots=True)
class Palace:
    """A question and its entries, in order of time.

    Attributes:
        words, meaning: BM25 of each entry with the question, scaled so that the best is 1, and its cosine; [entries].
        both: For each entry the sum of 1 / (60 + rank) by words and by meaning; [entries].
        rooms, turns: The conversation and the turn of each entry.
        evidence, cluster: The turns that answer the question, and the name of questions that share some.
    """

    words: Floats
    meaning: Floats
    both: Floats
    rooms: tuple[str, ...]
    turns: tuple[str, ...]
    evidence: frozenset[str]
    cluster: str

    def value_at(self, read: Sequence[int], count: float) -> float:
        """Returns V after a fractional number of entries: that share of questions reads one more."""
        low = int(count)
        return (1 - count + low) * self.value(read[:low]) + (count - low) * self.value(read[: low + 1])

    def value(self, read: Sequence[int]) -> float:
        """Returns V: the share of the evidence that has been read."""
        return len(self.evidence & {self.turns[entry] for entry in read}) / len(self.evidence)

    def propose(self, read: Sequence[int]) -> dict[str, int]:
        """Returns the entry that each option would read next, without options that have none."""
        unread = np.ones(len(self.words), dtype=bool)
        unread[list(read)] = False
        if not unread.any():
            return {}
        scores = {"words": self.words, "meaning": self.meaning, "both": self.both}
        proposed = {name: int(np.where(unread, values, -np.inf).argmax()) for name, values in scores.items()}
        for entry in (read[-1] + 1, read[-1] - 1) if read else ():
            if 0 <= entry < len(unread) and unread[entry] and self.rooms[entry] == self.rooms[read[-1]]:
                proposed.setdefault("beside", entry)
        return proposed

    def describe(self, entry: int, read: Sequence[int], expected: float) -> Floats:
        """Returns features of an entry that are known before it is read.

        Args:
            entry: The index of the entry.
            read: The indices of those that were read.
            expected: The sum of the VOI expected of those.
        """
        words, meaning = self.words[entry], self.meaning[entry]
        room = [at for at, name in enumerate(self.rooms) if name == self.rooms[entry]]
        read_words, read_meaning = (max(scores[list(read)], default=0.0) for scores in (self.words, self.meaning))
        row = [1.0, words, 1 / (1 + (self.words > words).sum()), meaning, 1 / (1 + (self.meaning > meaning).sum())]
        row += [30 * self.both[entry], 1 / (1 + (self.both > self.both[entry]).sum())]
        row += [self.words[room].max(), self.meaning[room].max(), float(any(at in read for at in room))]
        row += [read_words - words, read_meaning - meaning, len(read) / MOST, min(expected, 2.0), float(not read)]
        return np.array(row)


def _open_palaces(split: str, distractors: int, encode: Callable[[Sequence[str]], Floats], limit: int) -> list[Palace]:
    """Returns the questions of a split with marked evidence, among other conversations."""
    palaces = []
    for task in longmemeval(split, distractors=distractors, abstention=False)[: limit or None]:
        entries = haystack(task)
        turns = tuple(turn_of(place(entry)) for entry in entries)
        evidence = frozenset(turn for turn, entry in zip(turns, entries, strict=True) if entry.evidence)
        if not evidence:
            continue
        words = lexical_scores(task.input, (entry.text for entry in entries))
        vectors = encode([task.input, *(entry.text for entry in entries)])
        meaning = vectors[1:] @ vectors[0]
        both = sum(1 / (60 + np.argsort(np.argsort(-scores, kind="stable"))) for scores in (words, meaning))
        words = words / max(words.max(), 1e-9)
        palaces.append(
            Palace(words, meaning, np.asarray(both), tuple(map(session_of, turns)), turns, evidence, cluster_of(task))
        )
    return palaces


def explore(
    palaces: Sequence[Palace], draw: np.random.Generator, estimate: Estimate | None
) -> dict[str, tuple[Floats, Floats]]:
    """Returns features and rise of V for every option at every step. It reads random options, or those of an estimate.

    Args:
        palaces: The memories with their questions.
        draw: The source of chance.
        estimate: The estimate whose best option is read; None reads random ones.
    """
    samples: dict[str, tuple[list[Floats], list[float]]] = {option: ([], []) for option in OPTIONS}
    for palace in palaces:
        read, expected = list[int](), 0.0
        for _ in range(MOST):
            proposed = palace.propose(read)
            rows = {option: palace.describe(entry, read, expected) for option, entry in proposed.items()}
            for option, entry in proposed.items():
                samples[option][0].append(rows[option])
                samples[option][1].append(palace.value([*read, entry]) - palace.value(read))
            if not proposed:
                break
            values = {} if estimate is None else {option: estimate(option, row) for option, row in rows.items()}
            option = max(values, key=values.__getitem__) if values else draw.choice(list(proposed))
            expected += values.get(option, 0.0)
            read.append(proposed[option])
    return {option: (np.array(rows), np.array(rises)) for option, (rows, rises) in samples.items()}


def learn(palaces: Sequence[Palace], draw: np.random.Generator, *, permuted: bool = False) -> Estimate:
    """Returns the estimate of VOI, fitted on random options, then on those that it chooses.

    Args:
        palaces: The memories with their questions.
        draw: The source of chance.
        permuted: Whether the rises are permuted, which is the control.
    """

    def estimate(before: Estimate | None) -> Estimate:
        samples = explore(palaces, draw, before).items()
        weights = {
            option: fit(rows, draw.permutation(rises) if permuted else rises) for option, (rows, rises) in samples
        }
        return lambda option, row: float(1 / (1 + np.exp(-row @ weights[option])))

    return estimate(estimate(None))


def walk(palace: Palace, estimate: Estimate) -> tuple[list[int], list[float]]:
    """Returns the entries in the order in which they would be read, and the VOI estimated for each."""
    read, promised = list[int](), list[float]()
    while len(read) < MOST and (proposed := palace.propose(read)):
        rows = {option: palace.describe(entry, read, sum(promised)) for option, entry in proposed.items()}
        values = {option: estimate(option, row) for option, row in rows.items()}
        option = max(values, key=values.__getitem__)
        read.append(proposed[option])
        promised.append(values[option])
    return read, promised


def walk_by_fall(palace: Palace) -> tuple[list[int], list[float]]:
    """Returns the entries of the best simple rule, by words and meaning, and for each its cosine as a share of the best one."""
    read = ranking(palace.both, MOST)
    return read, (palace.meaning[read] / max(palace.meaning.max(), 1e-9)).tolist()


def ranking(scores: Floats, most: int) -> list[int]:
    """Returns the entries of the highest scores, the best first."""
    return [int(entry) for entry in np.argsort(-scores, kind="stable")[:most]]


def stop_at(promised: Sequence[float], cost: float) -> int:
    """Returns how many entries are read, until the next one's value is not above its cost."""
    return next((count for count, value in enumerate(promised) if value <= cost), len(promised))


def run(
    *,
    distractors: int = 30,
    encoder: str = "minilm",
    budgets: Sequence[str] = ("3", "5", "8"),
    limit: int = 0,
    seed: int = 0,
) -> Rows:
    """Measures the evidence read at equal mean numbers of entries: by VOI, and by every fixed number in each order.

    Args:
        distractors, encoder: Conversations without evidence, and the encoder of entries.
        budgets: Mean numbers of entries on the training questions, which set the cost.
        limit, seed: Questions of a split, 0 for all; seed of exploration.
    """
    made, cache = part("encoder")(encoder), dict[str, Floats]()

    def encode(texts: Sequence[str]) -> Floats:
        new = [text for text in dict.fromkeys(texts) if text not in cache]
        cache.update(zip(new, np.asarray(made.encode(new), dtype=np.float64) if new else (), strict=True))
        return np.stack([cache[text] for text in texts])

    train, test = (_open_palaces(split, distractors, encode, limit) for split in ("train", "test"))
    clusters = [palace.cluster for palace in test]
    draw = np.random.default_rng(seed)
    estimates = {"value of information": learn(train, draw), "rises permuted": learn(train, draw, permuted=True)}
    walkers: dict[str, Callable[[Palace], Any]] = {
        name: partial(walk, estimate=estimate) for name, estimate in estimates.items()
    }
    walkers["stop where the meaning falls"] = walk_by_fall
    trained = {name: [walker(palace)[1] for palace in train] for name, walker in walkers.items()}
    walked = {name: [walker(palace) for palace in test] for name, walker in walkers.items()}

    def read_at(spent: float, orders: Sequence[Sequence[int]]) -> list[float]:
        return [palace.value_at(read, spent) for palace, read in zip(test, orders, strict=True)]

    rows: Rows = []
    for budget in map(float, budgets):
        arms: dict[str, list[float]] = {}
        stopped: dict[str, list[float]] = {}
        for name, walks in walked.items():
            costs = sorted({value for promised in trained[name] for value in promised}, reverse=True)
            cost = next(c for c in costs if np.mean([stop_at(promised, c) for promised in trained[name]]) >= budget)
            reads = [read[: stop_at(promised, cost)] for read, promised in walks]
            spent = float(np.mean([len(read) for read in reads]))
            values = [palace.value(read) for palace, read in zip(test, reads, strict=True)]
            arms[f"{name}, {spent:.2f} entries"] = stopped[name] = values
            arms[f"{name}, all read as many"] = read_at(spent, [read for read, _ in walks])
            if name == "value of information":
                stopped["all read as many"] = arms[f"{name}, all read as many"]
                for order in ("words", "meaning", "both"):
                    best = [ranking(getattr(palace, order), MOST + 1) for palace in test]
                    arms[f"best by {order}, all read as many"] = read_at(spent, best)
                arms["whoever knows the evidence"] = [min(1.0, spent / len(p.evidence)) for p in test]
        of_budget = rows_of(arms, clusters)
        for other in ("all read as many", "stop where the meaning falls"):
            gains = np.subtract(stopped["value of information"], stopped[other]).tolist()
            of_budget += rows_of({f"stopping by value, minus {other}": gains}, clusters, within=None)
        rows += wrap_names(of_budget, after=f" (budget {budget:g})")
    return rows


METHOD = Method(
    kind="study",
    name="mind_palace",
    title="Enter the Mind Palace",
    paper="arXiv 2507.12846",
    about="Reads one more entry, looks around or answers, by the value of information",
    tags=("token", "experiential", "retrieval"),
    claim=(
        "It answers more questions with fewer memories and less exploration than fixed retrieval (no number checked)."
    ),
    differs=(
        "Conversations replace scene graphs, success is the evidence that was read, and the value of "
        "information is a regression of past gains."
    ),
    label="analogue",
    make=Study(run, "share of the evidence turns that were read"),
)
