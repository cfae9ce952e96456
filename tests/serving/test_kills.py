"""The server is killed under load, and what it acknowledged is there, once (at length: `python -m benchmarks.agents.kills`)."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.mark.slow
def test_what_a_killed_server_acknowledged_is_there_once(tmp_path: Path) -> None:
    from benchmarks.agents.kills import killed

    found = killed(tmp_path, kills=3, seconds=1.0)
    assert found["lost"] == found["done_twice"] == 0
    assert all(found["acknowledged"].values())
