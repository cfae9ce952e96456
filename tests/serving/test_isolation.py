"""Nobody learns of another through the gateway: what an id of somebody else is answered with is what an id of nobody is answered
with, and what an upstream keeps is closed to whoever shares its key."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from keepworth.serving.memory_server import MemoryServer
from tests.serving.callers import answering, as_, served

ASKED: list[bytes] = []
keeper = answering(ASKED, {"id": "resp_1", "object": "response", "output": []})
"""An upstream that opens whatever it is asked for: it knows the gateway's key alone."""
server = served(upstream="keeper", encoder="hashing", seed=0)


def calls(server: MemoryServer, tenant: str, **bounds: Any) -> httpx.Client:
    return as_(server, tenant, base="", **bounds)


FILE = {"type": "file", "file_id": "file_1"}
NAMING: tuple[tuple[str, dict[str, Any]], ...] = (
    ("chat/completions", {"extra_body": {"google": {"cachedContent": "cachedContents/1"}}}),
    ("chat/completions", {"messages": [{"role": "user", "content": [{"file": {"file_id": "file_1"}}]}]}),
    ("chat/completions", {"messages": [{"role": "user", "content": {"type": "file", "file": FILE}}]}),
    ("chat/completions", {"messages": [{"role": "user", "content": [{"image_file": {"file_id": "file_1"}}]}]}),
    ("chat/completions", {"messages": [{"role": "assistant", "audio": {"id": "audio_1"}}]}),
    ("chat/completions", {"messages": {"0": {"role": "user", "content": [{"File_ID": "file_1"}]}}}),
    ("chat/completions", {"tools": [{"type": "code_interpreter", "container": "cntr_1"}]}),
    ("chat/completions", {"tools": [{"type": "file_search", "vector_store_ids": ["vs_1"]}]}),
    ("chat/completions", {"prompt": {"id": "pmpt_1"}}),
    ("chat/completions", {"previous_response_id": "resp_1"}),
    ("chat/completions", {"conversation": {"id": "conv_1"}}),
    ("completions", {"prompt": "and?", "conversation": "conv_1"}),
    ("embeddings", {"input": [FILE]}),
    ("messages", {"messages": [{"role": "user", "content": [{"source": {"file_id": "file_1"}}]}]}),
    ("messages", {"messages": [{"role": "user", "content": [{"source": {"content": [{"source": FILE}]}}]}]}),
    ("messages", {"messages": [{"role": "user", "content": "and?"}], "container": "cntr_1"}),
    ("messages", {"system": [{"type": "document", "source": FILE}]}),
    ("messages/count_tokens", {"system": [{"type": "document", "source": FILE}]}),
)
KEPT = (
    ("POST", "/v1/responses", {"model": "m", "input": "and?"}),
    ("POST", "/v1/responses", {"model": "m", "input": "and?", "previous_response_id": "resp_1", "stream": True}),
    ("POST", "/v1/responses", {"model": "m", "input": "and?", "prompt": {"id": "pmpt_1"}}),
    ("POST", "/v1/responses", {"model": "m", "tools": [{"type": "file_search", "vector_store_ids": ["vs_1"]}]}),
    ("POST", "/v1/responses/input_tokens", {"model": "m", "previous_response_id": "resp_1"}),
    ("POST", "/v1/conversations", {"items": [{"type": "item_reference", "id": "msg_1"}]}),
    ("GET", "/v1/responses/resp_1", None),
    ("GET", "/v1/responses/resp_1/input_items", None),
    ("POST", "/v1/responses/resp_1/cancel", None),
    ("DELETE", "/v1/responses/resp_1", None),
    ("GET", "/v1/conversations/conv_1/items", None),
    *(("POST", f"/v1/{path}", {"model": "m", **body}) for path, body in NAMING),
)

