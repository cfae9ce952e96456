"""Fits the weights by which `keepworth.memory.told_changes` judges which of some older statements a newer one closes.

    python -m benchmarks.memory.told_change_weights [--data LONGMEMEVAL.json.gz] [--held]

`tests/memory/change_cases.json` has memories of four to six statements with a newer one, and which of them it closes: "blind" by
somebody who knew no rule, "beside" by somebody who knew the signs. Beside them count a little the pairs "fit" of
`change_pairs.json` and the lists of `changes.json` (`PAIRED`), and, with --data, what people say in LongMemEval in passing, each
with the earlier statements that are nearest to it, of which it closes none (`PASSING`).

A case is decided among its older statements and "none" by a softmax over their sums, with a penalty on the squares of the weights
of standardised signs. The threshold lets at most `NEAR_MISSES` of the blind near misses close something, each judged by weights
that were fitted without it. --held fits to the odd half of the blind cases and prints what becomes of the even half.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from keepworth.encoders.local import encoder
from keepworth.memory.replaced_statements import LONGEST_JUDGED, may_be_judged, odds
from keepworth.memory.speech import statements
from keepworth.memory.told_changes import MOST_COMPARED, may_tell_of_a_change, signs_together

TESTS = Path(__file__).parents[2] / "tests" / "memory"
WEIGHTS = Path(__file__).parents[2] / "src" / "keepworth" / "memory" / "told_change_weights.toml"
NEAR_MISSES = 0.01
"""The share of near misses that may close something."""
PENALTY, PAIRED, LISTED, PASSING = 0.02, 0.05, 1.0, 0.5
"""The penalty on the squares of the weights; what a pair counts, what a near miss of the lists, and what is said in passing."""
CONVERSATIONS, SAID = 40, 50
"""Of how many conversations how many statements are fitted to; of as many others the threshold is chosen."""
IN_TALK = 0.004
"""The share of statements in passing, of those that are judged, which may close something: most tell of no change."""
SMALLEST = 0.02
"""A weight of a standardised sign below this is left out, and the others are fitted again."""
FOLDS = 8

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """Older statements, a newer one, which it closes (-1 for none), and what the case counts."""

    older: tuple[str, ...]
    newer: str
    closes: int
    counts: float = 1.0


def vectors(texts: Sequence[str]) -> dict[str, Array]:
    """Returns the vectors of texts, of length 1."""
    unique, made = sorted(set(texts)), dict[str, Array]()
    for start in range(0, len(unique), 64):
        part = unique[start : start + 64]
        for text, vector in zip(part, encoder("minilm").encode(part), strict=True):
            made[text] = np.asarray(vector, np.float64) / float(np.linalg.norm(vector))
    return made


def listed(name: str) -> list[Case]:
    """Returns the cases "blind" or "beside". Of several statements that are closed the first counts."""
    cases = json.loads((TESTS / "change_cases.json").read_text("utf-8"))[name]
    return [Case(tuple(case["older"]), case["newer"], min(case["closes"], default=-1)) for case in cases]


def paired() -> list[Case]:
    """Returns the pairs that are fitted to, as cases."""
    pairs = json.loads((TESTS / "change_pairs.json").read_text("utf-8"))["fit"]
    lists = json.loads((TESTS / "changes.json").read_text("utf-8"))
    cases = [Case((old,), new, 0, PAIRED) for old, new in pairs["changes"]]
    cases += [Case((old,), new, -1, PAIRED) for old, new in pairs["near_misses"]]
    for name in ("changes", "siblings"):
        cases += [Case((case["old"], *case["others"]), case["new"], 0, PAIRED) for case in lists[name]]
    for name in ("near_misses", "other_near_misses"):
        cases += [Case((case["old"],), case["new"], -1, LISTED) for case in lists[name]]
    return cases


def passing(path: Path, first: int) -> list[Case]:
    """Returns statements of every other conversation of LongMemEval, from the one at `first` on, each with the earlier ones that
    are nearest in meaning, where the pair is one that is judged."""
    cases, questions = [], json.loads(gzip.decompress(path.read_bytes()))
    for question in questions[first : first + 2 * CONVERSATIONS : 2]:
        turns = (turn for session in question["haystack_sessions"] for turn in session if turn["role"] == "user")
        said = list(dict.fromkeys(one.text for turn in turns for one in statements(turn["content"])))[:SAID]
        made = vectors([text for text in said if len(text) <= LONGEST_JUDGED])
        for at, new in enumerate(said):
            near = [old for old in said[:at] if may_tell_of_a_change(new) and may_be_judged(old, new)]
            near = sorted(near, key=lambda old: -float(made[old] @ made[new]))[:MOST_COMPARED]
            if near:
                cases.append(Case(tuple(near), new, -1, PASSING))
    return cases


class Table:
    """The signs of cases: one row for each older statement."""

    def __init__(self, cases: Sequence[Case], made: dict[str, Array], *, meaning: bool) -> None:
        rows: list[dict[str, float]] = []
        self.case_of: list[int] = []
        self.right = np.full(len(cases), -1)
        for number, case in enumerate(cases):
            given = [odds(old, case.newer) for old in case.older]
            near = [float(made[old] @ made[case.newer]) for old in case.older] if meaning else None
            if case.closes >= 0:
                self.right[number] = len(rows) + case.closes
            rows += signs_together(case.older, case.newer, given, near)
            self.case_of += [number] * len(case.older)
        self.names = list(rows[0])
        self.rows = np.array([[row[name] for name in self.names] for row in rows])
        self.cases = np.array(self.case_of)
        self.counts = np.array([case.counts for case in cases])
        self.judged = np.array([may_tell_of_a_change(case.newer) for case in cases])
        self.blind, self.talk = np.zeros(len(cases), bool), np.zeros(len(cases), bool)


def fitted(table: Table, kept: npt.NDArray[np.bool_], used: npt.NDArray[np.bool_]) -> tuple[float, Array]:
    """Returns the constant and the weights of the signs `used`, fitted to the cases `kept`. A sign that is not used has
    weight 0."""
    chosen = kept[table.cases]
    rows, cases = table.rows[chosen][:, used], table.cases[chosen]
    mean, spread = rows.mean(0), rows.std(0)
    spread[spread < 1e-6] = np.inf
    inputs = (rows - mean) / spread
    place = np.cumsum(chosen) - 1
    right = np.where(table.right >= 0, place[table.right], -1)[kept]
    number = (np.cumsum(kept) - 1)[cases]
    counts, total = table.counts[kept], float(table.counts[kept].sum())

    def loss(weights: Array) -> tuple[float, Array]:
        sums = inputs @ weights[1:] + weights[0]
        top = np.zeros(len(counts))
        np.maximum.at(top, number, sums)
        shares = np.exp(sums - top[number])
        all_shares = np.exp(-top) + np.bincount(number, shares, len(counts))
        reached = np.where(right >= 0, sums[right], 0.0)
        value = -(counts * (reached - top - np.log(all_shares))).sum() / total
        slope = counts[number] * shares / all_shares[number]
        closed = right >= 0
        np.subtract.at(slope, right[closed], counts[closed])
        gradient = np.concatenate([[slope.sum()], inputs.T @ slope]) / total
        gradient[1:] += 2 * PENALTY * weights[1:]
        return value + PENALTY * float((weights[1:] ** 2).sum()), gradient

    best = minimize(loss, np.zeros(inputs.shape[1] + 1), jac=True, method="L-BFGS-B", options={"maxiter": 300}).x
    weights = np.zeros(len(used))
    weights[used] = best[1:] / spread
    return float(best[0] - (mean / spread) @ best[1:]), weights


def highest(table: Table, constant: float, weights: Array) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Returns the highest sum of each case, and whether it is that of the statement which is closed. A newer statement that is
    not judged has none."""
    sums = constant + table.rows @ weights
    best = np.full(len(table.right), -np.inf)
    np.maximum.at(best, table.cases, sums)
    right = np.array([at >= 0 and sums[at] >= best[number] for number, at in enumerate(table.right)])
    best[~table.judged] = -np.inf
    return best, right


