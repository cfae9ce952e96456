"""Which drawn tokens count."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from keepworth.learning.objective.advantage import advantages, select
from keepworth.learning.objective.formulas import first_and_random, top_entropy
from keepworth.learning.objective.parts import FirstAndRandom, OverlongMask, TopEntropy
from keepworth.learning.objective.policy_loss import denominators, loss
from keepworth.learning.objective.presets import preset, varied, without_kl
from tests.learning.objective.toys import toy

GRPO = without_kl(preset("grpo"))


def test_the_first_tokens_are_sure_and_the_rest_are_drawn_at_their_rate() -> None:
    mask = torch.ones(400, 50)
    mask[:, 3] = 0
    keep, inclusion = first_and_random(mask, 5, 0.3, None, torch.Generator().manual_seed(0))
    assert keep[:, [0, 1, 2, 4, 5]].all()
    assert not keep[:, 3].any()
    assert float(keep[:, 6:].double().mean()) == pytest.approx(0.3, abs=0.01)
    assert inclusion[:, 6:].eq(0.3).all()
    assert inclusion[:, :3].eq(1.0).all()


def test_a_limit_keeps_the_first_tokens_and_a_uniform_subset_of_the_rest() -> None:
    mask = torch.ones(4000, 12)
    keep, _ = first_and_random(mask, 2, 0.8, 5, torch.Generator().manual_seed(0))
    assert keep[:, :2].all()
    assert int(keep.sum(1).max()) == 5
    later = keep[:, 2:].double().mean(0)
    assert float(later.max() - later.min()) < 0.05
    with pytest.raises(ValueError, match="limit=1"):
        first_and_random(mask, 2, 0.8, 1, None)


def test_inclusion_weights_make_the_sum_unbiased() -> None:
    values = torch.rand(1, 30).double()
    mask = torch.ones(20_000, 30)
    keep, inclusion = first_and_random(mask, 3, 0.4, None, torch.Generator().manual_seed(1))
    estimate = (keep / inclusion * values).sum(1).mean()
    assert float(estimate) == pytest.approx(float(values.sum()), rel=0.01)


def test_selection_is_reproducible_and_reaches_the_loss() -> None:
    world = toy()
    objective = preset("s_grpo", selection=FirstAndRandom(1, 0.5))
    estimate = advantages(world.batch, objective)
    first, again = (
        select(world.batch, objective, estimate, generator=torch.Generator().manual_seed(3)) for _ in range(2)
    )
    assert first.keep is not None
    assert again.keep is not None
    assert torch.equal(first.keep, again.keep)
    lp, _ = world.forward()
    lp = lp.detach().requires_grad_(True)
    value, _ = loss(objective, lp, None, estimate, first, denominators(first, objective))
    (grad,) = torch.autograd.grad(value, lp)
    assert not grad[first.keep == 0].any()
    assert float(denominators(first, objective).tokens[0]) == float((first.keep > 0).sum())
    with pytest.raises(ValueError, match="call select"):
        loss(objective, lp, None, estimate, world.batch, denominators(world.batch, objective))


def test_top_entropy() -> None:
    mask = torch.tensor([[1.0, 1, 1, 0], [1, 1, 0, 0]])
    entropy = torch.tensor([[0.1, 0.9, 0.3, 9.0], [0.8, 0.2, 9.0, 9.0]])
    assert top_entropy(mask, entropy, 0.4).int().tolist() == [[0, 1, 0, 0], [1, 0, 0, 0]]
    assert not top_entropy(mask * 0, entropy, 0.4).any()
    objective = varied(GRPO, selection=TopEntropy(0.2))
    world = toy()
    keep = select(world.batch, objective, advantages(world.batch, objective)).keep
    assert keep is not None
    assert float(keep.sum()) == round(0.2 * float(world.batch.mask.sum()))
    with pytest.raises(ValueError, match="entropy_behaviour"):
        select(replace(world.batch, entropy_behaviour=None), objective, world.batch.mask)


def test_truncated_answers_and_stale_tokens_are_left_out() -> None:
    world = toy()
    batch = world.batch
    assert batch.truncated is not None
    assert batch.version_lag is not None
    estimate = advantages(batch, GRPO)
    masked = select(batch, varied(GRPO, overlong=OverlongMask()), estimate).keep
    assert masked is not None
    assert torch.equal(masked, batch.mask * ~batch.truncated[:, None])
    fresh = select(batch, varied(GRPO, max_lag=1), estimate).keep
    assert fresh is not None
    assert torch.equal(fresh, batch.mask * (batch.version_lag <= 1))
    with pytest.raises(ValueError, match=r"Batch\.truncated"):
        select(replace(batch, truncated=None), varied(GRPO, overlong=OverlongMask()), estimate)
    with pytest.raises(ValueError, match=r"Batch\.version_lag"):
        select(replace(batch, version_lag=None), varied(GRPO, max_lag=1), estimate)


def test_tree_nodes_count_once_each() -> None:
    """Answers ab, ab, ac, d: the nodes where answers part are a, d (root) and b, c (after a)."""
    objective = preset("t_spmo")
    world = toy()
    ids = torch.tensor([[1, 2], [1, 2], [1, 3], [4, 0]])
    mask = torch.tensor([[1.0, 1], [1, 1], [1, 1], [1, 0]], dtype=torch.float64)
    zeros = torch.zeros(4, 2, dtype=torch.float64)
    batch = type(world.batch)(
        mask,
        zeros,
        torch.tensor([1.0, 1.0, 0.0, 0.0], dtype=torch.float64),
        torch.zeros(4, dtype=torch.long),
        torch.arange(4),
        lp_proximal=zeros,
        ids=ids,
    )
    estimate = advantages(batch, objective)
    chosen = select(batch, objective, estimate)
    assert chosen.keep is not None
    expected = torch.tensor([[1 / 3, 1 / 2], [1 / 3, 1 / 2], [1 / 3, 1], [1, 0]], dtype=torch.float64)
    torch.testing.assert_close(chosen.keep, expected)
    shared = denominators(chosen, objective)
    assert float(shared.tokens[0]) == pytest.approx(4.0)
    lp = zeros.clone().requires_grad_(True)
    value, _ = loss(objective, lp, None, estimate, chosen, shared)
    # mean over the nodes a, d, b, c of -A: A(a) = 2/3 - 1/2, A(d) = -1/2, A(b) = 1 - 2/3, A(c) = -2/3.
    assert float(value.detach()) == pytest.approx(-(1 / 6 - 1 / 2 + 1 / 3 - 2 / 3) / 4)
