"""What is learned from logs of a half-trained policy: a pendulum whose speed is not shown.

    python -m benchmarks.control.from_logs --json benchmarks/control/from_logs.json
    python -m benchmarks.control.from_logs --alone --json benchmarks/control/logs_alone.json

The world is that of `benchmarks.control.off_policy`. For each seed RSAC learns for 2,000 decisions, with an update for each,
and then plays 40 episodes of 50 decisions with the noise of its policy. A cell is an arm and a seed; "the logs" is that policy
itself. A `score` is a mean return of ten episodes without exploration, but as said below.

Logs first and then the world: 1,000 updates from these episodes by SAC with imitation and the conservative loss, and after them
600 decisions of SAC alone, with an update for each. WSRL plays the first 200 with the policy of the logs and learns nothing
meanwhile; it does not keep the logs. "without warm-up" learns at once, and does not keep the logs either. "logs kept" learns at
once from batches of which half are logs. "without logs" is RSAC from nothing, whose first 200 decisions are drawn evenly. After
every 100 decisions five episodes are played without exploration: `before` is their mean return after the logs, `dip` how far
the worst of the first five means lies below it, and `score` the mean of the last three.

Logs alone (--alone): the same episodes and 40 of actions drawn evenly, and 1,000 updates. BC imitates all of it; IQL and CQL
have all rewards. "a tenth" is IQL with the eight episodes alone that were drawn to have labels; "rewards filled in" and
"actions filled in" are IQL with all episodes, where the others' rewards or actions are those that a network learned from the
eight; "rewards permuted" is IQL with the rewards of all steps dealt out anew. `explained` is the share of the variance that the
network explains on the steps that it filled in. The settings were chosen by runs with seed 0, which is no seed of the cells.
With --onto the cells of the file are kept.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch

from benchmarks.control.cells import Row, cell_arguments, collect
from benchmarks.control.off_policy import make_world
from keepworth.control.dials import Transition, behave
from keepworth.control.labels import fill_in
from keepworth.control.off_policy import OffPolicyTrainer
from keepworth.control.replay import PLAY
from keepworth.control.run import TrainedAgent, play
from keepworth.control.settings import OffPolicySettings

FIRST: dict[str, dict[str, Any]] = {
    "WSRL": {"warmup": 200, "shares": {PLAY: 1.0}},
    "without warm-up": {"warmup": 0, "shares": {PLAY: 1.0}},
    "logs kept": {"warmup": 0, "shares": {PLAY: 0.5, "logs": 0.5}},
    "without logs": {"warmup": 200},
}
"""The settings of each arm that goes on in the world."""
CAREFUL: dict[str, Any] = {"clone": 20.0, "clone_source": "logs", "conservative": 5.0}
ALONE: dict[str, dict[str, Any]] = {
    "BC": {"learner": "bc"},
    "IQL": {"learner": "iql"},
    "CQL": {"conservative": 1.0},
    "a tenth": {"learner": "iql"},
    "rewards filled in": {"learner": "iql"},
    "actions filled in": {"learner": "iql"},
    "rewards permuted": {"learner": "iql"},
}
"""The settings of each arm that learns from logs alone."""
LOGGED, UPDATES, ONLINE, EVERY = 40, 1000, 600, 100
"""Episodes of logs, updates from them, decisions in the world, and those between two evaluations."""
LABELLED = 8
"""Episodes with labels, of twice as many as `LOGGED`."""
WORLD = "RSAC"
"""The arm of `benchmarks.control.off_policy` whose world it is."""
BASE = OffPolicySettings(
    "pendulum", "gru", ratio=1.0, width=64, batch=32, length=12, learning_rate=2e-3, tau=0.02, discount=0.95,
    every=EVERY, steps=2000, warmup=400,
)  # fmt: skip


@cache
def teacher(seed: int) -> tuple[tuple[tuple[Transition, ...], ...], float]:
    """The logs of a half-trained policy, and what it earns without exploration."""
    trainer = OffPolicyTrainer(replace(BASE, seed=1000 + seed), lambda: make_world(WORLD))
    list(trainer.train())
    agent = TrainedAgent(trainer.network, trainer.worlds)
    torch.manual_seed(seed)
    episodes = play(agent, make_world(WORLD), LOGGED, seed=20_000 + LOGGED * seed, deterministic=False)
    return tuple(map(tuple, episodes)), evaluate(trainer, 10)


@cache
def taught(seed: int, updates: int) -> dict[str, Any]:
    """SAC with imitation and the conservative loss, after its updates from logs."""
    settings = replace(BASE, seed=seed, steps=0, warmup=0, logged=updates, **CAREFUL)
    trainer = OffPolicyTrainer(settings, lambda: make_world(WORLD), {"logs": teacher(seed)[0]})
    list(trainer.train())
    return trainer.save()


def evaluate(trainer: OffPolicyTrainer, episodes: int) -> float:
    """The mean return of episodes without exploration."""
    agent = TrainedAgent(trainer.network, trainer.worlds)
    played = play(agent, make_world(WORLD), episodes, seed=10_000)
    return round(float(np.mean([sum(step[2] for step in episode) for episode in played])), 1)


def measure(arm: str, seed: int, updates: int, online: int) -> Row:
    """One cell."""
    began = time.process_time()
    row: Row = {"arm": arm, "seed": seed}
    if arm == "the logs":
        paid = [sum(step[2] for step in episode) for episode in teacher(seed)[0]]
        row |= {"score": teacher(seed)[1], "logged": round(float(np.mean(paid)), 1)}
    else:
        row |= go_on(arm, seed, updates, online) if arm in FIRST else learn_alone(arm, seed, updates)
    return {**row, "processor": round(time.process_time() - began, 1)}


def go_on(arm: str, seed: int, updates: int, online: int) -> Row:
    """A cell of those that go on in the world."""
    first = arm != "without logs"
    fields = {"seed": seed, "steps": online, "logged": updates if first else 0, **(CAREFUL if first else {})}
    logs = {"logs": teacher(seed)[0]} if first else {}
    trainer = OffPolicyTrainer(replace(BASE, **fields | FIRST[arm]), lambda: make_world(WORLD), logs)
    if first:
        trainer.load(taught(seed, updates))
    before = evaluate(trainer, 5)
    means = [evaluate(trainer, 5) for _ in trainer.train()]
    return {
        "score": round(float(np.mean(means[-3:])), 1),
        "before": before,
        "dip": round(before - min(means[:5]), 1),
        "means": [round(mean) for mean in means],
    }


def learn_alone(arm: str, seed: int, updates: int) -> Row:
    """A cell of those that learn from logs alone."""
    draw, row = np.random.default_rng(seed), {}
    world = make_world(WORLD)
    aimless = behave(world, "conservative", lambda seen: world.action_space.sample(), LOGGED, 30_000 + LOGGED * seed)
    episodes: list[Any] = [*teacher(seed)[0], *aimless]
    labelled = set(draw.permutation(len(episodes))[:LABELLED].tolist())
    whole = [step for number, episode in enumerate(episodes) if number not in labelled for step in episode]
    if arm == "a tenth":
        episodes = [episodes[number] for number in sorted(labelled)]
    elif arm == "rewards permuted":
        dealt = iter(draw.permutation([step[2] for episode in episodes for step in episode]).tolist())
        episodes = [[(*step[:2], next(dealt), *step[3:]) for step in episode] for episode in episodes]
    elif arm.endswith("filled in"):
        place = 1 if arm.startswith("actions") else 2
        gaps = [
            [(*step[:place], None if number not in labelled else step[place], *step[place + 1 :]) for step in episode]
            for number, episode in enumerate(episodes)
        ]
        episodes = fill_in(gaps, world.observation_space, world.action_space, seed=seed).episodes
        made = [step for number, episode in enumerate(episodes) if number not in labelled for step in episode]
        true, filled = (np.array([np.ravel(step[place])[0] for step in steps]) for steps in (whole, made))
        row["explained"] = round(float(1 - np.square(filled - true).mean() / true.var()), 3)
    usual = dict.fromkeys(("critics", "delay", "temperature", "tune", "conservative"))  # of each learner by itself
    settings = replace(BASE, **{"seed": seed, "steps": 0, "warmup": 0, "logged": updates, **usual, **ALONE[arm]})
    trainer = OffPolicyTrainer(settings, lambda: make_world(WORLD), {"logs": episodes})
    list(trainer.train())
    return {**row, "score": evaluate(trainer, 10)}


def main(words: list[str] | None = None) -> None:
    parser = cell_arguments(__doc__, steps=ONLINE, arms=())
    parser.add_argument(
        "--alone", action="store_true", help="the arms that learn from logs alone, instead of the others"
    )
    parser.add_argument("--onto", action="store_true", help="keep the cells of the file that --json names")
    parser.add_argument("--updates", type=int, default=UPDATES, help="from logs")
    parser.set_defaults(seeds=[1, 2, 3])
    options = parser.parse_args(words)
    arms = options.arms or (ALONE if options.alone else ("the logs", *FIRST))
    kept_cells = json.loads(options.json.read_text(encoding="utf-8"))["cells"] if options.onto else []
    measured = {(cell["arm"], cell["seed"]): cell for cell in kept_cells}

    def cells() -> Iterator[Row]:
        pairs = itertools.product(options.seeds, arms)
        for seed, arm in sorted(pairs, key=lambda pair: pair[1] == "CQL"):  # which takes the longest
            yield measured.get((arm, seed)) or measure(arm, seed, options.updates, options.steps)

    def report(rows: list[Row]) -> Row:
        return {"seeds": options.seeds, "unit": "mean return of episodes without exploration", "cells": rows}

    collect("from_logs", words, options.json, cells(), report, ("torch", "gymnasium", "numpy"))


if __name__ == "__main__":
    main()
