"""How much a reward would tell a `Keeper` of its weights, beside how much the evidence of a question would.

    python -m benchmarks.writing.telling --data FOLDER

The people are those of `benchmarks.writing.keeping`; the weights are those that a keeper begins with there, and are taken to be
right. A reward is 1 with the chance q that what is in memory holds what is asked for. What 400 rewards say is then the Fisher
information 400 * (dq/dw)(dq/dw)' / (q (1 - q)), averaged over questions; what the evidence of 400 questions says is 400 times the
covariance of the marks under the chances to be asked for. A reward that names the fact it is owed to says, where it is 1, which
of those in memory it was. Printed are their eigenvalues, from the largest: a direction of the
weights in which there is less than `PRECISION`, what a keeper takes for granted beforehand, hardly moves. temperature: of the
noise on what is kept. Beside them stands what is kept by the best rule of one line, by a keeper as it begins, and by a
regression on all the evidence of these very people.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import arguments, save
from benchmarks.writing.keeping import (
    Floats,
    Person,
    begun_elsewhere,
    chances,
    keep_evidence,
    regression,
    rules,
    spread,
    staying,
    worlds,
)
from keepworth.memory.importance import MARKS
from keepworth.training.run_folder import versions

OUT = Path(__file__).parent / "telling.json"
TEMPERATURES, DRAWS, SEED = (0.0, 0.3, 1.0), 20, 3
REWARDS, PRECISION = 400, 8.0
"""Number of rewards, and the prior precision of the weights that the method which learned from rewards had."""


def information(people: Sequence[Person], weights: Floats, temperature: float) -> tuple[Floats, Floats, Floats]:
    """What one reward says of the weights, what it says where it names the fact that it is owed to, and what the evidence of one
    question says; [marks, marks] each."""
    rng = np.random.default_rng(SEED)
    by_reward, by_name, by_evidence = np.zeros((3, len(MARKS), len(MARKS)))
    for person in people:
        score = person.marks @ weights
        odds = chances(score)
        by_evidence += len(person.asked) * spread(odds, person.marks)
        draws = DRAWS if temperature else 1
        for _ in range(draws):
            keys, stay = score + temperature * rng.gumbel(size=len(score)), np.zeros(len(score), dtype=bool)
            stay[staying(keys, person.most)] = True
            q = float(odds[stay].sum())
            apart = odds[stay] @ person.marks[stay] / q - odds[~stay] @ person.marks[~stay] / (1.0 - q)
            by_reward += len(person.asked) / draws * q * (1.0 - q) * np.outer(apart, apart)
            by_name += len(person.asked) / draws * q * spread(odds[stay] / q, person.marks[stay])
    asked = sum(len(person.asked) for person in people)
    return by_reward / asked, (by_reward + by_name) / asked, by_evidence / asked


def eigenvalues(of_one: Floats) -> list[float]:
    return [round(float(value), 1) + 0.0 for value in np.linalg.eigvalsh(REWARDS * of_one)[::-1]]


def measured(people: Sequence[Person], begin: Floats) -> dict[str, Any]:
    ceiling = regression(people, begin, 1.0)
    ways = {
        **rules(),
        "the keeper as it begins": lambda person: person.marks @ begin,
        "regression on all the evidence": lambda person: person.marks @ ceiling,
    }
    shares = {}
    for name, way in ways.items():
        held, asked = np.sum([keep_evidence(person, way(person)) for person in people], axis=0)
        shares[name] = round(float(held / asked), 4)
    bits = {t: information(people, begin, t) for t in TEMPERATURES}
    return {
        "people": len(people),
        "questions": sum(len(person.asked) for person in people),
        "of rewards, by temperature": {str(t): eigenvalues(by_reward) for t, (by_reward, *_) in bits.items()},
        "of rewards that name the fact": eigenvalues(bits[0.0][1]),
        "of the evidence": eigenvalues(bits[0.0][2]),
        "best rule": max(rules(), key=lambda name: shares[name]),
        "kept": shares,
    }


def main() -> None:
    parser = arguments(__doc__, json=False)
    parser.add_argument("--data", type=Path, help="a folder with LoCoMo and BFCL's memory tasks")
    people = worlds(parser.parse_args().data)
    body: dict[str, Any] = {
        "command": "python -m benchmarks.writing.telling --data FOLDER",
        "rewards": REWARDS,
        "taken for granted": PRECISION,
        "seed": SEED,
        "versions": versions(),
        "worlds": {},
    }
    for name, begin in begun_elsewhere(people).items():
        body["worlds"][name] = measured(people[name], np.array(begin))
        print(name, json.dumps(body["worlds"][name]), flush=True)
    save(OUT, body)


if __name__ == "__main__":
    main()
