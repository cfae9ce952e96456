"""OER: learns tasks one after the other from logs, and keeps a few transitions of each such that later ones do not erase it
("OER: Offline experience replay for continual offline reinforcement learning", arXiv 2305.13804).

Tasks are goals on a grid of `SIDE` x `SIDE` cells, and the logs of each are of walks that know the way in only some of their
steps. For each task:

    1. Q-learning on its logs alone gives a policy of this task.
    2. A network, which sees the cell and the task, clones that policy; beside it, it clones what was kept of earlier tasks.
    3. Of the logs few transitions are kept: the policy is rolled out in a model that was learned from the logs, and of each step
       of the model the nearest logged transition is taken, by its cell, its action and the cell after it.

The network is the agent. Its success is measured on all tasks after the last: one episode from every cell, without
exploration. Arms: "model-based" (OER); "at random", which keeps as many logged transitions drawn evenly; "best episodes",
those of the episodes that reached the goal soonest; "another task", OER's buffers under the names of other tasks; "nothing
kept"; and "all logs", which clones all policies at once on all logged cells, as the oracle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from keepworth.base.arrays import Floats
from keepworth.evaluation.study import Rows, Study, arms_of, differences, rows_of
from keepworth.registry import Method

if TYPE_CHECKING:
    from torch import nn

SIDE, TASKS, EPISODES, LONGEST, KEPT = 7, 5, 40, 40, 40
CELLS, DISCOUNT, SLIP, KNOWS = SIDE * SIDE, 0.95, 0.1, (0.0, 0.3)
"""A step leads elsewhere with a chance of `SLIP`; a walk knows the way in a share of its steps that lies between `KNOWS`."""
MOVES = ((0, 1), (1, 0), (0, -1), (-1, 0))
ARMS = ("model-based", "at random", "best episodes", "another task", "nothing kept", "all logs")
UPDATES, BATCH = 250, 64


@dataclass(frozen=True)
class Logs:
    """Transitions of a task, one per row: the cell, the action, the cell after it, and the number of its episode."""

    cells: np.ndarray
    actions: np.ndarray
    after: np.ndarray
    episodes: np.ndarray


def move(cells: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Returns where actions lead; at the edge to the cell itself. cells: where they begin."""
    rows, columns = np.divmod(cells, SIDE)
    down, right = np.array(MOVES)[actions].T
    return np.asarray(np.clip(rows + down, 0, SIDE - 1) * SIDE + np.clip(columns + right, 0, SIDE - 1))


def learn_values(logs: Logs, goal: int) -> Floats:
    """Returns the values of actions by value iteration on the counts of logs, [cells, actions]; 0 for what was not done.

    Args:
        logs: Those of the task.
        goal: Its cell, which pays 1 and ends an episode.
    """
    counts = np.zeros((CELLS, len(MOVES), CELLS))
    np.add.at(counts, (logs.cells, logs.actions, logs.after), 1.0)
    odds = counts / np.maximum(counts.sum(2, keepdims=True), 1.0)
    q = np.zeros((CELLS, len(MOVES)))
    for _ in range(100):
        value = q.max(1)
        value[goal] = 1.0
        q = DISCOUNT * odds @ value
    return q


