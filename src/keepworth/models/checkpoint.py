"""Loads a network and its tokenizer from a checkpoint folder, and checks the tree of branches against its plain forward pass."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keepworth.base.needs import needs_llm

import torch

from keepworth.base.json_values import parse
from keepworth.base.model_errors import CorruptModel, IncompleteModel, UnsupportedModel
from keepworth.models import attention
from keepworth.models.attention import decoder_of, tree, window_of
from keepworth.models.text_side import context_limit
from keepworth.records.model import SamplingParams, Tokens

if TYPE_CHECKING:
    from keepworth.models.inprocess import InProcessModel

WORKS = (
    "Take a decoder of the SmolLM2, Qwen 2 or 3, Llama, Mistral, Gemma 3, Phi or OLMo kind (docs/models.md lists the others), "
    "or serve this one with an engine of its own over HTTP."
)
_NEEDED = ("vocab_size", "num_hidden_layers")
_ATTENTION = frozenset({"full_attention", "sliding_attention", "attention"})
_TEXT = "Ana moved to Oslo in May."
_BRANCH = 2
_LEAST = 16  # tokens of a context that is of any use
_MOST_LAYERS = 10_000  # each is made before a weight is read
# This is the largest root mean square difference of the logits, in units of their own spread. In SmolLM2-135M, rounding alone
# gives 3e-6 in float32 and 0.055 in bfloat16.
_TOLERANCE = {torch.float64: 1e-4, torch.float32: 1e-4}
_TOLERANCE_LOW = 0.25


def require_supported_config(config: Any, folder: Path | str) -> None:
    """Raises UnsupportedModel where the folder holds no autoregressive language model."""
    family = getattr(config, "model_type", "")
    names = getattr(config, "architectures", None) or ()
    if names and not any("CausalLM" in name or "LMHead" in name for name in names):
        raise UnsupportedModel(
            f"{folder} holds {', '.join(names)}, which is no language model that writes one token after another.", WORKS
        )
    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedModel(f"{folder} holds an encoder with a decoder ({family}), not a decoder alone.", WORKS)
    if absent := [name for name in _NEEDED if not isinstance(getattr(config, name, None), int)]:
        raise UnsupportedModel(f"The config.json in {folder} ({family}) does not say {', '.join(absent)}.", WORKS)
    if (limit := context_limit(config)) < _LEAST:
        raise UnsupportedModel(f"{folder} ({family}) is computed rightly for texts of at most {limit} tokens.", WORKS)


@torch.inference_mode()
def require_tree(model: InProcessModel, folder: Path | str) -> None:
    """Compares the tree of branches with the network's own plain forward pass. It scores and samples short branches of two
    prompts of different lengths. It uses no random numbers and leaves the network as it was. Raises UnsupportedModel where they
    differ by more than rounding, and IncompleteModel where the tokenizer has ids that the network lacks."""
    network = model.network
    family, size = network.config.model_type, int(network.config.vocab_size)
    ids = model.encode(_TEXT)[: context_limit(network.config)]
    if len(ids) <= 2 * _BRANCH or max(ids) >= size:
        raise IncompleteModel(
            f"The tokenizer in {folder} does not fit the network of {size} tokens: it reads {_TEXT!r} as {ids}.",
            "Put the tokenizer files that were published with these weights into the folder.",
        )
    prompts, branches = [ids[:-_BRANCH], ids[: len(ids) // 2]], [ids[-_BRANCH:], ids[:_BRANCH]]
    try:
        with _attention(network, "eager"):
            plain = _Plain(network, prompts, branches)
    except Exception as error:  # networks raise many types where they do not support the computation
        raise UnsupportedModel(f"{folder} ({family}) cannot be computed on a text ({error}).", WORKS) from error
    if plain.looks_ahead:
        raise UnsupportedModel(f"{folder} ({family}) looks ahead: what follows a token changes its logits.", WORKS)
    if reason := _no_tree(model, plain):
        raise no_tree_error(folder, family, reason)


def no_tree_error(folder: Path | str, family: str, reason: str) -> UnsupportedModel:
    """Makes the error about a network whose forward pass cannot be computed as a tree of branches.

    Args:
        folder: The checkpoint's folder, or the name of the model.
        family: The model type in its config, such as "llama".
        reason: The end of the sentence, which says what is in the way.
    """
    return UnsupportedModel(f"{folder} ({family}) cannot be computed as a tree of branches: {reason}.", WORKS)


@contextlib.contextmanager
def _attention(network: Any, name: str) -> Iterator[None]:
    before = network.config._attn_implementation
    network.set_attn_implementation(name)
    try:
        yield
    finally:
        network.set_attn_implementation(before)


class _Plain:
    """The network's own logits of the branches' tokens, computed without a cache and without padding."""

    def __init__(self, network: Any, prompts: list[Tokens], branches: list[Tokens]) -> None:
        self.network, self.prompts, self.branches = network, prompts, branches
        self.tolerance = _TOLERANCE.get(next(network.parameters()).dtype, _TOLERANCE_LOW)
        logits = [self.predicting(prompt, branches) for prompt in prompts]
        self.logits = torch.cat(logits).flatten(0, 1)
        self.spread = float((self.logits - self.logits.mean(-1, keepdim=True)).square().mean().sqrt())
        # The prediction of a branch's first token must not depend on the branch, which differs between the rows.
        self.looks_ahead = bool(self.gap(logits[0][0, :1], logits[0][1, :1]))

    def predicting(self, prompt: Tokens, branches: Sequence[Tokens]) -> torch.Tensor:
        """Returns the logits [branches, tokens, V] that predict the tokens of branches of one length."""
        ids = torch.tensor([prompt + branch for branch in branches])
        logits: torch.Tensor = self.network(input_ids=ids, use_cache=False).logits.double()
        return logits[:, len(prompt) - 1 : -1]

    def gap(self, computed: torch.Tensor, theirs: torch.Tensor | None = None) -> str:
        """Describes how much `computed` [N, V] differs from the network's own logits; "" where it is no more than rounding."""
        gap = float((computed.double() - (self.logits if theirs is None else theirs)).square().mean().sqrt())
        if gap <= self.tolerance * max(self.spread, 1e-6):
            return ""
        return f"logits differ by {gap:.2g} from the network's own, which spread by {self.spread:.2g}"


