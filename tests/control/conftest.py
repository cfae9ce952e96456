"""Every sequence memory of the registry, small and in float64."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from keepworth.control import memory
from keepworth.control.memory_base import SequenceMemory
from keepworth.registry import methods

FEATURES, WIDTH = 5, 16


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sign with a key of the test's own."""
    monkeypatch.setenv("KEEPWORTH_CACHE", str(tmp_path / "cache"))


@pytest.fixture(params=sorted(methods("memory_module")))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def module(name: str) -> SequenceMemory:
    torch.manual_seed(3)
    return memory(name, FEATURES, WIDTH).double()
