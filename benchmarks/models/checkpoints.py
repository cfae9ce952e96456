"""Tiny checkpoint folders of many families, from the classes of transformers and random weights: nothing is fetched."""

from __future__ import annotations

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
GPT2_SHAPE = {"n_head": 4, "n_embd": 32, "n_layer": 2, "n_positions": 256}
EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
MAMBA = {"mamba_d_state": 8, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_n_heads": 8, "mamba_d_head": 8}


@dataclass(frozen=True, slots=True)
class Family:
    """models: what people know it as. config: the class in transformers, without "Config". settings: beside `SHAPE`."""

    models: str
    config: str
    settings: dict[str, Any] = field(default_factory=dict)
    without: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        shown = {key: value for key, value in self.settings.items() if key in _SHOWN}
        return f"{self.config}{shown or ''}"


_SHOWN = ("sliding_window", "alibi", "logit_scale", "logits_scaling")

FAMILIES = (
    Family("Llama 2, 3; SmolLM 1, 2; TinyLlama; Yi", "Llama"),
    Family("SmolLM 3", "SmolLM3", {"num_hidden_layers": 4, "no_rope_layer_interval": 4}),
    Family("Qwen 2, 2.5", "Qwen2"),
    Family("Qwen 2 with a window", "Qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}),
    Family("Qwen 3", "Qwen3"),
    Family("Qwen 3 MoE", "Qwen3Moe", EXPERTS),
    Family("Mistral 7B 0.1", "Mistral", {"sliding_window": 8}),
    Family("Mistral 7B 0.2 and later; Nemo", "Mistral", {"sliding_window": None}),
    Family("Ministral", "Ministral", {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]}),
    Family("Mixtral", "Mixtral", EXPERTS),
    Family("Phi 1, 1.5, 2", "Phi"),
    Family("Phi 3, 3.5, 4 (mini)", "Phi3", {"sliding_window": 8}),
    Family("Gemma 1", "Gemma"),
    Family("Gemma 2", "Gemma2", {"sliding_window": 8, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}),
    Family("Gemma 3 (text)", "Gemma3Text", {"sliding_window": 8, "num_hidden_layers": 4, "sliding_window_pattern": 2}),
    Family(
        "Gemma 3n (text)",
        "Gemma3nText",
        {
            "sliding_window": 8,
            "num_hidden_layers": 4,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "num_kv_shared_layers": 2,
            "vocab_size_per_layer_input": 256,
            "hidden_size_per_layer_input": 8,
            "intermediate_size": [64] * 4,
            "activation_sparsity_pattern": [0.0] * 4,
            "laurel_rank": 4,
        },
    ),
    Family("OLMo", "Olmo"),
    Family("OLMo 2", "Olmo2"),
    Family("OLMo 3", "Olmo3", {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]}),
    Family("OLMoE", "Olmoe", EXPERTS),
    Family(
        "Granite 3",
        "Granite",
        {"logits_scaling": 8.0, "attention_multiplier": 0.3, "embedding_multiplier": 3.0, "residual_multiplier": 0.5},
    ),
    Family("Granite 3 MoE", "GraniteMoe", {**EXPERTS, "logits_scaling": 8.0}),
    Family(
        "Granite 4 (hybrid)",
        "GraniteMoeHybrid",
        {**EXPERTS, **MAMBA, "layer_types": ["mamba", "attention"], "shared_intermediate_size": 32},
    ),
    Family("StableLM", "StableLm"),
    Family("StarCoder 2", "Starcoder2", {"sliding_window": 8}),
    Family("GPT-NeoX, Pythia", "GPTNeoX"),
    Family("GPT-J", "GPTJ", {**GPT2_SHAPE, "rotary_dim": 4}),
    Family("GPT-Neo", "GPTNeo", {"attention_types": [[["global", "local"], 1]], "num_layers": 2, "window_size": 8}),
    Family("GPT-2", "GPT2", GPT2_SHAPE),
    Family("OPT", "OPT", {"ffn_dim": 64, "word_embed_proj_dim": 32}),
    Family("BLOOM", "Bloom", {"n_head": 4, "n_layer": 2}),
    Family("MPT", "Mpt", {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 256}),
    Family("Falcon", "Falcon", {"new_decoder_architecture": True, "num_kv_heads": 2}, ("head_dim",)),
    Family("Falcon (alibi)", "Falcon", {"alibi": True}, ("head_dim",)),
    Family("Cohere Command R", "Cohere", {"logit_scale": 0.0625}),
    Family(
        "Cohere Command R7B", "Cohere2", {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]}
    ),
    Family("EXAONE 4", "Exaone4", {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]}),
    Family("GLM 4", "Glm4"),
    Family("ERNIE 4.5", "Ernie4_5"),
    Family("Nemotron", "Nemotron"),
    Family("Apertus", "Apertus"),
    Family("Helium", "Helium"),
    Family("Hunyuan dense", "HunYuanDenseV1"),
    Family("Seed-OSS", "SeedOss"),
    Family(
        "MiniCPM 3",
        "MiniCPM3",
        {
            "num_key_value_heads": 4,
            "q_lora_rank": 8,
            "kv_lora_rank": 8,
            "qk_nope_head_dim": 8,
            "qk_rope_head_dim": 8,
            "v_head_dim": 8,
        },
    ),
    Family(
        "DeepSeek V2, V3",
        "DeepseekV3",
        {
            "q_lora_rank": 8,
            "kv_lora_rank": 8,
            "qk_nope_head_dim": 8,
            "qk_rope_head_dim": 8,
            "v_head_dim": 8,
            "n_routed_experts": 4,
            "n_group": 1,
            "topk_group": 1,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "first_k_dense_replace": 1,
            "num_key_value_heads": 4,
        },
    ),
    Family("gpt-oss", "GptOss", {**EXPERTS, "sliding_window": 8}),
    Family(
        "Llama 4 (text)",
        "Llama4Text",
        {**EXPERTS, "attention_chunk_size": 8, "intermediate_size_mlp": 64, "num_hidden_layers": 4, "floor_scale": 8},
    ),
    Family(
        "Qwen 3 Next",
        "Qwen3Next",
        {
            **EXPERTS,
            "shared_expert_intermediate_size": 32,
            "layer_types": ["linear_attention", "full_attention"],
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
        },
    ),
    Family(
        "Qwen 3.5 (text)",
        "Qwen3_5Text",
        {
            "layer_types": ["linear_attention", "full_attention"],
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
        },
    ),
    Family("LFM 2", "Lfm2", {"layer_types": ["conv", "full_attention"], "block_multiple_of": 8}),
    Family("Mamba", "Mamba", {"state_size": 8}),
    Family("Mamba 2", "Mamba2", {"state_size": 8, "num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 16}),
    Family("Falcon Mamba", "FalconMamba", {"state_size": 8}),
    Family("Falcon H1", "FalconH1", {**MAMBA, "mamba_d_ssm": 64, "mamba_n_groups": 2, "mamba_chunk_size": 16}),
    Family(
        "Bamba",
        "Bamba",
        {**MAMBA, "mamba_n_groups": 2, "mamba_chunk_size": 16, "attn_layer_indices": [1]},
    ),
    Family(
        "Jamba",
        "Jamba",
        {
            **EXPERTS,
            "mamba_d_state": 8,
            "mamba_dt_rank": 4,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "use_mamba_kernels": False,
        },
    ),
    Family(
        "Nemotron H",
        "NemotronH",
        {
            "layers_block_type": ["mamba", "attention"],
            "mamba_num_heads": 8,
            "mamba_head_dim": 8,
            "ssm_state_size": 8,
            "n_groups": 2,
            "chunk_size": 16,
        },
    ),
)


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