def _scored(model: InProcessModel, plain: _Plain, **attention: Any) -> torch.Tensor:
    batch = tree(plain.prompts, [plain.branches for _ in plain.prompts], multiple=1)
    hidden = model.hidden_states(batch.ids, batch.positions, batch.mask, None, **attention)
    return model.head(hidden.flatten(0, 1)[batch.predictor])


def _sampled_gap(model: InProcessModel, plain: _Plain, prompts: Sequence[Tokens]) -> str:
    """Compares the distributions from which tokens are drawn after prompts in the same way."""
    drawn = model.sample_at(prompts, SamplingParams(_BRANCH, n=2, temperature=0), None)
    with _attention(model.network, "eager"):
        logits = [
            plain.predicting(p, [answer.ids for answer in answers[:1]])[0]
            for p, answers in zip(prompts, drawn, strict=True)
        ]
    gaps = [
        plain.gap(torch.tensor(answer.logprobs), torch.log_softmax(rows, -1)[range(_BRANCH), answer.ids])
        for answers, rows in zip(drawn, logits, strict=True)
        for answer in answers
        if answer.ids == answers[0].ids  # the other one is equal, unless rounding decides a tie
    ]
    return f"where it goes on token by token, {max(gaps)}" if any(gaps) else ""


def _no_tree(model: InProcessModel, plain: _Plain) -> str:
    """Returns why the network cannot be computed as a tree; "" where it can."""
    config = model.network.config
    layers = _other_layers(config)
    asked: list[int | None] = []
    try:
        gap = plain.gap(_scored(model, plain, asked=asked)) or _sampled_gap(model, plain, plain.prompts[:1])
    except UnsupportedModel as error:
        return str(error.args[0])
    except Exception as error:
        return layers or f"a tree of branches is not computed ({error})"
    if gap:
        return layers or f"as a tree of branches its {gap}"
    window, heard = window_of(config), sum(window_size is not None for window_size in asked)
    kinds = getattr(config, "layer_types", None) or ["sliding_attention"] * int(config.num_hidden_layers)
    if window is not None and heard != kinds.count("sliding_attention"):
        return f"it sets sliding_window = {window}, of which {heard} of its {len(kinds)} layers tell"
    return ""


def _other_layers(config: Any) -> str:
    other = sorted(set(getattr(config, "layer_types", None) or ()) - _ATTENTION)
    return f"it has layers of the kind {', '.join(other)}" if other else ""


# Loading a network and its tokenizer from a checkpoint folder, with an error for every way in which its files can be wrong.


_AGAIN = "Copy or download the folder again; a model of the catalogue: `keepworth models fetch NAME --force`."


_PLAIN = "Take a folder with plain weights (float32, float16 or bfloat16), or serve this one with an engine of its own."
_loading = threading.Lock()
"""Held while transformers loads: it changes defaults of the process meanwhile, and a second load would lose weights."""


