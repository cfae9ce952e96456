"""Log-probabilities and entropies of chosen tokens, a chunk of the vocabulary-wide matrix at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from keepworth.episodes.extras import needs_llm

import torch
from torch.autograd.function import once_differentiable

Head = Callable[[torch.Tensor], torch.Tensor]


def token_scores(
    head: Head,
    hidden: torch.Tensor,
    target: torch.Tensor,
    temperature: float = 1.0,
    chunk: int = 128,
    parameters: Sequence[torch.Tensor] = (),
) -> tuple[torch.Tensor, torch.Tensor]:
    """hidden [N, H] and target [N] -> log-probability of each target and entropy of its distribution, both [N], nats.

    Only `chunk` rows of logits exist at a time, forwards and backwards: the backward pass recomputes them.
    Softmax is in float32 whatever the model's dtype (float64 stays float64).
    parameters: of the head, those that are to get a gradient.
    """
    if temperature <= 0:
        raise ValueError(f"temperature must be positive to score tokens, not {temperature}")
    parts = [
        _Scores.apply(  # type: ignore[no-untyped-call]
            head, temperature, target[start : start + chunk], hidden[start : start + chunk], *parameters
        )
        for start in range(0, hidden.shape[0], chunk)
    ]
    if not parts:
        empty = hidden.new_zeros(0, dtype=torch.float32)
        return empty, empty
    logprobs, entropies = zip(*parts, strict=True)
    return torch.cat(logprobs), torch.cat(entropies)


class _Scores(torch.autograd.Function):
    """With z = logits / temperature and p = softmax(z): d log p[t] / dz = onehot(t) - p and dH / dz = -p (log p + H)."""

    @staticmethod
    def forward(
        ctx: Any,
        head: Head,
        temperature: float,
        target: torch.Tensor,
        hidden: torch.Tensor,
        *parameters: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        scaled = _scaled(head(hidden), temperature)
        largest = scaled.amax(-1, keepdim=True)
        scaled = scaled.sub_(largest)
        weights = scaled.exp()
        total = weights.sum(-1)
        logprob = scaled.gather(1, target[:, None]).squeeze(1) - total.log()
        entropy = total.log() - scaled.mul_(weights).sum(-1) / total
        ctx.head, ctx.temperature = head, temperature
        ctx.save_for_backward(target, hidden, largest.squeeze(1) + total.log(), entropy, *parameters)
        ctx.set_materialize_grads(False)
        return logprob, entropy

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, to_logprob: torch.Tensor | None, to_entropy: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        target, hidden, normaliser, entropy, *parameters = ctx.saved_tensors
        leaf = hidden.detach().requires_grad_()
        with torch.enable_grad():
            logits = ctx.head(leaf)
        logprobs = _scaled(logits.detach(), ctx.temperature).sub_(normaliser[:, None])
        to_target = torch.zeros_like(normaliser) if to_logprob is None else to_logprob / ctx.temperature
        if to_entropy is None:
            gradient = logprobs.exp_().mul_(-to_target[:, None])
        else:
            shares = logprobs.exp()
            gradient = logprobs.add_(entropy[:, None]).mul_((-to_entropy / ctx.temperature)[:, None])
            gradient = gradient.sub_(to_target[:, None]).mul_(shares)
        gradient.scatter_add_(1, target[:, None], to_target[:, None])
        grads = torch.autograd.grad(logits, (leaf, *parameters), gradient.to(logits.dtype))
        return None, None, None, *grads


def _scaled(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """A copy in float32 (float64 stays float64), divided by the temperature, that may be written over."""
    copied = logits.to(torch.promote_types(logits.dtype, torch.float32), copy=True)
    return copied if temperature == 1 else copied.div_(temperature)
