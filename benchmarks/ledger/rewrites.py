"""What becomes of rewrites whose effect is planted: how often one that changes nothing is taken back, how soon one that harms is,
and what a trial costs.

    python -m benchmarks.ledger.rewrites           everything that rewrites.json lacks; it goes on where it stopped
    python -m benchmarks.ledger.page               puts the tables into docs/worth.md

rule: thousands of runs of one trial each, by the functions of the ledger. memory: fewer runs through `Memory`, with its search,
log, rewards and the trial that ends by itself. Rewards are 0 and 1: with the originals 1 has a probability of 0.75 in easy
episodes and of 0.4 in hard ones, one half each, and nothing that is asked tells them apart; with the rewrite the effect more.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from keepworth import Memory
from keepworth.memory.policy import ledger
from keepworth.memory.policy.rewrites import MARGIN, ORIGINALS

OUT = Path(__file__).parent / "rewrites.json"
EFFECTS = (0.0, -0.05, -0.1, -0.2, -0.4, 0.1, 0.2)
EASE = (0.4, 0.75)
"""Mean reward with the originals, in hard and in easy episodes: every planted effect fits."""
RUNS, LENGTH = 4000, 3000
MEMORY_EFFECTS, MEMORY_RUNS, MEMORY_LENGTH = (0.0, -0.4), (100, 20), 250
TAKEN_BACK, STAYS, OPEN = 0, 1, 2


def rule_cell(effect: float, seed: int, runs: int = RUNS, length: int = LENGTH) -> dict[str, Any]:
    """What `Rewrites._end` decides, in `runs` trials at once. Rewards are 0 and 1, and g is the mean of what came before."""
    draw = np.random.default_rng([41, seed])
    n, total, squares, seen = (np.zeros(runs) for _ in range(4))
    shown, sums = np.zeros(runs), np.zeros(runs)
    beyond = np.zeros(runs)
    state, ended, cost = np.full(runs, OPEN), np.full(runs, length), np.zeros(runs)
    p = 1.0 - ORIGINALS
    most = 0.25 / (p * (1.0 - p))
    for episode in range(length):
        open_ = state == OPEN
        a = np.where(open_, draw.random(runs) < p, state == STAYS).astype(float)
        y = (draw.random(runs) < draw.choice(EASE, runs) + effect * a).astype(float)
        cost -= effect * a
        # As `ledger._Columns`: the mean of earlier rewards, and what this trial's rows were beyond it, among 20 of 0.
        expected = sums / np.maximum(seen, 1.0)
        lowest = np.where(seen > 0, 0.0, -math.inf)
        g = np.clip(expected + beyond / (n + ledger.OFFSET_ROWS), lowest, np.where(seen > 0, 1.0, math.inf))
        psi = (a - p) / (p * (1.0 - p)) * (y - g)
        n, shown = n + open_, shown + open_ * a
        total, squares = total + open_ * psi, squares + open_ * psi * psi
        beyond += open_ * (y - expected)
        sums, seen = sums + y, seen + 1
        deviation = ledger.deviation(n, total, squares, most)
        mean, half = total / n, ledger.half_width(n, deviation)
        enough = open_ & (np.minimum(shown, n - shown) >= ledger.LEAST_EACH)
        state = np.where(enough & (mean + half < 0.0), TAKEN_BACK, state)
        state = np.where(enough & (state == OPEN) & (mean - half > -MARGIN), STAYS, state)
        ended = np.where(open_ & (state != OPEN), episode + 1, ended)
    return described(state, ended, cost, length)


def described(state: Any, ended: Any, cost: Any, length: int) -> dict[str, Any]:
    """Shares with their standard errors; episodes of a trial (10th, 50th and 90th percentile, of those that ended); points of 100
    an episode that the rewrites took."""
    runs, over = len(state), ended[state != OPEN]
    row: dict[str, Any] = {"runs": runs, "episodes": length}
    for name, which in (("taken_back", TAKEN_BACK), ("stays", STAYS), ("on_trial", OPEN)):
        share = float(np.mean(state == which))
        row |= {name: share, f"{name}_error": math.sqrt(share * (1.0 - share) / runs)}
    row["ended"] = [float(each) for each in np.percentile(over, (10, 50, 90))] if len(over) else None
    per_episode = 100.0 * cost / length
    error = float(per_episode.std(ddof=min(1, runs - 1)) / math.sqrt(runs))
    return {**row, "points": float(per_episode.mean()), "points_error": error}


def memory_run(effect: float, seed: int) -> tuple[int, int, float]:
    """(state, when it ended, what it cost) of a trial through the memory."""
    draw = np.random.default_rng([43, seed])
    with Memory(encoder="hashing", seed=seed, reward_range=(0.0, 1.0)) as memory:
        memory.add_many(["reset the router: hold the button", "reset the router: pull the plug"])
        memory.add_many([f"the weather of day {number} was mild" for number in range(4)])
        (rewrite,) = memory.consolidate(lambda _: "reset the router: button, plug", groups=[["m1", "m2"]]).rewrites
        cost = 0.0
        for number in range(MEMORY_LENGTH):
            with memory.episode("help the caller") as episode:
                hits = episode.search("reset the router", top_k=2)
                with_it = rewrite.item in [hit.id for hit in hits]
                cost -= effect * with_it
                episode.reward(float(draw.random() < draw.choice(EASE) + effect * with_it))
            state = memory.rewrites()[0].state
            if state != "on trial":
                rest = MEMORY_LENGTH - number - 1
                return (
                    (STAYS if state == "stays" else TAKEN_BACK),
                    number + 1,
                    cost - effect * rest * (state == "stays"),
                )
        return OPEN, MEMORY_LENGTH, cost


def memory_cell(effect: float, runs: int) -> dict[str, Any]:
    found = [memory_run(effect, seed) for seed in range(runs)]
    state, ended, cost = (np.array(each) for each in zip(*found, strict=True))
    return {**described(state, ended, cost, MEMORY_LENGTH), "seeds": [0, runs - 1]}


def cells() -> dict[str, dict[str, Callable[[], dict[str, Any]]]]:
    return {
        "rule": {
            f"{effect:+.2f}": lambda effect=effect, seed=seed: {**rule_cell(effect, seed), "seed": seed}
            for seed, effect in enumerate(EFFECTS)
        },
        "memory": {
            f"{effect:+.2f}": lambda effect=effect, runs=runs: memory_cell(effect, runs)
            for effect, runs in zip(MEMORY_EFFECTS, MEMORY_RUNS, strict=True)
        },
    }


def settings() -> dict[str, Any]:
    return {
        "originals": ORIGINALS,
        "margin": MARGIN,
        "ease": EASE,
        "alpha": ledger.ALPHA,
        "prior": ledger.PRIOR,
        "versions": {name: version(name) for name in ("keepworth", "numpy")},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    done: dict[str, Any] = json.loads(OUT.read_text()) if OUT.exists() else {}
    done["settings"] = settings()
    for part, listed in cells().items():
        for name, cell in listed.items():
            if name in done.setdefault(part, {}):
                continue
            begun = time.time()
            done[part][name] = cell()
            print(f"{part} {name}: {done[part][name]} ({time.time() - begun:.0f} s)", flush=True)
            OUT.write_text(json.dumps(done, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
