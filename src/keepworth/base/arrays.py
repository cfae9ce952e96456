"""Names of the arrays in memory, for annotations. Importing this at run time imports NumPy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.intp]
Numbers = npt.NDArray[np.int64]
