"""Attention over a prompt and a tree of branches, for any Hugging Face decoder that accepts an attention function.

Queries come in two parts. The first `Q - S` are the prompt's and are plainly causal; the last `S` are the branches'
and follow the mask `[B, 1, S, K]` that `keepworth.models.tree` builds. Splitting them lets the prompt's part skip the
upper triangle, which a dense `[Q, K]` mask would compute and throw away. Grouped-query heads are never copied out.

On processors the arithmetic is written out, a block of queries at a time, instead of handed to PyTorch's fused kernel:
the heads that share keys become rows of one matrix product, and the backward pass recomputes the probabilities.
Scores, softmax and sums over blocks are float32, or float64 where the model is.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from keepworth.episodes.extras import needs_llm

import torch
from torch.autograd.function import once_differentiable
from torch.nn.functional import scaled_dot_product_attention

from keepworth.models.errors import UnsupportedModel
from keepworth.models.support import context_limit

NAME = "keepworth_tree"
_CHANGES_SCORES = ("softcap", "s_aux", "sinks", "position_bias", "attention_bias", "alibi")
_SKIPPED = 64  # columns of siblings that a block must be spared before gathering the others pays
_BLOCK_ROWS = 192  # queries times the heads that share a key: the block's scores stay in the second-level cache


def tree_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    row_widths: Sequence[tuple[int, int, int]] = (),
    **features: Any,
) -> tuple[torch.Tensor, None]:
    """query [B, H, Q, D]; key, value [B, KV, K, D]; attention_mask: bool [B, 1, S, K] for the last S queries, or None.

    The queries are those of the last Q columns: of all of them, or of those behind what a cache holds.
    row_widths: (first row, past the last, columns) of stretches of rows that see no column beyond: they read no further.
    Returns [B, Q, H, D] and no weights. Dropout is refused: sampler and learner must compute the same thing.
    features: what else the network asks for. Raises UnsupportedModel where that would change the result.
    """
    if dropout:
        raise ValueError("attention dropout would make the learner disagree with the sampler; set it to 0")
    _require_plain(features, module)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    attend = blockwise if query.device.type == "cpu" else fused
    if len(row_widths) < 2 or attention_mask is None:
        return attend(query, key, value, attention_mask, scale), None
    parts = [
        attend(
            query[first:past],
            key[first:past, :, :width],
            value[first:past, :, :width],
            attention_mask[first:past, ..., :width],
            scale,
        )
        for first, past, width in row_widths
    ]
    return torch.cat(parts), None


def _require_plain(features: dict[str, Any], module: torch.nn.Module) -> None:
    family = "Take a model of the Llama, Qwen, Mistral or SmolLM kind, or an engine of its own over HTTP."
    for name in _CHANGES_SCORES:
        if features.get(name) is not None:
            raise UnsupportedModel(f"The network's attention asks for {name}, which is not computed here.", family)
    if features.get("is_causal") is False:
        raise UnsupportedModel("The network's attention looks ahead (is_causal=False): it is an encoder.", family)
    # The engine computes no text longer than `context_limit`, so that no window within it ever hides anything.
    window, config = features.get("sliding_window"), getattr(module, "config", None)
    if window is not None and (config is None or window < context_limit(config)):
        raise UnsupportedModel(
            f"The network's attention slides a window of {window} tokens that its configuration does not speak of.",
            family,
        )


def fused(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, scale: float
) -> torch.Tensor:
    """PyTorch's own kernels; shapes as for `tree_attention`."""
    causal = query.shape[2] - (0 if mask is None else mask.shape[2])
    before = key.shape[2] - query.shape[2]
    parts = []
    if causal:
        first = query[:, :, :causal], key[:, :, : before + causal], value[:, :, : before + causal]
        seen = (
            torch.ones(causal, before + causal, dtype=torch.bool, device=query.device).tril(before) if before else None
        )
        parts.append(
            scaled_dot_product_attention(
                *first, attn_mask=seen, is_causal=seen is None and causal > 1, scale=scale, enable_gqa=True
            )
        )
    if mask is not None:
        last = query[:, :, causal:], key, value
        parts.append(scaled_dot_product_attention(*last, attn_mask=mask, scale=scale, enable_gqa=True))
    output = parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)
    return output.transpose(1, 2).contiguous()


