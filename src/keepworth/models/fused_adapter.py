"""Computes a LoRA layer without PEFT's extra passes over memory: the same adapter, the same sum, fewer steps.

y = x W' + scale (x A') B', with the second product added inside the matrix multiplication (Hu et al., arXiv 2106.09685). In
bfloat16 it also rounds once where separate steps round three times."""

from __future__ import annotations

from types import MethodType
from typing import Any

from keepworth.base.needs import needs_llm

import torch
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear


def fuse(network: torch.nn.Module) -> None:
    """Makes PEFT's LoRA layers compute in one step wherever the result is the same; others stay as they are."""
    from peft.tuners.lora.layer import Linear

    for module in network.modules():
        if type(module) is Linear:
            module.forward = MethodType(_forward, module)


def _forward(layer: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    adapter = None if args or kwargs else plain_adapter(layer, x.dtype)
    if adapter is None:
        plain: torch.Tensor = type(layer).forward(layer, x, *args, **kwargs)
        return plain
    base, down, up = layer.base_layer, layer.lora_A[adapter].weight, layer.lora_B[adapter].weight
    rows: torch.Tensor = _Fused.apply(  # type: ignore[no-untyped-call]
        x.reshape(-1, x.shape[-1]), base.weight, base.bias, down, up, float(layer.scaling[adapter])
    )
    return rows.view(*x.shape[:-1], -1)  # out here, so that a network may write over it


def plain_adapter(layer: Any, dtype: torch.dtype) -> str | None:
    """Returns the one active adapter, if it is plain LoRA over a frozen linear layer of the input's dtype; else None."""
    if layer.disable_adapters or layer.merged:  # it equals its linear layer
        return None
    active = layer.active_adapters
    if len(active) != 1 or active[0] not in layer.lora_A or active[0] in layer.lora_variant:
        return None
    adapter: str = active[0]
    base, down, up = layer.base_layer, layer.lora_A[adapter], layer.lora_B[adapter]
    frozen = not base.weight.requires_grad and (base.bias is None or not base.bias.requires_grad)
    plain = type(base) is torch.nn.Linear and isinstance(layer.lora_dropout[adapter], torch.nn.Identity)
    alike = base.weight.dtype == down.weight.dtype == up.weight.dtype == dtype
    return adapter if frozen and plain and alike and down.bias is None and up.bias is None else None


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        rows: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        down: torch.Tensor,
        up: torch.Tensor,
        scale: float,
    ) -> torch.Tensor:
        inner = rows @ down.t()
        ctx.save_for_backward(rows, inner, weight, down, up)
        ctx.scale = scale
        return linear(rows, weight, bias).addmm_(inner, up.t(), alpha=scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        rows, inner, weight, down, up = ctx.saved_tensors
        to_inner = (gradient @ up).mul_(ctx.scale)
        to_x = None
        if ctx.needs_input_grad[0]:
            to_x = (gradient @ weight).addmm_(to_inner, down)
        to_down = to_inner.t() @ rows if ctx.needs_input_grad[3] else None
        to_up = (gradient.t() @ inner).mul_(ctx.scale) if ctx.needs_input_grad[4] else None
        return to_x, None, None, to_down, to_up, None
