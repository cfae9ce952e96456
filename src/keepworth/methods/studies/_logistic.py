"""Logistic regression of a share in [0, 1] by Newton's method."""

from __future__ import annotations

import numpy as np

from keepworth.base.arrays import Floats


def fit(rows: Floats, rises: Floats, penalty: float = 1.0) -> Floats:
    """Returns the weights of a logistic regression of rises in [0, 1] on rows, [samples, features]."""
    weights = np.zeros(rows.shape[1])
    for _ in range(20):
        expected = 1 / (1 + np.exp(-rows @ weights))
        gradient = rows.T @ (rises - expected) - penalty * weights
        hessian = (rows * (expected * (1 - expected))[:, None]).T @ rows + penalty * np.eye(len(weights))
        weights = weights + np.linalg.solve(hessian, gradient)
    return weights
