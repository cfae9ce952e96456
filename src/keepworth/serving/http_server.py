"""What listens: an application on uvicorn, in a thread of its own."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

from keepworth.episodes.needs import needs_server

import uvicorn
from starlette.types import ASGIApp

from keepworth.episodes.errors import KeepworthError

if TYPE_CHECKING:
    from typing import Self

LOOPBACK = "127.0.0.1"
MOST = 256
"""Connections that may be open at once."""


def reachable_here_alone(host: str) -> bool:
    """Whether an address to listen on is one of this machine that nobody else reaches."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class HttpServer:
    """Serves an application from `start` to `close`, or inside a `with` block; other threads of this process go on meanwhile.

    make: the application, given threads to answer in. port 0: any free one; `url` says which. patience: seconds after which
    answers that are still being given when it closes are broken off; None to wait for them."""

    def __init__(
        self,
        make: Callable[[Executor], ASGIApp],
        *,
        host: str = LOOPBACK,
        port: int = 0,
        name: str = "server",
        patience: int | None = None,
    ) -> None:
        # A place for every connection: a request that waits for something must not keep the one that ends the wait waiting.
        self._workers = ThreadPoolExecutor(2 * MOST, thread_name_prefix=name)
        app = make(self._workers)
        self._host = host
        self._socket = bind(host, port)
        self._port = int(self._socket.getsockname()[1])
        self._server = _Server(
            self.running,
            uvicorn.Config(
                app,
                http="h11",
                limit_concurrency=MOST,
                log_level="error",  # uvicorn warns of every caller that does not speak HTTP: anybody could fill a disk with that
                ws="none",
                lifespan="off",
                loop="asyncio",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                date_header=False,
                timeout_graceful_shutdown=patience,
                timeout_keep_alive=30,  # longer than clients keep theirs: they should be the ones to hang up
            ),
        )
        self._ended = threading.Event()  # a `join` that is interrupted takes the thread for ended (Python issue 45274)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def url(self) -> str:
        return f"http://{f'[{self._host}]' if ':' in self._host else self._host}:{self._port}"

    def start(self) -> Self:
        self._thread.start()
        return self

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Entered in the event loop before the first answer, and left after the last."""
        yield

    def close(self) -> None:
        """Running requests are ended; no new ones are taken, not even over connections that callers keep open.

        Returns when nothing computes any more: a process may end then."""
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._ended.wait()
        self._workers.shutdown()
        self._socket.close()

    def wait(self) -> None:
        """Until the server is closed, or the program interrupted."""
        self._ended.wait()

    def _run(self) -> None:
        try:
            self._server.run([self._socket])
        finally:
            self._ended.set()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *raised: object) -> None:
        self.close()


class _Server(uvicorn.Server):
    def __init__(self, running: Callable[[], AbstractAsyncContextManager[None]], config: uvicorn.Config) -> None:
        super().__init__(config)
        self._running = running

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        async with self._running():
            await super().serve(sockets)

    async def main_loop(self) -> None:
        while not self.should_exit:
            await asyncio.sleep(0.05)


def bind(host: str, port: int) -> socket.socket:
    """Listening from now on: callers that come before the server runs wait. Raises KeepworthError."""
    # asyncio sends small parts at once only over sockets that say that they are TCP: otherwise an answer's body waits for the
    # caller's word that it has the head, which comes after 40 ms.
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
