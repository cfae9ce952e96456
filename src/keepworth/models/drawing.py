"""Draws tokens: branches after prompts, one row each, one token for all at a time.

A draw depends on (seed, stream, position) alone: which texts are drawn together changes only rounding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from keepworth.base.needs import needs_llm

import numpy as np
import torch
from torch.nn.functional import pad
from transformers.cache_utils import Cache, CacheLayerMixin

from keepworth.models.attention import PROMPTS, Prompts, Standing, round_up
from keepworth.models.decoding_step import DecodingStep
from keepworth.records.model import FinishReason, Sample, SamplingParams, Tokens, VersionSpan

if TYPE_CHECKING:
    from keepworth.models.inprocess import InProcessModel


class Drawing:
    """Draws `params.n` branches after each of some prompts.

    A prompt's keys and values are stored and read once for all of its branches, in addition to those of each branch. The model's
    weights must not change until the end. `draws` [prompts, n, max_tokens] are numbers in [0, 1) at which each token is drawn;
    None is greedy."""

    def __init__(
        self, model: InProcessModel, prompts: Sequence[Tokens], params: SamplingParams, draws: torch.Tensor | None
    ) -> None:
        self.model, self.params, self.group = model, params, params.n
        prompt_of = torch.arange(len(prompts)).repeat_interleave(params.n)
        lengths = torch.tensor([len(prompt) for prompt in prompts])
        width = round_up(int(lengths.max()), 16)
        read = Cache(layers=[BufferLayer(width) for _ in range(model.network.config.num_hidden_layers)])
        hidden = prefill(model, prompts, width, read)
        self._cache = GroupCache(read, lengths.to(model.device), prompt_of, params.max_tokens)
        count = len(prompt_of)
        self._logits = model.head(hidden)[prompt_of]
        self._lengths = lengths[prompt_of]
        self._uniform = None if draws is None else draws.flatten(0, 1)
        self._stops = torch.zeros(model.network.config.vocab_size, dtype=torch.bool)
        self._stops[list(params.stop_ids)] = True
        self._ids = torch.zeros(count, params.max_tokens, dtype=torch.long)
        self._logprobs = torch.zeros(count, params.max_tokens)
        self.limits = torch.full((count,), params.max_tokens)
        """The most tokens of each branch, up to `max_tokens`."""
        self.drawn = torch.zeros(count, dtype=torch.long)
        """The number of tokens in each branch."""
        self.stopped = torch.zeros(count, dtype=torch.bool)
        self.ended = torch.zeros(count, dtype=torch.bool)
        self._rows = torch.arange(count)  # the branch that each row continues
        grammar = params.grammar
        self._states = () if grammar is None else tuple(model.grammar_masks.begin(grammar) for _ in range(count))
        self._token: torch.Tensor | None = None
        self._steps = 0
        self.tokens = 0
        """The number of tokens that the last step drew."""

    @property
    def over(self) -> bool:
        return bool(self.ended.all())

    @property
    def share(self) -> float:
        """How much of the drawing is done: ended branches, and of the others the share of their tokens."""
        return float(torch.where(self.ended, 1.0, self.drawn / self.limits).mean())

    def step(self) -> list[int]:
        """Draws one token for every branch that has not ended, and returns those that end with it."""
        if self._token is not None:
            self._advance(self._token)
        rows, step = self._rows, self._steps
        uniform = None if self._uniform is None else self._uniform[rows, step]
        live = ~self.ended[rows]
        logits, stuck = self._allowed_logits(live) if self._states else (self._logits, rows[:0])
        self._token, logprob = draw(logits, self.params, uniform)
        self._steps += 1
        live &= ~self.ended[rows]
        on, token = rows[live], self._token[live]
        self.tokens = len(on)
        self._ids[on, step], self._logprobs[on, step], self.drawn[on] = token, logprob[live], step + 1
        self.stopped[on] = self._stops[token]
        self.ended[on] = self.stopped[on] | (self.drawn[on] >= self.limits[on])
        for branch, identifier in zip(on.tolist(), token.tolist(), strict=True) if self._states else ():
            self._states[branch].add(identifier)
        return [int(branch) for branch in (*stuck, *on[self.ended[on]])]

    def _allowed_logits(self, live: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the logits with minus infinity for ids that the grammar does not allow, and the branches that end because it
        allows none: an answer that has become too complex to be followed is cut there.

        Args:
            live: bool [R] The rows that are still drawn.
        """
        masks = np.full((len(self._rows), self.model.grammar_masks.width), -1, dtype=np.int32)
        for row in live.nonzero().flatten().tolist():
            masks[row] = self._states[int(self._rows[row])].allowed()
        allowed = unpack_bits(torch.from_numpy(masks).to(self._logits.device), self._logits.shape[-1])
        stuck = ~allowed.any(-1)
        branches = self._rows[stuck.cpu()]
        self.ended[branches] = True
        return self._logits.masked_fill(~(allowed | stuck[:, None]), -torch.inf), branches

    def _advance(self, token: torch.Tensor) -> None:
        """Computes the logits after the last token of each branch."""
        left = ~self.ended[self._rows]
        if int(left.sum()) <= 0.75 * len(left):  # dropping rows copies the others: not for every one that ends
            self._cache.keep(left)
            self._rows, token = self._rows[left], token[left]
        positions = self._lengths[self._rows] + self._steps - 1
        self._logits = self.model.next_logits(token, positions, self._cache)

    def sample(self, branch: int) -> Sample:
        """Returns the tokens drawn in a branch so far; ABORTED where it has not ended."""
        drawn = int(self.drawn[branch])
        ids, logprobs = (tuple(of[branch, :drawn].tolist()) for of in (self._ids, self._logprobs))
        ended = FinishReason.STOP if self.stopped[branch] else FinishReason.LENGTH
        finish = ended if self.ended[branch] else FinishReason.ABORTED
        return Sample(ids, logprobs, finish, (VersionSpan(self.model.version, 0, drawn),))


