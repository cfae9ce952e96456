"""Callers of a served memory."""

from __future__ import annotations

from typing import Any

import httpx

from keepworth.serving.access import ROLES, new_access
from keepworth.serving.memory_routes import BASE
from keepworth.serving.memory_server import MemoryServer


def as_(server: MemoryServer, tenant: str, *roles: str, base: str = BASE, **bounds: Any) -> httpx.Client:
    """Whoever has a token of these roles (all, if none is named) and bounds."""
    token = server.tokens.add(new_access(tenant=tenant, roles=roles or ROLES, **bounds))
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.Client(base_url=server.url + base, headers=headers, trust_env=False, timeout=300)
