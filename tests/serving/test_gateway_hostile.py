"""Whatever is sent to the gateway is answered or refused, by it or its upstream."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from keepworth.serving.call_formats import FORMATS
from keepworth.serving.http_server import HttpServer
from keepworth.serving.memory_server import MemoryServer

DEEP = b'{"messages": ' + b"[" * 5000 + b"]" * 5000 + b"}"


async def refusing(request: Request) -> Response:
    await request.body()
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
