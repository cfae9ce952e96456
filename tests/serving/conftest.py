"""A served memory, and a gateway in front of a scripted upstream. What needs an extra is imported where it is asked for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from keepworth.serving.memory_server import MemoryServer
    from tests.serving.gate import Gate
    from tests.serving.scripted_upstream import Script


TENANTS = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryServer]:
    from keepworth.serving.memory_server import MemoryServer

    with MemoryServer(tmp_path_factory.mktemp("served") / "agent.mem", encoder="hashing") as server:
        yield server


@pytest.fixture
def tenant() -> str:
    """A tenant of this test alone."""
    return f"tenant {next(TENANTS)}"


@pytest.fixture
def script() -> Script:
    from tests.serving.scripted_upstream import Script

    return Script()


@pytest.fixture
def upstream_url(script: Script) -> Iterator[str]:
    from tests.serving.scripted_upstream import upstream

    with upstream(script) as server:
        yield server.url


@pytest.fixture
def gate(tmp_path: Path, script: Script, upstream_url: str) -> Iterator[Gate]:
    from tests.serving.gate import Gate

    gate = Gate(tmp_path / "agent.mem", script, upstream_url)
    yield gate
    gate.close()
