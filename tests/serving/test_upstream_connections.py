"""The connections of a gateway to its upstream: the last used is used next, and what is idle for long is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from keepworth.serving import upstream as module
from keepworth.serving.upstream import Unreachable, Upstream

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


class Counted(asyncio.Protocol):
    """An upstream that answers each call after a moment, and counts what is open."""

    opened: int
    calls: dict[int, int]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.number = transport, Counted.opened
        Counted.opened += 1
        Counted.calls[self.number] = 0

    def data_received(self, data: bytes) -> None:
        Counted.calls[self.number] += 1
        if b"break" in data:
            self.transport.close()
        else:
            asyncio.get_running_loop().call_later(0.05, self.transport.write, ANSWER)

    def connection_lost(self, error: Exception | None) -> None:
        Counted.calls.pop(self.number, None)


@contextmanager
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    now = [0.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    yield now
    monkeypatch.undo()


def test_upstream_reuses_the_latest_connection_and_closes_idle_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    Counted.opened, Counted.calls = 0, {}

    async def scene() -> None:
        server = await asyncio.get_running_loop().create_server(Counted, "127.0.0.1", 0)
        upstream = Upstream(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", seconds=5.0)

        async def ask(path: str = "/v1/chat/completions") -> int:
            return (await upstream.send("POST", path, "", {}, b"{}", episode="")).status

        assert await asyncio.gather(*(ask() for _ in range(5))) == [200] * 5
        assert Counted.opened == 5
        for _ in range(6):
            assert await ask() == 200
        assert Counted.opened == 5
        assert sorted(Counted.calls.values()) == [1, 1, 1, 1, 7]
        with pytest.raises(Unreachable):
            await ask("/v1/break")
        assert await asyncio.gather(*(ask() for _ in range(3))) == [200] * 3, "it goes on after one that broke"
        assert Counted.opened <= 7
        with clock(monkeypatch) as now:
            now[0] = 1e9
            assert await ask() == 200
        await asyncio.sleep(0.05)
        assert len(Counted.calls) == 1, "those that had no call for long are closed"
        await upstream.close()
        server.close()

    asyncio.run(scene())
