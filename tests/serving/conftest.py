"""A gateway in front of a scripted upstream. What needs the extra `gateway` is imported where it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.serving.gate import Gate
    from tests.serving.scripted_upstream import Script


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