def fit(table: Table, kept: npt.NDArray[np.bool_]) -> tuple[float, float, dict[str, float]]:
    """Returns the threshold, the constant and the weights, fitted to the cases `kept`."""
    used = np.ones(len(table.names), bool)
    _, weights = fitted(table, kept, used)
    used = np.abs(weights * table.rows.std(0)) >= SMALLEST
    blind = np.flatnonzero(table.blind & kept)
    best, right = np.zeros(len(table.right)), np.zeros(len(table.right), bool)
    for fold in range(FOLDS):
        held = np.zeros(len(kept), bool)
        held[blind[fold::FOLDS]] = True
        of_fold = highest(table, *fitted(table, kept & ~held, used))
        best[held], right[held] = of_fold[0][held], of_fold[1][held]
    near, changes = blind[table.right[blind] < 0], blind[table.right[blind] >= 0]
    constant, weights = fitted(table, kept, used)
    least = float(np.sort(best[near])[::-1][int(NEAR_MISSES * len(near))])
    if table.talk.any():
        talk = np.sort(highest(table, constant, weights)[0][table.talk])[::-1]
        print(f"near misses {least:.2f}, talk {talk[int(IN_TALK * len(talk))]:.2f} of {len(talk)}")
        least = max(least, float(talk[int(IN_TALK * len(talk))]))
    seen = int((right[changes] & (best[changes] > least)).sum())
    print(
        f"{seen} of {len(changes)} blind changes are closed, by weights that were fitted without each, {used.sum()} signs"
    )
    constant, weights = fitted(table, kept, used)
    return least, constant, {name: float(weight) for name, weight in zip(table.names, weights, strict=True) if weight}


