"""What imagines: its formulas by hand, what its model and its critic know of a small world, and what it remembers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.control.imagination import MemoryChain
from keepworth.base.errors import UnknownName
from keepworth.control.errors import SpaceError
from keepworth.control.imagination import balanced, divergence, lambda_returns
from keepworth.control.run import TrainedAgent, play
from keepworth.control.settings import SettingError
from keepworth.methods.control.drama import draw_by, imagination_score
from keepworth.methods.control.repo import bounded_losses
from keepworth.registry import method
from tests.control.resumed import check_resumed_weights
from tests.control.worlds import Chain, Recall, Slope
from tests.slow import slow_but_for

SMALL: dict[str, Any] = {
    "steps": 900, "every": 300, "warmup": 200, "ratio": 0.2, "batch": 16, "length": 6, "width": 32, "learning_rate": 1e-2,
    "actor_rate": 3e-3, "horizon": 4, "discount": 0.9, "capacity": 2000,
}  # fmt: skip
METHODS = ("r2i", "drama", "repo", "infopower")


def make(name: str, world: Any, **settings: Any) -> Any:
    return method("control_agent", name).make(world, **{**SMALL, **settings})


def test_returns_by_hand() -> None:
    """With gamma .5 and lambda .5: R_1 = 2 + .5 * 1 * 8 = 6, and R_0 = 1 + .5 * .5 * (.5 * 4 + .5 * 6) = 2.25."""
    columns = [torch.tensor(of).unsqueeze(1) for of in ([1.0, 2.0], [0.5, 1.0], [4.0, 8.0])]
    assert lambda_returns(*columns, 0.5, 0.5).squeeze(1).tolist() == [2.25, 6.0]
    assert lambda_returns(*columns, 0.5, 0.0).squeeze(1).tolist() == [2.0, 6.0]


def test_divergence_by_hand_is_summed_over_groups_and_its_gradients_are_apart() -> None:
    """KL of (.5, .5) from (.25, .75) is .5 log 2 + .5 log 2/3; of two groups alike it is twice that."""
    posterior = torch.tensor([[0.5, 0.5], [0.5, 0.5]]).log().requires_grad_()
    prior = torch.tensor([[0.25, 0.75], [0.25, 0.75]]).log().requires_grad_()
    by_hand = float(np.log(2.0) + np.log(2.0 / 3.0))
    assert float(divergence(posterior, prior).detach()) == pytest.approx(by_hand)
    to_prior, to_posterior = balanced(posterior, prior)
    assert [float(of.detach()) for of in (to_prior, to_posterior)] == pytest.approx([by_hand] * 2)
    to_prior.backward()
    assert posterior.grad is None
    assert prior.grad is not None
    prior.grad = None
    to_posterior.backward()
    assert prior.grad is None
    assert posterior.grad is not None


def test_no_category_is_less_likely_than_its_share_of_an_even_draw() -> None:
    network = make("r2i", Chain, groups=2, classes=4).network
    probs = network.log_probs(torch.tensor([0.0, 90.0, 0.0, 0.0, 1.0, 2.0, 3.0, 4.0])).exp()
    assert probs.sum(-1).tolist() == pytest.approx([1.0, 1.0])
    assert probs[0].tolist() == pytest.approx([0.0025, 0.9925, 0.0025, 0.0025])


def test_the_prior_of_a_first_step_is_independent_of_the_episode_before() -> None:
    network = make("r2i", Chain).network
    h, action = torch.randn(2, 32), torch.tensor([[0], [1]])
    first, later = (network.expect(h, action, torch.tensor([start] * 2)) for start in (True, False))
    assert torch.equal(first[0], first[1])
    assert not torch.allclose(later[0], later[1])


def test_bound_by_hand_raises_its_multiplier_while_the_latent_holds_more() -> None:
    """With KL 3, a target of 1 and beta 2 the loss is 2 * (3 - 1) = 4; n = 3 gives the prior three quarters of the gradient."""
    to_prior, to_posterior = (torch.tensor(3.0, requires_grad=True) for _ in range(2))
    log_beta = torch.tensor(2.0).log().requires_grad_()
    loss, of_beta = bounded_losses(to_prior, to_posterior, log_beta, target=1.0, balance=3.0)
    assert float(loss.detach()) == pytest.approx(4.0)
    loss.backward()
    assert log_beta.grad is None
    assert [float(of.grad) for of in (to_prior, to_posterior) if of.grad is not None] == pytest.approx([1.5, 0.5])
    of_beta.backward()
    assert log_beta.grad is not None
    assert float(log_beta.grad) == pytest.approx(-2.0)  # a step against the gradient raises it


def test_windows_are_chosen_by_how_often_they_were_used() -> None:
    """With n = 6, m = 2, alpha 1 and beta .5: 6 - 2 - .5 * 4 = 2; with n = 2 and m = 6: 2 - 6 = -4."""
    scores = imagination_score(torch.tensor([6.0, 2.0]), torch.tensor([2.0, 6.0]), 1.0, 0.5)
    assert scores.tolist() == [2.0, -4.0]
    draw, chances = torch.Generator().manual_seed(0), torch.tensor([0.6, 0.3, 0.1])
    first = torch.stack([draw_by(chances.log(), 2, draw)[0] for _ in range(4000)])
    assert (torch.bincount(first, minlength=3) / 4000).tolist() == pytest.approx(chances.tolist(), abs=0.03)


def test_fresh_windows_are_learned_first_and_each_use_is_counted() -> None:
    trainer = make("drama", Recall, steps=240, every=240, warmup=80, ratio=0.1, fresh=0.1)
    trainer.update()
    columns, batch = trainer.replay.columns, trainer.settings.batch
    assert columns["learned"].sum() == columns["imagined"].sum() == trainer.learned * batch
    assert columns["learned"].max() < 4  # sixteen of some two hundred, sixteen times


def test_bound_keeps_unpredictable_numbers_out_of_the_latent() -> None:
    trainer = make("repo", lambda: MemoryChain(8, length=3), steps=600, target=0.2, beta_rate=0.05)
    list(trainer.train())
    assert trainer.losses["observation"] == 0.0
    windows = trainer.draw_windows({})
    with torch.no_grad():
        batch = trainer.see(windows)
        held = divergence(batch.posterior[:, 1:], batch.prior).mean()
    assert float(held) < 0.6
    assert float(trainer.log_beta.detach().exp()) != pytest.approx(0.1, abs=1e-3)


def test_model_and_critic_of_a_chain_are_those_of_dynamic_programming() -> None:
    trainer = make("r2i", Chain, steps=1200, every=1200)
    trainer.update()
    agent = TrainedAgent(trainer.network, trainer.worlds)
    assert [agent.predict(place)[0] for place in range(Chain.places)] == [1, 1, 1, 1]
    network, starts = trainer.network, torch.ones(Chain.places, dtype=torch.bool)
    right, places = torch.ones(Chain.places, 1, dtype=torch.long), torch.eye(Chain.places)
    with torch.no_grad():
        z = network.likeliest(network.log_probs(network.posterior(places)))
        h, state = network.advance(z, right, starts, network.memory.initial_state(Chain.places))
        seen = torch.cat([h, z], -1)
        rewards, goes_on = network.outcomes(seen, right)
        after = network.likeliest(network.expect(h, right, ~starts))
        h, _ = network.advance(after, right, ~starts, state)
        predicted = network.decoder(torch.cat([h, after], -1)).argmax(-1)
        values = trainer.critics(seen)
    assert rewards.tolist() == pytest.approx([-0.1, -0.1, -0.1, 1.0], abs=0.15)
    assert (goes_on > 0).tolist() == [True, True, True, False]
    assert predicted[:3].tolist() == [1, 2, 3]
    best = [1.0]
    for _ in range(Chain.places - 1):
        best.insert(0, -0.1 + 0.9 * best[0])
    assert values.tolist() == pytest.approx(best, abs=0.25)


@pytest.mark.parametrize("name", slow_but_for(["r2i"], METHODS))
def test_a_sign_is_remembered(name: str) -> None:
    trainer = make(name, lambda: MemoryChain(length=3), ratio=0.35, horizon=3, length=5)
    list(trainer.train())
    logs = play(TrainedAgent(trainer.network, trainer.worlds), MemoryChain(length=3), 40, seed=100)
    assert sum(episode[-1][2] for episode in logs) / 40 > 0.8  # chance is .5


@pytest.mark.parametrize("name", slow_but_for(["r2i"], METHODS))
def test_the_same_seed_gives_the_same_curve_and_a_stopped_run_goes_on_to_the_same_weights(name: str) -> None:
    short = {"steps": 240, "every": 80, "warmup": 80, "ratio": 0.1}
    curves = []
    for seed in (0, 0, 1):
        rows = list(make(name, Recall, seed=seed, **short).train())
        curves.append([{**row, "seconds": 0} for row in rows])
    assert curves[0] == curves[1] != curves[2]
    check_resumed_weights(lambda: make(name, Recall, **short), "network", "critics", "parts", updates=2)


def test_settings_that_do_not_fit_are_named() -> None:
    with pytest.raises(SpaceError, match=r"are numbers.*Use rsac"):
        make("r2i", Slope)
    with pytest.raises(SettingError, match=r"earlier model.*recomputed"):
        make("r2i", Chain, hidden="stored")
    with pytest.raises(SettingError, match=r"classes = 1 is less than 2"):
        make("r2i", Chain, classes=1)
    with pytest.raises(SettingError, match=r"fresh = 0.0 is not above 0"):
        make("drama", Chain, fresh=0.0)
    with pytest.raises(SettingError, match=r"target = -1.0 is not above 0"):
        make("repo", Chain, target=-1.0)
    with pytest.raises(SettingError, match="what empowerment = 0 does not learn"):
        make("infopower", Chain, empowerment=0.0)
    with pytest.raises(UnknownName, match="expectile"):
        make("r2i", Chain, expectile=0.7)
