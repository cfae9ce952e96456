"""Serves an ASGI application with uvicorn, in a thread of its own."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from keepworth.base.needs import needs_serve

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from keepworth.base.errors import KeepworthError

if TYPE_CHECKING:
    from typing import Self

LOOPBACK = "127.0.0.1"
MOST = 256
"""The most connections that are answered at once."""
CROWDED = "keepworth.crowded"
"""The key in the scope of a request over a connection beyond `MOST`."""


class _Connection(H11Protocol):
    """A connection. One beyond `MOST` reaches the application with `CROWDED`, so that the refusal has the form of its route;
    uvicorn's own limit would answer with plain text."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > MOST:
            app = self.app

            async def answer_crowded(scope: Any, receive: Any, send: Any) -> None:
                await app({**scope, CROWDED: True}, receive, send)

            self.app = answer_crowded


def reachable_here_alone(host: str) -> bool:
    """Whether an address to listen on can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class HttpServer:
    """Serves an application from `start` to `close`, or inside a `with` block; other threads of this process go on meanwhile.

    Args:
        make: Makes the application, given the threads in which it answers.
        port: 0 for any free one, which `url` then names.
        patience: Seconds that running answers have to end when the server closes; None waits for all of them.
        listener: What it listens to, in place of a socket at `host` and `port`.
    """

    def __init__(
        self,
        make: Callable[[Executor], ASGIApp],
        *,
        host: str = LOOPBACK,
        port: int = 0,
        name: str = "server",
        patience: int | None = None,
        listener: socket.socket | None = None,
    ) -> None:
        # Threads for all connections: a request that waits must not take the thread of the request that would end its wait.
        self._workers = ThreadPoolExecutor(2 * MOST, thread_name_prefix=name)
        app = make(self._workers)
        self._socket = listener or bind(host, port)
        self.url = address(host, port if listener else int(self._socket.getsockname()[1]))
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                http=_Connection,
                log_level="error",  # uvicorn warns of each request that is not HTTP, with which anybody could fill the disk
                ws="none",
                lifespan="off",
                loop="asyncio",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                date_header=False,
                timeout_graceful_shutdown=patience,
                timeout_keep_alive=30,  # longer than clients keep connections, so that it is they who close them
            )
        )
        self._ended = threading.Event()  # after an interrupted `join` the thread counts as ended (Python issue 45274)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> Self:
        self._thread.start()
        return self

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """A context that is entered in the event loop before the first answer and left after the last."""
        yield

    def close(self) -> None:
        """Close the server. It finishes running requests and takes no new ones, not even over open connections.

        Returns when nothing computes any more, so that the process may end."""
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._ended.wait()
        self._workers.shutdown()
        self._socket.close()

    def wait(self) -> None:
        """Wait until the server is closed or the program interrupted."""
        self._ended.wait()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        finally:
            self._ended.set()

    async def _serve(self) -> None:
        async with self.running():
            await self._server.serve([self._socket])

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *raised: object) -> None:
        self.close()


def address(host: str, port: int) -> str:
    """Return the address of a server as callers write it."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens: callers that connect before the server runs wait. Raises KeepworthError."""
    # asyncio sets TCP_NODELAY only on sockets whose protocol is given as TCP. Without it, the body of an answer waits up to 40 ms
    # for the caller's acknowledgement of the head.
    listener = None
    try:
        listener = socket.socket(
            socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP
        )
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        if listener is not None:
            listener.close()
        raise KeepworthError(
            f"Port {port} of {host} cannot be listened on ({error.strerror}).",
            "Another program may be using it: choose another with --port, or --port 0 for any that is free.",
        ) from error
    return listener
