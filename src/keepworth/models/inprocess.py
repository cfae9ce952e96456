"""The in-process model: samples and scores with the very weights, adapter unmerged, that the learner trains."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from keepworth.episodes.needs import needs_llm

import numpy as np
import torch
from torch.autograd.function import once_differentiable
from transformers.cache_utils import Cache, CacheLayerMixin

from keepworth.episodes.model import (
    Capabilities,
    FinishReason,
    Sample,
    SamplingParams,
    Tokens,
    VersionSpan,
    beginning,
    begun,
)
from keepworth.models.attention import (
    Tree,
    apart,
    branch_mask,
    context_limit,
    float32_products,
    micro_batches,
    per_branch,
    round_up,
    tree,
)
from keepworth.models.checkpoint import load_checkpoint, require_agreement
from keepworth.models.errors import ContextOverflow

Precision = Literal["bf16", "fp32", "fp64"]
DTYPES: dict[Precision, torch.dtype] = {"bf16": torch.bfloat16, "fp32": torch.float32, "fp64": torch.float64}


class InProcessModel:
    """A causal language model and its tokenizer behind the engine protocol (`keepworth.episodes.Model`).

    token_budget: padded tokens computed at once; it bounds memory, not what may be asked for.
    """

    def __init__(self, network: Any, tokenizer: Any, name: str, token_budget: int = 4096) -> None:
        self.network = network
        self.tokenizer = tokenizer
        self.token_budget = token_budget
        self._name = name
        self._version = 0
        self._stops: dict[str, frozenset[int]] = {}
        self.folder: Path | None = None
        """Where it was loaded from."""
        self.base: dict[str, Any] | None = None
        """What `keepworth.models.files` says of the weights in `folder`, once it was asked."""
        self._limit = 0
        self._beginning: Tokens | None = None

    @classmethod
    def load(
        cls, folder: Path | str, *, name: str = "", precision: Precision = "bf16", device: str = ""
    ) -> InProcessModel:
        """Load a checkpoint folder (`config.json`, safetensors, tokenizer files). device: CUDA where there is one, if "".

        Raises IncompleteModel or CorruptModel where the files cannot be read as a language model, and UnsupportedModel
        where the network computes something that this engine does not (see `keepworth.models.checkpoint`).
        """
        folder = Path(folder)
        network, tokenizer = load_checkpoint(folder, DTYPES[precision])
        network.eval()
        network.requires_grad_(False)
        model = cls(network, tokenizer, name or folder.name)
        model.folder = folder
        require_agreement(model, folder)
        network.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        return model

    @property
    def name(self) -> str:
        return self._name

    @property
    def version(self) -> int:
        return self._version

    @version.setter
    def version(self, version: int) -> None:
        self._version = version

    @property
    def context_limit(self) -> int:
        """Tokens of the longest text that is computed: see `keepworth.models.attention.context_limit`."""
        if not self._limit:
            self._limit = context_limit(self.network.config)
        return self._limit

    @property
    def dtype(self) -> torch.dtype:
        dtype: torch.dtype = next(self.network.parameters()).dtype
        return dtype

    @property
    def precision(self) -> Precision:
        return next(name for name, dtype in DTYPES.items() if dtype == self.dtype)

    @property
    def device(self) -> torch.device:
        """Where the weights are, and every pass. What goes in and comes out (ids, masks, log-probabilities) is on the CPU."""
        device: torch.device = next(self.network.parameters()).device
        return device

    def encode(self, text: str) -> Tokens:
        if self._beginning is None:
            self._beginning = beginning(self.tokenizer)
        return begun(self.encode_continuation(text), self._beginning)

    def encode_continuation(self, text: str) -> Tokens:
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def decode(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def stop_ids_for(self, prefix: str) -> frozenset[int]:
        if prefix not in self._stops:
            vocabulary = range(self.network.config.vocab_size)
            texts = self.tokenizer.batch_decode([[i] for i in vocabulary])
            special = set(self.tokenizer.all_special_ids)
            self._stops[prefix] = frozenset(
                i for i, text in zip(vocabulary, texts, strict=True) if i in special or text.startswith(prefix)
            )
        return self._stops[prefix]

    def capabilities(self) -> Capabilities:
        return Capabilities(
            adapters=hasattr(self.network, "peft_config"), in_flight_update=False, token_input=True, version_spans=True
        )

    @contextlib.contextmanager
    def without_adapter(self) -> Iterator[None]:
        """Inside, the model is the base it was before any adapter: the reference for free."""
        if not hasattr(self.network, "disable_adapter"):
            raise ValueError(f"{self.name} has no adapter to switch off: keep a second copy of the model as reference")
        with self.network.disable_adapter():
            yield

    def hidden_states(
        self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor | None, cache: Any, **attention: Any
    ) -> Any:
        """Last hidden states [B, L, H] of token ids [B, L] (no logits: those are taken only where they are needed).

        positions: depth of each token in its own text, whatever stands beside it in the row. attention: for
        `keepworth.models.attention`, such as `row_widths`. Raises ContextOverflow for a text past `context_limit`."""
        if (longest := int(positions.max()) + 1) > self.context_limit:
            raise ContextOverflow(
                f"A text of {longest} tokens is past the {self.context_limit} that {self.name} reads.",
                "Show fewer or shorter memories.",
            )
        device = self.device
        return self._body()(
            input_ids=ids.to(device),
            position_ids=positions.to(device),
            attention_mask=None if mask is None else mask.to(device),
            past_key_values=cache,
            use_cache=cache is not None,
            **attention,
        ).last_hidden_state

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self._causal_model().lm_head(hidden)
        return logits

    def tree_scores(self, batch: Tree, temperature: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probability and entropy, both [N] in the order of `batch.target`; differentiable where gradients are on."""
        hidden = self.hidden_states(batch.ids, batch.positions, batch.mask, None)
        chosen = hidden.flatten(0, 1)[batch.predictor]
        trained = [each for each in self._causal_model().lm_head.parameters() if each.requires_grad]
        target = batch.target.to(chosen.device)
        lp, entropy = token_scores(self.head, chosen, target, temperature, parameters=trained)
        return lp.cpu(), entropy.cpu()  # gradients find their way back

    def _causal_model(self) -> Any:
        get_base = getattr(self.network, "get_base_model", None)
        return get_base() if get_base else self.network

    def _body(self) -> Any:
        return self._causal_model().get_decoder()

    # -- sampling -----------------------------------------------------------------------------------------------

    def sample(self, prompts: Sequence[Tokens], params: SamplingParams) -> list[list[Sample]]:
        self._check(prompts, params)
        draws = None if params.temperature == 0 else uniforms(params, range(len(prompts)))
        return self.sample_at(prompts, params, draws)

    @torch.inference_mode()
    def sample_at(
        self, prompts: Sequence[Tokens], params: SamplingParams, draws: torch.Tensor | None
    ) -> list[list[Sample]]:
        """The same, drawn at numbers of one's own: `draws` [prompts, n, max_tokens] in [0, 1); None is greedy."""
        self._check(prompts, params)
        groups = micro_batches(prompts, [[(0,) * params.max_tokens] * params.n for _ in prompts], self.token_budget)
        results: list[list[Sample]] = [[] for _ in prompts]
        for rows in groups:
            own = None if draws is None else draws[list(rows)]
            with float32_products(self.dtype):
                drawn = self._sample_rows([prompts[i] for i in rows], params, own)
            for index, samples in zip(rows, drawn, strict=True):
                results[index] = samples
        return results

    def _check(self, prompts: Sequence[Tokens], params: SamplingParams) -> None:
        if params.max_tokens < 1 or params.n < 1 or params.temperature < 0:
            raise ValueError(
                f"max_tokens and n must be at least 1 and temperature at least 0, not {params.max_tokens}, "
                f"{params.n} and {params.temperature}"
            )
        for index, prompt in enumerate(prompts):
            if not prompt:
                raise ValueError(f"prompt {index} is empty: there is nothing to continue")
            if len(prompt) + params.max_tokens > self.context_limit:
                raise ContextOverflow(
                    f"Prompt {index} has {len(prompt)} tokens and may grow by {params.max_tokens}, past the "
                    f"{self.context_limit} that {self.name} reads.",
                    "Show fewer or shorter memories.",
                )

    def _sample_rows(
        self, prompts: Sequence[Tokens], params: SamplingParams, draws: torch.Tensor | None
    ) -> list[list[Sample]]:
        if apart(max(map(len, prompts)), params.n, params.max_tokens):
            return self._sample_apart(prompts, params, draws)
        rows, group = len(prompts), params.n
        length = torch.tensor([len(p) for p in prompts])
        width = round_up(int(length.max()), 16)
        cache = buffer_cache(self.network.config.num_hidden_layers, width + group * params.max_tokens)
        hidden = self._prefill(prompts, width, cache)
        logits = self.head(hidden)[:, None].expand(-1, group, -1)  # [rows, slots, vocabulary]

        stops = torch.zeros(self.network.config.vocab_size, dtype=torch.bool)
        stops[list(params.stop_ids)] = True
        ids = torch.zeros(rows, group, params.max_tokens, dtype=torch.long)
        logprobs = torch.zeros(rows, group, params.max_tokens)
        drawn = torch.zeros(rows, group, dtype=torch.long)
        ended = torch.zeros(rows, group, dtype=torch.bool)
        # slot s of row b continues branch slots[b, s]; a row with fewer live branches than slots repeats none: it pads.
        slots = torch.arange(group).expand(rows, group).clone()
        live = torch.ones(rows, group, dtype=torch.bool)
        owner = torch.empty(rows, 0, dtype=torch.long)
        for step in range(params.max_tokens):
            token, logprob = draw(logits, params.temperature, None if draws is None else _at(draws, slots, step))
            b, s = live.nonzero(as_tuple=True)
            branch = slots[b, s]
            ids[b, branch, step], logprobs[b, branch, step] = token[b, s], logprob[b, s]
            drawn[b, branch] = step + 1
            ended[b, branch] = stops[token[b, s]]
            if step + 1 == params.max_tokens or bool(ended.all()):
                break
            slots, live = _live_slots(ended)
            last = ids[:, :, step].gather(1, slots)
            owner = torch.cat([owner, torch.where(live, slots, -1)], dim=1)
            mask = branch_mask(length, width, owner, last=slots.shape[1])
            positions = (length[:, None] + step).expand(rows, slots.shape[1])
            logits = self.head(self.hidden_states(last, positions, mask, cache))
        return [
            [self._finished(ids[b, j], logprobs[b, j], int(drawn[b, j]), bool(ended[b, j])) for j in range(group)]
            for b in range(rows)
        ]

    def _sample_apart(
        self, prompts: Sequence[Tokens], params: SamplingParams, draws: torch.Tensor | None
    ) -> list[list[Sample]]:
        """One row per branch with its own copy of the prompt's keys: in a tree, long branches would mostly look past
        each other."""
        count, group = len(prompts), params.n
        width = round_up(max(map(len, prompts)), 16)
        read = buffer_cache(self.network.config.num_hidden_layers, width)
        hidden = self._prefill(prompts, width, read)
        prompt_of = torch.arange(count).repeat_interleave(group)
        length = torch.tensor([len(prompt) for prompt in prompts])[prompt_of]
        cache = buffer_cache(len(read.layers), width + params.max_tokens)
        for layer, source in zip(cache.layers, read.layers, strict=True):
            layer.update(source.keys[prompt_of], source.values[prompt_of])
            source.keys = source.values = None
        logits = self.head(hidden)[prompt_of]
        uniform = None if draws is None else draws.flatten(0, 1)
        stops = torch.zeros(self.network.config.vocab_size, dtype=torch.bool)
        stops[list(params.stop_ids)] = True
        ids = torch.zeros(count * group, params.max_tokens, dtype=torch.long)
        logprobs = torch.zeros(count * group, params.max_tokens)
        drawn = torch.zeros(count * group, dtype=torch.long)
        ended = torch.zeros(count * group, dtype=torch.bool)
        rows = torch.arange(count * group)  # the branch that each row of the cache continues
        for step in range(params.max_tokens):
            token, logprob = draw(logits, params.temperature, None if uniform is None else uniform[rows, step])
            live = ~ended[rows]
            on = rows[live]
            ids[on, step], logprobs[on, step], drawn[on] = token[live], logprob[live], step + 1
            ended[on] = stops[token[live]]
            if step + 1 == params.max_tokens or bool(ended.all()):
                break
            left = ~ended[rows]
            if int(left.sum()) <= 0.75 * len(rows):  # dropping rows copies the others: not for every one that ends
                for layer in cache.layers:
                    layer.keep_rows(left)
                rows, token = rows[left], token[left]
            mask = branch_mask(length[rows], width, torch.zeros(len(rows), step + 1, dtype=torch.long), last=1)
            positions = (length[rows] + step)[:, None]
            logits = self.head(self.hidden_states(token[:, None], positions, mask, cache))[:, 0]
        return [
            [
                self._finished(ids[b], logprobs[b], int(drawn[b]), bool(ended[b]))
                for b in range(i * group, (i + 1) * group)
            ]
            for i in range(count)
        ]

    def _prefill(self, prompts: Sequence[Tokens], width: int, cache: Any) -> torch.Tensor:
        """Fill the cache with the prompts, padded to `width`; returns the hidden state [B, H] of each one's last token.

        A head that all prompts have in common (worked examples, instructions) is computed once and copied out.
        """
        shared = common_head(prompts)
        if shared:
            head = buffer_cache(len(cache.layers), shared)
            self.hidden_states(torch.tensor([prompts[0][:shared]]), torch.arange(shared)[None], None, head)
            for layer, source in zip(cache.layers, head.layers, strict=True):
                layer.begin_with(source, len(prompts))
        ids = torch.zeros(len(prompts), width - shared, dtype=torch.long)
        for row, prompt in enumerate(prompts):
            ids[row, : len(prompt) - shared] = torch.tensor(prompt[shared:])
        positions = torch.arange(shared, width).clamp(max=self.context_limit - 1).expand(len(prompts), -1)  # of padding
        hidden: torch.Tensor = self.hidden_states(ids, positions, None, cache)
        return hidden[torch.arange(len(prompts)), torch.tensor([len(p) - shared - 1 for p in prompts])]

    def _finished(self, ids: torch.Tensor, logprobs: torch.Tensor, drawn: int, ended: bool) -> Sample:
        return Sample(
            ids=tuple(ids[:drawn].tolist()),
            logprobs=tuple(logprobs[:drawn].tolist()),
            finish=FinishReason.STOP if ended else FinishReason.LENGTH,
            spans=(VersionSpan(self.version, 0, drawn),),
        )

    # -- scoring ------------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def score(
        self, prompts: Sequence[Tokens], branches: Sequence[Sequence[Tokens]], temperature: float = 1.0
    ) -> list[list[tuple[float, ...]]]:
        results: list[list[tuple[float, ...]]] = [[] for _ in prompts]
        for rows in micro_batches(prompts, branches, self.token_budget):
            some_prompts, some_branches = [prompts[i] for i in rows], [branches[i] for i in rows]
            with float32_products(self.dtype):
                logprobs, _ = self.tree_scores(tree(some_prompts, some_branches), temperature)
            folded = per_branch(logprobs.tolist(), some_prompts, some_branches)
            for index, own in zip(rows, folded, strict=True):
                results[index] = own
        return results


