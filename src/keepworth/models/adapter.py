"""The trained part of a network: a low-rank adapter of linear layers, or all weights; embeddings on request."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from keepworth.base.needs import needs_llm

import torch

from keepworth.base.errors import UnknownName
from keepworth.base.model_errors import UnsupportedModel
from keepworth.base.model_files import BASE_RECORD, record_of, repository_of
from keepworth.models.fused_adapter import fuse
from keepworth.models.inprocess import InProcessModel

Named = dict[str, torch.nn.Parameter]


def attach_lora(
    model: InProcessModel,
    rank: int = 16,
    alpha: float = 32.0,
    seed: int = 0,
    *,
    targets: str | Sequence[str] = "all-linear",
    embeddings: bool = False,
) -> Named:
    """Adds a LoRA adapter (Hu et al., arXiv 2106.09685) to linear layers, never to the head, and returns the tensors to train.

    The adapter starts as the identity (B = 0). It keeps the model's dtype: the learner holds float32 master weights. Sampling,
    scoring and training all run it unmerged, so that they compute the same thing. Experts of a network that keeps them in one
    tensor get an adapter where PEFT supports it.

    Args:
        model: The model, whose network is changed.
        rank: The rank of the two matrices of each layer.
        alpha: Their product is multiplied by alpha / rank.
        seed: The seed of the first matrices.
        targets: See `lora_layers`.
        embeddings: Whether full copies of the embeddings and the head are trained as well, and saved with the adapter (PEFT's
            `modules_to_save`). Tied weights stay tied.

    Raises:
        UnknownName: No layer has such a name.
        UnsupportedModel: The base is quantised, or no layer gets an adapter.
    """
    from peft import LoraConfig, get_peft_model

    if hasattr(model.network, "peft_config"):
        raise ValueError(f"{model.name} already has an adapter; load the model again for a second one")
    _require_plain(model)
    whole = {"modules_to_save": _embedding_names(model), "ensure_weight_tying": is_tied(model)} if embeddings else {}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        settings = LoraConfig(
            r=rank,
            lora_alpha=alpha,
            lora_dropout=0.0,
            target_modules=lora_layers(model, targets),
            exclude_modules=_left_out(model.network) if targets == "all-linear" else None,
            task_type="CAUSAL_LM",
            **whole,
        )
        with warnings.catch_warnings():
            # peft reads an attribute that transformers is renaming; nothing a user could do about it.
            warnings.simplefilter("ignore", FutureWarning)
            try:
                model.network = get_peft_model(model.network, settings, autocast_adapter_dtype=False)
            except ValueError as error:
                raise UnsupportedModel(
                    f"{model.name} ({type(model.network).__name__}) gets no LoRA adapter: {error}",
                    "Train all weights.",
                ) from error
    fuse(model.network)
    model.network.eval()
    return {name: value for name, value in model.network.named_parameters() if value.requires_grad}


def _left_out(network: Any) -> list[str] | None:
    """Returns linear layers that an adapter does not fit: routers return more than a product."""
    linear = [(name, layer) for name, layer in network.named_modules() if isinstance(layer, torch.nn.Linear)]
    routers = {name.rsplit(".", 1)[-1] for name, layer in linear if type(layer).__name__.endswith("Router")}
    return sorted(routers) or None


def _require_plain(model: InProcessModel) -> None:
    """Raises UnsupportedModel for a quantised model, because what is trained over quantised weights does not fit the original
    ones."""
    if getattr(model.network.config, "quantization_config", None) is not None:
        raise UnsupportedModel(
            f"{model.name} is quantised, and training over quantised weights is not offered.",
            "Name the checkpoint that it was made from, in bfloat16 or float32.",
        )


def lora_layers(model: InProcessModel, targets: str | Sequence[str]) -> str | list[str]:
    """Returns the layers that get an adapter, as PEFT takes them. `targets` is "all-linear", "attention" (layers in a module
    whose name contains "attn" or "attention"), or the ends of module names, such as `q_proj` or `layers.0.mlp.up_proj`. Raises
    UnknownName, with the existing ends, for one that no linear layer has."""
    if targets == "all-linear":
        return "all-linear"
    from transformers.pytorch_utils import Conv1D

    head = model.network.get_output_embeddings()
    linear_layers = [
        name
        for name, module in model.network.named_modules()
        if isinstance(module, (torch.nn.Linear, Conv1D)) and module is not head
    ]
    ends = sorted({name.rsplit(".", 1)[-1] for name in linear_layers})
    where = f"linear layers of {model.name}"
    if targets == "attention":
        layers = [
            name for name in linear_layers if any("attn" in part or "attention" in part for part in name.split("."))
        ]
        if not layers:
            raise UnknownName("lora_targets", "attention", ends, where=where)
        return layers
    asked = [targets] if isinstance(targets, str) else list(targets)
    for end in asked:
        if not any(f".{name}".endswith(f".{end}") for name in linear_layers):
            raise UnknownName("lora_targets", end, ends, where=where)
    return asked


def _embedding_names(model: InProcessModel) -> list[str]:
    embedded = (model.network.get_input_embeddings(), model.network.get_output_embeddings())
    return [
        name for name, module in model.network.named_modules() if any(module is embedding for embedding in embedded)
    ]


def is_tied(model: InProcessModel) -> bool:
    """Whether embeddings and head share their weights."""
    into, out = model.network.get_input_embeddings(), model.network.get_output_embeddings()
    return into.weight is out.weight


def unfreeze(model: InProcessModel, *, embeddings: bool = False) -> Named:
    """Makes every weight trainable, and returns the tensors. Raises UnsupportedModel for a quantised model. Without `embeddings`,
    the input embeddings and the head stay frozen, tied or not: they are large and hardly move in RL."""
    _require_plain(model)
    ends = () if embeddings else (model.network.get_input_embeddings(), model.network.get_output_embeddings())
    frozen = {id(parameter) for module in ends for parameter in module.parameters()}
    for parameter in model.network.parameters():
        parameter.requires_grad_(id(parameter) not in frozen)
    return {name: value for name, value in model.network.named_parameters() if value.requires_grad}


def save_trained(model: InProcessModel, named: Named, folder: Path) -> None:
    """Writes the trained weights in a form that other programs load: a PEFT adapter folder where there is an adapter, else a
    whole checkpoint folder (config, every tensor, tokenizer). `base.json` next to it says which weights training began from.

    Args:
        model: The model that was trained.
        named: The trained parameters, by name.
        folder: Where they are written; it is made if it is not there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if hasattr(model.network, "peft_config"):
        # PEFT would name the folder that the base was loaded from, which exists only on this machine.
        settings = model.network.peft_config[model.network.active_adapter]
        settings.base_model_name_or_path = repository_of(model.name, model.folder)
        model.network.save_pretrained(
            folder,
            selected_adapters=[model.network.active_adapter],
            save_embedding_layers=False,  # else PEFT asks the Hub whether the base has other ones
        )
        (folder / "README.md").write_text(_card(_base(model)), encoding="utf-8")  # PEFT's names the folder as well
    else:
        save_network(model.network, folder)
        if model.folder is not None:
            copy_texts(model.folder, folder)
        elif hasattr(model.tokenizer, "save_pretrained"):
            model.tokenizer.save_pretrained(folder)
    (folder / BASE_RECORD).write_text(json.dumps(_base(model), indent=2) + "\n", encoding="utf-8")


