"""AsyncMemory: every verb of `Memory`, awaitable. Work runs in threads, so the event loop never waits for a disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any

from keepworth.memory.episode import LiveEpisode
from keepworth.memory.memory import Memory

_VERBS = frozenset(
    name for name in dir(Memory) if not name.startswith("_") and callable(getattr(Memory, name)) and name != "episode"
)


class AsyncMemory:
    """Wraps an open `Memory`, or opens one with the same arguments. `await m.add(...)`, `await m.search(...)`, and so on."""

    def __init__(self, memory: Memory | str = ":memory:", **options: Any) -> None:
        self.memory = memory if isinstance(memory, Memory) else Memory(memory, **options)

    def __getattr__(self, name: str) -> Any:
        if name not in _VERBS:
            raise AttributeError(
                f"AsyncMemory has no {name!r}: it has the verbs of Memory ({', '.join(sorted(_VERBS))})"
            )
        verb = getattr(self.memory, name)

        async def awaited(*arguments: Any, **options: Any) -> Any:
            return await asyncio.to_thread(verb, *arguments, **options)

        awaited.__name__ = name
        awaited.__doc__ = verb.__doc__
        return awaited

    @asynccontextmanager
    async def episode(self, **options: Any) -> AsyncIterator[AsyncEpisode]:
        """As `Memory.episode`."""
        live = await asyncio.to_thread(self.memory.episode, **options)
        try:
            yield AsyncEpisode(live)
        except BaseException as error:
            await asyncio.to_thread(live.end, f"stopped by {type(error).__name__}")
            raise
        await asyncio.to_thread(live.end, "completed")

    async def __aenter__(self) -> AsyncMemory:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.memory.close)


class AsyncEpisode:
    """As `LiveEpisode`, awaitable."""

    def __init__(self, live: LiveEpisode) -> None:
        self._live = live

    @property
    def id(self) -> str:
        return self._live.id

    async def search(self, query: str = "", **options: Any) -> Any:
        return await asyncio.to_thread(self._live.search, query, **options)

    async def act(self, action: str) -> None:
        await asyncio.to_thread(self._live.act, action)

    async def step_reward(self, value: float) -> None:
        await asyncio.to_thread(self._live.step_reward, value)

    async def remember(self, text: str, **options: Any) -> Any:
        return await asyncio.to_thread(self._live.remember, text, **options)

    async def apply(self, operation: Any, **options: Any) -> Any:
        return await asyncio.to_thread(self._live.apply, operation, **options)

    async def reward(self, value: float, **options: Any) -> Any:
        return await asyncio.to_thread(self._live.reward, value, **options)
