"""What is trained starts as nothing, moves what it should, and comes back from disk as it was."""

from __future__ import annotations

import pytest
import torch

from recollect.episodes import SamplingParams
from recollect.models.adapter import attach_lora, load_trained, save_trained, unfreeze
from tests.models.tiny import tiny_model

PROMPTS, BRANCHES = [tuple(b"who is it?")], [[tuple(b"ana"), tuple(b"bo")]]


def moved(named: dict[str, torch.nn.Parameter]) -> None:
    with torch.no_grad():
        for value in named.values():
            value.add_(0.05 * torch.randn(value.shape, generator=torch.Generator().manual_seed(1)))


def test_a_new_adapter_changes_nothing_and_can_be_switched_off() -> None:
    model = tiny_model(precision="fp64")
    before = model.score(PROMPTS, BRANCHES)
    named = attach_lora(model, rank=4, alpha=8.0)
    assert model.score(PROMPTS, BRANCHES) == before
    moved(named)
    assert model.score(PROMPTS, BRANCHES) != before
    with model.without_adapter():
        assert model.score(PROMPTS, BRANCHES) == before


def test_the_same_seed_gives_the_same_adapter_and_leaves_the_global_stream_alone() -> None:
    state = torch.get_rng_state()
    first, second, other = (attach_lora(tiny_model(), rank=4, seed=seed) for seed in (1, 1, 2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("how", [lambda model: attach_lora(model, rank=4), unfreeze])
def test_what_was_trained_comes_back(tmp_path, how) -> None:
    model = tiny_model(precision="fp64")
    named = how(model)
    moved(named)
    save_trained(model, named, tmp_path / "weights")
    again = tiny_model(precision="fp64")
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
    with pytest.raises(FileNotFoundError, match=r"neither adapter_config.json nor weights.safetensors"):
        load_trained(model, tmp_path)
    attach_lora(model)
    with pytest.raises(ValueError, match="already has an adapter"):
        attach_lora(model)
