"""From a GGUF file of a llama-architecture model to a plain checkpoint folder that transformers loads offline.

Loading a GGUF through transformers takes many seconds each time and marks the model as quantised, so that it refuses to be
saved. So the tensors are de-quantised once, here, and the tokenizer is built from the vocabulary, the merges and the name of the
pre-tokenizer that the file carries.

Weights are stored as bfloat16, the type the model was published in: every compute dtype then starts from the same numbers.
Against the unrounded de-quantised weights this moves next-token distributions by about 1e-4 nats (KL), far below what the
four-bit quantisation itself did.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keepworth.models.errors import CorruptModel

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
_TOP_PARTS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}

# GGUF's token_type values (gguf.TokenType): control tokens are special, user-defined ones are matched whole but shown.
_CONTROL, _USER_DEFINED = 3, 4

# Pre-tokenizer names whose meaning is "every digit alone, then the GPT-2 byte-level expression".
_DIGITS_THEN_BYTES = frozenset({"smollm", "starcoder", "refact", "command-r"})
_BYTES = frozenset({"gpt-2", "default"})


def write_checkpoint(gguf: Path, folder: Path) -> None:
    """Write config.json, generation_config.json, model.safetensors (bf16) and the tokenizer's files into `folder`.

    Raises CorruptModel where the file is no llama-architecture GGUF with a byte-level BPE vocabulary.
    """
    from gguf import GGUFReader

    try:
        reader = GGUFReader(str(gguf))
        fields = {name: field.contents() for name, field in reader.fields.items()}
    except (ValueError, IndexError, KeyError, OSError) as error:
        raise CorruptModel(f"{gguf} cannot be read as GGUF: {error}") from error
    architecture = fields.get("general.architecture")
    if architecture != "llama":
        raise CorruptModel(f"{gguf} holds the architecture {architecture!r}; only 'llama' can be converted")
    config = configuration(fields, tied=all(tensor.name != "output.weight" for tensor in reader.tensors))
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", _generation(config))
    _write_weights(reader.tensors, config, folder / "model.safetensors")
    write_tokenizer(fields, folder)


def configuration(fields: Mapping[str, Any], *, tied: bool) -> dict[str, Any]:
    """The `config.json` of a LlamaForCausalLM, from the metadata of a GGUF file."""
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
        "num_key_value_heads": fields.get("llama.attention.head_count_kv", heads),
        "head_dim": fields.get("llama.rope.dimension_count", hidden // heads),
        "max_position_embeddings": fields["llama.context_length"],
        # The metadata is a float32; nine digits round it back to the decimal that was meant.
        "rms_norm_eps": float(f"{fields['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        "rope_theta": theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "pad_token_id": fields.get("tokenizer.ggml.padding_token_id", fields["tokenizer.ggml.eos_token_id"]),
        "dtype": "bfloat16",
    }


def _generation(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}


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
    """`blk.3.attn_q.weight` -> `model.layers.3.self_attn.q_proj.weight`. Raises CorruptModel for a tensor of no llama."""
    pieces = gguf_name.split(".")
    if len(pieces) == 4 and pieces[0] == "blk" and pieces[2] in _BLOCK_PARTS:
        return f"model.layers.{pieces[1]}.{_BLOCK_PARTS[pieces[2]]}.{pieces[3]}"
    if len(pieces) == 2 and pieces[0] in _TOP_PARTS:
        return f"{_TOP_PARTS[pieces[0]]}.{pieces[1]}"
    raise CorruptModel(f"the GGUF holds a tensor {gguf_name!r} that no llama checkpoint has")


def _unpermuted(weight: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """Undo the interleaving of rotary pairs: GGUF keeps (x0, y0, x1, y1 ...) per head, transformers (x0, x1 ... y0, y1 ...)."""
    rows, columns = weight.shape
    halves: npt.NDArray[np.float32] = weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2)
    return halves.reshape(rows, columns)


def write_tokenizer(fields: Mapping[str, Any], folder: Path) -> None:
    """tokenizer.json, tokenizer_config.json and, where the file carries one, chat_template.jinja."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    kind, splitter = fields.get("tokenizer.ggml.model"), fields.get("tokenizer.ggml.pre", "default")
    if kind != "gpt2" or splitter not in _DIGITS_THEN_BYTES | _BYTES:
        raise CorruptModel(f"the GGUF's tokenizer ({kind!r}, split by {splitter!r}) is not one that can be converted")
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=merges))
    by_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.pre_tokenizer = (
        pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), by_bytes])
        if splitter in _DIGITS_THEN_BYTES
        else by_bytes
    )
    tokenizer.decoder = decoders.ByteLevel()
    for token, token_type in zip(tokens, fields["tokenizer.ggml.token_type"], strict=True):
        if token_type == _CONTROL:
            tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False)])
        elif token_type == _USER_DEFINED:
            tokenizer.add_tokens([AddedToken(token, normalized=False)])
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"bos": "bos", "eos": "eos", "pad": "padding", "unk": "unknown"}
    ids = {short: fields.get(f"tokenizer.ggml.{long}_token_id") for short, long in names.items()}
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": fields["llama.context_length"],
            "clean_up_tokenization_spaces": False,
            **{f"{short}_token": tokens[index] for short, index in ids.items() if index is not None},
        },
    )
    template = fields.get("tokenizer.chat_template")
    if template:
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
