"""A memory, and an agent's way to it, behind HTTP: the application that also serves models, with other routes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from keepworth.episodes.needs import needs_server

from keepworth.serving.access import Access, Tokens, tokens_of
from keepworth.serving.application import ServerLimits, application
from keepworth.serving.http_server import LOOPBACK, HttpServer
from keepworth.serving.memory_routes import memory_table
from keepworth.serving.metrics import Metrics
from keepworth.serving.open_memories import OpenMemories


class MemoryServer(HttpServer):
    """Serves the memory in `path` from `start` to `close`, or inside a `with` block.

    token: opens everything until the server ends; a new one if not given. port 0: any free one; `url` says which. host: an
    address of this machine that others reach, too; without TLS, which belongs in front. options: of `Memory`."""

    def __init__(
        self,
        path: str | Path,
        *,
        host: str = LOOPBACK,
        port: int = 0,
        token: str = "",
        limits: ServerLimits | None = None,
        **options: Any,
    ) -> None:
        self.memories = OpenMemories(path, options)
        self.metrics = Metrics()
        self.metrics.describe("keepworth_requests_total", "Answered requests.")
        self.metrics.describe("keepworth_request_seconds", "From the head of a request to its answer.")
        self.tokens = Tokens(tokens_of(Path(path)))
        self.token = self.tokens.passing(Access("start"), token)
        table = memory_table(self.memories, self.tokens, self.metrics)
        hosts = {} if host == LOOPBACK else {"hosts": None}
        try:
            super().__init__(
                lambda workers: application(
                    table,
                    self.tokens.check,
                    workers,
                    limits or ServerLimits(),
                    openai_errors=(),
                    served=self.metrics.served,
                    **hosts,
                ),
                host=host,
                port=port,
                name="memory-server",
            )
        except BaseException:
            self.memories.close()
            raise

    def close(self) -> None:
        super().close()
        self.memories.close()
