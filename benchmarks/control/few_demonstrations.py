"""Whether two demonstrations decide what reinforcement learns in levels that differ from episode to episode.

    python -m benchmarks.control.few_demonstrations --json benchmarks/control/few_demonstrations.json

MiniGrid's rooms behind closed doors, and BabyAI's corridor with a locked door whose key lies in another room (`pip install
minigrid`), seen as in `benchmarks.control.bonuses`. The only reward is at the goal. In the rooms a planner that sees the whole
level demonstrates the shortest way, in the corridor BabyAI's bot; levels are drawn anew for each episode, so that those of the
demonstrations do not come again. A cell is a world, an arm and a seed: PPO with a GRU of width 64, 32 levels at a time, and so
many steps. `success` is the share of 100 episodes that reach the goal, of levels that no arm learned from, with actions drawn
from the policy. Arms: imitation of two demonstrations before the first step ("two, first"), beside each minibatch ("two,
beside"), and alone without a step of the world ("two, imitated alone"); "two, permuted" is "two, beside" with the actions of
the demonstrations dealt out anew; "none" is PPO alone. `demonstrator` is the oracle, `random` draws
actions evenly. Sizes and weights were chosen by runs with seed 0, which is no seed of the cells.
The rooms, undecided after three seeds, were given two more: --onto adds cells to those of the file.
"""

from __future__ import annotations

import itertools
import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch

from benchmarks.control.bonuses import OneHot
from benchmarks.control.cells import Row, cell_arguments, collect, spread
from keepworth.control.dials import Transition
from keepworth.control.run import TrainedAgent, play
from keepworth.registry import method

WORLDS = ("MiniGrid-MultiRoom-N2-S4-v0", "BabyAI-KeyCorridorS3R1-v0")
ARMS: dict[str, dict[str, Any]] = {
    "none": {},
    "two, first": {"before": 200, "weight": 0.0},
    "two, beside": {"before": 0, "weight": 1.0},
    "two, imitated alone": {"before": 200, "weight": 0.0},
    "two, permuted": {"before": 0, "weight": 1.0},
}
"""The settings of each arm that learns."""
BOUNDS = ("demonstrator", "random")
STEPS, EPISODES = 50_000, 100
LEFT, RIGHT, FORWARD, TOGGLE = 0, 1, 2, 5
Plan = Callable[[], int]


def make_world(name: str) -> OneHot:
    """The levels, as the agent sees them."""
    import minigrid  # noqa: F401  # registers its worlds

    return OneHot(gymnasium.make(name), static=False)


def shortest(level: Any) -> Iterator[int]:
    """The actions of a shortest way to the goal of rooms, through doors that are closed and not locked."""
    grid, goal = level.grid, tuple(level.goal_pos)
    start = (*map(int, level.agent_pos), int(level.agent_dir), frozenset[tuple[int, int]]())
    before: dict[Any, Any] = {start: None}
    queue = deque([start])
    while queue:
        at = queue.popleft()
        x, y, way, opened = at
        if (x, y) == goal:
            break
        ahead = (x + (1, 0, -1, 0)[way], y + (0, 1, 0, -1)[way])
        cell = grid.get(*ahead)
        moves = [(LEFT, (x, y, (way - 1) % 4, opened)), (RIGHT, (x, y, (way + 1) % 4, opened))]
        if cell is not None and cell.type == "door" and ahead not in opened:
            moves.append((TOGGLE, (x, y, way, opened | {ahead})))
        elif cell is None or cell.type in ("goal", "door"):
            moves.append((FORWARD, (*ahead, way, opened)))
        for action, after in moves:
            if after not in before:
                before[after] = at, action
                queue.append(after)
    actions = list[int]()
    while before[at] is not None:
        at, action = before[at]
        actions.append(action)
    return iter(actions[::-1])


def planner(world: OneHot) -> Plan:
    """Return the demonstrator of the level that a world has just begun."""
    level: Any = world.unwrapped
    if hasattr(level, "instrs"):
        from minigrid.utils.baby_ai_bot import BabyAIBot

        bot = BabyAIBot(level)
        return lambda: int(bot.replan())
    return partial(next, shortest(level))


