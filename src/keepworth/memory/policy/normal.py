"""The distribution function of the standard normal distribution, without SciPy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]


def ndtr(x: Floats | float) -> Floats:
    """P(a standard normal draw is below x), element by element, in the shape of x."""
    scaled = np.asarray(x, dtype=np.float64) * -math.sqrt(0.5)
    return 0.5 * np.fromiter(map(math.erfc, scaled.ravel().tolist()), np.float64, scaled.size).reshape(scaled.shape)
