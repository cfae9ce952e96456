"""Which drawn tokens count."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from keepworth.learning.objective.advantage import advantages, select
from keepworth.learning.objective.parts import OverlongMask
from keepworth.learning.objective.policy_loss import denominators, loss
from keepworth.learning.objective.presets import preset, varied
from keepworth.methods.objectives.s_grpo import FirstAndRandom, first_and_random
from tests.learning.objective.toys import toy

GRPO = preset("grpo", kl=None)


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


def test_truncated_answers_are_left_out() -> None:
    world = toy()
    batch = world.batch
    assert batch.truncated is not None
    estimate = advantages(batch, GRPO)
    masked = select(batch, varied(GRPO, overlong=OverlongMask()), estimate).keep
    assert masked is not None
    assert torch.equal(masked, batch.mask * ~batch.truncated[:, None])
    with pytest.raises(ValueError, match=r"Batch\.truncated"):
        select(replace(batch, truncated=None), varied(GRPO, overlong=OverlongMask()), estimate)


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
