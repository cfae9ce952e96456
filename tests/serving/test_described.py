"""The server against its own description, as a fuzzer reads it; and killed under load."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.agents.fuzz import command, fuzzed
from benchmarks.agents.kills import killed
from keepworth.serving.memory_server import MemoryServer
from tests.serving.callers import as_


@pytest.mark.slow
@pytest.mark.skipif(not command(), reason="pip install schemathesis, or set KEEPWORTH_SCHEMATHESIS to its command")
def test_schemathesis_reports_no_failures() -> None:
    found = fuzzed(10, 0)
    assert found["complete"]
    assert found["operations"] >= 25
    assert found["cases"] > 500
    assert found["failures"] == []


def test_unknown_method_is_refused_with_the_allowed_ones(server: MemoryServer, tenant: str) -> None:
    with as_(server, tenant) as client:
        answer = client.put("/items")
        assert (answer.status_code, answer.headers["allow"]) == (405, "DELETE, GET, HEAD, POST")
        assert client.put("/nowhere").headers.get("allow") is None


def test_integer_may_be_written_with_a_decimal_point(server: MemoryServer, tenant: str) -> None:
    """To JSON Schema 5.0 is an integer."""
    with as_(server, tenant) as client:
        assert client.post("/search", json={"query": "tea", "top_k": 5.0}).status_code == 200
        for wrong in (5.5, "5", True, 0.0):
            assert client.post("/search", json={"query": "tea", "top_k": wrong}).status_code == 422


@pytest.mark.slow
def test_killed_server_keeps_acknowledged_writes_once(tmp_path: Path) -> None:
    """At length: `python -m benchmarks.agents.kills`."""
    found = killed(tmp_path, kills=3, seconds=1.0)
    assert found["lost"] == found["done_twice"] == 0
    assert all(found["acknowledged"].values())
