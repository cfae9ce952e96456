"""The tree of a group: one row per prompt, with the answers as its branches, and the attention that computes it.

The prompt is computed and read once for the whole group. Columns of a row are `[prompt, padded to P | branches one after the
other, padded to S]`. See the comments of both halves."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from keepworth.base.needs import needs_llm

import torch
from torch.autograd.function import once_differentiable
from torch.nn.functional import scaled_dot_product_attention

from keepworth.base.model_errors import UnsupportedModel
from keepworth.models.text_side import context_limit
from keepworth.records.model import Tokens


@dataclass(frozen=True, slots=True)
class Tree:
    """A batch of B rows with N branch tokens in all.

    Attributes:
        ids, positions: [B, P + S].
        mask: bool [B, 1, S, P + S], the columns that each branch column sees.
        predictor: [N], flat index into [B * (P + S)] of the column whose hidden state predicts each branch token.
        target: [N], the branch tokens, row by row, branch by branch.
        row, branch, depth: [N], the place of each token.
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


def pad_lengths(prompt: int, branches: int, multiple: int = 16) -> tuple[int, int]:
    """Returns the columns that a tree has for its prompts and for its branches. They are multiples, so that matrix shapes repeat:
    libraries build a kernel per shape.

    Args:
        prompt: The tokens of the longest prompt.
        branches: The tokens of all branches of one prompt together, at most; 0 counts as 1.
        multiple: Both are rounded up to a multiple of it.
    """
    return round_up(prompt, multiple), round_up(max(1, branches), multiple)


def tree(prompts: Sequence[Tokens], branches: Sequence[Sequence[Tokens]], multiple: int = 16) -> Tree:
    """Lays out the branches of each prompt behind it, in one row. Raises ValueError for an empty prompt (nothing could predict
    the first branch token) or for unequal counts.

    Args:
        prompts: The ids of each prompt.
        branches: For each prompt, the ids of its branches. An empty branch takes no column.
        multiple: Lengths are padded to a multiple of it.
    """
    if len(prompts) != len(branches):
        raise ValueError(f"{len(prompts)} prompts but {len(branches)} lists of branches")
    for index, prompt in enumerate(prompts):
        if not prompt:
            raise ValueError(f"prompt {index} is empty: the first token of its branches would have no predictor")
    rows = len(prompts)
    longest = max(map(len, prompts)), max(sum(map(len, answers)) for answers in branches)
    prompt_width, branch_width = pad_lengths(*longest, multiple)
    width = prompt_width + branch_width
    ids = torch.zeros((rows, width), dtype=torch.long)
    positions = torch.zeros((rows, width), dtype=torch.long)
    owner = torch.full((rows, branch_width), -1, dtype=torch.long)
    prompt_length = torch.tensor([len(p) for p in prompts])
    predictor: list[int] = []
    target: list[int] = []
    where: list[tuple[int, int, int]] = []
    stands: list[tuple[tuple[int, int], ...]] = []
    for i, (prompt, answers) in enumerate(zip(prompts, branches, strict=True)):
        ids[i, : len(prompt)] = torch.tensor(prompt)
        positions[i, : len(prompt)] = torch.arange(len(prompt))
        column, columns = prompt_width, []
        for j, branch in enumerate(answers):
            if not branch:
                continue
            end = column + len(branch)
            columns.append((column - prompt_width, end - prompt_width))
            ids[i, column:end] = torch.tensor(branch)
            positions[i, column:end] = torch.arange(len(prompt), len(prompt) + len(branch))
            owner[i, column - prompt_width : end - prompt_width] = j
            predictor.append(i * width + len(prompt) - 1)
            predictor.extend(i * width + c for c in range(column, end - 1))
            target.extend(branch)
            where.extend((i, j, d) for d in range(len(branch)))
            column = end
        stands.append(tuple(columns))
    row, branch_index, depth = torch.tensor(where, dtype=torch.long).reshape(-1, 3).unbind(1)
    mask = branch_mask(prompt_length, prompt_width, owner)
    setattr(mask, _LAYOUT, Layout(tuple(map(len, prompts)), tuple(stands)))
    return Tree(
        ids=ids,
        positions=positions,
        mask=mask,
        predictor=torch.tensor(predictor, dtype=torch.long),
        target=torch.tensor(target, dtype=torch.long),
        row=row,
        branch=branch_index,
        depth=depth,
    )


