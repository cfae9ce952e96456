"""Rewards that are paid late, and actions that are decided early: LaRe and Sequence RL learn in the smallest worlds."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from keepworth.base.errors import UnknownName
from keepworth.control.dials import Dialled, Dials, behave
from keepworth.control.errors import SpaceError
from keepworth.control.off_policy import OffPolicyTrainer
from keepworth.control.replay import PLAY
from keepworth.control.run import TrainedAgent, play
from keepworth.control.settings import SettingError
from keepworth.methods.control.latent_reward import decomposition_loss
from keepworth.registry import method
from tests.control.resumed import check_resumed_weights
from tests.control.worlds import Recall, Slope
from tests.slow import slow_but_for

SMALL: dict[str, Any] = {
    "steps": 900, "every": 300, "warmup": 300, "ratio": 0.5, "width": 32, "batch": 16, "length": 6, "learning_rate": 3e-3,
    "tau": 0.05, "discount": 0.9, "capacity": 3000,
}  # fmt: skip


class Drifting(Slope):
    """The slope, with the place as a number."""

    observation_space = gymnasium.spaces.Box(0.0, 3.0, (1,), np.float32)  # type: ignore[assignment]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        place, info = super().reset(seed=seed)
        return np.float32([place]), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        place, *rest = super().step(action)
        return np.float32([place]), *rest


def summed() -> Dialled:
    return Dialled(Slope(), Dials(summed=True))


def make(name: str, **settings: Any) -> OffPolicyTrainer:
    if name == "lare":
        made = method("control_agent", name).make(summed, "mlp", action_input=False, drawn=2, **SMALL | settings)
    else:
        made = method("control_agent", name).make(Drifting, 3, **SMALL | settings)
    assert isinstance(made, OffPolicyTrainer)
    return made


@pytest.mark.parametrize("name", slow_but_for(["lare"], ["lare", "sequence_rl"]))
def test_each_method_gets_the_best_actions_of_a_slope(name: str) -> None:
    trainer = make(name)
    list(trainer.train())
    (episode,) = play(TrainedAgent(trainer.network, trainer.worlds), Drifting() if name != "lare" else summed(), 1)
    assert [float(step[1][0]) for step in episode] == pytest.approx(Slope.best, abs=0.9)  # chance is 1.7 away


@pytest.mark.parametrize("name", ["lare", "sequence_rl"])
def test_a_run_that_was_stopped_goes_on_to_the_same_weights(name: str) -> None:
    settings = {"steps": 160, "every": 40, "warmup": 40}
    check_resumed_weights(lambda: make(name, **settings), "network", "critics", updates=2)


@pytest.mark.parametrize("drawn", [2, 3, 5])
def test_loss_over_drawn_steps_is_on_average_that_over_all(drawn: int) -> None:
    draw = torch.Generator().manual_seed(0)
    worth, means, steps = torch.randn(3, 5, generator=draw), torch.tensor([0.3, -0.2, 1.0]), torch.tensor([5, 5, 5])
    present = torch.ones(3, drawn, dtype=torch.bool)
    losses = [
        decomposition_loss(worth.gather(1, torch.rand(3, 5, generator=draw).topk(drawn).indices), present, means, steps)
        for _ in range(20_000)
    ]
    whole = (worth.mean(1) - means).square().mean() / means.var(unbiased=False)
    assert float(torch.stack(losses).mean()) == pytest.approx(float(whole), abs=0.02)


def test_rewards_that_a_network_learned_from_sums_are_those_of_the_steps() -> None:
    trainer = make("lare", steps=900)
    list(trainer.train())
    places = torch.cat(trainer.replay.episodes(PLAY)[:100])
    columns = trainer.replay.columns
    best = torch.tensor(Slope.best)[columns["features"][places].argmax(-1)]
    done = torch.tensor(np.array(trainer.actions.to_world(columns["actions"][places])))[:, 0]
    true = 1.0 - ((done - best) / 3.0).square()
    with torch.no_grad():
        made = trainer.rewards(places.unsqueeze(0))[0]
    even = true.view(-1, 3).mean(1).repeat_interleave(3)  # each step's share of the sum, if all were worth as much
    fit, chance = (float(torch.corrcoef(torch.stack([of, true]))[0, 1]) for of in (made, even))
    assert fit > 0.7 > chance
    assert columns["rewards"][places].reshape(-1, 3)[:, :2].abs().max() == 0.0


def test_sum_is_paid_with_the_last_step_and_is_that_of_all() -> None:
    plain, late = (
        list(behave(world, "conservative", lambda seen: np.float32([seen]), 3)) for world in (Slope(), summed())
    )
    for one, other in zip(plain, late, strict=True):
        assert [step[2] for step in other[:-1]] == [0.0, 0.0]
        assert other[-1][2] == pytest.approx(sum(step[2] for step in one))


def test_whole_episodes_of_a_replay_are_consecutive_steps_also_once_it_forgets() -> None:
    trainer = make("lare", capacity=50, steps=120, every=120, warmup=120)
    trainer.update()
    episodes = trainer.replay.episodes(PLAY)
    assert len(episodes) >= 14
    for places in episodes:
        assert trainer.replay.columns["age"][places].tolist() == [0, 1, 2]
        assert trainer.replay.columns["terminated"][places].tolist() == [False, False, True]


def test_an_actor_of_sequences_plays_its_plan_without_looking_until_it_is_over() -> None:
    network = make("sequence_rl").network
    state, starts = network.memory.initial_state(2), torch.tensor([True, True])
    seen = torch.randn(7, 2, 1)
    with torch.no_grad():
        plans = [network.plan(x.unsqueeze(1)).squeeze(1) for x in seen]
        for time in range(7):
            outputs, _, state = network.step(seen[time], state, starts & (time == 0) | torch.tensor([False, time == 4]))
            begun = 3 * (time // 3)
            assert torch.allclose(outputs[0], plans[begun][0, time - begun])
            if time >= 4:  # where the second world begins anew
                assert torch.allclose(outputs[1], plans[4][1, time - 4])


def test_settings_that_do_not_fit_are_named() -> None:
    with pytest.raises(SettingError, match="drawn = 1 steps have no variance"):
        method("control_agent", "lare").make(summed, "mlp", drawn=1)
    with pytest.raises(SettingError, match="sequence = 1 decides for a single step"):
        method("control_agent", "sequence_rl").make(Drifting, 1)
    with pytest.raises(SpaceError, match=r"are choices.*Use rsac"):
        method("control_agent", "sequence_rl").make(Recall, 2, **SMALL)
    with pytest.raises(UnknownName, match="recall"):
        method("control_agent", "sequence_rl").make(Drifting, 2, recall="modell", **SMALL)
