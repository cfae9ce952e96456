"""A served memory, and a gateway in front of a scripted upstream. What needs an extra is imported where it is asked for."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from keepworth.serving.memory_server import MemoryServer
    from tests.serving.gate import Gate
    from tests.serving.memory_process import MemoryProcess
    from tests.serving.scripted_upstream import Script


TENANTS = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryServer]:
    from keepworth.serving.memory_server import MemoryServer

    with MemoryServer(tmp_path_factory.mktemp("served") / "agent.mem", encoder="hashing") as server:
        yield server


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryProcess]:
    """A server that is a process of its own."""
    from tests.serving.memory_process import MemoryProcess

    with MemoryProcess(tmp_path_factory.mktemp("served") / "agent.mem") as process:
        yield process


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
def gates(tmp_path: Path, script: Script, upstream_url: str) -> Iterator[Callable[..., Gate]]:
    """Starts gateways on one file, each once the one before has ended."""
    from tests.serving.gate import Gate

    with ExitStack() as running:

        def start(**settings: Any) -> Gate:
            running.close()
            return running.enter_context(closing(Gate(tmp_path / "agent.mem", script, upstream_url, **settings)))

        yield start


@pytest.fixture
def gate(gates: Callable[..., Gate]) -> Gate:
    return gates()
