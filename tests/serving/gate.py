"""A gateway in front of a scripted upstream, for tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from keepworth import Client
from keepworth.memory.item import Clock, later, now
from keepworth.serving.gateway import GatewaySettings
from keepworth.serving.memory_server import MemoryServer
from tests.serving.scripted_upstream import Script

KEY = "sk-upstream-key"


class SetClock:
    """Shows the time that it is set to."""

    def __init__(self) -> None:
        self.time = now()

    def __call__(self) -> str:
        return self.time

    def wait(self, seconds: float) -> None:
        self.time = later(self.time, seconds)


class Gate:
    """A gateway in front of a scripted upstream."""

    def __init__(self, file: Path, script: Script, url: str, *, clock: Clock = now, **settings: Any) -> None:
        options: dict[str, Any] = {"policy": settings.pop("policy")} if "policy" in settings else {}
        options |= {"gateway": GatewaySettings(**settings)} if settings else {}
        options["clock"] = clock
        self.script = script
        self.server = MemoryServer(file, encoder="hashing", upstream=url, upstream_key=KEY, seed=0, **options).start()
        self.http = httpx.Client(
            base_url=self.server.url,
            headers={"Authorization": f"Bearer {self.server.token}"},
            trust_env=False,
            timeout=300,
        )
        self.memory = Client(self.server.url, self.server.token)

    def ask(self, *messages: dict[str, Any], stream: bool = False, **headers: str) -> httpx.Response:
        body = {"model": "scripted", "messages": list(messages), "stream": stream}
        named = {f"X-Keepworth-{name.capitalize()}": value for name, value in headers.items()}
        return self.http.post("/v1/chat/completions", json=body, headers=named)

    def noted(self, count: int = 1) -> list[str]:
        """Texts of the items, once there are so many: they are written beside."""
        for _ in range(2000):
            texts = [item.text for item in self.memory.get_all()]
            if len(texts) >= count:
                return texts
            time.sleep(0.005)
        raise AssertionError(texts)

    def when(self, look: Callable[[], list[Any]]) -> list[Any]:
        """What `look` sees once an item took the place of another: turns are written beside."""
        for _ in range(2000):
            items = look()
            if any(item.links for item in items):
                return items
            time.sleep(0.005)
        raise AssertionError(items)

    def close(self) -> None:
        self.http.close()
        self.memory.close()
        self.server.close()
