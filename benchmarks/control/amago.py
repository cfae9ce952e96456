"""Whether one memory that learns off-policy needs fewer steps than recurrent PPO: AMAGO on RepeatPrevious and with two goals.

    python -m benchmarks.control.amago --json benchmarks/control/amago.json

RepeatPrevious is POPGym's: of a deck of 52 cards one sees the suit of each, and names that of four cards before. Each answer
pays 1/48, or costs as much where it is wrong; the best rule without a memory draws evenly (-.5), and all right is 1. The grid has
7 by 7 cells and shows where one is and two cells to be entered, in this order, but not whether the first one was. Each pays 1 at
its time, and the episode ends with the second or after 30 steps; to go to both is 2. A cell is a world, an arm and a seed, 8,000
steps of four worlds together. `score` is the mean return of 40 episodes without exploration after them. Arms: AMAGO; recurrent
PPO with the same memory (`lru`) and two learning rates, of which the better one counts for each world; as controls AMAGO
without a memory (RepeatPrevious), and without the exchange of goals in hindsight (the grid); `chance` draws evenly. Seed 0 was
looked at first, and is no seed of the cells.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from benchmarks.control.cells import Row, cell_arguments, collect, spread
from keepworth.control.replay import Columns
from keepworth.control.run import TrainedAgent, play
from keepworth.registry import method

SUITS, CARDS, BACK = 4, 52, 4
SIDE, LIMIT = 7, 30
MOVES = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])
ENVS, STEPS, EPISODES = 4, 8000, 40
PPO = {"PPO": 2e-3, "PPO, higher rate": 5e-3}
"""Its learning rates, of which the better one counts for each world."""
ARMS = {
    "RepeatPrevious": ("AMAGO", *PPO, "without memory", "chance"),
    "two goals": ("AMAGO", *PPO, "goals as they were", "chance"),
}


class RepeatPrevious(gymnasium.Env[int, int]):
    """Shows the suits of a shuffled deck, and asks for that of some cards before."""

    observation_space = spaces.Discrete(SUITS)
    action_space = spaces.Discrete(SUITS)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.deck, self.time = self.np_random.permutation(CARDS) % SUITS, 0
        return int(self.deck[0]), {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        asks = self.time >= BACK
        right = asks and action == self.deck[self.time - BACK]
        self.time += 1
        over = self.time == CARDS
        reward = (1.0 if right else -1.0) / (CARDS - BACK) if asks else 0.0
        return int(self.deck[min(self.time, CARDS - 1)]), reward, over, False, {}


class TwoGoals(gymnasium.Env[NDArray[np.float32], int]):
    """Two cells to be entered one after the other."""

    observation_space = spaces.Box(-1.0, 1.0, (6,), np.float32)
    action_space = spaces.Discrete(len(MOVES))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        cells = self.np_random.choice(SIDE * SIDE, 3, replace=False)
        self.place, *self.goals = (np.array(divmod(int(cell), SIDE)) for cell in cells)
        self.time = self.done = 0
        return self._see(), {}

    def _see(self) -> NDArray[np.float32]:
        return (2.0 * np.concatenate([self.place, *self.goals]) / (SIDE - 1) - 1.0).astype(np.float32)

    def step(self, action: int) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        self.time += 1
        self.place = (self.place + MOVES[action]).clip(0, SIDE - 1)
        reward = float((self.place == self.goals[self.done]).all())
        self.done += int(reward)
        over = self.done == 2
        return self._see(), reward, over, not over and self.time == LIMIT, {}


WORLDS: dict[str, Any] = {"RepeatPrevious": RepeatPrevious, "two goals": TwoGoals}


def exchange(columns: Columns, draw: torch.Generator) -> Columns:
    """Of half of the episodes in windows, puts cells that were entered in the place of the goals, or of the second one alone.

    An episode of a window ends, as far as it is learned, with the step that reaches its second goal."""
    features, starts = columns["features"].clone(), columns["starts"]
    rewards, terminated, valid = (columns[name].clone() for name in ("rewards", "terminated", "valid"))
    for window in range(len(features)):
        borders = [0, *(starts[window].nonzero().ravel().tolist()), features.shape[1]]
        for first, end in itertools.pairwise(sorted(set(borders))):
            if end - first < 3 or torch.rand((), generator=draw) < 0.5:
                continue
            seen = features[window, first:end]
            one, other = sorted((torch.randperm(end - first - 1, generator=draw)[:2] + 1).tolist())
            if torch.rand((), generator=draw) < 0.5:
                seen[:, 2:4] = seen[one, :2].clone()
            seen[:, 4:6] = seen[other, :2].clone()
            there = valid[window, first : end - 1]
            pays = torch.zeros(end - first)
            reached = [((seen[1:, :2] == seen[1:, at : at + 2]).all(-1) & there).nonzero().ravel() for at in (2, 4)]
            terminated[window, first:end] = False
            if len(reached[0]):
                pays[reached[0][0]] = 1.0
                after = reached[1][reached[1] > reached[0][0]]
                if len(after):
                    last = int(after[0])
                    pays[last] = 1.0
                    terminated[window, first + last] = True
                    valid[window, first + last + 1 : end] = False
            rewards[window, first:end] = pays
    return {**columns, "features": features, "rewards": rewards, "terminated": terminated, "valid": valid}


def train(world: str, arm: str, seed: int, steps: int, **more: Any) -> Any:
    """A trainer after its run."""
    memory = "mlp" if arm == "without memory" else "lru"
    settings: dict[str, Any] = {"steps": steps, "seed": seed, "envs": ENVS, "width": 64, "memory_settings": {}}
    settings["discount"] = 0.9 if world == "two goals" else 0.5
    if arm in PPO:
        settings["learning_rate"] = PPO[arm]
        settings |= {
            "rollout": 128,
            "chunk": 64,
            "minibatches": 2,
            "epochs": 8,
            "reward_input": True,
        }
        made = method("control_agent", "recurrent_ppo").make(WORLDS[world], memory, **settings, **more)
    else:
        settings |= {
            "every": 800, "warmup": min(800, steps // 2), "ratio": 0.1, "batch": 24, "length": 40, "learning_rate": 1e-3,
            "tau": 0.02, "discounts": (0.8,) if world == "two goals" else (0.0,), "even": (1.0, 0.05, 0.5),
            "capacity": 40_000,
        }  # fmt: skip
        relabel = exchange if (world, arm) == ("two goals", "AMAGO") else None
        made = method("control_agent", "amago").make(WORLDS[world], memory, relabel=relabel, **{**settings, **more})
    list(made.train())
    return made


def measure(world: str, arm: str, seed: int, steps: int, **more: Any) -> Row:
    """One cell."""
    began, made = time.process_time(), None
    if arm == "chance":
        draw, returns, episodes = np.random.default_rng(seed), list[float](), WORLDS[world]()
        for episode in range(EPISODES):
            episodes.reset(seed=10_000 + EPISODES * seed + episode)
            total, over = 0.0, False
            while not over:
                _, reward, ended, cut, _ = episodes.step(int(draw.integers(episodes.action_space.n)))
                total, over = total + reward, ended or cut
            returns.append(total)
    else:
        made = train(world, arm, seed, steps, **more)
        agent = TrainedAgent(made.network, made.worlds)
        logs = play(agent, WORLDS[world](), EPISODES, seed=10_000 + EPISODES * seed)
        returns = [sum(step[2] for step in log) for log in logs]
    return {
        "world": world,
        "arm": arm,
        "seed": seed,
        "score": round(float(np.mean(returns)), 4),
        "curve": [round(row["recent"], 3) for row in made.curve if row["recent"] is not None] if made else [],
        "steps": made.curve[-1]["steps"] if made else 0,
        "processor": round(time.process_time() - began, 1),
    }


def main(words: list[str] | None = None) -> None:
    parser = cell_arguments(__doc__, steps=STEPS, worlds=tuple(ARMS))
    parser.set_defaults(seeds=[1, 2, 3])
    parser.add_argument("--arms", nargs="*", default=None, help="by default all of each world")
    options = parser.parse_args(words)
    pairs = [
        (world, arm, seed, options.steps)
        for seed, world in itertools.product(options.seeds, options.worlds)
        for arm in ARMS[world]
        if options.arms is None or arm in options.arms
    ]
    cells = spread(measure, pairs, options.processes)

    def report(rows: list[Row]) -> Row:
        unit = f"mean return of {EPISODES} episodes without exploration, after {options.steps:,} steps"
        return {"seeds": options.seeds, "unit": unit, "cells": rows}

    collect("amago", words, options.json, cells, report)


if __name__ == "__main__":
    main()
