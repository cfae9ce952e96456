"""Closed forms: ratios, surrogates, corrections, aggregations, which tokens count, KL estimators, and the critic's loss."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from keepworth.methods.objectives.a_star_po import Regression, SoftValue
from keepworth.methods.objectives.cispo import Cispo
from keepworth.methods.objectives.memory_r2 import DualClip
from keepworth.methods.objectives.s_grpo import FirstAndRandom, first_and_random
from keepworth.methods.objectives.tis import Truncate
from keepworth.methods.objectives.vcpo import SequenceTruncate
from keepworth.training.objective import parts, policy_loss
from keepworth.training.objective.advantage import advantages, select
from keepworth.training.objective.batch import Batch
from keepworth.training.objective.options import Objective
from keepworth.training.objective.parts import Gae, OverlongMask, Whitened
from keepworth.training.objective.policy_loss import denominators, k2, k3, loss, value_loss
from keepworth.training.objective.presets import preset, vary_objective
from tests.learning.objective.toys import bandit_batch, toy

GRPO = preset("grpo", kl=None)


def slope(surrogate: Any, ratio: float, advantage: float) -> float:
    x = torch.tensor(math.log(ratio), dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(surrogate.value(x, x, torch.tensor(advantage, dtype=torch.float64)), x)
    return float(grad)


def gradient_of(objective: Objective, lp: Tensor, advantage: Tensor, batch: Batch) -> tuple[float, Tensor]:
    """The loss, and its slope at these log-probabilities."""
    lp = lp.detach().requires_grad_(True)
    value, _ = loss(objective, lp, None, advantage, batch, denominators(batch, objective))
    return float(value.detach()), torch.autograd.grad(value, lp)[0]


def doubles(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("ratio", [0.5, 0.79, 0.81, 1.0, 1.27, 1.29, 2.0])
def test_where_the_clip_lets_a_gradient_through(ratio: float) -> None:
    clip = parts.Clip(0.2, 0.28)
    assert slope(clip, ratio, 1.0) == pytest.approx(ratio if ratio < 1.28 else 0.0)
    assert slope(clip, ratio, -1.0) == pytest.approx(-ratio if ratio > 0.8 else 0.0)


def test_dual_clip_cuts_only_negative_tokens_with_large_ratios() -> None:
    dual = DualClip(0.2, 0.28, 3.0)
    assert slope(dual, 2.9, -1.0) == pytest.approx(-2.9)
    assert slope(dual, 3.1, -1.0) == 0.0
    assert slope(dual, 1.1, 1.0) == pytest.approx(1.1)


@pytest.mark.parametrize("ratio", [0.1, 1.0, 4.0, 9.0])
def test_cispo_caps_the_weight_and_keeps_the_gradient(ratio: float) -> None:
    lp = torch.tensor(-1.0, dtype=torch.float64, requires_grad=True)
    log_r = lp - (lp.detach() - math.log(ratio))
    (grad,) = torch.autograd.grad(Cispo(1.0, 5.0).value(lp, log_r, torch.tensor(2.0, dtype=torch.float64)), lp)
    assert float(grad) == pytest.approx(2.0 * min(ratio, 6.0))


def test_on_policy_every_surrogate_is_reinforce() -> None:
    world = toy(lag=0.0)
    advantage = torch.where(world.batch.mask > 0, torch.linspace(-1, 1, world.batch.shape[0])[:, None].double(), 0.0)
    gradients = []
    for changes in (
        {"surrogate": parts.Plain(), "ratio": parts.NoRatio()},
        {"surrogate": parts.Plain()},
        {},
        {"surrogate": DualClip(0.2, 0.2, 3.0)},
        {"surrogate": Cispo(1.0, 5.0)},
        {"ratio": parts.Sequence()},
    ):
        objective = vary_objective(GRPO, aggregation_unit="row", **changes)
        lp, _ = world.forward()
        value, metrics = loss(objective, lp, None, advantage, world.batch, denominators(world.batch, objective))
        (grad,) = torch.autograd.grad(value, world.logits)
        gradients.append(grad)
        assert metrics["ratio_mean"] == pytest.approx(1.0)
        assert metrics["approx_kl"] == pytest.approx(0.0, abs=1e-12)
        assert metrics.get("clip_fraction", 0.0) == 0.0
    for grad in gradients[1:]:
        torch.testing.assert_close(grad, gradients[0], atol=1e-12, rtol=1e-9)


def test_sequence_ratio() -> None:
    lp = torch.tensor([[0.4, 0.2, 9.0], [0.0, 0.1, 0.2]], dtype=torch.float64, requires_grad=True)
    mask = doubles([[1.0, 1, 0], [1, 1, 1]])
    zeros = torch.zeros_like(lp)
    batch = Batch(mask, zeros, torch.zeros(2), torch.zeros(2), torch.zeros(2))  # two rows of one episode
    got = policy_loss.log_ratio(lp, zeros, batch, parts.Sequence())
    torch.testing.assert_close(got.detach()[0], doubles([0.3, 0.3, 0.0]))
    (grad,) = torch.autograd.grad(got[0, 0].exp(), lp)
    torch.testing.assert_close(grad, doubles([[math.exp(0.3) / 2] * 2 + [0.0], [0.0] * 3]))
    both = policy_loss.log_ratio(lp, zeros, batch, parts.Sequence(unit="episode"))
    torch.testing.assert_close(both.detach()[1, 0], torch.tensor(0.9 / 5, dtype=torch.float64))


def _correction(chosen: object, log_rho: list[list[float]]) -> tuple[Tensor, Tensor]:
    gap = doubles(log_rho)
    batch = bandit_batch([0.0] * len(gap), mask=torch.ones_like(gap), lp_behaviour=0 * gap, lp_proximal=0 * gap)
    weight, keep = policy_loss.correction(vary_objective(GRPO, correction=chosen), gap.requires_grad_(True), batch)
    assert not weight.requires_grad
    assert not keep.requires_grad
    return weight, keep


def test_token_corrections() -> None:
    weight, keep = _correction(Truncate(2.0), [[-2.0, 0.0, 2.0]])
    torch.testing.assert_close(weight[0], doubles([math.exp(-2), 1.0, 2.0]))
    assert keep.all()
    weight, keep = _correction(parts.Mask(0.5, 5.0), [[-2.0, 0.0, 2.0]])
    assert (weight * keep)[0].tolist() == [0.0, 1.0, 0.0]


def test_sequence_corrections() -> None:
    weight, _ = _correction(SequenceTruncate(8.0), [[0.1] * 4, [1.0, 1.0, 1.0, 0.0]])
    assert weight[:, 0].tolist() == pytest.approx([math.exp(0.4), 8.0])


def test_effective_sample_size() -> None:
    assert float(policy_loss.effective_sample_size(torch.full((5,), 3.0))) == pytest.approx(1.0)
    assert float(policy_loss.effective_sample_size(torch.tensor([50.0, 0.0, 0.0, 0.0]))) == pytest.approx(0.25)


AGGREGATIONS = ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "constant"]


@pytest.mark.parametrize(
    ("mode", "both", "first"), list(zip(AGGREGATIONS, [1, 1, 4, 0.5], [0.25, 0.5, 1, 0.125], strict=True))
)
def test_aggregation_fixture(mode: str, both: float, first: float) -> None:
    """Lengths 2 and 6, length budget 8."""
    mask = doubles([[1.0] * 2 + [0.0] * 4, [1.0] * 6])
    batch = bandit_batch([1.0, 0.0])
    wide = Batch(mask, mask * 0, batch.rewards, batch.group, batch.episode)
    objective = Objective(aggregation=mode, length_budget=8 if mode == "constant" else None)
    weights = policy_loss.row_weights(wide, objective, denominators(wide, objective))
    assert float(policy_loss.aggregate(mask, weights, mask)) == pytest.approx(both)
    only = doubles([[1.0], [0.0]]) * mask
    assert float(policy_loss.aggregate(only, weights, mask)) == pytest.approx(first)


def test_an_episode_of_two_rows_is_one_sequence_unless_said_otherwise() -> None:
    """Lengths 1 and 3 in one episode, 2 in another: the mean over each episode's tokens, then over episodes."""
    mask = doubles([[1.0, 0, 0], [1, 1, 1], [1, 1, 0]])
    ids = torch.tensor([4, 4, 9])
    batch = Batch(mask, mask * 0, torch.zeros(3), torch.zeros(3, dtype=torch.long), ids)
    for unit, expected in (("episode", [1 / 8, 1 / 8, 1 / 4]), ("row", [1 / 3, 1 / 9, 1 / 6])):
        objective = Objective(aggregation="seq-mean-token-mean", aggregation_unit=unit)
        assert policy_loss.row_weights(batch, objective, denominators(batch, objective)).tolist() == pytest.approx(
            expected
        )


