"""Networks of many families against their own forward pass: trees with windows; what fits no tree is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.models.checkpoints import FAMILIES, Family, write_checkpoint
from benchmarks.models.families import SAMPLES, adapted, compared, drawn_alike, plain_network, quiet
from keepworth.base.model_errors import UnsupportedModel
from keepworth.models.adapter import attach_lora
from keepworth.models.inprocess import InProcessModel
from keepworth.records import SamplingParams
from tests.models.comparing import plain_gaps

BY_CONFIG = {family.config: family for family in FAMILIES}
FAST = ("Gemma3Text", "Olmo3")  # the most different ones
REFUSED = {
    "Gemma2": "its attention asks for softcap",
    "Granite": "logits differ",
    "GptOss": "its attention asks for s_aux",
    "Lfm2": "layers of the kind conv",
    "Bloom": "take no attention but their own",
    "Mamba": "layers of the kind linear_attention",
}
NO_TREE = {
    *REFUSED,
    *("GraniteMoeHybrid", "GPTJ", "GPTNeo", "Mpt", "Falcon", "Llama4Text", "Qwen3Next", "Qwen3_5Text", "Mamba2"),
    *("Gemma3nText", "DeepseekV3", "FalconMamba", "FalconH1", "Bamba", "Jamba", "NemotronH"),
    *("GraniteMoe", "Cohere", "Cohere2", "MiniCPM3"),
}


def loaded(folder: Path, family: Family) -> tuple[InProcessModel, Any]:
    with quiet():
        write_checkpoint(folder, family.config, family.without, **family.settings)
        return InProcessModel.load(folder, precision="fp64"), plain_network(folder)


@pytest.fixture(scope="module", params=["Gemma3Text"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[InProcessModel, Any]:
    return loaded(tmp_path_factory.mktemp("family"), BY_CONFIG[request.param])


@pytest.mark.parametrize("config", FAST)
def test_scores_gradients_and_draws_are_the_network_s_own(tmp_path: Path, config: str) -> None:
    model, plain = loaded(tmp_path, BY_CONFIG[config])
    found = compared(model, plain, "long")
    assert found["logprob_gap"] < 1e-5
    assert found["gradient_gap"] < 1e-5
    greedy, seeded = drawn_alike(model, plain)
    assert greedy * SAMPLES == seeded == 72


@pytest.mark.parametrize("config", REFUSED)
def test_family_without_tree_support_is_refused_with_alternatives(tmp_path: Path, config: str) -> None:
    with pytest.raises(UnsupportedModel, match=rf"as a tree of branches: .*{REFUSED[config]}.*SmolLM2"):
        loaded(tmp_path, BY_CONFIG[config])


@pytest.mark.slow
@pytest.mark.parametrize("family", [each for each in FAMILIES if each.config not in FAST], ids=lambda each: each.name)
def test_so_are_those_of_every_other_family(tmp_path: Path, family: Family) -> None:
    if family.config in NO_TREE:
        with pytest.raises(UnsupportedModel, match="as a tree of branches"):
            loaded(tmp_path, family)
        return
    model, plain = loaded(tmp_path, family)
    for name in ("short", "long"):
        found = compared(model, plain, name)
        assert found["logprob_gap"] < 1e-5
        assert found["gradient_gap"] < 1e-5
    assert drawn_alike(model, plain) == (36, 72)
    with quiet():
        layers = adapted(tmp_path)
    assert layers.endswith("get a gradient)")


@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_ragged_prompts_and_branches_are_each_a_text_of_its_own(pair: tuple[InProcessModel, Any], data: Any) -> None:
    model, plain = pair
    texts = st.lists(st.integers(3, 255), min_size=1, max_size=30).map(tuple)
    prompts = data.draw(st.lists(texts, min_size=1, max_size=3))
    branches = [data.draw(st.lists(st.one_of(texts, st.just(())), max_size=3)) for _ in prompts]
    with torch.inference_mode():
        assert (plain_gaps(plain, prompts, branches, model.score(prompts, branches)) < 1e-5).all()
        drawn = model.sample(prompts, SamplingParams(9, n=2, seed=1))
        ids, logprobs = ([[getattr(each, name) for each in own] for own in drawn] for name in ("ids", "logprobs"))
        assert plain_gaps(plain, prompts, ids, logprobs).max() < 1e-4


def test_a_network_that_an_adapter_does_not_fit_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from keepworth.models import adapter

    model, _ = loaded(tmp_path, BY_CONFIG["Gemma3Text"])
    names = {name.rsplit(".", 1)[-1] for name, _ in model.network.named_modules() if name}
    monkeypatch.setattr(adapter, "_left_out", lambda network: sorted(names))
    with pytest.raises(UnsupportedModel, match=r"Gemma3ForCausalLM.* gets no LoRA adapter"):
        attach_lora(model)