def prefill(model: InProcessModel, prompts: Sequence[Tokens], width: int, cache: Any) -> torch.Tensor:
    """Fills the cache with the prompts and returns the hidden state [B, H] of each one's last token. A prefix that all prompts
    have in common (worked examples, instructions) is computed once and copied.

    Args:
        model: The model that reads them.
        prompts: The ids of each prompt.
        width: The columns that the prompts are padded to.
        cache: An empty cache of the network, with a `BufferLayer` for each layer.
    """
    shared = common_head(prompts)
    if shared:
        head = Cache(layers=[BufferLayer(shared) for _ in cache.layers])
        model.hidden_states(torch.tensor([prompts[0][:shared]]), torch.arange(shared)[None], None, head)
        for layer, source in zip(cache.layers, head.layers, strict=True):
            layer.update(*(stored.expand(len(prompts), -1, -1, -1) for stored in (source.keys, source.values)))
    ids = torch.zeros(len(prompts), width - shared, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids[row, : len(prompt) - shared] = torch.tensor(prompt[shared:])
    positions = torch.arange(shared, width).clamp(max=model.context_limit - 1).expand(len(prompts), -1)  # of padding
    hidden: torch.Tensor = model.hidden_states(ids, positions, None, cache)
    return hidden[torch.arange(len(prompts)), torch.tensor([len(p) - shared - 1 for p in prompts])]


HEAD_MULTIPLE, SHORTEST_HEAD = 16, 32
"""A head that prompts share is cut to this multiple, so that matrix shapes repeat; a shorter one is worth no pass."""


def common_head(prompts: Sequence[Tokens]) -> int:
    """Returns how many first tokens several prompts share, short of a whole prompt; they are computed once. It is 0 for a
    single prompt."""
    if len(prompts) < 2:
        return 0
    low, high = min(prompts), max(prompts)  # the prompts that differ earliest are the first and last in order
    limit = min(map(len, prompts)) - 1
    shared = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b or i == limit), limit)
    shared -= shared % HEAD_MULTIPLE
    return shared if shared >= SHORTEST_HEAD else 0


def uniforms(params: SamplingParams, rows: Sequence[int]) -> torch.Tensor:
    """Returns [len(rows), n, max_tokens] numbers in [0, 1): one stream per (seed, prompt index, sample)."""
    streams = [
        [np.random.default_rng((params.seed, index, j)).random(params.max_tokens) for j in range(params.n)]
        for index in rows
    ]
    return torch.from_numpy(np.array(streams))