def test_denominator_counts_drawn_or_kept_tokens() -> None:
    behaviour = doubles([[0.0], [5.0], [0.0], [0.0]])
    batch = bandit_batch([1.0, 0.0, 0.5, 0.2], lp_behaviour=behaviour)
    advantage = torch.ones(4, 1, dtype=torch.float64)
    values = []
    for denominator in ("original", "kept"):
        masked = parts.Mask(0.5, 2.0)
        objective = vary_objective(GRPO, aggregation="token-mean", correction=masked, denominator=denominator)
        lp = torch.zeros(4, 1, dtype=torch.float64, requires_grad=True)
        value, metrics = loss(objective, lp, None, advantage, batch, denominators(batch, objective))
        values.append(float(value.detach()))
        assert metrics["masked_share"] == pytest.approx(0.25)
    assert values == pytest.approx([-0.75, -1.0])


def test_missing_input_of_the_loss_is_named() -> None:
    batch = toy().batch
    shared = denominators(batch, GRPO)
    zeros = torch.zeros(batch.shape, dtype=torch.float64)
    stripped = Batch(batch.mask, batch.lp_behaviour, batch.rewards, batch.group, batch.episode)
    with pytest.raises(ValueError, match="lp_proximal"):
        loss(GRPO, zeros, None, zeros, stripped, shared)
    with pytest.raises(ValueError, match="lp_reference"):
        loss(preset("grpo"), zeros, None, zeros, replace(batch, lp_reference=None), shared)