def _card(base: dict[str, Any]) -> str:
    head = f"---\nbase_model: {base['repository']}\nlibrary_name: peft\n---\n\n"
    return f"{head}A LoRA adapter that keepworth trained on `{base['repository']}`.\n\n{base.get('note', '')}\n"


def save_network(network: Any, folder: Path) -> None:
    """Writes config.json, generation_config.json and every tensor, in its type of number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # transformers reads an attribute that it is renaming itself
        network.save_pretrained(folder)


def copy_texts(source: Path, folder: Path, but: Collection[str] = ()) -> None:
    """Copies a checkpoint folder's other files (tokenizer, chat template, settings) where they do not exist yet. Paths of the
    original files are removed from their content.

    Args:
        source: The folder of the original checkpoint.
        folder: The folder that gets the copies.
        but: The names of further files that are left out.
    """
    for path in sorted(source.iterdir()):
        there = folder / path.name
        if not path.is_file() or path.suffix not in _TEXTS or path.name in (*_RECORDS, _INDEX, *but) or there.exists():
            continue
        shutil.copyfile(path, there)
        if path.name in _WITH_PLACES:
            settings = json.loads(path.read_text(encoding="utf-8"))
            if _PLACES & settings.keys():
                portable = {key: value for key, value in settings.items() if key not in _PLACES}
                there.write_text(json.dumps(portable, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


_TEXTS = (".json", ".txt", ".jinja", ".model", ".py")
"""Suffixes of a checkpoint folder's files besides weights: the tokenizer's, a chat template, settings."""
_RECORDS = ("keepworth.json", "export.json", "probe.json", "step.json", BASE_RECORD)
"""Records of keepworth about their own folder. They are not copied, nor is an index of shards, which belongs to its weights."""
_INDEX = "model.safetensors.index.json"
_WITH_PLACES, _PLACES = ("config.json", "tokenizer_config.json"), {"_name_or_path", "name_or_path"}


def merge_network(model: InProcessModel) -> Any:
    """Merges the adapter into the network's weights, in their own type of number, and returns the network. `model` must not be
    used afterwards. A network without an adapter is returned unchanged."""
    return model.network.merge_and_unload() if hasattr(model.network, "peft_config") else model.network


def _base(model: InProcessModel) -> dict[str, Any]:
    """Returns the record of the base, which is computed once because hashes of large files take seconds."""
    if model.base is None:
        model.base = record_of(model.name, model.folder)
    return model.base


def load_trained(model: InProcessModel, folder: Path) -> None:
    """Loads what `save_trained` wrote into a newly loaded model (which gets an adapter if the folder holds one). Raises
    FileNotFoundError where the folder holds no weights, UnsupportedModel where they fit another network."""
    from safetensors.torch import load_file

    if (folder / "adapter_config.json").exists():
        model.network = with_adapter(model.network, folder)
        fuse(model.network)
        model.network.eval()
        model.network.requires_grad_(False)
        return
    paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise FileNotFoundError(f"{folder} holds neither adapter_config.json nor safetensors: not a checkpoint")
    parameters: dict[str, Any] = dict(model.network.named_parameters())
    with torch.no_grad():
        for path in paths:
            for name, value in load_file(path).items():
                if name not in parameters or parameters[name].shape != value.shape:
                    raise UnsupportedModel(
                        f"{path} holds {name} of the shape {list(value.shape)}, which {model.name} has not.",
                        "Load it with the model that it was trained from.",
                    )
                parameters[name].copy_(value)


def copy_adapter(model: InProcessModel, folder: Path) -> None:
    """Copies the values of an adapter's folder into the model's adapter, which `attach_lora` has made. Raises UnsupportedModel
    where the two differ in rank, alpha or layers."""
    from peft import get_peft_model_state_dict, set_peft_model_state_dict
    from safetensors.torch import load_file

    there = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    here = model.network.peft_config[model.network.active_adapter]
    for setting, name in (("rank", "r"), ("alpha", "lora_alpha")):
        if there[name] != getattr(here, name):
            raise UnsupportedModel(
                f"The adapter in {folder} has {setting} = {there[name]:g}, and this one {getattr(here, name):g}.",
                f"Set {setting} = {there[name]:g}, or export that run and give its folder as the model.",
            )
    weights = load_file(folder / "adapter_model.safetensors")
    shapes = {name: value.shape for name, value in get_peft_model_state_dict(model.network).items()}
    if {name: value.shape for name, value in weights.items()} != shapes:
        raise UnsupportedModel(
            f"The adapter in {folder} is of other layers than this one.",
            "Set lora_targets and train_embeddings as they were, or export that run and give its folder as the model.",
        )
    set_peft_model_state_dict(model.network, weights)


def with_adapter(network: Any, folder: Path) -> Any:
    """Returns a network of transformers with the adapter of a PEFT folder, in the network's own type of number."""
    from peft import PeftModel

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # as in `attach_lora`
        return PeftModel.from_pretrained(network, folder, autocast_adapter_dtype=False)
