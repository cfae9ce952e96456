"""A Llama small enough to compute everything twice, with a tokenizer made of bytes."""

from __future__ import annotations

from typing import Any

import torch

from keepworth.models import attention
from keepworth.models.inprocess import DTYPES, InProcessModel, Precision


class ByteTokenizer:
    """Ids 0..255 are bytes, 256 ends the text: enough of a tokenizer for the engine."""

    all_special_ids = (256,)

    def __call__(self, text: str, add_special_tokens: bool = False) -> dict[str, list[int]]:
        return {"input_ids": list(text.encode())}

    def decode(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        return bytes(i for i in ids if i < 256).decode(errors="replace")

    def batch_decode(self, batch: list[list[int]]) -> list[str]:
        return [self.decode(ids) for ids in batch]


def tiny_network(
    seed: int = 0, attn: str | None = None, precision: Precision = "fp32", hidden: int = 64, tied: bool = True
) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=257,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.2,
        tie_word_embeddings=tied,
        attn_implementation=attn or attention.register(),
    )
    network = LlamaForCausalLM(config)
    if precision == "fp64":  # the stock norm works in float32 whatever it is given, which would hide exactness
        for layer in network.model.layers:
            layer.input_layernorm, layer.post_attention_layernorm = (torch.nn.RMSNorm(hidden) for _ in range(2))
        network.model.norm = torch.nn.RMSNorm(hidden)
    return network.to(DTYPES[precision]).eval().requires_grad_(False)


def tiny_model(seed: int = 0, precision: Precision = "fp32", hidden: int = 64, tied: bool = True) -> InProcessModel:
    return InProcessModel(tiny_network(seed, precision=precision, hidden=hidden, tied=tied), ByteTokenizer(), "tiny")
