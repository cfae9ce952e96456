"""Fixtures of the tests that fetch models, and of those whose servers break."""

import pytest

from keepworth.models import http_client
from tests.models.catalogues import index, tiny, without_pip

__all__ = ["index", "tiny", "without_pip"]


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "FIRST_WAIT", 0.01)
