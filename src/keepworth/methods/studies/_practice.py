"""Practice of many learners side by side, of each an episode, a step and an update at a time; see `robot_loops`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from keepworth.base.needs import needs_control

import numpy as np
import torch
from torch import Tensor

from keepworth.base.arrays import Bools, Floats
from keepworth.control.replay import Columns, SequenceReplay
from keepworth.methods.studies._four_goals import (
    GOALS,
    HORIZON,
    MOVES,
    SEEN,
    SLIP,
    Walk,
    anywhere,
    begin,
    gains,
    guide,
    is_there,
    move,
    see,
    way,
)

if TYPE_CHECKING:
    from keepworth.methods.studies.robot_loops import Loop

WALKS, DEMONSTRATIONS, APART = 50, 3, 5
"""Walks without moves, and demonstrations, of each task; and the steps between two checkpoints, and within a pair at most."""
HELD, IDLE, TAU, LET_GO, PAID = 8, 8, 0.25, 0.05, 0.05
"""Steps of a correction, and those without gain before it; the temperature of weights, the share of episodes that are let go on,
and how much progress is paid."""
WIDTH, BATCH, RATE, DISCOUNT, FOLLOW, DRAWN, BEFORE = 64, 64, 2e-3, 0.97, 0.02, 0.15, 2000
"""Of the learner; the share of moves that it draws, and the updates of what is learned from walks before the first step."""


class Networks:
    """Networks of one shape, which learn side by side: two hidden layers with layer normalisation. Other weights follow slowly.

    Attributes:
        weights: Of each layer, [networks, inputs, outputs].
    """

    def __init__(self, inputs: int, outputs: int, many: int, draw: torch.Generator) -> None:
        """Draws weights, which are the same for all networks at first.

        Args:
            inputs: Numbers that a network reads.
            outputs: Numbers that it returns.
            many: Networks.
            draw: The source of the draws.
        """
        shapes = pairwise((inputs, WIDTH, WIDTH, outputs))
        drawn = [torch.randn(1, *shape, generator=draw) / shape[0] ** 0.5 for shape in shapes]
        self.weights = [weights.repeat(many, 1, 1).requires_grad_() for weights in drawn]
        self.late = [weights.detach().clone() for weights in self.weights]
        self.optimiser = torch.optim.Adam(self.weights, RATE)

    def __call__(self, x: Tensor, late: bool = False) -> Tensor:
        """Returns outputs, [networks, rows, outputs]. x: [networks, rows, inputs]; late: by the weights that follow slowly."""
        *hidden, last = self.late if late else self.weights
        for weights in hidden:
            x = torch.nn.functional.layer_norm(x @ weights, weights.shape[2:]).relu()
        outputs: Tensor = x @ last
        return outputs

    def learn(self, errors: Tensor) -> None:
        """Makes an update. errors: [networks, rows]."""
        self.optimiser.zero_grad()
        torch.autograd.backward(errors.square().mean(1).sum())
        self.optimiser.step()
        with torch.no_grad():
            for late, weights in zip(self.late, self.weights, strict=True):
                late.lerp_(weights, FOLLOW)

    def take_features(self, learned: Networks, numbers: Iterable[int | None]) -> None:
        """Takes the hidden layers of other networks. Their scale stays, which layer normalisation makes idle.

        Args:
            learned: The other networks.
            numbers: For each network which one of them; None for none.
        """
        with torch.no_grad():
            for layer, (weights, late) in enumerate(zip(self.weights[:-1], self.late, strict=False)):
                for place, number in enumerate(numbers):
                    if number is not None:
                        taken = learned.weights[layer][number]
                        weights[place] = taken * weights[place].norm() / taken.norm()
                late.copy_(weights)


def learn_values(walks: Sequence[Walk], seed: int) -> Networks:
    """Returns two networks that learned values by TD from walks without moves: in order, and each in a drawn order.

    Args:
        walks: What was seen, of which the last is paid.
        seed: Of the draws.
    """
    generator, draw = np.random.default_rng([seed, 1]), torch.Generator().manual_seed(seed)
    orders = [[walk.observations for walk in walks], [generator.permutation(walk.observations) for walk in walks]]
    here, after = (
        torch.from_numpy(np.stack([np.concatenate([seen[part] for seen in order]) for order in orders]))
        for part in (slice(-1), slice(1, None))
    )
    last = torch.cat([torch.arange(len(walk.moves)) == len(walk.moves) - 1 for walk in walks])
    networks = Networks(SEEN, 1, 2, draw)
    for _ in range(BEFORE):
        rows = torch.randint(len(last), (BATCH,), generator=draw)
        with torch.no_grad():
            goal = torch.where(last[rows], 1.0, DISCOUNT * networks(after[:, rows], late=True)[..., 0])
        networks.learn(networks(here[:, rows])[..., 0] - goal)
    return networks


def learn_progress(walks: Sequence[Walk], seed: int) -> Networks:
    """Returns two networks that learned the signed steps between two observations: as they were, and permuted among the pairs.

    Args:
        walks: What was seen. A quarter of the pairs are of two walks, between which there is no progress.
        seed: Of the draws.
    """
    draw, lengths = torch.Generator().manual_seed(seed), torch.tensor([len(walk.places) for walk in walks])
    seen, ends = torch.from_numpy(np.concatenate([walk.observations for walk in walks])), lengths.cumsum(0)
    first, last = (edges.repeat_interleave(lengths) for edges in (ends - lengths, ends - 1))
    networks, many = Networks(2 * SEEN, 1, 2, draw), 2 * BATCH
    matched = torch.arange(many) >= many // 4
    for _ in range(BEFORE):
        here = torch.randint(len(seen), (many,), generator=draw)
        gap = torch.randint(-APART, APART + 1, (many,), generator=draw)
        there = torch.minimum((here + gap).maximum(first[here]), last[here])
        progress = matched * (there - here) / APART
        there = torch.where(matched, there, there[torch.randperm(many, generator=draw)])
        goals = torch.stack([progress, progress[torch.randperm(many, generator=draw)]])
        networks.learn(networks(torch.cat([seen[here], seen[there]], -1).expand(2, -1, -1))[..., 0] - goals)
    return networks


class Practice:
    """Arms that practise side by side. Their replay has two sources for each: what it plays, and what it is shown.

    Attributes:
        loops: What each arm has.
        helped: Of each arm, the steps that somebody else made.
        late: Of each arm, whether episodes succeeded that went on after twice the steps of their task's shortest known success.
    """

    def __init__(self, seed: int, loops: Sequence[Loop], steps: int) -> None:
        """Draws walks, and learns from them what is learned before the first step.

        Args:
            seed: Of all draws.
            loops: What each arm has.
            steps: How many there will be.
        """
        self.generator, self.draw = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
        self.loops, many = loops, len(loops)
        self.shown = guide(self.generator, DEMONSTRATIONS, begin)
        walks = guide(self.generator, WALKS, anywhere)
        self.values, self.progress = Networks(SEEN, len(MOVES), many, self.draw), learn_progress(walks, seed)
        kinds = {"": None, "walks": 0, "shuffled": 1}
        self.values.take_features(learn_values(walks, seed), [kinds[loop.pretrained] for loop in loops])
        self._fill_replay(steps)
        self.tasks, self.places, self.nearest = np.zeros(many, int), np.zeros((many, 2)), np.zeros(many)
        self.age, self.limit, self.to_correct, self.idle = (np.zeros(many, int) for _ in range(4))
        self.success, self.failed = np.full((many, len(GOALS)), 0.5), np.zeros(many, bool)
        of_task = [[len(walk.moves) for walk in self.shown if walk.task == task] for task in range(len(GOALS))]
        self.shortest = np.tile([min(lengths) for lengths in of_task], (many, 1))
        self.helped, self.late = np.zeros(many), [list[bool]() for _ in loops]
        for arm in range(many):
            self.begin_episode(arm)

    def _fill_replay(self, steps: int) -> None:
        many, frames = len(self.loops), sum(len(walk.moves) for walk in self.shown)
        rings = [steps + 2] * many + [frames + steps + 2] * many
        blank = self._rows_of(self.shown[0], self.shown[0].moves)
        self.replay = SequenceReplay(blank, {str(ring): [rows] for ring, rows in enumerate(rings)})
        halves = [0.5 * bool(loop.demonstrations) for loop in self.loops]
        self.shares = {f"{arm + part * many}": (half if part else 1.0 - half) / many
                       for arm, half in enumerate(halves) for part in (0, 1)}  # fmt: skip
        for arm, loop in enumerate(self.loops):
            for walk in self.shown if loop.demonstrations else ():
                moves = self.generator.permutation(walk.moves) if loop.demonstrations == "dealt" else walk.moves
                self.replay.fill(many + arm, self._rows_of(walk, moves))

    @staticmethod
    def _rows_of(walk: Walk, moves: np.ndarray) -> Columns:
        seen, steps = torch.from_numpy(walk.observations), torch.arange(len(moves))
        last = steps == len(moves) - 1
        rows = {"seen": seen[:-1], "after": seen[1:], "moves": torch.from_numpy(moves)}
        return rows | {"paid": last.float(), "ends": last, "starts": steps == 0}

    def begin_episode(self, arm: int) -> None:
        """Begins an episode of an arm."""
        loop, draw = self.loops[arm], self.generator
        success = np.roll(self.success[arm], loop.weighted == "other")
        weight = np.exp((0.5 - success) / TAU) if loop.weighted else np.ones(len(GOALS))
        task = int(draw.choice(len(GOALS), p=weight / weight.sum()))
        shortest = np.roll(self.shortest[arm], loop.stopped == "other")[task]
        stops = loop.stopped and draw.random() >= LET_GO
        self.limit[arm] = min(HORIZON, 2 * shortest) if stops else HORIZON
        self.places[arm] = begin(draw)
        if loop.starts and self.failed[arm]:
            checkpoints = next(walk for walk in self.shown if walk.task == task).places[:-1:APART]
            self.places[arm] = draw.choice(checkpoints) if loop.starts == "checkpoints" else anywhere(draw)
        self.tasks[arm], self.age[arm], self.to_correct[arm], self.idle[arm], self.nearest[arm] = task, 0, 0, 0, np.inf

    def _end(self, arm: int, arrived: bool) -> None:
        """Takes note of an episode of an arm, and begins another."""
        task, age = self.tasks[arm], self.age[arm]
        if age > 2 * self.shortest[arm, task]:
            self.late[arm].append(arrived)
        if arrived:
            self.shortest[arm, task] = min(self.shortest[arm, task], age)
        self.success[arm, task] += 0.1 * (arrived - self.success[arm, task])
        self.failed[arm] = not arrived
        self.begin_episode(arm)

    def _choose(self, seen: Floats) -> tuple[np.ndarray, Bools]:
        """Returns the moves of all arms, and which of them a corrector makes. seen: [arms, features]."""
        many, draw = len(self.loops), self.generator
        with torch.no_grad():
            moves = self.values(torch.from_numpy(seen)[:, None])[:, 0].argmax(-1).numpy()
        drawn, others = draw.integers(len(MOVES), size=(2, many))
        moves = np.where(draw.random(many) < DRAWN, drawn, moves)
        left = way(self.tasks, self.places)
        self.idle = np.where(left < self.nearest - 0.1, 0, self.idle + 1)
        self.nearest = np.minimum(self.nearest, left)
        takes_over = (self.idle == IDLE) & (draw.random(many) < [loop.corrected for loop in self.loops])
        self.idle %= IDLE
        self.to_correct = np.where(takes_over & (self.to_correct == 0), HELD, self.to_correct)
        helped = self.to_correct > 0
        self.to_correct -= helped
        by_guide = [loop.corrector == "guide" for loop in self.loops]
        return np.where(helped, np.where(by_guide, gains(self.tasks, self.places).argmax(1), others), moves), helped

    def step(self) -> None:
        """Makes a step of each arm."""
        many, seen = len(self.loops), see(self.tasks, self.places)
        moves, helped = self._choose(seen)
        self.places = move(self.places, moves, SLIP * self.generator.standard_normal((many, 2)))
        ends, after = is_there(self.tasks, self.places), see(self.tasks, self.places)
        with torch.no_grad():
            pairs = torch.from_numpy(np.concatenate([seen, after], -1))
            progress = self.progress(pairs.expand(2, -1, -1))[..., 0].numpy()
        paid = ends.astype(np.float32)
        for number, kind in enumerate(("pairs", "permuted")):
            paid += PAID * progress[number] * [loop.progress == kind for loop in self.loops]
        columns = {"seen": seen, "after": after, "moves": moves, "paid": paid, "ends": ends, "starts": self.age == 0}
        rows = {name: torch.from_numpy(column) for name, column in columns.items()}
        self.replay.write(range(many), rows)
        if helped.any():
            of_help = {name: column[torch.from_numpy(helped)] for name, column in rows.items()}
            self.replay.write((many + np.flatnonzero(helped)).tolist(), of_help)
        self.helped += helped
        self.age += 1
        for arm in np.flatnonzero(ends | (self.age >= self.limit)):
            self._end(int(arm), bool(ends[arm]))

    def learn(self) -> None:
        """Makes an update of each arm."""
        many, columns = len(self.loops), self.replay.columns
        rows = self.replay.draw(BATCH * many, 1, 0, self.shares, self.draw).rows[:, 0].view(many, BATCH)
        seen, after, moves, paid, ends = (columns[name][rows] for name in ("seen", "after", "moves", "paid", "ends"))
        with torch.no_grad():
            best = self.values(after).argmax(-1, keepdim=True)
            following = self.values(after, late=True).gather(-1, best)[..., 0]
            goal = paid + DISCOUNT * ~ends * following
        self.values.learn(self.values(seen).gather(-1, moves[..., None])[..., 0] - goal)

    def best(self, tasks: np.ndarray, places: Floats) -> np.ndarray:
        """Returns the best moves of each arm by the weights that follow slowly, [arms, trials].

        Args:
            tasks: [arms, trials].
            places: [arms, trials, 2].
        """
        with torch.no_grad():
            return np.asarray(self.values(torch.from_numpy(see(tasks, places)), late=True).argmax(-1).numpy())