def test_the_first_tokens_are_sure_and_the_rest_are_drawn_at_their_rate() -> None:
    mask = torch.ones(400, 50)
    mask[:, 3] = 0
    keep = first_and_random(mask, 5, 0.3, torch.Generator().manual_seed(0))
    assert keep[:, [0, 1, 2, 4, 5]].all()
    assert not keep[:, 3].any()
    assert float(keep[:, 6:].double().mean()) == pytest.approx(0.3, abs=0.01)


def test_selection_is_reproducible_and_reaches_the_loss() -> None:
    world = toy()
    objective = preset("s_grpo", selection=FirstAndRandom(1, 0.5))
    estimate = advantages(world.batch, objective)
    seeds = [torch.Generator().manual_seed(3) for _ in range(2)]
    first, again = (cast(Any, select(world.batch, objective, estimate, generator=seed)) for seed in seeds)
    assert torch.equal(first.keep, again.keep)
    lp, _ = world.forward()
    _, grad = gradient_of(objective, lp, estimate, first)
    assert not grad[first.keep == 0].any()
    assert float(denominators(first, objective).tokens[0]) == float((first.keep > 0).sum())
    with pytest.raises(ValueError, match="call select"):
        loss(objective, lp, None, estimate, world.batch, denominators(world.batch, objective))


def test_truncated_answers_are_left_out() -> None:
    batch: Any = toy().batch
    estimate = advantages(batch, GRPO)
    masked: Any = select(batch, vary_objective(GRPO, overlong=OverlongMask()), estimate).keep
    assert torch.equal(masked, batch.mask * ~batch.truncated[:, None])
    with pytest.raises(ValueError, match=r"Batch\.truncated"):
        select(replace(batch, truncated=None), vary_objective(GRPO, overlong=OverlongMask()), estimate)


def test_tree_nodes_count_once_each() -> None:
    """Answers ab, ab, ac, d: the nodes where answers part are a, d (root) and b, c (after a)."""
    objective = preset("t_spmo")
    ids = torch.tensor([[1, 2], [1, 2], [1, 3], [4, 0]])
    mask, zeros = doubles([[1, 1], [1, 1], [1, 1], [1, 0]]), torch.zeros(4, 2, dtype=torch.float64)
    batch = bandit_batch([1.0, 1.0, 0.0, 0.0], mask=mask, lp_behaviour=zeros, lp_proximal=zeros, ids=ids)
    estimate = advantages(batch, objective)
    chosen: Any = select(batch, objective, estimate)
    expected = doubles([[1 / 3, 1 / 2], [1 / 3, 1 / 2], [1 / 3, 1], [1, 0]])
    torch.testing.assert_close(chosen.keep, expected)
    assert float(denominators(chosen, objective).tokens[0]) == pytest.approx(4.0)
    value, _ = gradient_of(objective, zeros, estimate, chosen)
    # mean over the nodes a, d, b, c of -A: A(a) = 2/3 - 1/2, A(d) = -1/2, A(b) = 1 - 2/3, A(c) = -2/3.
    assert value == pytest.approx(-(1 / 6 - 1 / 2 + 1 / 3 - 2 / 3) / 4)


LOGITS = doubles([0.4, -0.3, 0.8, 0.1])
REFERENCE = torch.log_softmax(doubles([-0.2, 0.5, 0.3, -0.6]), 0)


ESTIMATORS = {"k1": lambda lp, reference: lp - reference, "k2": k2, "k3": k3}


