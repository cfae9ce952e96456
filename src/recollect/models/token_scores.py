"""Log-probabilities and entropies of chosen tokens, a chunk of the vocabulary-wide matrix at a time."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.utils.checkpoint import checkpoint

Head = Callable[[torch.Tensor], torch.Tensor]


def token_scores(
    head: Head, hidden: torch.Tensor, target: torch.Tensor, temperature: float = 1.0, chunk: int = 512
) -> tuple[torch.Tensor, torch.Tensor]:
    """hidden [N, H] and target [N] -> log-probability of each target and entropy of its distribution, both [N], nats.

    Only `chunk` rows of logits exist at a time, forwards and backwards: the backward pass recomputes them.
    Softmax is in float32 whatever the model's dtype (float64 stays float64).
    """
    if temperature <= 0:
        raise ValueError(f"temperature must be positive to score tokens, not {temperature}")
    differentiate = torch.is_grad_enabled() and hidden.requires_grad
    logprobs, entropies = [], []
    for start in range(0, hidden.shape[0], chunk):
        part, ids = hidden[start : start + chunk], target[start : start + chunk]
        if differentiate:
            logprob, entropy = checkpoint(_scores, head, part, ids, temperature, use_reentrant=False)
        else:
            logprob, entropy = _scores(head, part, ids, temperature)
        logprobs.append(logprob)
        entropies.append(entropy)
    if not logprobs:
        empty = hidden.new_zeros(0, dtype=torch.float32)
        return empty, empty
    return torch.cat(logprobs), torch.cat(entropies)


def _scores(
    head: Head, hidden: torch.Tensor, target: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    logits = head(hidden)
    logits = (logits if logits.dtype == torch.float64 else logits.float()) / temperature
    logprobs = torch.log_softmax(logits, dim=-1)
    entropy = -(logprobs.exp() * logprobs).sum(-1)
    return logprobs.gather(1, target[:, None]).squeeze(1), entropy