SCHEMA = {"type": "object", "properties": {"container": {"type": "string"}, "file_id": {"type": "string"}}}
OPEN: tuple[tuple[str, dict[str, Any]], ...] = (
    ("chat/completions", {"messages": [{"role": "user", "content": '{"container": "cntr_1"}'}], "container": None}),
    ("chat/completions", {"tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]}),
    ("chat/completions", {"response_format": {"type": "json_schema", "json_schema": {"name": "f", "schema": SCHEMA}}}),
    ("chat/completions", {"messages": [{"tool_calls": [{"function": {"arguments": {"container": "box"}}}]}]}),
    ("chat/completions", {"audio": {"voice": "alloy"}, "metadata": {"conversation": "7"}}),
    ("messages", {"tools": [{"name": "f", "input_schema": SCHEMA, "input_examples": [{"container": "box"}]}]}),
    ("messages", {"messages": [{"content": [{"type": "tool_use", "name": "f", "input": {"file_id": "7"}}]}]}),
    ("messages", {"messages": [{"content": [{"type": "text", "text": "x", "citations": [{"file_id": None}]}]}]}),
    ("completions", {"prompt": ["and?"]}),
    ("chat/completions", {"guided_json": {**SCHEMA, "$defs": {"container": SCHEMA}}}),
    ("chat/completions", {"documents": [{"container": "box"}]}),
)
"""What is the caller's own, although a name in it is the same."""


@pytest.mark.parametrize("memory", ["on", "off"])
def test_objects_stored_upstream_are_closed_to_bound_tokens(server: MemoryServer, memory: str) -> None:
    headers = {"X-Keepworth-Memory": memory}
    ana, agent = calls(server, "", user_id="ana"), calls(server, "", agent_id="a1")
    other, program = calls(server, "acme"), calls(server, "")
    for method, path, body in KEPT:
        ASKED.clear()
        for stranger in (ana, agent, other):
            answer = stranger.request(method, path, json=body, headers=headers)
            assert (answer.status_code, "stored at the upstream" in answer.text) == (403, True), answer.text
        assert ASKED == [], "the upstream is not asked"
        assert program.request(method, path, json=body, headers=headers).status_code == 200
        assert len(ASKED) == 1
    for path, body in OPEN:
        assert ana.post(f"/v1/{path}", json={"model": "m", **body}, headers=headers).status_code == 200, body


BODY = {"model": "m", "input": "and?", "messages": [{"role": "user", "content": "and?"}], "previous_response_id": "r1"}
PLAIN = json.dumps(BODY)
ASKING = ("chat/completions", "responses", "completions", "messages", "embeddings")
TWICE = (
    b'{"model": "m", "container": "cntr_1", "container": null}',
    b'{"messages": [{"role": "user", "content": [{"file": {"file_id": "f"}}], "content": "and?"}]}',
    b'{"input": "and?", "tools": [{"parameters": {"x": 1, "\\u0078": 2}}]}',
)


@pytest.mark.parametrize("memory", ["on", "off"])
@pytest.mark.parametrize(
    "raw",
    [
        *TWICE,
        *(PLAIN.encode(name) for name in ("utf-16", "utf-16-le", "utf-32", "utf-8-sig")),
        PLAIN[:-1].encode() + b', "x": ' + b"[" * 250 + b"]" * 250 + b"}",
        *(PLAIN[:-1].encode() + b', "x": "\xff"}', b"[1]", b'"x"', b"{", b"\xff"),
    ],
)
def test_body_that_is_not_a_utf_8_json_object_is_not_forwarded(server: MemoryServer, raw: bytes, memory: str) -> None:
    headers = {"Content-Type": "application/json", "X-Keepworth-Memory": memory}
    with calls(server, "") as program:
        for path in (*ASKING, "responses/r1/cancel", "conversations"):
            ASKED.clear()
            answer = program.post(f"/v1/{path}", content=raw, headers=headers)
            assert (answer.status_code, ASKED) == (400, []), path
            assert ("stands twice" in answer.json()["error"]["message"]) == (raw in TWICE)
        item = program.post("/v1/memory/items", content=raw, headers=headers)
        assert (item.status_code, "stands twice" in item.text) == (400, raw in TWICE)
