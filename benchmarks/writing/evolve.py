"""ContextEvolve's three roles on a text whose best is known to be hard to find: a rule, in words, of what is worth keeping.

    python -m benchmarks.writing.evolve [--model]

A text such as `digits +2; names +1` gives each feature of a statement a weight; its score is the evidence that the rule keeps of
streams to learn from (4 of 16 facts of LongMemEval), and it is measured on the fifth fold. Arms have equally many scorings:

* random texts, the best of them;
* edits drawn evenly, from the best text so far;
* edits drawn by what the navigator says: exp(gain / TEMPERATURE);
* --model: SmolLM2-135M draws the edit, by its probability behind the context: with the state alone, and with all three roles.

The ceiling is a logistic model of the evidence marks over the same features.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.tables import markdown
from benchmarks.writing import arms
from benchmarks.writing.setting import FOLDS, HERE, Setting, setting
from keepworth.evaluation.statistics import paired_difference, pooled_estimate
from keepworth.learning.run_folder import versions
from keepworth.memory.policy.importance import FEATURES
from keepworth.methods.studies.context_evolve import Direction, EvolveContext, Propose, evolve

OUT, ROUNDS, SEEDS, MOST = HERE / "evolve.json", 40, (0, 1, 2), 3
TEMPERATURE = 0.01
MODEL, MODEL_FOLDS, MODEL_SEEDS = "smollm2-135m-instruct", (0, 1), (0,)
START = "words +1"
EDITS = [f"{how} {name}" for name in FEATURES for how in ("more", "less")]


def weights_of(text: str) -> dict[str, int]:
    """The weights that a text names; what it does not name weighs 0."""
    return {name: int(weight) for name, _, weight in (part.strip().rpartition(" ") for part in text.split(";")) if name}


def text_of(weights: dict[str, int]) -> str:
    return "; ".join(f"{name} {weights[name]:+d}" for name in FEATURES if weights.get(name)) or "nothing +0"


def edited(text: str, edit: str) -> str:
    how, _, name = edit.partition(" ")
    weights = weights_of(text)
    weights[name] = max(-MOST, min(MOST, weights.get(name, 0) + (1 if how == "more" else -1)))
    return text_of(weights)


class Scored:
    """The evidence that the rule of a text keeps of some streams."""

    def __init__(self, world: Setting, numbers: Sequence[int]) -> None:
        self.world, self.numbers = world, list(numbers)

    def each(self, text: str) -> list[float]:
        named = weights_of(text)
        weights = np.array([float(named.get(name, 0)) for name in FEATURES])
        stays = arms.stays(self.world, arms.weighted(self.world, weights), self.numbers)
        return [self.world.evidence(number, stays[number]) for number in self.numbers]

    def __call__(self, text: str) -> float:
        return float(np.mean(self.each(text)))


def drawn_evenly(draw: random.Random) -> Propose:
    def propose(context: EvolveContext) -> tuple[str, str]:
        edit = draw.choice(EDITS)
        return edit, edited(context.parent.text, edit)

    return propose


def navigated(draw: random.Random) -> Propose:
    def propose(context: EvolveContext) -> tuple[str, str]:
        chances = [np.exp(context.direction.gains.get(edit, 0.0) / TEMPERATURE) for edit in EDITS]
        (edit,) = draw.choices(EDITS, chances)
        return edit, edited(context.parent.text, edit)

    return propose


def anything(draw: random.Random) -> Propose:
    def propose(context: EvolveContext) -> tuple[str, str]:
        return "anew", text_of({name: draw.randint(-MOST, MOST) for name in FEATURES})

    return propose


def by_model(model: Any, draw: random.Random) -> Propose:
    """Draws an edit by the probability that the model gives it, the mean of its tokens' logarithms, behind the context."""
    branches = [model.encode_continuation(f" {edit}\n") for edit in EDITS]

    def propose(context: EvolveContext) -> tuple[str, str]:
        asked = f"A rule says what is worth remembering. It is improved by one change at a time.\n{context.text}\nNext change:"
        (scores,) = model.score([model.encode(asked)], [branches])
        means = np.array([sum(each) / len(each) for each in scores])
        (edit,) = draw.choices(EDITS, np.exp((means - means.max()) / 0.5))
        return edit, edited(context.parent.text, edit)

    return propose


def arm(world: Setting, make: Callable[[random.Random], Propose], folds: Sequence[int], seeds: Sequence[int],
        **roles: Any) -> dict[str, Any]:  # fmt: skip
    """By seed the evidence on tested streams, the mean curve of the score, and what was wasted."""
    values, curves, wasted = [], [], 0
    for seed in seeds:
        own: dict[int, float] = {}
        for fold in folds:
            learn, test = world.apart(fold)
            ended = evolve(
                START, Scored(world, learn), make(random.Random(f"{seed}|{fold}")), rounds=ROUNDS, seed=seed, **roles
            )
            own |= dict(zip(test, Scored(world, test).each(ended.best.text), strict=True))
            curves.append(ended.curve)
            wasted += ended.unusable + ended.repeated
            print(seed, fold, f"{ended.best.score:.3f}", ended.best.text, flush=True)
        values.append([own[number] for number in sorted(own)])
    return {"values": np.mean(values, axis=0), "numbers": sorted(own), "curve": np.mean(curves, axis=0).tolist(),
            "wasted": wasted / len(curves), "seeds": len(seeds)}  # fmt: skip


