"""What is computed rightly up to some length, what is no language model, and broken folders, which are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.models.checkpoints import SHAPE, write_checkpoint
from benchmarks.models.families import plain_network
from keepworth.base.model_errors import ContextOverflow, CorruptModel, IncompleteModel, UnsupportedModel
from keepworth.models import checkpoint
from keepworth.models.attention import tree
from keepworth.models.checkpoint import require_tree
from keepworth.models.inprocess import InProcessModel
from keepworth.models.text_side import TextSide
from keepworth.records import SamplingParams, StopReason, Task
from keepworth.worlds.agent import Completer
from keepworth.worlds.driver import Play, play
from keepworth.worlds.question import Question
from tests.models.comparing import plain_gaps
from tests.models.tiny import tiny_model


def saved(folder: Path, family: str, **settings: Any) -> Path:
    write_checkpoint(folder, family, **settings)
    return folder


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return saved(tmp_path / "llama", "Llama", tie_word_embeddings=False)


ROPE = {"rope_theta": 10000.0, "rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
LONGROPE = {"max_position_embeddings": 4096, "original_max_position_embeddings": 60, "rope_parameters": ROPE}
DYNAMIC = {
    "max_position_embeddings": 60,
    "rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0},
}
BOUNDED: list[tuple[str, dict[str, Any], int]] = [  # the config's class, its settings, tokens that are computed rightly
    ("Phi3", LONGROPE, 60),
    ("Llama", DYNAMIC, 60),
    ("Mistral", {"sliding_window": 40}, 256),
    ("Qwen2", {"use_sliding_window": True, "sliding_window": 40, "max_window_layers": 1}, 256),
    ("Qwen2", {"use_sliding_window": False, "sliding_window": 40, "max_window_layers": 1}, 256),
    ("Gemma3Text", {"sliding_window": 40}, 256),
]


@pytest.mark.parametrize(("family", "settings", "limit"), BOUNDED)
def test_length_dependent_layers_limit_the_context(tmp_path, family, settings, limit) -> None:
    """A window that slides, and rope whose frequencies follow the longest text of the batch: numbers must not depend on who
    shares the batch, and a context that is too long is that episode's end, not the run's."""
    folder = saved(tmp_path / "model", family, **settings)
    model, plain = InProcessModel.load(folder, precision="fp32"), plain_network(folder, "fp32")
    assert model.context_limit == limit
    long, short = tuple(range(3, 3 + limit - 12)), (9, 8, 7)
    branches = [[(5,) * 12, (6, 7)], [(4,) * 9]]
    assert plain_gaps(plain, [long, short], branches, model.score([long, short], branches)).max() <= 1e-4
    # Members that end early leave columns behind that are nobody's: they are no part of any text.
    drawn = model.sample([long, short], SamplingParams(12, n=8, seed=1, stop_ids=frozenset(range(128))))
    some = [[own[0], max(own, key=lambda sample: len(sample.ids))] for own in drawn]
    ids, logprobs = ([[getattr(each, name) for each in own] for own in some] for name in ("ids", "logprobs"))
    assert plain_gaps(plain, [long, short], ids, logprobs).max() <= 1e-4
    with pytest.raises(ContextOverflow, match=rf"past the {limit} that"):
        model.score([long, short], [[(5,) * 13], [()]])
    with pytest.raises(ContextOverflow):
        model.tree_scores(tree([long], [[(5,) * 13]]))
    with pytest.raises(ContextOverflow):
        model.sample([long], SamplingParams(13))
    how = Play(lambda task: Question(), lambda task, memory: Completer("", after="", max_tokens=limit))
    (group,) = play(model, [Task("t/1", "t", "Where does Ana live?", ("Oslo",), "exact_match")], how, n=2)
    assert {episode.stop for episode in group.episodes} == {StopReason.CONTEXT_OVERFLOW}


def test_a_window_that_the_attention_does_not_hear_of_is_no_tree(llama, monkeypatch) -> None:
    monkeypatch.setattr(checkpoint, "window_of", lambda config: 7)
    with pytest.raises(UnsupportedModel, match="it sets sliding_window = 7, of which 0 of its 2 layers tell"):
        InProcessModel.load(llama, precision="fp32")


def test_network_with_extra_steps_after_its_head_is_detected(llama) -> None:
    before = torch.random.get_rng_state()
    model = InProcessModel.load(llama, precision="fp32")
    assert torch.equal(torch.random.get_rng_state(), before)
    assert model.network.config._attn_implementation == "keepworth_tree"
    forward = model.network.forward

    def scaled(**inputs: Any) -> Any:
        output = forward(**inputs)
        output.logits = 1.01 * output.logits
        return output

    model.network.forward = scaled
    with pytest.raises(UnsupportedModel, match=r"as a tree of branches: .* logits differ by"):
        require_tree(model, llama)
    assert model.network.config._attn_implementation == "keepworth_tree"


def test_a_tokenizer_of_another_model_is_named() -> None:
    model = tiny_model()
    model.network.config.vocab_size = 50
    with pytest.raises(IncompleteModel, match=r"tokenizer in some/folder does not fit"):
        require_tree(model, "some/folder")


def test_weights_cut_short_are_named(llama) -> None:
    weights = llama / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(CorruptModel, match=rf"weights in {llama} are cut short.*again"):
        InProcessModel.load(llama)


ENDLESS = '{"model_type": "qwen2", "num_hidden_layers": 1000000000}'


NESTED = '{"a":' * 100_000


@pytest.mark.parametrize("text", ["{", "[]", '{"model_type": "no such family"}', ENDLESS, NESTED])
def test_malformed_model_configuration_is_named(llama, text) -> None:
    (llama / "config.json").write_text(text)
    with pytest.raises(CorruptModel, match=rf"(?s){llama}/config.json .*again"):
        InProcessModel.load(llama)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("config.json", {"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}}),
        ("tokenizer_config.json", {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["own.Own", None]}}),
    ],
)
def test_a_folder_that_needs_its_own_code_is_refused_in_our_words(llama: Path, name: str, changes: Any) -> None:
    (llama / name).write_text(json.dumps({**json.loads((llama / name).read_text()), **changes}))
    (llama / "own.py").write_text("raise SystemExit('run')")
    with pytest.raises(UnsupportedModel, match=rf"auto_map in {name}") as refusal:
        InProcessModel.load(llama)
    assert "trust_remote_code" not in str(refusal.value)


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"_attn_implementation": "owner/kernel"}, UnsupportedModel, r"_attn_implementation 'owner/kernel'.*Remove"),
        ({"text_config": {"_attn_implementation": "a/b"}}, UnsupportedModel, r"code of the Hugging Face Hub.*Remove"),
        (
            {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}},
            UnsupportedModel,
            "plain weights",
        ),
        ({"architectures": 5}, CorruptModel, "again"),
        ({"head_dim": 0}, CorruptModel, "again"),
        ({"num_key_value_heads": 0}, CorruptModel, "again"),
        ({"hidden_act": "none such"}, CorruptModel, "none such.*again"),
        ({"output_attentions": True}, CorruptModel, "again"),
    ],
)
def test_a_configuration_that_no_network_can_be_made_of_is_refused(llama, changes, error, says) -> None:
    file = llama / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    with pytest.raises(error, match=rf"(?s){llama}.*{says}"):
        InProcessModel.load(llama)


@pytest.mark.parametrize("changes", [{"model_max_length": "many"}, {"eos_token": 5}, {"added_tokens_decoder": 5}])
def test_settings_of_a_tokenizer_that_cannot_be_read_are_named(llama, changes) -> None:
    file = llama / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    for load in (InProcessModel.load, TextSide.load):
        with pytest.raises(CorruptModel, match=rf"tokenizer in {llama} cannot be read"):
            load(llama)


def test_a_generation_config_that_cannot_be_read_is_named(llama) -> None:
    (llama / "generation_config.json").write_text("[]")
    for load in (InProcessModel.load, TextSide.load):
        with pytest.raises(CorruptModel, match=rf"in {llama} cannot be"):
            load(llama)


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
