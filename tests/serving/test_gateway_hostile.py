"""Whatever is sent to the gateway is answered or refused, by it or its upstream, and no tenant learns of another through it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from keepworth.serving.access import new_access
from keepworth.serving.call_formats import FORMATS
from keepworth.serving.http_server import HttpServer
from keepworth.serving.memory_server import MemoryServer
from tests.serving.gate import finished, until

SENT: list[bytes] = []
DEEP = b'{"messages": ' + b"[" * 5000 + b"]" * 5000 + b"}"


async def refusing(request: Request) -> Response:
    SENT.append(await request.body())
    return JSONResponse({"error": {"message": "no", "type": "invalid_request_error"}}, 400)


@pytest.fixture(scope="module")
def upstream_url() -> Iterator[str]:
    app = Starlette(routes=[Route("/{path:path}", refusing, methods=["GET", "POST", "DELETE"])])
    with HttpServer(lambda workers: app, name="refusing", patience=1) as server:
        yield f"{server.url}/v1"


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, upstream_url: str) -> Iterator[MemoryServer]:
    with MemoryServer(
        tmp_path_factory.mktemp("a") / "a.mem", encoder="hashing", upstream=upstream_url, seed=0
    ) as server:
        yield server


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, upstream_url: str) -> Iterator[MemoryServer]:
    with MemoryServer(
        tmp_path_factory.mktemp("b") / "b.mem", encoder="hashing", upstream=upstream_url, seed=0
    ) as server:
        yield server


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "type", "text", "messages", "input", "x"]), inner, max_size=3
        )
    ),
    max_leaves=12,
)
BODIES = st.one_of(
    st.binary(max_size=60),
    JSON.map(lambda value: json.dumps(value).encode()),
    st.fixed_dictionaries(
        {"model": JSON},
        optional=dict.fromkeys(("messages", "input", "prompt", "system", "stream", "previous_response_id"), JSON),
    ).map(lambda value: json.dumps(value).encode()),
    st.sampled_from([b"", DEEP, b'{"messages": [{"role": "user", "content": "\\ud800"}]}', b'{"model": "\xff"}']),
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from([each.path for each in FORMATS]), BODIES, st.sampled_from(["on", "read", "off", "\u00e9", ""]))
def test_any_body_is_answered_by_the_upstream_or_refused(
    alone: MemoryServer, path: str, body: bytes, mode: str
) -> None:
    headers = {"Authorization": f"Bearer {alone.token}", "Content-Type": "application/json"}
    sent = {**headers, "X-Keepworth-Memory": mode.encode("latin-1")}
    answer = httpx.post(f"{alone.url}{path}", content=body, headers=sent, trust_env=False, timeout=300)
    assert answer.status_code in (400, 413, 422), answer.text
    assert "error" in answer.json()
    assert answer.headers.get("x-keepworth-memory") != "failed", "nothing a caller sends breaks memory"


@pytest.mark.parametrize("path", [each.path for each in FORMATS])
def test_nobody_without_a_token_makes_the_server_read(alone: MemoryServer, path: str) -> None:
    SENT.clear()
    answer = httpx.post(
        f"{alone.url}{path}", content=b"x" * 1000, headers={"Authorization": "Bearer kw_no"}, trust_env=False
    )
    assert answer.status_code == 401
    assert SENT == []


TEXT = st.lists(st.sampled_from(["tea", "rain", "Oslo", "I", "like", "live", "in"]), min_size=3, max_size=7).map(
    " ".join
)


@pytest.mark.slow
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.sampled_from(["ana", "bo", ""]), TEXT), min_size=2, max_size=4))
def test_what_goes_upstream_and_comes_back_is_the_same_with_another_tenant_beside(
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
    headers = {"Authorization": f"Bearer {token(server, tenant)}", "X-Keepworth-User": user}
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    SENT.clear()
    answer = httpx.post(f"{server.url}/v1/chat/completions", json=body, headers=headers, trust_env=False)
    until(lambda: finished(server))
    id = answer.headers.get("x-keepworth-episode", "")
    receipt = httpx.get(f"{server.url}/v1/memory/episodes/{id}/receipt", headers=headers, trust_env=False).json()
    unknown = httpx.get(f"{server.url}/v1/memory/episodes/e0/receipt", headers=headers, trust_env=False)
    plain = {name: value for name, value in receipt.items() if name not in ("episode", "decision", "until")}
    return list(SENT), answer.status_code, answer.content, plain, unknown.status_code, unknown.content


TOKENS: dict[tuple[str, str], str] = {}


def token(server: MemoryServer, tenant: str) -> str:
    if (server.url, tenant) not in TOKENS:
        TOKENS[server.url, tenant] = server.tokens.add(new_access(tenant=tenant))
    return TOKENS[server.url, tenant]
