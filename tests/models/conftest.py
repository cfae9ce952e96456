"""Fixtures of the tests that fetch models."""

from tests.models.catalogues import index, tiny, without_pip

__all__ = ["index", "tiny", "without_pip"]
