"""The MCP endpoint answers both revisions in use: 2026-07-28, which has no handshake and no session, and 2025-06-18, which begins
with `initialize`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("mcp", reason="pip install 'keepworth[serve]'")

from keepworth.serving.memory_server import MemoryServer
from tests.serving.callers import with_token

NEW, OLD = "2026-07-28", "2025-06-18"
META = {
    "io.modelcontextprotocol/protocolVersion": NEW,
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.fixture
def http(tmp_path: Path) -> Iterator[httpx.Client]:
    with MemoryServer(tmp_path / "a.mem", encoder="hashing", mcp=True) as server, with_token(server) as client:
        yield client


def call(http: httpx.Client, version: str, method: str, params: dict[str, Any], **headers: str) -> dict[str, Any]:
    """Send one request of a revision and return its result."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    named = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": version, **headers}
    if version == NEW:
        named["Mcp-Method"] = method
        body["params"] = {**params, "_meta": META}
    answer = http.post("/mcp", json=body, headers=named)
    assert answer.status_code == 200, answer.text
    text = answer.text
    line = next((line[5:] for line in text.splitlines() if line.startswith("data:")), text)
    result: dict[str, Any] = json.loads(line)["result"]
    return result


def test_the_revision_without_a_handshake_lists_and_calls_tools_at_once(http: httpx.Client) -> None:
    assert "Mcp-Session-Id" not in http.post("/mcp", json={}).headers
    assert NEW in json.dumps(call(http, NEW, "server/discover", {}))
    tools = {tool["name"] for tool in call(http, NEW, "tools/list", {})["tools"]}
    assert {"add_memory", "search_memories", "report_outcome"} <= tools
    added = {"name": "add_memory", "arguments": {"text": "I live in Oslo.", "kind": "core", "ttl": 3600}}
    assert "Oslo" in json.dumps(call(http, NEW, "tools/call", added, **{"Mcp-Name": "add_memory"}))
    asked = {"name": "search_memories", "arguments": {"query": "where do I live?"}}
    assert "Oslo" in json.dumps(call(http, NEW, "tools/call", asked, **{"Mcp-Name": "search_memories"}))


def test_the_revision_with_a_handshake_is_answered_beside_it(http: httpx.Client) -> None:
    begun = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    assert call(http, OLD, "initialize", begun)["protocolVersion"] == OLD
    assert call(http, OLD, "tools/list", {})["tools"]
