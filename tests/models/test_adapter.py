"""What is trained starts as nothing, moves what it should, and comes back from disk as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.models.families import plain_scores
from keepworth.base.errors import UnknownName
from keepworth.base.model_errors import UnsupportedModel
from keepworth.base.model_files import sha256_of
from keepworth.models.adapter import attach_lora, is_tied, load_trained, save_trained, unfreeze
from keepworth.models.attention import tree
from keepworth.models.inprocess import InProcessModel
from keepworth.records import SamplingParams
from tests.models.test_support import saved
from tests.models.tiny import tiny_model

PROMPTS, BRANCHES = [tuple(b"who is it?")], [[tuple(b"ana"), tuple(b"bo")]]
WITH_EMBEDDINGS = [
    lambda model: attach_lora(model, rank=4, embeddings=True),
    lambda model: unfreeze(model, embeddings=True),
]


PLAIN = [
    lambda model: attach_lora(model, rank=4),
    lambda model: attach_lora(model, rank=4, targets=["q_proj", "mlp.up_proj"]),
    unfreeze,
]


def moved(named: dict[str, torch.nn.Parameter], size: float = 0.05) -> None:
    with torch.no_grad():
        for value in named.values():
            value.add_(size * torch.randn(value.shape, generator=torch.Generator().manual_seed(1)))


def test_fresh_adapter_is_the_identity_and_can_be_disabled() -> None:
    model = tiny_model(precision="fp64")
    before = model.score(PROMPTS, BRANCHES)
    named = attach_lora(model, rank=4, alpha=8.0)
    assert model.score(PROMPTS, BRANCHES) == before
    moved(named)
    assert model.score(PROMPTS, BRANCHES) != before
    with model.without_adapter():
        assert model.score(PROMPTS, BRANCHES) == before


def layers_with_adapter(targets: Any) -> set[str]:
    named = attach_lora(tiny_model(), rank=2, targets=targets)
    return {name.split(".lora_")[0].split(".layers.")[1] for name in named}


def test_an_adapter_is_put_where_it_is_asked_for() -> None:
    attention = {f"{layer}.self_attn.{part}_proj" for layer in (0, 1) for part in "qkvo"}
    mlp = {f"{layer}.mlp.{part}_proj" for layer in (0, 1) for part in ("gate", "up", "down")}
    assert layers_with_adapter("all-linear") == attention | mlp
    assert layers_with_adapter("attention") == attention
    assert layers_with_adapter("q_proj") == {"0.self_attn.q_proj", "1.self_attn.q_proj"}
    values = {"0.self_attn.v_proj", "1.self_attn.v_proj"}
    assert layers_with_adapter(["1.mlp.up_proj", "v_proj"]) == {"1.mlp.up_proj", *values}
    with pytest.raises(UnknownName, match=r"no lora_targets 'q_prj' in linear layers") as refused:
        layers_with_adapter(["v_proj", "q_prj"])
    assert "Did you mean 'q_proj'?" in refused.value.fix
    assert "down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj" in refused.value.fix
    with pytest.raises(UnknownName):
        layers_with_adapter("proj")


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("how", WITH_EMBEDDINGS)
def test_embeddings_and_head_learn_and_stay_tied(how: Any, tied: bool) -> None:
    model = tiny_model(precision="fp64", tied=tied)
    before = model.score(PROMPTS, BRANCHES)
    named = how(model)
    assert model.score(PROMPTS, BRANCHES) == before
    lp, _ = model.tree_scores(tree(PROMPTS, BRANCHES))
    lp.sum().backward()
    own = {name: value for name, value in named.items() if "embed" in name or "head" in name}
    assert len(own) == (1 if tied else 2)
    assert all(value.grad is not None and bool(value.grad.any()) for value in own.values())
    base = model._causal_model()
    into, out = base.get_input_embeddings().weight, base.get_output_embeddings().weight
    assert (into is out) == is_tied(tiny_model(tied=tied)) == tied
    moved(own)
    assert model.score(PROMPTS, BRANCHES) != before
    if hasattr(model.network, "disable_adapter"):
        with model.without_adapter():
            assert model.score(PROMPTS, BRANCHES) == before


@pytest.mark.parametrize("how", [attach_lora, unfreeze])
def test_a_quantised_model_is_refused_by_name(how: Any) -> None:
    model = tiny_model()
    model.network.config.quantization_config = {"quant_method": "bitsandbytes"}
    with pytest.raises(UnsupportedModel, match="tiny is quantised"):
        how(model)


def test_the_same_seed_gives_the_same_adapter_and_leaves_the_global_stream_alone() -> None:
    state = torch.get_rng_state()
    first, second, other = (attach_lora(tiny_model(), rank=4, seed=seed) for seed in (1, 1, 2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("how", PLAIN + WITH_EMBEDDINGS)
def test_trained_weights_round_trip(tmp_path, how, tied) -> None:
    model = tiny_model(precision="fp64", tied=tied)
    named = how(model)
    moved(named)
    save_trained(model, named, tmp_path / "weights")
    again = tiny_model(precision="fp64", tied=tied)
    load_trained(again, tmp_path / "weights")
    assert again.score(PROMPTS, BRANCHES) == model.score(PROMPTS, BRANCHES)
    params = SamplingParams(5, n=2, seed=4)
    assert again.sample(PROMPTS, params) == model.sample(PROMPTS, params)


def test_full_training_leaves_the_embeddings_alone() -> None:
    model = tiny_model()
    names = set(unfreeze(model))
    assert not any("embed" in name or "lm_head" in name for name in names)
    assert {name for name, _ in model.network.named_parameters()} - names == {"model.embed_tokens.weight"}


def test_a_folder_without_weights_and_a_second_adapter_are_refused(tmp_path) -> None:
    model = tiny_model()
    with pytest.raises(FileNotFoundError, match=r"neither adapter_config.json nor safetensors"):
        load_trained(model, tmp_path)
    attach_lora(model)
    with pytest.raises(ValueError, match="already has an adapter"):
        attach_lora(model)


def model_on_disk(folder: Path, **settings: Any) -> InProcessModel:
    return InProcessModel.load(saved(folder, "Llama", **settings), precision="fp32")


@pytest.mark.parametrize("tied", [True, False])
def test_full_training_leaves_a_folder_that_transformers_and_we_load(tmp_path: Path, tied: bool) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = model_on_disk(tmp_path / "base", tied=tied)
    named = unfreeze(model)
    moved(named)
    save_trained(model, named, tmp_path / "trained")
    (expected,) = model.score(PROMPTS, BRANCHES)

    ours = InProcessModel.load(tmp_path / "trained", precision="fp32")
    assert ours.score(PROMPTS, BRANCHES) == [expected]
    assert ours.encode("who is it?") == model.encode("who is it?")
    onto_the_base = InProcessModel.load(tmp_path / "base", precision="fp32")
    load_trained(onto_the_base, tmp_path / "trained")
    assert onto_the_base.score(PROMPTS, BRANCHES) == [expected]

    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "trained", dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "trained")
    assert tokenizer("who is it?")["input_ids"] == list(model.encode("who is it?"))
    for branch, values in zip(BRANCHES[0], expected, strict=True):
        assert (plain_scores(theirs, PROMPTS[0], branch) - torch.tensor(values)).abs().max() <= 1e-4
    record = json.loads((tmp_path / "trained" / "base.json").read_text())
    assert set(record["files"]) == {"model.safetensors"}


def test_weights_of_another_network_are_named(tmp_path: Path) -> None:
    model = model_on_disk(tmp_path / "base")
    save_trained(model, unfreeze(model), tmp_path / "trained")
    with pytest.raises(UnsupportedModel, match=r"model.safetensors holds .* which tiny has not"):
        load_trained(tiny_model(), tmp_path / "trained")


@pytest.mark.parametrize(("name", "base"), [
    ("smollm2-135m-instruct", "HuggingFaceTB/SmolLM2-135M-Instruct"),
    ("someone/a-model", "someone/a-model"),
])  # fmt: skip
def test_an_adapter_names_a_base_that_others_have(tmp_path: Path, name: str, base: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("huggingface_hub.file_exists", lambda *_, **__: pytest.fail("saving an adapter asked the Hub"))
    folder = saved(tmp_path / "cache" / "models" / "base", "Llama")
    model = InProcessModel.load(folder, name=name, precision="fp32")
    named = attach_lora(model, rank=2)
    moved(named)
    save_trained(model, named, tmp_path / "adapter")
    settings = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == base
    for path in (tmp_path / "adapter").iterdir():  # README.md, which PEFT writes, as well
        assert str(tmp_path).encode() not in path.read_bytes(), path.name
    record = json.loads((tmp_path / "adapter" / "base.json").read_text())
    assert record["repository"] == base
    assert record["files"]["model.safetensors"] == sha256_of(folder / "model.safetensors")
    assert ("de-quantised" in record.get("note", "")) == (name == "smollm2-135m-instruct")

    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    network = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folder), tmp_path / "adapter")
    plain = plain_scores(network, PROMPTS[0], BRANCHES[0][0])
    assert (plain - torch.tensor(model.score(PROMPTS, BRANCHES)[0][0])).abs().max() <= 1e-4