def load_checkpoint(folder: Path, dtype: torch.dtype) -> tuple[Any, Any]:
    """Loads the causal language model and the tokenizer in `folder`. Raises IncompleteModel where a file or a weight is missing,
    CorruptModel where one cannot be read, UnsupportedModel where the folder holds something else than a decoder that this engine
    computes."""
    from safetensors import SafetensorError
    from transformers import AutoConfig, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()  # it takes a second, and would break into the run's own display
    if not (folder / "config.json").is_file():
        raise IncompleteModel(
            f"{folder} has no config.json: it is no language model's folder.",
            "Name the folder that holds config.json, the weights and the tokenizer.",
        )
    try:
        stated = parse((folder / "config.json").read_bytes())
        refuse_kernels(stated, folder)
        layers = stated.get("num_hidden_layers", 0)
        if isinstance(layers, int) and layers > _MOST_LAYERS:
            raise ValueError(f"no model has {layers:,} layers")
        config = AutoConfig.from_pretrained(folder)
        require_supported_config(config, folder)
    except UnsupportedModel:
        raise
    except Exception as error:  # the library raises its validators' own types besides OSError and ValueError
        refuse_code_of_its_own(folder)
        raise CorruptModel(
            f"{folder / 'config.json'} cannot be read as a model's configuration: {error}", _AGAIN
        ) from error
    try:
        with _loading:
            network, info = _network(folder, dtype)
    except SafetensorError as error:
        raise CorruptModel(f"The weights in {folder} are cut short or damaged: {error}.", _AGAIN) from error
    except (UnsupportedModel, MemoryError):
        raise
    except ImportError as error:  # weights in a form that another library reads, such as four bits a number
        raise UnsupportedModel(f"The weights in {folder} cannot be loaded here: {error}", _PLAIN) from error
    except Exception as error:  # a configuration can be wrong in many ways that show when the network is made
        refuse_code_of_its_own(folder)
        raise CorruptModel(f"The weights in {folder} cannot be loaded: {_words(error)}", _AGAIN) from error
    if absent := sorted(info["missing_keys"]):
        raise IncompleteModel(
            f"The weights in {folder} lack {len(absent)} tensors of a language model, for example {absent[0]}.", _AGAIN
        )
    if decoder_of(network) is network:
        raise UnsupportedModel(f"{folder} holds {type(network).__name__}, which has no decoder under its head.", WORKS)
    if network.get_output_embeddings() is None:
        raise UnsupportedModel(f"{folder} holds {type(network).__name__}, which has no output embeddings.", WORKS)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        tokenizer(_TEXT)  # some of its settings are first read here
        return network, tokenizer
    except Exception as error:  # the tokenizers library raises bare Exception
        refuse_code_of_its_own(folder)
        raise CorruptModel(f"The tokenizer in {folder} cannot be read: {error}", _AGAIN) from error


def _network(folder: Path, dtype: torch.dtype) -> tuple[Any, dict[str, Any]]:
    """Loads the network with the attention of trees. Raises UnsupportedModel where its layers support only their own
    attention."""
    from transformers import AutoModelForCausalLM

    settings: dict[str, Any] = {"dtype": dtype, "output_loading_info": True}
    if dtype is torch.float64:  # experts are computed in one product otherwise, which PyTorch lacks for float64
        settings["experts_implementation"] = "eager"
    name = attention.register()
    reason = "its layers take no attention but their own"
    try:
        loaded: tuple[Any, dict[str, Any]] = AutoModelForCausalLM.from_pretrained(
            folder, attn_implementation=name, **settings
        )
    except KeyError as error:
        if error.args != (name,):
            raise
        raise no_tree_error(
            folder, str(json.loads((folder / "config.json").read_text(encoding="utf-8"))["model_type"]), reason
        ) from error
    config = loaded[0].config
    if not loaded[0]._can_set_attn_implementation():
        raise no_tree_error(folder, config.model_type, _other_layers(config) or reason)
    return loaded


def _words(error: Exception) -> str:
    """Returns what an error says, with its type where it says only a name."""
    return str(error) if isinstance(error, OSError | ValueError | RuntimeError) else repr(error)


def refuse_kernels(config: Any, folder: Path) -> None:
    """Raises UnsupportedModel where a configuration, or one inside it, names a kernel of the Hugging Face Hub, such as
    `OWNER/NAME`, as the way in which the network is computed: transformers would fetch that kernel and run it."""
    for name, value in config.items() if isinstance(config, dict) else ():
        if name.endswith("_implementation") and "/" in str(value):
            raise UnsupportedModel(
                f"{folder} asks for code of the Hugging Face Hub ({name} {value!r:.80} in config.json), and none is run here.",
                f"Remove {name} from config.json.",
            )
        refuse_kernels(value, folder)


def refuse_code_of_its_own(folder: Path) -> None:
    """Raises UnsupportedModel where the configuration or the tokenizer names code in the folder, which is never run. It is called
    where the folder cannot be read without that code."""
    for name in ("config.json", "tokenizer_config.json"):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            if parse((folder / name).read_text(encoding="utf-8")).get("auto_map"):
                raise UnsupportedModel(
                    f"{folder} needs code of its own (auto_map in {name}), and none is run here.", WORKS
                )
