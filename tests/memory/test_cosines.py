"""How the cosines of queries with all rows are computed changes nothing of what is found."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.memory.search import scan
from keepworth.memory.search.index import DenseIndex
from keepworth.memory.search.scan import CACHED, MANY, cosines


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(0, 3 * CACHED + 1),
    queries=st.integers(1, MANY + 2),
    dimension=st.integers(1, 40),
    share=st.integers(1, 4 * CACHED),
    seed=st.integers(0, 2**32 - 1),
)
def test_they_are_those_of_a_matrix_product(rows, queries, dimension, share, seed):
    draw = np.random.default_rng(seed)
    # Sixteenths: every sum of products is exact, so there is one right answer whatever the order of adding.
    matrix = draw.integers(-16, 17, (rows, dimension)).astype(np.float32) / 16
    asked = draw.integers(-16, 17, (queries, dimension)).astype(np.float32) / 16
    exact = asked.astype(np.float64) @ matrix.T.astype(np.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "SHARE", share)
        patch.setattr(scan, "READERS", 4)
        found = cosines(asked, matrix)
    assert found.dtype == np.float32
    assert np.array_equal(found, exact)


@settings(max_examples=40, deadline=None)
@given(
    count=st.integers(1, 30),
    queries=st.sampled_from([1, 2, MANY - 1, MANY]),
    kept=st.floats(0.0, 1.0),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_same_items_are_found_ties_in_order_of_arrival(count, queries, kept, seed):
    """Beside the plain way: all scores by one product, sorted, and of equal ones the first first."""
    draw = np.random.default_rng(seed)
    different = draw.integers(-4, 5, (60, 8)).astype(np.float32) / 4
    matrix = different[draw.integers(0, 60, 700)]  # most rows are there several times
    asked = draw.integers(-4, 5, (queries, 8)).astype(np.float32) / 4
    scopes = draw.integers(0, 3, 700)
    index = DenseIndex(8)
    index.put(range(1, 701), scopes.tolist(), matrix)
    gone = draw.choice(np.arange(1, 701), 50, replace=False).tolist()
    index.drop(gone)
    mask = np.append(False, draw.random(700) < kept)
    scores = asked @ matrix.T
    for ids, rule in ((None, None), ([1], None), (None, mask), ([0, 2], mask)):
        counts = np.ones(700, bool) if ids is None else np.isin(scopes, ids)
        counts[np.array(gone) - 1] = False
        if rule is not None:
            counts &= rule[1:]
        rows = np.flatnonzero(counts)
        plain = [
            [(int(row) + 1, float(line[row])) for row in rows[np.argsort(-line[rows], kind="stable")][:count]]
            for line in scores
        ]
        assert index.search(asked, count, str(ids), ids, rule) == plain


@pytest.mark.parametrize("readers", [1, 3])
@pytest.mark.parametrize("queries", [1, 3])
def test_equal_rows_have_equal_scores_wherever_they_stand(queries, readers, monkeypatch):
    monkeypatch.setattr(scan, "CACHED", 7)
    monkeypatch.setattr(scan, "SHARE", 20)
    monkeypatch.setattr(scan, "READERS", readers)
    draw = np.random.default_rng(0)
    row = draw.standard_normal(385).astype(np.float32)
    asked = draw.standard_normal((queries, 385)).astype(np.float32)
    matrix = draw.standard_normal((100, 385)).astype(np.float32)
    matrix[[0, 5, 6, 13, 50, 99]] = row
    found = cosines(asked, matrix)[:, [0, 5, 6, 13, 50, 99]]
    assert (found == found[:, :1]).all()
    assert np.array_equal(cosines(asked, row[None, :])[:, 0], found[:, 0])
