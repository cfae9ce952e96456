"""What writers keep of a bounded bank, and what the frozen reader answers from it: headroom, and what learning adds.

    python -m benchmarks.writing.writers [--world "4 of 16"]

Rules of thumb, the best of 200 weighted rules (chosen on the other folds, by the evidence marks that learners never
see), the supervised ceiling of the small policy, the oracle; small policies that learned from the reader's answers
alone; and, where `python -m benchmarks.writing.model` has left what it
kept, the language model as the writer. Every question is tested once, by a writer that never saw it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.tables import markdown
from benchmarks.writing import arms
from benchmarks.writing.credit import LOOKS, Replay, Shuffled, learned, tuned_for
from benchmarks.writing.reads import want
from benchmarks.writing.setting import BANKS, FOLDS, HERE, WORLDS, Reads, Setting, kept_file, random_banks, setting
from keepworth.evaluation.statistics import paired_difference, pooled_estimate
from keepworth.learning.run_folder import versions
from keepworth.memory.policy.importance import LoggedBank, fitted_worth

OUT = HERE / "writers.json"
RIDGES, SEEDS = (3.0, 10.0, 30.0, 100.0, 300.0), (0, 1, 2)
LEARNS = "worth then episode"
"""The form of credit of the small policy that is trained in step with the reader; see `benchmarks.writing.credit`."""
MODELS = ("model", "model, rewards permuted", "model from the log", "model from the log, rewards permuted")
"""The arms of `benchmarks.writing.model`."""
Kept = dict[int, tuple[int, ...]]


def logged(world: Setting, reads: Reads, numbers: set[int], seed: int | None = None) -> list[LoggedBank]:
    """The random banks of some streams that have been read. seed: with their rewards permuted."""
    found = [
        (number, stay, score)
        for number, stay in random_banks(world, BANKS)
        if number in numbers and (score := reads.known.get((world.name, world.streams[number].key, stay))) is not None
    ]
    scores = [score for *_, score in found]
    if seed is not None:
        scores = list(np.random.default_rng(seed).permutation(scores))
    return [
        LoggedBank(world.vectors[world.rows[number]], stay, float(score), world.streams[number].key)
        for (number, stay, _), score in zip(found, scores, strict=True)
    ]


def by_worth(world: Setting, reads: Reads, seed: int | None = None) -> Kept:
    """The policy that learned from the log alone: no reader is asked."""
    kept: Kept = {}
    for fold in range(FOLDS):
        learn, test = world.apart(fold)
        weights = worth_of(world, reads, learn, (fold + 1) % FOLDS, seed)
        kept |= arms.stays(world, arms.weighted(world, weights), test)
    return kept


def worth_of(
    world: Setting,
    reads: Reads,
    learn: Sequence[int],
    held: int,
    seed: int | None = None,
    ridges: Sequence[float] = RIDGES,
) -> arms.Floats:
    """The ridge is chosen by how well weights of the streams of `learn` outside the fold `held` predict the rewards of those
    in it."""
    inner = {number for number in learn if world.folds[number] != held}
    fitted, judged = logged(world, reads, inner, seed), logged(world, reads, set(learn) - inner, seed)
    ridge = max(ridges, key=lambda each: explained(judged, fitted_worth(fitted, each)))
    return fitted_worth(logged(world, reads, set(learn), seed), ridge)


def explained(log: list[LoggedBank], weights: arms.Floats) -> float:
    """The correlation, within groups, of what was predicted with the reward."""
    groups: dict[str, list[tuple[float, float]]] = {}
    for bank in log:
        predicted = float(bank.features[list(bank.stayed)].sum(axis=0) @ weights)
        groups.setdefault(bank.group, []).append((predicted, bank.reward))
    pairs = np.concatenate([np.array(each) - np.mean(each, axis=0) for each in groups.values()])
    return float(np.corrcoef(pairs.T)[0, 1]) if pairs.std(axis=0).min() > 0 else 0.0


def by_reward(world: Setting, reads: Reads, seed: int, permuted: bool = False) -> Kept:
    """The small policy after reinforcement."""
    kept: Kept = {}
    for fold in range(FOLDS):
        learn, test = world.apart(fold)
        reader = Shuffled(world, reads, seed) if permuted else Replay(world, reads)
        weights = learned(world, reader, LEARNS, learn, seed, tuned_for(world.name, LEARNS, fold))[LOOKS[-1]]
        kept |= arms.stays(world, arms.weighted(world, weights), test)
    return kept


def every_arm(world: Setting, reads: Reads) -> dict[str, list[Kept]]:
    """What each arm keeps, one for each seed."""
    nothing: Kept = dict.fromkeys(range(len(world.streams)), ())
    found: dict[str, list[Kept]] = {"nothing": [nothing]}
    found |= {name: [arms.stays(world, rule)] for name, rule in arms.rules(world).items()}
    found["most diverse"] = [{number: arms.diverse(world, number) for number in range(len(world.streams))}]
    found["best of 200 rules"] = [arms.tuned_rules(world, world.evidence)]
    found["log alone"] = [by_worth(world, reads)]
    found["log alone, rewards permuted"] = [by_worth(world, reads, seed) for seed in SEEDS]
    found["small policy"] = [by_reward(world, reads, seed) for seed in SEEDS]
    found["small policy, rewards permuted"] = [by_reward(world, reads, seed, True) for seed in SEEDS]
    files = [kept_file(world.name, arm) for arm in MODELS]
    endpoints = kept_file(world.name, "endpoint-*")
    place = {stream.key: number for number, stream in enumerate(world.streams)}
    for file in (*files, *sorted(endpoints.parent.glob(endpoints.name))):
        if not file.exists():
            continue
        for name, seeds in json.loads(file.read_text()).get("kept", {}).items():
            if any(each.keys() != place.keys() for each in seeds):
                continue  # a part of the streams
            found[name] = [{place[key]: tuple(stay) for key, stay in each.items()} for each in seeds]
    found["supervised, no vectors"] = [arms.supervised(world, slice(0, arms.HAND), 1.0)]
    found["supervised"] = [arms.supervised(world, slice(None), 100.0)]
    found["oracle"] = [arms.oracle(world)]
    return found


def measured(world: Setting, reads: Reads) -> dict[str, Any]:
    rows, evidence, f1 = [], {}, {}
    for name, seeds in every_arm(world, reads).items():
        numbers = range(len(world.streams))
        evidence[name] = np.mean([[world.evidence(n, kept[n]) for n in numbers] for kept in seeds], axis=0)
        f1[name] = np.mean(
            [[reads.f1(world.name, world.streams[n], kept[n]) for n in numbers] for kept in seeds], axis=0
        )
        row: dict[str, Any] = {"arm": name, "seeds": len(seeds)}
        for measure, values in (("evidence", evidence[name]), ("f1", f1[name])):
            if not np.isnan(values).any():
                each = pooled_estimate(list(values), world.clusters)
                row[measure] = {"mean": each.mean, "low": each.low, "high": each.high, "clusters": each.n}
        rows.append(row)
    learners = [
        name for name in evidence if name.startswith(("log alone", "small policy", "model", "head", "endpoint"))
    ]
    gaps = []
    for name in learners:
        for other in ("most specific", "best of 200 rules", "supervised", "latest", "model, warm start"):
            if other == name or other not in evidence:
                continue
            for measure, values in (("evidence", evidence), ("f1", f1)):
                difference = values[name] - values[other]
                if not np.isnan(difference).any():
                    gap = paired_difference(f"{name} - {other}", list(difference), clusters=world.clusters)
                    gaps.append({"arm": name, "minus": other, "measure": measure, "difference": gap.difference,
                                 "low": gap.low, "high": gap.high, "p": gap.p})  # fmt: skip
    return {
        "control": control(world),
        "streams": len(world.streams),
        "questions": len({s.task.key for s in world.streams}),
        "rows": rows,
        "gaps": gaps,
    }


def control(world: Setting) -> dict[str, Any] | None:
    """The model with permuted rewards beside the same folds of the model and of its warm start: the control costs as much as the
    model, so that there may be fewer folds of it."""
    files = {arm: kept_file(world.name, arm) for arm in ("model", "model, rewards permuted")}
    if not all(file.exists() for file in files.values()):
        return None
    parts = {arm: json.loads(file.read_text()) for arm, file in files.items()}
    both = sorted(set(parts["model"]["parts"]) & set(parts["model, rewards permuted"]["parts"]))
    if not both:
        return None
    place = {stream.key: number for number, stream in enumerate(world.streams)}
    values: dict[str, list[float]] = {"model": [], "model, rewards permuted": [], "model, warm start": []}
    clusters = []
    for part in both:
        for key, stay in parts["model"]["parts"][part]["kept"].items():
            number = place[key]
            clusters.append(world.clusters[number])
            values["model"].append(world.evidence(number, stay))
            permuted = parts["model, rewards permuted"]["parts"][part]["kept"][key]
            values["model, rewards permuted"].append(world.evidence(number, permuted))
            values["model, warm start"].append(world.evidence(number, parts["model"]["warm start"][key]))
    found: dict[str, Any] = {"parts": both, "streams": len(clusters)}
    for arm, each in values.items():
        mean = pooled_estimate(each, clusters)
        found[arm] = {"mean": mean.mean, "low": mean.low, "high": mean.high, "clusters": mean.n}
    for arm in ("model", "model, rewards permuted"):
        gap = paired_difference(
            arm, [a - b for a, b in zip(values[arm], values["model, warm start"], strict=True)], clusters=clusters
        )
        found[f"{arm} - warm start"] = {"difference": gap.difference, "low": gap.low, "high": gap.high, "p": gap.p}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", choices=WORLDS, nargs="+", default=list(WORLDS))
    options = parser.parse_args()
    reads = Reads.on_file()
    record = json.loads(OUT.read_text()) if OUT.exists() else {"worlds": {}}
    for name in options.world:
        record["worlds"][name] = found = measured(setting(name), reads)
        cells = [
            (row["arm"], row["seeds"], *(said(row.get(each)) for each in ("evidence", "f1"))) for row in found["rows"]
        ]
        print(markdown((f"{name}: writer", "seeds", "evidence kept", "F1 of the reader"), cells))
    record |= {"command": "python -m benchmarks.writing.writers", "versions": versions()}
    OUT.write_text(json.dumps(record, indent=1) + "\n")
    want(reads)


def said(cell: dict[str, float] | None) -> str:
    return "not read yet" if cell is None else f"{cell['mean']:.3f} ({cell['low']:.3f} to {cell['high']:.3f})"


if __name__ == "__main__":
    main()
