"""Encodes the queries of calls that wait for memory, all that wait at once in one batch.

A neural encoder takes longer than the rest of a call, computes outside Python, and takes less for several texts than for one
after the other. So while it reads one batch, the thread that recalls serves the calls of the batch before, and finds their
vectors cached.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from keepworth.memory.search.index import Embedder
from keepworth.memory.search.question import read

_LOG = logging.getLogger("keepworth.serving")
MOST = 32
"""The most queries of one batch: more take no less each, and the first of them would wait for the last."""


class WaitingQueries:
    """The queries of one event loop that wait to be encoded."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "gateway-encoder")
        self._waiting: list[tuple[Embedder, str, asyncio.Future[None]]] = []
        self._encoding: asyncio.Task[None] | None = None

    async def encode(self, embedder: Embedder, query: str) -> None:
        """Wait until the vectors of a query are cached, or the encoder has failed, of which the search will speak."""
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((embedder, query, done))
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
                try:
                    queries = [(embedder, query) for embedder, query, _ in batch]
                    await asyncio.get_running_loop().run_in_executor(self._thread, encode_together, queries)
                finally:
                    for *_, done in batch:
                        if not done.done():  # it is where the caller has left
                            done.set_result(None)
        finally:
            self._encoding = None


def encode_together(queries: Sequence[tuple[Embedder, str]]) -> None:
    """Encode queries, those of one encoder in one batch, so that its cache holds their vectors."""
    texts: dict[Embedder, list[str]] = {}
    for embedder, query in queries:
        texts.setdefault(embedder, []).extend(read(query).encoded)
    for embedder, listed in texts.items():
        try:
            embedder(listed)
        except Exception as error:  # the search of each call says what is wrong
            _LOG.debug("queries could not be encoded together: %r", error)
