"""Scores and their written-out gradients against autograd on the definition."""

from __future__ import annotations

import pytest
import torch

from keepworth.models.inprocess import token_scores


def plain(head, hidden, target, temperature):
    logprobs = torch.log_softmax(head(hidden) / temperature, -1)
    return logprobs.gather(1, target[:, None]).squeeze(1), -(logprobs.exp() * logprobs).sum(-1)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("uses", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("trained_head", [True, False])
def test_values_and_gradients_equal_autograd(temperature: float, uses: tuple[bool, bool], trained_head: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    target = torch.randint(0, 11, (9,), generator=generator)
    weights = torch.randn(2, 9, generator=generator, dtype=torch.float64)
    results = []
    for ours in (True, False):
        torch.manual_seed(1)
        head = torch.nn.Linear(5, 11).double().requires_grad_(trained_head)
        hidden = torch.randn(9, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).requires_grad_()
        if ours:
            parameters = [parameter for parameter in head.parameters() if parameter.requires_grad]
            scores = token_scores(head, hidden, target, temperature, chunk=4, parameters=parameters)
        else:
            scores = plain(head, hidden, target, temperature)
        sum((w * s).sum() for w, s, used in zip(weights, scores, uses, strict=True) if used).backward()
        results.append(
            [*(s.detach() for s in scores), hidden.grad, *(parameter.grad for parameter in head.parameters())]
        )
    for one, other in zip(*results, strict=True):
        assert (one is None and other is None) or torch.allclose(one, other, atol=1e-12)


def test_large_logits_and_no_tokens() -> None:
    head = torch.nn.Identity()
    logits = torch.tensor([[1e4, 0.0, -1e4], [88.0, 89.0, 90.0]])
    logprobs, entropies = token_scores(head, logits, torch.tensor([0, 2]))
    assert logprobs[0] == 0.0
    assert entropies[0] == 0.0
    assert torch.allclose(logprobs[1], torch.log_softmax(logits[1], -1)[2])
    assert all(score.shape == (0,) for score in token_scores(head, logits[:0], torch.tensor([], dtype=torch.long)))
    assert logits[0, 0] == 1e4, "the caller's logits must not be written over"


def test_temperature_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="temperature"):
        token_scores(torch.nn.Identity(), torch.zeros(1, 2), torch.tensor([0]), temperature=0.0)
