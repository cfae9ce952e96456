"""What of a network is trained: a low-rank adapter beside linear layers, or all weights; embeddings where that is asked for."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from keepworth.episodes.needs import needs_llm

import torch

from keepworth.episodes.errors import UnknownName
from keepworth.models.errors import UnsupportedModel
from keepworth.models.files import BASE_RECORD, record_of, repository_of
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
    """Put a LoRA adapter (Hu et al., arXiv 2106.09685) on linear layers, never on the head; returns what to train.

    The adapter starts as the identity (B = 0). It keeps the model's dtype: the learner holds float32 master weights.
    Sampling, scoring and training all run it unmerged, so that they compute the same thing. Experts of a network that keeps
    them in one tensor get one where PEFT knows how.
    targets: see `lora_layers`. embeddings: whole copies of the embeddings and the head are trained as well, and saved with the
    adapter (PEFT's `modules_to_save`); what is tied stays tied. Raises UnknownName, and UnsupportedModel for a quantised base
    and where no layer gets an adapter.
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
    """Layers that count as linear and that an adapter does not fit: routers give back more than a product."""
    linear = [(name, layer) for name, layer in network.named_modules() if isinstance(layer, torch.nn.Linear)]
    routers = {name.rsplit(".", 1)[-1] for name, layer in linear if type(layer).__name__.endswith("Router")}
    return sorted(routers) or None


def _require_plain(model: InProcessModel) -> None:
    """What is trained over quantised weights fits those: merged into the weights they were made from, it is another model."""
    if getattr(model.network.config, "quantization_config", None) is not None:
        raise UnsupportedModel(
            f"{model.name} is quantised, and training over quantised weights is not offered.",
            "Name the checkpoint that it was made from, in bfloat16 or float32.",
        )


def lora_layers(model: InProcessModel, targets: str | Sequence[str]) -> str | list[str]:
    """What of the network gets an adapter, as PEFT takes it.

    targets: "all-linear", "attention" (what lies in a module whose name has "attn" or "attention" in it), or the ends of module
    names, such as `q_proj` or `layers.0.mlp.up_proj`. Raises UnknownName, with the ends there are, for one that no linear layer
    has."""
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
    """Whether embeddings and head are one and the same weights."""
    into, out = model.network.get_input_embeddings(), model.network.get_output_embeddings()
    return into.weight is out.weight


def unfreeze(model: InProcessModel, *, embeddings: bool = False) -> Named:
    """Train every weight; without `embeddings` all but the input embeddings and the head, tied or not: they are large and hardly
    move in RL. Raises UnsupportedModel for a quantised model."""
    _require_plain(model)
    ends = () if embeddings else (model.network.get_input_embeddings(), model.network.get_output_embeddings())
    frozen = {id(parameter) for module in ends for parameter in module.parameters()}
    for parameter in model.network.parameters():
        parameter.requires_grad_(id(parameter) not in frozen)
    return {name: value for name, value in model.network.named_parameters() if value.requires_grad}


def save_trained(model: InProcessModel, named: Named, folder: Path) -> None:
    """Write what was trained, as other programs load it: a PEFT adapter folder where there is an adapter, else a whole
    checkpoint folder (config, every tensor, tokenizer). `base.json` beside it says which weights training began from.

    named: what is trained."""
    folder.mkdir(parents=True, exist_ok=True)
    if hasattr(model.network, "peft_config"):
        # PEFT would name the folder that the base was loaded from, which nobody else has.
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
    """Write config.json, generation_config.json and every tensor, in the type of number that it has."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # transformers reads an attribute that it is renaming itself
        network.save_pretrained(folder)


def copy_texts(source: Path, folder: Path, but: Collection[str] = ()) -> None:
    """Copy what a checkpoint folder holds beside its weights (tokenizer, chat template, settings), where it is not there yet.

    but: names that are left out. Where the files once were is left out of them too."""
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
"""Endings of what a checkpoint folder holds beside its weights: the tokenizer's files, a chat template, settings."""
_RECORDS = ("keepworth.json", "export.json", "probe.json", "step.json", BASE_RECORD)
"""Ours, about the folder that they are in; and an index of shards is of the weights that were saved with it."""
_INDEX = "model.safetensors.index.json"
_WITH_PLACES, _PLACES = ("config.json", "tokenizer_config.json"), {"_name_or_path", "name_or_path"}


def merge_network(model: InProcessModel) -> Any:
    """The network with its adapter added to its weights, in their own type of number; `model` is used up. Without an adapter,
    the network as it is."""
    return model.network.merge_and_unload() if hasattr(model.network, "peft_config") else model.network


def _base(model: InProcessModel) -> dict[str, Any]:
    """Read once: sums of large files take seconds."""
    if model.base is None:
        model.base = record_of(model.name, model.folder)
    return model.base


def load_trained(model: InProcessModel, folder: Path) -> None:
    """Put what `save_trained` wrote into a freshly loaded model (which gets an adapter if the folder holds one).

    Raises FileNotFoundError where the folder holds nothing of the kind, UnsupportedModel where it fits another network."""
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


def with_adapter(network: Any, folder: Path) -> Any:
    """A network of transformers with the adapter of a PEFT folder, in the network's own type of number."""
    from peft import PeftModel

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # as in `attach_lora`
        return PeftModel.from_pretrained(network, folder, autocast_adapter_dtype=False)
