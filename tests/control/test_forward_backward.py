"""Forward-backward: its losses by hand, and tasks that are named after everything was learned."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import gymnasium
import pytest
import torch

from keepworth.control.dials import Transition, behave
from keepworth.control.errors import SpaceError
from keepworth.control.run import TrainedAgent, play
from keepworth.control.settings import SettingError
from keepworth.methods.control.forward_backward import (
    conservative_loss,
    draw_tasks,
    measure_loss,
    of_action,
    on_sphere,
    orthonormal_loss,
)
from keepworth.registry import method
from tests.control.resumed import check_resumed_weights
from tests.control.worlds import Slope

SMALL: dict[str, Any] = {
    "every": 300, "updates": 300, "width": 32, "batch": 8, "length": 10, "learning_rate": 3e-3, "tau": 0.05, "discount": 0.8,
    "size": 6, "action_input": False,
}  # fmt: skip


class Ring(gymnasium.Env[Any, int]):
    """Six places in a ring. Actions stay, go on or go back; nothing is paid."""

    observation_space = gymnasium.spaces.Discrete(6)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.time = int(self.np_random.integers(6)), 0
        return self.place, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.place, self.time = (self.place + (0, 1, -1)[action]) % 6, self.time + 1
        return self.place, 0.0, False, self.time == 10, {}


def log(episodes: int) -> list[list[Transition]]:
    world = Ring()
    return list(behave(world, "conservative", lambda seen: world.action_space.sample(), episodes))


@pytest.mark.parametrize("name", ["forward_backward", "conservative_forward_backward"])
def test_policies_of_tasks_that_are_named_afterwards_stay_at_their_places(name: str) -> None:
    logs = log(60)
    bare = [[(*step[:2], None, *step[3:]) for step in episode] for episode in logs]
    trainer = method("control_agent", name).make(Ring, "mlp", logs={"logs": bare}, **SMALL)
    list(trainer.train())
    shares = list[float]()
    for place in range(6):
        trainer.name_task([[(*step[:2], float(step[3] == place), *step[3:]) for step in episode] for episode in logs])
        played = play(TrainedAgent(trainer.network, trainer.worlds), Ring(), 10, seed=place)
        shares += [float(step[3] == place) for episode in played for step in episode[5:]]
    assert sum(shares) / len(shares) > 0.5  # chance is a sixth


def test_losses_by_hand() -> None:
    """M = [[1, 2], [3, 4]], M' = [[5, 1], [2, 5]], gamma = .5: 1/2 ((2 - .5)^2 + (3 - 1)^2) / 2 - (1 + 4) / 2. For B = (1,
    0), (1, 1) both products off the diagonal are 1, and those on it 1 and 2: 1 - 2 * 1.5."""
    measure, target = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[5.0, 1.0], [2.0, 5.0]])
    assert float(measure_loss(measure, target, 0.5)) == pytest.approx((1.5**2 + 2.0**2) / 4 - 2.5)
    assert float(orthonormal_loss(torch.tensor([[1.0, 0.0], [1.0, 1.0]]))) == pytest.approx(1.0 - 3.0)


def test_conservative_loss_by_hand() -> None:
    """Of two choices with F = (1, 0), (0, 2) and z = (1, 1) the values are 1 and 2; done was the first: log(e + e^2) - 1."""
    every, z = torch.tensor([[[[1.0, 0.0], [0.0, 2.0]]]]), torch.ones(1, 2)
    loss = conservative_loss(every, every[:, :, 0], z)
    assert float(loss) == pytest.approx(math.log(math.e + math.e**2) - 1.0)


def test_conservative_values_of_choices_that_no_log_has_are_lower() -> None:
    """Nobody goes back in these logs: without conservative values that choice's value is whatever the network began with."""
    world = Ring()
    logs = list(behave(world, "conservative", lambda seen: int(world.action_space.sample()) % 2, 20))
    gaps = list[float]()
    for weight in (0.0, 1.0):
        make = method("control_agent", "conservative_forward_backward").make
        small = SMALL | {"updates": 30, "every": 30}
        trainer = make(Ring, "mlp", logs={"logs": logs}, conservative=weight, **small)
        list(trainer.train())
        trainer.name_task([[(*step[:2], float(step[3] == 0), *step[3:]) for step in episode] for episode in logs])
        x = torch.eye(6).unsqueeze(1)
        values, _, _ = trainer.network.step(x[:, 0], trainer.network.memory.initial_state(6), torch.ones(6).bool())
        gaps.append((values[:, 2] - values[:, :2].mean(1)).mean().item())
    assert gaps[1] < min(gaps[0], 0.0)


def test_least_loss_is_the_successor_measure() -> None:
    """Of a chain of two places that change at each step, M = P (I - gamma P)^-1 / rho: gradients of the loss in expectation
    vanish."""
    moves, gamma = torch.tensor([[0.0, 1.0], [1.0, 0.0]]), 0.5
    right = moves @ torch.linalg.inv(torch.eye(2) - gamma * moves) / 0.5
    measure = right.clone().requires_grad_()
    target = moves @ right
    # In expectation over pairs: 1/2 sum_{s, s'} rho rho (M - gamma P M)^2 - sum_s rho sum_s' P M
    loss = 0.5 * (0.25 * (measure - gamma * target).square()).sum() - (0.5 * moves * measure).sum()
    (gradient,) = torch.autograd.grad(loss, measure)
    assert gradient.abs().max() < 1e-6


def test_tasks_lie_on_a_sphere_and_choices_are_taken_out() -> None:
    after = torch.randn(8, 4)
    z = draw_tasks(after, 4, torch.Generator().manual_seed(0))
    torch.testing.assert_close(z.norm(dim=1), torch.full((8,), 2.0))
    nearest = (z[1::2] @ on_sphere(after).T).amax(1)
    torch.testing.assert_close(nearest, torch.full((4,), 4.0))  # every second one is B of a row
    forward = torch.arange(2 * 3 * 2 * 4.0).view(2, 3, 2, 4)
    taken = of_action(forward, torch.tensor([0, 1, 1]))
    assert torch.equal(taken, torch.stack([forward[:, 0, 0], forward[:, 1, 1], forward[:, 2, 1]], 1))


def test_a_run_that_was_stopped_goes_on_to_the_same_weights() -> None:
    make = partial(
        method("control_agent", "forward_backward").make, Ring, "gru", **SMALL | {"updates": 20, "every": 10}
    )
    check_resumed_weights(lambda: make(logs={"logs": log(10)}), "network", "backward")


def test_settings_that_do_not_fit_are_named() -> None:
    make = method("control_agent", "forward_backward").make
    with pytest.raises(SettingError, match="size = 1 tells no two tasks apart"):
        make(Ring, "mlp", logs={"logs": log(2)}, **SMALL | {"size": 1})
    with pytest.raises(SettingError, match="conservative = -1 is less than 0"):
        make(Ring, "mlp", logs={"logs": log(2)}, conservative=-1, **SMALL)
    world = Slope()
    slope = list(behave(world, "conservative", lambda seen: world.action_space.sample(), 10))
    with pytest.raises(SpaceError, match="are numbers"):
        make(Slope, "mlp", logs={"logs": slope}, **SMALL)
