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


def tiny_network(seed: int = 0, attn: str = "", precision: Precision = "fp32", hidden: int = 64, **more: Any) -> Any:
    """family: the classes in transformers, a Llama where it is not given. more: settings of its configuration."""
    import transformers

    torch.manual_seed(seed)
    family, sizes = more.pop("family", "Llama"), {"hidden_size": hidden, "intermediate_size": 2 * hidden}
    shape = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 257, **sizes}
    usual: dict[str, Any] = {"max_position_embeddings": 512, "initializer_range": 0.2, "tie_word_embeddings": True}
    usual["attn_implementation"] = attn or attention.register()
    config = getattr(transformers, f"{family}Config")(**{**shape, **usual, **more})
    network = getattr(transformers, f"{family}ForCausalLM")(config)
    if precision == "fp64":  # the stock norm works in float32 whatever it is given, which would hide exactness
        for layer in network.model.layers:
            layer.input_layernorm, layer.post_attention_layernorm = (torch.nn.RMSNorm(hidden) for _ in range(2))
        network.model.norm = torch.nn.RMSNorm(hidden)
    return network.to(DTYPES[precision]).eval().requires_grad_(False)


def tiny_model(seed: int = 0, precision: Precision = "fp32", hidden: int = 64, tied: bool = True) -> InProcessModel:
    network = tiny_network(seed, precision=precision, hidden=hidden, tie_word_embeddings=tied)
    return InProcessModel(network, ByteTokenizer(), "tiny")