def estimated(estimator: str, logits: Tensor) -> Tensor:
    """E[estimator] with the samples' probabilities held fixed, as a loss on samples sees it."""
    lp = torch.log_softmax(logits, 0)
    return (lp.exp().detach() * ESTIMATORS[estimator](lp, REFERENCE)).sum()


def reverse(logits: Tensor) -> Tensor:
    lp = torch.log_softmax(logits, 0)
    return (lp.exp() * (lp - REFERENCE)).sum()


def forward(logits: Tensor) -> Tensor:
    lp = torch.log_softmax(logits, 0)
    return (REFERENCE.exp() * (REFERENCE - lp)).sum()


def at_logits(function: Any) -> Tensor:
    """The gradient of a function of the logits."""
    logits = LOGITS.clone().requires_grad_(True)
    return torch.autograd.grad(function(logits), logits)[0]


def test_values() -> None:
    lp = torch.log_softmax(LOGITS, 0)
    kl = reverse(LOGITS)
    torch.testing.assert_close((lp.exp() * k3(lp, REFERENCE)).sum(), kl)
    assert (k3(lp, REFERENCE) >= 0).all()
    assert float(k3(torch.tensor(-100.0), torch.tensor(0.0))) == 10.0


def test_gradients_as_losses() -> None:
    kl, backward = at_logits(reverse), at_logits(forward)
    k1_, k2_, k3_ = (at_logits(partial(estimated, name)) for name in ("k1", "k2", "k3"))
    assert k1_.abs().max() < 1e-12
    torch.testing.assert_close(k2_, kl, atol=1e-12, rtol=1e-9)
    torch.testing.assert_close(k3_, backward, atol=1e-12, rtol=1e-9)
    assert (kl - backward).abs().max() > 1e-2


def test_regression_is_zero_at_the_optimal_policy() -> None:
    beta = 0.4
    reference = torch.log_softmax(doubles([0.3, -0.2, 0.5]), 0)
    arms = doubles([1.0, 0.0, 0.5])
    best = beta * torch.logsumexp(reference + arms / beta, 0)
    policy = reference + (arms - best) / beta
    assert float(policy.exp().sum()) == pytest.approx(1.0)
    objective = preset("a_star_po", surrogate=Regression(beta), advantage=SoftValue(beta))
    batch = bandit_batch(arms.tolist(), [0, 1, 2], lp_reference=reference[:, None], soft_value=best.expand(3))
    value, grad = gradient_of(objective, policy[:, None], advantages(batch, objective), batch)
    assert value == pytest.approx(0.0, abs=1e-12)
    assert grad.abs().max() < 1e-10


PPO = preset("ppo")


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None]


def test_value_loss_by_hand() -> None:
    """Old values 0; new ones 0.1, 0.5, 0.5; targets 1, 1, 0.1; a step beyond 0.2 is clipped where that is worse."""
    batch = bandit_batch([1.0, 1.0, 0.1], values=column(0.0, 0.0, 0.0))
    targets = column(1.0, 1.0, 0.1)
    values = column(0.1, 0.5, 0.5).requires_grad_(True)
    shared = denominators(batch, PPO)
    got = value_loss(values, targets, batch, PPO, shared)
    # Clipped predictions are 0.1, 0.2, 0.2: errors max(.81, .81), max(.25, .64), max(.16, .01).
    assert float(got.detach()) == pytest.approx(0.5 * 0.5 * (0.81 + 0.64 + 0.16) / 3)
    (grad,) = torch.autograd.grad(got, values)
    assert grad[1] == 0.0
    assert float(grad[2]) == pytest.approx(0.5 * 0.4 / 3)
    free = value_loss(values, targets, batch, vary_objective(PPO, advantage=Gae(0.95, scale=Whitened())), shared)
    assert float(free.detach()) == pytest.approx(0.5 * 0.5 * (0.81 + 0.25 + 0.16) / 3)
    with pytest.raises(ValueError, match=r"Batch\.values"):
        value_loss(values, targets, replace(batch, values=None), PPO, shared)


def test_value_loss_ignores_masked_tokens_and_adds_over_parts() -> None:
    batch: Any = toy().batch
    objective = vary_objective(PPO, advantage=Gae(0.95, scale=Whitened()))
    targets, shared = torch.randn(batch.shape).double(), denominators(batch, objective)
    whole = value_loss(batch.values, targets, batch, objective, shared)
    first, second = (
        value_loss(batch.values[rows], targets[rows], batch.rows(rows), objective, shared)
        for rows in (slice(0, 4), slice(4, None))
    )
    torch.testing.assert_close(first + second, whole)
    noisy = torch.where(batch.mask > 0, targets, math.nan)
    torch.testing.assert_close(value_loss(batch.values, noisy, batch, objective, shared), whole)