def branch_mask(prompt_length: torch.Tensor, prompt_width: int, owner: torch.Tensor) -> torch.Tensor:
    """Returns the mask, bool [B, 1, S, prompt_width + S]: a branch's token sees its prompt and its own branch up to itself.
    Padding columns see the prompt and each other, so that no softmax is over nothing; nothing sees them.

    Args:
        prompt_length: [B] The tokens of each prompt.
        prompt_width: The columns that prompts are padded to.
        owner: [B, S] The number of the branch that owns each column, -1 for padding.
    """
    rows, width = owner.shape
    past = torch.arange(width)[None, :] <= torch.arange(width)[:, None]
    same = (owner[:, :, None] == owner[:, None, :]) & past
    prompt = torch.arange(prompt_width)[None, :] < prompt_length[:, None]
    return torch.cat([prompt[:, None, :].expand(rows, width, prompt_width), same], dim=2)[:, None]


@dataclass(frozen=True, slots=True)
class Layout:
    """The content of a tree's mask as numbers. `lengths` are those of each row's prompt. `branches` has for each row the (first,
    past the last) column of each branch, counted from the end of the prompts."""

    lengths: tuple[int, ...]
    branches: tuple[tuple[tuple[int, int], ...], ...]


_LAYOUT = "keepworth_layout"
"""The attribute of a mask that holds its layout, so that `tree_attention` need not read the mask: nothing else passes through the
network's modules."""


# Attention over a prompt and a tree of branches, for any Hugging Face decoder that accepts an attention function.
#
# Queries come in two parts. The first `Q - S` are the prompt's and are plainly causal; the last `S` are the branches'
# and follow the mask `[B, 1, S, K]` that `keepworth.models.attention` builds. Splitting them lets the prompt's part skip the
# upper triangle, which a dense `[Q, K]` mask would compute and throw away. Grouped-query heads are never copied out.
#
# On processors the arithmetic is written out, a block of queries at a time, instead of handed to PyTorch's fused kernel:
# the heads that share keys become rows of one matrix product, and the backward pass recomputes the probabilities.
# Scores, softmax and sums over blocks are float32, or float64 where the model is.
#
# Sliding windows are computed by PyTorch's kernels: a layer that has one passes it with each call.


NAME = "keepworth_tree"
_CHANGES_SCORES = ("softcap", "s_aux", "sinks", "position_bias", "attention_bias", "alibi")
_BLOCK_ROWS = 192  # queries times the heads that share a key: the block's scores stay in the second-level cache


def tree_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    asked: list[int | None] | None = None,
    **features: Any,
) -> tuple[torch.Tensor, None]:
    """Computes attention with a tree's mask. Returns [B, Q, H, D] and no weights.

    Args:
        module: The network's own attention layer, which transformers passes.
        query: [B, H, Q, D], the queries of the last Q columns: of all of them, or of those after the columns of a cache.
        key, value: [B, KV, K, D].
        attention_mask: bool [B, 1, S, K] for the last S queries, or None. On processors it must be one of `tree`, with its
            layout.
        dropout: Must be 0: sampler and learner must compute the same thing.
        scaling: Scores are multiplied by it before the softmax; None for 1 / sqrt(D).
        sliding_window: A token sees this many last tokens of its text, including itself.
        asked: Receives the window of each call, so that a caller knows which layers have one.
        features: Further requests of the network. Raises UnsupportedModel where they would change the result.
    """
    if dropout:
        raise ValueError("attention dropout would make the learner disagree with the sampler; set it to 0")
    if unsupported := [name for name in _CHANGES_SCORES if features.get(name) is not None]:
        raise UnsupportedModel(f"its attention asks for {unsupported[0]}")
    if features.get("is_causal") is False:
        raise UnsupportedModel("its attention looks ahead (is_causal=False)")
    if asked is not None:
        asked.append(sliding_window)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    prompts: Prompts | None = getattr(key, PROMPTS, None)
    if prompts is not None:
        return behind_prompts(query, key, value, prompts, scale, sliding_window), None
    window = sliding_window if sliding_window is not None and sliding_window < key.shape[2] else None
    if query.device.type == "cpu" and window is None:
        return blockwise(query, key, value, attention_mask, scale), None
    if window is not None and attention_mask is not None:
        attention_mask = narrow_to(attention_mask, window)
    return fused(query, key, value, attention_mask, scale, window), None


