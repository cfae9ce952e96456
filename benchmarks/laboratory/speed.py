"""What an update of the laboratory's model costs: 64 answers of 40 tokens to 4 questions, on one core.

    python -m benchmarks.laboratory.speed [--repeats 9] [--record]

Seconds of processor, sampling and learning apart, with one pass and all weights; the answers have a length of 40 whatever they
say, and their rewards are coins, as groups of equal rewards would teach nothing. The first update is left out. --record
writes `update.json`, from a tree without changes.
"""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np

from benchmarks.laboratory.training import MODEL, ROLE, digest, load, path_in
from benchmarks.methods.write import ASIDE, begin, measuring
from benchmarks.objectives.world import episode, segment
from benchmarks.record import arguments, save
from benchmarks.speed.setting import machine
from keepworth.models.adapter import unfreeze
from keepworth.models.inprocess import InProcessModel
from keepworth.records import Group, SamplingParams
from keepworth.training.learner import Learner, Optimisation
from keepworth.training.objective.presets import preset
from keepworth.worlds.laboratory import WORLDS

QUESTIONS, ANSWERS, TOKENS = 4, 16, 40


def measure(model: InProcessModel, repeats: int) -> dict[str, Any]:
    """Seconds of processor of each part of an update."""
    objective = preset("rloo")
    optimisation = Optimisation(learning_rate=1e-5, token_budget=8192, checkpointing="off")
    learner = Learner(model, unfreeze(model), objective, optimisation, ROLE)
    questions = [task.input for task in WORLDS["functions"].tasks("train", QUESTIONS)]
    prompts = [model.chat.opening([{"role": "user", "content": question}]) for question in questions]
    coin, seconds = random.Random(0), list[tuple[float, float]]()
    for repeat in range(repeats + 1):
        begun = time.process_time()
        drawn = model.sample(prompts, SamplingParams(TOKENS, n=ANSWERS, seed=repeat))
        sampled = time.process_time()
        groups = [
            Group(question, "", tuple(
                episode(f"{repeat}/{question}/{number}", question, [segment(prompt, sample)], float(coin.random() < 0.5))
                for number, sample in enumerate(samples)
            ))
            for question, prompt, samples in zip(questions, prompts, drawn, strict=True)
        ]  # fmt: skip
        learner.update(groups)
        seconds.append((sampled - begun, time.process_time() - sampled))
    parts = dict(zip(("sampling", "learning"), np.array(seconds[1:]).T, strict=True))
    parts["update"] = parts["sampling"] + parts["learning"]
    return {
        name: {"median": float(np.median(of)), "least": float(of.min()), "most": float(of.max())}
        for name, of in parts.items()
    }


def main() -> None:
    parser = measuring(arguments(__doc__, json=False), smallest="two repeats")
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    begin(options)
    setting = machine(1)
    seconds = measure(load(), 2 if options.smallest else options.repeats)
    record = {
        "command": "python -m benchmarks.laboratory.speed --record",
        "machine": setting,
        "model": MODEL,
        "digest": digest(),
        "repeats": options.repeats,
        "answers": QUESTIONS * ANSWERS,
        "tokens": TOKENS,
        "seconds": seconds,
    }
    ASIDE.mkdir(parents=True, exist_ok=True)
    path = path_in("update") if options.record else options.out / "laboratory-update.json"
    save(path, record)
    print(f"{ {name: round(of['median'], 2) for name, of in seconds.items()} } seconds: {path}")


if __name__ == "__main__":
    main()