def demonstrate(name: str, episodes: int, seed: int) -> list[list[Transition]]:
    """Demonstrations of levels."""
    world, logs = make_world(name), list[list[Transition]]()
    for episode in range(episodes):
        observation, _ = world.reset(seed=seed + episode)
        plan, log, over, cut = planner(world), list[Transition](), False, False
        while not (over or cut):
            action = plan()
            after, reward, over, cut, _ = world.step(action)
            log.append((observation, action, float(reward), after, bool(over)))
            observation = after
        logs.append(log)
    return logs


def permute(logs: list[list[Transition]], seed: int) -> list[list[Transition]]:
    """The logs with the actions of all their steps dealt out anew."""
    done = [step[1] for log in logs for step in log]
    dealt = iter(np.random.default_rng(seed).permutation(done).tolist())
    return [[(step[0], next(dealt), *step[2:]) for step in log] for log in logs]


def success(logs: Any) -> float:
    """The share of episodes that were paid."""
    return round(float(np.mean([sum(step[2] for step in log) > 0.0 for log in logs])), 3)


def measure(name: str, arm: str, seed: int, steps: int) -> Row:
    """One cell."""
    began, row = time.process_time(), {"world": name, "arm": arm, "seed": seed}
    test, taught = 1_000_000 + EPISODES * seed, 2_000_000 + 1000 * seed
    if arm == "demonstrator":
        row["success"] = success(demonstrate(name, EPISODES, test))
    else:
        settings: dict[str, Any] = {
            "seed": seed, "steps": steps, "envs": 32, "rollout": 64, "chunk": 64, "width": 64, "entropy": 0.003,
        }  # fmt: skip
        agent_of = "recurrent_ppo"
        if arm not in ("none", "random"):
            logs = demonstrate(name, 2, taught)
            row["demonstrated"] = round(float(np.mean([len(log) for log in logs])), 1)
            logs = permute(logs, seed) if arm == "two, permuted" else logs
            agent_of, settings = "il_rl", settings | {"demonstrations": logs, **ARMS[arm]}
        trainer = method("control_agent", agent_of).make(partial(make_world, name), "gru", **settings)
        if arm.endswith("alone"):
            trainer.imitate()
        elif arm != "random":
            row["curve"] = [round(float(np.mean([x > 0 for x in trainer.recent] or [0])), 2) for _ in trainer.train()]
            row["curve"] = row["curve"][:: max(1, len(row["curve"]) // 10)]
        if arm == "random":
            for weight in trainer.network.policy.parameters():
                torch.nn.init.zeros_(weight)
        agent = TrainedAgent(trainer.network, trainer.worlds)
        torch.manual_seed(seed)
        row["success"] = success(play(agent, make_world(name), EPISODES, seed=test, deterministic=False))
    return {**row, "processor": round(time.process_time() - began, 1)}


def main(words: list[str] | None = None) -> None:
    parser = cell_arguments(__doc__, steps=STEPS, worlds=WORLDS, arms=(*BOUNDS, *ARMS))
    parser.add_argument("--onto", action="store_true", help="add to the cells of the file that --json names")
    parser.set_defaults(seeds=[1, 2, 3])
    options = parser.parse_args(words)
    before = json.loads(options.json.read_text(encoding="utf-8")) if options.onto else {"cells": [], "seeds": []}
    pairs = itertools.product(options.seeds, options.worlds, options.arms)
    new = spread(measure, [(name, arm, seed, options.steps) for seed, name, arm in pairs], options.processes)
    seeds = sorted({*before["seeds"], *options.seeds})

    def report(rows: list[Row]) -> Row:
        unit = f"share of {EPISODES} episodes that reach the goal, after {options.steps:,} steps"
        return {"seeds": seeds, "unit": unit, "cells": rows}

    collect(
        "few_demonstrations",
        words,
        options.json,
        itertools.chain(before["cells"], new),
        report,
        ("torch", "gymnasium", "minigrid", "numpy"),
    )


if __name__ == "__main__":
    main()
