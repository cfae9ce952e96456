"""The memories that a server has open: a file, or a schema of a database, for each tenant, and a handle with the scope of each
token.

Tenants share no file and no schema: in one file, the numbers of items and the frequencies of words, on which scores depend, would
tell each tenant something about the others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from keepworth.base.recent import Recent
from keepworth.memory.episode import LiveEpisode, unwritten_episode
from keepworth.memory.item import ALL
from keepworth.memory.memory import Memory
from keepworth.memory.place import MemoryPlace, place_of
from keepworth.serving.access import Access
from keepworth.serving.calls import NotServed

EPISODES = 4096
"""How many episodes of a handle are held in memory; the state of others is read from the file."""
HANDLES = 4096
DAY = 24 * 3600.0
SHARE = 32 * 2**20
"""How many bytes the tokens of a person (or agent) that may only read add to the log in a day: some 16,000 searches."""
SHARE_OF_ALL = 10 * SHARE
"""The same for tokens that are bound to nobody, which programs of many people use."""


class LogShare:
    """What tokens that may only read still write: the log of searches and episodes. They may add `most` bytes at once, and as
    much again in a day, so that nobody fills a disk with them. Thread-safe."""

    def __init__(self, most: float) -> None:
        self._most = self._left = most
        self._at = time.monotonic()
        self._lock = threading.Lock()

    def take(self, size: int) -> bool:
        """Take so many bytes, and return whether they were left."""
        with self._lock:
            now = time.monotonic()
            self._left = min(self._most, self._left + (now - self._at) * self._most / DAY)
            self._at = now
            if size > self._left:
                return False
            self._left -= size
            return True


class OpenMemory:
    """A memory within the scope of a token, with its running episodes, and what readers may still add to its log. `workers` is
    how many processes serve it."""

    def __init__(self, memory: Memory, share: LogShare | None = None, workers: int = 1) -> None:
        self.memory, self.workers = memory, workers
        self.share = share or LogShare(SHARE / workers)
        self._live = Recent[str, LiveEpisode](EPISODES)
        self._under_way: set[str] = set()
        self._lock = threading.Lock()

    def episode(self, id: str) -> LiveEpisode:
        """Return the episode with this id, to continue it. Raises UnknownEpisode."""
        return self.hold(self.memory.reopen(id))

    def begin(self, task: str, **options: Any) -> LiveEpisode:
        """Begin an episode that `write_episode` puts on file, and hold it. Raises InvalidText, InvalidScope."""
        return self.hold(unwritten_episode(self.memory, task, **options))

    def hold(self, live: LiveEpisode) -> LiveEpisode:
        """Hold an episode in memory, until `EPISODES` others were held since, and return it."""
        with self._lock:
            self._live[live.id] = live
        return live

    def logs(self, access: Access, size: int) -> bool:
        """Return whether something of this size that a caller does is still logged."""
        return "write" in access.roles or self.share.take(size)

    def require_room(self, access: Access, size: int) -> None:
        """Raise NotServed where something of this size that a caller does cannot be logged any more."""
        if not self.logs(access, size):
            raise NotServed(
                "This token may only read, and what it may add to the log in a day is used up.",
                "Search outside episodes, use a token with the role write, or go on tomorrow.",
                status=429,
            )

    def touch(self, id: str) -> None:
        """Open an episode, unless `id` is "", so that searches in it wait for its next act. Raises UnknownEpisode."""
        if id:
            self.episode(id)

    @contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """Raise NotServed if a request with this name is being answered already."""
        with self._lock:
            if name in self._under_way:
                raise under_way()
            self._under_way.add(name)
        try:
            yield
        finally:
            with self._lock:
                self._under_way.discard(name)


def under_way() -> NotServed:
    """Return the refusal of a request whose twin is being answered."""
    return NotServed(
        "A request with this key is being answered.", "Ask again in a moment.", status=409, about="Idempotency-Key"
    )


class OpenMemories:
    """Opens the memories of a server. `path` is that of the tenant "" (see `MemoryPlace.of_tenant`), `options` are `Memory`'s.
    `workers` is how many processes serve them: each lets readers add its part to the log, and logs at once, as what a caller does
    next may reach another one."""

    def __init__(self, path: str | Path | MemoryPlace, options: Mapping[str, Any], *, workers: int = 1) -> None:
        self.place, self.workers = place_of(path), workers
        self._options = {**options, **({"log": "at once"} if workers > 1 else {})}
        self._lock = threading.Lock()
        self._files: dict[str, Memory] = {}
        self._handles = Recent[tuple[Any, ...], OpenMemory](HANDLES)
        self._opened: Callable[[OpenMemory], None] = lambda _: None
        self._of_tenant("")  # so that a bad file or option is reported at the start

    def of(self, access: Access) -> OpenMemory:
        shared = {name: "write" in permissions for name, permissions in access.shared.items()}
        bounds = (access.tenant, access.user_id, access.agent_id, *sorted(shared.items()))
        with self._lock:
            handle = self._handles.get(bounds)
            if handle is None:
                memory = self._of_tenant(access.tenant)
                share = LogShare((SHARE_OF_ALL if access.whole else SHARE) / self.workers)
                if not access.whole:
                    memory = memory.within(
                        user_id=access.user_id or ALL, agent_id=access.agent_id or ALL, shared=shared or None
                    )
                handle = OpenMemory(memory, share, self.workers)
            self._handles[bounds] = handle
            return handle

    def when_opened(self, then: Callable[[OpenMemory], None]) -> None:
        """Call `then` with each open memory, and later with each one that is opened."""
        with self._lock:
            self._opened = then
            for memory in self._files.values():
                then(OpenMemory(memory))

    def paths(self) -> tuple[str, ...]:
        """Return the paths of the open memories, the longest first."""
        return tuple(
            sorted({*(file.path for file in list(self._files.values())), str(self.place)}, key=len, reverse=True)
        )

    def close(self) -> None:
        with self._lock:
            for memory in self._files.values():
                memory.close()
            self._files.clear()
            self._handles.clear()

    def _of_tenant(self, tenant: str) -> Memory:
        memory = self._files.get(tenant)
        if memory is None:
            place = self.place.of_tenant(tenant)
            if tenant and not place.on_server:
                place.file.parent.mkdir(mode=0o700, exist_ok=True)
            memory = self._files[tenant] = Memory(place.opens, tenant=tenant or ALL, **self._options)
            self._opened(OpenMemory(memory))
        return memory
