"""A gateway in front of a scripted upstream, for tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from keepworth import Client
from keepworth.memory.headline import MARK
from keepworth.memory.item import Clock, Item, later, now
from keepworth.memory.store.store import Store
from keepworth.serving.access import new_access
from keepworth.serving.call_formats import FORMATS
from keepworth.serving.gateway import GatewaySettings
from keepworth.serving.memory_server import MemoryServer
from tests.serving.scripted_upstream import Script

KEY = "sk-upstream-key"
EPISODE = "x-keepworth-episode"


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def told(text: str, *lines: str) -> dict[str, Any]:
    """What a user says as it goes upstream, with what memory recalled in front."""
    return user("\n".join((MARK, *(f"- {line}" for line in lines))) + f"\n\n{text}")


def blocks_in(body: Any, path: str = "/v1/chat/completions") -> list[str]:
    """The blocks of memory in a body."""
    return list(next(format for format in FORMATS if format.path == path).find_blocks(body).values())


def says(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def until(look: Callable[[], Any]) -> Any:
    """What `look` sees once it sees something: turns are written beside."""
    end = time.monotonic() + 60
    while not (seen := look()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.005)
    return seen


def finished(server: MemoryServer) -> bool:
    """Whether the gateway has written what it answered."""
    assert server.gateway is not None
    return not server.gateway._finishing


class SetClock:
    """Shows the time that it is set to."""

    def __init__(self) -> None:
        self.time = now()

    def __call__(self) -> str:
        return self.time

    def wait(self, seconds: float) -> None:
        self.time = later(self.time, seconds)


class Gate:
    """A gateway in front of a scripted upstream. settings: what the server takes, and what its gateway takes."""

    def __init__(self, file: Path, script: Script, url: str, *, clock: Clock = now, **settings: Any) -> None:
        names = ("policy", "scan", "encoder", "upstream_key", "writer", "model_signals")
        options: dict[str, Any] = {"encoder": "hashing", "upstream_key": KEY}
        options |= {name: settings.pop(name) for name in names if name in settings}
        options |= {"gateway": GatewaySettings(**settings)} if settings else {}
        options |= {"clock": clock, "upstream": url}
        self.script = script
        self.server = MemoryServer(file, seed=0, **options).start()
        headers = {"Authorization": f"Bearer {self.server.token}"}
        self.http = httpx.Client(base_url=self.server.url, headers=headers, trust_env=False, timeout=300)
        self.memory = Client(self.server.url, self.server.token)

    @property
    def store(self) -> Store:
        return self.server.memories.of(new_access()).memory.store

    def token(self, **access: Any) -> str:
        return self.server.tokens.add(new_access(**access))

    def ask(self, *messages: dict[str, Any], token: str = "", more: Any = None, **headers: str) -> httpx.Response:
        """more: other fields of the call."""
        body = {"model": "scripted", "messages": list(messages), "stream": False, **(more or {})}
        named = {f"X-Keepworth-{name.capitalize()}": value for name, value in headers.items()}
        named |= {"Authorization": f"Bearer {token}"} if token else {}
        return self.http.post("/v1/chat/completions", json=body, headers=named)

    def noted(self, count: int = 1) -> list[str]:
        """Texts of the items, once there are so many."""
        until(lambda: len(self.memory.get_all()) >= count)
        return [item.text for item in self.memory.get_all()]

    def replaced(self) -> list[Item]:
        """The items, once one took the place of another."""
        until(lambda: any(item.links for item in self.memory.get_all()))
        return self.memory.get_all()

    def close(self) -> None:
        self.http.close()
        self.memory.close()
        self.server.close()
