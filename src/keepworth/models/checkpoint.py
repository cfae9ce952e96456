"""From a checkpoint folder to a network and its tokenizer; what the engine would not compute rightly is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from keepworth.episodes.needs import needs_llm

import torch

from keepworth.models import attention
from keepworth.models.attention import context_limit, tree
from keepworth.models.errors import CorruptModel, IncompleteModel, UnsupportedModel

if TYPE_CHECKING:
    from keepworth.episodes.model import Tokens


# Which networks the engine computes rightly: the rest are refused before they give a wrong number.
#
# The engine runs a decoder's layers and its `lm_head` itself, over trees of branches. What a network does besides (a cap
# on its logits, a window, a state that is carried from token to token) would be left out without a word.


WORKS = (
    "Take a decoder of the Llama, Qwen, Mistral or SmolLM kind, or serve this one with an engine of its own over HTTP."
)
# Settings that change the logits behind `lm_head` or inside the attention, and the values at which they do nothing.
_NEUTRAL: dict[str, tuple[float | None, ...]] = {
    "final_logit_softcapping": (None,),
    "attn_logit_softcapping": (None,),
    "logits_scaling": (None, 1.0),
    "logit_scale": (None, 1.0),
    "lm_head_multiplier": (None, 1.0),
    "attention_chunk_size": (None,),
}
_ATTENTION = frozenset({"full_attention", "sliding_attention", "attention"})
_NEEDED = ("vocab_size", "num_hidden_layers", "max_position_embeddings")
_TEXT = "Ana moved to Oslo in May."
_BRANCH = 2
_LEAST = 16  # tokens of a context that is of any use
# Largest root mean square difference of the logits, in units of their own spread. In SmolLM2-135M, rounding alone
# gives 3e-6 in float32 and 0.055 in bfloat16.
_TOLERANCE = {torch.float64: 1e-4, torch.float32: 1e-4}
_TOLERANCE_LOW = 0.25


class Scores(Protocol):
    """What of the in-process model is compared."""

    network: Any

    def encode(self, text: str) -> Tokens: ...
    def hidden_states(
        self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor | None, cache: Any
    ) -> Any: ...
    def head(self, hidden: torch.Tensor) -> torch.Tensor: ...


def require_supported_config(config: Any, folder: Path | str) -> None:
    """Raises UnsupportedModel naming the setting that the engine would leave out."""
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
    for name, neutral in _NEUTRAL.items():
        if (value := getattr(config, name, None)) not in neutral:
            raise UnsupportedModel(f"{folder} ({family}) sets {name} = {value}, which is not computed here.", WORKS)
    if other := sorted(set(getattr(config, "layer_types", None) or ()) - _ATTENTION):
        raise UnsupportedModel(f"{folder} ({family}) has layers other than attention: {', '.join(other)}.", WORKS)


def require_supported_network(network: Any, folder: Path | str) -> None:
    """Raises UnsupportedModel where there is no `lm_head` over a decoder."""
    absent = [name for name in ("lm_head", "get_decoder") if not callable(getattr(network, name, None))]
    if absent or network.get_decoder() is network:
        lacks = absent[0] if absent else "decoder under its head"
        raise UnsupportedModel(f"{folder} holds {type(network).__name__}, which has no {lacks}.", WORKS)


@torch.inference_mode()
def require_agreement(model: Scores, folder: Path | str) -> None:
    """Compare the engine's logits on short branches of two prompts of different lengths, computed together, with the
    network's own plain forward pass over one text at a time.

    Draws nothing and leaves the network as it was. Raises UnsupportedModel where they differ by more than rounding,
    and IncompleteModel where the tokenizer has ids that the network lacks.
    """
    network = model.network
    ids, size = model.encode(_TEXT)[: context_limit(network.config)], int(network.config.vocab_size)
    if len(ids) <= 2 * _BRANCH or max(ids) >= size:
        raise IncompleteModel(
            f"The tokenizer in {folder} does not fit the network of {size} tokens: it reads {_TEXT!r} as {ids}.",
            "Put the tokenizer files that were published with these weights into the folder.",
        )
    prompts, branches = [ids[:-_BRANCH], ids[: len(ids) // 2]], [ids[-_BRANCH:], ids[:_BRANCH]]
    used = network.config._attn_implementation
    try:
        batch = tree(prompts, [branches, branches], multiple=1)
        hidden = model.hidden_states(batch.ids, batch.positions, batch.mask, None)
        ours = model.head(hidden.flatten(0, 1)[batch.predictor]).double()
        network.set_attn_implementation("eager")
        plain = torch.cat([_plain_logits(network, prompt, branch) for prompt in prompts for branch in branches])
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError, KeyError, NotImplementedError) as error:
        raise UnsupportedModel(
            f"{folder} ({network.config.model_type}) cannot be computed as a tree of branches ({error}).", WORKS
        ) from error
    finally:
        network.set_attn_implementation(used)
    spread = float((plain - plain.mean(-1, keepdim=True)).square().mean().sqrt())
    gap = float((ours - plain).square().mean().sqrt())
    tolerance = _TOLERANCE.get(next(network.parameters()).dtype, _TOLERANCE_LOW)
    if not gap <= tolerance * max(spread, 1e-6):
        raise UnsupportedModel(
            f"{folder} ({network.config.model_type}) has logits that differ by {gap:.2g} from the network's own "
            f"(they spread by {spread:.2g}): it computes something that is left out here.",
            WORKS,
        )


def _plain_logits(network: Any, prompt: Tokens, branch: Tokens) -> torch.Tensor:
    """[len(branch), V]: what the network itself predicts the tokens of the branch from."""
    logits = network(input_ids=torch.tensor([prompt + branch]), use_cache=False).logits
    found: torch.Tensor = logits[0, len(prompt) - 1 : -1].double()
    return found


# A checkpoint folder into a network and its tokenizer, with every way in which its files can be wrong named.


_AGAIN = "Copy or download the folder again; a model of the catalogue: `keepworth models fetch NAME --force`."


def load_checkpoint(folder: Path, dtype: torch.dtype) -> tuple[Any, Any]:
    """The causal language model and the tokenizer in `folder`.

    Raises IncompleteModel where a file or a weight is missing, CorruptModel where one cannot be read, UnsupportedModel
    where the folder holds something else than a decoder that this engine computes.
    """
    from safetensors import SafetensorError
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()  # it takes a second, and would break into the run's own display
    _require_files(folder)
    try:
        config = AutoConfig.from_pretrained(folder)
    except Exception as error:  # the library raises its validators' own types besides OSError and ValueError
        raise CorruptModel(
            f"{folder / 'config.json'} cannot be read as a model's configuration: {error}", _AGAIN
        ) from error
    require_supported_config(config, folder)
    try:
        network, found = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, attn_implementation=attention.register(), output_loading_info=True
        )
    except SafetensorError as error:
        raise CorruptModel(f"The weights in {folder} are cut short or damaged: {error}.", _AGAIN) from error
    except (OSError, ValueError, RuntimeError) as error:
        raise CorruptModel(f"The weights in {folder} cannot be loaded: {error}", _AGAIN) from error
    if absent := sorted(found["missing_keys"]):
        raise IncompleteModel(
            f"The weights in {folder} lack {len(absent)} tensors of a language model, for example {absent[0]}.", _AGAIN
        )
    require_supported_network(network, folder)
    try:
        return network, AutoTokenizer.from_pretrained(folder)
    except Exception as error:  # the tokenizers library raises bare Exception
        raise CorruptModel(f"The tokenizer in {folder} cannot be read: {error}", _AGAIN) from error


def _require_files(folder: Path) -> None:
    configuration = folder / "config.json"
    if not configuration.is_file():
        raise IncompleteModel(
            f"{folder} has no config.json: it is no language model's folder.",
            "Name the folder that holds config.json, the weights and the tokenizer.",
        )
    try:
        settings = json.loads(configuration.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CorruptModel(f"{configuration} is not valid JSON: {error}.", _AGAIN) from error
    if not isinstance(settings, dict):
        raise CorruptModel(f"{configuration} does not hold a configuration's keys and values.", _AGAIN)