def common_head(prompts: Sequence[Tokens], multiple: int = 16, least: int = 32) -> int:
    """How many first tokens to compute once for several prompts: what they share, short of a whole prompt.

    Rounded down to a multiple, so that matrix shapes repeat; 0 where it would be too little to be worth a pass.
    """
    if len(prompts) < 2:
        return 0
    low, high = min(prompts), max(prompts)  # the prompts that differ earliest are the first and last in order
    limit = min(map(len, prompts)) - 1
    shared = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b or i == limit), limit)
    shared -= shared % multiple
    return shared if shared >= least else 0


def uniforms(params: SamplingParams, rows: Sequence[int]) -> torch.Tensor:
    """[len(rows), n, max_tokens] numbers in [0, 1): one stream per (seed, prompt index, sample)."""
    streams = [
        [np.random.default_rng((params.seed, index, j)).random(params.max_tokens) for j in range(params.n)]
        for index in rows
    ]
    return torch.from_numpy(np.array(streams))


def draw(logits: torch.Tensor, temperature: float, uniform: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """One token per slot from logits [..., V], by inverting the cumulative distribution at `uniform` [...].

    Returns the ids and their log-probabilities under the distribution that was drawn from, on the CPU; greedy where
    `uniform` is None, with log-probabilities at temperature 1.
    """
    if uniform is None:
        logprobs = torch.log_softmax(logits.float(), dim=-1)
        token = logprobs.argmax(-1)
        return token.cpu(), logprobs.gather(-1, token[..., None]).squeeze(-1).cpu()
    scaled = logits.float() if temperature == 1 else logits.float() / temperature
    largest = scaled.amax(-1, keepdim=True)
    weights = (scaled - largest).exp_()
    total, token = _invert(weights, uniform.to(weights.device, torch.float64)[..., None])
    logprob = ((scaled.gather(-1, token) - largest).double() - total.log()).squeeze(-1).to(scaled.dtype)
    return token.squeeze(-1).cpu(), logprob.cpu()


def _invert(weights: torch.Tensor, uniform: torch.Tensor, block: int = 256) -> tuple[torch.Tensor, torch.Tensor]:
    """Sum of the weights [..., V] and the index at which their running sum passes `uniform` [..., 1] of it, both [..., 1].

    A float64 running sum over a vocabulary costs more than the softmax: here it runs over the sums of blocks, then
    inside the one block that is hit. An index of weight 0 is never returned.
    """
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


def _at(draws: torch.Tensor, slots: torch.Tensor, step: int) -> torch.Tensor:
    return draws[:, :, step].gather(1, slots)


def _live_slots(ended: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Pack each row's unfinished branches to the left: branch of each slot, and whether the slot is in use."""
    count = (~ended).sum(1)
    slots = ended.to(torch.int8).argsort(dim=1, stable=True)[:, : int(count.max())]
    return slots, torch.arange(slots.shape[1])[None, :] < count[:, None]


# Keys and values of a batch while it is being sampled: one buffer per layer, written in place, never re-concatenated.


class BufferLayer(CacheLayerMixin):  # type: ignore[misc]
    """`update` writes behind what is there and returns views of [B, KV, filled, D]."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self.filled = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        rows, heads, _, size = key_states.shape
        self.dtype, self.device = key_states.dtype, key_states.device
        self.keys = key_states.new_empty(rows, heads, self.capacity, size)
        self.values = value_states.new_empty(rows, heads, self.capacity, value_states.shape[-1])
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.filled + key_states.shape[2]
        if end > self.capacity:
            raise ValueError(f"the cache holds {self.capacity} columns and was asked to hold {end}")
        self.keys[:, :, self.filled : end] = key_states
        self.values[:, :, self.filled : end] = value_states
        self.filled = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def begin_with(self, head: BufferLayer, rows: int) -> None:
        """Start as `rows` copies of the one row that `head` holds."""
        filled = head.keys[:, :, : head.filled].expand(rows, -1, -1, -1)
        self.update(filled, head.values[:, :, : head.filled].expand(rows, -1, -1, -1))

    def keep_rows(self, rows: torch.Tensor) -> None:
        self.keys, self.values = self.keys[rows], self.values[rows]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.filled + query_length, 0

    def get_seq_length(self) -> int:
        return self.filled

    def get_max_length(self) -> int:
        return self.capacity


def buffer_cache(layers: int, capacity: int) -> Any:
    """A transformers cache of `layers` buffers that hold `capacity` columns each."""
    return Cache(layers=[BufferLayer(capacity) for _ in range(layers)])


# Log-probabilities and entropies of chosen tokens, a chunk of the vocabulary-wide matrix at a time.


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
