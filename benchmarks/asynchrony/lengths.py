"""Answers of long-tailed length: what parking the tail is worth, beside the best that any schedule could do.

Lengths are log-normal with sigma 1 (median 16 tokens, at most 256), fixed by ticket and member: every arm draws answers of
the same lengths for the same episodes. Arms with fewer slots than the group has members sample it in micro-groups.
The bound is the same work with every slot always full: what the batch's tokens cost at a full batch's speed, plus reading
the prompts and learning; for the arm that overlaps, the larger of sampling and learning.
Prints a table and writes lengths.json.

python -m benchmarks.asynchrony.lengths [--model smollm2-135m-instruct]
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch

from benchmarks.asynchrony.setting import Trace, World, learner_of, lognormal, run, small, tiny, write
from benchmarks.speed.setting import machine
from recollect.episodes import SamplingParams
from recollect.learning.admission import Staleness
from recollect.learning.asynchrony import Asynchrony, Mode
from recollect.learning.objective.presets import preset, varied
from recollect.models.continuous import ContinuousBatch, Draft
from recollect.models.inprocess import InProcessModel

OBJECTIVE = varied(preset("areal"), center="group", scale="group")
GROUPS, MEMBERS = 8, 8
MEDIAN, LONGEST = 16, 256
FIELDS = ("mode", "max_staleness", "pipeline_depth", "slots", "order", "caches")
ARMS: dict[str, tuple[Mode, int, float, int, str, str]] = {
    "synchronous": ("turns", 0, 1.0, 64, "arrival", "recompute"),
    "synchronous, micro-groups of 4": ("turns", 0, 1.0, 4, "arrival", "recompute"),
    "synchronous, 16 slots": ("turns", 0, 1.0, 16, "arrival", "recompute"),
    "synchronous, 16 slots, longest first": ("turns", 0, 1.0, 16, "longest_first", "recompute"),
    "parked (APRIL), 1.5 batches": ("turns", 4, 1.5, 64, "arrival", "recompute"),
    "parked, 2 batches": ("turns", 4, 2.0, 64, "arrival", "recompute"),
    "parked, 2 batches, caches kept": ("turns", 4, 2.0, 64, "arrival", "keep"),
    "parked, 3 batches, caches kept": ("turns", 4, 3.0, 64, "arrival", "keep"),
    "parked, 5 batches": ("turns", 4, 5.0, 64, "arrival", "recompute"),
    "parked, 5 batches, caches kept": ("turns", 4, 5.0, 64, "arrival", "keep"),
    "overlap, 2 batches, caches kept": ("overlap", 4, 2.0, 64, "arrival", "keep"),
}


def asynchrony(arm: str) -> Asynchrony:
    mode, staleness, depth, slots, order, caches = ARMS[arm]
    bound = Staleness(GROUPS, staleness, depth)
    return Asynchrony(bound, MEMBERS, mode=mode, slots=slots, order=order, caches=caches)  # type: ignore[arg-type]


def token_seconds(model: InProcessModel, slots: int, prompt: tuple[int, ...]) -> dict[str, float]:
    """Seconds of one decoding step with all slots live, in the middle of a usual answer, and of reading one prompt."""
    batch = ContinuousBatch(model, slots)
    for row in range(slots):
        batch.add(Draft(prompt, SamplingParams(60), (row,)))
    begun = time.perf_counter()
    batch.step()
    first = time.perf_counter() - begun
    for _ in range(15):
        batch.step()
    begun = time.perf_counter()
    for _ in range(20):
        batch.step()
    step = (time.perf_counter() - begun) / 20
    return {"step": step, "read": max(0.0, first - step)}


def measure(model_name: str, rounds: int, steps: int, skip: int, names: list[str]) -> dict[str, Any]:
    def fresh() -> Any:
        model = tiny(hidden=128) if model_name == "tiny" else small()
        return learner_of(model, OBJECTIVE, 1e-4, lora=model_name != "tiny")

    learner = fresh()
    encode = learner.model.encode
    padding = "a few words to read first. " * 3
    run(learner, World(lambda ticket, member: 4, encode=encode, padding=padding), asynchrony("synchronous"), 2)  # warm
    found: dict[str, list[dict[str, float]]] = {arm: [] for arm in names}
    costs: dict[str, dict[str, float]] = {}
    for slots in sorted({ARMS[arm][3] for arm in names}):
        costs[str(slots)] = token_seconds(learner.model, slots, encode(f"{padding}letters 0:"))
    for number in range(rounds):
        lengths: Trace = lognormal(MEDIAN, 1.0, number, 1, LONGEST)
        for arm in names if number % 2 == 0 else names[::-1]:
            learner = fresh()
            world = World(lengths, encode=encode, padding=padding)
            found[arm].append(run(learner, world, asynchrony(arm), steps).steady(skip))
    arms: dict[str, Any] = {}
    for arm in names:
        mode, _, _, slots, _, _ = ARMS[arm]
        cost = costs[str(slots)]
        bounds = []
        for each in found[arm]:
            sampling = each["drawn_tokens"] / slots * cost["step"] + cost["read"]
            learning = each["seconds/learn"]
            bounds.append(max(sampling, learning) if mode == "overlap" else sampling + learning)
        pairs = list(zip(found["synchronous"], found[arm], strict=True))
        # Per drawn token: which lengths fall into the measured steps differs a little between the schedules.
        ratios = [b["drawn_tokens_per_second"] / a["drawn_tokens_per_second"] for a, b in pairs]
        arms[arm] = {
            "settings": dict(zip(FIELDS, ARMS[arm], strict=True)),
            "per_step": found[arm],
            "speedup": {"median": statistics.median(ratios), "lowest": min(ratios), "highest": max(ratios)},
            "bound_seconds": bounds,
            "share_of_bound": statistics.median(
                [b / each["seconds"] for b, each in zip(bounds, found[arm], strict=True)]
            ),
            "bound_speedup": statistics.median(
                [
                    a["seconds"] / a["drawn_tokens"] * b["drawn_tokens"] / bound
                    for (a, b), bound in zip(pairs, bounds, strict=True)
                ]
            ),
        }
    return {
        "model": model_name,
        "rounds": rounds,
        "steps": steps,
        "steps_measured": steps - skip,
        "episodes_per_step": GROUPS * MEMBERS,
        "lengths": {"median": MEDIAN, "sigma": 1.0, "longest": LONGEST},
        "decoding_step_seconds": costs,
        "arms": arms,
    }


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--model", default="tiny", choices=("tiny", "smollm2-135m-instruct"))
    asked.add_argument("--rounds", type=int, default=3)
    asked.add_argument("--steps", type=int, default=20)
    asked.add_argument("--skip", type=int, default=5, help="steps before the measured ones, to fill the pipeline")
    asked.add_argument("--arms", nargs="+", default=list(ARMS), choices=list(ARMS))
    options = asked.parse_args()
    torch.set_num_threads(1)
    setting = machine(1)
    found = measure(options.model, options.rounds, options.steps, options.skip, options.arms)
    write("lengths.json" if options.model == "tiny" else "lengths_135m.json", {"machine": setting, **found})
    for arm, each in found["arms"].items():
        row = each["per_step"][0]
        print(
            f"{arm:48} {row['seconds']:7.3f} s a step, {row['drawn_tokens_per_second']:6.0f} tokens/s  "
            f"{each['speedup']['median']:.2f}x (bound {each['bound_speedup']:.2f}x, reached {each['share_of_bound']:.2f})"
        )


if __name__ == "__main__":
    main()
