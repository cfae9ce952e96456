"""Callers of a served memory, and servers that they call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from keepworth.serving.access import ROLES, new_access
from keepworth.serving.memory_routes import BASE
from keepworth.serving.memory_server import MemoryServer


def as_(server: MemoryServer, tenant: str, *roles: str, base: str = BASE, **bounds: Any) -> httpx.Client:
    """Whoever has a token of these roles (all, if none is named) and bounds."""
    return with_token(server, server.tokens.add(new_access(tenant=tenant, roles=roles or ROLES, **bounds)), base)


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
