"""The in-process model: samples and scores with the very weights, adapter unmerged, that the learner trains."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from keepworth.episodes.needs import needs_llm

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from keepworth.episodes.model import (
    FinishReason,
    Sample,
    SamplingParams,
    Tokens,
    VersionSpan,
)
from keepworth.models import unpacked
from keepworth.models.attention import (
    Tree,
    float32_products,
    micro_batches,
    per_branch,
    round_up,
    tree,
    tree_sizes,
)
from keepworth.models.caches import DrawingCache, GroupCache, buffer_cache
from keepworth.models.chat_format import TokenizerChat, ends_of
from keepworth.models.checkpoint import load_checkpoint, settle_way
from keepworth.models.decoding_step import DecodingStep, PackedWeights, ThroughModules
from keepworth.models.errors import ContextOverflow, UnsupportedModel
from keepworth.models.machine_memory import whole_memory
from keepworth.models.partial_sample import PartialSample
from keepworth.models.slot_cache import ReadPrompt, Slots, misplaced, row_widths
from keepworth.models.text_side import TextSide, context_limit

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
        self.name = name
        self.version = 0
        self.folder: Path | None = None
        """Where it was loaded from."""
        self.base: dict[str, Any] | None = None
        """What `keepworth.models.files` says of the weights in `folder`, once it was asked."""
        self._packed = PackedWeights()
        self._limit = 0

    @classmethod
    def load(
        cls, folder: Path | str, *, name: str = "", precision: Precision = "bf16", device: str = ""
    ) -> InProcessModel:
        """Load a checkpoint folder (`config.json`, safetensors, tokenizer files). device: CUDA where there is one, if "".

        How the network is computed is decided here, by measurement (see `keepworth.models.unpacked`). Raises
        IncompleteModel or CorruptModel where the files cannot be read as a language model, and UnsupportedModel where it
        cannot be computed rightly either way (see `keepworth.models.checkpoint`).
        """
        folder = Path(folder)
        network, tokenizer = load_checkpoint(folder, DTYPES[precision])
        network.eval()
        network.requires_grad_(False)
        model = cls(network, tokenizer, name or folder.name)
        model.folder = folder
        settle_way(model, folder)
        model._packed.clear()  # a model that only learns draws nothing more
        network.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        return model

    @property
    def context_limit(self) -> int:
        """Tokens of the longest text that is computed: see `keepworth.models.text_side.context_limit`."""
        if not self._limit:
            self._limit = context_limit(self.network.config)
        return self._limit

    @property
    def way(self) -> unpacked.Way:
        """How the network is computed: as a tree of branches, or one branch at a time, and why."""
        return unpacked.way_of(self._causal_model())

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

    @cached_property
    def _text(self) -> TextSide:
        ends = ends_of(self._causal_model())
        return TextSide(self.tokenizer, self.name, int(self.network.config.vocab_size), ends=ends)

    def encode(self, text: str) -> Tokens:
        return self._text.encode(text)

    def encode_continuation(self, text: str) -> Tokens:
        return self._text.encode_continuation(text)

    def decode(self, ids: Sequence[int]) -> str:
        return self._text.decode(ids)

    def stop_ids_for(self, prefix: str) -> frozenset[int]:
        return self._text.stop_ids_for(prefix)

    @property
    def chat(self) -> TokenizerChat:
        """Raises NoChatTemplate."""
        return self._text.chat

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
        if isinstance(cache, DrawingCache):
            if not cache.asked or (cache.step is not None and not cache.step.current()):
                cache.asked, cache.step = True, self._step()  # anew, because weights may change in the middle of a text
            if cache.step is not None:
                return cache.step(ids[:, 0], positions[:, 0], mask, cache.layers, **attention)[:, None]
            cache = cache.layers
        decoder, device = unpacked.decoder_of(self._causal_model()), self.device
        if isinstance(cache, unpacked.Carried):
            return cache.read(decoder, ids)
        if self.way.reason:
            return unpacked.hidden_states(decoder, ids, positions, mask, self.token_budget)
        return decoder(
            input_ids=ids.to(device),
            position_ids=positions.to(device),
            attention_mask=None if mask is None else mask.to(device),
            past_key_values=cache,
            use_cache=cache is not None,
            **attention,
        ).last_hidden_state

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        causal = self._causal_model()
        logits: torch.Tensor = (
            unpacked.head(causal, hidden) if self.way.own_head else causal.get_output_embeddings()(hidden)
        )
        return logits

    def tree_scores(self, batch: Tree, temperature: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probability and entropy, both [N] in the order of `batch.target`; differentiable where gradients are on."""
        hidden = self.hidden_states(batch.ids, batch.positions, batch.mask, None)
        chosen = hidden.flatten(0, 1)[batch.predictor]
        output = self._causal_model().get_output_embeddings()
        trained = [each for each in output.parameters() if each.requires_grad]
        target = batch.target.to(chosen.device)
        lp, entropy = token_scores(self.head, chosen, target, temperature, parameters=trained)
        return lp.cpu(), entropy.cpu()  # gradients find their way back

    def _causal_model(self) -> Any:
        get_base = getattr(self.network, "get_base_model", None)
        return get_base() if get_base else self.network

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
        most = self._most_kept
        groups = together([len(each) for each in prompts], params.n * params.max_tokens, self.token_budget, most)
        results: list[list[Sample]] = [[] for _ in prompts]
        for rows in groups:
            # A group that memory does not hold is drawn in parts. What each draws is its own.
            part = max(1, (most - len(prompts[rows[0]])) // params.max_tokens) if len(rows) == 1 else params.n
            for first in range(0, params.n, part):
                some = replace(params, n=min(part, params.n - first))
                own = None if draws is None else draws[rows, first : first + part]
                with float32_products(self.dtype):
                    drawn = self._sample_rows([prompts[i] for i in rows], some, own)
                for index, samples in zip(rows, drawn, strict=True):
                    results[index] += samples
        return results

    @cached_property
    def _most_kept(self) -> int:
        """Tokens whose keys and values take a quarter of the memory there is. As many on a busy machine as on an idle one: the
        company in which a text is drawn changes rounding."""
        config = self.network.config
        heads = getattr(config, "num_key_value_heads", None) or getattr(config, "num_attention_heads", None)
        memory = whole_memory(self.device)
        if not isinstance(heads, int) or memory == math.inf:
            return sys.maxsize
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return int(memory / 4 / (2 * config.num_hidden_layers * heads * size * max(4, self.dtype.itemsize)))

    def _check(self, prompts: Sequence[Tokens], params: SamplingParams) -> None:
        if params.max_tokens < 1 or params.n < 1:
            raise ValueError(f"max_tokens and n must be at least 1, not {params.max_tokens} and {params.n}")
        require_draws(self, params)
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
        """A prompt's keys and values are kept and read once for all of its branches, beside what each has of its own."""
        if self.way.reason:
            return self._sample_own(prompts, params, draws)
        count, group = len(prompts), params.n
        width = round_up(max(map(len, prompts)), 16)
        read = buffer_cache(self.network.config.num_hidden_layers, width)
        hidden = self._prefill(prompts, width, read)
        lengths = torch.tensor([len(prompt) for prompt in prompts])
        prompt_of = torch.arange(count).repeat_interleave(group)
        kept = GroupCache(read, lengths.to(self.device), prompt_of, params.max_tokens)

        def advance(rows: torch.Tensor, token: torch.Tensor, step: int) -> torch.Tensor:
            positions = lengths[prompt_of[rows]] + step
            hidden = self.hidden_states(token[:, None], positions[:, None], None, kept)[:, 0]
            return self.head(hidden) if kept.step is None else kept.step.head(hidden)

        drawn = self._draw_rows(self.head(hidden)[prompt_of], advance, kept.keep, params, draws)
        return [drawn[i * group : (i + 1) * group] for i in range(count)]

    def _step(self) -> DecodingStep | None:
        """A token for each of many rows without the network's modules; None where this network goes through them."""
        if self.way.modules or self.way.own_head:
            return None
        try:
            return DecodingStep(self._causal_model(), self._packed)
        except ThroughModules:
            return None

    def _sample_own(
        self, prompts: Sequence[Tokens], params: SamplingParams, draws: torch.Tensor | None
    ) -> list[list[Sample]]:
        """One row per branch, with what the network itself keeps of each. Prompts are read once, one length after the other."""
        lengths = [len(prompt) for prompt in prompts]
        if len(set(lengths)) > 1:
            results: list[list[Sample]] = [[] for _ in prompts]
            for length in dict.fromkeys(lengths):
                alike = [i for i, other in enumerate(lengths) if other == length]
                part = None if draws is None else draws[alike]
                for i, samples in zip(alike, self._sample_own([prompts[i] for i in alike], params, part), strict=True):
                    results[i] = samples
            return results
        kept = unpacked.Carried()
        hidden = self.hidden_states(torch.tensor(prompts), torch.arange(lengths[0])[None], None, kept)[:, -1]
        prompt_of = torch.arange(len(prompts)).repeat_interleave(params.n)
        kept.keep(prompt_of)

        def advance(rows: torch.Tensor, token: torch.Tensor, step: int) -> torch.Tensor:
            positions = torch.full((len(rows), 1), lengths[0] + step)
            return self.head(self.hidden_states(token[:, None], positions, None, kept))[:, 0]

        def keep(rows: torch.Tensor) -> None:
            kept.keep(rows.nonzero().flatten())

        drawn = self._draw_rows(self.head(hidden)[prompt_of], advance, keep, params, draws)
        return [drawn[i * params.n : (i + 1) * params.n] for i in range(len(prompts))]

    def _draw_rows(
        self,
        logits: torch.Tensor,
        advance: Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor],
        keep: Callable[[torch.Tensor], None],
        params: SamplingParams,
        draws: torch.Tensor | None,
    ) -> list[Sample]:
        """Branches to their ends, one row each, from the logits [R, V] of their first tokens.

        advance: the branches [R'] that go on, the token each went on with, the step -> logits [R', V]. keep: which of the
        rows that are left go on, bool."""
        count = len(logits)
        uniform = None if draws is None else draws.flatten(0, 1)
        stops = torch.zeros(self.network.config.vocab_size, dtype=torch.bool)
        stops[list(params.stop_ids)] = True
        ids = torch.zeros(count, params.max_tokens, dtype=torch.long)
        logprobs = torch.zeros(count, params.max_tokens)
        drawn = torch.zeros(count, dtype=torch.long)
        ended = torch.zeros(count, dtype=torch.bool)
        rows = torch.arange(count)  # the branch that each row continues
        for step in range(params.max_tokens):
            token, logprob = draw(logits, params, None if uniform is None else uniform[rows, step])
            live = ~ended[rows]
            on = rows[live]
            ids[on, step], logprobs[on, step], drawn[on] = token[live], logprob[live], step + 1
            ended[on] = stops[token[live]]
            if step + 1 == params.max_tokens or bool(ended.all()):
                break
            left = ~ended[rows]
            if int(left.sum()) <= 0.75 * len(rows):  # dropping rows copies the others: not for every one that ends
                keep(left)
                rows, token = rows[left], token[left]
            logits = advance(rows, token, step)
        return [self._finished(ids[b], logprobs[b], int(drawn[b]), bool(ended[b])) for b in range(count)]

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
        for rows in micro_batches(tree_sizes(prompts, branches), self.token_budget):
            some_prompts, some_branches = [prompts[i] for i in rows], [branches[i] for i in rows]
            with float32_products(self.dtype):
                logprobs, _ = self.tree_scores(tree(some_prompts, some_branches), temperature)
            folded = per_branch(logprobs.tolist(), some_prompts, some_branches)
            for index, own in zip(rows, folded, strict=True):
                results[index] = own
        return results


