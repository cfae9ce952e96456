"""A server that answers what it is told to, for what a healthy one cannot be made to do."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Script:
    """answers: (status, JSON or None to hang up, headers), taken in order; the last one repeats. In the place of JSON may stand a
    function of what was asked, the path and the key included."""

    answers: list[tuple[int, Any, dict[str, str]]]
    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)


@contextmanager
def scripted(*answers: tuple[int, Any] | tuple[int, Any, dict[str, str]]) -> Iterator[Script]:
    script = Script([(*answer, {})[:3] for answer in answers])  # type: ignore[misc]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            script.asked.append({"path": self.path, "key": self.headers.get("Authorization"), **json.loads(raw)})
            status, answer, headers = script.answers.pop(0) if len(script.answers) > 1 else script.answers[0]
            if callable(answer):
                answer = answer(script.asked[-1])
            if answer is None:
                self.close_connection = True
                return
            payload = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(payload)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    script.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield script
    finally:
        server.shutdown()
        server.server_close()