def blockwise(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, scale: float
) -> torch.Tensor:
    """The same written out, for processors; shapes as for `tree_attention`."""
    output: torch.Tensor = _Blockwise.apply(query, key, value, mask, scale)  # type: ignore[no-untyped-call]
    return output


class _Blockwise(torch.autograd.Function):
    """Nothing of size [Q, K] is kept for the backward pass; it computes each block's probabilities again."""

    @staticmethod
    def forward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, scale: float
    ) -> torch.Tensor:
        ctx.save_for_backward(query, key, value, mask)
        ctx.scale = scale
        (rows, heads, length, _), (_, shared, _, size) = query.shape, value.shape
        queries = query.unflatten(1, (shared, -1))  # type: ignore[no-untyped-call]
        wide, values = key.to(_wide(key.dtype)).flatten(0, 1), value.flatten(0, 1)
        output = query.new_empty(rows, length, shared, heads // shared, size)
        with _bf16_products(query.dtype):
            for start, end, seen in _blocks(query, key, mask):
                columns = _columns(mask, length, start, end, seen)
                shares = _shares(queries[:, :, :, start:end], wide[:, columns], mask, length, start, columns, scale)
                part = torch.bmm(shares.to(query.dtype), values[:, columns])
                output[:, start:end] = part.view(rows, shared, -1, end - start, size).permute(0, 3, 1, 2, 4)
        return output.flatten(2, 3)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        query, key, value, mask = ctx.saved_tensors
        scale, dtype, wide = ctx.scale, query.dtype, _wide(query.dtype)
        length, shared = query.shape[2], key.shape[1]
        queries = query.unflatten(1, (shared, -1))
        gradients = gradient.unflatten(2, (shared, -1)).permute(0, 2, 3, 1, 4)  # type: ignore[no-untyped-call]
        keys, wide_keys, wide_values = key.flatten(0, 1), key.to(wide).flatten(0, 1), value.to(wide).flatten(0, 1)
        to_query, to_key, to_value = torch.empty_like(query), torch.zeros_like(wide_keys), torch.zeros_like(wide_values)
        to_queries = to_query.unflatten(1, (shared, -1))  # type: ignore[no-untyped-call]
        with _bf16_products(dtype):
            for start, end, seen in _blocks(query, key, mask):
                block = queries[:, :, :, start:end]
                columns = _columns(mask, length, start, end, seen)
                shares = _shares(block, wide_keys[:, columns], mask, length, start, columns, scale)
                incoming = _as_rows(gradients[:, :, :, start:end])
                to_value[:, columns] += torch.bmm(shares.to(dtype).transpose(1, 2), incoming)
                to_shares = torch.bmm(incoming.to(wide), wide_values[:, columns].transpose(1, 2))
                # shares * (to_shares - sum(shares * to_shares)), in one pass
                to_scores = torch._softmax_backward_data(to_shares, shares, -1, wide).to(dtype)
                part = torch.bmm(to_scores, keys[:, columns]).mul_(scale)
                to_queries[:, :, :, start:end] = part.view(block.shape)
                to_key[:, columns] += torch.bmm(to_scores.transpose(1, 2), _as_rows(block))
        return to_query, to_key.mul_(scale).to(dtype).view(key.shape), to_value.to(dtype).view(value.shape), None, None


def _blocks(query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor | None) -> Iterator[tuple[int, int, int]]:
    """First query, end, and how many keys the block can see; no block is both the prompt's and the branches'."""
    length = query.shape[2]
    before = key.shape[2] - length
    step = max(1, _BLOCK_ROWS * key.shape[1] // query.shape[1])
    causal = length - (0 if mask is None else mask.shape[2])
    for start in range(0, causal, step):
        end = min(start + step, causal)
        yield start, end, before + end
    for start in range(causal, length, step):
        end = min(start + step, length)
        yield start, end, before + end


def _columns(mask: torch.Tensor | None, length: int, start: int, end: int, seen: int) -> slice | torch.Tensor:
    """Which of the first `seen` keys a block reads: all of them, or, where branches are long, the prompt and what lies
    from the block's first own column on. The columns of earlier siblings in between would only be masked out."""
    if mask is None or start < length - mask.shape[2] or mask.shape[2] < _SKIPPED:
        return slice(0, seen)
    first = start - (length - mask.shape[2])
    prompt = mask.shape[3] - mask.shape[2]
    own = mask[:, 0, first : first + end - start, prompt:seen].flatten(0, 1).any(0)
    skipped = int(own.to(torch.uint8).argmax())
    if skipped < _SKIPPED:
        return slice(0, seen)
    return torch.cat((torch.arange(prompt), torch.arange(prompt + skipped, seen)))


def _shares(
    block: torch.Tensor,
    keys: torch.Tensor,
    mask: torch.Tensor | None,
    length: int,
    start: int,
    columns: slice | torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """Attention probabilities [B * KV, G * Q', K'] of a block of queries [B, KV, G, Q', D] over keys [B * KV, K', D].

    length: all queries. start: the block's first one. columns: which keys these are."""
    (rows, shared, group, count, _), seen = block.shape, keys.shape[1]
    scores = keys.new_empty(rows * shared, group * count, seen)
    torch.baddbmm(scores, _as_rows(block).to(keys.dtype), keys.transpose(1, 2), beta=0.0, alpha=scale, out=scores)
    by_query = scores.view(rows, shared, group, count, seen)
    causal = length - (0 if mask is None else mask.shape[2])
    if mask is None or start < causal:
        later = torch.ones(count, count, dtype=torch.bool).triu_(1)
        by_query[..., seen - count :].masked_fill_(later, float("-inf"))
    else:
        allowed = mask[:, :, None, start - causal : start - causal + count, columns]
        by_query.masked_fill_(~allowed, float("-inf"))
    return torch.softmax(scores, -1)


def _as_rows(block: torch.Tensor) -> torch.Tensor:
    """[B, KV, G, Q', D] -> [B * KV, G * Q', D]: heads that share keys become rows of one product."""
    rows, shared, group, count, size = block.shape
    return block.reshape(rows * shared, group * count, size)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


@contextlib.contextmanager
def _bf16_products(dtype: torch.dtype) -> Iterator[None]:
    """Lets float32 products of bfloat16 numbers use bfloat16 instructions: exact products, float32 sums and results.

    PyTorch has no bfloat16 product with a float32 result on processors. Where it lacks the setting (before 2.9), or
    the processor lacks the instructions, plain float32 gives the same numbers more slowly.
    """
    settings = getattr(torch.backends.mkldnn, "matmul", None)
    if dtype is not torch.bfloat16 or settings is None:
        yield
        return
    # The setting is the process's, and a sampler and a learner may be in here at once: the last one out restores it.
    with _SETTING:
        _inside.bf16 += 1
        _inside.set(settings)
    try:
        yield
    finally:
        with _SETTING:
            _inside.bf16 -= 1
            _inside.set(settings)


@contextlib.contextmanager
def float32_products(dtype: torch.dtype) -> Iterator[None]:
    """Inside, float32 products are float32 whatever another thread's attention does: `_bf16_products` changes a setting of
    the whole process. Attention that runs meanwhile gets the same numbers more slowly. Nothing to do unless dtype is float32.
    """
    settings = getattr(torch.backends.mkldnn, "matmul", None)
    if dtype is not torch.float32 or settings is None:
        yield
        return
    with _SETTING:
        _inside.float32 += 1
        _inside.set(settings)
    try:
        yield
    finally:
        with _SETTING:
            _inside.float32 -= 1
            _inside.set(settings)


class _Inside:
    """How many threads are in which of the two, and what the setting was before we lowered it; None while we have not."""

    bf16 = 0
    float32 = 0
    before: str | None = None

    def set(self, settings: Any) -> None:
        if self.bf16 and not self.float32:
            if self.before is None:
                self.before = settings.fp32_precision
                settings.fp32_precision = "bf16"
        elif self.before is not None:
            settings.fp32_precision, self.before = self.before, None


_SETTING = threading.Lock()
_inside = _Inside()


def register() -> str:
    """Make the function known to transformers; returns the name to pass as `attn_implementation`."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, tree_attention)
    return NAME
