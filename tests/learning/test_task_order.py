"""Every task comes as often as it should, and the order depends on the seed and the step alone."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepworth.episodes.errors import KeepworthError
from keepworth.learning.collect.curriculum import batch, drawn_task


@given(st.integers(1, 9), st.integers(1, 7), st.integers(0, 99))
def test_a_pass_holds_each_item_once(count: int, size: int, seed: int) -> None:
    drawn = [item for step in range(count) for item in batch(range(count), size, step, seed)]
    assert all(sorted(drawn[i : i + count]) == list(range(count)) for i in range(0, count * size, count))


@given(st.lists(st.sampled_from("aab"), min_size=1, max_size=12), st.integers(1, 6), st.integers(0, 9))
def test_kinds_are_equal_within_one_and_items_within_a_kind_too(kinds: list[str], size: int, seed: int) -> None:
    items = list(enumerate(kinds))
    drawn = [drawn_task(items, lambda item: item[1], seed, position) for position in range(11 * size)]
    per_kind = Counter(kind for _, kind in drawn)
    assert set(per_kind) == set(kinds) or len(drawn) < len(set(kinds))
    counts = [per_kind[kind] for kind in set(kinds)]
    assert max(counts) - min(counts) <= 1
    for kind in set(kinds):
        each = Counter(index for index, of in drawn if of == kind)
        own = [each[index] for index, of in items if of == kind]
        assert max(own) - min(own) <= 1
    again = [drawn_task(items, lambda item: item[1], seed, position) for position in range(11 * size)]
    assert again == drawn


def test_nothing_to_order_is_said() -> None:
    with pytest.raises(KeepworthError, match="nothing to train on"):
        drawn_task([], str, 0, 0)
    with pytest.raises(KeepworthError, match="nothing to train on"):
        batch([], 2, 0, 0)
