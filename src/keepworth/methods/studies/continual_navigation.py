"""Continual navigation with replay: houses of one kind after another, and which few episodes keep the earlier kinds ("Continual
vision-and-language navigation", arXiv 2403.15049).

An instruction names two to four rooms in their order ("the bath, then the attic"). In each room the agent sees two things that
stand there and, behind each of four doors, two things of the next room; one door leads on. Which things stand in which room
differs between the `KINDS` of houses, but for every fourth name, on which all kinds agree. Some names are much rarer than others.
Who goes wrong may try again: an episode has one decision more than rooms.

    perplexity replay     keeps of each kind the episodes with the greatest exp(-(1/T) sum_t log pi(a*_t | h_t))
    self-replay           keeps episodes at random, each with the log-probabilities that the agent had at each step, and adds to
                          the loss SELF * KL(then || now) over them

After the training on a kind, `KEPT` of its `EPISODES` walks are kept (one in twenty). Each later update clones as many kept
episodes as new ones. A walk is that of a guide, who errs in a fifth of the steps; cloned is what would have been right. The agent
is a GRU that reads instruction, kind and room, and scores the doors. `success` is the share of new houses of all kinds in which
it comes through, after the last kind; `retained` is that share over the earlier kinds, less what it was just after each was
learned, plus 1.

Arms: "fine-tuning", which replays nothing; "random replay"; "perplexity replay"; "easiest episodes", whose perplexity is least;
"self-replay"; "self-replay, logits of others", whose log-probabilities are those of other episodes; "joint training" on all kinds
at once, with as many updates, as the oracle; "names that agree", a rule that knows the things of those rooms alone; and
"chance"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from keepworth.base.arrays import Floats
from keepworth.evaluation.study import Rows, Study, arms_of, differences, rows_of
from keepworth.registry import Method

if TYPE_CHECKING:
    from torch import Tensor

KINDS, NAMES, AGREE, THINGS, DOORS, LONGEST = 6, 12, 4, 24, 4, 4
"""Kinds of houses, names of rooms, every which of them all kinds agree on, things, doors, rooms of the longest instruction."""
EPISODES, KEPT, UPDATES, BATCH, WIDTH, SELF, ERRS, TESTS = 400, 20, 200, 32, 64, 1.0, 0.2, 200
OFTEN = 1.0 / np.arange(1, NAMES + 1)
"""How often each name is drawn."""
ARMS = (
    "fine-tuning",
    "random replay",
    "perplexity replay",
    "easiest episodes",
    "self-replay",
    "self-replay, logits of others",
    "joint training",
)


@dataclass
class Walks:
    """Episodes that were walked, with a row per episode and step.

    Attributes:
        seen: Instruction, kind and room, [episodes, time, ...].
        doors: The things behind the doors, [episodes, time, DOORS, THINGS].
        right: The door that leads on, [episodes, time].
        valid: Which steps there are, [episodes, time].
        logs: The log-probabilities of the doors that an agent had, [episodes, time, DOORS]; zeros where none had any.
    """

    seen: Tensor
    doors: Tensor
    right: Tensor
    valid: Tensor
    logs: Tensor

    def take(self, rows: np.ndarray) -> Walks:
        """Returns some of the episodes. rows: their numbers."""
        return Walks(*(getattr(self, column.name)[rows] for column in fields(self)))


def join(walks: Sequence[Walks]) -> Walks:
    """Returns the episodes of several walks as those of one."""
    import torch

    return Walks(*(torch.cat([getattr(of, column.name) for of in walks]) for column in fields(Walks)))


def furnish(draw: np.random.Generator) -> np.ndarray:
    """Returns which two things stand in each room of each kind, [KINDS, NAMES, THINGS]."""
    furniture = np.zeros((KINDS, NAMES, THINGS), np.float32)
    agree = np.arange(NAMES) % AGREE == 0
    places = draw.permutation(THINGS).reshape(NAMES, 2)
    for kind in range(KINDS):
        there = places.copy()
        there[~agree] = draw.permutation(there[~agree].ravel()).reshape(-1, 2)
        np.put_along_axis(furniture[kind], there, 1.0, 1)
    return furniture


class Houses:
    """Houses of one kind, walked at once."""

    def __init__(self, kind: int, furniture: np.ndarray, count: int, draw: np.random.Generator) -> None:
        """Draws instructions.

        Args:
            kind: Of the houses.
            furniture: What `furnish` returned.
            count: Houses.
            draw: The source of all draws.
        """
        self.furniture, self.draw, self.count, every = furniture[kind], draw, count, np.arange(count)
        self.lengths = draw.integers(2, LONGEST + 1, count)
        keys = np.log(OFTEN) + draw.gumbel(size=(count, NAMES))  # names without replacement, as often as OFTEN says
        self.names = np.argsort(-keys, 1)[:, :LONGEST]
        self.place, self.time = np.zeros(count, int), 0
        self.room = draw.integers(NAMES, size=count)
        steps = np.arange(LONGEST) < self.lengths[:, None]
        words = np.eye(NAMES, dtype=np.float32)[self.names] * steps[..., None]
        of_kind = np.tile(np.eye(KINDS, dtype=np.float32)[kind], (count, 1))
        self.instruction = np.concatenate([words.reshape(count, -1), of_kind], 1)
        self._open(every)

    def _open(self, every: np.ndarray) -> None:
        wanted = self.names[every, np.minimum(self.place, self.lengths - 1)]
        keys = self.draw.random((self.count, NAMES))
        keys[every, wanted], keys[every, self.room] = -1.0, 2.0
        doors = np.argsort(keys, 1)[:, :DOORS]
        order = np.argsort(self.draw.random((self.count, DOORS)), 1)
        self.behind = np.take_along_axis(doors, order, 1)
        self.right = (self.behind == wanted[:, None]).argmax(1)

    def look(self) -> tuple[Floats, Floats]:
        """Returns instruction, kind and room, [count, ...], and what is behind the doors, [count, DOORS, THINGS]."""
        return np.concatenate([self.instruction, self.furniture[self.room]], 1), self.furniture[self.behind]

    @property
    def going(self) -> np.ndarray:
        """Which houses are still walked."""
        return (self.place < self.lengths) & (self.time <= self.lengths)

    def step(self, doors: np.ndarray) -> None:
        """Goes through a door of each house. doors: their numbers."""
        every = np.arange(self.count)
        self.room = np.where(self.going, self.behind[every, doors], self.room)
        self.place = self.place + (self.going & (doors == self.right))
        self.time += 1
        self._open(every)


def walk(houses: Houses) -> Walks:
    """Returns the walks of a guide who errs in a share of the steps."""
    import torch

    rows = []
    for _ in range(LONGEST + 1):
        seen, doors = houses.look()
        rows.append((seen, doors, houses.right, houses.going))
        errs = houses.draw.random(houses.count) < ERRS
        houses.step(np.where(errs, houses.draw.integers(DOORS, size=houses.count), houses.right))
    columns = [torch.from_numpy(np.stack(column, 1)) for column in zip(*rows, strict=True)]
    return Walks(columns[0], columns[1], columns[2], columns[3], torch.zeros(columns[1].shape[:3]))


def make_agent(seed: int) -> Any:
    """Returns an agent with fresh weights, which maps what is seen and doors to log-probabilities of the doors."""
    import torch
    from torch import nn

    from keepworth.control import memory
    from keepworth.control.network import layers

    class Agent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.memory = memory("gru", LONGEST * NAMES + KINDS + THINGS, WIDTH)
            self.score = layers(WIDTH + THINGS, WIDTH, 1)

        def forward(self, seen: Tensor, doors: Tensor) -> Tensor:
            y, self.state = self.memory(seen, self.memory.initial_state(len(seen)))
            return self.judge(y, doors)

        def step(self, seen: Tensor, doors: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
            y, state = self.memory.step(seen, state)
            return self.judge(y, doors), state

        def judge(self, y: Tensor, doors: Tensor) -> Tensor:
            """Returns log-probabilities of doors, [..., DOORS]. y: what the memory made of the history."""
            history = y.unsqueeze(-2).expand(*y.shape[:-1], DOORS, WIDTH)
            scores: Tensor = self.score(torch.cat([history, doors], -1)).squeeze(-1)
            return scores.log_softmax(-1)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Agent()


def error(logs: Tensor, walks: Walks) -> Tensor:
    """Returns the mean of -log pi(a* | h) of each episode, [episodes]; its exponential is the perplexity."""
    of_steps = -logs.gather(-1, walks.right.unsqueeze(-1)).squeeze(-1) * walks.valid
    return of_steps.sum(1) / walks.valid.sum(1)


def choose(arm: str, errors: Floats, draw: np.random.Generator) -> np.ndarray:
    """Returns the numbers of the episodes that an arm keeps.

    Args:
        arm: One of `ARMS`.
        errors: The logarithm of the perplexity of each episode.
        draw: Chooses where the arm keeps them at random.
    """
    order = np.argsort(errors)
    if arm in ("perplexity replay", "easiest episodes"):
        return order[-KEPT:] if arm == "perplexity replay" else order[:KEPT]
    return draw.choice(len(errors), KEPT, replace=False)


def train(arm: str, kinds: list[Walks], tests: list[list[Houses]], seed: int, updates: int) -> tuple[float, float]:
    """Learns one kind after another; returns success at the end, and how much of the success on earlier kinds was kept.

    Args:
        arm: One of `ARMS`.
        kinds: The walks of each kind, in their order.
        tests: New houses of each kind, one set for each time that they are measured.
        seed: Of the weights and the batches.
        updates: Of each kind.
    """
    import torch

    agent, draw = make_agent(seed), np.random.default_rng([32, seed])
    optimiser = torch.optim.Adam(agent.parameters(), 3e-3)
    buffer, at_first = list[Walks](), list[float]()
    for number, walks in enumerate(kinds):
        replay = join(buffer) if buffer and arm not in ("fine-tuning", "joint training") else None
        for _ in range(updates):
            of_kind = kinds[int(draw.integers(KINDS))] if arm == "joint training" else walks
            batch = of_kind.take(draw.integers(EPISODES, size=BATCH))
            if replay:
                batch = join([batch, replay.take(draw.integers(len(replay.right), size=BATCH))])
            logs = agent(batch.seen, batch.doors)
            errors = error(logs, batch)
            loss = errors[:BATCH].mean() + (errors[BATCH:].mean() if replay else 0.0)
            if replay and arm.startswith("self-replay"):
                apart = (batch.logs.exp() * (batch.logs - logs)).sum(-1) * batch.valid
                loss = loss + SELF * (apart.sum(1) / batch.valid.sum(1))[BATCH:].mean()
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            optimiser.step()
        with torch.no_grad():
            logs = agent(walks.seen, walks.doors)
            rows = choose(arm, error(logs, walks).numpy(), draw)
            others = draw.permutation(rows) if arm.endswith("others") else rows
            buffer.append(replace(walks.take(rows), logs=logs[others]))
        at_first.append(success(agent, tests[number][0]))
    at_last = [success(agent, of_kind[1]) for of_kind in tests]
    return float(np.mean(at_last)), 1.0 + float(np.mean(np.subtract(at_last, at_first)[:-1]))


def success(agent: Any | None, houses: Houses, furniture: np.ndarray | None = None) -> float:
    """Returns the share of houses in which an agent comes through. Without an agent it is that of chance, or of a rule.

    Args:
        agent: The agent; None for none.
        houses: The houses, before the first step.
        furniture: What the rule knows of the things of rooms, [NAMES, THINGS].
    """
    import torch

    state = agent.memory.initial_state(houses.count) if agent else ()
    every = np.arange(houses.count)
    for _ in range(LONGEST + 1):
        seen, doors = houses.look()
        scores = houses.draw.random((houses.count, DOORS))
        if agent:
            with torch.no_grad():
                logs, state = agent.step(torch.from_numpy(seen), torch.from_numpy(doors), state)
            scores = logs.numpy()
        elif furniture is not None:
            wanted = furniture[houses.names[every, np.minimum(houses.place, houses.lengths - 1)]]
            scores = scores + (doors * wanted[:, None]).sum(2) - 0.5 * (doors * (1.0 - wanted[:, None])).sum(2)
        houses.step(scores.argmax(1))
    return float((houses.place == houses.lengths).mean())


def measure(seed: int, updates: int, tests: int) -> dict[str, float]:
    """Returns the numbers of each arm of a seed, which has its kinds of houses and their order.

    Args:
        seed: Of all draws.
        updates: Of each kind.
        tests: New houses of each kind.
    """
    draw = np.random.default_rng([31, seed])
    furniture = furnish(draw)
    kinds = [walk(Houses(kind, furniture, EPISODES, draw)) for kind in range(KINDS)]

    def new(which: int) -> list[list[Houses]]:
        return [
            [Houses(kind, furniture, tests, np.random.default_rng([33, seed, kind, at])) for at in range(which)]
            for kind in range(KINDS)
        ]

    numbers = dict[str, float]()
    for arm in ARMS:
        numbers[f"success: {arm}"], numbers[f"retained: {arm}"] = train(arm, kinds, new(2), seed, updates)
    agree = furniture[0] * (np.arange(NAMES) % AGREE == 0)[:, None]
    for name, knows in (("names that agree", agree), ("chance", None)):
        numbers[f"success: {name}"] = float(np.mean([success(None, of[0], knows) for of in new(1)]))
    return numbers


def run(*, seeds: int = 5, updates: int = UPDATES, tests: int = TESTS, first_seed: int = 0) -> Rows:
    """Measures success and forgetting over six kinds of houses, one after another.

    Args:
        seeds: Orders of kinds, each with houses of its own.
        updates: Of each kind.
        tests: New houses of each kind.
        first_seed: The first of the seeds.
    """
    scores = arms_of(measure(seed, updates, tests) for seed in range(first_seed, first_seed + seeds))
    clusters = [str(seed) for seed in range(seeds)]
    pairs = [
        (f"{score}: {arm}", f"{score}: {other}")
        for score in ("success", "retained")
        for arm, others in (
            ("perplexity replay", ("random replay", "easiest episodes", "fine-tuning", "joint training")),
            ("self-replay", ("random replay", "self-replay, logits of others", "fine-tuning", "joint training")),
        )
        for other in others
    ]
    successes = {name: values for name, values in scores.items() if name.startswith("success")}
    forgotten = {name: values for name, values in scores.items() if name not in successes}
    rows = rows_of(successes, clusters) + rows_of(forgotten, clusters, (0.0, 2.0))
    return rows + differences(scores, pairs, clusters)


METHOD = Method(
    kind="study",
    name="continual_navigation",
    title="Continual navigation with replay (PerpR, ESR)",
    paper="arXiv 2403.15049",
    about="Learns houses of one kind after another, and replays few hard episodes, or few with the logits that it had",
    tags=("parametric", "experiential", "evolution"),
    claim="Perplexity replay and episodic self-replay exceed earlier ways of continual learning (no number checked).",
    differs=(
        "Houses of words in the place of photographs, and a GRU that clones a guide. Each kind has an equal share of the buffer. "
        "The formulas of perplexity and of the logits' loss follow a summary; its weight is 1."
    ),
    label="small",
    extra="control",
    make=Study(run, "share of new houses of all kinds in which the agent comes through, after the last kind"),
)
