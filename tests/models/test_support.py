"""Checkpoints of other families are refused or computed rightly, and broken folders are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from recollect.models.errors import CorruptModel, IncompleteModel, UnsupportedModel
from recollect.models.inprocess import InProcessModel
from recollect.models.support import require_agreement
from tests.models.tiny import tiny_model

PROMPT, BRANCHES = tuple(b"where does ana live?"), [tuple(b"in oslo"), tuple(b"in bergen, i think")]
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
PLAIN_GEMMA = {"final_logit_softcapping": None, "attn_logit_softcapping": None, "query_pre_attn_scalar": 20}
FAMILIES: list[tuple[str, dict[str, Any], str]] = [  # the config's class, its settings, the refusal ("" where it works)
    ("Llama", {}, ""),
    ("Qwen2", {}, ""),
    ("Qwen3", {}, ""),
    ("Gemma2", {}, "final_logit_softcapping = 30"),
    ("Gemma2", {**PLAIN_GEMMA, "attn_logit_softcapping": 5.0}, "attn_logit_softcapping = 5"),
    ("Gemma2", {**PLAIN_GEMMA, "sliding_window": 64}, ""),
    ("Granite", {"logits_scaling": 8.0}, "logits_scaling = 8"),
    ("Granite", {"attention_multiplier": 0.3, "embedding_multiplier": 3.0, "residual_multiplier": 0.5}, ""),
    ("Cohere", {}, "logit_scale = 0.0625"),
    ("Cohere", {"logit_scale": 1.0}, ""),
    ("Mistral", {"sliding_window": 64}, ""),
    ("Mistral", {"sliding_window": 16}, "window of 16"),
    ("Phi3", {}, ""),
    ("GPT2", {"n_head": 4, "n_embd": 32, "n_layer": 2, "n_positions": 256}, ""),
    ("GPTNeoX", {}, ""),
    ("Mamba", {"state_size": 4}, "layers other than attention"),
    ("Bloom", {"n_head": 4, "n_layer": 2}, "cannot be computed as a tree"),
    ("GptOss", {"num_local_experts": 2, "num_experts_per_tok": 1, "sliding_window": 64}, "s_aux|sinks"),
]


def saved(folder: Path, family: str, **settings: Any) -> Path:
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**{**SHAPE, **settings})
    network = transformers.AutoModelForCausalLM.from_config(config)
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
    return folder


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return saved(tmp_path / "llama", "Llama", tie_word_embeddings=False)


@pytest.mark.parametrize(("family", "settings", "refusal"), FAMILIES)
def test_a_family_is_computed_rightly_or_refused(tmp_path, family, settings, refusal) -> None:
    folder = saved(tmp_path / "model", family, **settings)
    if refusal:
        with pytest.raises(UnsupportedModel, match=refusal) as refused:
            InProcessModel.load(folder, precision="fp32")
        assert refused.value.mend
        return
    from transformers import AutoModelForCausalLM

    model = InProcessModel.load(folder, precision="fp32")
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    for branch, ours in zip(BRANCHES, model.score([PROMPT], [BRANCHES])[0], strict=True):
        with torch.inference_mode():
            logits = plain(input_ids=torch.tensor([PROMPT + branch])).logits[0, len(PROMPT) - 1 : -1]
        theirs = torch.log_softmax(logits, -1).gather(1, torch.tensor(branch)[:, None]).squeeze(1)
        assert (torch.tensor(ours) - theirs).abs().max() <= 1e-4


def test_a_text_longer_than_the_window_is_refused_and_branches_count_alone(tmp_path) -> None:
    model = InProcessModel.load(saved(tmp_path / "model", "Mistral", sliding_window=40), precision="fp32")
    (scores,) = model.score([PROMPT], [[(7,) * 18] * 3])  # more columns than the window, no branch deeper than it
    assert scores[0] == pytest.approx(scores[2], abs=1e-5)
    with pytest.raises(UnsupportedModel, match=r"window of 40 tokens and was given 50.*[Ss]horter memories"):
        model.score([PROMPT], [[(7,) * 30]])


def test_a_network_that_does_more_behind_its_head_is_noticed_and_nothing_is_drawn_or_left_changed(llama) -> None:
    before = torch.random.get_rng_state()
    model = InProcessModel.load(llama, precision="fp32")
    assert torch.equal(torch.random.get_rng_state(), before)
    assert model.network.config._attn_implementation == "recollect_tree"
    forward = model.network.forward

    def scaled(**inputs: Any) -> Any:
        output = forward(**inputs)
        output.logits = 1.01 * output.logits
        return output

    model.network.forward = scaled
    with pytest.raises(UnsupportedModel, match="logits that differ"):
        require_agreement(model, llama)
    assert model.network.config._attn_implementation == "recollect_tree"


def test_a_tokenizer_of_another_model_is_named() -> None:
    model = tiny_model()
    model.network.config.vocab_size = 50
    with pytest.raises(IncompleteModel, match=r"tokenizer in some/folder does not fit"):
        require_agreement(model, "some/folder")


def test_weights_cut_short_are_named(llama) -> None:
    weights = llama / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(CorruptModel, match=rf"weights in {llama} are cut short.*again"):
        InProcessModel.load(llama)


@pytest.mark.parametrize("text", ["{", "[]", '{"model_type": "no such family"}'])
def test_a_configuration_that_is_none_is_named(llama, text) -> None:
    (llama / "config.json").write_text(text)
    with pytest.raises(CorruptModel, match=rf"(?s){llama}/config.json .*again"):
        InProcessModel.load(llama)


def test_an_encoder_given_as_language_model_is_refused(llama, tmp_path) -> None:
    from transformers import BertConfig, BertModel

    settings = {key: SHAPE[key] for key in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")}
    BertModel(BertConfig(num_attention_heads=4, **settings)).save_pretrained(tmp_path / "bert")
    for file in llama.glob("tokenizer*"):
        (tmp_path / "bert" / file.name).write_bytes(file.read_bytes())
    with pytest.raises(UnsupportedModel, match=r"bert holds BertModel.*Llama"):
        InProcessModel.load(tmp_path / "bert")
    exported = tmp_path / "exported"
    exported.mkdir()
    (exported / "model.onnx").write_bytes(b"graph")
    with pytest.raises(IncompleteModel, match=r"exported has no config.json: it is no language model"):
        InProcessModel.load(exported)


def test_weights_that_lack_the_head_are_named(llama) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(llama / "model.safetensors")
    del weights["lm_head.weight"]
    save_file(weights, llama / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(IncompleteModel, match=r"lack 1 tensors of a language model, for example lm_head.weight"):
        InProcessModel.load(llama)


def test_weights_of_another_shape_are_named(llama) -> None:
    settings = json.loads((llama / "config.json").read_text())
    (llama / "config.json").write_text(json.dumps({**settings, "intermediate_size": 48}))
    with pytest.raises(CorruptModel, match=rf"weights in {llama} cannot be loaded"):
        InProcessModel.load(llama)
