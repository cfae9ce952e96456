"""Fits the weights by which `keepworth.memory.replaced_statements` decides whether a statement replaces an older one.

    python -m benchmarks.memory.change_weights [--data LONGMEMEVAL.json.gz]

Pairs of an older and a newer statement are in `tests/memory/change_pairs.json`: changes, and near misses that only look like
one. Most were written without knowledge of the signs that are weighed, and are split by the older statement: "fit" is what is
fitted to here, with the lists that rules were made by: those of `tests/memory/changes.json`, "development" and "beside" of
the pairs, and the halves for development of `tests/memory/change_subjects.json`. "test", "plain_test" and what is held out never
are.
Beside them each newer statement is paired with the older ones of other pairs that share most words with it. LongMemEval, if it is
given, adds statements of one conversation that share words: what people say in passing replaces hardly anything.

The weights are those of a logistic regression with a penalty on their squares. The threshold is the lowest at which at most
`NEAR_MISSES` of the near misses are replaced, each judged by weights that were fitted without it.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from keepworth.memory.change_signs import reading, signs
from keepworth.memory.replaced_statements import LONGEST, compared
from keepworth.methods.writers._statements import claims

TESTS = Path(__file__).parents[2] / "tests" / "memory"
WEIGHTS = Path(__file__).parents[2] / "src" / "keepworth" / "memory" / "change_weights.toml"
PAIRS, SUBJECTS = ("fit", "development", "beside"), ("development", "more_development")
"""The lists of pairs, and the halves of the subjects, that are fitted to."""
NEAR_MISSES = 0.018
"""The share of near misses that may be replaced."""
LEAST = 0.531
"""The least threshold: at a lower one more than one near miss of a list of `tests/memory/changes.json` is replaced."""
PENALTY, CROSSED, IN_PASSING = 10.0, 0.5, 0.3
"""The penalty on the squares of the weights of standardised signs; what a crossed pair, and one of a conversation, counts."""
FOLDS, ROUNDS = 8, 2
HARD = 1500
"""How many of the pairs of conversations that look most like changes are fitted to, and how many others."""

Pair = tuple[str, str]
Array = npt.NDArray[np.float64]


def listed() -> tuple[list[Pair], list[Pair], list[Pair]]:
    """Returns the changes, the near misses, and pairs of statements that were not written as a pair."""
    pairs = json.loads((TESTS / "change_pairs.json").read_text("utf-8"))
    lists = json.loads((TESTS / "changes.json").read_text("utf-8"))
    subjects = json.loads((TESTS / "change_subjects.json").read_text("utf-8"))
    plain = [case for half in SUBJECTS for case in subjects[half]["changes"]]
    changes = [(old, new) for half in PAIRS for old, new in pairs[half]["changes"]]
    changes += [(case["old"], case["new"]) for case in plain]
    near = [(old, new) for half in PAIRS for old, new in pairs[half]["near_misses"]]
    near += [(case["old"], case["new"]) for half in SUBJECTS for case in subjects[half]["near_misses"]]
    for name in ("changes", "siblings"):
        changes += [(case["old"], case["new"]) for case in lists[name]]
    for name in ("near_misses", "other_near_misses"):
        near += [(case["old"], case["new"]) for case in lists[name]]
    others = [(case["other"], case["new"]) for case in plain]
    for case in (case for name in ("changes", "siblings") for case in lists[name]):
        told = [case["old"], *case["others"]]
        others += [(old, case["new"]) for old in case["others"]]
        others += [(old, new) for old in told for new in told if old != new]
    stated = [(old, old) for old, _ in changes]
    return changes, near, others + crossed(changes, 2) + crossed(near, 1) + crossed(stated, 1)


def crossed(pairs: Sequence[Pair], most: int) -> list[Pair]:
    """Returns each newer statement with the older ones of other pairs that share most words with it, unless these share half of
    their words with its own."""
    words = [reading(old).weighed for old, _ in pairs]
    mixed: list[Pair] = []
    for own, (_, new) in zip(words, pairs, strict=True):
        said = reading(new).wording.content
        near = sorted(
            (
                (len(said & other) / len(other), old)
                for other, (old, _) in zip(words, pairs, strict=True)
                if other and 2 * len(own & other) < len(own | other)
            ),
            reverse=True,
        )
        mixed += [(old, new) for share, old in near[:most] if share > 0]
    return mixed


def in_passing(path: Path) -> list[list[str]]:
    """Returns the statements of people in LongMemEval, in order, for each of its conversations."""
    questions = json.loads(gzip.decompress(path.read_bytes()))
    statements: dict[tuple[str, ...], list[str]] = {}
    for question in questions:
        said: list[str] = []
        dated = sorted(
            zip(question["haystack_dates"], question["haystack_sessions"], strict=True), key=lambda one: one[0]
        )
        for day, session in dated:
            for turn in session:
                if turn["role"] == "user":
                    said += [claim.text for claim in claims(turn["content"], day[:10].replace("/", "-"))]
        said = list(dict.fromkeys(said))
        if said:
            statements.setdefault(tuple(said[:3]), said)
    return list(statements.values())


def nearest_before(said: Sequence[str], most: int = 6) -> list[Pair]:
    """Returns each statement with the earlier ones that share most words with it."""
    pairs: list[Pair] = []
    for at, new in enumerate(said):
        if len(new) > LONGEST:
            continue
        words = reading(new).weighed
        near = [(len(words & reading(old).weighed) / (1 + len(reading(old).weighed)), old) for old in said[:at]]
        pairs += [(old, new) for share, old in sorted(near, reverse=True)[:most] if share > 0]
    return pairs


def table(pairs: Sequence[Pair], names: Sequence[str]) -> Array:
    """Returns the signs of pairs, one row each."""
    columns = [signs(old, new) for old, new in pairs]
    return np.array([[float(one[name]) for name in names] for one in columns]).reshape(len(columns), len(names))


def fitted(rows: Array, right: Array, counts: Array) -> tuple[float, Array]:
    """Returns the constant and the weights of a logistic regression, found by Newton's method."""
    mean, spread = rows.mean(0), rows.std(0) + 1e-9
    inputs = np.hstack([np.ones((len(rows), 1)), (rows - mean) / spread])
    penalty = np.full(inputs.shape[1], PENALTY)
    penalty[0] = 0.0
    weights = np.zeros(inputs.shape[1])
    for _ in range(30):
        likely = 1 / (1 + np.exp(-np.clip(inputs @ weights, -30, 30)))
        slope = inputs.T @ (counts * (likely - right)) + penalty * weights
        curve = (inputs * (counts * likely * (1 - likely))[:, None]).T @ inputs + np.diag(penalty + 1e-9)
        weights -= np.linalg.solve(curve, slope)
    of_signs = weights[1:] / spread
    return float(weights[0] - mean @ of_signs), of_signs


