"""The model in this process: samples and scores with the weights that the learner trains, adapter unmerged."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from keepworth.base.needs import needs_llm

import torch
from torch.autograd.function import once_differentiable

from keepworth.base.model_errors import ContextOverflow
from keepworth.models.attention import Tree, decoder_of, float32_products, tree
from keepworth.models.chat_format import ends_of
from keepworth.models.checkpoint import load_checkpoint, require_tree
from keepworth.models.decoding_step import DecodingStep, PackedWeights, ThroughModules
from keepworth.models.drawing import Drawing, GroupCache, uniforms, unpack_bits
from keepworth.models.grammar_masks import GrammarMasks
from keepworth.models.text_side import TextSide, context_limit
from keepworth.records.model import Grammar, Sample, SamplingParams, Tokens

Precision = Literal["bf16", "fp32", "fp64"]
DTYPES: dict[Precision, torch.dtype] = {"bf16": torch.bfloat16, "fp32": torch.float32, "fp64": torch.float64}


class InProcessModel(TextSide):
    """A causal language model and its tokenizer behind the engine protocol (`keepworth.records.Model`). `token_budget` is how
    many padded tokens are computed at once; it bounds memory, not the size of requests."""

    def __init__(self, network: Any, tokenizer: Any, name: str, token_budget: int = 4096) -> None:
        self.network = network
        ends = ends_of(self._causal_model())
        super().__init__(tokenizer, name, int(network.config.vocab_size), context_limit(network.config), ends)
        self.token_budget = token_budget
        self.folder: Path | None = None
        """The folder it was loaded from."""
        self.base: dict[str, Any] | None = None
        """The cached record of the weights in `folder` (`keepworth.base.model_files.record_of`)."""
        self.watch: Callable[[float, int], None] | None = None
        """Is told, while `sample` draws, how many prompts of how many are answered, the parts of answers included."""
        self._packed = PackedWeights()

    @classmethod
    def load(
        cls, folder: Path | str, name: str = "", *, precision: Precision = "bf16", device: str = ""
    ) -> InProcessModel:
        """Loads a checkpoint folder (`config.json`, safetensors, tokenizer files). Raises IncompleteModel or CorruptModel where
        the files cannot be read as a language model, and UnsupportedModel where a tree of branches gives other numbers than
        the network's own forward pass (see `keepworth.models.checkpoint`).

        Args:
            folder: The checkpoint's folder.
            name: The name of the model in records and messages; that of the folder by default.
            precision: The dtype of the weights and of the computation.
            device: A device of PyTorch; "" takes CUDA where it is available, else the processor.
        """
        folder = Path(folder)
        network, tokenizer = load_checkpoint(folder, DTYPES[precision])
        network.eval()
        network.requires_grad_(False)
        model = cls(network, tokenizer, name or folder.name)
        model.folder = folder
        require_tree(model, folder)
        model._packed.clear()  # a model that only learns does not draw again
        network.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        return model

    @property
    def dtype(self) -> torch.dtype:
        dtype: torch.dtype = next(self.network.parameters()).dtype
        return dtype

    @property
    def precision(self) -> Precision:
        return next(name for name, dtype in DTYPES.items() if dtype == self.dtype)

    @property
    def device(self) -> torch.device:
        """The device of the weights and of every pass. Inputs and outputs (ids, masks, log-probabilities) are on the CPU."""
        device: torch.device = next(self.network.parameters()).device
        return device

    @contextlib.contextmanager
    def without_adapter(self) -> Iterator[None]:
        """Switches the adapter off inside the block: the base is a reference at no cost."""
        if not hasattr(self.network, "disable_adapter"):
            raise ValueError(f"{self.name} has no adapter to switch off: keep a second copy of the model as reference")
        with self.network.disable_adapter():
            yield

    def hidden_states(
        self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor | None, cache: Any, **attention: Any
    ) -> Any:
        """Returns the last hidden states [B, L, H], without logits, which are computed only where they are needed. Raises
        ContextOverflow for a text longer than `context_limit`.

        Args:
            ids: [B, L] The ids of the tokens.
            positions: [B, L] The depth of each token in its own text, from 0 on, whatever else is in its row.
            mask: bool [B, 1, S, L] A tree's mask (`keepworth.models.attention.tree`); None for plain causal rows.
            cache: The network's cache, which is read and extended; None for none.
            attention: Further arguments of `keepworth.models.attention.tree_attention`, such as `asked`.
        """
        if (longest := int(positions.max()) + 1) > self.context_limit:
            raise ContextOverflow(
                f"A text of {longest} tokens is past the {self.context_limit} that {self.name} reads.",
                "Show fewer or shorter memories.",
            )
        decoder, device = decoder_of(self._causal_model()), self.device
        return decoder(
            input_ids=ids.to(device),
            position_ids=positions.to(device),
            attention_mask=None if mask is None else mask.to(device),
            past_key_values=cache,
            use_cache=cache is not None,
            **attention,
        ).last_hidden_state

    def next_logits(self, token: torch.Tensor, positions: torch.Tensor, cache: GroupCache) -> torch.Tensor:
        """Returns the logits [R, V] after one token of each row, and adds its keys and values to the cache. They are computed
        without the network's modules where the network allows that (see `DecodingStep`).

        Args:
            token: [R] The id that each row drew last.
            positions: [R] The depth of that token in its text, from 0 on.
            cache: The cache of the rows that are drawn together.
        """
        if not cache.asked or (cache.step is not None and not cache.step.current()):
            cache.asked, cache.step = True, self._step()  # anew, because weights may change in the middle of a text
        if cache.step is not None:
            return cache.step(token, positions, cache.layers)
        return self.head(self.hidden_states(token[:, None], positions[:, None], None, cache.layers)[:, 0])

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self._causal_model().get_output_embeddings()(hidden)
        return logits

    @cached_property
    def grammar_masks(self) -> GrammarMasks:
        """The ids that grammars allow. Raises MissingExtra where llguidance is not installed."""
        return GrammarMasks(self.tokenizer, int(self.network.config.vocab_size), self.name)

    def check_grammar(self, grammar: Grammar) -> None:
        self.grammar_masks.check(grammar)

    def tree_scores(
        self, batch: Tree, temperature: float = 1.0, allowed: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns log-probability and entropy, both [N] in the order of `batch.target`; differentiable where gradients are on.

        Args:
            batch: The texts.
            temperature: The logits are divided by it before the softmax.
            allowed: int32 [N, V / 32] The bits of the ids that each target was drawn from; None for all ids.
        """
        hidden = self.hidden_states(batch.ids, batch.positions, batch.mask, None)
        chosen = hidden.flatten(0, 1)[batch.predictor]
        output = self._causal_model().get_output_embeddings()
        trained = [parameter for parameter in output.parameters() if parameter.requires_grad]
        target = batch.target.to(chosen.device)
        bits = None if allowed is None else allowed.to(chosen.device)
        lp, entropy = token_scores(self.head, chosen, target, temperature, parameters=trained, allowed=bits)
        return lp.cpu(), entropy.cpu()  # gradients pass through the copy

    def _causal_model(self) -> Any:
        get_base = getattr(self.network, "get_base_model", None)
        return get_base() if get_base else self.network

    # -- sampling -----------------------------------------------------------------------------------------------

    def sample(self, prompts: Sequence[Tokens], params: SamplingParams) -> list[list[Sample]]:
        self.check(prompts, params)
        draws = None if params.temperature == 0 else uniforms(params, range(len(prompts)))
        return self.sample_at(prompts, params, draws)

    @torch.inference_mode()
    def sample_at(
        self, prompts: Sequence[Tokens], params: SamplingParams, draws: torch.Tensor | None
    ) -> list[list[Sample]]:
        """Samples with random numbers that the caller chose, so that the same numbers draw the same samples.

        Args:
            prompts: The ids of each prompt.
            params: The distribution, the number of samples `n`, and where a sample ends.
            draws: [prompts, n, max_tokens] Numbers in [0, 1); None takes the likeliest token each time.
        """
        self.check(prompts, params)
        results: list[list[Sample]] = [[] for _ in prompts]
        with float32_products(self.dtype):
            over = 0.0
            for rows, _, drawing in self.drawings(prompts, params, draws):
                share = len(rows) * drawing.group / params.n
                while not drawing.over:
                    drawing.step()
                    if self.watch is not None:
                        self.watch(over + share * drawing.share, len(prompts))
                over += share
                for position, index in enumerate(rows):
                    branches = range(position * drawing.group, (position + 1) * drawing.group)
                    results[index] += [drawing.sample(branch) for branch in branches]
        return results

    def drawings(
        self, prompts: Sequence[Tokens], params: SamplingParams, draws: torch.Tensor | None
    ) -> Iterator[tuple[list[int], int, Drawing]]:
        """Yields the drawings of the branches of these prompts, as many at once as memory holds. Each comes with its prompts'
        indices and the first of their branches.

        Args:
            prompts: The ids of each prompt.
            params: The distribution, the number of samples `n`, and where a sample ends.
            draws: [prompts, n, max_tokens] Numbers in [0, 1), as for `sample_at`; None takes the likeliest token each time.
        """
        most = self._most_kept
        for rows in together([*map(len, prompts)], params.n * params.max_tokens, self.token_budget, most):
            # A group that does not fit into memory is drawn in parts. The draws do not depend on the parts.
            part = max(1, (most - len(prompts[rows[0]])) // params.max_tokens) if len(rows) == 1 else params.n
            for first in range(0, params.n, part):
                some = replace(params, n=min(part, params.n - first))
                at = None if draws is None else draws[rows, first : first + part]
                yield rows, first, Drawing(self, [prompts[row] for row in rows], some, at)

    @cached_property
    def _most_kept(self) -> int:
        """Tokens whose keys and values take a quarter of the machine's memory. The number does not depend on free memory, because
        rounding depends on which texts are drawn together."""
        config = self.network.config
        heads = getattr(config, "num_key_value_heads", None) or getattr(config, "num_attention_heads", None)
        memory = whole_memory(self.device)
        if not isinstance(heads, int) or memory == math.inf:
            return sys.maxsize
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return int(memory / 4 / (2 * config.num_hidden_layers * heads * size * max(4, self.dtype.itemsize)))

    def check(self, prompts: Sequence[Tokens], params: SamplingParams) -> None:
        """Raises ContextOverflow for a prompt that could exceed the model's window, ValueError for invalid settings."""
        if params.max_tokens < 1 or params.n < 1:
            raise ValueError(f"max_tokens and n must be at least 1, not {params.max_tokens} and {params.n}")
        if not params.temperature >= 0 or math.isinf(params.temperature):
            raise ValueError(f"temperature must be a number of at least 0, not {params.temperature}")
        if params.top_k < 0 or not 0 < params.top_p <= 1:
            raise ValueError(f"top_k must be at least 0 and top_p in (0, 1], not {params.top_k} and {params.top_p}")
        vocabulary = int(self.network.config.vocab_size)
        if strange := sorted(identifier for identifier in params.stop_ids if not 0 <= identifier < vocabulary):
            raise ValueError(f"stop ids must be tokens of {self.name}, from 0 to {vocabulary - 1}, not {strange[0]}")
        for index, prompt in enumerate(prompts):
            self.check_length(index, prompt, params.max_tokens)

    def _step(self) -> DecodingStep | None:
        """Makes the step that draws without the network's modules; None where the network needs them."""
        try:
            return DecodingStep(self._causal_model(), self._packed)
        except ThroughModules:
            return None

    # -- scoring ------------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def score(
        self, prompts: Sequence[Tokens], branches: Sequence[Sequence[Tokens]], temperature: float = 1.0
    ) -> list[list[tuple[float, ...]]]:
        results: list[list[tuple[float, ...]]] = [[] for _ in prompts]
        sizes = [len(p) + sum(map(len, b)) for p, b in zip(prompts, branches, strict=True)]
        for rows in group_within_budget(sizes, self.token_budget):
            some_prompts, some_branches = [prompts[i] for i in rows], [branches[i] for i in rows]
            with float32_products(self.dtype):
                logprobs, _ = self.tree_scores(tree(some_prompts, some_branches), temperature)
            values = iter(logprobs.tolist())
            for index, branches_of in zip(rows, some_branches, strict=True):
                results[index] = [tuple(next(values) for _ in branch) for branch in branches_of]
        return results


