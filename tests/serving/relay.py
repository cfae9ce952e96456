"""A wire between a client and a server that can be cut, and joined again."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from urllib.parse import urlsplit


class Relay:
    """Passes on to the server behind `of` what comes to `url`, until it is cut: then all connections break, and none is taken."""

    def __init__(self, of: str) -> None:
        parsed = urlsplit(of)
        assert parsed.hostname is not None
        assert parsed.port is not None
        self._of = parsed.hostname, parsed.port
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._port = 0
        self.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def join(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self._port))
        self._port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def cut(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for each in self._open:
                with suppress(OSError):
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    each.shutdown(socket.SHUT_RDWR)
                each.close()
            self._open.clear()

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *raised: object) -> None:
        self.cut()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._of)
            except OSError:
                near.close()
                continue
            with self._lock:
                self._open |= {near, far}
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
