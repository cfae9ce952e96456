"""The tree of a group: one row per prompt, the answers as branches of it, and the attention that computes them.

The prompt is computed and read once for the whole group. Columns of a row are `[prompt, padded to P | branches one
after the other, padded to S]`. See the docstrings of both halves.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from keepworth.episodes.needs import needs_llm

import torch
from torch.autograd.function import once_differentiable
from torch.nn.functional import scaled_dot_product_attention

from keepworth.episodes.model import Tokens
from keepworth.models.errors import UnsupportedModel


@dataclass(frozen=True, slots=True)
class Tree:
    """A batch of B rows with N branch tokens in all.

    ids, positions: [B, P + S]. mask: bool [B, 1, S, P + S], what each branch column sees.
    predictor: [N], flat index into [B * (P + S)] of the column whose hidden state predicts each branch token.
    target: [N], the branch tokens, row by row, branch by branch. row, branch, depth: [N], where each token stands.
    """

    ids: torch.Tensor
    positions: torch.Tensor
    mask: torch.Tensor
    predictor: torch.Tensor
    target: torch.Tensor
    row: torch.Tensor
    branch: torch.Tensor
    depth: torch.Tensor


def round_up(length: int, multiple: int) -> int:
    return -(-length // multiple) * multiple


def tree(prompts: Sequence[Tokens], branches: Sequence[Sequence[Tokens]], pad_id: int = 0, multiple: int = 16) -> Tree:
    """Lay out `branches[i]` behind `prompts[i]`.

    Lengths are padded to a multiple so that matrix shapes repeat: libraries build a kernel per shape.
    Raises ValueError for an empty prompt (nothing could predict the first branch token) or for unequal counts.
    """
    if len(prompts) != len(branches):
        raise ValueError(f"{len(prompts)} prompts but {len(branches)} lists of branches")
    for index, prompt in enumerate(prompts):
        if not prompt:
            raise ValueError(f"prompt {index} is empty: the first token of its branches would have no predictor")
    rows = len(prompts)
    prompt_width = round_up(max(len(p) for p in prompts), multiple)
    branch_width = round_up(max(1, *(sum(map(len, b)) for b in branches)), multiple)
    width = prompt_width + branch_width
    ids = torch.full((rows, width), pad_id, dtype=torch.long)
    positions = torch.zeros((rows, width), dtype=torch.long)
    owner = torch.full((rows, branch_width), -1, dtype=torch.long)
    prompt_length = torch.tensor([len(p) for p in prompts])
    predictor: list[int] = []
    target: list[int] = []
    where: list[tuple[int, int, int]] = []
    for i, (prompt, own) in enumerate(zip(prompts, branches, strict=True)):
        ids[i, : len(prompt)] = torch.tensor(prompt)
        positions[i, : len(prompt)] = torch.arange(len(prompt))
        column = prompt_width
        for j, branch in enumerate(own):
            if not branch:
                continue
            end = column + len(branch)
            ids[i, column:end] = torch.tensor(branch)
            positions[i, column:end] = torch.arange(len(prompt), len(prompt) + len(branch))
            owner[i, column - prompt_width : end - prompt_width] = j
            predictor.append(i * width + len(prompt) - 1)
            predictor.extend(i * width + c for c in range(column, end - 1))
            target.extend(branch)
            where.extend((i, j, d) for d in range(len(branch)))
            column = end
    row, branch_index, depth = torch.tensor(where, dtype=torch.long).reshape(-1, 3).unbind(1)
    return Tree(
        ids=ids,
        positions=positions,
        mask=branch_mask(prompt_length, prompt_width, owner),
        predictor=torch.tensor(predictor, dtype=torch.long),
        target=torch.tensor(target, dtype=torch.long),
        row=row,
        branch=branch_index,
        depth=depth,
    )


def branch_mask(
    prompt_length: torch.Tensor, prompt_width: int, owner: torch.Tensor, last: int | None = None
) -> torch.Tensor:
    """bool [B, 1, S, prompt_width + S] from the prompts' lengths [B] and the branch that owns each column [B, S].

    Padding columns (owner -1) see the prompt and each other, so that no softmax is over nothing; nothing sees them.
    last: only the mask of this many last columns, which is all that a sampling step asks for.
    """
    rows, width = owner.shape
    first = 0 if last is None else width - last
    past = torch.arange(width)[None, :] <= torch.arange(first, width)[:, None]
    own = (owner[:, first:, None] == owner[:, None, :]) & past
    prompt = torch.arange(prompt_width)[None, :] < prompt_length[:, None]
    return torch.cat([prompt[:, None, :].expand(rows, width - first, prompt_width), own], dim=2)[:, None]


def apart(prompt: int, branches: int, tokens: int) -> bool:
    """Whether a sampler should give each branch a row of its own instead of a place in its prompt's tree.

    A tree reads the prompt's keys once for all branches, but each branch is multiplied with its siblings' keys too.
    prompt, tokens: lengths of the prompt and of a branch at its end. The rule is read off measurements
    (`python -m benchmarks.speed.run --only branches`).
    """
    return branches > 1 and tokens > APART_TOKENS + APART_SHARE * prompt


APART_TOKENS, APART_SHARE = 40, 0.85
"""Eight branches of SmolLM2-135M on two cores broke even near 120 tokens behind a prompt of 100 and 370 behind 400."""


def per_branch(
    values: Sequence[float], prompts: Sequence[Tokens], branches: Sequence[Sequence[Tokens]]
) -> list[list[tuple[float, ...]]]:
    """Fold N per-token values, in `Tree.target` order, back into the shape of `branches`."""
    remaining = iter(values)
    return [[tuple(next(remaining) for _ in branch) for branch in own] for own in branches]


def micro_batches(
    prompts: Sequence[Tokens], branches: Sequence[Sequence[Tokens]], token_budget: int
) -> list[list[int]]:
    """Indices of rows, grouped so that no group's padded tokens exceed the budget (a longer row goes alone).

    Rows of like length go together, longest first: the largest allocation happens at once, not in the middle.
    """
    sizes = [len(p) + sum(map(len, b)) for p, b in zip(prompts, branches, strict=True)]
    order = sorted(range(len(sizes)), key=lambda i: (-sizes[i], i))
    groups: list[list[int]] = []
    for index in order:
        if groups and sizes[groups[-1][0]] * (len(groups[-1]) + 1) <= token_budget:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


# Attention over a prompt and a tree of branches, for any Hugging Face decoder that accepts an attention function.
#
# Queries come in two parts. The first `Q - S` are the prompt's and are plainly causal; the last `S` are the branches'
# and follow the mask `[B, 1, S, K]` that `keepworth.models.attention` builds. Splitting them lets the prompt's part skip the
# upper triangle, which a dense `[Q, K]` mask would compute and throw away. Grouped-query heads are never copied out.
#
# On processors the arithmetic is written out, a block of queries at a time, instead of handed to PyTorch's fused kernel:
# the heads that share keys become rows of one matrix product, and the backward pass recomputes the probabilities.
# Scores, softmax and sums over blocks are float32, or float64 where the model is.


NAME = "keepworth_tree"
_CHANGES_SCORES = ("softcap", "s_aux", "sinks", "position_bias", "attention_bias", "alibi")
_ROPE_BY_LENGTH = ("longrope", "dynamic")
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


def context_limit(config: Any) -> int:
    """Tokens of the longest text that the engine computes rightly for this network.

    That is `max_position_embeddings`, but for networks that change what they compute at some length: attention that slides
    a window is plain attention in texts that fit the window, and rope of the kinds longrope and dynamic, whose
    frequencies depend on the longest text of a batch, is plain rope up to the length of the first training."""
    limit = int(config.max_position_embeddings)
    window, kinds = getattr(config, "sliding_window", None), getattr(config, "layer_types", None)
    slides = getattr(config, "use_sliding_window", True) and (kinds is None or "sliding_attention" in kinds)
    if isinstance(window, int) and slides:
        limit = min(limit, window)
    for rope in _ropes(config):
        if rope.get("rope_type", rope.get("type")) in _ROPE_BY_LENGTH:
            limit = min(limit, int(rope.get("original_max_position_embeddings") or limit))
    return limit


def _ropes(config: Any) -> list[dict[str, Any]]:
    """The settings of rotary embeddings: one set, or one for each kind of layer."""
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None)
    if not isinstance(rope, dict):
        return []
    return [each for each in (rope, *rope.values()) if isinstance(each, dict)]
