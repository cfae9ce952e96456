"""Statements about whole gradients: exact enumeration, the regression's optimum, the optimal baseline."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from keepworth.learning.objective.advantage import advantages
from keepworth.learning.objective.batch import Batch
from keepworth.learning.objective.parts import Outcome
from keepworth.learning.objective.policy_loss import denominators, loss
from keepworth.learning.objective.presets import preset, varied
from keepworth.learning.shares import Shares
from keepworth.methods.objectives.a_star_po import Regression, SoftValue, soft_value
from keepworth.methods.objectives.vcpo import SequenceTruncate, score_norms
from tests.learning.objective.toys import bandit_batch, toy

SYMBOLS = 3
OUTCOMES = list(itertools.product(range(SYMBOLS), repeat=2))
REWARDS = torch.tensor([0.3, 1.0, -0.4, 0.8, 0.0, 0.5, -1.0, 0.2, 0.9], dtype=torch.float64)


def table_policy(parameters: Tensor) -> Tensor:
    """[9, 2]: log-probabilities of both tokens of every outcome; parameters [1 + SYMBOLS, SYMBOLS]: the first token's
    logits, then the second's given each first."""
    logs = torch.log_softmax(parameters, -1)
    return torch.stack([torch.stack((logs[0, a], logs[1 + a, b])) for a, b in OUTCOMES])


def sequence_batch(behaviour: Tensor) -> Batch:
    """One episode per outcome, weighted by its probability under the behaviour through its reward's expectation."""
    return Batch(
        mask=torch.ones(9, 2, dtype=torch.float64),
        lp_behaviour=behaviour,
        rewards=REWARDS,
        group=torch.zeros(9, dtype=torch.long),
        episode=torch.arange(9),
        lp_proximal=behaviour,
    )


def test_sequence_truncation_corrects_the_score_function() -> None:
    """No ratio, with a sequence weight that never truncates: the exact off-policy gradient."""
    torch.manual_seed(3)
    parameters = torch.randn(1 + SYMBOLS, SYMBOLS, dtype=torch.float64, requires_grad=True)
    behaviour = table_policy(torch.randn(1 + SYMBOLS, SYMBOLS, dtype=torch.float64)).detach()
    lp = table_policy(parameters)
    (truth,) = torch.autograd.grad((lp.sum(1).exp() * REWARDS).sum(), parameters, retain_graph=True)
    objective = varied(preset("reinforce"), advantage=Outcome(), correction=SequenceTruncate(1e6))
    batch = sequence_batch(behaviour)
    weights = behaviour.sum(1).exp()[:, None] * 9
    value, _ = loss(objective, lp, None, advantages(batch, objective) * weights, batch, denominators(batch, objective))
    (got,) = torch.autograd.grad(-value, parameters)
    torch.testing.assert_close(got, truth, atol=1e-12, rtol=1e-9)


def test_group_centring_shrinks_the_expected_gradient_and_leave_one_out_does_not() -> None:
    """Group of 4 on a bandit, all 3^4 draws enumerated: the group mean gives exactly (G-1)/G of the true gradient."""
    logits = torch.tensor([0.2, -0.5, 0.7], dtype=torch.float64, requires_grad=True)
    arms = torch.tensor([1.0, 0.1, 0.4], dtype=torch.float64)
    lp = torch.log_softmax(logits, 0)
    (truth,) = torch.autograd.grad((lp.exp() * arms).sum(), logits, retain_graph=True)
    draws = torch.tensor(list(itertools.product(range(3), repeat=4)))
    probability = lp.detach()[draws].sum(1).exp()
    for baseline, ratio in (("group", 0.75), ("leave_one_out", 1.0)):
        objective = varied(preset("rloo"), advantage=Outcome(baseline))
        group = torch.arange(len(draws)).repeat_interleave(4)
        batch = bandit_batch(arms[draws.flatten()].tolist(), group.tolist())
        estimate = advantages(batch, objective) * probability.repeat_interleave(4)[:, None] * len(draws)
        value, _ = loss(objective, lp[draws.flatten()][:, None], None, estimate, batch, denominators(batch, objective))
        (got,) = torch.autograd.grad(-value, logits, retain_graph=True)
        torch.testing.assert_close(got, ratio * truth, atol=1e-10, rtol=1e-9)


