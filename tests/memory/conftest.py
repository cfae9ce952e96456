"""What tests of the memory share."""

from __future__ import annotations

import pytest

from keepworth.memory.store import transaction


@pytest.fixture(params=[1, 3, transaction.TAIL], ids="index at most {} behind".format)
def behind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How far the full-text index may be behind."""
    monkeypatch.setattr(transaction, "TAIL", request.param)
    return int(request.param)