def likely(constant: float, weights: Array, rows: Array) -> Array:
    """Returns the probabilities of pairs."""
    chances: Array = 1 / (1 + np.exp(-np.clip(constant + rows @ weights, -30, 30)))
    return chances


def in_parts(pairs: Sequence[Pair], names: Sequence[str]) -> tuple[Array, npt.NDArray[np.int_]]:
    """Returns the signs of each part of the newer statement of each pair, and the numbers of the pairs."""
    listed_parts = [(number, (old, part)) for number, (old, new) in enumerate(pairs) for part in compared(old, new)]
    return table([pair for _, pair in listed_parts], names), np.array(
        [number for number, _ in listed_parts], dtype=np.int_
    )


def best_of(judged: Array, pair: npt.NDArray[np.int_], count: int) -> Array:
    """Returns the highest probability among the parts of each pair."""
    best = np.zeros(count)
    np.maximum.at(best, pair, judged)
    return best


def fit(conversations: Sequence[Sequence[str]] = ()) -> tuple[float, float, dict[str, float]]:
    """Returns the threshold, the constant and the weights.

    Of a change one part tells, the most likely one by the weights before: at first the whole statement. Of other pairs each part
    counts.
    """
    whole = listed()
    changes, near, others = ([pair for pair in pairs if compared(*pair)] for pairs in whole)
    passing = [pair for said in conversations for pair in nearest_before(said) if compared(*pair)]
    names = list(signs(*changes[0]))
    pairs = [*changes, *near, *others, *passing]
    rows, pair = in_parts(pairs, names)
    kinds = np.array([0] * len(changes) + [1] * len(near) + [2] * len(others) + [3] * len(passing))
    sizes = np.bincount(pair, minlength=len(pairs))
    counts = np.array([1.0, 1.0, CROSSED, IN_PASSING])[kinds[pair]] / np.where(kinds[pair] == 0, 1, sizes[pair])
    is_change = kinds[pair] == 0
    is_whole = np.concatenate([[True], pair[1:] != pair[:-1]])
    fold = np.array([sum(old.encode()) % FOLDS for old, _ in pairs])
    fold[kinds == 3] = -1
    used = kinds[pair] < 3

    def fitted_to(kept: npt.NDArray[np.bool_]) -> tuple[float, Array]:
        chosen = is_whole | ~is_change
        weights = fitted(rows[kept & chosen], is_change[kept & chosen].astype(float), counts[kept & chosen])
        for _ in range(ROUNDS):
            judged = likely(*weights, rows)
            chosen = ~is_change | (judged >= best_of(judged, pair, len(pairs))[pair])
            weights = fitted(rows[kept & chosen], is_change[kept & chosen].astype(float), counts[kept & chosen])
        return weights

    if len(passing):
        first = best_of(likely(*fitted_to(used), rows), pair, len(pairs))
        first[kinds < 3] = -1.0
        drawn = np.random.default_rng(0).permutation(np.flatnonzero(kinds == 3))[:HARD]
        used |= np.isin(pair, [*np.argsort(-first)[:HARD], *drawn]) & (kinds[pair] == 3)
    judged = np.zeros(len(rows))
    for number in range(FOLDS):
        held = fold[pair] == number
        judged[held] = likely(*fitted_to(used & ~held), rows[held])
    best = best_of(judged, pair, len(pairs))
    of_near = np.sort(best[kinds == 1])[::-1]
    least = max(LEAST, float(of_near[int(NEAR_MISSES * len(whole[1]))]))
    print(
        f"{(best[kinds == 0] > least).sum()} of {len(whole[0])} changes are seen, by weights that were fitted without each"
    )
    constant, weights = fitted_to(used)
    return least, constant, dict(zip(names, map(float, weights), strict=True))


def main() -> None:
    """Fits the weights and writes them to their file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of LongMemEval, whose statements of one talk replace nothing")
    path = parser.parse_args().data
    said = in_passing(path) if path else []
    least, constant, weights = fit(said[::2])
    lines = [
        "# Weights of the signs that a statement replaces an older one, fitted by `benchmarks/memory/change_weights.py`.",
        f"\n# The least probability.\nleast = {least:.3f}\nconstant = {constant:.3f}\n\n[weights]",
        *(f'"{name}" = {weight:.3f}' for name, weight in weights.items()),
    ]
    WEIGHTS.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
