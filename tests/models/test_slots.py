"""How far rows are read: nobody short of their own length, together less than without, the long ones in front."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from keepworth.episodes import SamplingParams
from keepworth.models import slot_cache as decoding
from keepworth.models.inprocess import ContinuousBatch, PartialSample
from keepworth.models.slot_cache import Slots, columns_for, misplaced, row_widths
from tests.models.tiny import tiny_model

LENGTHS = st.lists(st.integers(1, 300), min_size=1, max_size=70)


@given(LENGTHS)
def test_every_row_is_read_to_its_end_and_no_two_stretches_overlap(lengths: list[int]) -> None:
    found = row_widths(lengths)
    if not found:
        return
    assert [first for first, _, _ in found] == [0, found[0][1]]
    assert found[-1][1] == len(lengths)
    (first, past, width), (_, _, short) = found
    assert width == columns_for(max(lengths))
    assert max(lengths[first:past]) <= width
    assert max(lengths[past:]) == short
    area = past * max(lengths) + (len(lengths) - past) * short
    assert area < 0.8 * len(lengths) * max(lengths)


@given(LENGTHS)
def test_exchanges_bring_the_longest_to_the_front(lengths: list[int]) -> None:
    before = row_widths(sorted(lengths, reverse=True))
    for row, other in misplaced(lengths):
        assert lengths[row] > lengths[other] or lengths[row] == lengths[other]
        lengths[row], lengths[other] = lengths[other], lengths[row]
    assert row_widths(lengths) == before
    assert misplaced(lengths) == []


def test_by_hand() -> None:
    assert row_widths([5] * 15) == ()  # too few to be worth it
    assert row_widths([5] * 16) == ()  # alike
    assert row_widths([100] + [5] * 15) == ((0, 1, 128), (1, 16, 5))
    assert misplaced([5] * 15 + [100]) == [(15, 0)]
    assert row_widths([5] * 15 + [100]) == ()  # the long one stands last


def test_exchanged_rows_keep_what_is_theirs() -> None:
    cache = Slots(1, 3)
    (layer,) = cache.layers.layers
    keys = torch.arange(3 * 2 * 4 * 2, dtype=torch.float32).reshape(3, 2, 4, 2)
    layer.reserve(4, keys, keys)
    layer.keys[:, :, :4], layer.values[:, :, :4] = keys, -keys
    cache.lengths[:] = torch.tensor([4, 2, 3])
    cache.exchange(0, 1)
    assert cache.lengths.tolist() == [2, 4, 3]
    assert torch.equal(layer.keys[1, :, :4], keys[0])
    assert torch.equal(layer.keys[0, :, :2], keys[1, :, :2])
    assert torch.equal(layer.values[1, :, :4], -keys[0])


def test_buffers_shrink_when_a_long_sequence_has_left_and_nobodys_tokens_change() -> None:
    model = tiny_model(precision="fp64", hidden=32)
    long = PartialSample(tuple(range(1, 200)), SamplingParams(5, seed=5), (0, 0))
    short = [PartialSample((7, 1 + n), SamplingParams(40, seed=5), (1 + n, 0)) for n in range(3)]
    batch, columns = ContinuousBatch(model, 4), []
    for draft in (long, *short):
        batch.add(draft)
    while batch.busy:
        batch.step()
        columns.append(batch._cache.layers.layers[0].columns)
    assert max(columns) == columns_for(204)
    assert columns[-1] == 64
    for draft in (long, *short):
        (scored,) = model.score([draft.prompt], [[tuple(draft.ids)]])
        assert draft.logprobs == pytest.approx(scored[0], abs=1e-6)


def test_a_long_sequence_among_short_ones_changes_nobodys_tokens() -> None:
    """With and without stretches: the same ids, and log-probabilities up to rounding."""
    model = tiny_model(precision="fp64", hidden=32)
    results = []
    for few in (16, 10**6):
        decoding._FEW, before = few, decoding._FEW
        try:
            batch = ContinuousBatch(model, 24)
            drafts = [
                PartialSample((7, 1 + n), SamplingParams(90 if n in (3, 20) else 8 + n, seed=5), (n,))
                for n in range(40)
            ]
            for draft in drafts:
                batch.add(draft)
            while batch.busy:
                batch.step()
            results.append([draft.sample(0) for draft in drafts])
        finally:
            decoding._FEW = before
    assert [one.ids for one in results[0]] == [other.ids for other in results[1]]
    for one, other in zip(*results, strict=True):
        assert torch.tensor(one.logprobs).allclose(torch.tensor(other.logprobs), atol=1e-10)
