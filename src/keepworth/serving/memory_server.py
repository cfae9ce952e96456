"""Serves a memory over HTTP: its routes, the page, and on request the gateway and the MCP tools."""

from __future__ import annotations

from collections.abc import AsyncIterator
from concurrent.futures import Executor
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keepworth.base.needs import needs_serve

from starlette.types import ASGIApp

from keepworth.memory.place import MemoryPlace, place_of
from keepworth.memory.scan import Scan
from keepworth.serving.access import Access, Tokens, tokens_of
from keepworth.serving.application import LOCAL_HOSTS, ServerLimits, Streamed, application
from keepworth.serving.calls import anthropic_error, openai_error
from keepworth.serving.http_server import LOOPBACK, HttpServer, reachable_here_alone
from keepworth.serving.memory_routes import describe_routes, memory_table, who
from keepworth.serving.open_memories import OpenMemories
from keepworth.serving.otlp import PATHS, otlp_error, receiver_table
from keepworth.serving.page_routes import list_episode_summaries, overview, page_table
from keepworth.serving.verbs import VERBS

if TYPE_CHECKING:
    from keepworth.serving.gateway import Gateway, GatewaySettings
    from keepworth.serving.upstream import Upstream
    from keepworth.serving.workers import WorkerPlace

OPENAI_PATHS = tuple(
    f"/v1/{name}"
    for name in (
        *("chat", "models", "embeddings", "completions", "responses", "conversations"),
        *("moderations", "rerank", "images", "audio", "files", "batches"),
    )
)
"""The beginnings of OpenAI's paths, whose errors have OpenAI's form."""
ANTHROPIC_PATH = "/v1/messages"
_NO_GATEWAY = "The gateway is off: start the server with --upstream URL, such as https://api.openai.com/v1."
_OF_PAGES = (overview, list_episode_summaries)
"""Verbs that the page needs beside those of memory."""
PATIENCE = 10
"""Seconds that running answers have to end when the server closes."""


def describe() -> dict[str, Any]:
    """Return the OpenAPI description of a memory's routes, which the server answers at /openapi.json."""
    return describe_routes((*VERBS, who, *_OF_PAGES))


class MemoryServer(HttpServer):
    """Serves the memory at `path`, a file or an address, from `start` to `close`, or inside a `with` block.

    Args:
        host, port: The address to listen on, as for `HttpServer`. There is no TLS: put a proxy in front if others reach it.
        token: A token that allows everything until the server ends; a new one if not given.
        upstream: The endpoint to which the `Gateway` passes calls, or an `Upstream`, such as a model of this process
            (`keepworth.training.model_server.upstream_of`); "" for no gateway. The server then owns it.
        upstream_key: The bearer token for the upstream.
        mcp: Whether to offer tools for hosts of the Model Context Protocol at /mcp.
        place: Its place among several processes that serve this memory (`keepworth.serving.workers`); None if it is alone.
        options: Options of `Memory`. Unless `scan` is given, items with secrets go into quarantine.
    """

    def __init__(
        self,
        path: str | Path | MemoryPlace,
        *,
        host: str = LOOPBACK,
        port: int = 0,
        token: str = "",
        limits: ServerLimits | None = None,
        upstream: str | Upstream = "",
        upstream_key: str = "",
        gateway: GatewaySettings | None = None,
        mcp: bool = False,
        place: WorkerPlace | None = None,
        **options: Any,
    ) -> None:
        served = place_of(path)
        self.tokens = Tokens(tokens_of(served.base))
        self.token = self.tokens.passing(Access("start"), token)
        self.gateway: Gateway | None = None
        self.mcp = mcp
        self.keyless = isinstance(upstream, str) and bool(upstream) and not upstream_key
        self._limits = limits or ServerLimits()
        self._sessions: Any = None
        there: Upstream | None = None
        if not isinstance(upstream, str):
            there = upstream
        elif upstream:
            from keepworth.serving.upstream import Upstream

            there = Upstream(upstream, upstream_key)
        self.leads_to = "" if there is None else there.url
        make = partial(self._application, host=host, upstream=there, settings=gateway, mcp=mcp, place=place)
        workers, listener = (1, None) if place is None else (place.count, place.listener)
        self.memories = OpenMemories(served, {"scan": Scan(), **options}, workers=workers)
        try:
            super().__init__(make, host=host, port=port, name="memory-server", patience=PATIENCE, listener=listener)
        except BaseException:
            self.memories.close()
            raise

    def _application(
        self,
        workers: Executor,
        *,
        host: str,
        upstream: Upstream | None,
        settings: GatewaySettings | None,
        mcp: bool,
        place: WorkerPlace | None,
    ) -> ASGIApp:
        streamed: dict[tuple[str, str], Streamed] = {}
        if upstream is not None:
            from keepworth.serving.gateway import Gateway

            others = None if place is None else place.unstored
            self.gateway = Gateway(self.memories, upstream, workers, settings, others)
            self.memories.when_opened(self.gateway.resume)
            streamed = self.gateway.streamed()
        mounted: dict[str, ASGIApp] = {}
        if mcp:
            from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

            from keepworth.serving.mcp_tools import mcp_server

            # It keeps no state between requests, whose host, origin and token the server has checked.
            self._sessions = StreamableHTTPSessionManager(
                mcp_server(self.memories), json_response=True, stateless=True, max_request_body_size=self._limits.body
            )
            mounted["/mcp"] = self._sessions.handle_request
        page = page_table()
        return application(
            {**memory_table(self.memories, _OF_PAGES), **page},
            self.tokens.check,
            workers,
            self._limits,
            unparsed=receiver_table(self.memories, self._limits.body),
            streamed=streamed,
            mounted=mounted,
            error_shapes={
                **dict.fromkeys(OPENAI_PATHS, openai_error),
                **dict.fromkeys(PATHS, otlp_error),
                ANTHROPIC_PATH: anthropic_error,
            },
            hints={
                **({} if mcp else {"/mcp": "The tools for hosts are off: start the server with --mcp."}),
                **({} if upstream is not None else dict.fromkeys((*OPENAI_PATHS, ANTHROPIC_PATH), _NO_GATEWAY)),
            },
            hosts=(*LOCAL_HOSTS, host) if reachable_here_alone(host) else None,
            public=["/health", *(path for _, path in page)],
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with nullcontext() if self._sessions is None else self._sessions.run():
            try:
                yield
            finally:
                if self.gateway is not None:
                    await self.gateway.end(set(self._server.server_state.tasks))

    def close(self) -> None:
        super().close()
        self.memories.close()
