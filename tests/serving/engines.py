"""A tiny model behind its server, and the same model in process to compare with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from keepworth.models.adapter import attach_lora, save_trained
from keepworth.models.http_engine import HttpModel
from keepworth.models.inprocess import InProcessModel
from tests.models.tiny import ByteTokenizer, tiny_model


class CountedTokenizer(ByteTokenizer):
    """A tokenizer that knows how many ids it has, as those of checkpoints do."""

    def __len__(self) -> int:
        return 257


def connect(url: str, **options: Any) -> HttpModel:
    options.setdefault("seconds", 20.0)
    options.setdefault("run", "tiny")
    return HttpModel.connect(url, CountedTokenizer(), **options)


def trained(folder: Path, size: float = 0.05, seed: int = 1) -> InProcessModel:
    """The tiny model with an adapter that was moved by `size`; the adapter is saved in `folder`."""
    model = tiny_model()
    named = attach_lora(model, rank=4, alpha=8.0)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in named.values():
            value.add_(size * torch.randn(value.shape, generator=generator))
    save_trained(model, named, folder)
    return model
