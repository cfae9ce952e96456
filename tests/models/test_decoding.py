"""Tokens that are drawn behind shared prompts: keys of a prompt read once, and a step without the network's own modules."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.models import decoding_step
from keepworth.models.adapter import attach_lora
from keepworth.models.attention import Prompts, Standing, behind_prompts
from keepworth.models.decoding_step import DecodingStep, PackedWeights, ThroughModules
from keepworth.models.drawing import draw, likeliest
from keepworth.models.inprocess import InProcessModel, Precision
from keepworth.records import SamplingParams
from tests.models.comparing import require_scored
from tests.models.test_adapter import moved
from tests.models.test_inprocess import PROMPTS
from tests.models.tiny import ByteTokenizer, tiny_model, tiny_network

ENDING = SamplingParams(12, n=5, seed=3, stop_ids=frozenset(range(0, 257, 7)))
FAMILIES: dict[str, Any] = {"Mistral": {"sliding_window": None}, "Qwen2": {}, "Qwen3": {"head_dim": 16}}
FAMILIES["Llama"] = {"attention_bias": True, "mlp_bias": True}


def model_of(family: str, precision: Precision, adapter: bool = True) -> InProcessModel:
    sizes: dict[str, Any] = {"intermediate_size": 96, "num_hidden_layers": 3, "tie_word_embeddings": False}
    made = tiny_network(precision=precision, family=family, **sizes, **FAMILIES[family])
    for name, each in made.named_parameters():
        if name.endswith("bias"):
            each.normal_(std=0.3)
    model = InProcessModel(made, ByteTokenizer(), family)
    if adapter:
        moved(attach_lora(model, 4), 0.1)
    return model


def through_modules(model: InProcessModel) -> InProcessModel:
    model._step = lambda: None
    return model


def step_of(model: InProcessModel) -> DecodingStep:
    step = model._step()
    assert step is not None
    return step


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("modules", [True, False])
def test_sampled_and_scored_log_probabilities_agree(temperature: float, modules: bool) -> None:
    model = tiny_model(precision="fp64")
    assert step_of(model)
    if modules:
        through_modules(model)
    params = SamplingParams(12, n=5, seed=3, temperature=temperature, stop_ids=ENDING.stop_ids)
    drawn = model.sample(PROMPTS, params)
    assert len({len(each.ids) for own in drawn for each in own}) > 1  # rows leave, and prompts with them
    require_scored(model, PROMPTS, drawn, 1e-6)  # kept as float32


@pytest.mark.parametrize("count", [1, 2, 3])
def test_heads_that_share_no_keys_are_drawn_as_they_are_scored(count: int) -> None:
    model = InProcessModel(tiny_network(precision="fp64", num_key_value_heads=4), ByteTokenizer(), "tiny")
    assert step_of(model)
    params = SamplingParams(6, n=count, seed=3)
    require_scored(model, PROMPTS[:1], model.sample(PROMPTS[:1], params), 1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_rounds_as_the_modules_do(family: str) -> None:
    """Without an adapter: the sums of several adapters are taken together, where zeros come between."""
    model = model_of(family, "bf16", adapter=False)
    assert step_of(model)
    assert model.sample(PROMPTS, ENDING) == through_modules(model).sample(PROMPTS, ENDING)


@pytest.mark.parametrize("family", FAMILIES)
def test_so_it_does_in_float32_but_for_the_order_of_sums(family: str) -> None:
    model = model_of(family, "fp32")
    drawn, again = model.sample(PROMPTS, ENDING), through_modules(model).sample(PROMPTS, ENDING)
    for own, rows in zip(drawn, again, strict=True):
        assert [each.ids for each in own] == [row.ids for row in rows]
        for each, row in zip(own, rows, strict=True):
            assert each.logprobs == pytest.approx(row.logprobs, abs=1e-4)


@pytest.mark.parametrize(
    "change", ["written past autograd", "fused optimiser", "adapter added to its base", "scale 0", "hook"]
)
def test_sampling_follows_weight_changes(change: str) -> None:
    model = model_of("Llama", "fp32")
    model.sample(PROMPTS, ENDING)
    layers = model.network.base_model.model.model.layers
    base = layers[1].mlp.up_proj.base_layer.weight
    if change == "written past autograd":
        base.data.mul_(1.5)
    elif change == "fused optimiser":
        base.requires_grad_(True).grad = torch.ones_like(base)
        torch.optim.AdamW([base], lr=0.5, fused=True).step()
        base.requires_grad_(False)
    elif change == "adapter added to its base":
        model.network.merge_adapter()
    elif change == "scale 0":
        layers[1].self_attn.q_proj.scaling["default"] = 0.0
    else:
        layers[1].mlp.register_forward_hook(lambda module, given, found: 3 * found)
    require_scored(model, PROMPTS, model.sample(PROMPTS, ENDING), 1e-4)


def test_copies_of_weights_that_are_gone_are_given_back() -> None:
    model = model_of("Llama", "fp32", adapter=False)
    model.sample(PROMPTS, ENDING)
    before = len(model._packed._copies)
    for module in model.network.modules():
        if type(module) is torch.nn.Linear:
            module.weight = torch.nn.Parameter(1.1 * module.weight.detach(), requires_grad=False)
    model.sample(PROMPTS, ENDING)
    assert len(model._packed._copies) == before > 0


@pytest.mark.parametrize("lacking", ["product", "other numbers"])
def test_without_the_processor_s_layout_the_numbers_are_the_same(monkeypatch: pytest.MonkeyPatch, lacking: str) -> None:
    expected = model_of("Llama", "bf16").sample(PROMPTS, ENDING)

    def refused(*arguments: object) -> torch.Tensor:
        raise RuntimeError("no kernel for this processor")

    def other(rows: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return torch.ones(len(rows), packed.shape[0], dtype=rows.dtype)

    monkeypatch.setattr(decoding_step, "_multiplied", refused if lacking == "product" else other)
    model = model_of("Llama", "bf16")
    assert not any(layer.gates.packed for layer in step_of(model)._layers)
    assert model.sample(PROMPTS, ENDING) == expected


def test_other_networks_go_through_their_modules() -> None:
    model = model_of("Mistral", "fp32")
    model.network.config.sliding_window = 8
    assert model._step() is None
    odd = tiny_model()
    odd.network.model.layers[1].mlp.act_fn = torch.nn.GELU()
    with pytest.raises(ThroughModules):
        DecodingStep(odd.network, PackedWeights())
    from peft import IA3Config

    other = tiny_model()
    other.network.add_adapter(IA3Config(target_modules=["down_proj"], feedforward_modules=["down_proj"]))
    assert other._step() is None
    with torch.inference_mode():
        never_trained = tiny_model()
    assert never_trained.sample(PROMPTS, ENDING) == tiny_model().sample(PROMPTS, ENDING)


@settings(deadline=None, max_examples=60)
@given(
    counts=st.lists(st.integers(0, 4), min_size=1, max_size=4).filter(any),
    tokens=st.integers(1, 9),
    window=st.sampled_from([None, 1, 3, 7, 100]),
    drawn=st.randoms(use_true_random=False),
)
def test_attention_behind_prompts_is_attention_over_each_text(counts, tokens, window, drawn) -> None:
    """Against the definition, a row at a time; rows stand behind prompts in any number, and no prompt has to have one."""
    lengths = [drawn.randint(1, 7) for _ in counts]
    torch.manual_seed(drawn.randint(0, 99))
    heads, shared, size, width = 6, 2, 4, 8
    prompt_of = torch.tensor([prompt for prompt, count in enumerate(counts) for _ in range(count)])
    used, at = torch.unique(prompt_of, return_inverse=True)
    before = torch.randn(2, len(counts), shared, width, size, dtype=torch.float64)
    query = torch.randn(len(prompt_of), heads, 1, size, dtype=torch.float64)
    key, value = torch.randn(2, len(prompt_of), shared, tokens, size, dtype=torch.float64)
    prompts = Prompts(before[0, used], before[1, used], Standing(torch.tensor(lengths)[used], at))
    found = behind_prompts(query, key, value, prompts, 0.5, window)
    for row, prompt in enumerate(prompt_of.tolist()):
        for head in range(heads):
            of = head // (heads // shared)
            keys, values = (
                torch.cat([before[part, prompt, of, : lengths[prompt]], own[row, of]])
                for part, own in enumerate((key, value))
            )
            scores = keys @ query[row, head, 0] * 0.5
            first = 0 if window is None else max(0, len(scores) - window)
            expected = torch.softmax(scores[first:], 0) @ values[first:]
            assert torch.allclose(found[row, 0, head], expected, atol=1e-12)


@given(
    logits=st.lists(st.lists(st.floats(-8, 8, width=32), min_size=12, max_size=12), min_size=1, max_size=4),
    top_k=st.integers(0, 14),
    top_p=st.sampled_from([0.05, 0.3, 0.5, 0.9, 0.999, 1.0]),
)
def test_top_k_and_top_p_match_transformers(logits: Any, top_k: int, top_p: float) -> None:
    from transformers import TopKLogitsWarper, TopPLogitsWarper

    scores = torch.tensor(logits).round(decimals=2) + torch.arange(12) * 1e-3  # without ties: either may be taken
    theirs = TopKLogitsWarper(min(top_k, 12))(None, scores) if top_k else scores
    close = torch.softmax(theirs, -1).sort(descending=True).values.cumsum(-1) - top_p
    theirs = TopPLogitsWarper(top_p)(None, theirs) if top_p < 1 else theirs
    ours = likeliest(scores, top_k, top_p)
    if close.abs().min() > 1e-4:  # at the edge rounding decides
        assert torch.equal(ours, theirs)
    assert bool(ours.isfinite().any(-1).all())
    everywhere = torch.linspace(0, 1, 50)[:, None].expand(-1, len(logits))
    drawn, logprobs = draw(scores.expand(50, -1, -1), SamplingParams(1, top_k=top_k, top_p=top_p), everywhere)
    expected = torch.log_softmax(ours, -1).expand(50, -1, -1).gather(-1, drawn[..., None]).squeeze(-1)
    assert torch.allclose(logprobs, expected, atol=1e-5)
