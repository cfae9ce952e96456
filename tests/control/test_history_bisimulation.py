"""Bisimulation of histories: its loss by hand, and the distances that it makes."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from keepworth.control.dials import behave
from keepworth.control.errors import SpaceError
from keepworth.control.run import TrainedAgent, play
from keepworth.control.settings import SettingError
from keepworth.methods.control.history_bisimulation import bisimulation_loss, partners
from keepworth.registry import method
from tests.control.resumed import check_resumed_weights
from tests.control.worlds import Recall, Slope

SMALL: dict[str, Any] = {
    "every": 100, "width": 16, "batch": 16, "length": 4, "learning_rate": 5e-3, "tau": 0.05, "discount": 0.9,
}  # fmt: skip


def log(world: Any, episodes: int) -> dict[str, Any]:
    return {"logs": list(behave(world, "conservative", lambda seen: world.action_space.sample(), episodes))}


def test_loss_by_hand() -> None:
    """Outputs lie 5 apart, rewards 1. The predicted Gaussians differ by (2, 0) in mean and (0, 1.5) in deviation: W is 2.5.
    With a gamma of .8 the goal is 1 + 2 = 3 and the loss 4; where one of both ended, the goal is 1 and the loss 16."""
    outputs, mean, deviation = torch.tensor([[0.0, 0.0], [3.0, 4.0]]), torch.zeros(2, 2), torch.ones(2, 2)
    mean[1, 0], deviation[1, 1] = 2.0, 2.5
    rewards, of = torch.tensor([1.0, 0.0]), torch.tensor([1, 0])
    for goes_on, by_hand in (([True, True], 4.0), ([True, False], 16.0)):
        loss = bisimulation_loss(outputs, rewards, mean, deviation, torch.tensor(goes_on), of, 0.8)
        assert float(loss) == pytest.approx(by_hand, abs=1e-5)


def test_gradient_of_equal_outputs_is_finite_and_reaches_outputs_alone() -> None:
    outputs, mean = torch.zeros(2, 3, requires_grad=True), torch.zeros(2, 3, requires_grad=True)
    goes_on, of = torch.tensor([True, True]), torch.tensor([1, 0])
    bisimulation_loss(outputs, torch.tensor([0.0, 1.0]), mean, torch.ones(2, 3), goes_on, of, 0.9).backward()
    assert bool(outputs.grad is not None and outputs.grad.isfinite().all())
    assert mean.grad is None


def test_partners_have_the_same_action_and_are_others_where_there_are_some() -> None:
    actions = torch.tensor([0, 2, 0, 1, 2, 2, 0])
    of = partners(actions, torch.Generator().manual_seed(0))
    assert torch.equal(actions[of], actions)
    assert (of != torch.arange(7)).tolist() == [True, True, True, False, True, True, True]
    assert of.sort().values.tolist() == list(range(7))


def test_right_action_is_learned_from_logs_at_random() -> None:
    trainer = method("control_agent", "history_bisimulation").make(
        Recall, "gru", logs=log(Recall(), 200), updates=300, weight=0.1, action_input=False, **SMALL
    )
    list(trainer.train())
    logs = play(TrainedAgent(trainer.network, trainer.worlds), Recall(), 40, seed=100)
    assert sum(episode[-1][2] for episode in logs) / 40 > 0.5  # chance is 0, the best 1


def test_distance_of_two_histories_becomes_that_of_their_rewards() -> None:
    """Before the last action of Recall one history is paid 1 and the other -1, whichever action it is, and nothing follows."""
    trainer = method("control_agent", "history_bisimulation").make(
        Recall,
        "gru",
        logs=log(Recall(), 100),
        updates=300,
        weight=1.0,
        action_input=False,
        hidden="recomputed",
        **SMALL,
    )
    list(trainer.train())
    features = torch.eye(3)[torch.tensor([[0, 2, 2, 2], [1, 2, 2, 2]])]
    starts = torch.tensor([[True, False, False, False]] * 2)
    critics = trainer.critics
    with torch.no_grad():
        outputs = critics.remember(features, critics.memory.initial_state(2), starts)[:, -1, :16]
    assert float((outputs[0] - outputs[1]).norm()) == pytest.approx(2.0, abs=0.4)


def test_a_run_that_was_stopped_goes_on_to_the_same_weights() -> None:
    make = partial(
        method("control_agent", "history_bisimulation").make, Recall, "gru", updates=20, **SMALL | {"every": 10}
    )
    check_resumed_weights(lambda: make(logs=log(Recall(), 20)), "network", "critics", "model")


def test_settings_that_do_not_fit_are_named() -> None:
    make = method("control_agent", "history_bisimulation").make
    with pytest.raises(SettingError, match="draws no histories together"):
        make(Recall, "gru", logs=log(Recall(), 5), weight=0.0)
    with pytest.raises(SettingError, match="has no critics"):
        make(Recall, "gru", logs=log(Recall(), 5), learner="bc")
    with pytest.raises(SpaceError, match="are numbers"):
        make(Slope, "mlp", logs=log(Slope(), 20), **SMALL)
