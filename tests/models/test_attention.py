"""The written-out attention against PyTorch's own, on every layout it is used for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import settings as limited
from hypothesis import strategies as st

from keepworth.models.attention import _bf16_products, blockwise, float32_products, fused, tree, tree_attention
from keepworth.records import SamplingParams
from tests.models.tiny import tiny_model

SCALE = 0.3
CAUSAL = {"causal": (150, 150), "one token": (1, 1), "behind a cached head": (140, 75)}
"""Columns, and how many of the last are queries."""
BRANCHES = st.lists(
    st.lists(st.sampled_from([0, 1, 2, 7, 31, 33, 64, 65, 150]), min_size=1, max_size=5), min_size=1, max_size=2
)


def causal(layout: str, dtype: torch.dtype, heads: int = 6, shared: int = 2) -> tuple[torch.Tensor, ...]:
    columns, queries = CAUSAL[layout]
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(2, queries, heads, 8, generator=generator, dtype=torch.float64).transpose(1, 2)
    key, value = torch.randn(2, 2, shared, columns, 8, generator=generator, dtype=torch.float64)
    return query.to(dtype), key.to(dtype), value.to(dtype)


def laid_out(lengths: list[list[int]], heads: int, shared: int) -> tuple[torch.Tensor, ...]:
    """Queries, keys, values, the mask of a tree and which queries are no padding, bool [B, Q]. Prompts are unequal."""
    batch = tree([(1,) * (5 + 20 * row) for row in range(len(lengths))], [[(2,) * n for n in own] for own in lengths])
    rows, columns = batch.ids.shape
    generator = torch.Generator().manual_seed(sum(map(sum, lengths)))
    query = torch.randn(rows, heads, columns, 8, generator=generator, dtype=torch.float64)
    key, value = torch.randn(2, rows, shared, columns, 8, generator=generator, dtype=torch.float64)
    return query, key, value, batch.mask, batch.ids > 0


def require_equal(attends: Sequence[Callable[..., torch.Tensor]], tensors: Sequence[torch.Tensor], counts: Any) -> None:
    """Results and gradients of both, where `counts` [B, Q] says that a query does."""
    results = []
    for attend in attends:
        leaves = [tensor.clone().requires_grad_() for tensor in tensors]
        output = attend(*leaves)
        weight = torch.sin(torch.arange(output.numel(), dtype=torch.float64)).view(output.shape)
        (output * weight * counts[:, :, None, None]).sum().backward()
        results.append([output[counts], *(leaf.grad for leaf in leaves)])
    for ours, theirs in zip(*results, strict=True):
        assert ours.shape == theirs.shape
        assert torch.allclose(ours, theirs, atol=1e-12)


@pytest.mark.parametrize("layout", CAUSAL)
@pytest.mark.parametrize(("heads", "shared"), [(6, 2), (4, 4), (3, 1)])
def test_equals_the_fused_kernel_forwards_and_backwards(layout: str, heads: int, shared: int) -> None:
    tensors = causal(layout, torch.float64, heads, shared)
    attends = [lambda q, k, v, attend=attend: attend(q, k, v, None, SCALE) for attend in (blockwise, fused)]
    require_equal(attends, tensors, torch.ones(2, tensors[0].shape[2], dtype=torch.bool))


@limited(max_examples=25, deadline=None)
@given(BRANCHES)
def test_a_tree_equals_the_fused_kernel_under_its_mask(lengths: list[list[int]]) -> None:
    query, key, value, mask, tokens = laid_out(lengths, 4, 2)
    attends = [lambda q, k, v, attend=attend: attend(q, k, v, mask, SCALE) for attend in (blockwise, fused)]
    require_equal(attends, (query, key, value), tokens)


def written_out(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, window: int | None
) -> torch.Tensor:
    """One query at a time, from the definition: the last keys that it sees."""
    (rows, heads, length, _), shared = query.shape, key.shape[1]
    causal, found = length - mask.shape[2], query.new_zeros(rows, length, heads, value.shape[3])
    for row in range(rows):
        for place in range(length):
            seen = mask[row, 0, place - causal].nonzero().flatten().tolist()
            seen = (list(range(place + 1)) if place < causal else seen)[-(window or length) :]
            for head in range(heads):
                at = head // (heads // shared)
                shares = torch.softmax(SCALE * key[row, at, seen] @ query[row, head, place], 0)
                found[row, place, head] = shares @ value[row, at, seen]
    return found


@pytest.mark.parametrize("lengths", [[[31, 7, 40], [64]], [[150, 2]]])
@pytest.mark.parametrize("window", [None, 9, 100])
def test_a_tree_equals_the_definition(lengths: list[list[int]], window: int | None) -> None:
    query, key, value, mask, tokens = laid_out(lengths, 2, 1)

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return tree_attention(torch.nn.Identity(), query, key, value, mask, scaling=SCALE, sliding_window=window)[0]

    require_equal([attend, lambda q, k, v: written_out(q, k, v, mask, window)], (query, key, value), tokens)


@pytest.mark.parametrize("layout", CAUSAL)
def test_in_bfloat16_only_inputs_and_results_are_rounded(layout: str) -> None:
    query, key, value = causal(layout, torch.bfloat16)
    exact = fused(query.double(), key.double(), value.double(), None, SCALE)
    assert (blockwise(query, key, value, None, SCALE).double() - exact).abs().max() < 0.02


@pytest.fixture
def products() -> Iterator[Any]:
    """The setting of the precision of products, which is put back behind the test."""
    settings = getattr(torch.backends.mkldnn, "matmul", None)
    if settings is None:
        pytest.skip("this PyTorch has no such setting")
    before = settings.fp32_precision
    yield settings
    settings.fp32_precision = before


def test_the_precision_of_products_is_restored_when_the_last_thread_is_out(products: Any) -> None:
    before = products.fp32_precision
    first, second = _bf16_products(torch.bfloat16), _bf16_products(torch.bfloat16)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert products.fp32_precision == "bf16"
    second.__exit__(None, None, None)
    assert products.fp32_precision == before


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
def test_a_setting_of_the_user_s_own_stays(own: str, products: Any) -> None:
    products.fp32_precision = own
    with float32_products(torch.float32), _bf16_products(torch.bfloat16):
        assert products.fp32_precision == own
    assert products.fp32_precision == own
