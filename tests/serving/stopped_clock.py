"""A served memory whose event loop has a clock that stands still until a test lets time pass: no limit is met by chance."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from keepworth.serving.memory_server import MemoryServer


class StoppedServer(MemoryServer):
    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time()
        self._loop.time = lambda: self._now  # type: ignore[method-assign]
        async with super().running():
            yield

    def let_pass(self, seconds: float) -> None:
        """To be called from any thread, once a request has come."""
        self._now += seconds
        self._loop.call_soon_threadsafe(lambda: None)  # so that the loop looks at its clock

    def close(self) -> None:
        vars(self._loop).pop("time", None)  # it ends by its clock
        self.let_pass(0)
        super().close()
