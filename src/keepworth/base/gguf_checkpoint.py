"""Converts the GGUF file of the catalogue's language model to a plain checkpoint folder that transformers loads offline.

The file is pinned by its hash: a llama with a byte-level vocabulary. Loading it through transformers takes a minute, rounds its
epsilon and marks the model as quantised, so that it refuses to be saved. So the tensors are de-quantised once, here, and the
tokenizer is built from the vocabulary and the merges in the file.

Weights are stored as bfloat16, the type the model was published in: every compute dtype then starts from the same numbers.
Against the unrounded de-quantised weights this moves next-token distributions by about 1e-4 nats (KL), far below the effect of
the four-bit quantisation itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

# The parts of a llama block, as GGUF names them and as transformers does.
_BLOCK_PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_TOP_PARTS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}

_CONTROL = 3
"""GGUF's token type (gguf.TokenType) of special tokens."""


def write_checkpoint(gguf: Path, folder: Path) -> None:
    """Writes config.json, generation_config.json, model.safetensors (bf16) and the tokenizer's files into `folder`."""
    from gguf import GGUFReader

    reader = GGUFReader(str(gguf))
    fields = {name: field.contents() for name, field in reader.fields.items()}
    config = configuration(fields)
    _write_json(folder / "config.json", config)
    ends = {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    _write_json(folder / "generation_config.json", ends)
    _write_weights(reader.tensors, config, folder / "model.safetensors")
    write_tokenizer(fields, folder)


def configuration(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the `config.json` of a LlamaForCausalLM, from the metadata of a GGUF file."""
    hidden = fields["llama.embedding_length"]
    heads = fields["llama.attention.head_count"]
    theta = float(fields["llama.rope.freq_base"])
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(fields["tokenizer.ggml.tokens"]),
        "hidden_size": hidden,
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "head_dim": fields["llama.rope.dimension_count"],
        "max_position_embeddings": fields["llama.context_length"],
        # The metadata is a float32; nine digits round it back to the decimal that was meant.
        "rms_norm_eps": float(f"{fields['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        "rope_theta": theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "pad_token_id": fields["tokenizer.ggml.padding_token_id"],
        "dtype": "bfloat16",
    }


def _write_weights(tensors: Any, config: Mapping[str, Any], path: Path) -> None:
    import torch
    from gguf import dequantize
    from safetensors.torch import save_file

    state: dict[str, torch.Tensor] = {}
    for tensor in tensors:
        values = dequantize(tensor.data, tensor.tensor_type)
        part = tensor.name.split(".")[-2]
        if part == "attn_q":
            values = _unpermuted(values, config["num_attention_heads"])
        elif part == "attn_k":
            values = _unpermuted(values, config["num_key_value_heads"])
        state[transformers_name(tensor.name)] = torch.tensor(values).to(torch.bfloat16)
    save_file(state, str(path), metadata={"format": "pt"})
    path.chmod(0o644)  # safetensors leaves 0600, which would shut others out of a shared cache


def transformers_name(gguf_name: str) -> str:
    """Converts a tensor's name: `blk.3.attn_q.weight` -> `model.layers.3.self_attn.q_proj.weight`."""
    match gguf_name.split("."):
        case ["blk", layer, part, kind]:
            return f"model.layers.{layer}.{_BLOCK_PARTS[part]}.{kind}"
        case [part, kind]:
            return f"{_TOP_PARTS[part]}.{kind}"
    raise KeyError(gguf_name)


def _unpermuted(weight: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """Undoes the interleaving of rotary pairs: GGUF has (x0, y0, x1, y1 ...) per head, transformers (x0, x1 ... y0, y1 ...)."""
    rows, columns = weight.shape
    halves: npt.NDArray[np.float32] = weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2)
    return halves.reshape(rows, columns)


def write_tokenizer(fields: Mapping[str, Any], folder: Path) -> None:
    """Writes tokenizer.json, tokenizer_config.json and chat_template.jinja."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=merges))
    by_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), by_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    for token, token_type in zip(tokens, fields["tokenizer.ggml.token_type"], strict=True):
        if token_type == _CONTROL:
            tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False)])
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"bos": "bos", "eos": "eos", "pad": "padding", "unk": "unknown"}
    special = {f"{short}_token": tokens[fields[f"tokenizer.ggml.{long}_token_id"]] for short, long in names.items()}
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": fields["llama.context_length"],
            "clean_up_tokenization_spaces": False,
            **special,
        },
    )
    (folder / "chat_template.jinja").write_text(fields["tokenizer.chat_template"], encoding="utf-8")


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