def test_regression_is_zero_at_the_optimal_policy() -> None:
    beta = 0.4
    reference = torch.log_softmax(torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64), 0)
    arms = torch.tensor([1.0, 0.0, 0.5], dtype=torch.float64)
    best = beta * torch.logsumexp(reference + arms / beta, 0)
    policy = reference + (arms - best) / beta
    assert float(policy.exp().sum()) == pytest.approx(1.0)
    objective = preset("a_star_po", surrogate=Regression(beta), advantage=SoftValue(beta))
    batch = bandit_batch(arms.tolist(), [0, 1, 2], lp_reference=reference[:, None], soft_value=best.expand(3))
    lp = policy[:, None].clone().requires_grad_(True)
    value, _ = loss(objective, lp, None, advantages(batch, objective), batch, denominators(batch, objective))
    (grad,) = torch.autograd.grad(value, lp)
    assert float(value.detach()) == pytest.approx(0.0, abs=1e-12)
    assert grad.abs().max() < 1e-10


def test_the_regression_gradient_is_the_closed_form() -> None:
    objective = preset("a_star_po", surrogate=Regression(0.1))
    world = toy()
    lp, _ = world.forward()
    lp = lp.detach().requires_grad_(True)
    batch = world.batch
    value, _ = loss(objective, lp, None, advantages(batch, objective), batch, denominators(batch, objective))
    (grad,) = torch.autograd.grad(value, lp)
    assert batch.lp_reference is not None
    gaps = torch.where(batch.mask > 0, lp.detach() - batch.lp_reference, 0.0).sum(1)
    for episode in batch.episode.unique():
        rows = batch.episode == episode
        error = 0.1 * gaps[rows].sum() - (batch.rewards[rows][0] - 0.5)
        expected = 2 * 0.1 * error / len(batch.episode.unique()) * batch.mask[rows]
        torch.testing.assert_close(grad[rows], expected)


def test_soft_value_of_enough_samples_is_the_reference_expectation() -> None:
    rewards = torch.tensor([1.0] * 3 + [0.0] * 7, dtype=torch.float64)
    exact = 0.5 * torch.log(0.3 * torch.exp(torch.tensor(2.0, dtype=torch.float64)) + 0.7)
    torch.testing.assert_close(soft_value(rewards, 0.5), exact)


def vcpo_setting() -> tuple[Batch, Tensor, object]:
    world = toy()
    rows = torch.arange(world.batch.shape[0])

    def forward(chosen: list[int]) -> Tensor:
        assert world.batch.ids is not None
        return world.forward(world.batch.ids[chosen])[0]

    def gradients(chosen: list[int]) -> list[tuple[Tensor, ...]]:
        drawn = torch.where(world.batch.mask[chosen] > 0, forward(chosen), 0.0)
        # In two parts: of an episode's first row, and of the others.
        return [torch.autograd.grad(part.sum(), [world.logits], retain_graph=True) for part in (drawn[:1], drawn[1:])]

    batch = replace(world.batch, score_norm=score_norms([world.logits], world.batch, gradients, Shares()))
    assert len(rows) == batch.shape[0]
    return batch, world.logits, forward


def test_score_norms_are_norms_of_single_episodes() -> None:
    batch, logits, forward = vcpo_setting()
    assert batch.score_norm is not None
    for episode in batch.episode.unique():
        rows = (batch.episode == episode).nonzero().flatten().tolist()
        total = torch.where(batch.mask[rows] > 0, forward(rows), 0.0).sum()  # type: ignore[operator]
        (grad,) = torch.autograd.grad(total, logits)
        torch.testing.assert_close(batch.score_norm[rows], grad.norm().expand(len(rows)))
