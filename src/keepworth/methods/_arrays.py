"""Names for the types of arrays."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Vectors = NDArray[np.float32]
Bools = NDArray[np.bool_]
Numbers = NDArray[np.int64]
Rows = NDArray[np.intp]