def walk(goal: int, generator: np.random.Generator) -> Logs:
    """Draws the logs of a task. goal: its cell."""
    rows, columns = np.divmod(np.arange(CELLS), SIDE)
    distance = np.abs(rows - goal // SIDE) + np.abs(columns - goal % SIDE)
    drawn: list[tuple[int, int, int, int]] = []
    for episode in range(EPISODES):
        cell, share = int(generator.integers(CELLS)), generator.uniform(*KNOWS)
        for _ in range(LONGEST):
            if cell == goal:
                break
            ends = move(np.full(len(MOVES), cell), np.arange(len(MOVES)))
            informed = generator.random() < share
            action = int(distance[ends].argmin()) if informed else int(generator.integers(len(MOVES)))
            slips = generator.random() < SLIP
            after = int(ends[generator.integers(len(MOVES))]) if slips else int(ends[action])
            drawn.append((cell, action, after, episode))
            cell = after
    return Logs(*np.array(drawn).T)


def keep_by_model(logs: Logs, q: Floats, goal: int, generator: np.random.Generator) -> np.ndarray:
    """Returns the rows of logs that are nearest to what the policy does in a model that was learned from them.

    Args:
        logs: Those of the task.
        q: The values of its policy.
        goal: Its cell.
        generator: Draws where an episode of the model begins, and how it goes on.
    """
    buffer: dict[int, None] = {}
    for _ in range(1000):
        cell = int(generator.choice(logs.cells))
        for _ in range(LONGEST):
            action = int(q[cell].argmax())
            seen = np.flatnonzero((logs.cells == cell) & (logs.actions == action))
            if cell == goal or not len(seen):
                break
            after = int(logs.after[generator.choice(seen)])
            away = _apart(logs.cells, cell) + _apart(logs.after, after) + 2 * (logs.actions != action)
            buffer[int(away.argmin())] = None
            if len(buffer) == KEPT:
                return np.array(list(buffer))
            cell = after
    return np.array(list(buffer))


def _apart(cells: np.ndarray, cell: int) -> np.ndarray:
    rows, columns = np.divmod(cells, SIDE)
    return np.asarray(np.abs(rows - cell // SIDE) + np.abs(columns - cell % SIDE))


def keep_best(logs: Logs, goal: int) -> np.ndarray:
    """Returns the rows of the shortest episodes that reached the goal. logs: those of the task."""
    order = []
    for episode in range(EPISODES):
        rows = np.flatnonzero(logs.episodes == episode)
        if len(rows) and logs.after[rows[-1]] == goal:
            order.append((len(rows), rows))
    best = [rows for _, rows in sorted(order, key=lambda pair: pair[0]) if len(rows)]
    return np.concatenate(best)[:KEPT] if best else np.zeros(0, dtype=int)


def clone(network: nn.Module, sources: list[tuple[int, np.ndarray, np.ndarray]], draw: np.random.Generator) -> None:
    """Trains a network on cells and actions of tasks, as much of each source.

    Args:
        network: The agent.
        sources: The task, cells and actions of each.
        draw: Draws the batches.
    """
    import torch

    optimiser = torch.optim.Adam(network.parameters(), 3e-3)
    tables = [(torch.from_numpy(inputs(cells, task)), torch.from_numpy(actions)) for task, cells, actions in sources]
    for _ in range(UPDATES):
        rows = [torch.from_numpy(draw.integers(len(actions), size=BATCH)) for _, actions in tables]
        losses = [
            torch.nn.functional.cross_entropy(network(x[row]), actions[row])
            for (x, actions), row in zip(tables, rows, strict=True)
        ]
        optimiser.zero_grad()
        torch.autograd.backward(torch.stack(losses).mean())
        optimiser.step()


def inputs(cells: np.ndarray, task: int) -> np.ndarray:
    """Returns what the network sees, [rows, CELLS + TASKS]. cells: of the rows."""
    return np.concatenate([np.eye(CELLS)[cells], np.tile(np.eye(TASKS)[task], (len(cells), 1))], 1).astype(np.float32)


def success(network: nn.Module, goals: np.ndarray, generator: np.random.Generator) -> float:
    """Returns the share of episodes, of all tasks from all cells, that reach their goal in time.

    Args:
        network: The agent.
        goals: The goal of each task.
        generator: Draws the slips.
    """
    import torch

    reached = []
    for task, goal in enumerate(goals):
        with torch.no_grad():
            actions = network(torch.from_numpy(inputs(np.arange(CELLS), task))).argmax(1).numpy()
        cells = np.arange(CELLS)
        for _ in range(LONGEST):
            slips = generator.random(CELLS) < SLIP
            tried = np.where(slips, generator.integers(len(MOVES), size=CELLS), actions[cells])
            cells = np.where(cells == goal, cells, move(cells, tried))
        reached.append((cells == goal).mean())
    return float(np.mean(reached))


def measure(seed: int) -> dict[str, float]:
    """Returns the success of each arm after the last task. seed: of tasks, logs, networks and draws."""
    import torch

    generator = np.random.default_rng([13, seed])
    goals = generator.permutation(CELLS)[:TASKS]
    logs = [walk(int(goal), generator) for goal in goals]
    values = [learn_values(of, int(goal)) for of, goal in zip(logs, goals, strict=True)]
    policies = [(task, of.cells, q[of.cells].argmax(1)) for task, (of, q) in enumerate(zip(logs, values, strict=True))]
    by_model = [keep_by_model(of, q, int(goal), generator) for of, q, goal in zip(logs, values, goals, strict=True)]
    rows = {
        "model-based": by_model,
        "at random": [generator.choice(len(of.cells), KEPT, replace=False) for of in logs],
        "best episodes": [keep_best(of, int(goal)) for of, goal in zip(logs, goals, strict=True)],
        "another task": by_model,
    }
    scores = {}
    for arm in ARMS:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = torch.nn.Sequential(torch.nn.Linear(CELLS + TASKS, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
        draw = np.random.default_rng([14, seed])
        for task in range(TASKS):
            sources = policies[: task + 1] if arm == "all logs" else [policies[task]]
            for earlier in range(task if arm in rows else 0):
                buffer, name = rows[arm][earlier], earlier
                if arm == "another task":
                    name = (earlier + 1) % task if task > 1 else earlier
                if len(buffer):
                    sources = [*sources, (name, logs[earlier].cells[buffer], logs[earlier].actions[buffer])]
            clone(network, sources, draw)
        scores[arm] = success(network, goals, np.random.default_rng([15, seed]))
    return scores


def run(*, seeds: int = 10, first_seed: int = 0) -> Rows:
    """Measures the success on all tasks after the last of them.

    Args:
        seeds: Rows of tasks, each with logs of its own.
        first_seed: The first of the seeds.
    """
    scores = arms_of(measure(seed) for seed in range(first_seed, first_seed + seeds))
    clusters = [str(seed) for seed in range(seeds)]
    return rows_of(scores, clusters) + differences(scores, [(ARMS[0], other) for other in ARMS[1:]], clusters)


METHOD = Method(
    kind="study",
    name="oer",
    title="OER",
    paper="arXiv 2305.13804",
    about="Keeps of the logs of each task the transitions that its policy would make, and clones them beside later tasks",
    tags=("parametric", "experiential", "evolution"),
    claim="Its choice of what to keep and its two policies forget less than other ways to replay in tasks of MuJoCo.",
    differs=(
        "Goals on a grid, values by counts and a small network that clones, in the place of MuJoCo and TD3+BC; distances are of "
        "cells and actions. The kept transitions are cloned as they were logged."
    ),
    label="small",
    make=Study(run, "share of episodes that reach their goal, over all tasks after the last"),
)
