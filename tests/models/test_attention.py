"""The written-out attention against PyTorch's own, on every layout it is used for."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import settings as limited
from hypothesis import strategies as st

from keepworth.episodes import SamplingParams
from keepworth.models.attention import (
    _BLOCK_ROWS,
    _bf16_products,
    blockwise,
    branch_mask,
    float32_products,
    fused,
    tree,
    windowed,
)
from tests.models.tiny import tiny_model

SCALE = 0.3
LAYOUTS = {  # prompt columns, branch columns, how many of the last columns are queries (None: all)
    "causal": (150, 0, None),
    "one token": (1, 0, None),
    "tree": (141, 77, None),
    "only branches": (32, 96, 96),
    "a sampling step": (80, 24, 4),
    "behind a cached head": (140, 0, 75),
    "a tree behind a cached head": (100, 40, 90),
    "long branches": (20, 400, None),
}


def inputs(layout: str, dtype: torch.dtype, heads: int = 6, shared: int = 2) -> tuple[torch.Tensor | None, ...]:
    prompt, branches, last = LAYOUTS[layout]
    generator = torch.Generator().manual_seed(0)
    columns = prompt + branches
    queries = columns if last is None else last
    query = torch.randn(2, queries, heads, 8, generator=generator, dtype=torch.float64).transpose(1, 2)
    key, value = torch.randn(2, 2, shared, columns, 8, generator=generator, dtype=torch.float64)
    mask = None
    if branches:
        owner = torch.arange(branches) % 4
        owner = torch.stack([owner, owner]).sort().values if layout == "long branches" else _one_sorted(owner)
        owner[1, -3:] = -1
        mask = branch_mask(torch.tensor([prompt, prompt // 2]), prompt, owner)[:, :, -min(branches, queries) :]
    return query.to(dtype), key.to(dtype), value.to(dtype), mask


def _one_sorted(owner: torch.Tensor) -> torch.Tensor:
    return torch.stack([owner, owner.sort().values])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("heads", "shared"), [(6, 2), (4, 4), (3, 1)])
def test_equals_the_fused_kernel_forwards_and_backwards(layout: str, heads: int, shared: int) -> None:
    results = []
    for attend in (blockwise, fused):
        query, key, value, mask = inputs(layout, torch.float64, heads, shared)
        leaves = [tensor.requires_grad_() for tensor in (query, key, value)]
        output = attend(*leaves, mask, SCALE)
        output.backward(torch.sin(torch.arange(output.numel(), dtype=torch.float64)).view(output.shape))
        results.append([output.detach(), *(leaf.grad for leaf in leaves)])
    for ours, theirs in zip(*results, strict=True):
        assert ours.shape == theirs.shape
        assert torch.allclose(ours, theirs, atol=1e-12)


def written_out(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    window: int | None,
    softcap: float | None,
) -> torch.Tensor:
    """One query at a time, from the definition: the last keys that it sees, and the cap on its scores."""
    (rows, heads, length, _), columns = query.shape, key.shape[2]
    shared = heads // key.shape[1]
    causal = length - (0 if mask is None else mask.shape[2])
    found = query.new_zeros(rows, length, heads, value.shape[3])
    for row in range(rows):
        for place in range(length):
            if mask is None or place < causal:
                seen = list(range(columns - length + place + 1))
            else:
                seen = mask[row, 0, place - causal].nonzero().flatten().tolist()
            seen = seen if window is None else seen[-window:]
            for head in range(heads):
                scores = SCALE * key[row, head // shared, seen] @ query[row, head, place]
                scores = scores if softcap is None else softcap * torch.tanh(scores / softcap)
                found[row, place, head] = torch.softmax(scores, 0) @ value[row, head // shared, seen]
    return found


@pytest.mark.parametrize(
    "layout", ["causal", "tree", "a sampling step", "a tree behind a cached head", "long branches"]
)
@pytest.mark.parametrize(("window", "softcap"), [(5, None), (100, None), (None, 0.7), (9, 0.7)])
def test_windows_and_caps_equal_the_definition(layout: str, window: int | None, softcap: float | None) -> None:
    query, key, value, mask = (None if t is None else t[:1] for t in inputs(layout, torch.float64, 2, 1))
    leaves = [tensor.requires_grad_() for tensor in (query, key, value)]
    narrowed = mask if mask is None or window is None else windowed(mask, window)
    output = blockwise(*leaves, narrowed, SCALE, window, softcap)
    assert torch.allclose(output, written_out(*leaves, mask, window, softcap), atol=1e-12)
    if softcap is None:
        assert torch.allclose(fused(*leaves, narrowed, SCALE, window), output, atol=1e-12)


@pytest.mark.parametrize("layout", ["causal", "tree"])
def test_gradients_of_windows_and_caps_equal_autograds(layout: str) -> None:
    results = []
    for attend in (
        lambda q, k, v, m: blockwise(q, k, v, None if m is None else windowed(m, 9), SCALE, 9, 0.7),
        lambda q, k, v, m: written_out(q, k, v, m, 9, 0.7),
    ):
        query, key, value, mask = (None if t is None else t[:1] for t in inputs(layout, torch.float64, 2, 1))
        leaves = [tensor.requires_grad_() for tensor in (query, key, value)]
        output = attend(*leaves, mask)
        output.backward(torch.sin(torch.arange(output.numel(), dtype=torch.float64)).view(output.shape))
        results.append([leaf.grad for leaf in leaves])
    for ours, theirs in zip(*results, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-12)


BRANCHES = st.lists(
    st.lists(st.sampled_from([0, 1, 2, 7, 31, 33, 64, 65, 150]), min_size=1, max_size=5), min_size=1, max_size=2
)


def laid_out(lengths: list[list[int]], heads: int, shared: int) -> tuple[torch.Tensor, ...]:
    """Queries, keys, values, the mask of a tree and which queries are no padding, bool [B, Q]. Prompts are unequal."""
    batch = tree([(1,) * (5 + 20 * row) for row in range(len(lengths))], [[(2,) * n for n in own] for own in lengths])
    rows, columns = batch.ids.shape
    generator = torch.Generator().manual_seed(sum(map(sum, lengths)))
    query = torch.randn(rows, heads, columns, 8, generator=generator, dtype=torch.float64)
    key, value = torch.randn(2, rows, shared, columns, 8, generator=generator, dtype=torch.float64)
    return query, key, value, batch.mask, batch.ids > 0


@limited(max_examples=25, deadline=None)
@given(BRANCHES, st.sampled_from([None, 3, 40, 100]), st.sampled_from([None, 0.7]))
def test_a_layout_spares_the_mask_and_changes_nothing(
    lengths: list[list[int]], window: int | None, softcap: float | None
) -> None:
    """Against the same attention under a dense mask, which another test holds against the definition."""
    query, key, value, mask, tokens = laid_out(lengths, 4, 2)
    dense = mask.clone()
    weight = torch.sin(torch.arange(query.numel(), dtype=torch.float64)).view(query.transpose(1, 2).shape)
    results = []
    for seen in (mask, dense if window is None else windowed(dense, window)):
        leaves = [each.clone().requires_grad_() for each in (query, key, value)]
        output = blockwise(*leaves, seen, SCALE, window, softcap)
        (output * weight * tokens[:, :, None, None]).sum().backward()
        results.append([output[tokens], *(leaf.grad for leaf in leaves)])
    for ours, theirs in zip(*results, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-12)


def test_siblings_keys_are_not_read_behind_a_layout() -> None:
    """What no branch sees may be anything, even no number."""
    query, key, value, mask, tokens = laid_out([[150, 64]], 2, 1)
    output = blockwise(query, key, value, mask, SCALE)
    first = int(mask.shape[3] - mask.shape[2])
    for each in (key, value):
        each[:, :, first : first + 150] = math.nan
    again = blockwise(query, key, value, mask, SCALE)
    last = slice(first + 150, first + 214)
    assert torch.equal(again[:, last], output[:, last])
    assert again[:, first + 149].isnan().all()
    assert tokens[:, last].all()


def test_the_layouts_need_several_blocks() -> None:
    assert max(sum(columns[:2]) * 3 for columns in LAYOUTS.values()) > 2 * _BLOCK_ROWS


@pytest.mark.parametrize("layout", LAYOUTS)
def test_in_bfloat16_only_inputs_and_results_are_rounded(layout: str) -> None:
    query, key, value, mask = inputs(layout, torch.bfloat16)
    exact = fused(query.double(), key.double(), value.double(), mask, SCALE)
    assert (blockwise(query, key, value, mask, SCALE).double() - exact).abs().max() < 0.02


def test_settings_of_pytorch_are_left_as_they_were() -> None:
    settings = getattr(torch.backends.mkldnn, "matmul", None)
    if settings is None:
        pytest.skip("this PyTorch has no such setting")
    before = settings.fp32_precision
    query, key, value, mask = inputs("tree", torch.bfloat16)
    blockwise(query, key, value, mask, SCALE)
    with pytest.raises(RuntimeError):
        blockwise(query, key[..., :3], value, mask, SCALE)
    assert settings.fp32_precision == before


def test_the_precision_of_products_is_restored_when_the_last_thread_is_out() -> None:
    settings = getattr(torch.backends.mkldnn, "matmul", None)
    if settings is None:
        pytest.skip("this PyTorch has no such setting")
    before = settings.fp32_precision
    first, second = _bf16_products(torch.bfloat16), _bf16_products(torch.bfloat16)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert settings.fp32_precision == "bf16"
    second.__exit__(None, None, None)
    assert settings.fp32_precision == before


def test_a_float32_model_is_exact_while_another_thread_is_in_bfloat16_attention() -> None:
    """As a float32 teacher beside a bfloat16 sampler: on a processor with bfloat16 instructions its products lost digits."""
    model = tiny_model()
    prompts, branches = [tuple(b"say a vowel:")], [[tuple(b"aei"), tuple(b"ou")]]
    settings = getattr(torch.backends.mkldnn, "matmul", None)
    alone = model.score(prompts, branches), model.sample(prompts, SamplingParams(4, seed=1))
    with _bf16_products(torch.bfloat16):
        assert (model.score(prompts, branches), model.sample(prompts, SamplingParams(4, seed=1))) == alone
        assert settings is None or settings.fp32_precision == "bf16"  # given back to the other


@pytest.mark.parametrize("own", ["none", "ieee", "bf16"])
def test_a_setting_of_the_user_s_own_stays(own: str) -> None:
    settings = getattr(torch.backends.mkldnn, "matmul", None)
    if settings is None:
        pytest.skip("this PyTorch has no such setting")
    before = settings.fp32_precision
    try:
        settings.fp32_precision = own
        with float32_products(torch.float32), _bf16_products(torch.bfloat16):
            assert settings.fp32_precision == own
        assert settings.fp32_precision == own
    finally:
        settings.fp32_precision = before
