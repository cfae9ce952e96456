"""What a tuned reader gained, how far it carries, and what weights keep beside a store: the diagnostics on real models.

    python -m benchmarks.evaluation.diagnose --data DATA [--reader-runs runs] [passes carries retention]

passes: pass@k of the model as it comes and as `keepworth demo` tuned it, 64 samples of each of 48 test questions of LongMemEval
with the evidence in the prompt, and where their curves cross. carries: what the tuning, on LongMemEval alone, gained on other
benchmarks with the evidence in the prompt. retention: made-up facts that a model's weights (LoRA of rank 16, one step an
exposure, the best of three learning rates on other people) and a memory were told once or four times, asked again after 0, 8
and 32 more facts. Each part is left alone once it is in diagnose.json; `python -m benchmarks.evaluation.page` writes the tables.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from keepworth.evaluation.diagnostics import (
    Retention,
    cross_domain,
    crossing,
    pass_curve,
    retained,
    retention,
    transfer,
)
from keepworth.learning.run_folder import versions

OUT = Path(__file__).parent / "diagnose.json"
MODEL = "smollm2-135m-instruct"
SAMPLES, QUESTIONS = 64, 48
AT = (1, 2, 4, 8, 16, 32, 64)
CARRIED = ("longmemeval", "locomo", "bfcl-memory", "hotpotqa", "2wiki", "timebench", "event-book", "compositions")
CARRIED_QUESTIONS = 80
SHIPPED = ("longmemeval", "event-book", "compositions")
EXPOSURES, DELAYS, FACTS = (1, 4), (0, 8, 32), 24
RATES = (3e-4, 1e-3, 3e-3)


def loaded() -> Any:
    from keepworth.models.files import ModelKind, path_of
    from keepworth.models.inprocess import InProcessModel

    return InProcessModel.load(path_of(MODEL, kind=ModelKind.LANGUAGE), name=MODEL)


def passes(options: argparse.Namespace) -> dict[str, Any]:
    """Right is an answer whose token F1 is at least one half."""
    from keepworth.agents import answerer
    from keepworth.episodes.model import SamplingParams
    from keepworth.evaluation.system import evidence_of, oracle
    from keepworth.learning.run_folder import find_run
    from keepworth.recipes.training import kept_weights, with_weights
    from keepworth.tasks.benchmark import named
    from keepworth.tasks.verifiers import verify

    tasks = [task for task in named("longmemeval")("test") if evidence_of(task, 60)]
    tasks = random.Random(0).sample(tasks, QUESTIONS)
    counts: dict[str, list[int]] = {}
    run = find_run("demo", options.reader_runs)
    for name in ("base", "tuned"):
        model = loaded()
        if name == "tuned":
            with_weights(model, kept_weights(run, "answerer"))
        counts[name] = []
        for number, task in enumerate(tasks):
            shown = oracle(evidence_of(task, 60)).shown
            prompt, _ = answerer.fit(model, shown, task.input, 16)
            drawn = SamplingParams(16, n=SAMPLES, temperature=1.0, seed=number, stop_ids=model.stop_ids_for("\n"))
            ((*samples,),) = model.sample([prompt], drawn)
            answers = [answerer.parse(model.decode(each.ids))[0] for each in samples]
            counts[name].append(sum(verify(task, answer) >= 0.5 for answer in answers))
    curves = {name: pass_curve(own, SAMPLES) for name, own in counts.items()}
    return {
        "questions": QUESTIONS,
        "samples": SAMPLES,
        "curves": {
            name: [[k, curve.mean[k - 1], curve.low[k - 1], curve.high[k - 1]] for k in AT]
            for name, curve in curves.items()
        },
        "crossing": asdict(crossing(counts["tuned"], counts["base"], SAMPLES)),
    }


def carries(options: argparse.Namespace) -> dict[str, Any]:
    """By the command that everybody has: the arm `oracle`, with either reader."""
    scores: dict[str, dict[str, list[float]]] = {}
    for reader in (MODEL, "run:demo"):
        for name in CARRIED:
            folder = options.runs / reader.replace(":", "-") / name
            words = [name, "none", "--setting", "oracle", "--limit", str(CARRIED_QUESTIONS), "--reader", reader]
            words += ["--runs", str(options.reader_runs)] if reader.startswith("run:") else []
            words += [] if name in SHIPPED else ["--data", options.data]
            subprocess.run([sys.executable, "-m", "keepworth", "eval", "run", *words, "--out", str(folder)], check=True)
            rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
            own = {row["key"]: row["scores"]["score"] for row in rows if row["setting"] == "oracle"}
            scores.setdefault(reader, {})[name] = [own[key] for key in sorted(own)]
    base, tuned = scores.values()
    matrix = cross_domain({("longmemeval", name): own for name, own in tuned.items()}, base)
    inside, outside = transfer(matrix)
    row = matrix["longmemeval"]
    return {
        "base": {name: sum(own) / len(own) for name, own in base.items()},
        "gain": {name: asdict(each) for name, each in row.items()},
        "inside": inside,
        "outside": outside,
    }


def facts(split: str, count: int, seed: int) -> list[tuple[str, str, str]]:
    """(cue, value, statement) of made-up things of people of one split; every value is as likely as another."""
    from keepworth.tasks.people import names_of

    draw = random.Random(f"facts/{split}/{seed}")
    people = [f"{first} {last}" for first in names_of(split) for last in ("Ashby", "Brook", "Calder", "Dunmore")]
    found = []
    for person in draw.sample(people, count):
        value = f"{draw.randrange(1000, 10000)}"
        cue = f"The locker of {person} has the number"
        found.append((cue, value, f"{cue} {value}."))
    return found


def kept_in_weights(rate: float, exposures: int, told: Sequence[tuple[str, str, str]]) -> list[Retention]:
    """One fact after the other, a step for each exposure, and what is recalled of each after each delay."""
    from keepworth.episodes.model import SamplingParams
    from keepworth.learning.learner import Learner, Optimisation
    from keepworth.learning.objective.presets import preset
    from keepworth.models.adapter import attach_lora

    model = loaded()
    named = attach_lora(model, 16, 32.0, 0)
    learner = Learner(model, named, preset("reinforce"), Optimisation(learning_rate=rate), "answerer")
    rows = []
    for number, (cue, value, _) in enumerate(told):
        prompt = model.encode(cue)
        for _ in range(exposures):
            learner.imitate([(prompt, model.encode_continuation(f" {value}."))])
        for delay in DELAYS:
            if number - delay >= 0:
                asked, right, _ = told[number - delay]
                ((sample,),) = model.sample([model.encode(asked)], SamplingParams(8, temperature=0.0))
                score = float(model.decode(sample.ids).strip().startswith(right))
                rows.append(Retention("weights", asked, exposures, delay, score))
    return rows


def kept_in_store(exposures: int, told: Sequence[tuple[str, str, str]]) -> list[Retention]:
    """The same of a memory: recalled is what the first hit says."""
    from keepworth import Memory

    rows = []
    with tempfile.TemporaryDirectory() as folder, Memory(Path(folder) / "a.mem") as memory:
        for number, (_, _, statement) in enumerate(told):
            for _ in range(exposures):
                memory.add(statement)
            for delay in DELAYS:
                if number - delay >= 0:
                    asked, right, _ = told[number - delay]
                    with memory.episode(asked, explore=False) as episode:
                        hits = episode.search(asked, top_k=1)
                    rows.append(
                        Retention("store", asked, exposures, delay, float(bool(hits) and right in hits[0].text))
                    )
    return rows


def keeps(options: argparse.Namespace) -> dict[str, Any]:
    def recalled(rate: float) -> float:
        rows = [row for exposures in EXPOSURES for row in kept_in_weights(rate, exposures, facts("dev", 12, 1))]
        return math.fsum(row.score for row in rows) / len(rows)

    tried = {rate: recalled(rate) for rate in RATES}
    rate = max(tried, key=lambda each: tried[each])
    told = facts("test", FACTS + max(DELAYS), 0)
    rows = []
    for exposures in EXPOSURES:
        rows += kept_in_weights(rate, exposures, told) + kept_in_store(exposures, told)
    cells = [
        {"arm": arm, "exposures": many, "delay": delay, **asdict(cell)}
        for (arm, many, delay), cell in retention(rows).items()
    ]
    gaps = [
        {"exposures": many, "delay": delay, **asdict(gap)}
        for (many, delay), gap in retained(rows, "store", "weights").items()
    ]
    return {"tried on dev": tried, "rate": rate, "facts": len(told), "cells": cells, "store less weights": gaps}


PARTS = {"passes": passes, "carries": carries, "retention": keeps}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=list(PARTS))
    parser.add_argument("--data", required=True)
    parser.add_argument("--runs", type=Path, default=Path("runs/eval/diagnose"))
    parser.add_argument("--reader-runs", type=Path, default=Path("runs"), help="the folder that holds the run `demo`")
    options = parser.parse_args()
    kept = json.loads(OUT.read_text(encoding="utf-8")) if OUT.exists() else {}
    for part in options.parts:
        if part not in kept:
            kept[part] = PARTS[part](options)
            kept |= {"command": "python -m benchmarks.evaluation.diagnose --data DATA", "versions": versions()}
            OUT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
