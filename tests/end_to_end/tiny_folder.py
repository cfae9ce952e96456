"""A checkpoint folder as people download them, small enough to train in seconds: a Llama with a byte-level tokenizer."""

from __future__ import annotations

import shutil
import tempfile
from functools import cache
from pathlib import Path

import torch


def write_tiny_checkpoint(folder: Path) -> Path:
    shutil.copytree(_made().name, folder, dirs_exist_ok=True)
    return folder


@cache
def _made() -> tempfile.TemporaryDirectory[str]:
    """The folder that all are copies of, removed when the process ends."""
    folder = tempfile.TemporaryDirectory(prefix="keepworth-tiny-")
    _write(Path(folder.name))
    return folder


def _write(folder: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<|end|>": 0, **{letter: index + 1 for index, letter in enumerate(alphabet)}}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>").save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(vocabulary), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=2048, initializer_range=0.1, tie_word_embeddings=True,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
