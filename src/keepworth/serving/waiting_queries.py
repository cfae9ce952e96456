"""Encodes the queries of calls that wait for memory, all that wait at once in one batch.

A neural encoder takes longer than the rest of a call, computes outside Python, and takes less for several texts than for one
after the other. So while it reads one batch, the thread that recalls serves the calls of the batch before, and finds their
vectors cached.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from keepworth.memory.search.index import Embedder
from keepworth.memory.search.question import read

_LOG = logging.getLogger("keepworth.serving")
FindQuery = Callable[[], tuple[Embedder, str] | None]
"""Returns the encoder of a call and its query, or None if it has none."""
MOST = 32
"""The most queries of one batch: more take no less each, and the first of them would wait for the last."""


class WaitingQueries:
    """The queries of one event loop that wait to be encoded."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "gateway-encoder")
        self._waiting: list[tuple[FindQuery, asyncio.Future[None]]] = []
        self._encoding: asyncio.Task[None] | None = None

    async def encode(self, find: FindQuery) -> None:
        """Wait until the vectors of a query, which `find` returns in a thread, are cached. If it or the encoder fails, the search
        will, too, and says why."""
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((find, done))
        if self._encoding is None:
            self._encoding = asyncio.create_task(self._encode_waiting())
        await done

    def close(self) -> None:
        """Encode no more."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _encode_waiting(self) -> None:
        """Encode until no query waits any more."""
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
                finds = [find for find, _ in batch]
                try:
                    with passing_over():  # after `close` the thread refuses: nothing is encoded beforehand
                        await asyncio.get_running_loop().run_in_executor(self._thread, encode_together, finds)
                finally:
                    for _, done in batch:
                        if not done.done():  # it is where the caller has left
                            done.set_result(None)
        finally:
            self._encoding = None


def encode_together(finds: Sequence[FindQuery]) -> None:
    """Encode queries, those of one encoder in one batch, so that its cache holds their vectors."""
    texts: dict[Embedder, list[str]] = {}
    for find in finds:
        with passing_over():
            if (query := find()) is not None:
                texts.setdefault(query[0], []).extend(read(query[1]).encoded)
    for embedder, listed in texts.items():
        with passing_over():
            embedder(listed)


@contextmanager
def passing_over() -> Iterator[None]:
    """Go on after an error, as the call itself meets it again and says what is wrong."""
    try:
        yield
    except Exception as error:
        _LOG.debug("a query is not encoded beforehand: %r", error)
