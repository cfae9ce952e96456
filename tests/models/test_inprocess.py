"""The tree engine against the plain computation: one sequence at a time, no cache, no shared prompt."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.models.families import plain_scores
from keepworth.models import inprocess
from keepworth.models.attention import round_up, tree
from keepworth.models.drawing import draw
from keepworth.records import FinishReason, SamplingParams
from tests.models.comparing import plain_gaps, require_scored
from tests.models.tiny import tiny_model, tiny_network

PROMPTS = [*map(tuple, (b"where does ana live?", b"hi", b"a much longer prompt that needs more columns than one"))]
BRANCHES = [[*map(tuple, own)] for own in ((b"in oslo", b"x", b"in bergen, i think"), (b"yes", b"no"), (b"k",))]


@pytest.mark.parametrize(("precision", "mean", "largest"), [("fp64", 1e-10, 1e-10), ("fp32", 1e-5, 1e-4)])
def test_tree_scores_equal_the_plain_computation(precision, mean, largest) -> None:
    model = tiny_model(precision=precision)
    plain = tiny_network(attn="sdpa", precision=precision)
    gaps = plain_gaps(plain, PROMPTS, BRANCHES, model.score(PROMPTS, BRANCHES))
    assert gaps.mean() <= mean
    assert gaps.max() <= largest


def test_gradients_equal_the_plain_computation() -> None:
    model, plain = tiny_model(precision="fp64"), tiny_network(attn="sdpa", precision="fp64")
    model.network.requires_grad_(True)
    plain.requires_grad_(True)
    model.tree_scores(tree(PROMPTS, BRANCHES))[0].sum().backward()
    sum(plain_scores(plain, p, b).sum() for p, own in zip(PROMPTS, BRANCHES, strict=True) for b in own).backward()
    for (name, ours), theirs in zip(model.network.named_parameters(), plain.parameters(), strict=True):
        assert torch.allclose(ours.grad, theirs.grad, atol=1e-10), name


@pytest.mark.parametrize("precision", ["fp64", "fp32"])
def test_sampled_logprobs_equal_the_scores_of_the_sampled_ids(precision) -> None:
    model = tiny_model(precision=precision)
    params = SamplingParams(max_tokens=9, n=5, temperature=0.7, seed=3, stop_ids=frozenset(range(0, 257, 11)))
    groups = model.sample(PROMPTS, params)
    require_scored(model, PROMPTS, groups, 1e-5, temperature=0.7)
    assert len({len(s.ids) for group in groups for s in group}) > 1, "stops must end some branches early"
    assert all(s.ids[-1] % 11 == 0 for g in groups for s in g if s.finish is FinishReason.STOP)
    assert all(i % 11 for g in groups for s in g for i in s.ids[:-1])


def test_greedy_equals_step_by_step_argmax() -> None:
    model, plain = tiny_model(precision="fp64"), tiny_network(attn="sdpa", precision="fp64")
    for prompt, (sample,) in zip(PROMPTS, model.sample(PROMPTS, SamplingParams(8, temperature=0)), strict=True):
        ids = list(prompt)
        for _ in range(8):
            ids.append(int(plain(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
        assert sample.ids == tuple(ids[len(prompt) :])


def test_shared_prompt_head_is_computed_once_with_equal_results(monkeypatch) -> None:
    model, head = tiny_model(precision="fp64"), tuple(b"worked examples that every prompt begins with: ")
    prompts = [head + prompt for prompt in PROMPTS]
    params = SamplingParams(max_tokens=6, n=3, seed=1)
    widths: list[int] = []
    hidden_states = model.hidden_states
    monkeypatch.setattr(
        model, "hidden_states", lambda ids, *rest: widths.append(ids.numel()) or hidden_states(ids, *rest)
    )
    shared = model.sample(prompts, params)
    assert widths[:2] == [32, 3 * (round_up(max(map(len, prompts)), 16) - 32)]
    alone = [model.sample([prompt], params)[0] for prompt in prompts]
    assert shared[0] == [type(s)(s.ids, pytest.approx(s.logprobs), s.finish, s.spans) for s in alone[0]]
    require_scored(model, prompts, shared, 1e-6)


def test_seed_fixes_the_draw_and_batching_does_not_change_it() -> None:
    model = tiny_model(precision="fp64")
    params = SamplingParams(max_tokens=6, n=3, seed=5)
    together = model.sample(PROMPTS, params)
    model.token_budget = 1  # every prompt alone
    assert model.sample(PROMPTS, params) == [
        [type(s)(s.ids, pytest.approx(s.logprobs), s.finish, s.spans) for s in group] for group in together
    ]
    assert [s.ids for s in model.sample(PROMPTS, SamplingParams(6, n=3, seed=6))[0]] != [s.ids for s in together[0]]


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 700), st.integers(0, 10_000), st.sampled_from([0.3, 1.0, 2.0]))
def test_draws_invert_the_running_sum(vocabulary, seed, temperature) -> None:
    """Whatever the vocabulary's size, against the definition; ids of probability 0 are never drawn."""
    generator = torch.Generator().manual_seed(seed)
    logits = 4 * torch.randn(3, 5, vocabulary, generator=generator)
    logits[..., 1:][torch.rand(3, 5, vocabulary - 1, generator=generator) < 0.5] = -math.inf
    uniform = torch.rand(3, 5, generator=generator, dtype=torch.float64)
    uniform[0, 0], uniform[0, 1] = 0.0, 1 - 2**-53
    tokens, logprobs = draw(logits, SamplingParams(1, temperature=temperature), uniform)
    expected = torch.log_softmax(logits.double() / temperature, -1)
    assert torch.allclose(logprobs.double(), expected.gather(-1, tokens[..., None]).squeeze(-1), atol=1e-5)
    assert torch.isfinite(logprobs).all()
    upper = expected.exp().cumsum(-1).gather(-1, tokens[..., None]).squeeze(-1)
    assert (uniform <= upper + 1e-6).all()
    assert (uniform >= upper - logprobs.double().exp() - 1e-6).all()


