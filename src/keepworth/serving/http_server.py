"""What listens: Starlette on uvicorn, in a thread of its own, with deadlines for what callers send."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import socket
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from keepworth.episodes.needs import needs_server

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from keepworth.episodes.errors import KeepworthError

if TYPE_CHECKING:
    from typing import Self

LOOPBACK = "127.0.0.1"


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
        self._workers = ThreadPoolExecutor(2 * Connection.most, thread_name_prefix=name)
        app = make(self._workers)
        self._host = host
        self._socket = _bound(host, port)
        self._port = int(self._socket.getsockname()[1])
        self._server = _Server(
            self.running,
            uvicorn.Config(
                app,
                http=Connection,
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

    def let_go(self) -> None:
        """End what is being answered, and take nothing new."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Entered in the event loop before the first answer, and left after the last."""
        yield

    def close(self) -> None:
        """Running requests are ended; no new ones are taken, not even over connections that callers keep open.

        Returns when nothing computes any more: a process may end then."""
        self._server.should_exit = True
        self.let_go()
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


def _bound(host: str, port: int) -> socket.socket:
    """Listening from now on: callers that come before the server runs wait."""
    # asyncio sends small parts at once only over sockets that say that they are TCP: otherwise an answer's body waits for the
    # caller's word that it has the head, which comes after 40 ms.
    listener = None
    try:
        listener = socket.socket(family_of(host), socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        if listener is not None:
            listener.close()
        raise KeepworthError(
            f"Port {port} of {host} cannot be listened on ({error.strerror}).", "Choose another, or 0."
        ) from error
    return listener


def family_of(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


# Connections with deadlines: what uvicorn leaves open for as long as the caller likes is ended here.
#
# uvicorn bounds how long an idle connection is kept, not how long a head or a body may take to arrive, and it counts connections
# only when a request has arrived. A caller that says little, slowly, would hold a place for ever.


_LOG = logging.getLogger("keepworth.serving.http_server")
_LOG.setLevel(
    logging.ERROR
)  # uvicorn warns of every caller that does not speak HTTP: anybody could fill a disk with that


class Connection(H11Protocol):
    """One caller's connection. Seconds: how long a head, a body, and the rest of a refused body may take in all."""

    head_seconds: ClassVar[float] = 5.0
    body_seconds: ClassVar[float] = 60.0
    rest_seconds: ClassVar[float] = 5.0
    most: ClassVar[int] = 256

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.logger = _LOG
        self.access_log = False
        self._waits_for = ""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most:
            self._refuse(503, f"{self.most} connections are open, and no more may be. Try again.")
        else:
            self._expect("head")

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect("")
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        state = self.conn.their_state
        if not self.transport.is_closing() and not (state is h11.SEND_BODY and self._waits_for == "rest"):
            self._expect("head" if state is h11.IDLE else "body" if state is h11.SEND_BODY else "")

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY:
            self._expect("rest")  # answered before its body came; what still comes is thrown away

    def shutdown(self) -> None:
        """Called when the server closes: what has not been asked yet is not waited for."""
        if self._waits_for:
            if self.cycle is not None:
                self.cycle.disconnected = True
                self.cycle.message_event.set()
            self.transport.abort()
        else:
            super().shutdown()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP. Called by uvicorn, also in the middle of a body that is already being waited for."""
        self._refuse(400, msg)

    def _expect(self, what: str) -> None:
        if what == self._waits_for:
            return  # the time for one thing runs from its beginning, however it trickles in
        if self._timer is not None:
            self._timer.cancel()
        self._waits_for, self._timer = what, None
        if what:
            seconds = {"head": self.head_seconds, "body": self.body_seconds, "rest": self.rest_seconds}[what]
            self._timer = self.loop.call_later(seconds, self._too_late, what, seconds)

    def _too_late(self, what: str, seconds: float) -> None:
        if what == "rest":
            self.transport.abort()
        elif what == "head" and not self.conn.trailing_data[0]:
            self.transport.close()  # it never began to ask
        else:
            self._refuse(408, f"The request's {what} did not arrive within {seconds:g} s.")

    def _refuse(self, status: int, message: str) -> None:
        """Answer if nothing was answered yet, and hang up."""
        self._expect("")
        if self.cycle is not None and not self.cycle.response_complete:
            answered = self.cycle.response_started
            self.cycle.disconnected = True  # so that the application's own answer, if it still comes, goes nowhere
            self.cycle.message_event.set()
        else:
            answered = False
        if not answered and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            # Which route is meant is not known yet: this is read by callers of OpenAI's routes, and as problem details.
            error = {"message": message, "type": "BadRequest", "code": status}
            problem = {"type": "about:blank", "status": status, "detail": message, "error": error}
            body = json.dumps(problem).encode()
            headers = [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(body)).encode()),
                (b"connection", b"close"),
            ]
            for event in (h11.Response(status_code=status, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
