"""What of a network is trained: a low-rank adapter beside every linear layer, or all weights but the embeddings."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from recollect.models.inprocess import InProcessModel
from recollect.models.lora import fuse

Named = dict[str, torch.nn.Parameter]


def attach_lora(model: InProcessModel, rank: int = 16, alpha: float = 32.0, seed: int = 0) -> Named:
    """Put a LoRA adapter (Hu et al., arXiv 2106.09685) on every linear layer but the head; returns what to train.

    The adapter starts as the identity (B = 0). It keeps the model's dtype: the learner holds float32 masters.
    Sampling, scoring and training all run it unmerged, so that they compute the same thing.
    """
    from peft import LoraConfig, get_peft_model

    if hasattr(model.network, "peft_config"):
        raise ValueError(f"{model.name} already has an adapter; load the model again for a second one")
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        settings = LoraConfig(
            r=rank, lora_alpha=alpha, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"
        )
        with warnings.catch_warnings():
            # peft reads an attribute that transformers is renaming; nothing a user could do about it.
            warnings.simplefilter("ignore", FutureWarning)
            model.network = get_peft_model(model.network, settings, autocast_adapter_dtype=False)
    fuse(model.network)
    model.network.eval()
    return {name: value for name, value in model.network.named_parameters() if value.requires_grad}


def unfreeze(model: InProcessModel) -> Named:
    """Train every weight except the embeddings (and a head tied to them): they are large and hardly move in RL."""
    frozen = {id(p) for p in model.network.get_input_embeddings().parameters()}
    frozen |= {id(p) for p in model.network.get_output_embeddings().parameters()}
    for parameter in model.network.parameters():
        parameter.requires_grad_(id(parameter) not in frozen)
    return {name: value for name, value in model.network.named_parameters() if value.requires_grad}


def save_trained(model: InProcessModel, named: Named, folder: Path) -> None:
    """A PEFT adapter folder where there is an adapter, so that other engines can load it; else the trained tensors."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    if hasattr(model.network, "peft_config"):
        model.network.save_pretrained(folder, selected_adapters=[model.network.active_adapter])
    else:
        save_file({name: value.detach().contiguous() for name, value in named.items()}, folder / "weights.safetensors")


def load_trained(model: InProcessModel, folder: Path) -> None:
    """Put what `save_trained` wrote into a freshly loaded model (which gets an adapter if the folder holds one)."""
    from safetensors.torch import load_file

    if (folder / "adapter_config.json").exists():
        from peft import PeftModel

        model.network = PeftModel.from_pretrained(model.network, folder, autocast_adapter_dtype=False)
        fuse(model.network)
        model.network.eval()
        model.network.requires_grad_(False)
        return
    path = folder / "weights.safetensors"
    if not path.exists():
        raise FileNotFoundError(f"{folder} holds neither adapter_config.json nor weights.safetensors: not a checkpoint")
    own: dict[str, Any] = dict(model.network.named_parameters())
    with torch.no_grad():
        for name, value in load_file(path).items():
            own[name].copy_(value)


TrainableChoice = Callable[[InProcessModel], Named]
