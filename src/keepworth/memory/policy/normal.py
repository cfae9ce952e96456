"""The distribution function of the standard normal distribution, in NumPy alone: a memory that learns needs no SciPy.

Source: Cephes 2.9 (Moshier, `ndtr.c`), with its coefficients. SciPy's `ndtr` computes the same, and
the results agree to the last bit: a logged propensity does not depend on what else is installed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

# erf(x) = x T(x^2) / U(x^2) for |x| < 1; erfc(x) = exp(-x^2) P(x) / Q(x) for 1 <= x < 8, exp(-x^2) R(x) / S(x) from 8.
# Q, S and U have a leading coefficient of 1, which is left out.
_T = (
    9.60497373987051638749,
    9.00260197203842689217e1,
    2.23200534594684319226e3,
    7.00332514112805075473e3,
    5.55923013010394962768e4,
)
_U = (
    3.35617141647503099647e1,
    5.21357949780152679795e2,
    4.59432382970980127987e3,
    2.26290000613890934246e4,
    4.92673942608635921086e4,
)
_P = (
    2.46196981473530512524e-10,
    5.64189564831068821977e-1,
    7.46321056442269912687,
    4.86371970985681366614e1,
    1.96520832956077098242e2,
    5.26445194995477358631e2,
    9.34528527171957607540e2,
    1.02755188689515710272e3,
    5.57535335369399327526e2,
)
_Q = (
    1.32281951154744992508e1,
    8.67072140885989742329e1,
    3.54937778887819891062e2,
    9.75708501743205489753e2,
    1.82390916687909736289e3,
    2.24633760818710981792e3,
    1.65666309194161350182e3,
    5.57535340817727675546e2,
)
_R = (
    5.64189583547755073984e-1,
    1.27536670759978104416,
    5.01905042251180477414,
    6.16021097993053585195,
    7.40974269950448939160,
    2.97886665372100240670,
)
_S = (
    2.26052863220117276590,
    9.39603524938001434673,
    1.20489539808096656605e1,
    1.70814450747565897222e1,
    9.60896809063285878198,
    3.36907645100081516050,
)
_LEAST = -7.09782712893383996843e2
"""exp of less counts as 0."""
_LARGEST = 1e3
"""The tail beyond is 0 in any case; cutting there keeps the polynomials finite."""


def ndtr(x: Floats | float) -> Floats:
    """P(a standard normal draw is below x), element by element, in the shape of x."""
    values = np.asarray(x, dtype=np.float64)
    scaled = values.ravel() * math.sqrt(0.5)
    size = np.minimum(np.abs(scaled), _LARGEST)
    below = np.empty_like(scaled)
    near = size < 1.0
    inner, outer = scaled[near], size[~near]
    square = inner * inner
    below[near] = 0.5 + 0.5 * (inner * _polynomial(square, _T) / _monic(square, _U))
    if len(outer):
        far = outer >= 8.0
        exponent = -outer * outer
        # NumPy's own exp differs from the C library's in the last bit of one value in three hundred.
        power = np.fromiter(map(math.exp, exponent.tolist()), np.float64, len(exponent))
        power[exponent < _LEAST] = 0.0
        above, under = _polynomial(outer, _P), _monic(outer, _Q)
        if far.any():
            above[far], under[far] = _polynomial(outer[far], _R), _monic(outer[far], _S)
        tail = 0.5 * (power * above / under)
        below[~near] = np.where(scaled[~near] > 0.0, 1.0 - tail, tail)
    return below.reshape(values.shape)


def _polynomial(x: Floats, coefficients: Sequence[float]) -> Floats:
    """Horner's rule, the highest power first."""
    value = np.full_like(x, coefficients[0])
    for each in coefficients[1:]:
        value *= x
        value += each
    return value


def _monic(x: Floats, coefficients: Sequence[float]) -> Floats:
    """The same with a leading coefficient of 1 before the given ones."""
    value = x + coefficients[0]
    for each in coefficients[1:]:
        value *= x
        value += each
    return value