_DRAWN = 8
"""Tokens that are kept while texts are drawn, for each that may be computed at once. Kept are keys and values alone."""


def together(prompts: Sequence[int], answers: int, token_budget: int, most: int) -> list[list[int]]:
    """Indices of prompts of these lengths whose answers, of so many tokens a prompt, are drawn together: prompts are within
    the budget, padded, and all that is kept within `_DRAWN` times it, and `most`. A longer one goes alone."""
    kept = min(_DRAWN * token_budget, most)
    return micro_batches(
        [max(length, -(-(length + answers) * token_budget // kept)) for length in prompts], token_budget
    )


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


def draw(
    logits: torch.Tensor, params: SamplingParams, uniform: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """One token per slot from logits [..., V], by inverting the cumulative distribution at `uniform` [...].

    Returns the ids and their log-probabilities under the distribution that was drawn from, on the CPU; greedy where
    `uniform` is None, with log-probabilities at temperature 1.
    """
    if uniform is None:
        logprobs = torch.log_softmax(logits.float(), dim=-1)
        token = logprobs.argmax(-1)
        return token.cpu(), logprobs.gather(-1, token[..., None]).squeeze(-1).cpu()
    scaled = logits.float() if params.temperature == 1 else logits.float() / params.temperature
    scaled = likeliest(scaled, params.top_k, params.top_p)
    largest = scaled.amax(-1, keepdim=True)
    weights = (scaled - largest).exp_()
    total, token = _invert(weights, uniform.to(weights.device, torch.float64)[..., None])
    logprob = ((scaled.gather(-1, token) - largest).double() - total.log()).squeeze(-1).to(scaled.dtype)
    return token.squeeze(-1).cpu(), logprob.cpu()


def require_draws(model: InProcessModel, params: SamplingParams) -> None:
    """Raises ValueError for settings that say no distribution to draw from, or stop at what is no token."""
    if not params.temperature >= 0 or math.isinf(params.temperature):
        raise ValueError(f"temperature must be a number of at least 0, not {params.temperature}")
    if params.top_k < 0 or not 0 < params.top_p <= 1:
        raise ValueError(f"top_k must be at least 0 and top_p in (0, 1], not {params.top_k} and {params.top_p}")
    vocabulary = int(model.network.config.vocab_size)
    if strange := sorted(each for each in params.stop_ids if not 0 <= each < vocabulary):
        raise ValueError(f"stop ids must be tokens of {model.name}, from 0 to {vocabulary - 1}, not {strange[0]}")


def likeliest(scaled: torch.Tensor, top_k: int, top_p: float) -> torch.Tensor:
    """Logits [..., V] with those at minus infinity that are not among the `top_k` highest (0 for all), and of the rest not among
    the fewest that together have the share `top_p` of the probability. The one that passes the share is kept."""
    if 0 < top_k < scaled.shape[-1]:
        scaled = scaled.masked_fill(scaled < scaled.topk(top_k, dim=-1).values[..., -1:], -torch.inf)
    if top_p < 1:
        ordered, places = scaled.sort(dim=-1, descending=True)
        share = torch.softmax(ordered, dim=-1)
        before = share.cumsum(-1) - share
        scaled = scaled.masked_fill((before >= top_p).scatter(-1, places, before >= top_p), -torch.inf)
    return scaled


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


# How drafts are drawn to their end: `ContinuousBatch`, one token a step for sequences of different ages, and `GroupBatch`,
# whole calls.
#
# In a continuous batch of `slots` sequences, one that ends leaves its slot to the next that waits, so that a long answer does
# not leave the processor to itself. When new weights arrive, `interrupt` drops the keys and values of the old ones; every
# unfinished sequence is read again under the new weights and goes on (interruptible generation: AReaL, arXiv 2505.24298,
# section 4.1). What was drawn before keeps its log-probabilities and its version.
#
# A draw depends on (seed, stream, position) alone: in which company a sequence is sampled changes rounding, nothing else.


_SORT_EVERY = 8
"""Steps between looks at which sequences are long."""


def require_room(model: InProcessModel, draft: PartialSample) -> None:
    """Raises ContextOverflow where a draft could outgrow the model's window, ValueError where it asks for nothing."""
    if not draft.prompt or draft.params.max_tokens < 1 or draft.params.n != 1:
        raise ValueError("a draft continues a prompt of at least one token, by one sample of at least one token")
    require_draws(model, draft.params)
    if len(draft.prompt) + draft.params.max_tokens > model.context_limit:
        raise ContextOverflow(
            f"A prompt has {len(draft.prompt)} tokens and may grow by {draft.params.max_tokens}, past the "
            f"{model.context_limit} that {model.name} reads.",
            "Show fewer or shorter memories.",
        )


def _shape(params: SamplingParams) -> tuple[float, int, float]:
    """What of it says which distribution is drawn from."""
    return params.temperature, params.top_k, params.top_p


class ContinuousBatch:
    """Drafts in, finished drafts out, one token each per `step`.

    slots: sequences decoded together; it bounds memory, not what may wait. refill: free slots are filled when there are
    at least this many (or nothing else to do): reading prompts one at a time costs a pass over the weights each.
    order: which draft goes first where several wait, the smallest key; as they came where None.
    """

    def __init__(
        self,
        model: InProcessModel,
        slots: int = 32,
        *,
        refill: int = 1,
        order: Callable[[PartialSample], Any] | None = None,
    ) -> None:
        if slots < 1 or not 1 <= refill <= slots:
            raise ValueError(f"slots must be at least 1 and refill between 1 and slots, not {slots} and {refill}")
        if model.way.reason:
            raise UnsupportedModel(
                f"{model.name} is computed one branch at a time, because {model.way.reason}: sequences of different ages "
                "cannot be decoded together in slots.",
                "Set sampling = 'synchronous', which draws whole calls.",
            )
        self.model = model
        self.slots = slots
        self.refill = refill
        self.order = order
        self.live: list[PartialSample] = []
        self.waiting: list[PartialSample] = []
        self.steps = self.drawn = self.read = 0
        self._cache = Slots(model.network.config.num_hidden_layers, slots)
        self._hidden: torch.Tensor | None = None
        self._prompts: dict[Tokens, ReadPrompt] = {}
        self._unsorted = 0

    def add(self, draft: PartialSample) -> None:
        """Raises ContextOverflow where it could outgrow the model's window, ValueError where it asks for nothing."""
        require_room(self.model, draft)
        self.waiting.append(draft)

    @torch.inference_mode()
    def remove(self, draft: PartialSample) -> None:
        """Forget a draft, wherever it is; one that has ended or was never added is no error."""
        if draft in self.waiting:
            self.waiting.remove(draft)
        elif draft in self.live:
            self._leave([self.live.index(draft)])

    @property
    def busy(self) -> bool:
        return bool(self.live or self.waiting)

    def unfinished(self) -> int:
        """Tokens of drafts that have not ended."""
        return sum(len(each.ids) for each in (*self.live, *self.waiting))

    def interrupt(self, *, keep: bool = False) -> None:
        """Call before the weights change: what is unfinished will be read again, first of all, under the new ones.

        keep: live sequences keep the keys and values of the old weights instead (in-flight updates: PipelineRL, arXiv
        2509.19128). Nothing is read twice; what is drawn from here on has the log-probabilities it was drawn with, but no
        single set of weights would give them again."""
        for draft in (*self.live, *self.waiting):
            draft.close_span(self.model.version)
        self._cache.step, self._cache.asked = None, False  # it is of the adapter that was on
        if keep:
            self._prompts.clear()
            return
        self.waiting = [*self.live, *self.waiting]
        self.live = []
        self._prompts.clear()

    @torch.inference_mode()
    def step(self) -> list[PartialSample]:
        """Draw one token for every live sequence, after free slots are filled; return the drafts that ended."""
        free = self.slots - len(self.live)
        if self.waiting and (free >= self.refill or not self.live):
            self._fill(free)
        if not self.live:
            return []
        self.steps += 1
        self.drawn += len(self.live)
        assert self._hidden is not None
        step = self._cache.step  # of the last token: the weights may have changed since
        head = step.head if step is not None and step.current() else self.model.head
        logits = head(self._hidden[: len(self.live)])
        for shape in dict.fromkeys(_shape(each.params) for each in self.live):
            rows = [i for i, each in enumerate(self.live) if _shape(each.params) == shape]
            self._draw(logits if len(rows) == len(self.live) else logits[rows], rows)
        ended = [i for i, each in enumerate(self.live) if each.finish is not None]
        finished = [self.live[i] for i in ended]
        for each in finished:
            each.close_span(self.model.version)
        self._leave(ended)
        if self.live:
            self._advance()
        return finished

    def _draw(self, logits: torch.Tensor, rows: Sequence[int]) -> None:
        drafts = [self.live[i] for i in rows]
        params = drafts[0].params
        greedy = params.temperature == 0
        uniform = None if greedy else torch.tensor([each.uniform() for each in drafts], dtype=torch.float64)
        tokens, logprobs = draw(logits, params, uniform)
        for each, token, logprob in zip(drafts, tokens.tolist(), logprobs.tolist(), strict=True):
            each.ids.append(token)
            each.logprobs.append(logprob)
            if token in each.params.stop_ids:
                each.finish = FinishReason.STOP
            elif len(each.ids) == each.params.max_tokens:
                each.finish = FinishReason.LENGTH

    def _advance(self) -> None:
        count = len(self.live)
        if self._unsorted >= _SORT_EVERY:
            self._longest_first()
        last = torch.tensor([[each.ids[-1]] for each in self.live])
        self._unsorted += 1
        positions, mask = self._cache.extend(count)
        widths = row_widths([len(each.prompt) + len(each.ids) for each in self.live])
        stretches = {"row_widths": widths} if widths else {}
        hidden = self.model.hidden_states(last, positions, mask, self._cache, **stretches)
        assert self._hidden is not None
        self._hidden[:count] = hidden[:, 0]

    def _leave(self, rows: Sequence[int]) -> None:
        """Free these slots; live sequences stay in the first ones, so the last takes the place of one that left."""
        for row in sorted(rows, reverse=True):
            last = len(self.live) - 1
            if row != last:
                self.live[row] = self.live[last]
                self._cache.move(last, row)
                assert self._hidden is not None
                self._hidden[row] = self._hidden[last]
            self.live.pop()

    def _longest_first(self) -> None:
        """Bring the few long sequences to the front, so that the others need not read as far as they do.

        Whether, and what, depends on what has been filled and drawn since the last interruption alone: so that a run that
        goes on after one draws in the same company, in the same places."""
        self._unsorted = 0
        for row, other in misplaced([len(each.prompt) + len(each.ids) for each in self.live]):
            self.live[row], self.live[other] = self.live[other], self.live[row]
            self._cache.exchange(row, other)
            assert self._hidden is not None
            self._hidden[[row, other]] = self._hidden[[other, row]]

    def _fill(self, free: int) -> None:
        if self.order is not None:
            self.waiting.sort(key=self.order)  # stable: equal keys stay as they came
        chosen, self.waiting = self.waiting[:free], self.waiting[free:]
        first = len(self.live)
        self._unsorted = _SORT_EVERY
        self.live += chosen
        by_prompt: dict[Tokens, list[int]] = {}
        for row, draft in enumerate(chosen, start=first):
            if not draft.ids and draft.prompt in self._prompts:
                self._copy(row, self._prompts[draft.prompt])
            else:
                by_prompt.setdefault(draft.prompt, []).append(row)
        prompts, members = list(by_prompt), list(by_prompt.values())
        branches = [[tuple(self.live[row].ids) for row in rows] for rows in members]
        expected = {draft.prompt for draft in self.waiting if not draft.ids}
        for index in micro_batches(tree_sizes(prompts, branches), self.model.token_budget):
            self._read([prompts[i] for i in index], [branches[i] for i in index], [members[i] for i in index], expected)
        self._prompts = {prompt: kept for prompt, kept in self._prompts.items() if prompt in expected}

    def _copy(self, row: int, prompt: ReadPrompt) -> None:
        assert self._hidden is not None
        self._hidden[row] = prompt.hidden
        self._cache.put_prompt(row, prompt)

    def _read(
        self,
        prompts: Sequence[Tokens],
        branches: Sequence[Sequence[Tokens]],
        members: Sequence[Sequence[int]],
        expected: Collection[Tokens],
    ) -> None:
        """Prompts, each once, with what was drawn behind them; keys, values and last hidden states go to the slots.

        expected: prompts of drafts that still wait for a slot: theirs are kept, to be copied and not read again."""
        batch = tree(prompts, branches)
        cache = buffer_cache(self.model.network.config.num_hidden_layers, batch.ids.shape[1])
        hidden = self.model.hidden_states(batch.ids, batch.positions, batch.mask, cache)
        if self._hidden is None:
            self._hidden = hidden.new_zeros(self.slots, hidden.shape[-1])
        self.read += sum(map(len, prompts)) + sum(len(each) for own in branches for each in own)
        prompt_width = batch.ids.shape[1] - batch.mask.shape[2]
        for i, (prompt, own, rows) in enumerate(zip(prompts, branches, members, strict=True)):
            if prompt in expected:
                keys = [layer.keys[i, :, : len(prompt)].clone() for layer in cache.layers]
                values = [layer.values[i, :, : len(prompt)].clone() for layer in cache.layers]
                self._prompts[prompt] = ReadPrompt(hidden[i, len(prompt) - 1].clone(), keys, values)
            column = prompt_width
            for row, drawn in zip(rows, own, strict=True):
                end = column + len(drawn)
                self._hidden[row] = hidden[i, end - 1 if drawn else len(prompt) - 1]
                self._cache.put(row, cache, i, len(prompt), column, end)
                column = end


# Whole calls at once: every draft that waits is drawn to its end, and a prompt that a group shares is read and kept once.
#
# Where everybody waits for everybody and the weights do not change meanwhile, no draft has to be parked or to make room
# for another: then this is faster than `ContinuousBatch`, which keeps a prompt's keys and values once for each sequence.


class GroupBatch:
    """Drafts in, finished drafts out, as from a `ContinuousBatch`. order: which draft comes first, the smallest key.

    A draft's draws are its own, so that it gets the same tokens from either, but for what its company does to rounding."""

    def __init__(self, model: InProcessModel, *, order: Callable[[PartialSample], Any]) -> None:
        self.model = model
        self.order = order
        self.waiting: list[PartialSample] = []
        self.steps = self.drawn = self.read = 0

    def add(self, draft: PartialSample) -> None:
        """Raises ContextOverflow where it could outgrow the model's window, ValueError where it asks for nothing."""
        require_room(self.model, draft)
        self.waiting.append(draft)

    def remove(self, draft: PartialSample) -> None:
        """Forget a draft; one that has ended or was never added is no error."""
        if draft in self.waiting:
            self.waiting.remove(draft)

    @property
    def busy(self) -> bool:
        return bool(self.waiting)

    def unfinished(self) -> int:
        """Tokens of drafts that have not ended."""
        return sum(len(each.ids) for each in self.waiting)

    def step(self) -> list[PartialSample]:
        """Everything that waits, drawn to its end, in as few calls of the model as the drafts' limits allow."""
        drafts, self.waiting = sorted(self.waiting, key=self.order), []
        by_prompt: dict[tuple[SamplingParams, int, Tokens], list[PartialSample]] = {}
        for draft in drafts:
            limits = replace(draft.params, seed=0, max_tokens=draft.params.max_tokens - len(draft.ids))
            by_prompt.setdefault((limits, draft.group, (*draft.prompt, *draft.ids)), []).append(draft)
        batches: dict[tuple[SamplingParams, int], list[tuple[Tokens, list[PartialSample]]]] = {}
        for (limits, _, prompt), own in by_prompt.items():
            batches.setdefault((limits, len(own)), []).append((prompt, own))
        for (limits, copies), entries in batches.items():
            self._draw(entries, replace(limits, n=copies))
        return drafts

    def _draw(self, entries: list[tuple[Tokens, list[PartialSample]]], params: SamplingParams) -> None:
        greedy = params.temperature == 0
        draws = None if greedy else torch.from_numpy(np.array([[each.draws() for each in own] for _, own in entries]))
        drawn = self.model.sample_at([prompt for prompt, _ in entries], params, draws)
        lengths = [len(sample.ids) for samples in drawn for sample in samples]
        self.steps, self.drawn = self.steps + max(lengths), self.drawn + sum(lengths)
        self.read += sum(len(prompt) for prompt, _ in entries)
        for (_, own), samples in zip(entries, drawn, strict=True):
            for draft, sample in zip(own, samples, strict=True):
                draft.ids += sample.ids
                draft.logprobs += sample.logprobs
                draft.finish = sample.finish
                draft.close_span(self.model.version)
