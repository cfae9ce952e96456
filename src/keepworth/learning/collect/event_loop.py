"""EventLoop: where a pipeline's rollouts live: a loop in a thread of its own, or one that runs while its caller waits for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class EventLoop:
    """changed: set by whoever finishes something that may be waited for, and by every task that fails.

    broken: the first failure of a task; whoever waits is to raise it (`require_alive`)."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.broken: BaseException | None = None
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def go_on_by_itself(self) -> None:
        """From now on it runs in a thread of its own, also between calls of `do`."""
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="sampler")
        self._thread.start()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop and wait for what it returns or raises."""
        if self._thread is None:
            return self._loop.run_until_complete(work)
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin `work` beside whatever runs. Called on the loop."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def require_alive(self) -> None:
        if self.broken is not None:
            raise self.broken

    def close(self) -> None:
        """Cancel everything and wait for its end. Called twice, it does nothing."""
        if self._loop.is_closed():
            return
        if self._thread is None:  # at once: an interruption leaves behind who was waited for, about to go on
            for each in asyncio.all_tasks(self._loop):
                each.cancel()
        self.do(self._ended_all())
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()

    async def _ended_all(self) -> None:
        if self._thread is not None:
            for each in self._tasks:
                each.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.broken = self.broken or task.exception()
            self.changed.set()