def group_within_budget(sizes: Sequence[int], token_budget: int) -> list[list[int]]:
    """Groups indices of rows of these sizes so that no group's padded tokens exceed the budget (a longer row goes alone). Rows of
    similar length go together, longest first: the largest allocation happens first, not in the middle."""
    order = sorted(range(len(sizes)), key=lambda i: (-sizes[i], i))
    groups: list[list[int]] = []
    for index in order:
        if groups and sizes[groups[-1][0]] * (len(groups[-1]) + 1) <= token_budget:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


_DRAWN = 8
"""Tokens whose keys and values are stored while texts are drawn, per token that may be computed at once."""


def together(prompts: Sequence[int], answers: int, token_budget: int, most: int) -> list[list[int]]:
    """Groups the indices of prompts whose answers are drawn together. A prompt that fits no budget goes alone.

    Args:
        prompts: The tokens of each prompt.
        answers: The most tokens that all answers of one prompt have together.
        token_budget: The most tokens of a group's padded prompts. All stored tokens of a group are at most `_DRAWN` times as
            many.
        most: The most tokens of a group, answers included, that memory holds.
    """
    tokens = min(_DRAWN * token_budget, most)
    return group_within_budget(
        [max(length, -(-(length + answers) * token_budget // tokens)) for length in prompts], token_budget
    )


def whole_memory(device: torch.device) -> float:
    """Returns the bytes of the device's memory, or of the machine's for the processor; infinite where the system does not report
    them."""
    if device.type == "cuda":
        return float(torch.cuda.get_device_properties(device).total_memory)
    try:
        machine = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):  # not every system says
        machine = math.inf
    try:
        with open("/sys/fs/cgroup/memory.max") as file:  # of the control group that this process is in (version 2)
            return min(machine, float(file.read()))
    except (OSError, ValueError):  # ValueError: "max", where there is no limit
        return machine


# Log-probabilities and entropies of chosen tokens, a chunk of the vocabulary-wide matrix at a time.


Head = Callable[[torch.Tensor], torch.Tensor]
_NEVER = -1e9
"""The logit of an id that cannot be drawn."""


def token_scores(
    head: Head,
    hidden: torch.Tensor,
    target: torch.Tensor,
    temperature: float = 1.0,
    chunk: int = 128,
    parameters: Sequence[torch.Tensor] = (),
    allowed: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the log-probability of each target and the entropy of its distribution, both [N] in nats. Softmax is in float32
    whatever the model's dtype (float64 stays float64). Raises ValueError for a temperature that is not positive.

    Args:
        head: The function from hidden states to logits.
        hidden: [N, H] The hidden state before each target.
        target: [N] The ids that are scored.
        temperature: The logits are divided by it before the softmax.
        chunk: Only so many rows of logits exist at a time, forwards and backwards: the backward pass recomputes them.
        parameters: Those parameters of the head that get a gradient.
        allowed: int32 [N, V / 32] The bits of the ids that each target was drawn from: the distribution is that of those alone.
            None for all ids.
    """
    if temperature <= 0:
        raise ValueError(f"temperature must be positive to score tokens, not {temperature}")
    parts = [
        _Scores.apply(  # type: ignore[no-untyped-call]
            head,
            temperature,
            target[start : start + chunk],
            None if allowed is None else allowed[start : start + chunk],
            hidden[start : start + chunk],
            *parameters,
        )
        for start in range(0, hidden.shape[0], chunk)
    ]
    if not parts:
        empty = hidden.new_zeros(0, dtype=torch.float32)
        return empty, empty
    logprobs, entropies = zip(*parts, strict=True)
    return torch.cat(logprobs), torch.cat(entropies)


class _Scores(torch.autograd.Function):
    """Computes both with these gradients: with z = logits / temperature and p = softmax(z), d log p[t] / dz = onehot(t) - p and
    dH / dz = -p (log p + H)."""

    @staticmethod
    def forward(
        ctx: Any,
        head: Head,
        temperature: float,
        target: torch.Tensor,
        allowed: torch.Tensor | None,
        hidden: torch.Tensor,
        *parameters: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        scaled = _scaled(head(hidden), temperature, allowed)
        largest = scaled.amax(-1, keepdim=True)
        scaled = scaled.sub_(largest)
        weights = scaled.exp()
        total = weights.sum(-1)
        logprob = scaled.gather(1, target[:, None]).squeeze(1) - total.log()
        entropy = total.log() - scaled.mul_(weights).sum(-1) / total
        ctx.head, ctx.temperature, ctx.allowed = head, temperature, allowed
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
        logprobs = _scaled(logits.detach(), ctx.temperature, ctx.allowed).sub_(normaliser[:, None])
        to_target = torch.zeros_like(normaliser) if to_logprob is None else to_logprob / ctx.temperature
        if to_entropy is None:
            gradient = logprobs.exp_().mul_(-to_target[:, None])
        else:
            shares = logprobs.exp()
            gradient = logprobs.add_(entropy[:, None]).mul_((-to_entropy / ctx.temperature)[:, None])
            gradient = gradient.sub_(to_target[:, None]).mul_(shares)
        gradient.scatter_add_(1, target[:, None], to_target[:, None])
        grads = torch.autograd.grad(logits, (leaf, *parameters), gradient.to(logits.dtype))
        return None, None, None, None, *grads


def _scaled(logits: torch.Tensor, temperature: float, allowed: torch.Tensor | None) -> torch.Tensor:
    """Returns a float32 copy (float64 stays float64), divided by the temperature, that may be overwritten. Logits of ids that are
    not allowed are so low that their probability is 0, and finite, so that 0 times their logarithm is 0."""
    copied = logits.to(torch.promote_types(logits.dtype, torch.float32), copy=True)
    scaled = copied if temperature == 1 else copied.div_(temperature)
    return scaled if allowed is None else scaled.masked_fill_(~unpack_bits(allowed, scaled.shape[-1]), _NEVER)
