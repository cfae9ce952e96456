"""Tiny checkpoint folders of many families, from the classes of transformers and random weights: nothing is fetched."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

SHAPE = {
    "vocab_size": 256,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
"""Weights larger than a network begins with, so that a difference shows. One token is one byte."""


@dataclass(frozen=True, slots=True)
class Family:
    """A row of checkpoints.json.

    models: what people know it as. config: the class in transformers, without "Config". settings: beside `SHAPE`; without: what
    of `SHAPE` the class does not take."""

    models: str
    config: str
    settings: dict[str, Any] = field(default_factory=dict)
    without: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        shown = {key: value for key, value in self.settings.items() if key in _SHOWN}
        return f"{self.config}{shown or ''}"


_SHOWN = ("sliding_window", "alibi", "logit_scale", "logits_scaling")

_ROWS = json.loads((Path(__file__).parent / "checkpoints.json").read_text(encoding="utf-8"))
FAMILIES = tuple(Family(**row) for row in _ROWS)


def write_checkpoint(folder: Path, config: str, without: Sequence[str] = (), **settings: Any) -> str:
    """Makes the folder, with `config.json`, random weights and a tokenizer of bytes; returns the name of the network's class."""
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    torch.manual_seed(0)
    configuration = getattr(transformers, f"{config}Config")(
        **{name: value for name, value in {**SHAPE, **settings}.items() if name not in without}
    )
    network = transformers.AutoModelForCausalLM.from_config(configuration)
    with torch.no_grad():  # sinks and the like start at zero, where leaving them out would not show
        for parameter in network.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
    network.save_pretrained(folder)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    return type(network).__name__
