"""Answers of long-tailed length: what parking the tail is worth, beside the best that any schedule could do.

Lengths are log-normal with sigma 1 (median 16 tokens, at most 256), fixed by index and member: every arm draws answers of
the same lengths for the same episodes. Arms with fewer slots than the batch has sequences sample it in micro-groups.
The bound is the same work with every slot always full: what the batch's tokens cost at a full batch's speed, plus reading
the prompts and learning, in processor seconds.

All arms compute in one thread and wait for nothing: their processor seconds, which other programs on the machine hardly move,
say the same as the clock does on a quiet machine. Both are given.

The tiny model has 64 sequences an update, SmolLM2-135M (bfloat16, LoRA) 16: there a step of few sequences costs nearly what
a full one does, because the weights are read either way. Prints a table and writes lengths.json, lengths_135m.json.

python -m benchmarks.asynchrony.lengths [--model smollm2-135m-instruct]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from benchmarks.asynchrony.setting import Trace, World, learner_of, lognormal, run, small, tiny, write
from benchmarks.speed.setting import machine
from keepworth.episodes import SamplingParams
from keepworth.learning.collect.pipeline import Asynchrony, Caches, Mode, Order, Pipeline, Staleness
from keepworth.learning.learner import Learner
from keepworth.learning.objective.parts import GroupStd, Outcome
from keepworth.learning.objective.presets import preset, varied
from keepworth.models.inprocess import ContinuousBatch, InProcessModel, PartialSample

OBJECTIVE = varied(preset("areal"), advantage=Outcome("group", GroupStd()))
MEDIAN, LONGEST = 16, 256


@dataclass(frozen=True, slots=True)
class Arm:
    """slots: as a share of the update's sequences. refill: slots that are free before they are filled, as a share of all."""

    mode: Mode = "turns"
    max_staleness: int = 0
    pipeline_depth: float = 1.0
    slots: float = 1.0
    order: Order = "arrival"
    caches: Caches = "recompute"
    refill: float = 0.0


ARMS: dict[str, Arm] = {
    "synchronous": Arm(),
    "synchronous, a 16th of the slots": Arm(slots=1 / 16),
    "synchronous, a quarter, longest first": Arm(slots=1 / 4, order="longest_first"),
    "parked (APRIL), 1.5 batches": Arm("turns", 4, 1.5),
    "parked, 2 batches": Arm("turns", 4, 2.0),
    "parked, 2 batches, caches kept": Arm("turns", 4, 2.0, caches="keep"),
    "parked, 3 batches, caches kept": Arm("turns", 4, 3.0, caches="keep"),
    "parked, 3 batches, caches kept, refilled by eighths": Arm("turns", 4, 3.0, caches="keep", refill=1 / 8),
    "parked, 3 batches, caches kept, by eighths, 8 updates": Arm("turns", 8, 3.0, caches="keep", refill=1 / 8),
}


@dataclass(frozen=True, slots=True)
class Size:
    """Groups and members of an update; the arms that are measured where none are named."""

    groups: int
    members: int
    arms: tuple[str, ...]

    @property
    def sequences(self) -> int:
        return self.groups * self.members

    def slots(self, arm: str) -> int:
        return max(1, round(ARMS[arm].slots * self.sequences))

    def asynchrony(self, arm: str) -> Asynchrony:
        of, slots = ARMS[arm], self.slots(arm)
        bound = Staleness(self.groups, of.max_staleness, of.pipeline_depth)
        refill = max(1, round(of.refill * slots))
        return Asynchrony(
            bound, self.members, mode=of.mode, slots=slots, refill=refill, order=of.order, caches=of.caches
        )


SIZES = {
    "tiny": Size(8, 8, tuple(ARMS)),
    "smollm2-135m-instruct": Size(
        4,
        4,
        (
            "synchronous",
            "parked, 2 batches, caches kept",
            "parked, 3 batches, caches kept, by eighths, 8 updates",
        ),
    ),
}


class Watched(Pipeline):
    """Counts the tokens that are drawn in a decoding step."""

    last: Watched | None = None

    def begin(self, *arguments: Any) -> None:
        Watched.last = self
        super().begin(*arguments)


def token_seconds(model: InProcessModel, slots: int, prompt: tuple[int, ...]) -> dict[str, float]:
    """Processor seconds of one decoding step with all slots live, in the middle of a usual answer, and of reading a prompt."""
    batch = ContinuousBatch(model, slots)
    for row in range(slots):
        batch.add(PartialSample(prompt, SamplingParams(60), (row,)))
    begun = time.process_time()
    batch.step()
    first = time.process_time() - begun
    for _ in range(15):
        batch.step()
    begun = time.process_time()
    for _ in range(20):
        batch.step()
    step = (time.process_time() - begun) / 20
    return {"step": step, "read": max(0.0, first - step)}


def clocked(learner: Learner) -> list[float]:
    """Processor seconds of each update that follows."""
    taken: list[float] = []
    update = learner.update

    def measured(groups: Any) -> dict[str, float]:
        begun = time.process_time()
        result = update(groups)
        taken.append(time.process_time() - begun)
        return result

    learner.update = measured  # type: ignore[method-assign]
    return taken


def lengths_trained(learner: Learner) -> list[list[int]]:
    """Tokens of each answer of each update that follows."""
    found: list[list[int]] = []
    update = learner.update

    def noting(groups: Any) -> dict[str, float]:
        found.append([len(s.ids) for g in groups for e in g.episodes for s in e.segments])
        return update(groups)

    learner.update = noting  # type: ignore[method-assign]
    return found


