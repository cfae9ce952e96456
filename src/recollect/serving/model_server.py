"""A small server for an in-process model, on the standard library and bound to this machine.

It answers vLLM's documented routes (or SGLang's), so that what talks to an engine can be run and tested on a laptop against the
very weights that the in-process model has. It is no engine: it computes one request at a time and has no business on a network.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import logging
import socket
import threading
from collections.abc import Iterable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from recollect.episodes.errors import RecollectError, UnknownName
from recollect.models.inprocess import InProcessModel
from recollect.serving.routes import Route, Style, routes
from recollect.serving.served_model import NotServed, ServedModel

_LOG = logging.getLogger("recollect.serving")
_LARGEST_BODY = 256 * 2**20
_HOST = "127.0.0.1"


class ModelServer:
    """Serves `model` from `start` to `close`, or inside a `with` block; other threads of this process go on meanwhile.

    The model is taken over: see `ServedModel`. port 0: any free one; `url` says which. style: whose routes it answers; control:
    whether it also loads adapters, replaces weights, pauses and aborts; without: paths to leave out. api_key: what callers must
    send as a bearer token.
    """

    def __init__(
        self,
        model: InProcessModel,
        *,
        port: int = 0,
        style: Style = "recollect",
        control: bool = True,
        max_adapters: int = 8,
        api_key: str | None = None,
        without: Iterable[str] = (),
    ) -> None:
        served = model if isinstance(model, ServedModel) else ServedModel(model, max_adapters)
        if style not in ("recollect", "vllm", "sglang"):
            raise UnknownName("server style", style, ("recollect", "vllm", "sglang"))
        table = routes(style, control=control)
        for path in (left_out := frozenset(without)):
            if path not in {known for _, known in table}:
                raise UnknownName("route", path, {known for _, known in table})
        self.model = served
        self._table = {key: route for key, route in table.items() if key[1] not in left_out}
        try:
            self._server = _Server((_HOST, port), _Handler)
        except OSError as error:
            raise RecollectError(
                f"Port {port} of {_HOST} cannot be listened on ({error.strerror}).", "Choose another, or 0."
            ) from error
        self._server.model, self._server.table, self._server.api_key = served, self._table, api_key
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://{_HOST}:{self._server.server_port}"

    def start(self) -> ModelServer:
        self._thread.start()
        return self

    def close(self) -> None:
        """Running requests are aborted; no new ones are taken, not even over connections that callers keep open."""
        self.model.resume()
        self.model.abort()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
        self._server.hang_up()

    def wait(self) -> None:
        """Until the server is closed, or the program interrupted."""
        self._thread.join()

    def __enter__(self) -> ModelServer:
        return self.start()

    def __exit__(self, *raised: object) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    model: ServedModel
    table: dict[tuple[str, str], Route]
    api_key: str | None

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.gone = False
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._connections.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """Ends the connections that callers keep open, whose threads would go on answering after the listener is gone.

        What is being answered is still sent, so only the reading side is shut.
        """
        with self._lock:
            self.gone = True
            for connection in self._connections:
                with contextlib.suppress(OSError):  # the caller hung up first
                    connection.shutdown(socket.SHUT_RD)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    # Head and body are two writes; without this the second waits for the first to be acknowledged.
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_OPTIONS(self) -> None:
        self._answer("OPTIONS")

    def log_message(self, format: str, *args: Any) -> None:
        _LOG.debug(format, *args)

    def _answer(self, method: str) -> None:
        if self.server.gone:  # it may have arrived before the reading side was shut
            self.close_connection = True
            return
        try:
            self._send(HTTPStatus.OK, self._result(method))
        except NotServed as error:
            self._send(error.status, _error(str(error), error.status))
        except (RecollectError, ValueError) as error:
            self._send(HTTPStatus.BAD_REQUEST, _error(str(error), HTTPStatus.BAD_REQUEST))
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the caller left
        except Exception as error:
            _LOG.exception("%s %s failed", method, self.path)
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            self._send(status, _error(f"{type(error).__name__}: {error}", status))

    def _result(self, method: str) -> Any:
        split = urlsplit(self.path)
        body = self._body()
        self._check_caller()
        if (method, split.path) not in self.server.table:
            known = any(path == split.path for _, path in self.server.table)
            status = HTTPStatus.METHOD_NOT_ALLOWED if known else HTTPStatus.NOT_FOUND
            raise NotServed(f"There is no route {method} {split.path}.", status=status)
        return self.server.table[method, split.path](self.server.model, body, dict(parse_qsl(split.query)))

    def _body(self) -> dict[str, Any]:
        length = self.headers.get("Content-Length", "0")
        if not length.isdigit() or int(length) > _LARGEST_BODY:
            self.close_connection = True
            raise NotServed(f"A body may have up to {_LARGEST_BODY} bytes.", status=413)
        raw = self.rfile.read(int(length))
        if not raw:
            return {}
        if self.headers.get_content_type() != "application/json":
            # Pages of other sites can make a browser send plain forms here, not JSON.
            raise NotServed("A body must be sent as application/json.", status=415)
        body = json.loads(raw)
        if not isinstance(body, dict):
            raise NotServed("A body must be a JSON object.")
        return body

    def _check_caller(self) -> None:
        host = self.headers.get("Host", "").rsplit(":", 1)[0]
        if host not in (_HOST, "localhost"):
            raise NotServed(f"This server answers to {_HOST} only, not to {host!r}.", status=403)
        key = self.server.api_key
        if key is not None and not hmac.compare_digest(
            self.headers.get("Authorization", "").encode(), f"Bearer {key}".encode()
        ):
            raise NotServed("The key is missing or wrong.", status=401)

    def _send(self, status: int, answer: Any) -> None:
        sentence = isinstance(answer, str)
        payload = b"" if answer is None else (answer if sentence else json.dumps(answer)).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8" if sentence else "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)


def _error(message: str, status: int) -> dict[str, Any]:
    return {"error": {"message": message, "type": HTTPStatus(status).phrase.replace(" ", ""), "code": int(status)}}
