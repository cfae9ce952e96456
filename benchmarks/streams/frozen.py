"""What a frozen memory of ours should do with old evidence: fade it as while learning, less so, or use all of it. On dev rules.

    python -m benchmarks.streams.frozen --out benchmarks/streams/results/frozen_dev.json

A comparison that was stopped continues. One run of a stream serves every way: at its end copies of the memory meet the held-out
tasks, each with its own fading.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from recollect.agents.experience import Experience, LinearAgent
from recollect.cli.stream import method_for
from recollect.environments.rules import ORDERS
from recollect.environments.scene import Stream
from recollect.environments.streams import generated
from recollect.memory.policy.advantage import Advantage
from recollect.memory.policy.hashed_words import HashedWords
from recollect.memory.policy.slots import Query
from recollect.rollouts.stream import _Loop, run_stream

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

STREAMS = ("near-miss", "noisy-reward", "drift", "benign")
WAYS = {"as while learning": None, "half as fast": 0.995, "not at all": 1.0}


class Fading(Advantage):
    """Fades evidence by `settings.keep` whether it learns or not."""

    def _aged(self, query: Query, time: Floats) -> Floats:
        kept: Floats = self.settings.keep ** (query.time - time)
        return kept


def fading(experience: Experience, keep: float | None) -> Experience:
    """A copy that fades evidence by `keep` from now on; None: as it was set."""
    found = experience.copy()
    valuer = found.method.valuer
    assert isinstance(valuer, Advantage)
    other = Fading(valuer.settings if keep is None else replace(valuer.settings, keep=keep))
    vars(other).update({name: value for name, value in vars(valuer).items() if name != "settings"})
    found.method = replace(found.method, valuer=other)
    return found


def held_out(stream: Stream, seed: int, tuned: dict[str, Any]) -> dict[str, float]:
    loop = _Loop(stream, method_for("ours", tuned, seed), LinearAgent(), HashedWords(), seed, "learn", None, False)
    for number, task in enumerate(stream.tasks):
        loop.live(number, task)
    learned, found = loop.experience, {}
    for way, keep in WAYS.items():
        loop.experience = fading(learned, keep)
        for number, task in enumerate(stream.held_out):
            loop.frozen(number, task)
        found[way] = float(loop.run.held_out.mean())
    rival = run_stream(stream, method_for("exprag", tuned, seed), LinearAgent(), HashedWords(), seed=seed)
    return {**found, "exprag": float(rival.held_out.mean())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--tuned", type=Path, default=Path("benchmarks/streams/tuned.json"))
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    tuned = {name: found["settings"] for name, found in json.loads(options.tuned.read_text()).items()}
    kept: dict[str, Any] = {"split": "dev", "seeds": options.seeds, "held_out": {}}
    if options.out.exists():
        kept = json.loads(options.out.read_text())
        options.seeds = kept["seeds"]
    for name in STREAMS:
        for order in ORDERS:
            if order in kept["held_out"].get(name, {}):
                continue
            runs = [
                held_out(generated(name, split="dev", seed=seed, order=order), seed, tuned)
                for seed in range(options.seeds)
            ]
            means = {way: round(float(np.mean([run[way] for run in runs])), 4) for way in runs[0]}
            kept["held_out"].setdefault(name, {})[order] = means
            print(name, order, means, flush=True)
            options.out.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
