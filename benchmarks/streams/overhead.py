"""What recall and reward cost beside the embedding of the situation.

    python -m benchmarks.streams.overhead --out benchmarks/streams/results/overhead.json

One file of 100,000 cases of 100 users. Scoped: one user's memory of 1,000 cases; and another's, kept at 1,000, that has learned
from 3,000 choices before the clock starts. Unscoped: one memory over all, beside the engine's own search of the same file. Every
step is an episode of one choice: begin, recall, act, reward; each is durable
(against a killed process) before the next. Situations are embedded before the clock starts.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import keepworth
from keepworth.episodes.episode import Operation, OperationKind
from keepworth.memory.item import ItemKind, Provenance, Scope
from keepworth.memory.memory import Memory
from keepworth.memory.operations import Draft
from keepworth.memory.policy.hashed_words import HashedWords
from keepworth.methods.policies.advantage import advantage

USERS, EACH, ACTIONS = 100, 1000, 6
WORDS = [f"{a}{b}{c}" for a in "bdgklmnp" for b in ("ara", "elo", "imu", "ono") for c in "rstlnd"]


def situation(number: int, generator: np.random.Generator) -> str:
    return " ".join(WORDS[place] for place in generator.integers(0, len(WORDS), size=9)) + f" n{number % 997}"


def fill(path: Path, encoder: HashedWords) -> None:
    engine = Memory(path, encoder=encoder, log="off")
    generator = np.random.default_rng(3)
    for user in range(USERS):
        scope = Scope(user=f"u{user}")
        keys = [situation(number, generator) for number in range(EACH)]
        acts = []
        for number, key in enumerate(keys):
            action = f"action{number % ACTIONS}"
            data = {"do": [action], "avoid": [], "good": True, "born": 0, "of": 0}
            draft = Draft(ItemKind.CASE, key, scope, provenance=Provenance("own"), metadata=data, deduplicate=False)
            acts.append((Operation(OperationKind.ADD, text=f"{key} -> {action}: it worked"), draft))
        engine.store.perform(scope, acts, vectors=engine.store.encode(keys))
    engine.close()


def steps(memory: Memory, count: int, seed: int, *, before: int = 0) -> dict[str, Any]:
    """before: how many steps come first and are not measured."""
    generator = np.random.default_rng(seed)
    actions = tuple(f"action{number}" for number in range(ACTIONS))
    parts: dict[str, list[float]] = {"begin": [], "recall": [], "act": [], "reward": [], "step": [], "search": []}
    for number in range(before + count):
        text = situation(number, generator)
        memory.learning.experience.query(text, "")  # type: ignore[union-attr]
        memory.store.encode([text])
        clock = [time.perf_counter()]
        episode = memory.episode(text)
        clock.append(time.perf_counter())
        episode.search(actions=actions)
        clock.append(time.perf_counter())
        episode.act(actions[int(generator.integers(ACTIONS))])
        clock.append(time.perf_counter())
        episode.reward(float(generator.random() < 0.6))
        clock.append(time.perf_counter())
        for name, each in zip(("begin", "recall", "act", "reward"), np.diff(clock), strict=True):
            parts[name].append(each)
        parts["step"].append(clock[-1] - clock[0])
        started = time.perf_counter()
        memory.search(text, top_k=12, mode="dense")
        parts["search"].append(time.perf_counter() - started)
    kept = {name: np.array(values[before + count // 5 :]) * 1000.0 for name, values in parts.items()}
    return {
        "n": len(kept["step"]),
        "items": len(memory.experience.pool.active()),
        "choices": memory.experience.count,
        **{f"{name}_ms": {"p50": float(np.median(v)), "p95": float(np.quantile(v, 0.95))} for name, v in kept.items()},
        "recall_and_reward_ms": {"p50": float(np.median(kept["recall"] + kept["reward"]))},
        "step_less_search_ms": {"p50": float(np.median(kept["step"] - kept["search"]))},
        "recall_and_reward_less_search_ms": {"p50": float(np.median(kept["recall"] + kept["reward"] - kept["search"]))},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--before", type=int, default=3000, help="choices of the scope that has lived longest")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    encoder = HashedWords()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "experience.mem"
        started = time.perf_counter()
        fill(path, encoder)
        found["fill_seconds"] = time.perf_counter() - started
        for name, scope, capacity, before in (
            ("scope_of_1000_among_100k", {"user_id": "u7"}, 1_000_000, 0),
            ("scope_of_1000_after_3000_choices", {"user_id": "u8"}, EACH, options.before),
            ("unscoped_100k", {}, 1_000_000, 0),
        ):
            started = time.perf_counter()
            memory = Memory(path, policy=partial(advantage, capacity=capacity), encoder=encoder, **scope)  # type: ignore[arg-type]
            opened = time.perf_counter() - started
            found[name] = {"open_seconds": opened, **steps(memory, options.steps, 5, before=before)}
            memory.close()
            print(name, json.dumps(found[name], indent=1), flush=True)
    found["versions"] = {
        "keepworth": keepworth.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
    }
    options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