def main() -> None:
    """Fits the weights and writes them to their file, or prints what becomes of the half that is held out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="file of LongMemEval, whose statements in passing close none")
    parser.add_argument("--held", action="store_true", help="fit to half of the blind cases")
    options = parser.parse_args()
    blind = listed("blind")
    cases = [*blind, *listed("beside"), *paired(), *(passing(options.data, 0) if options.data else [])]
    apart = len(cases)
    cases += passing(options.data, 1) if options.data else []
    made = vectors([text for case in cases for text in (*case.older, case.newer)])
    lines = [
        "# Weights of the signs by which `told_changes` judges which of some older statements a newer one closes, with and",
        "# without their nearness in meaning, fitted by `benchmarks/memory/told_change_weights.py`.",
    ]
    for name in ("meaning", "words"):
        table = Table(cases, made, meaning=name == "meaning")
        table.blind[: len(blind)] = table.talk[apart:] = True
        kept = ~table.talk
        kept[1 : len(blind) if options.held else 0 : 2] = False
        least, constant, weights = fit(table, kept)
        if options.held:
            best, right = highest(table, constant, np.array([weights.get(sign, 0.0) for sign in table.names]))
            even, change = ~kept & table.blind, table.right >= 0
            print(f"{name}: of the held half {(right & even & (best > least)).sum()} of {(even & change).sum()} changes, "
                  f"{(even & ~change & (best > least)).sum()} of {(even & ~change).sum()} near misses")  # fmt: skip
        lines.append(
            f"\n[{name}]\n# The least sum.\nleast = {least:.3f}\nconstant = {constant:.3f}\n\n[{name}.weights]"
        )
        lines += [f"{json.dumps(sign)} = {weight:.3f}" for sign, weight in weights.items()]
    WEIGHTS.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
