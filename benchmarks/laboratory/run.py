"""The laboratory's table of worlds: how often its model is right, and whether reward has room to act.

    python -m benchmarks.laboratory.run [--only notes,facts] [--seeds 3] [--updates 40] [--record]

Of each world: pass@1 and any of 64 of the model as it was made, on compositions that it was never taught, beside an oracle, the
best simple rule and chance (the actions that are right for another task). Then GRPO trains some of these compositions, and what
it gains on others, which neither teaching nor reward has shown, is measured on paired tasks with an interval over seeds; the
control has permuted rewards. A world carries verdicts where the gain is .15 or more, and the control does not lie above the base.
It needs `keepworth models make lab-small`. A run that was stopped goes on. --record writes `worlds.json`, from a tree without
changes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.laboratory.training import (
    ANSWERS,
    GRPO,
    MODEL,
    PERMUTED,
    TASKS,
    Course,
    Kept,
    chosen,
    digest,
    load,
    path_in,
    rewards,
    train,
)
from benchmarks.methods.write import ASIDE, begin, measuring
from benchmarks.record import arguments, save
from benchmarks.speed.setting import machine
from keepworth.base.statistics import estimate, interval
from keepworth.worlds.laboratory import WORLDS, ComposedWorld

ANY = 64
WORTH = 0.15
"""The least gain on held-out compositions with which a world carries verdicts."""


def played(world: ComposedWorld, state: Any, answer: str, actions: Sequence[str]) -> float:
    """The reward of scripted actions."""
    for count in range(1, len(actions) + 1):
        if world.reply(state, actions[:count]) is None:
            return world.score(state, answer, actions[:count])
    return 0.0


def scripted(world: ComposedWorld, count: int = 400) -> dict[str, float]:
    """How often an oracle, the best simple rule and chance are right."""
    exercises, draw = world.exercises("test", count, 2), random.Random(0)
    others = draw.sample(exercises, count)
    ways = {
        "oracle": [exercise.careful.actions for exercise in exercises],
        "best simple rule": [world.simple(exercise, draw) for exercise in exercises],
        "chance": [other.careful.actions for other in others],
    }
    return {
        name: float(
            np.mean([played(world, of.state, of.answer, way) for of, way in zip(exercises, actions, strict=True)])
        )
        for name, actions in ways.items()
    }


def base(name: str, split: str, tasks: int) -> dict[str, Any]:
    """The model as it was made, with intervals over compositions."""
    world = WORLDS[name]
    asked = world.tasks(split, tasks, 1)
    earned = rewards(load(), world, asked, ANY)
    compositions = [task.tags["composition"] for task in asked]
    each, hit = (
        estimate(of.tolist(), clusters=compositions, within=(0.0, 1.0)) for of in (earned.mean(1), earned.max(1))
    )
    by = {
        key: float(np.mean([e for e, of in zip(earned.mean(1), compositions, strict=True) if of == key]))
        for key in compositions
    }
    return {
        "pass_at_1": {"mean": each.mean, "low": each.low, "high": each.high},
        f"any_of_{ANY}": {"mean": hit.mean, "low": hit.low, "high": hit.high},
        "compositions": len(by),
        "between_5_and_60_percent": float(np.mean([0.05 < value < 0.6 for value in by.values()])),
    }


def gain(runs: Sequence[dict[str, Any]], side: str) -> dict[str, float]:
    """What runs gained over the base, with an interval over seeds."""
    gaps = [run["after"][side] - run["before"][side] for run in runs]
    ends = interval(gaps, within=(-1.0, 1.0))
    return {"mean": float(np.mean(gaps)), "low": ends.low, "high": ends.high}


def carries(held_out: dict[str, float], permuted: dict[str, float]) -> bool:
    """Whether a world has room: reward gains .15 on held-out compositions, surely more than nothing, permuted rewards do not."""
    return held_out["mean"] >= WORTH and held_out["low"] > 0 and permuted["low"] <= 0


def main() -> None:
    parser = measuring(arguments(__doc__, json=False), smallest="two updates, few answers, 3 seeds")
    parser.add_argument("--only", default="", metavar="WORLDS", help="names of worlds, with commas between")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=Course().updates)
    options = parser.parse_args()
    names = chosen(options.only)
    begin(options, options.seeds)
    setting = machine(1)
    course, tasks = replace(Course(), updates=options.updates), TASKS
    if options.smallest:
        course, tasks = Course(updates=2, tasks=2, answers=4), 8
    kept, rows = Kept("worlds", setting["revision"]), {}
    for name in names:
        size = f"{name} {course} {tasks}"
        row: dict[str, Any] = {"about": WORLDS[name].about, "turns": WORLDS[name].turns, **scripted(WORLDS[name])}
        for split in ("taught", "train", "test"):
            row[split] = kept.get(f"base {split} {size}", lambda name=name, split=split: base(name, split, tasks))
        for arm in (GRPO, PERMUTED):
            runs = []
            for seed in range(options.seeds):
                key = f"{arm.name} {seed} {size}"
                runs.append(
                    kept.get(key, lambda name=name, arm=arm, seed=seed: train(WORLDS[name], arm, seed, course, tasks))
                )
                print(name, arm.name, seed, runs[-1]["before"], runs[-1]["after"], runs[-1]["cpu_seconds"], flush=True)
            row[arm.name] = {
                "gain": {side: gain(runs, side) for side in ("train", "test")},
                "cpu_seconds": max(run["cpu_seconds"] for run in runs),
                "runs": runs,
            }
        row["carries_verdicts"] = carries(row["grpo"]["gain"]["test"], row["permuted rewards"]["gain"]["test"])
        rows[name] = row
    record = {
        "command": "python -m benchmarks.laboratory.run --record",
        "machine": setting,
        "model": MODEL,
        "digest": digest(),
        "seeds": options.seeds,
        "tasks": tasks,
        "answers": ANSWERS,
        "course": vars(course),
        "rate": GRPO.rate,
        "rule": f"a world carries verdicts where GRPO gains {WORTH} on held-out compositions and permuted rewards nothing",
        "worlds": rows,
    }
    ASIDE.mkdir(parents=True, exist_ok=True)
    path = path_in("worlds") if options.record else options.out / "laboratory-worlds.json"
    save(path, record)
    print(f"{sum(row['carries_verdicts'] for row in rows.values())} of {len(rows)} worlds carry verdicts: {path}")


if __name__ == "__main__":
    main()
