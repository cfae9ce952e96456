"""What it costs to try a policy whose rewards say nothing, and how much of a better one's gain a trial keeps.

    python -m benchmarks.memory.promotion --out benchmarks/memory/promotion.json

Twenty questions come back in random order, among 60 notes. The note that the search puts first is right for 14 of them, the
second one for six. The policy in force is plain search, and the file holds 100 rewards under it when
`Memory(policy=..., replaces=None)` begins to try another one.

    useless   the rewards are those of plain search, permuted, so that they have nothing to do with what is shown; `memrl` learns
              from them all the same. The loss is in points of success to plain search on the same tasks
    better    the rewards are true, and `default` learns to show the right note. Beside it is the same policy without a trial
    worse     the rewards are true, and the policy on trial shows the second note always
    rule      useless rewards for the rule of the share alone, without a memory: in a tenth of the tasks the policy on trial shows
              something else, which is wrong, where the old one is right always; rewards of 1 come in .7 of all tasks
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.memory.engine import machine
from benchmarks.record import arguments, save
from keepworth import Memory
from keepworth.base import statistics
from keepworth.kit import Candidates, Mixture, Policy, Pool, Query, Values, lines, whole
from keepworth.memory.choose.promotion import (
    CHANCE,
    LOSS,
    MOST,
    ON_TRIAL,
    PROVEN,
    REFUSED,
    START,
    Before,
    Promotion,
    TriedUnit,
    weigh_evidence,
)
from keepworth.memory.choose.ready_slots import Unvalued

if TYPE_CHECKING:
    from keepworth.memory.settings import PolicyLike

UNSEEN = 1000
"""The first seed. Runs with seeds below 200 were looked at while the constants of the rule were chosen."""
WORK = ("reset", "clean", "order", "return", "charge", "repair", "lend", "move", "label", "store")
THINGS = ("router", "printer", "ladder", "projector", "camera", "bicycle", "tent", "kettle", "speaker", "scanner")
PAIRS = [(WORK[index % 10], THINGS[(index + index // 10) % 10]) for index in range(20)]
QUESTIONS = [f"how do I {work} the {thing}" for work, thing in PAIRS]
FIRST = [f"To {work} the {thing} ask on floor {index}." for index, (work, thing) in enumerate(PAIRS)]
SECOND = [
    f"Whoever has to {work} it, the {thing}, should fill in form {index}." for index, (work, thing) in enumerate(PAIRS)
]
OTHERS = [f"Room {index} has a {thing}." for index, (_, thing) in enumerate(PAIRS)]
RIGHT_SECOND = frozenset(range(0, 20, 3)) - {18}
BEFORE = 100


def second_first(query: Query, candidates: Candidates, values: Values, pool: Pool) -> Mixture:
    """Shows the second candidate first, always."""
    scores = -np.arange(len(candidates), dtype=np.float64)
    scores[1:2] = 1.0
    return Mixture("greedy", scores, np.zeros(len(scores)), query.most)


def contrary() -> Policy:
    return Policy("contrary", whole, None, Unvalued(), second_first, lines)


class Stream:
    """The tasks of a seed, of which plain search is right in some."""

    def __init__(self, seed: int, length: int) -> None:
        self.generator = np.random.default_rng([7, seed])
        self.asked = self.generator.integers(len(QUESTIONS), size=BEFORE + length).tolist()
        self.plain = [index not in RIGHT_SECOND for index in self.asked]
        self.permuted = self.generator.permutation(self.plain).tolist()

    def run(self, seed: int, useless: bool, **settings: Any) -> tuple[list[bool], list[Promotion]]:
        """Whether what was shown first was right, task by task from the beginning of the trial; and how the trial ended."""
        right: list[bool] = []
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "agent.mem")
            with Memory(file, encoder="hashing", policy=None, writer=None) as memory:
                memory.add_many([*FIRST, *SECOND, *OTHERS])
                self._play(memory, range(BEFORE), useless)
            with Memory(file, encoder="hashing", writer=None, seed=seed, **settings) as memory:
                right = self._play(memory, range(BEFORE, len(self.asked)), useless)
                return right, memory.promotion()

    def _play(self, memory: Memory, numbers: Sequence[int], useless: bool) -> list[bool]:
        right: list[bool] = []
        for number in numbers:
            index = self.asked[number]
            hits = memory.search(QUESTIONS[index], top_k=1)
            good = (SECOND if index in RIGHT_SECOND else FIRST)[index]
            right.append(bool(hits) and hits[0].text == good)
            memory.reward(hits.decision, float(self.permuted[number] if useless else right[-1]))
        return right


def points(right: Sequence[bool], other: Sequence[bool]) -> float:
    return 100.0 * (sum(right) - sum(other)) / len(right)


def interval(values: Sequence[float]) -> dict[str, float]:
    ends = statistics.interval(values)
    return {"mean": round(float(np.mean(values)), 3), "low": round(ends.low, 3), "high": round(ends.high, 3)}


def compared(tried: PolicyLike, seeds: int, length: int, useless: bool, alone: int) -> Iterator[dict[str, Any]]:
    """A policy tried in place of plain search: what is known after each run.

    Args:
        tried: The policy.
        seeds: How many runs.
        length: How many tasks each has.
        useless: Whether rewards are permuted.
        alone: In how many of the runs the policy is also put in force without a trial.
    """
    rows = []
    for seed in range(UNSEEN, UNSEEN + seeds):
        stream = Stream(seed, length)
        plain = stream.plain[BEFORE:]
        right, (promotion,) = stream.run(seed, useless, policy=tried, replaces=None)
        row = {
            "points": points(right, plain),
            "late": points(right[-length // 4 :], plain[-length // 4 :]),
            "state": promotion.state,
            "rewards": promotion.rewards,
            "chosen": promotion.chosen / promotion.rewards,
        }
        if seed < UNSEEN + alone:
            right, _ = stream.run(seed, useless, policy=tried)
            row |= {"alone": points(right, plain), "alone_late": points(right[-length // 4 :], plain[-length // 4 :])}
        rows.append(row)
        print(seed, row, file=sys.stderr, flush=True)
        if len(rows) > 1:
            yield summary(rows, length)


def summary(rows: Sequence[dict[str, Any]], length: int) -> dict[str, Any]:
    record: dict[str, Any] = {
        "runs": len(rows),
        "tasks": length,
        "points": interval([row["points"] for row in rows]),
        "lowest run": round(min(row["points"] for row in rows), 3),
        "runs more than 1 point below": sum(row["points"] < -1.0 for row in rows),
        "last quarter": interval([row["late"] for row in rows]),
        "proven": sum(row["state"] == PROVEN for row in rows),
        "refused": sum(row["state"] == REFUSED for row in rows),
        "share while on trial": interval([row["chosen"] for row in rows]),
        "rewards until decided, median": float(np.median([row["rewards"] for row in rows])),
    }
    both = [row for row in rows if "alone" in row]
    if len(both) > 1:
        record["without a trial"] = {
            "runs": len(both),
            "points": interval([row["alone"] for row in both]),
            "lowest run": round(min(row["alone"] for row in both), 3),
            "last quarter": interval([row["alone_late"] for row in both]),
            "with it, same runs": interval([row["points"] for row in both]),
            "with it, same runs, last quarter": interval([row["late"] for row in both]),
        }
    return record


def by_rule(seed: int, tasks: int) -> tuple[float, Promotion]:
    """The loss in points of a policy on trial that the rule alone holds back, and how the trial ended."""
    generator, units = np.random.default_rng([8, seed]), list[TriedUnit]()
    before, lost = Before(BEFORE, 0.7), 0.0
    promotion = weigh_evidence("new", "old", units, before, loss=LOSS, span=1.0)
    for _ in range(tasks):
        apart = float(generator.random() < 0.1)
        share = promotion.share_where(apart, 0.7)
        drawn = bool(generator.random() < share)
        lost += bool(apart) and drawn
        reward = float(generator.random() < 0.7)
        units.append(TriedUnit(share, float(drawn) if apart else share, apart, 0.7, drawn, reward))
        promotion = weigh_evidence("new", "old", units, before, loss=LOSS, span=1.0)
        if promotion.state != ON_TRIAL:
            lost += 0.1 * (tasks - len(units)) * (promotion.state == PROVEN)
            break
    return -100.0 * lost / tasks, promotion


def rule_table(runs: int, tasks: int) -> dict[str, Any]:
    losses, ends = zip(*(by_rule(seed, tasks) for seed in range(UNSEEN, UNSEEN + runs)), strict=True)
    return {
        "runs": runs,
        "tasks": tasks,
        "points": interval(losses),
        "lowest run": round(min(losses), 3),
        "runs more than 1 point below": sum(loss < -1.0 for loss in losses),
        "proven": sum(end.state == PROVEN for end in ends),
        "refused": sum(end.state == REFUSED for end in ends),
    }


def main() -> None:
    parser = arguments(__doc__, json=False)
    parser.add_argument("--runs", type=int, default=200, help="runs of useless rewards")
    parser.add_argument("--seeds", type=int, default=10, help="runs of true rewards")
    parser.add_argument("--tasks", type=int, default=600, help="tasks of a run of useless rewards")
    parser.add_argument("--only", choices=("useless", "better", "worse", "rule"))
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    results: dict[str, Any] = json.loads(given.out.read_text()) if given.out.exists() else {}
    results |= {
        "command": f"python -m benchmarks.memory.promotion --runs {given.runs} --seeds {given.seeds} --tasks {given.tasks}",
        "machine": machine(),
        "rule": {"start": START, "loss": LOSS, "most": MOST, "chance": CHANCE},
    }
    arms = {
        "better": ("default", given.seeds, 1500, False, given.seeds),
        "worse": (contrary, given.seeds, 600, False, given.seeds),
        "useless": ("memrl", given.runs, given.tasks, True, min(10, given.runs)),
    }
    for name, arm in arms.items():
        if given.only in (None, name):
            for results[name] in compared(*arm):
                save(given.out, results)
    if given.only in (None, "rule"):
        results["rule alone"] = rule_table(given.runs, given.tasks)
        save(given.out, results)


if __name__ == "__main__":
    main()
