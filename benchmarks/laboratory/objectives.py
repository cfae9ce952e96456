"""Objectives on the laboratory's model, each against GRPO with the same questions, answers and seeds.

    python -m benchmarks.laboratory.objectives [--world rooms] [--lag 0] [--seeds 4] [--updates 16] [--only ppo,gspo] [--record]
    python -m benchmarks.laboratory.objectives --tune [--world rooms] [--lag 0]

Every arm has the best of three learning rates, chosen on another seed and on compositions that reward trains (--tune); the clip
acts, as an update goes twice over its episodes, where the objective has a ratio. Measured is pass@1 on held-out compositions
after the last update, and its difference to GRPO, paired by seed. The verdict is that of `benchmarks.methods.ruling`, and p
is corrected by Holm over all arms. --lag: by how many updates the sampler is behind the learner, so that its data are stale;
arms that correct for that are compared there. A run that was stopped goes on. --record writes the place's row of
`objectives.json`, from a tree without changes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from benchmarks.laboratory.run import scripted
from benchmarks.laboratory.training import (
    GRPO,
    MODEL,
    PERMUTED,
    TUNING,
    Arm,
    Course,
    Kept,
    chosen,
    digest,
    path_in,
    train,
)
from benchmarks.methods.ruling import judge
from benchmarks.methods.write import arm, begin, gap, measuring
from benchmarks.record import arguments, save
from benchmarks.speed.setting import machine
from keepworth.base.statistics import family
from keepworth.evaluation.verdicts import GAIN, NEAR
from keepworth.worlds.laboratory import WORLDS

ARMS = (
    Arm("reinforce", "reinforce"),
    Arm("rloo", "rloo"),
    Arm("reinforce_pp", "reinforce_pp", {"kl": None}),
    Arm("dr_grpo", "dr_grpo"),
    Arm("dapo", "dapo"),
    Arm("gspo", "gspo", {"kl": None}),
    Arm("cispo", "cispo"),
    Arm("lite_ppo", "lite_ppo"),
    Arm("gigpo", "gigpo", {"kl": None}),
    Arm("ppo", "ppo", {"kl": None}),
    Arm("archer", "archer"),
    Arm("t_spmo", "t_spmo"),
)
"""Those that differ from GRPO in what they give credit to, in what they divide by, or in what they clip."""
CORRECTING = (
    Arm("tis", "tis"),
    Arm("icepop", "icepop"),
    Arm("areal", "areal"),
    Arm("vcpo", "vcpo"),
)
"""Those that correct for data of an older policy: they are compared where the sampler is behind. There GRPO's rate in tuned.json
is the better of two on the seeds of the record, which favours it: the rate that one seed chose was .10 worse."""
STALE = (*(of for of in ARMS if of.name in ("gspo", "cispo", "dr_grpo", "lite_ppo", "ppo")), *CORRECTING)
RATES = (1e-4, 3e-4, 6e-4)
COURSE = Course(updates=16)
TUNED = path_in("tuned")


def place_of(name: str, lag: int) -> str:
    return f"{name}, {lag} updates behind" if lag else name


def arms_at(lag: int) -> Sequence[Arm]:
    return STALE if lag else ARMS


def tune(name: str, course: Course, kept: Kept) -> dict[str, float]:
    """The rate of each arm with the highest pass@1 on compositions that reward trains."""
    best = {}
    for each in (GRPO, *arms_at(course.lag)):
        reached = {}
        for rate in RATES:
            key = f"tune {name} {each.name} {rate} {course}"
            run = kept.get(
                key, lambda each=each, rate=rate: train(WORLDS[name], replace(each, rate=rate), TUNING, course)
            )
            reached[rate] = run["after"]["train"]
            print(name, each.name, rate, reached[rate], run["cpu_seconds"], flush=True)
        best[each.name] = max(reached, key=lambda rate: reached[rate])
    return best


def verdicts(name: str, place: str, runs: Mapping[str, Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Each arm beside GRPO, with the verdict of the one rule."""
    final = {key: [run["after"]["test"] for run in of] for key, of in runs.items()}
    others = [key for key in final if key != GRPO.name]
    simple = scripted(WORLDS[name])["best simple rule"]
    holm = {of.name: of for of in family([(key, np.subtract(final[key], final[GRPO.name]).tolist()) for key in others])}
    rows = [arm(key, of) for key, of in final.items()]
    made = []
    for key in others:
        record = {
            "command": "python -m benchmarks.laboratory.objectives",
            "arms": [*rows, {"name": "oracle", "mean": 1.0}, {"name": "best simple rule", "mean": simple}],
            "comparisons": [gap("grpo", final[key], final[GRPO.name])],
            "controls": ["permuted rewards"],
            "n": len(final[key]),
            "seeds": len(final[key]),
            "rule": {
                "places": {place: {"above": ["grpo"], "room": [["best simple rule", "oracle"]]}},
                "gain": GAIN, "near": NEAR, "range": 1.0,
                "claim": "does better than GRPO in this world", "part": "One world and one size of model.",
            },
        }  # fmt: skip
        ruling = judge(record, "")
        made.append(
            {"arm": key, "against grpo": record["comparisons"][0], "adjusted p": holm[key].adjusted, **asdict(ruling)}
        )
    return made