class Standing:
    """The positions of rows behind the prompts that they share.

    Attributes:
        lengths: [B], tokens of each prompt.
        places: None where rows are sorted by prompt with equally many each; else [B, S], the row in each place. Results in spare
            places are ignored.
        back: [R], the place of each row, where there are `places`.
    """

    places: torch.Tensor | None = None
    back: torch.Tensor | None = None

    def __init__(self, lengths: torch.Tensor, prompt_of: torch.Tensor) -> None:
        """Makes the positions from `prompt_of` [R], rising, the prompt of each row."""
        self.lengths = lengths
        self._masks: dict[tuple[int, int, int | None], torch.Tensor | None] = {}
        counts = torch.bincount(prompt_of, minlength=len(lengths))
        most = int(counts.max())
        if bool((counts == most).all()):
            return
        first = counts.cumsum(0) - counts
        back = prompt_of * most + torch.arange(len(prompt_of)) - first[prompt_of]
        places = torch.zeros(len(lengths) * most, dtype=torch.long)
        places[back] = torch.arange(len(prompt_of))
        self.places, self.back = places.view(-1, most).to(lengths.device), back.to(lengths.device)

    def placed(self, rows: torch.Tensor) -> torch.Tensor:
        """Arranges rows by prompt: [R, KV, G, X] -> [B, KV, S, G, X]."""
        placed = rows if self.places is None else rows[self.places.flatten()]
        return placed.unflatten(0, (len(self.lengths), -1)).transpose(1, 2)  # type: ignore[no-untyped-call,no-any-return]

    def taken_back(self, placed: torch.Tensor) -> torch.Tensor:
        """Arranges results by row: [B, KV, S, G, X] -> [R, KV, G, X]."""
        rows = placed.transpose(1, 2).flatten(0, 1)
        return rows if self.back is None else rows[self.back]

    def unseen(self, width: int, tokens: int, window: int | None) -> torch.Tensor | None:
        """Returns the columns that a query does not see, bool [B, width + tokens]; None where it sees all. The mask is made once
        for all layers of a step.

        Args:
            width: The columns that prompts are padded to.
            tokens: The tokens that each row has of its own, behind its prompt.
            window: A query sees this many last tokens of its text, including itself; None for all.
        """
        key = width, tokens, window
        if key not in self._masks:
            if len(self._masks) > 8:
                self._masks.clear()
            lengths = self.lengths[:, None]
            columns = torch.arange(width + tokens, device=lengths.device)[None]
            unseen = (columns >= lengths) & (columns < width)
            if window is not None:
                text = torch.where(columns < width, columns, columns - width + lengths)
                unseen |= text < lengths + tokens - window
            self._masks[key] = unseen if bool(unseen.any()) else None
        return self._masks[key]


@dataclass(frozen=True, slots=True)
class Prompts:
    """Keys and values [B, KV, P, D] of prompts, float32 or wider, which are read once for several rows, and the rows' positions.
    `tokens` is how many of the rows' own columns are filled; None for all."""

    keys: torch.Tensor
    values: torch.Tensor
    standing: Standing
    tokens: int | None = None


PROMPTS = "keepworth_prompts"
"""The attribute of the keys of rows that holds their `Prompts`, because a cache cannot pass both in another way."""


