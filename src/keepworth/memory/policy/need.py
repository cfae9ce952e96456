"""Checks of a policy's settings."""

from __future__ import annotations

import math
from numbers import Integral, Real

from keepworth.memory.errors import InvalidPolicy


def need(
    of: str,
    *,
    count: dict[str, int] | None = None,
    positive: dict[str, float] | None = None,
    rate: dict[str, float] | None = None,
) -> None:
    """InvalidPolicy where a count is not a whole number of at least 1, a size not finite and above 0, or a rate not in [0, 1]."""
    for name, value in (count or {}).items():
        if not isinstance(value, Integral) or value < 1:
            raise InvalidPolicy(f"{name} of {of} is {value!r}.", "It must be a whole number, at least 1.")
    for name, size in (positive or {}).items():
        if not (isinstance(size, Real) and math.isfinite(size) and size > 0.0):
            raise InvalidPolicy(f"{name} of {of} is {size!r}.", "It must be finite and above 0.")
    for name, share in (rate or {}).items():
        if not (isinstance(share, Real) and 0.0 <= share <= 1.0):
            raise InvalidPolicy(f"{name} of {of} is {share!r}.", "It must lie in [0, 1].")