def summed(world: Setting, found: dict[str, dict[str, Any]], minus: Sequence[tuple[str, str]]) -> dict[str, Any]:
    rows, gaps = [], []
    for name, of in found.items():
        clusters = [world.clusters[number] for number in of["numbers"]]
        each = pooled_estimate(list(of["values"]), clusters)
        rows.append({"arm": name, "evidence": each.mean, "low": each.low, "high": each.high, "clusters": each.n,
                     "learned_on": of["curve"][-1], "curve": of["curve"], "wasted": of["wasted"],
                     "seeds": of["seeds"]})  # fmt: skip
    for one, other in minus:
        clusters = [world.clusters[number] for number in found[one]["numbers"]]
        gap = paired_difference(
            f"{one} - {other}", list(found[one]["values"] - found[other]["values"]), clusters=clusters
        )
        gaps.append({"arm": one, "minus": other, "difference": gap.difference, "low": gap.low, "high": gap.high})
    return {"rows": rows, "gaps": gaps, "streams": len(found[minus[0][0]]["numbers"])}


def fixed(world: Setting, kept_by: Callable[[int], float], folds: Sequence[int]) -> dict[str, Any]:
    numbers = sorted(number for fold in folds for number in world.apart(fold)[1])
    return {"values": np.array([kept_by(number) for number in numbers]), "numbers": numbers, "curve": [float("nan")],
            "wasted": 0.0, "seeds": 1}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="store_true", help="the arms of the language model, on fewer folds")
    options = parser.parse_args()
    world, every = setting("4 of 16"), range(FOLDS)
    record: dict[str, Any] = json.loads(OUT.read_text()) if OUT.exists() else {}
    rounds = {"rounds": ROUNDS, "command": "python -m benchmarks.writing.evolve --model", "versions": versions()}
    if options.model:
        import torch

        from keepworth.models.files import ModelKind, path_of
        from keepworth.models.inprocess import InProcessModel

        torch.set_num_threads(1)
        model = InProcessModel.load(path_of(MODEL, kind=ModelKind.LANGUAGE), name=MODEL, precision="bf16")
        asked: dict[str, dict[str, Any]] = {
            "the model, state alone": {"shown": 0, "navigate": lambda attempts: Direction()},
            "the model, three roles": {},
        }
        few = {
            name: arm(world, lambda d: by_model(model, d), MODEL_FOLDS, MODEL_SEEDS, **roles)
            for name, roles in asked.items()
        }
        few["edits drawn evenly"] = arm(world, drawn_evenly, MODEL_FOLDS, MODEL_SEEDS)
        one, other = "the model, three roles", "the model, state alone"
        record["model"] = summed(world, few, [(one, other), (one, "edits drawn evenly")]) | {"model": MODEL}
    else:
        specific, ceiling = (
            arms.stays(world, arms.rules(world)["most specific"]),
            arms.supervised(world, slice(0, arms.HAND), 1.0),
        )
        start, known = arms.stays(world, arms.rules(world)["longest"]), arms.oracle(world)
        found = {
            "the start: the longest": fixed(world, lambda n: world.evidence(n, start[n]), every),
            "most specific": fixed(world, lambda n: world.evidence(n, specific[n]), every),
            "random texts": arm(world, anything, every, SEEDS),
            "edits drawn evenly": arm(world, drawn_evenly, every, SEEDS),
            "edits by the navigator": arm(world, navigated, every, SEEDS),
            "supervised, the same features": fixed(world, lambda n: world.evidence(n, ceiling[n]), every),
            "oracle": fixed(world, lambda n: world.evidence(n, known[n]), every),
        }
        one = "edits by the navigator"
        minus = [
            (one, name) for name in ("the start: the longest", "most specific", "random texts", "edits drawn evenly")
        ]
        record["rules"] = summed(world, found, minus)
    record |= rounds
    for part in ("rules", "model"):
        if part in record:
            print(markdown((part, "evidence kept"),
                           [(row["arm"], f"{row['evidence']:.3f} ({row['low']:.3f} to {row['high']:.3f})")
                            for row in record[part]["rows"]]))  # fmt: skip
            for gap in record[part]["gaps"]:
                print(
                    f"{gap['arm']} - {gap['minus']}: {gap['difference']:+.3f} [{gap['low']:+.3f}, {gap['high']:+.3f}]"
                )
    OUT.write_text(json.dumps(record, indent=1).replace("NaN", "null") + "\n")


if __name__ == "__main__":
    main()
