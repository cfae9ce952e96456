"""The same recipe and seed in one process, in three, on a Ray of two raylets, and with two learners.

synchronous, serial: hashes of the weights, of what was measured and of all episodes, compared with the run of one process.
overlap: what is drawn depends on when, so the reward over training is compared, paired by seed.

    python -m benchmarks.cluster.placed [--seeds 3]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from benchmarks.cluster.setting import ROLE, SIZE, described, mean_reward, said, trained, two_raylets, write
from keepworth.evaluation.statistics import paired_gain
from keepworth.learning.run_folder import RunFolder
from keepworth.recipes.training import kept_weights
from tests.end_to_end.tiny_folder import write_tiny_checkpoint

FILE = "placed.json"
ALONE, THREE, RAY, LEARNERS = "one process", "three processes", "Ray, two raylets", "two learners"
STEPS = {"synchronous": 6, "serial": 6, "overlap": 12}


def settings_of(arm: str, address: str) -> dict[str, Any]:
    return {
        ALONE: {},
        THREE: {"workers": 2},
        RAY: {"workers": 2, "cluster": "ray", "ray_address": address},
        LEARNERS: {"learners": 2},
    }[arm]


def apart(one: RunFolder, other: RunFolder) -> float:
    """The largest difference of a weight, in the largest weight."""
    first, second = (load_file(kept_weights(run, ROLE) / "adapter_model.safetensors") for run in (one, other))
    largest = max(float(each.abs().max()) for each in first.values())
    return max(float((first[name] - second[name]).abs().max()) for name in first) / largest


def measured(seed: int, mode: str, checkpoint: Path, folder: Path, address: str) -> dict[str, Any]:
    runs, found = {}, {}
    for arm in (ALONE, THREE, RAY, *([LEARNERS] if mode == "synchronous" else [])):
        path = folder / f"{mode}-{seed}-{arm.replace(' ', '-')}"
        changes = {**settings_of(arm, address), "sampling": mode, "steps": STEPS[mode], "seed": seed}
        runs[arm], notes = trained(checkpoint, path, **changes)
        lags = [row.get("pipeline/over_bound", 0) for row in runs[arm].metrics()]
        found[arm] = {
            **said(runs[arm]),
            "reward": mean_reward(runs[arm]),
            "over_bound": sum(lags),
            "notes": [each for each in notes if "worker" in each or "learner" in each],
            "weights_apart": apart(runs[ALONE], runs[arm]),
        }
        print(mode, seed, arm, found[arm], flush=True)
    return found


def compared(runs: list[dict[str, Any]], mode: str) -> dict[str, Any]:
    """runs: by seed, what each arm left."""
    arms = {}
    for arm in runs[0]:
        own = [each[arm] for each in runs]
        alone = [each[ALONE] for each in runs]
        rewards = [each["reward"] for each in own]
        arms[arm] = {
            "n": len(own),
            "equal": {
                part: sum(a[part] == b[part] for a, b in zip(own, alone, strict=True))
                for part in ("weights", "metrics", "episodes")
            },
            "weights_apart": max(each["weights_apart"] for each in own),
            "reward": sum(rewards) / len(rewards),
        }
        if mode == "overlap" and arm != ALONE and len(own) > 1:
            gain = paired_gain(rewards, [each["reward"] for each in alone])
            arms[arm]["minus_one_process"] = {"mean": gain.mean, "low": gain.low, "high": gain.high, "n": len(own)}
    return arms


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--seeds", type=int, default=3)
    options = asked.parse_args()
    torch.set_num_threads(1)
    found: dict[str, Any] = {"machine": described(), "model": "tiny, random weights", "steps": STEPS, **SIZE}
    found["interval"] = "95 %, paired by seed"
    runs: dict[str, list[dict[str, Any]]] = {mode: [] for mode in STEPS}
    with tempfile.TemporaryDirectory() as folder, two_raylets() as nodes:
        checkpoint = write_tiny_checkpoint(Path(folder) / "model")
        for seed in range(options.seeds):
            for mode, own in runs.items():
                own.append(measured(seed, mode, checkpoint, Path(folder), nodes.address))
            found["seeds"] = list(range(seed + 1))
            found["modes"] = {mode: compared(own, mode) for mode, own in runs.items()}
            found["runs"] = runs
            write(FILE, found)


if __name__ == "__main__":
    main()
