"""Attention over a prompt and a tree of branches, for any Hugging Face decoder that accepts an attention function.

Queries come in two parts. The first `Q - S` are the prompt's and are plainly causal; the last `S` are the branches'
and follow the mask `[B, 1, S, K]` that `recollect.models.tree` builds. Splitting them lets the prompt's part skip the
upper triangle, which a dense `[Q, K]` mask would compute and throw away. Grouped-query heads are never copied out.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

NAME = "recollect_tree"


def tree_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **unused: Any,
) -> tuple[torch.Tensor, None]:
    """query [B, H, Q, D]; key, value [B, KV, K, D]; attention_mask: bool [B, 1, S, K] for the last S queries, or None.

    Returns [B, Q, H, D] and no weights. Dropout is refused: sampler and learner must compute the same thing.
    """
    if dropout:
        raise ValueError("attention dropout would make the learner disagree with the sampler; set it to 0")
    branched = 0 if attention_mask is None else attention_mask.shape[-2]
    causal = query.shape[2] - branched
    parts = []
    if causal:
        parts.append(
            scaled_dot_product_attention(
                query[:, :, :causal],
                key[:, :, :causal],
                value[:, :, :causal],
                is_causal=causal > 1,
                scale=scaling,
                enable_gqa=True,
            )
        )
    if branched:
        parts.append(
            scaled_dot_product_attention(
                query[:, :, causal:], key, value, attn_mask=attention_mask, scale=scaling, enable_gqa=True
            )
        )
    output = parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)
    return output.transpose(1, 2).contiguous(), None


def register() -> str:
    """Make the function known to transformers; returns the name to pass as `attn_implementation`."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, tree_attention)
    return NAME
