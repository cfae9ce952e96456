"""A small server for an in-process model, bound to this machine: Starlette on uvicorn, in a thread of its own.

It answers vLLM's documented routes (or SGLang's), so that what talks to an engine can be run and tested on a laptop against the
very weights that the in-process model has. It is no engine: it computes one request at a time and has no business on a network.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from keepworth.episodes.extras import needs_serve

import uvicorn

from keepworth.episodes.errors import KeepworthError
from keepworth.models.inprocess import InProcessModel
from keepworth.serving.application import Keys, Limits, application
from keepworth.serving.connections import Connection
from keepworth.serving.routes import FEATURES, Style, routes
from keepworth.serving.served_model import ServedModel

_HOST = "127.0.0.1"


class ModelServer:
    """Serves `model` from `start` to `close`, or inside a `with` block; other threads of this process go on meanwhile.

    The model is taken over: see `ServedModel`. port 0: any free one; `url` says which. style: whose routes it answers; control:
    whether it also loads adapters, replaces weights, pauses and aborts; without: of FEATURES[style], what to leave out.
    api_key: what callers must send as a bearer token; control_key: what they must send instead where they change the model.
    limits: of bodies.
    """

    def __init__(
        self,
        model: InProcessModel,
        *,
        port: int = 0,
        style: Style = "keepworth",
        control: bool = True,
        max_adapters: int = 8,
        api_key: str | None = None,
        control_key: str | None = None,
        without: Iterable[str] = (),
        limits: Limits | None = None,
    ) -> None:
        left_out = frozenset(without)
        routes(style, left_out)  # raises for names that do not exist
        offered = routes(style, FEATURES[style] - left_out if control else frozenset())
        self.model = model if isinstance(model, ServedModel) else ServedModel(model, max_adapters, style == "vllm")
        # A place for every connection: a request that waits for the model must not keep the one that resumes it waiting.
        self._workers = ThreadPoolExecutor(2 * Connection.most, thread_name_prefix="model-server")
        keys = Keys(api_key, control_key, offered.controlled)
        app = application(self.model, offered.table, keys, self._workers, limits or Limits())
        self._socket = _bound(port)
        self._port = int(self._socket.getsockname()[1])
        self._server = _Server(
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
                timeout_keep_alive=30,  # longer than clients keep theirs: they should be the ones to hang up
            )
        )
        self._ended = threading.Event()  # a `join` that is interrupted takes the thread for ended (Python issue 45274)
        self._thread = threading.Thread(target=self._run, name="model-server", daemon=True)

    @property
    def url(self) -> str:
        return f"http://{_HOST}:{self._port}"

    def start(self) -> ModelServer:
        self._thread.start()
        return self

    def close(self) -> None:
        """Running requests are aborted; no new ones are taken, not even over connections that callers keep open.

        Returns when nothing computes any more: a process may end then."""
        self._server.should_exit = True
        self.model.close()
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

    def __enter__(self) -> ModelServer:
        return self.start()

    def __exit__(self, *raised: object) -> None:
        self.close()


class _Server(uvicorn.Server):
    async def main_loop(self) -> None:
        while not self.should_exit:
            await asyncio.sleep(0.05)


def _bound(port: int) -> socket.socket:
    """Listening from now on: callers that come before the server runs wait."""
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((_HOST, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise KeepworthError(
            f"Port {port} of {_HOST} cannot be listened on ({error.strerror}).", "Choose another, or 0."
        ) from error
    return listener
