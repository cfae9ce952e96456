"""`AsyncMemory`: every method of `Memory`, awaitable. Work runs in threads, so the event loop never waits for a disk."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

from keepworth.memory.episode import LiveEpisode
from keepworth.memory.memory import Memory


class AsyncMemory:
    """Wraps an open `Memory`, or opens one with the same arguments: `await m.add(...)`, `await m.search(...)`, and so on.
    Attributes that are not methods, such as `m.policy`, are read without `await`."""

    def __init__(self, memory: Memory | str = ":memory:", **options: Any) -> None:
        self.memory = memory if isinstance(memory, Memory) else Memory(memory, **options)

    def __getattr__(self, name: str) -> Any:
        return awaitable(self, Memory, "memory", name)

    @asynccontextmanager
    async def episode(self, *arguments: Any, **options: Any) -> AsyncIterator[AsyncEpisode]:
        """Begin an episode as `Memory.episode` does."""
        live = await asyncio.to_thread(self.memory.episode, *arguments, **options)
        try:
            yield AsyncEpisode(live)
        except BaseException as error:
            await asyncio.to_thread(live.end, f"stopped by {type(error).__name__}")
            raise
        await asyncio.to_thread(live.end, "completed")

    async def reopen(self, id: str) -> AsyncEpisode:
        """Continue an episode as `Memory.reopen` does."""
        return AsyncEpisode(await asyncio.to_thread(self.memory.reopen, id))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.memory.close)


class AsyncEpisode:
    """Every method of `LiveEpisode`, awaitable. Attributes that are not methods, such as `id`, are read without `await`."""

    def __init__(self, live: LiveEpisode) -> None:
        self.live = live

    def __getattr__(self, name: str) -> Any:
        return awaitable(self, LiveEpisode, "live", name)


def awaitable(wrapper: object, kind: type, of: str, name: str) -> Any:
    """Return an attribute of the object that a wrapper holds; a method is made awaitable and runs in a thread.

    Args:
        wrapper: The object that awaits.
        kind: The class of the object that it holds.
        of: The name under which it holds that object.
        name: The attribute.

    Raises:
        AttributeError: If there is no such method; the message lists those of `kind`.
    """
    inner = vars(wrapper).get(of)
    if name.startswith("_") or not hasattr(inner, name):
        verbs = ", ".join(verb for verb in dir(kind) if not verb.startswith("_"))
        raise AttributeError(f"{type(wrapper).__name__} has no {name!r}: it has the verbs of {kind.__name__} ({verbs})")
    verb = getattr(inner, name)
    if not inspect.ismethod(verb):
        return verb

    async def awaited(*arguments: Any, **options: Any) -> Any:
        return await asyncio.to_thread(verb, *arguments, **options)

    awaited.__name__, awaited.__doc__ = name, verb.__doc__
    return awaited
