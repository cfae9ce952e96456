"""The normal distribution function without SciPy: SciPy's own numbers."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr as scipy_ndtr

from keepworth.memory.policy.normal import ndtr


def test_it_is_what_scipy_computes() -> None:
    """To the last bit where both call the same C library's exp; elsewhere to within rounding."""
    generator = np.random.default_rng(0)
    x = np.concatenate([generator.normal(size=20_000) * scale for scale in (0.1, 1.0, 3.0, 10.0, 30.0)])
    np.testing.assert_allclose(ndtr(x), scipy_ndtr(x), rtol=1e-15, atol=0.0)


def test_edges() -> None:
    root = np.sqrt(2.0)
    x = np.array([0.0, -0.0, root, -root, 8 * root, -8 * root, 37.0, -37.7, -40.0, 1e9, -1e9, np.inf, -np.inf, np.nan])
    with np.errstate(all="raise", under="ignore"):
        np.testing.assert_allclose(ndtr(x), scipy_ndtr(x), rtol=1e-15, atol=0.0)
    assert ndtr(0.0) == 0.5
    assert ndtr(np.zeros((2, 3))).shape == (2, 3)
    assert ndtr(np.zeros(0)).shape == (0,)
