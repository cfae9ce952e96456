"""Whatever is sent to the gateway is answered or refused, by it or its upstream, and no tenant learns of another through it."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keepworth.serving.access import new_access
from keepworth.serving.call_formats import FORMATS
from keepworth.serving.memory_server import MemoryServer
from tests.serving.callers import answering, served, with_token
from tests.serving.gate import finished, until

SENT: list[bytes] = []
DEEP = b'{"messages": ' + b"[" * 5000 + b"]" * 5000 + b"}"
refuser = answering(SENT, {"error": {"message": "no", "type": "invalid_request_error"}}, 400)
alone, shared = (served(upstream="refuser", encoder="hashing", seed=0) for _ in range(2))


NAMES = st.sampled_from(["role", "content", "type", "text", "messages", "input", "x"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)
OPTIONAL = dict.fromkeys(("messages", "input", "prompt", "system", "stream", "previous_response_id"), JSON)
BODIES = st.one_of(
    st.binary(max_size=60),
    JSON.map(lambda value: json.dumps(value).encode()),
    st.fixed_dictionaries({"model": JSON}, optional=OPTIONAL).map(lambda value: json.dumps(value).encode()),
    st.sampled_from([b"", DEEP, b'{"messages": [{"role": "user", "content": "\\ud800"}]}', b'{"model": "\xff"}']),
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from([each.path for each in FORMATS]), BODIES, st.sampled_from(["on", "read", "off", "\u00e9", ""]))
def test_any_body_is_answered_by_the_upstream_or_refused(
    alone: MemoryServer, path: str, body: bytes, mode: str
) -> None:
    headers = {"Content-Type": "application/json", "X-Keepworth-Memory": mode.encode("latin-1")}
    answer = with_token(alone).post(path, content=body, headers=headers)
    assert answer.status_code in (400, 413, 422), answer.text
    assert "error" in answer.json()
    assert answer.headers.get("x-keepworth-memory") != "failed", "nothing a caller sends breaks memory"


@pytest.mark.parametrize("path", [each.path for each in FORMATS])
def test_request_without_a_token_is_not_read(alone: MemoryServer, path: str) -> None:
    SENT.clear()
    assert with_token(alone, "kw_no").post(path, content=b"x" * 1000).status_code == 401
    assert SENT == []


WORDS = st.sampled_from(["tea", "rain", "Oslo", "I", "like", "live", "in"])
TEXT = st.lists(WORDS, min_size=3, max_size=7).map(" ".join)


@pytest.mark.slow
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.sampled_from(["ana", "bo", ""]), TEXT), min_size=2, max_size=4))
def test_calls_are_unaffected_by_other_tenants(
    alone: MemoryServer, shared: MemoryServer, calls: list[tuple[str, str]]
) -> None:
    tenant = f"tenant {len(json.dumps(calls))} {hash(tuple(calls))}"
    answers = []
    for server in (alone, shared):
        if server is shared:
            for user, text in calls:
                played(server, f"other {tenant}", user, f"{text} and more")
        answers.append([played(server, tenant, user, text) for user, text in calls])
    assert answers[0] == answers[1]


def played(server: MemoryServer, tenant: str, user: str, text: str) -> tuple[Any, ...]:
    """A turn; what went upstream, what came back, and its receipt, without ids that are drawn."""
    client = with_token(server, token(server, tenant), **{"X-Keepworth-User": user})
    SENT.clear()
    answer = client.post("/v1/chat/completions", json={"model": "m", "messages": [{"role": "user", "content": text}]})
    until(lambda: finished(server))
    id = answer.headers.get("x-keepworth-episode", "")
    receipt = client.get(f"/v1/memory/episodes/{id}/receipt").json()
    unknown = client.get("/v1/memory/episodes/e0/receipt")
    plain = {name: value for name, value in receipt.items() if name not in ("episode", "decision", "until")}
    return list(SENT), answer.status_code, answer.content, plain, unknown.status_code, unknown.content


@cache
def token(server: MemoryServer, tenant: str) -> str:
    return server.tokens.add(new_access(tenant=tenant))