def main() -> None:
    parser = measuring(arguments(__doc__, json=False), smallest="two updates of GRPO and of one other, 3 seeds")
    parser.add_argument("--world", default="rooms")
    parser.add_argument("--lag", type=int, default=0, help="updates by which the sampler is behind")
    parser.add_argument("--only", default="", metavar="ARMS", help="names of arms, with commas between")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--updates", type=int, default=COURSE.updates)
    parser.add_argument("--tune", action="store_true", help="choose learning rates, and leave them in tuned.json")
    options = parser.parse_args()
    (name,) = chosen(options.world)
    known, place = [of.name for of in arms_at(options.lag)], place_of(name, options.lag)
    names = [of for of in options.only.split(",") if of] or known
    if unknown := set(names) - set(known):
        raise SystemExit(f"There is no arm {min(unknown)!r} here. There are {', '.join(known)}. Nothing was run.")
    begin(options, options.seeds)
    setting, course, tasks = machine(1), replace(COURSE, updates=options.updates, lag=options.lag), 48
    kept = Kept(f"objectives-{place.replace(' ', '-').replace(',', '')}", setting["revision"])
    rates = json.loads(TUNED.read_text(encoding="utf-8")) if TUNED.is_file() else {}
    if options.tune:
        rates[place] = tune(name, course, kept)
        save(TUNED, rates)
        return
    if options.smallest:
        course, tasks, names = Course(updates=2, tasks=2, answers=4), 4, known[:1]
    runs: dict[str, list[dict[str, Any]]] = {}
    arms = [GRPO, PERMUTED, *(of for of in arms_at(options.lag) if of.name in names)]
    for seed in range(options.seeds):
        for each in arms:
            tuned = rates.get(place, {}).get(GRPO.name if each.permuted else each.name, each.rate)
            key = f"{each.name} {tuned} {seed} {course} {tasks}"
            make = replace(each, rate=tuned)
            run = kept.get(key, lambda make=make, seed=seed: train(WORLDS[name], make, seed, course, tasks))
            runs.setdefault(each.name, []).append(run)
            print(place, seed, each.name, tuned, run["after"], run["cpu_seconds"], flush=True)
    record = {
        "command": f"python -m benchmarks.laboratory.objectives --world {name} --lag {options.lag} --record",
        "machine": setting,
        "model": MODEL,
        "digest": digest(),
        "world": name,
        "seeds": options.seeds,
        "course": vars(course),
        "rates": rates.get(place, {}),
        "unit": "pass@1 on held-out compositions after the last update, paired by seed",
        "arms": {key: arm(key, [run["after"]["test"] for run in of]) for key, of in runs.items()},
        "verdicts": verdicts(name, place, runs),
        "runs": runs,
    }
    path = path_in("objectives") if options.record else options.out / "laboratory-objectives.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    places = json.loads(path.read_text(encoding="utf-8")).get("places", {}) if path.is_file() else {}
    save(path, {"places": places | {place: record}})
    for row in record["verdicts"]:
        print(f"{row['arm']}: {row['verdict']}. {row['because']} p {row['adjusted p']:.3f}")


if __name__ == "__main__":
    main()
