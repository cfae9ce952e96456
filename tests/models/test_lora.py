"""The fused LoRA layer against PEFT's own."""

from __future__ import annotations

import copy

import pytest
import torch
from peft import LoraConfig, get_peft_model

from keepworth.models.fused_adapter import fuse


def network(bias: bool, dropout: float = 0.0) -> torch.nn.Module:
    torch.manual_seed(0)
    base = torch.nn.Sequential(torch.nn.Linear(6, 8, bias=bias), torch.nn.Tanh(), torch.nn.Linear(8, 5, bias=bias))
    settings = LoraConfig(r=3, lora_alpha=7.0, lora_dropout=dropout, target_modules=["0", "2"])
    adapted = get_peft_model(base, settings).double()
    for name, value in adapted.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(value)
    return adapted


@pytest.mark.parametrize("bias", [True, False])
def test_values_and_gradients_equal_pefts(bias: bool) -> None:
    theirs = network(bias)
    ours = copy.deepcopy(theirs)
    fuse(ours)
    results = []
    for each in (ours, theirs):
        x = torch.randn(2, 4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
        output = each(x)
        output.square().sum().backward()
        results.append([output.detach(), x.grad, *(p.grad for p in each.parameters() if p.requires_grad)])
        assert all(p.grad is None for p in each.parameters() if not p.requires_grad)
    assert len(results[0]) == 6
    for one, other in zip(*results, strict=True):
        assert torch.allclose(one, other, atol=1e-12)


def test_it_is_used_and_steps_aside_where_it_would_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    from keepworth.models import fused_adapter

    fused: list[int] = []
    apply = fused_adapter._Fused.apply
    monkeypatch.setattr(fused_adapter._Fused, "apply", lambda *given: fused.append(1) or apply(*given))
    ours, x = network(True), torch.randn(3, 6, dtype=torch.float64)
    fuse(ours)
    adapted = ours(x)
    assert len(fused) == 2
    with ours.disable_adapter():
        assert not torch.allclose(ours(x), adapted)
    ours.merge_adapter()
    assert torch.allclose(ours(x), adapted, atol=1e-12)
    noisy = network(True, dropout=0.5).train()
    fuse(noisy)
    noisy(x)
    assert len(fused) == 2


def test_a_copy_computes_with_its_own_weights() -> None:
    ours, x = network(True), torch.randn(3, 6, dtype=torch.float64)
    fuse(ours)
    other = copy.deepcopy(ours)
    before = ours(x)
    for name, value in other.named_parameters():
        if "lora_B" in name:
            torch.nn.init.zeros_(value)
    assert torch.equal(ours(x), before)
    assert not torch.allclose(other(x), before)
