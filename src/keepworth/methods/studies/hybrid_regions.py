"""Hybrid regions: a robot whose dynamics switch sets itself up before the switch so that the next controller can hold it ("Hybrid
systems neural control with region-of-attraction planner", arXiv 2303.10327).

An inverted pendulum is held at an angle by a controller whose torque is bounded. At a known time it grows heavier, and another
controller shall bring it upright. Each mode is stable alone, within a region of attraction; a state outside falls.

    x' = x + dt (speed, gravity sin(angle) - friction speed + strength u),    u = clip(K (x - x*) + what holds x*, -1, 1)

For the heavy mode a network V with V(0) = 0 learns its region from states whose fate was simulated: V falls along trajectories
that come upright, is below 1 there and above 1 elsewhere. The level c is the largest such that all fresh states with V <= c come
upright. Before the switch, a planner moves the set-point x* of the first mode away from the wanted angle, by gradients through
the dynamics, until V at the switch is below c.

A system's score is 1 - |x* - wanted| / wanted where the pendulum comes upright, and 0 where it falls. Arms: "planner"; "wanted
angle", which plans nothing; "upright", which gives up the wanted angle; "quadratic region", the planner with the cost-to-go of
a linear regulator in the place of V (its level is found in the same way); "region of the light mode", which is the wrong one;
and "oracle", the best of many set-points by simulation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from keepworth.base.arrays import Floats
from keepworth.evaluation.study import Rows, Study, arms_of, differences, rows_of
from keepworth.registry import Method

if TYPE_CHECKING:
    from torch import Tensor

    Level = Callable[[Tensor], Tensor]
    """Maps states, [..., 2], to numbers that are at most 1 in a region."""

TIME, DWELL, SETTLE = 0.05, 40, 120
"""Seconds of a step, the steps before the switch, and those after it in which the pendulum has to come upright."""
STATES, UPDATES, TRIES = 1500, 300, 40
RANGE = (1.2, 3.0)
"""The greatest angle and speed of the states whose fate is simulated."""
UPRIGHT = 0.1
ARMS = ("planner", "wanted angle", "upright", "quadratic region", "region of the light mode", "oracle")


@dataclass(frozen=True)
class Mode:
    """Dynamics and the controller for them.

    Attributes:
        gravity: What pulls the pendulum down.
        friction: What slows it.
        strength: What the greatest torque does.
        gain: K of the controller, for angle and speed.
    """

    gravity: float
    friction: float
    strength: float
    gain: tuple[float, float]

    def step(self, state: Tensor, target: Tensor | float = 0.0) -> Tensor:
        """Returns the states after a step, [..., 2]. target: the angle that the controller holds."""
        import torch

        angle, speed = state.unbind(-1)
        goal = torch.as_tensor(target)
        torque = self.gain[0] * (angle - goal) + self.gain[1] * speed - self.gravity / self.strength * torch.sin(goal)
        pull = self.gravity * torch.sin(angle) - self.friction * speed + self.strength * torque.clamp(-1.0, 1.0)
        after = speed + TIME * pull
        return torch.stack([angle + TIME * after, after], -1)

    def comes_upright(self, state: Tensor) -> Tensor:
        """Returns which states the controller brings upright, [...], by simulation."""
        for _ in range(SETTLE):
            state = self.step(state)
        return (state.abs() < UPRIGHT).all(-1)


@dataclass(frozen=True)
class Switching:
    """A light mode, a heavy one, the state at the beginning, and the angle that is wanted until the switch."""

    light: Mode
    heavy: Mode
    start: tuple[float, float]
    wanted: float

    def at_switch(self, targets: Tensor) -> Tensor:
        """Returns the states at the switch for set-points, [..., 2]."""
        import torch

        state = torch.tensor(self.start).expand(*targets.shape, 2)
        for _ in range(DWELL):
            state = self.light.step(state, targets)
        return state

    def score(self, target: float) -> float:
        """Returns how near a set-point is to the wanted angle, and 0 where the pendulum falls after the switch."""
        return max(0.0, 1.0 - abs(target - self.wanted) / self.wanted) if self.stands(target) else 0.0

    def stands(self, target: float) -> bool:
        """Returns whether the pendulum comes upright after the switch from a set-point."""
        import torch

        return bool(self.heavy.comes_upright(self.at_switch(torch.tensor(target))))


def draw_system(generator: np.random.Generator) -> Switching:
    """Draws a system whose wanted angle the light mode can hold."""

    def mode(strength: float, gravity: float) -> Mode:
        friction = float(generator.uniform(0.1, 0.5))
        gain = np.asarray(regulator(gravity, friction, strength)[0])
        return Mode(gravity, friction, strength, (float(gain[0]), float(gain[1])))

    light = mode(float(generator.uniform(8.0, 10.0)), float(generator.uniform(4.0, 6.0)))
    heavy = mode(float(generator.uniform(4.0, 6.0)), float(generator.uniform(9.0, 12.0)))
    start = float(generator.uniform(-0.3, 0.3)), float(generator.uniform(-0.3, 0.3))
    return Switching(light, heavy, start, float(generator.uniform(0.5, 0.9)))


def regulator(gravity: float, friction: float, strength: float) -> tuple[Floats, Floats]:
    """Returns the gain of the linear quadratic regulator around upright, and the matrix of its cost-to-go.

    Args:
        gravity: What pulls the pendulum down.
        friction: What slows it.
        strength: What the greatest torque does.
    """
    from scipy.linalg import solve_discrete_are

    move = np.array(
        [[1.0 + TIME**2 * gravity, TIME * (1.0 - TIME * friction)], [TIME * gravity, 1.0 - TIME * friction]]
    )
    push = np.array([[TIME**2 * strength], [TIME * strength]])
    cost = solve_discrete_are(move, push, np.diag([1.0, 0.1]), np.eye(1))
    gain = -np.linalg.solve(np.eye(1) + push.T @ cost @ push, push.T @ cost @ move)[0]
    return gain, cost


def draw_states(count: int, seed: int) -> Tensor:
    """Draws states whose fate is simulated, [count, 2]. seed: of the draws."""
    import torch

    draw = torch.Generator().manual_seed(seed)
    return (2.0 * torch.rand(count, 2, generator=draw) - 1.0) * torch.tensor(RANGE)


def within_level(value: Level, mode: Mode, seed: int) -> Level:
    """Returns a value divided by the largest level below which all fresh states come upright.

    Args:
        value: Of a state, lowest when upright.
        mode: The dynamics that decide which states come upright.
        seed: Of the fresh states.
    """
    import torch

    states = draw_states(STATES, seed)
    with torch.no_grad():
        falls = value(states)[~mode.comes_upright(states)]
        level = float(falls.min()) if len(falls) else 1.0
    return lambda state: value(state) / max(level, 1e-6)


def learn_region(mode: Mode, seed: int) -> Level:
    """Returns the region of a mode by a network, which is learned from states whose fate is simulated.

    Args:
        mode: The dynamics whose region it is.
        seed: Of the network and of the states.
    """
    import torch
    from torch import nn

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 8))
    states, scale = draw_states(STATES, seed), 1.0 / torch.tensor(RANGE)
    with torch.no_grad():
        stands, after = mode.comes_upright(states), mode.step(states)

    def value(state: Tensor) -> Tensor:
        squares: Tensor = (network(state * scale) - network(torch.zeros(2))).square().sum(-1)
        return squares + 0.1 * (state * scale).square().sum(-1)

    optimiser = torch.optim.Adam(network.parameters(), 5e-3)
    draw = torch.Generator().manual_seed(seed)
    for _ in range(UPDATES):
        rows = torch.randint(STATES, (256,), generator=draw)
        here, ahead, good = value(states[rows]), value(after[rows]), stands[rows]
        rising = (ahead - here + 0.02 * here.detach()).relu() * good
        misplaced = torch.where(good, (here - 0.8).relu(), (1.2 - here).relu())
        optimiser.zero_grad()
        torch.autograd.backward((rising + misplaced).mean())
        optimiser.step()
    return within_level(value, mode, seed + 1)


def quadratic_region(mode: Mode, seed: int) -> Level:
    """Returns the region of a mode by the cost-to-go of its linear regulator.

    Args:
        mode: The dynamics whose region it is.
        seed: Of the states by which its level is found.
    """
    import torch

    cost = torch.tensor(regulator(mode.gravity, mode.friction, mode.strength)[1], dtype=torch.float32)
    return within_level(lambda state: torch.einsum("...i,ij,...j->...", state, cost, state), mode, seed)


def plan(system: Switching, region: Level) -> float:
    """Returns the set-point nearest to the wanted angle that gradients find, whose state at the switch is within a region.

    Args:
        system: The system, whose light mode is known.
        region: That of the heavy mode.
    """
    import torch

    target = torch.tensor(system.wanted, requires_grad=True)
    optimiser, best = torch.optim.Adam([target], 0.05), None
    for _ in range(TRIES):
        level = region(system.at_switch(target))
        if float(level.detach()) <= 0.95:
            distance = abs(float(target.detach()) - system.wanted)
            best = float(target.detach()) if best is None or distance < abs(best - system.wanted) else best
        optimiser.zero_grad()
        torch.autograd.backward(10.0 * (level - 0.9).relu() + (target - system.wanted).square())
        optimiser.step()
    return float(target.detach()) if best is None else best


def measure(seed: int) -> dict[str, float]:
    """Returns the scores of the arms in one system. seed: of the system."""
    import torch

    system = draw_system(np.random.default_rng([12, seed]))
    targets = torch.linspace(-0.2, 1.0, 241) * system.wanted
    with torch.no_grad():
        good = targets[system.heavy.comes_upright(system.at_switch(targets))]
    chosen = {
        "planner": plan(system, learn_region(system.heavy, 3 * seed)),
        "wanted angle": system.wanted,
        "upright": 0.0,
        "quadratic region": plan(system, quadratic_region(system.heavy, 3 * seed + 2)),
        "region of the light mode": plan(system, learn_region(system.light, 3 * seed)),
        "oracle": float(good[(good - system.wanted).abs().argmin()]) if len(good) else 0.0,
    }
    scores = {arm: system.score(target) for arm, target in chosen.items()}
    return scores | {f"stands: {arm}": float(system.stands(target)) for arm, target in chosen.items()}


def run(*, seeds: int = 20, first_seed: int = 0) -> Rows:
    """Measures how near to the wanted angle each arm stays without a fall.

    Args:
        seeds: Random systems.
        first_seed: The first of them.
    """
    scores = arms_of(measure(seed) for seed in range(first_seed, first_seed + seeds))
    clusters = [str(seed) for seed in range(seeds)]
    pairs = [("planner", other) for other in ARMS[1:]] + [("stands: planner", "stands: wanted angle")]
    return rows_of(scores, clusters) + differences(scores, pairs, clusters)


METHOD = Method(
    kind="study",
    name="hybrid_regions",
    title="Hybrid regions",
    paper="arXiv 2303.10327",
    about="Sets a robot up before its dynamics switch, such that the next controller's learned region holds it",
    tags=("parametric", "experiential", "formation"),
    claim="It is more often stable than controllers that ignore the switch, and 10 to 50 times faster than predictive control.",
    differs=(
        "An inverted pendulum of two modes with regulators of bounded torque in the place of a car, a pogo stick and a walker "
        "with learned controllers; the time of the switch is known, and no time is measured."
    ),
    label="small",
    make=Study(run, "closeness to the wanted angle without a fall, and share that stands"),
)