def draw(
    logits: torch.Tensor, params: SamplingParams, uniform: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draws one token per slot by inverting the cumulative distribution. Returns the ids and their log-probabilities under the
    distribution that was drawn from, on the CPU.

    Args:
        logits: [..., V] The scores of all tokens.
        params: The temperature, `top_k` and `top_p` of the distribution.
        uniform: [...] A random number in [0, 1) for each slot. None takes the likeliest token, with its log-probability at
            temperature 1.
    """
    if uniform is None:
        logprobs = torch.log_softmax(logits.float(), dim=-1)
        token = logprobs.argmax(-1)
        return token.cpu(), logprobs.gather(-1, token[..., None]).squeeze(-1).cpu()
    scaled = logits.float() if params.temperature == 1 else logits.float() / params.temperature
    if params.top_k or params.top_p < 1:  # never in training
        scaled = likeliest(scaled, params.top_k, params.top_p)
    largest = scaled.amax(-1, keepdim=True)
    weights = (scaled - largest).exp_()
    total, token = _invert(weights, uniform.to(weights.device, torch.float64)[..., None])
    logprob = ((scaled.gather(-1, token) - largest).double() - total.log()).squeeze(-1).to(scaled.dtype)
    return token.squeeze(-1).cpu(), logprob.cpu()


def likeliest(scaled: torch.Tensor, top_k: int, top_p: float) -> torch.Tensor:
    """Returns the logits with minus infinity for the tokens that are not drawn from.

    Args:
        scaled: [..., V] The logits, divided by the temperature.
        top_k: So many of the highest are kept, with those that equal the last of them; 0 keeps all.
        top_p: Of the kept ones the fewest stay that together have this share of the probability, including the one that reaches
            it.
    """
    if 0 < top_k < scaled.shape[-1]:
        scaled = scaled.masked_fill(scaled < scaled.topk(top_k, dim=-1).values[..., -1:], -torch.inf)
    if top_p < 1:
        ordered, places = scaled.sort(dim=-1, descending=True)
        share = torch.softmax(ordered, dim=-1)
        before = share.cumsum(-1) - share
        scaled = scaled.masked_fill((before >= top_p).scatter(-1, places, before >= top_p), -torch.inf)
    return scaled


def unpack_bits(bits: torch.Tensor, count: int) -> torch.Tensor:
    """Returns the first `count` bits, bool [..., count], of numbers int32 [..., count / 32], the lowest bit of each first."""
    places = torch.arange(32, dtype=torch.int32, device=bits.device)
    return ((bits[..., None] >> places) & 1).bool().flatten(-2)[..., :count]


def _invert(weights: torch.Tensor, uniform: torch.Tensor, block: int = 256) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the sum of the weights [..., V] and the index at which their running sum passes `uniform` [..., 1] of it, both
    [..., 1]. A float64 running sum over a vocabulary costs more than the softmax: here it runs over the sums of blocks, then
    inside the one block that is hit. An index of weight 0 is never returned."""
    short = -weights.shape[-1] % block
    padded = torch.nn.functional.pad(weights, (0, short)) if short else weights
    blocks = padded.reshape(*padded.shape[:-1], -1, block)
    running = blocks.sum(-1).double().cumsum(-1)
    total = running[..., -1:]
    below_one = 1 - 1e-12  # rounding must not carry the point past the last weight above 0
    point = uniform.clamp(max=below_one) * total
    hit = torch.searchsorted(running, point, right=True)
    before = torch.where(hit > 0, running.gather(-1, (hit - 1).clamp(min=0)), 0.0)
    inside = blocks.gather(-2, hit[..., None].expand(*hit.shape, block)).squeeze(-2).double().cumsum(-1)
    rest = torch.minimum(point - before, inside[..., -1:] * below_one)
    return total, hit * block + torch.searchsorted(inside, rest, right=True)


# Keys and values of texts while they are drawn: one buffer per layer, written in place, never re-concatenated. Prompts are stored
# once, and each branch has a row for its own tokens.


class BufferLayer(CacheLayerMixin):  # type: ignore[misc]
    """A layer of a cache: `update` appends and returns views of [B, KV, filled, D]. `before` counts columns that are stored
    elsewhere."""

    def __init__(self, capacity: int, before: int = 0) -> None:
        super().__init__()
        self.capacity, self.before, self.filled = capacity, before, 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        rows, heads, _, size = key_states.shape
        self.dtype, self.device = key_states.dtype, key_states.device
        self.keys = key_states.new_empty(rows, heads, self.capacity, size)
        self.values = value_states.new_empty(rows, heads, self.capacity, value_states.shape[-1])
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Adds the keys and values of some columns, and returns those of all columns so far. Raises ValueError where they do not
        fit.

        Args:
            key_states: [B, KV, T, D] The keys of the new columns.
            value_states: [B, KV, T, D] Their values.
            args: What transformers passes besides, which has no effect.
            kwargs: What transformers passes by name, which has no effect.
        """
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.filled + key_states.shape[2]
        if end > self.capacity:
            raise ValueError(f"the cache holds {self.capacity} columns and was asked to hold {end}")
        self.keys[:, :, self.filled : end] = key_states
        self.values[:, :, self.filled : end] = value_states
        self.filled = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.before + self.filled + query_length, 0

    def get_seq_length(self) -> int:
        return self.before + self.filled

    def get_max_length(self) -> int:
        return self.before + self.capacity


class GroupCache:
    """The cache of rows that share prompts. `layers` are for the network. `step` draws a token for each row, once it was `asked`
    for; None for the network's own modules. Everything is float32, or wider where the network is: it enters products at every
    step, and a bfloat16 product with a float32 result exists only for float32 inputs."""

    def __init__(self, read: Any, lengths: torch.Tensor, prompt_of: torch.Tensor, capacity: int) -> None:
        """Makes the cache.

        Args:
            read: The cache of each `BufferLayer` with the prompts [B], padded to one width; it must not be used afterwards.
            lengths: [B], the prompts' tokens.
            prompt_of: [R], rising, the prompt of each row.
            capacity: The most tokens of a row's own.
        """
        self.step: DecodingStep | None = None
        self.asked = False
        self._lengths, self._prompt_of = lengths, prompt_of
        standing = Standing(lengths, prompt_of)
        self.layers = Cache(layers=[GroupLayer(layer, standing, len(prompt_of), capacity) for layer in read.layers])

    def keep(self, left: torch.Tensor) -> None:
        """Continues with these rows, bool [R]; prompts without a row are dropped."""
        staying, prompt_of = torch.unique(self._prompt_of[left], return_inverse=True)
        dropped = None if len(staying) == len(self._lengths) else staying.to(self._lengths.device)
        if dropped is not None:
            self._lengths = self._lengths[dropped]
        self._prompt_of = prompt_of
        standing = Standing(self._lengths, prompt_of)
        for layer in self.layers.layers:
            layer.keep(left.to(self._lengths.device), dropped, standing)


def across(keys: torch.Tensor) -> torch.Tensor:
    """Returns the same [.., columns, D] with the memory layout [.., D, columns]."""
    return keys.mT.contiguous().mT


_COLUMNS = 32
"""Tokens by which the rows' own buffers grow. They are multiplied whole, because each product would copy a part of them."""


class GroupLayer(BufferLayer):
    """One layer: its prompts, and keys and values [R, KV, columns, D] of the rows' own, of which the first are filled. Keys have
    the memory layout [.., D, columns], as their product with queries reads them."""

    def __init__(self, read: BufferLayer, standing: Standing, rows: int, capacity: int) -> None:
        super().__init__(capacity, read.filled)
        self.columns = min(_COLUMNS, capacity)
        keys, values = read.keys[:, :, : read.filled], read.values[:, :, : read.filled]
        del read.keys, read.values
        wide = torch.promote_types(keys.dtype, torch.float32)
        self.prompts = Prompts(across(keys.to(wide)), values.to(wide), standing)
        # Masked values are multiplied by 0, so they must be finite.
        self.keys = keys.new_zeros(rows, keys.shape[1], keys.shape[3], self.columns, dtype=wide).mT
        self.values = values.new_zeros(rows, values.shape[1], self.columns, values.shape[3], dtype=wide)
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if self.filled == self.columns:
            more = min(_COLUMNS, self.capacity - self.columns)
            self.columns += more
            self.keys = across(pad(self.keys, (0, 0, 0, more)))
            self.values = pad(self.values, (0, 0, 0, more))
        self.keys[:, :, self.filled] = key_states[:, :, 0]
        self.values[:, :, self.filled] = value_states[:, :, 0]
        self.filled += 1
        self.prompts = replace(self.prompts, tokens=self.filled)
        setattr(self.keys, PROMPTS, self.prompts)  # for `tree_attention`, which a network calls with the keys alone
        return self.keys, self.values

    def keep(self, left: torch.Tensor, staying: torch.Tensor | None, standing: Standing) -> None:
        """Goes on with some rows when others have ended.

        Args:
            left: The indices of the rows that go on.
            staying: The indices of the prompts that still have rows; None where all have.
            standing: The places of the remaining rows behind the remaining prompts.
        """
        keys, values = self.prompts.keys, self.prompts.values
        if staying is not None:
            keys, values = across(keys[staying]), values[staying]
        self.prompts = Prompts(keys, values, standing)
        self.keys, self.values = across(self.keys[left]), self.values[left]
