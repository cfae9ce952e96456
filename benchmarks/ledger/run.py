"""Whether the ledger is right: planted effects in four worlds, vectorised and through the real memory.

    python -m benchmarks.ledger.run            everything that ledger.json lacks; it goes on where it stopped
    python -m benchmarks.ledger.run core       one part: core, cost or memory
    python -m benchmarks.pages ledger          puts the tables into docs/worth.md

core: thousands of runs of one item each, at 10 % withholding without a budget, by the functions of the library. cost: the
policy as it is, with its budget, in streams of several items. memory: fewer runs through `Memory`, with its search, log and
rewards.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ledger.worlds import COMES_UP, CONFOUNDED, EASE, EFFECTS, HIGH, LOW, WORLDS, Outcome, World, simulate
from benchmarks.record import arguments
from keepworth import Memory
from keepworth.memory.choose import ledger
from keepworth.memory.choose.hashed_words import HashedWords
from keepworth.memory.choose.pool import Pool
from keepworth.memory.choose.slots import Candidates, Policy, Query, Slates, Values
from keepworth.methods.policies.default import default
from keepworth.methods.policies.default.constants import BUDGET
from keepworth.methods.policies.default.record import RewardRecord

OUT = Path(__file__).parent / "ledger.json"
RUNS, LENGTH = 4000, 1000
COST_RUNS = 400
RATES = ((0.05, BUDGET), (0.1, 0.02))
MEMORY_RUNS, MEMORY_LENGTH = 20, 200
LOOKS = (200, 500, 1000)


def shares(name: str, wins: np.ndarray[Any, Any]) -> dict[str, float]:
    """A share with its standard error."""
    n = max(1, len(wins))
    share = float(np.mean(wins)) if len(wins) else math.nan
    return {name: share, f"{name}_error": math.sqrt(max(share * (1 - share), 0.0) / n)}


def kinds() -> list[tuple[float, dict[str, bool]]]:
    plain: list[tuple[float, dict[str, bool]]] = [(size, {}) for size in EFFECTS]
    return plain + [(size, {name: True}) for name in ("confounded", "by_odds") for size in CONFOUNDED]


def core_cell(world: World, size: float, more: dict[str, bool], seed: int) -> dict[str, Any]:
    length = LENGTH * 2 if more.get("confounded") else LENGTH  # it comes up in half of the episodes
    outcome = simulate(world, (size,), runs=RUNS, length=length, seed=seed, looks=LOOKS, **more)
    row = {"runs": RUNS, "episodes": length, **shares("any_time", ~outcome.missed[:, 0])}
    for look, (effect_, mean, half, truth) in outcome.at.items():
        there = ~np.isnan(effect_[:, 0])
        if there.mean() < 0.5:
            continue
        inside = np.abs(mean - truth)[there] < half[there]
        row |= shares(f"fixed_{look}", inside[:, 0] if inside.ndim > 1 else inside)
        if size:
            right = np.sign(effect_[there]) == np.sign(size)
            row |= shares(f"sign_{look}", right)
    row["effect_mean"], row["effect_sd"] = (
        float(f(outcome.at[200][0][~np.isnan(outcome.at[200][0])])) for f in (np.mean, np.std)
    )
    row["half_width_200"] = float(np.nanmean(outcome.at[200][2]))
    row["truth"] = float(np.nanmean(outcome.at[200][3]))
    if size:
        row |= shares("counter_right", np.sign(outcome.counter[:, 0]) == np.sign(size))
        row |= shares("kernel_right", np.sign(outcome.kernel[:, 0]) == np.sign(size))
    clear = np.where(outcome.cleared < 0, np.inf, outcome.cleared)
    middle = float(np.median(clear))
    row["clear_after"] = middle if math.isfinite(middle) else None
    return row


COSTS: dict[str, tuple[float, ...]] = {
    "one item that helps by 0.2": (0.2,),
    "one item that helps by 0.1": (0.1,),
    "two items that help by 0.2": (0.2, 0.2),
    "five items, +0.2 to -0.2": EFFECTS,
    "one item that harms by 0.2": (-0.2,),
}


def cost_cell(items: tuple[float, ...], withhold: float, budget: float, length: int) -> dict[str, Any]:
    outcome: Outcome = simulate(
        WORLDS[1], items, runs=COST_RUNS, length=length, seed=77, withhold=withhold, budget=budget, fade=True
    )
    points = 100.0 * outcome.cost[length]
    cleared = (outcome.cleared > 0).mean()
    return {
        "runs": COST_RUNS,
        "points": float(points.mean()),
        "points_error": float(points.std() / math.sqrt(COST_RUNS)),
        "cleared": float(cleared),
        **shares("any_time", ~outcome.missed.ravel()),
    }


WORDS = [f"word{number}" for number in range(4000)]
TOPIC = ["invoice refund customer payment shipping basket", "kernel driver memory thread socket buffer"]


def undisturbed() -> Policy:
    """Every item under test at 10 % until its interval is clear, and nothing moved by what was learned near a question."""
    policy = default(withhold=0.1, budget=1e9, least=1.0)

    def still(query: Query, candidates: Candidates, values: Values, pool: Pool) -> Slates:
        return policy.selector(query, candidates, replace(values, means=np.zeros_like(values.means), better=None), pool)

    return replace(policy, selector=still)


def memory_run(world: World, size: float, confounded: bool, seed: int) -> dict[str, Any]:
    """One run through the memory. The item comes up where the question holds its cue, one word of nine and more."""
    rng = np.random.default_rng([13, seed])
    truth, counted, missed, first = 0.0, 0, False, None
    with Memory(encoder=HashedWords(256), policy=undisturbed, seed=seed, reward_range=(0.0, 1.0)) as memory:
        item, _ = memory.add_many(["cue zebra what helps or harms", "other walrus says nothing"])
        done = tasks = 0
        while done < MEMORY_LENGTH and tasks < 3 * MEMORY_LENGTH:
            topic, matches, easy = int(rng.random() < 0.5), rng.random() < 0.5, rng.random() < 0.5
            up = True if not confounded else rng.random() < COMES_UP["easy" if easy else "hard"]
            base = 0.5 + world.topic * (2 * topic - 1)
            base += world.drift * math.sin(2 * math.pi * (tasks / 500 + seed / 7))
            base += EASE * (2 * easy - 1) if confounded else 0.0
            share = 2 / (1 + world.near_miss) if matches else 2 * world.near_miss / (1 + world.near_miss)
            arm_size = size * share
            base -= arm_size * 0.5 if up else 0.0
            words = [WORDS[index] for index in rng.integers(len(WORDS), size=8 if world.steps == 1 else 6)]
            words += TOPIC[topic].split() if world.topic else []
            asked = " ".join(["zebra" if up else "walrus", *words])
            with memory.episode("help") as episode:
                shown = False
                for step in range(world.steps):
                    query = asked if world.steps == 1 else f"{asked} step {step}"
                    hits = episode.search(query, top_k=1, mode="lexical")
                    shown = shown or any(hit.id == item.id for hit in hits)
                p1, p0 = (min(max(base + extra, LOW), HIGH) for extra in (arm_size, 0.0))
                y = rng.binomial(world.steps, p1 if shown else p0) / world.steps
                episode.reward(y)
            tasks += 1
            assert memory.learning is not None
            valuer = memory.learning.experience.policy.valuer
            assert isinstance(valuer, RewardRecord)
            (account,) = valuer.accounts([item.id])
            if account.rows == done:
                continue
            done = account.rows
            truth += p1 - p0
            counted += 1
            missed = missed or (account.low > truth / done or account.high < truth / done)
            if done == 200 or (account.over and first is None):
                first = first or account
        last = memory.ledger(items=[item.id]).accounts[0]
    judged = first or last
    return {
        "effect": judged.effect,
        "rows": judged.rows,
        "missed": missed,
        "truth": truth / max(counted, 1),
        "shown": last.shown / max(last.rows, 1),
    }


def memory_cell(world: World, size: float, confounded: bool, seed: int) -> dict[str, Any]:
    runs = [memory_run(world, size, confounded, 1000 * seed + number) for number in range(MEMORY_RUNS)]
    effects = np.array([run["effect"] for run in runs])
    row = {
        "runs": MEMORY_RUNS,
        "judged_after": float(np.mean([run["rows"] for run in runs])),
        "effect_mean": float(effects.mean()),
        "effect_sd": float(effects.std()),
        "shown": float(np.mean([run["shown"] for run in runs])),
        **shares("any_time", np.array([not run["missed"] for run in runs])),
    }
    if size:
        row |= shares("sign_200", np.sign(effects) == np.sign(size))
    return row


PARTS = ("core", "cost", "memory")


def cells() -> dict[str, dict[str, Callable[[], dict[str, Any]]]]:
    by_part: dict[str, dict[str, Callable[[], dict[str, Any]]]] = {part: {} for part in PARTS}
    for number, world in enumerate(WORLDS):
        for index, (size, more) in enumerate(kinds()):
            name = f"{world.name} | {size:+.1f} | {next(iter(more), '')}"
            seed = 100 * number + index
            by_part["core"][name] = lambda w=world, s=size, m=more, seed=seed: core_cell(w, s, m, seed)
    for name, items in COSTS.items():
        for withhold, budget in RATES:
            for length in (600, 2000):
                key = f"{name} | {withhold:g} | {budget:g} | {length}"
                by_part["cost"][key] = lambda i=items, w=withhold, b=budget, n=length: cost_cell(i, w, b, n)
    for index, (size, confounded) in enumerate(((-0.2, True), (0.2, False), (-0.2, False), (0.0, False))):
        for number, world in enumerate(WORLDS):
            name = f"{world.name} | {size:+.1f} | {'confounded' if confounded else ''}"
            seed = 10 * number + index
            by_part["memory"][name] = lambda w=world, s=size, c=confounded, seed=seed: memory_cell(w, s, c, seed)
    return by_part


def settings() -> dict[str, Any]:
    return {
        "core": {"runs": RUNS, "episodes": LENGTH, "withhold": 0.1},
        "cost": {"runs": COST_RUNS, "rates": [list(rate) for rate in RATES]},
        "memory": {"withhold": 0.1},
        "ledger": {
            name: getattr(ledger, name) for name in ("ALPHA", "PRIOR", "LEAST_EACH", "NARROWEST_AT", "NEGLIGIBLE")
        },
        "versions": {name: version(name) for name in ("numpy", "keepworth")},
    }


def main() -> None:
    parser = arguments(__doc__, json=False)
    parser.add_argument("parts", nargs="*", choices=PARTS, help="all of them if none is named")
    parts = parser.parse_args().parts or PARTS
    done = json.loads(OUT.read_text()) if OUT.exists() else {}
    if done.get("settings") != settings():
        done = {"settings": settings()}
    for part in parts:
        for name, run in cells()[part].items():
            if name in done.setdefault(part, {}):
                continue
            begun = time.process_time()
            row = run()
            done[part][name] = {**row, "seconds": round(time.process_time() - begun, 1)}
            OUT.write_text(json.dumps(done, indent=1, sort_keys=True) + "\n")
            print(
                part, name, {key: round(value, 3) for key, value in row.items() if isinstance(value, float)}, flush=True
            )


if __name__ == "__main__":
    main()
