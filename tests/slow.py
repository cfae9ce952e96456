"""Cases of a test that `make test` leaves to `make test-all`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def slow_but_for(quick: Collection[Any], cases: Iterable[Any]) -> list[Any]:
    """Return the cases of a test for `pytest.mark.parametrize`, all of them marked as slow but for those named."""
    return [case if case in quick else pytest.param(case, marks=pytest.mark.slow) for case in cases]
