"""StepMix: every episode keeps a floor while a policy is learned ("Near-optimal conservative exploration in reinforcement
learning under episode-wise constraints", arXiv 2306.06265).

A safe baseline policy b is known with its value. The candidate pi_h follows b in the first h steps and then the optimistic policy
of the learned model, so that pi_H is b itself. Each has a lower bound of its value, by backward induction with the worst
transitions that the data allow. An episode plays the candidate with the smallest h whose bound is at the floor or above, mixed
with the one before it:

    share = the largest with (1 - share) * low(pi_h) + share * low(pi_(h-1)) >= floor

Both the bound of a probability and the share are those by which a memory replaces one policy by another (`safe_mixing`). The
bound holds at any time: each probability of the model has its part of the allowed chance. So with a probability of 1 - `DELTA`
no episode of a run is below the floor. The values of what is played, and of the best policy, are exact, by dynamic programming
in the true world.

The floor is the baseline's value less `SLACK` of the way from the worst policy to the best. Control arms: the optimistic policy
in every episode; and bounds from counts that are those of another state and action, so that they say nothing of this one."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from keepworth.base.arrays import Bools, Floats
from keepworth.base.safe_mixing import lower_sum, safe_share
from keepworth.evaluation.study import Rows, Study, differences, rows_of
from keepworth.registry import Method

STATES, ACTIONS, STEPS = 4, 2, 4
DELTA, SLACK, EVERY = 0.05, 0.1, 25
"""The chance that a run may have an episode below the floor; the slack of the floor; and after how many episodes the policies are
made anew, between which the bounds stay as they are."""
ARMS = ("step mix", "no mixing", "counts permuted")
LEVEL = 1e-9
"""What counts as below the floor: more than the rounding of a sum."""


@dataclass
class RandomWorlds:
    """Random worlds, one for each seed: transitions [seeds, states, actions, next], rewards [seeds, states, actions], and the
    baseline, which takes the best action in half of its steps and a random one else, [seeds, steps, states, actions]."""

    seeds: int
    first_seed: int = 0
    moves: Floats = field(init=False)
    rewards: Floats = field(init=False)
    baseline: Floats = field(init=False)
    best: Floats = field(init=False)
    worst: Floats = field(init=False)

    def __post_init__(self) -> None:
        draws = [np.random.default_rng([9, self.first_seed + seed]) for seed in range(self.seeds)]
        self.moves = np.stack([draw.dirichlet(np.full(STATES, 0.3), size=(STATES, ACTIONS)) for draw in draws])
        self.rewards = np.stack([draw.random((STATES, ACTIONS)) ** 2 for draw in draws])
        self.best, greedy = self.solve(1.0)
        self.worst, _ = self.solve(-1.0)
        self.baseline = 0.5 * greedy + 0.5 / ACTIONS

    def solve(self, sign: float) -> tuple[Floats, Floats]:
        """Returns the value of the best policy (of the worst with -1) at the start, and that policy."""
        value, policy = np.zeros((self.seeds, STATES)), np.zeros((self.seeds, STEPS, STATES, ACTIONS))
        for step in reversed(range(STEPS)):
            q = self.rewards + np.einsum("ksan,kn->ksa", self.moves, value)
            policy[:, step] = np.eye(ACTIONS)[(sign * q).argmax(2)]
            value = (policy[:, step] * q).sum(2)
        return value[:, 0], policy

    def value(self, policy: Floats) -> Floats:
        """Returns the exact value of a policy at the start, in each world."""
        value = np.zeros((self.seeds, STATES))
        for step in reversed(range(STEPS)):
            value = (policy[:, step] * (self.rewards + np.einsum("ksan,kn->ksa", self.moves, value))).sum(2)
        return value[:, 0]


@dataclass
class CountedModel:
    """What was seen in the worlds of all seeds: visits [seeds, states, actions], arrivals and squared surprises [.., next]."""

    seeds: int
    visits: Floats = field(init=False)
    arrivals: Floats = field(init=False)
    squares: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.visits = np.zeros((self.seeds, STATES, ACTIONS))
        self.arrivals = np.zeros((self.seeds, STATES, ACTIONS, STATES))
        self.squares = np.zeros_like(self.arrivals)

    def see(self, state: np.ndarray, action: np.ndarray, after: np.ndarray) -> None:
        """Takes in one step of each seed.

        Args:
            state: Where it began.
            action: What was done.
            after: Where it led.
        """
        at = np.arange(self.seeds), state, action
        arrived = np.eye(STATES)[after]
        usual = (self.arrivals[at] + 1.0 / STATES) / (self.visits[at] + 1.0)[:, None]
        self.squares[at] += (arrived - usual) ** 2
        self.arrivals[at] += arrived
        self.visits[at] += 1.0

    def bounds(self) -> tuple[Floats, Floats]:
        """Returns bounds below and above each probability, which all hold at any time with a probability of 1 - DELTA."""
        chance = DELTA / (2 * STATES * ACTIONS * STATES)
        visits = np.maximum(self.visits, 1.0)[..., None]
        low = lower_sum(self.arrivals, self.squares, chance) / visits
        high = -lower_sum(-self.arrivals, self.squares, chance) / visits
        return np.clip(low, 0.0, 1.0), np.where(self.visits[..., None] > 0, np.clip(high, 0.0, 1.0), 1.0)

    def permuted(self, generator: np.random.Generator) -> CountedModel:
        """Returns the same counts under other states and actions."""
        order = generator.permutation(STATES * ACTIONS)
        other = CountedModel(self.seeds)
        for name in ("visits", "arrivals", "squares"):
            counts = getattr(self, name)
            setattr(other, name, counts.reshape(self.seeds, -1, *counts.shape[3:])[:, order].reshape(counts.shape))
        return other


def extreme(low: Floats, high: Floats, value: Floats, sign: float) -> Floats:
    """Returns the least expected value of the next state that the bounds allow; with a sign of -1 the greatest.

    Args:
        low: Bounds below each probability, [seeds, states, actions, next].
        high: Bounds above it.
        value: Of the next state, [seeds, next].
        sign: 1 for the least, -1 for the greatest.
    """
    order = np.argsort(sign * value, axis=1)[:, None, None, :]
    room = np.take_along_axis(high - low, np.broadcast_to(order, low.shape), axis=3)
    left = np.maximum(0.0, 1.0 - low.sum(3, keepdims=True)) - (np.cumsum(room, axis=3) - room)
    filled = np.clip(left, 0.0, room)
    sorted_value = np.take_along_axis(
        np.broadcast_to(value[:, None, None, :], low.shape), np.broadcast_to(order, low.shape), 3
    )
    return np.asarray((low * value[:, None, None, :]).sum(3) + (filled * sorted_value).sum(3))


def optimistic(worlds: RandomWorlds, low: Floats, high: Floats) -> Floats:
    """Returns the policy that is best if the transitions are the best ones that the bounds allow.

    Args:
        worlds: Their rewards are known.
        low: Bounds below each probability.
        high: Bounds above it.
    """
    value, policy = np.zeros((worlds.seeds, STATES)), np.zeros((worlds.seeds, STEPS, STATES, ACTIONS))
    for step in reversed(range(STEPS)):
        q = worlds.rewards + extreme(low, high, value, -1.0)
        policy[:, step] = np.eye(ACTIONS)[q.argmax(2)]
        value = (policy[:, step] * q).sum(2)
    return policy


def candidates(baseline: Floats, policy: Floats) -> Floats:
    """Returns the candidates [h, seeds, steps, states, actions]: the baseline in the first h steps, the policy afterwards."""
    steps = np.arange(STEPS)[None, :, None, None]
    return np.stack([np.where(steps < h, baseline, policy) for h in range(STEPS + 1)])


def lower_values(worlds: RandomWorlds, policies: Floats, low: Floats, high: Floats) -> Floats:
    """Returns a lower bound of the value of each candidate at the start, [h, seeds]. That of the baseline is known exactly.

    Args:
        worlds: Their rewards are known.
        policies: The candidates, the baseline last.
        low: Bounds below each probability.
        high: Bounds above it.
    """
    bounds = []
    for policy in policies[:-1]:
        value = np.zeros((worlds.seeds, STATES))
        for step in reversed(range(STEPS)):
            value = (policy[:, step] * (worlds.rewards + extreme(low, high, value, 1.0))).sum(2)
        bounds.append(value[:, 0])
    return np.stack([*bounds, worlds.value(policies[-1])])


def choose(low: Floats, floor: Floats) -> tuple[np.ndarray, Floats]:
    """Returns for each seed the smallest h whose bound is at the floor or above, and the share of the candidate before it.

    Args:
        low: Lower bounds of the candidates, [h, seeds].
        floor: Of each seed; the last candidate is never below it.
    """
    place = (low >= floor - LEVEL).argmax(0)
    here, before = (np.take_along_axis(low, p[None], 0)[0] for p in (place, np.maximum(place - 1, 0)))
    return place, np.where(place == 0, 0.0, safe_share(here, before, floor))


def play(worlds: RandomWorlds, arm: str, episodes: int) -> tuple[Bools, Floats, Floats]:
    """Learns in all worlds at once.

    Args:
        worlds: One for each seed.
        arm: One of `ARMS`.
        episodes: How many each seed has.

    Returns:
        Whether any episode was below the floor, the share of episodes that were, and the value of the last one played.
    """
    seeds, generator = worlds.seeds, np.random.default_rng([10, worlds.first_seed, ARMS.index(arm)])
    model, every = CountedModel(seeds), np.arange(seeds)
    floor = worlds.value(worlds.baseline) - SLACK * (worlds.best - worlds.worst)
    below, value = np.zeros(seeds), np.zeros(seeds)
    for episode in range(episodes):
        if episode % EVERY == 0:
            seen = model.permuted(generator) if arm == "counts permuted" else model
            low, high = seen.bounds()
            policies = candidates(worlds.baseline, optimistic(worlds, low, high))
            if arm == "no mixing":
                place, share = np.zeros(seeds, dtype=int), np.zeros(seeds)
            else:
                place, share = choose(lower_values(worlds, policies, low, high), floor)
            before = np.maximum(place - 1, 0)
            exact = np.stack([worlds.value(policy) for policy in policies])
            value = (1.0 - share) * exact[place, every] + share * exact[before, every]
        below += value < floor - LEVEL
        policy = policies[np.where(generator.random(seeds) < share, before, place), every]
        state = np.zeros(seeds, dtype=int)
        for step in range(STEPS):
            action = (
                (policy[every, step, state].cumsum(1) < generator.random(seeds)[:, None]).sum(1).clip(max=ACTIONS - 1)
            )
            odds = worlds.moves[every, state, action].cumsum(1)
            after = (odds < generator.random(seeds)[:, None]).sum(1).clip(max=STATES - 1)
            model.see(state, action, after)
            state = after
    return below > 0, below / episodes, value


def run(*, seeds: int = 200, episodes: int = 4000, first_seed: int = 0) -> Rows:
    """Measures how many runs have an episode below the floor, and what is earned in the end.

    Args:
        seeds: Random worlds, with one run in each.
        episodes: Of each run.
        first_seed: The first of the seeds.
    """
    worlds = RandomWorlds(seeds, first_seed)
    span, scores = worlds.best - worlds.worst, dict[str, list[float]]()

    def place_of(value: Floats) -> list[float]:
        return [float(place) for place in (value - worlds.worst) / span]

    for arm in ARMS:
        broken, share, value = play(worlds, arm, episodes)
        scores[f"value at the end: {arm}"] = place_of(value)
        scores[f"runs above the floor: {arm}"] = (1.0 - broken).tolist()
        scores[f"episodes above the floor: {arm}"] = (1.0 - share).tolist()
    scores["value at the end: baseline"] = place_of(worlds.value(worlds.baseline))
    scores["value at the end: best policy"] = place_of(worlds.best)
    clusters = [str(seed) for seed in range(seeds)]
    pairs = [
        ("value at the end: step mix", f"value at the end: {other}")
        for other in ("baseline", "no mixing", "best policy")
    ]
    pairs += [("runs above the floor: step mix", f"runs above the floor: {other}") for other in ARMS[1:]]
    return rows_of(scores, clusters) + differences(scores, pairs, clusters)


METHOD = Method(
    kind="study",
    name="step_mix",
    title="StepMix",
    paper="arXiv 2306.06265",
    about="Explores so that no episode is below a floor: a known policy, then the optimistic one, as early as its bound allows",
    tags=("parametric", "experiential", "formation"),
    claim="With high probability no episode is below the floor, at the order of regret without one.",
    differs=(
        "The bounds are of single probabilities, from below and above and at any time, where the paper bounds values; rewards "
        "are known; the order of the two policies inside an episode is read from a summary."
    ),
    label="small",
    make=Study(run, "value between the worst policy (0) and the best (1)"),
)
