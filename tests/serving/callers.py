"""Callers of a served memory, and servers that they call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from keepworth.memory.item import ALL
from keepworth.serving.access import ROLES, new_access
from keepworth.serving.http_server import HttpServer
from keepworth.serving.memory_routes import BASE
from keepworth.serving.memory_server import MemoryServer


def as_(server: MemoryServer, tenant: str, *roles: str, base: str = BASE, **bounds: Any) -> httpx.Client:
    """Whoever has a token of these roles (all, if none is named) and bounds."""
    return with_token(server, server.tokens.add(new_access(tenant=tenant or ALL, roles=roles or ROLES, **bounds)), base)


def with_token(server: MemoryServer, token: str = "", base: str = "", **headers: str) -> httpx.Client:
    """token: the server's own, if none is named."""
    headers = {"Authorization": f"Bearer {token or server.token}", **headers}
    return httpx.Client(base_url=server.url + base, headers=headers, trust_env=False, timeout=300)


def served(upstream: str = "", **options: Any) -> Any:
    """A fixture: a memory that is served to the tests of a module. upstream: the fixture that has the URL of one."""

    @pytest.fixture(scope="module")
    def server(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[MemoryServer]:
        more = {"upstream": request.getfixturevalue(upstream)} if upstream else {}
        with MemoryServer(tmp_path_factory.mktemp("served") / "agent.mem", **options, **more) as server:
            yield server

    return server


def answering(asked: list[bytes], answer: Any, status: int = 200) -> Any:
    """A fixture: the URL of an upstream that answers everything alike. asked: gets the method, the path and the body of each."""

    @pytest.fixture(scope="module")
    def url() -> Iterator[str]:
        async def answers(request: Request) -> JSONResponse:
            asked.append(f"{request.method} {request.url.path} ".encode() + await request.body())
            return JSONResponse(answer, status)

        app = Starlette(routes=[Route("/{path:path}", answers, methods=["GET", "POST", "DELETE"])])
        with HttpServer(lambda workers: app, name="upstream", patience=1) as server:
            yield f"{server.url}/v1"

    return url
