"""The normal distribution function without SciPy: SciPy's own numbers."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr as scipy_ndtr

from keepworth.memory.policy.normal import ndtr


def test_it_is_what_scipy_computes() -> None:
    generator = np.random.default_rng(0)
    x = np.concatenate([generator.normal(size=2_000) * scale for scale in (0.1, 1.0, 3.0, 10.0)])
    x = np.concatenate([x, [0.0, 37.0, -37.0, 1e9, -1e9, np.inf, -np.inf, np.nan]])
    np.testing.assert_allclose(ndtr(x), scipy_ndtr(x), rtol=1e-13, atol=0.0)
    assert ndtr(0.0) == 0.5
    assert ndtr(np.zeros((2, 3))).shape == (2, 3)
    assert ndtr(np.zeros(0)).shape == (0,)
