"""What both sides are given: a tiny checkpoint, fixed prompts and completions, a reward that is a function of ids."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

WORDS = 64
PAD, END = 0, 1
GROUP, PROMPTS, LONGEST = 4, 2, 8


@dataclass(frozen=True, slots=True)
class Case:
    """One objective: ours (a preset and changes to it) and TRL's settings for the same formula. passes: optimiser steps
    on each batch, so that from the second on the ratio is not 1 and the clip acts. rate: of SGD."""

    name: str
    preset: str
    changes: dict[str, Any]
    theirs: dict[str, Any]
    passes: int = 2
    rate: float = 0.02


CLIP = {"surrogate": "Clip(0.01, 0.02)"}  # narrow, so that it acts after one step
THEIR_CLIP = {"epsilon": 0.01, "epsilon_high": 0.02}
EPSILON = {"advantage": "Outcome(group, GroupStd(1e-4))"}  # TRL's; ours is 1e-6
NO_KL = {"kl": None}
CASES = (
    Case("grpo", "grpo", {**NO_KL, **CLIP, **EPSILON}, {"loss_type": "grpo", "beta": 0.0, **THEIR_CLIP}),
    Case(
        "grpo with KL, k3",
        "grpo",
        {"kl": "KlLoss(k3, 0.1)", **CLIP, **EPSILON},
        {"loss_type": "grpo", "beta": 0.1, "use_bias_correction_kl": False, **THEIR_CLIP},
        rate=0.01,
    ),
    Case(
        "grpo with KL, r k3",
        "grpo",
        {"kl": "KlLoss(ratio_k3, 0.1)", **CLIP, **EPSILON},
        {"loss_type": "grpo", "beta": 0.1, **THEIR_CLIP},  # the ratio is TRL's default
        rate=0.01,
    ),
    Case(
        "dr_grpo",
        "dr_grpo",
        {"length_budget": LONGEST, **CLIP},
        {"loss_type": "dr_grpo", "beta": 0.0, "scale_rewards": "none", **THEIR_CLIP},
    ),
    Case(
        "dapo's loss",
        "dapo",
        {"overlong": None, "group_filter": None, **CLIP, **EPSILON},
        {"loss_type": "dapo", "beta": 0.0, **THEIR_CLIP},
    ),
    Case(
        "lite_ppo",
        "lite_ppo",
        {**CLIP, "advantage": "Outcome(group, BatchStd(1e-4))"},
        {"loss_type": "dapo", "beta": 0.0, "scale_rewards": "batch", **THEIR_CLIP},
    ),
    Case(
        "gspo",
        "gspo",
        {"surrogate": "Clip(3e-4, 4e-4)", **EPSILON},
        {
            "loss_type": "grpo",
            "beta": 0.0,
            "importance_sampling_level": "sequence",
            "epsilon": 3e-4,
            "epsilon_high": 4e-4,
        },
    ),
    Case(
        "cispo",
        "cispo",
        {"surrogate": "Cispo(1.0, 0.02)", **EPSILON},
        {"loss_type": "cispo", "beta": 0.0, "epsilon_high": 1.02},
    ),
)


@dataclass(frozen=True, slots=True)
class Work:
    """folder: the checkpoint. batches: per generation, PROMPTS prompts and GROUP completions each, as ids."""

    folder: str
    prompts: list[list[int]]
    batches: list[list[list[list[int]]]]
    case: dict[str, Any]
    output: str

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: str) -> Work:
        return cls(**json.loads(Path(path).read_text()))


def reward(ids: list[int]) -> float:
    """Differs between completions, and is the same on both sides."""
    return (sum((place + 1) * token for place, token in enumerate(ids)) % 17) / 17


def text_of(ids: list[int]) -> str:
    return " ".join(f"w{identifier}" for identifier in ids)


def save_checkpoint(folder: Path, seed: int = 0) -> None:
    """A Llama of two layers with a tokenizer of 64 words: text and ids are one thing, so nothing is lost between them."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=WORDS,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        initializer_range=0.3,
        tie_word_embeddings=True,
        pad_token_id=PAD,
        eos_token_id=END,
        bos_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer = Tokenizer(WordLevel({f"w{index}": index for index in range(WORDS)}, unk_token="w2"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="w0", eos_token="w1", unk_token="w2").save_pretrained(
        folder
    )
