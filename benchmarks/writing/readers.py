"""Train the two frozen readers, each on the questions of one half, and say how well they read the other half.

    python -m benchmarks.writing.readers [--runs runs/writing]

A reader imitates the answer key behind the answerer's prompt, with banks of four facts that hold the evidence among
others. Half of the clusters is for it to learn from; it reads the questions of the other half alone.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keepworth.episodes.needs import needs_train

import torch

from benchmarks.writing.setting import HERE, reader_of, trained_reader
from keepworth.agents import answerer
from keepworth.episodes.episode import Shown
from keepworth.evaluation.statistics import pooled_estimate
from keepworth.learning.learner import Learner, Optimisation
from keepworth.learning.run_folder import versions
from keepworth.models.adapter import attach_lora, save_trained
from keepworth.models.files import ModelKind, path_of
from keepworth.models.inprocess import InProcessModel
from keepworth.recipes.settings import GROUP_RELATIVE
from keepworth.recipes.training import with_weights
from keepworth.rollouts.memory_r1 import ModelReader
from keepworth.tasks.fact_streams import FactStream, longmemeval_streams
from keepworth.tasks.facts import USER
from keepworth.tasks.metrics import token_f1

OUT = HERE / "readers.json"
MODEL, SHOWN, ANSWER = "smollm2-135m-instruct", 4, 12
STEPS, PAIRS, RATE, RISE = 60, 16, 3e-4, 5


def loaded() -> InProcessModel:
    return InProcessModel.load(path_of(MODEL, kind=ModelKind.LANGUAGE), name=MODEL, precision="bf16")


def frozen(runs: Path, which: int) -> ModelReader:
    """One of the two, as it was trained. KeepworthError where it was not yet."""
    return ModelReader(with_weights(loaded(), runs / f"reader{which}"), max_tokens=ANSWER)


def bank(stream: FactStream, draw: random.Random, evidence: bool = True) -> tuple[int, ...]:
    """Numbers of the facts shown: the evidence, or none of it, among others."""
    marked = [number for number, decides in enumerate(stream.evidence) if decides]
    others = [number for number, decides in enumerate(stream.evidence) if not decides]
    shown = marked if evidence else []
    return tuple(sorted([*shown, *draw.sample(others, max(0, SHOWN - len(shown)))]))


def shown(stream: FactStream, stay: Sequence[int]) -> tuple[str, ...]:
    """The lines that the reader is shown. Where others than the user speak, with their names."""
    facts = [stream.facts[number] for number in stay]
    return tuple(each.statement if each.speaker == USER else f"{each.speaker}: {each.statement}" for each in facts)


def train(which: int, streams: Sequence[FactStream], runs: Path) -> None:
    model = loaded()
    named = attach_lora(model, 16, 32, 0)
    learner = Learner(model, named, GROUP_RELATIVE, Optimisation(learning_rate=RATE, token_budget=2048), "answerer")
    own, draw = [stream for stream in streams if trained_reader(stream.cluster) == which], random.Random(which)
    for step in range(STEPS):
        pairs = []
        for stream in draw.sample(own, PAIRS):
            memories = [Shown(str(place), 0.0, text) for place, text in enumerate(shown(stream, bank(stream, draw)))]
            prompt, _ = answerer.fit(model, memories, stream.task.input, 16)
            pairs.append((prompt, model.encode_continuation(f" {stream.task.answers[0]}\n")))
        scale = min(1.0, (step + 1) / RISE) * min(1.0, 2 * (1 - step / STEPS))
        loss = learner.imitate(pairs, RATE * scale)["loss"]
        if (step + 1) % 10 == 0:
            print(f"reader {which}: step {step + 1} of {STEPS}, loss {loss:.3f}", flush=True)
    save_trained(model, named, runs / f"reader{which}")


def measured(which: int, streams: Sequence[FactStream], runs: Path) -> dict[str, Any]:
    reader, draw = frozen(runs, which), random.Random(1)
    others = [stream for stream in streams if reader_of(stream) == which and stream.number == 0]
    arms = {
        "evidence shown": lambda s: bank(s, draw),
        "none of it": lambda s: bank(s, draw, False),
        "empty": lambda s: (),
    }
    found = {}
    for name, of in arms.items():
        said = reader.answers([(stream.task.input, shown(stream, of(stream))) for stream in others])
        scores = [token_f1(answer, stream.task.answers) for answer, stream in zip(said, others, strict=True)]
        each = pooled_estimate(scores, [stream.cluster for stream in others])
        found[name] = {
            "f1": each.mean,
            "low": each.low,
            "high": each.high,
            "questions": len(others),
            "clusters": each.n,
        }
        print(f"reader {which}, {name}: F1 {each.mean:.2f} [{each.low:.2f}, {each.high:.2f}]", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/writing"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    streams = longmemeval_streams(16)
    record: dict[str, Any] = {"command": "python -m benchmarks.writing.readers", "model": MODEL, "versions": versions()}
    for which in (0, 1):
        if not (options.runs / f"reader{which}").is_dir():
            train(which, streams, options.runs)
        record[f"reader {which}"] = measured(which, streams, options.runs)
    OUT.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
