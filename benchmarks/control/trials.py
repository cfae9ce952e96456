"""What a memory learns of a bandit or a maze that it never saw: TrMRL beside RL2's GRU over trials of several episodes.

    python -m benchmarks.control.trials --json runs/trials.json
    python -m benchmarks.control.trials --conclude runs/trials.json

The second command writes `benchmarks/control/trials.json` and the evidence of `trmrl_ppo`. A trial: three episodes of ten steps.
`arms`: a bandit with three arms, whose chances of paying 1 are drawn evenly from 0 to 1; unlike training is one arm of .8 and two
of .2. `maze`: a tree of corridors through 3 x 3 cells, drawn for each trial, which shows the place and its walls and hides the
goal; each step on the goal pays 1, and each episode begins in the corner. One in three trees is for the test alone. Goals of
training lie in the left and the middle column; unlike training they lie in the right one. Tasks at test come from seeds that
training never saw; every arm plays the same 400 of each kind. Rewards are means of a step, in the first and the last episode.

`trmrl` sees five transitions, as published, with four layers; `trmrl:window=16,layers=1` costs as much and sees more than an
episode. `gru` is RL2's memory. Controls: `blind` has no memory and neither the action nor the reward before; `mlp` has those two
and no other memory; `forgets` is a trained network whose memory is emptied where an episode begins. Headroom: `best` knows the
task; `rule` is Thompson sampling with the prior of training, and in mazes the way to the nearest cell that was not seen, then to
the goal; `chance` acts evenly. Settings are the trainer's, but 64 worlds, width 32 (as published), rollouts as long as a trial,
8 minibatches and a learning rate of 3e-3, which was better than 1e-3 for `gru` and `trmrl` in mazes of seed 100 by the trials of
training. Sizes of both worlds were chosen by what `gru` learns with that seed. No network that was trained on
these worlds had played a test task.

The verdict, by a rule from before these seeds were run, for the window of TrMRL that earned more in the last tenth of training:

    as good       on new tasks the interval of its last episode over gru's lies above -.05;
    better        on tasks unlike training that interval lies above 0;
    remembers     on new tasks its last episode is above mlp's, and above that of `forgets`.

held: all three in both worlds; held in part: the first and the last in both, or all three in one; not held: else; not reachable
here: in neither world the last episode of gru or TrMRL is above mlp's. Intervals are over tasks, each a mean over the seeds of
training; a difference counts where it lies on this side with every seed too.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

from benchmarks.control.cells import Row, cell_arguments, collect
from benchmarks.control.probes import named
from benchmarks.methods.write import arm, gap, write
from benchmarks.record import save
from keepworth.control.network import as_tensor, start_carry
from keepworth.control.ppo import Trainer
from keepworth.control.settings import PpoSettings
from keepworth.control.trials import Trials

WIDE = "trmrl:window=16,layers=1"
MEMORIES = ("blind", "mlp", "gru", "trmrl", WIDE)
KINDS = ("new", "unlike")
SIDE, ARMS, TASKS = 3, 3, 400
MOVES = ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0))
Rule = Generator[int, tuple[Any, float], None]
Place = tuple[int, int]


class Arms(gymnasium.Env[Any, int]):
    """A bandit. unlike: whether its chances are not of training's kind."""

    observation_space, action_space = spaces.Discrete(1), spaces.Discrete(ARMS)
    episodes, length = 3, 10

    def __init__(self, kind: str) -> None:
        self.unlike = kind == "unlike"
        self.noise: np.random.Generator | None = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.noise = self.noise or np.random.default_rng([seed or 0, 1])  # not of the task: pulls of one arm differ
        draw = self.np_random
        self.chances = np.where(np.arange(ARMS) == draw.integers(ARMS), 0.8, 0.2) if self.unlike else draw.random(ARMS)
        self.time = 0
        return 0, {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return 0, float(self.noise.random() < self.chances[action]), self.time == self.length, False, {}

    def best(self) -> float:
        return float(self.chances.max())

    @staticmethod
    def rule(draw: np.random.Generator) -> Rule:
        """Thompson sampling."""
        good, bad = np.ones(ARMS), np.ones(ARMS)
        while True:
            arm = int(draw.beta(good, bad).argmax())
            _, paid = yield arm
            good[arm] += paid
            bad[arm] += 1 - paid


class Maze(gymnasium.Env[Any, int]):
    """Corridors without a circle. unlike: whether its goals are cells that are none in training."""

    observation_space, action_space = spaces.MultiDiscrete([SIDE, SIDE, 2, 2, 2, 2]), spaces.Discrete(5)
    episodes, length = 3, 10

    def __init__(self, kind: str) -> None:
        self.goals = [divmod(cell, SIDE) for cell in range(1, SIDE**2) if (cell % 3 == 2) == (kind == "unlike")]
        self.held_out = kind != "trained"

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.goal = self.goals[self.np_random.integers(len(self.goals))]
        self.open: dict[Place, list[int]] = {}
        while not self.open or (crc32(repr(sorted(self.open.items())).encode()) % 3 == 0) != self.held_out:
            self.open = {}
            self.dig((0, 0))
            self.open = {cell: sorted(moves) for cell, moves in self.open.items()}
        self.place, self.time = (0, 0), 0
        return self.show(), {}

    def dig(self, cell: Place) -> None:
        """Open ways from a cell to those around it that were not reached, in an order drawn by chance."""
        self.open.setdefault(cell, [0])
        for move in self.np_random.permutation(4) + 1:
            beyond = go(cell, move)
            if beyond not in self.open and all(0 <= at < SIDE for at in beyond):
                self.open[cell].append(int(move))
                self.open[beyond] = [0, (2, 1, 4, 3)[move - 1]]
                self.dig(beyond)

    def show(self) -> Any:
        return np.array([*self.place, *(move in self.open[self.place] for move in range(1, 5))], int)

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        self.place = go(self.place, action) if action in self.open[self.place] else self.place
        return self.show(), float(self.place == self.goal), self.time == self.length, False, {}

    def best(self) -> float:
        return (self.length - len(way((0, 0), self.open, {self.goal})) + 1) / self.length

    @staticmethod
    def rule(draw: np.random.Generator) -> Rule:
        """Walk to the nearest cell that was not seen, or to the goal where it was found."""
        seen, goal, place = dict[Place, list[int]](), set[Place](), (0, 0)
        seen[place], move = [0], 0
        while True:
            (observation, begins), paid = yield move
            place = (int(observation[0]), int(observation[1]))
            seen[place] = [0, *(np.flatnonzero(observation[2:]) + 1).tolist()]
            goal |= {place} if paid and not begins else set()
            around = {go(cell, move) for cell, moves in seen.items() for move in moves} - seen.keys()
            move = next(iter(way(place, seen, goal or around)), 0)


def go(cell: Place, move: int) -> Place:
    return cell[0] + MOVES[move][0], cell[1] + MOVES[move][1]


def way(place: Place, ways: dict[Place, list[int]], ends: set[Place]) -> list[int]:
    """The shortest moves to one of these cells; none where the place is one."""
    paths = {place: list[int]()}
    for cell, path in (queue := list(paths.items())):
        if cell in ends:
            return path
        for move in ways.get(cell, []):
            if (beyond := go(cell, move)) not in paths:
                paths[beyond] = [*path, move]
                queue.append((beyond, paths[beyond]))
    return []


WORLDS: dict[str, type[Arms] | type[Maze]] = {"arms": Arms, "maze": Maze}


def play(world: str, kind: str, act: Callable[[list[Any], list[float], bool], list[int]]) -> list[list[float]]:
    """Mean rewards of a step in each episode, [tasks, episodes]."""
    make = WORLDS[world]
    worlds = [Trials(make(kind), make.episodes) for _ in range(TASKS)]
    seen, paid, rewards = (
        [trial.reset(seed=10_000 + number)[0] for number, trial in enumerate(worlds)],
        [0.0] * TASKS,
        [],
    )
    for step in range(make.episodes * make.length):
        actions = act(seen, paid, step % make.length == 0)
        stepped = [trial.step(action) for trial, action in zip(worlds, actions, strict=True)]
        seen, paid = [now for now, *_ in stepped], [reward for _, reward, *_ in stepped]
        rewards.append(paid)
    return np.reshape(rewards, (make.episodes, make.length, TASKS)).mean(1).T.round(4).tolist()


@torch.no_grad()
def play_network(trainer: Trainer, world: str, kind: str, forgets: bool = False) -> list[list[float]]:
    """What the policy, which draws its actions, gets in trials that it does not learn from."""
    network, encode, draw = trainer.network, trainer.worlds.observations.encode, torch.Generator().manual_seed(0)
    state, action, _ = start_carry(network, TASKS)
    fresh = True

    def act(seen: list[Any], paid: list[float], begins: bool) -> list[int]:
        nonlocal state, action, fresh
        starts, fresh = torch.full((TASKS,), fresh or (forgets and begins)), False
        outputs, _, state = network.step(
            network.input(as_tensor(encode(seen)), action, torch.tensor(paid), starts), state, starts
        )
        action = network.actions.sample(outputs, network.log_std, draw)
        return network.actions.to_world(action)

    return play(world, kind, act)


def play_rules(world: str, kind: str) -> dict[str, Any]:
    """What chance, the rule, and somebody who knows the task get in the same trials."""
    draw = np.random.default_rng(0)
    rules = [WORLDS[world].rule(draw) for _ in range(TASKS)]
    for rule in rules:
        next(rule)

    def follow(seen: list[Any], paid: list[float], begins: bool) -> list[int]:
        return [rule.send((now, reward)) for rule, now, reward in zip(rules, seen, paid, strict=True)]

    best = []
    for number in range(TASKS):
        trial = Trials(made := WORLDS[world](kind), 2)
        trial.reset(seed=10_000 + number)
        best.append([made.best()] * made.episodes)
    chance = play(world, kind, lambda *_: draw.integers(ARMS if world == "arms" else len(MOVES), size=TASKS).tolist())
    return {"best": best, "rule": play(world, kind, follow), "chance": chance}


def train(world: str, word: str, seed: int, steps: int) -> Trainer:
    """Train one cell."""
    memory, of_memory = named(word)
    make, inputs = WORLDS[world], word != "blind"
    length = make.episodes * make.length
    settings = PpoSettings(
        world,
        memory if inputs else "mlp",
        of_memory,
        steps=steps,
        seed=seed,
        trial=make.episodes,
        action_input=inputs,
        reward_input=inputs,
        envs=64,
        minibatches=8,
        rollout=length,
        chunk=length,
        width=32,
        learning_rate=3e-3,
    )
    trainer = Trainer(settings, partial(make, "trained"))
    for _ in trainer.train():
        pass
    return trainer


def measure(world: str, word: str, seed: int, steps: int) -> Row:
    """Train one cell and play."""
    began = time.process_time()
    trainer = train(world, word, seed, steps)
    curve = [float(row["recent"] or 0.0) for row in trainer.curve]
    last_tenth = float(np.mean(curve[-max(1, len(curve) // 10) :])) / trainer.settings.rollout
    seconds = round(time.process_time() - began, 1)
    cell: Row = {"world": world, "memory": word, "seed": seed, "steps": trainer.curve[-1]["steps"], "seconds": seconds}
    cell["training"] = round(last_tenth, 4)
    cell |= {kind: play_network(trainer, world, kind) for kind in KINDS}
    if word not in ("blind", "mlp"):
        cell["forgets"] = play_network(trainer, world, "new", forgets=True)
    return cell


def conclude(raw: dict[str, Any]) -> None:
    """Write means of all cells, and the evidence."""
    cells = {(cell["world"], cell["memory"], cell["seed"]): cell for cell in raw["cells"]}
    seeds = sorted({seed for *_, seed in cells})
    memories = [name for name in MEMORIES if all((world, name, seed) in cells for world in WORLDS for seed in seeds)]

    def values(world: str, memory: str, kind: str) -> Any:
        """[seeds, tasks, episodes]; of who does not train one seed."""
        if memory in raw["rules"][world]["new"]:
            return np.array([raw["rules"][world][kind][memory]])
        return np.array([cells[world, memory, seed][kind] for seed in seeds])

    def compare(name: str, ours: Any, theirs: Any, above: float = 0.0) -> tuple[Row, bool]:
        """A difference over tasks, and whether it counts."""
        row = gap(name, ours.mean(0), theirs.mean(0))
        by_seed[name] = (ours - theirs).mean(1).round(4).tolist()
        return row, row["interval"][0] > above and min(by_seed[name]) > above

    by_seed: dict[str, list[float]] = {}
    windows = [name for name in memories if name.startswith("trmrl")]
    arms, comparisons, passed, reached, chosen = [], [], {}, [], {}
    for world in WORLDS:
        earned = {name: np.mean([cells[world, name, seed]["training"] for seed in seeds]) for name in windows}
        chosen[world] = mine = max(earned, key=lambda name: earned[name])
        last = {
            (name, kind): values(world, name, kind)[..., -1]
            for name in (*memories, "best", "rule", "chance")
            for kind in KINDS
        }
        arms += [arm(f"{world}, {kind}: {name}", of.mean(0)) for (name, kind), of in last.items()]
        for name in memories[2:]:
            forgets, whole = values(world, name, "forgets"), values(world, name, "new")
            arms.append(arm(f"{world}, new: {name}, forgets", forgets[..., -1].mean(0)))
            comparisons.append(compare(f"{world}, new: {name}, last over first", whole[..., -1], whole[..., 0])[0])
        tests = {
            "as good": ("new", "gru", -0.05),
            "better": ("unlike", "gru", 0.0),
            "above mlp": ("new", "mlp", 0.0),
        }
        results = {}
        for name in windows:
            for test, (kind, rival, above) in tests.items():
                label = f"{world}, {kind}: {name} over {rival}"
                row, counts = compare(label, last[name, kind], last[rival, kind], above)
                comparisons.append(row)
                results[name, test] = counts
            row, counts = compare(
                f"{world}, new: {name} over forgets", last[name, "new"], values(world, name, "forgets")[..., -1]
            )
            comparisons.append(row)
            results[name, "remembers"] = counts and results[name, "above mlp"]
        row, rival_learned = compare(f"{world}, new: gru over mlp", last["gru", "new"], last["mlp", "new"])
        comparisons.append(row)
        reached.append(rival_learned or results[mine, "above mlp"])
        passed[world] = {test: results[mine, test] for test in ("as good", "better", "remembers")}
    both = [test for test in ("as good", "better", "remembers") if all(of[test] for of in passed.values())]
    part = {"as good", "remembers"} <= set(both) or any(all(of.values()) for of in passed.values())
    verdict = "held" if len(both) == 3 else "held in part" if part else "not held"
    verdict = verdict if any(reached) else "not reachable here"
    small = [
        {
            key: np.mean(value, 0).round(4).tolist() if key in (*KINDS, "forgets") else value
            for key, value in cell.items()
        }
        for cell in raw["cells"]
    ]
    rules = {
        world: {
            kind: {name: np.mean(of, 0).round(4).tolist() for name, of in rows.items()} for kind, rows in kinds.items()
        }
        for world, kinds in raw["rules"].items()
    }
    save(Path(__file__).with_suffix(".json"), {**raw, "rules": rules, "cells": small, "by seed": by_seed})
    print(chosen, passed, reached)
    write(
        "trmrl_ppo",
        f"{raw['command']}; python -m benchmarks.control.trials --conclude runs/trials.json",
        verdict,
        "",
        model=f"networks of width 32, recurrent PPO over trials, {raw['cells'][0]['steps']:,} steps",
        n=TASKS,
        seeds=len(seeds),
        unit="mean reward of a step in the last episode of a trial; intervals over tasks, each a mean over seeds of training",
        arms=arms,
        comparisons=comparisons,
        controls=["blind", "mlp", "forgets: the memory emptied where an episode begins", "chance", "rule", "best"],
    )


def main(words: list[str] | None = None) -> None:
    parser = cell_arguments(__doc__, steps=150_000, worlds=WORLDS, memories=MEMORIES)
    parser.add_argument("--conclude", type=Path, help="the record of a run, from which to write the evidence")
    options = parser.parse_args(words)
    if options.conclude:
        conclude(json.loads(options.conclude.read_text()))
        return
    rules = {world: {kind: play_rules(world, kind) for kind in KINDS} for world in options.worlds}
    plan = itertools.product((False, True), options.seeds, options.memories, options.worlds)
    named_cells = [(world, word, seed) for wide, seed, word, world in plan if (word == WIDE) == wide]
    print(f"n = {TASKS} tasks of each kind ({KINDS}), {len(options.seeds)} seeds, {len(named_cells)} cells", flush=True)
    cells = (measure(*cell, options.steps) for cell in named_cells)

    def report(cells: list[Row]) -> Row:
        unit = "mean reward of a step in each episode of a trial; training: in the last tenth of training"
        return {"n": TASKS, "seeds": options.seeds, "unit": unit, "rules": rules, "cells": cells}

    collect("trials", words, options.json, cells, report)


if __name__ == "__main__":
    main()
