"""Labelled streams with many seeds: one decision a task, so that no file is needed in between.

    python -m benchmarks.streams.labelled --tune --data DATA --out benchmarks/streams/tuned-labelled.json
    python -m benchmarks.streams.labelled --streams banking77-clean,relations-drift --arms mixture,kernel-mean --data DATA \\
        --split held-out --seeds 100 --out benchmarks/streams/results/labelled.json

`--tune` chooses the settings of rivals on dev streams: the best mean of success while learning and frozen, over `TUNED_ON`, of
the published settings, those tuned on generated streams, and a grid. Policies, agent, noise and order are those of `keepworth
eval stream`, without the journal, which takes most of its time there; `--check` compares both. Given again it goes on: rows lie
in OUT.rows.jsonl.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from keepworth.agents.simulated import LinearAgent
from keepworth.cli.eval_stream import method_for
from keepworth.environments.scene import Scene, Stream
from keepworth.environments.streams import opened
from keepworth.memory.policy.experience import Experience
from keepworth.memory.policy.hashed_words import HashedWords
from keepworth.memory.policy.slots import Policy
from keepworth.models.encoders import encoder as open_encoder
from keepworth.rollouts.stream import LONGEST_EPISODE, run_stream


class Known:
    """An encoder that keeps its vectors."""

    def __init__(self, name: str) -> None:
        self._encoder = HashedWords() if name == "words" else open_encoder(name)
        self.identity, self._known = self._encoder.identity, dict[str, Any]()

    def encode(self, texts: Any) -> Any:
        fresh = [text for text in dict.fromkeys(texts) if text not in self._known]
        if fresh:
            self._known.update(zip(fresh, self._encoder.encode(fresh), strict=True))
        return np.stack([self._known[text] for text in texts])


@cache
def known(name: str) -> Known:
    return Known(name)


def met(stream: Stream, policy: Policy, encoder: Any, seed: int) -> tuple[float, float]:
    """Mean success over the stream, and on the held-out tasks with the memory frozen."""
    tasks = (*stream.tasks, *stream.held_out)
    noise = np.random.default_rng([41, seed]).gumbel(size=(len(tasks), 2, LONGEST_EPISODE, stream.widest))
    experience, agent = Experience(policy, encoder, seed=seed), LinearAgent()
    success = np.zeros(len(tasks))
    for number, task in enumerate(tasks):
        scene: Scene = task.environment().scene
        live = number < len(stream.tasks)
        use = experience.recall(scene.goal, scene.observation, scene.actions, frozen=not live)
        own = noise[number, 0, 0, : len(scene.actions)]
        taken = agent(scene.text, scene.actions, scene.leaning, experience.present(use), own)
        success[number] = float(taken in scene.right)
        if live:
            told = 1.0 - success[number] if task.flipped else success[number]
            experience.finish([(use, taken)], told, per_step=[told])
    return float(success[: len(stream.tasks)].mean()), float(success[len(stream.tasks) :].mean())


TUNED_ON = (
    "banking77-clean",
    "banking77-near-miss",
    "banking77-drift",
    "operations-noise",
    "subjects-clean",
    "tools-near-miss",
    "question-types-clean",
)
_SHOWN: dict[str, list[Any]] = {"failures": [True, False], "pool": [12, 48]}
GRIDS: dict[str, dict[str, list[Any]]] = {
    "kernel-mean": {"bandwidth": [0.03, 0.06, 0.1, 0.2], "keep": [1.0, 0.985], **_SHOWN},
    "kernel-mean-items": {"bandwidth": [0.05, 0.15, 0.3], "k": [1, 4]},
    "nearest-mean": {"n": [3, 5, 10, 40], **_SHOWN},
    "linucb": {"alpha": [0.0, 0.1, 0.3], "ridge": [0.1, 0.3, 1.0], "failures": [True], "pool": [48]},
    "linear-thompson": {"deviation": [0.05, 0.1, 0.2], "failures": [True, False], "pool": [48]},
    "exprag": {"failures": [True, False]},
    "remem": {"failures": [True, False]},
    "memrl": {"failures": [True, False], "pool": [5, 12], "threshold": [0.1]},
    "amem": {"failures": [True, False], "link_above": [0.6, 1.01]},
    "rememberer": {"k": [2, 4], "share": [0.0, 0.5]},
    "reme": {"k": [4]},
}


def tune(options: argparse.Namespace) -> None:
    """Settings per rival as `keepworth eval stream --tuned` reads them."""
    before = json.loads(options.tuned.read_text())["one-step"]
    found = json.loads(options.out.read_text())["one-step"] if options.out.exists() else {}
    for name, grid in GRIDS.items():
        if name in found:
            continue
        tried = [
            {},
            before[name]["settings"],
            *(dict(zip(grid, each, strict=True)) for each in itertools.product(*grid.values())),
        ]
        scored = []
        for settings in tried:
            values = [
                np.mean(
                    met(dev(stream, seed, options.data), method_for(name, {name: settings}, seed), known(encoder), seed)
                )
                for stream in TUNED_ON
                for encoder in options.encoders.split(",")
                for seed in range(options.seeds)
            ]
            scored.append(float(np.mean(values)))
        best = int(np.argmax(scored))
        found[name] = {
            "settings": tried[best],
            "objective": round(scored[best], 4),
            "published_objective": round(scored[0], 4),
        }
        found[name] |= {"configurations": len(tried), "seeds": options.seeds}
        options.out.write_text(json.dumps({"one-step": found}, indent=1, sort_keys=True) + "\n")
        print(name, found[name], flush=True)


@cache
def dev(name: str, seed: int, data: Path | None) -> Stream:
    return opened(name, split="dev", seed=seed, data=data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--streams", default="")
    parser.add_argument("--arms", default="", help="Methods; NAME+published has the settings of its paper.")
    parser.add_argument("--encoders", default="words,minilm")
    parser.add_argument("--split", default="dev")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--tuned", type=Path, default=Path("benchmarks/streams/tuned.json"))
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--check", action="store_true", help="Compare with the journalled loop.")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    if asked.tune:
        tune(asked)
        return
    tuned = {name: each["settings"] for name, each in json.loads(asked.tuned.read_text())["one-step"].items()}
    place = asked.out.with_suffix(".rows.jsonl")
    rows = [json.loads(line) for line in place.read_text().splitlines()] if place.exists() else []
    done = {(row["stream"], row["encoder"], row["seed"], row["arm"]) for row in rows}
    with place.open("a") as file:
        for seed in range(asked.first, asked.first + asked.seeds):
            for name in asked.streams.split(","):
                stream = opened(name, split=asked.split, seed=seed, data=asked.data)
                for encoder in asked.encoders.split(","):
                    for arm in asked.arms.split(","):
                        if (name, encoder, seed, arm) in done:
                            continue
                        base, _, changed = arm.partition("+")
                        settings = {} if changed == "published" else tuned
                        begun = time.process_time()
                        live, frozen = met(stream, method_for(base, settings, seed), known(encoder), seed)
                        row = {
                            "stream": name,
                            "encoder": encoder,
                            "seed": seed,
                            "arm": arm,
                            "live": live,
                            "frozen": frozen,
                        }
                        row["seconds"] = round(time.process_time() - begun, 3)
                        if asked.check:
                            made = method_for(base, settings, seed)
                            run = run_stream(
                                stream, made, LinearAgent(), known(encoder), seed=seed, measure_regret=False
                            )
                            same = (run.success.mean(), run.held_out.mean())
                            print(
                                arm,
                                name,
                                encoder,
                                seed,
                                (live, frozen),
                                same,
                                "same" if same == (live, frozen) else "OTHER",
                            )
                        file.write(json.dumps(row) + "\n")
                        file.flush()


if __name__ == "__main__":
    main()