def spread(ratios: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(ratios), "lowest": min(ratios), "highest": max(ratios)}


def measure(
    model_name: str, rounds: int, steps: int, skip: int, names: Sequence[str], seconds: float
) -> dict[str, Any]:
    """Ends after `rounds`, or with the round that is under way after `seconds`."""
    size = SIZES[model_name]

    def fresh() -> Any:
        model = tiny(hidden=128) if model_name == "tiny" else small()
        return learner_of(model, OBJECTIVE, 1e-4, lora=model_name != "tiny")

    learner = fresh()
    encode = learner.model.encode
    padding = "a few words to read first. " * 3
    warm = World(lambda index, member: 4, encode=encode, padding=padding)
    run(learner, warm, size.asynchrony("synchronous"), 2)
    found: dict[str, list[dict[str, float]]] = {arm: [] for arm in names}
    prompt = encode(f"{padding}letters 0:")
    costs = {
        str(slots): token_seconds(learner.model, slots, prompt)
        for slots in sorted({size.slots(arm) for arm in names} | {1, 4})
    }
    begun, number = time.perf_counter(), 0
    while number < rounds and (not number or time.perf_counter() - begun < seconds):
        lengths: Trace = lognormal(MEDIAN, 1.0, number, 1, LONGEST)
        for arm in names if number % 2 == 0 else names[::-1]:
            learner = fresh()
            world = World(lengths, encode=encode, padding=padding)
            learned, trained = clocked(learner), lengths_trained(learner)
            watch = run(learner, world, size.asynchrony(arm), steps, Watched)
            assert Watched.last is not None
            drawn = sum(row["drawn_tokens"] for row in watch.rows)
            found[arm].append(
                {
                    **watch.steady(skip),
                    "learn_cpu_seconds": statistics.fmean(learned[skip:]),
                    "tokens_per_decoding_step": drawn / Watched.last.batch.steps,
                    "lag_p95": statistics.fmean(row.get("lag_p95", 0.0) for row in watch.rows[skip:]),
                    "longest_lag": max(
                        (
                            int(name.split("/")[1])
                            for row in watch.rows[skip:]
                            for name in row
                            if name.startswith("lag/")
                        ),
                        default=0,
                    ),
                    "trained_length": statistics.fmean(length for update in trained[skip:] for length in update),
                }
            )
        number += 1
    arms: dict[str, Any] = {}
    for arm in names:
        slots = size.slots(arm)
        cost = costs[str(slots)]
        bounds = []
        for each in found[arm]:
            sampling = each["drawn_tokens"] / slots * cost["step"] + cost["read"]
            bounds.append(sampling + each["learn_cpu_seconds"])
        pairs = list(zip(found["synchronous"], found[arm], strict=True))
        # Per drawn token: which lengths fall into the measured steps differs a little between the schedules.
        ratios, in_cpu = (
            [b[f"drawn_tokens_per_{unit}"] / a[f"drawn_tokens_per_{unit}"] for a, b in pairs]
            for unit in ("second", "cpu_second")
        )
        arms[arm] = {
            "settings": {**asdict(ARMS[arm]), "slots": slots},
            "per_step": found[arm],
            "speedup": spread(ratios),
            "speedup_in_cpu_seconds": spread(in_cpu),
            "bound_cpu_seconds": bounds,
            "share_of_bound": statistics.median(
                [b / each["cpu_seconds"] for b, each in zip(bounds, found[arm], strict=True)]
            ),
            "bound_speedup": statistics.median(
                [
                    a["cpu_seconds"] / a["drawn_tokens"] * b["drawn_tokens"] / bound
                    for (a, b), bound in zip(pairs, bounds, strict=True)
                ]
            ),
        }
    return {
        "model": model_name,
        "rounds": number,
        "steps": steps,
        "steps_measured": steps - skip,
        "episodes_per_step": size.sequences,
        "lengths": {"median": MEDIAN, "sigma": 1.0, "longest": LONGEST},
        "decoding_step_cpu_seconds": costs,
        "arms": arms,
    }


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--model", default="tiny", choices=list(SIZES))
    asked.add_argument("--rounds", type=int, default=3)
    asked.add_argument("--seconds", type=float, default=600.0, help="no round begins after this long")
    asked.add_argument("--steps", type=int, default=20)
    asked.add_argument("--skip", type=int, default=5, help="steps before the measured ones, to fill the pipeline")
    asked.add_argument("--arms", nargs="+", choices=list(ARMS), help="synchronous among them")
    options = asked.parse_args()
    torch.set_num_threads(1)
    setting = machine(1)
    names = options.arms or SIZES[options.model].arms
    found = measure(options.model, options.rounds, options.steps, options.skip, names, options.seconds)
    write("lengths.json" if options.model == "tiny" else "lengths_135m.json", {"machine": setting, **found})
    for arm, each in found["arms"].items():
        row, wall, cpu = each["per_step"][0], each["speedup"]["median"], each["speedup_in_cpu_seconds"]["median"]
        print(
            f"{arm:54} {row['seconds']:7.3f} s a step, {row['drawn_tokens_per_second']:6.0f} tokens/s  {wall:.2f}x, in CPU time "
            f"{cpu:.2f}x (bound {each['bound_speedup']:.2f}x, reached {each['share_of_bound']:.2f})"
        )


if __name__ == "__main__":
    main()