def behind_prompts(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    prompts: Prompts,
    scale: float,
    window: int | None = None,
) -> torch.Tensor:
    """Computes attention of one query a row over its prompt and its own keys. Returns [R, 1, H, D].

    The queries of all rows of a prompt are rows of one product with its keys, which are read once and never copied. The scores
    of both parts are normalised together, so that the result is the same sum as over consecutive keys.

    Args:
        query: [R, H, 1, D] The last token of each row.
        key: [R, KV, T, D] The keys behind the prompts, in the dtype of the prompts' keys.
        value: [R, KV, T, D] The values of the same columns.
        prompts: The keys and values of the prompts, and which rows each has.
        scale: Scores are multiplied by it before the softmax.
        window: A query sees this many last tokens of its text, including itself; None for all.
    """
    (rows, heads, _, _), (_, shared, columns, size), wide = query.shape, value.shape, key.dtype
    (count, _, width, _), standing = prompts.keys.shape, prompts.standing
    tokens = columns if prompts.tokens is None else prompts.tokens
    queries = query.view(rows, shared, heads // shared, -1).to(wide)
    by_prompt = standing.placed(queries)
    scores = queries.new_empty(*by_prompt.shape[:-1], width + columns)
    with _bf16_products(query.dtype):
        products = torch.bmm(
            by_prompt.reshape(count * shared, -1, queries.shape[-1]), prompts.keys.flatten(0, 1).transpose(1, 2)
        )
        torch.mul(products.view(*scores.shape[:-1], width), scale, out=scores[..., :width])
        products = torch.bmm(queries.flatten(0, 1), key.flatten(0, 1).transpose(1, 2))
        torch.mul(standing.placed(products.view(rows, shared, -1, columns)), scale, out=scores[..., width:])
        unseen = standing.unseen(width, tokens, window)
        if unseen is not None:
            scores[..., : width + tokens].masked_fill_(unseen[:, None, None, None], float("-inf"))
        if tokens < columns:
            scores[..., width + tokens :] = float("-inf")
        shares = torch.softmax(scores, -1).to(query.dtype).to(wide)
        before = torch.bmm(shares[..., :width].flatten(2, 3).flatten(0, 1), prompts.values.flatten(0, 1))
        behind = torch.bmm(standing.taken_back(shares[..., width:]).flatten(0, 1), value.flatten(0, 1))
    output = standing.taken_back(before.view(*scores.shape[:-1], size)) + behind.view(rows, shared, -1, size)
    return output.to(query.dtype).reshape(rows, 1, heads, size)


def narrow_to(mask: torch.Tensor, window: int) -> torch.Tensor:
    """Returns the mask, bool [B, 1, S, K], with only the `window` last columns that each query sees; made once for all layers of
    a pass. The columns that a query sees are its text in order, whatever lies between them."""
    windows: dict[int, torch.Tensor] = mask.__dict__.setdefault("windows", {})
    if window not in windows:
        from_here = mask.flip(-1).cumsum(-1, dtype=torch.int32).flip(-1)
        windows[window] = mask & (from_here <= window)
    return windows[window]


def fused(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    window: int | None = None,
) -> torch.Tensor:
    """Computes attention by PyTorch's own kernels, with shapes as for `tree_attention`.

    Args:
        query: [B, H, Q, D] The queries of the last Q columns.
        key: [B, KV, K, D] The keys of all columns.
        value: [B, KV, K, D] The values of all columns.
        mask: bool [B, 1, S, K] What the last S queries see; those before them are causal, and all are where it is None.
        scale: Scores are multiplied by it before the softmax.
        window: A query without a mask sees this many last tokens, including itself; None for all.
    """
    causal = query.shape[2] - (0 if mask is None else mask.shape[2])
    before = key.shape[2] - query.shape[2]
    parts = []
    if causal:
        first = query[:, :, :causal], key[:, :, : before + causal], value[:, :, : before + causal]
        seen = None
        if before or window is not None:
            seen = torch.ones(causal, before + causal, dtype=torch.bool, device=query.device).tril(before)
        if seen is not None and window is not None:
            seen = seen.triu(before - window + 1)
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
    """Computes the same attention in blocks, for processors, with shapes as for `tree_attention`.

    Args:
        query: [B, H, Q, D] The queries of the last Q columns.
        key: [B, KV, K, D] The keys of all columns.
        value: [B, KV, K, D] The values of all columns.
        mask: bool [B, 1, S, K] A mask of `tree`, with its layout; None where all queries are causal.
        scale: Scores are multiplied by it before the softmax.
    """
    output: torch.Tensor = _Blockwise.apply(query, key, value, mask, scale)  # type: ignore[no-untyped-call]
    return output


class _Blockwise(torch.autograd.Function):
    """Stores nothing of size [Q, K] for the backward pass, which recomputes each block's probabilities."""

    @staticmethod
    def forward(
        ctx: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor | None,
        scale: float,
    ) -> torch.Tensor:
        ctx.save_for_backward(query, key, value, mask)
        ctx.scale = scale
        (rows, heads, length, _), (_, shared, _, size) = query.shape, value.shape
        queries = query.unflatten(1, (shared, -1))  # type: ignore[no-untyped-call]
        kind = torch.promote_types(query.dtype, torch.float32)
        wide, values = (tensor.to(kind).flatten(0, 1) for tensor in (key, value))
        output = query.new_zeros(rows, length, shared, heads // shared, size)
        with _bf16_products(query.dtype):
            for reading in _readings(query, key, mask):
                keys = reading.gather(wide)
                for start, end, parts in reading.blocks():
                    widths = [part.stop - part.start for part in parts]
                    scores = _scores(queries[reading.rows, :, :, start:end], keys[:, : sum(widths)], scale)
                    shares = _shares(scores, reading, start, end).to(query.dtype).to(wide.dtype)
                    # The prompt's part is summed separately, in the same order as while decoding.
                    read, *others = [
                        torch.bmm(of_part, values[reading.heads, part])
                        for of_part, part in zip(torch.split(shares, widths, -1), parts, strict=True)
                    ]
                    for other in others:
                        read += other
                    by_row = read.view(-1, shared, heads // shared, end - start, size)
                    output[reading.rows, start:end] = by_row.permute(0, 3, 1, 2, 4)
        return output.flatten(2, 3)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        query, key, value, mask = ctx.saved_tensors
        scale, dtype, shared = ctx.scale, query.dtype, key.shape[1]
        wide = torch.promote_types(dtype, torch.float32)
        queries = query.unflatten(1, (shared, -1))
        gradients = gradient.unflatten(2, (shared, -1)).permute(0, 2, 3, 1, 4)  # type: ignore[no-untyped-call]
        keys, wide_keys, wide_values = key.flatten(0, 1), key.to(wide).flatten(0, 1), value.to(wide).flatten(0, 1)
        to_query, to_key, to_value = torch.zeros_like(query), torch.zeros_like(wide_keys), torch.zeros_like(wide_values)
        to_queries = to_query.unflatten(1, (shared, -1))  # type: ignore[no-untyped-call]

        def go_back(reading: _Reading, read: list[torch.Tensor], start: int, end: int, parts: list[slice]) -> None:
            """Computes the gradients of a block of queries. What it needs for that is freed before the next block."""
            widths = [part.stop - part.start for part in parts]
            read_keys, read_wide, read_values = (tensor[:, : sum(widths)] for tensor in read)
            block = queries[reading.rows, :, :, start:end]
            shares = _shares(_scores(block, read_wide, scale), reading, start, end)
            incoming = _as_rows(gradients[reading.rows, :, :, start:end])
            to_shares = torch.bmm(incoming.to(wide), read_values.transpose(1, 2))
            # shares * (to_shares - sum(shares * to_shares)), in one pass
            to_scores = torch._softmax_backward_data(to_shares, shares, -1, wide).to(dtype)
            to_keys = torch.split(torch.bmm(to_scores.transpose(1, 2), _as_rows(block)), widths, 1)
            to_values = torch.split(torch.bmm(shares.to(dtype).transpose(1, 2), incoming), widths, 1)
            for part, more_key, more_value in zip(parts, to_keys, to_values, strict=True):
                to_key[reading.heads, part].add_(more_key)
                to_value[reading.heads, part].add_(more_value)
            to_block = torch.bmm(to_scores, read_keys).mul_(scale)
            to_queries[reading.rows, :, :, start:end] = to_block.view(block.shape)

        with _bf16_products(dtype):
            for reading in _readings(query, key, mask):
                read = [reading.gather(tensor) for tensor in (keys, wide_keys, wide_values)]
                for start, end, parts in reading.blocks():
                    go_back(reading, read, start, end, parts)
        to_key = to_key.mul_(scale).to(dtype)
        return to_query, to_key.view(key.shape), to_value.to(dtype).view(value.shape), None, None


@dataclass(frozen=True, slots=True)
class _Reading:
    """Consecutive queries that read the same keys: those of all prompts, or of a row's long branch, or of some short ones.

    Attributes:
        rows, heads: The queries' rows, and their heads among those of all rows.
        first, past: The first query and past the last.
        parts: The columns of keys that they read, of which the last are their own.
        padding: Those of these columns that nothing sees, behind the prompt.
        seen: Which of their own keys the queries see, bool [past - first, past - first]; None for all that are not later.
        step: The most queries in a block.
    """

    rows: slice
    heads: slice
    first: int
    past: int
    parts: tuple[slice, ...]
    padding: slice
    seen: torch.Tensor | None
    step: int

    def gather(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns what the queries read of keys or values [B * KV, K, D]."""
        read = [tensor[self.heads, part] for part in self.parts]
        return read[0] if len(read) == 1 else torch.cat(read, 1)

    def blocks(self) -> Iterator[tuple[int, int, list[slice]]]:
        """Yields blocks of queries: the first, past the last, and the columns of keys up to it."""
        *before, last = self.parts
        for start in range(self.first, self.past, self.step):
            end = min(start + self.step, self.past)
            yield start, end, [*before, slice(last.start, last.stop - (self.past - end))]


def _readings(query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor | None) -> Iterator[_Reading]:
    """Yields the queries of the prompts, then those of each row's branches. Padding of branches is in none."""
    width, shared = 0 if mask is None else mask.shape[2], key.shape[1]
    causal, prompt = query.shape[2] - width, key.shape[2] - width
    step = max(1, _BLOCK_ROWS * shared // query.shape[1])
    yield _Reading(slice(None), slice(None), 0, causal, (slice(0, prompt),), slice(0, 0), None, step)
    if mask is None:
        return
    layout: Layout = getattr(mask, _LAYOUT)
    for row, (length, branches) in enumerate(zip(layout.lengths, layout.branches, strict=True)):
        for first, past in _runs(branches, step):
            yield _Reading(
                rows=slice(row, row + 1),
                heads=slice(row * shared, (row + 1) * shared),
                first=causal + first,
                past=causal + past,
                parts=(slice(0, prompt), slice(prompt + first, prompt + past)),
                padding=slice(length, prompt),
                seen=mask[row, 0, first:past, prompt + first : prompt + past],
                step=step,
            )


def _runs(branches: Sequence[tuple[int, int]], step: int) -> Iterator[tuple[int, int]]:
    """Yields long branches one by one, and short ones together as long as they are within `step` columns."""
    run: tuple[int, int] | None = None
    for first, past in branches:
        if run is not None and past - run[0] <= step:
            run = run[0], past
            continue
        if run is not None:
            yield run
        run = None
        if past - first > step // 2:
            yield first, past
        else:
            run = first, past
    if run is not None:
        yield run


def _scores(block: torch.Tensor, keys: torch.Tensor, scale: float) -> torch.Tensor:
    """Returns the scores [B * KV, G * Q', K'] of a block of queries [B, KV, G, Q', D] over keys [B * KV, K', D]."""
    rows = _as_rows(block)
    scores = keys.new_empty(*rows.shape[:2], keys.shape[1])
    return torch.baddbmm(scores, rows.to(keys.dtype), keys.transpose(1, 2), beta=0.0, alpha=scale, out=scores)


def _shares(scores: torch.Tensor, reading: _Reading, start: int, end: int) -> torch.Tensor:
    """Returns attention probabilities of a block of queries from scores [B * KV, G * Q', K'], which are overwritten."""
    count, columns = end - start, scores.shape[-1]
    by_query = scores.view(scores.shape[0], -1, count, columns)
    by_query[..., reading.padding] = float("-inf")
    if reading.seen is None:
        unseen = torch.ones(count, count, dtype=torch.bool, device=scores.device).triu_(1)
    else:
        block = slice(start - reading.first, end - reading.first)
        unseen = ~reading.seen[block, block]
    # Keys before these queries' own are all seen.
    by_query[..., columns - count :].masked_fill_(unseen, float("-inf"))
    return torch.softmax(scores, -1)


def _as_rows(block: torch.Tensor) -> torch.Tensor:
    """Reshapes [B, KV, G, Q', D] to [B * KV, G * Q', D]: heads that share keys become rows of one product."""
    rows, shared, group, count, size = block.shape
    return block.reshape(rows * shared, group * count, size)


def _bf16_products(dtype: torch.dtype) -> contextlib.AbstractContextManager[None]:
    """Lets float32 products of bfloat16 numbers use bfloat16 instructions: exact products, float32 sums and results.

    PyTorch has no bfloat16 product with a float32 result on processors. Where it lacks the setting (before 2.9), or
    the processor lacks the instructions, plain float32 gives the same numbers more slowly.
    """
    return _PRECISION.inside("bf16") if dtype is torch.bfloat16 else contextlib.nullcontext()


def float32_products(dtype: torch.dtype) -> contextlib.AbstractContextManager[None]:
    """Keeps float32 products in float32 inside the block, whatever another thread's attention does: `_bf16_products` changes a
    setting of the whole process. Attention that runs meanwhile gets the same numbers more slowly. Does nothing unless dtype is
    float32."""
    return _PRECISION.inside("float32") if dtype is torch.float32 else contextlib.nullcontext()


class _Precision:
    """The process's setting for float32 products. A sampler and a learner may use it at once; the last one to leave restores
    it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = {"bf16": 0, "float32": 0}
        self._before: str | None = None
        """The setting before it was lowered; None while it is not lowered."""

    @contextlib.contextmanager
    def inside(self, which: str) -> Iterator[None]:
        settings = getattr(torch.backends.mkldnn, "matmul", None)
        self._count(settings, which, 1)
        try:
            yield
        finally:
            self._count(settings, which, -1)

    def _count(self, settings: Any, which: str, more: int) -> None:
        if settings is None:
            return
        with self._lock:
            self._inside[which] += more
            if self._inside["bf16"] and not self._inside["float32"]:
                if self._before is None:
                    self._before = settings.fp32_precision
                    settings.fp32_precision = "bf16"
            elif self._before is not None:
                settings.fp32_precision, self._before = self._before, None


_PRECISION = _Precision()


def register() -> str:
    """Registers the function with transformers, and returns the name to pass as `attn_implementation`."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, tree_attention)
    return NAME


def decoder_of(network: Any) -> Any:
    """Returns the part that computes the last hidden states, below the head; the network itself where there is none."""
    decoder = network.get_decoder()
    return getattr(network, "model", network) if decoder is network else decoder


def window_of(config: Any) -> int | None:
    """Returns the sliding window of the layers' attention, in tokens; None where no text could exceed it."""
    window, kinds = getattr(config, "sliding_window", None), getattr(config, "layer_types", None)
    slides = getattr(config, "use_sliding_window", True) and (kinds is None or "sliding_attention" in kinds)
    return window if isinstance(window, int) and slides and window < context_limit(config) else None