def test_prompts_are_batched_within_memory_bounds() -> None:
    much = 10**9
    assert inprocess.together([400, 400], 8 * 256, 4096, much) == [[0, 1]]  # answers within eight times the budget
    assert inprocess.together([400, 400], 8 * 256, 4096, 4000) == [[0], [1]]  # memory for 4,000 tokens
    # The prompts themselves are within the budget.
    assert inprocess.together([400] * 11, 16, 4096, much) == [list(range(10)), [10]]
    assert inprocess.together([40] * 3, 12_000, 4096, much) == [[0, 1], [2]]  # 8 x 4,096 are kept at most
    assert inprocess.together([10, 5000], 16, 4096, much) == [[1], [0]]  # a longer one goes alone


def test_a_group_that_memory_does_not_hold_is_drawn_in_parts_and_draws_the_same(monkeypatch: Any) -> None:
    prompts, params = [(5, 6, 7), (8, 9)], SamplingParams(6, n=5, seed=3)
    wanted = tiny_model(precision="fp64").sample(prompts, params)
    model, read = tiny_model(precision="fp64"), []
    token = 2 * 8 * 2 * 2 * 16  # keys and values of 8 bytes, two layers, two heads of 16 numbers
    monkeypatch.setattr(inprocess, "whole_memory", lambda device: 4.0 * 16 * token)  # a quarter holds 16 tokens
    begin = inprocess.Drawing
    monkeypatch.setattr(inprocess, "Drawing", lambda by, some, *rest: read.append(len(some)) or begin(by, some, *rest))
    found = model.sample(prompts, params)
    assert read == [1] * 6  # two answers of 6 behind 3 or 2 tokens at once: three parts of each group
    assert [[one.ids for one in each] for each in found] == [[one.ids for one in each] for each in wanted]
    for one, other in zip(itertools.chain(*found), itertools.chain(*wanted), strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-6)


def test_bad_requests_are_named() -> None:
    model = tiny_model()
    with pytest.raises(ValueError, match="prompt 1 is empty"):
        model.sample([(1,), ()], SamplingParams(2))
    with pytest.raises(ValueError, match="fewer or shorter memories"):
        model.sample([(1,) * 511], SamplingParams(2))
    with pytest.raises(ValueError, match="max_tokens"):
        model.sample([(1,)], SamplingParams(0))
    with pytest.raises(ValueError, match="no adapter"), model.without_adapter():
        pass
