"""Callers that mean harm, or are broken: refused early, bounded, answered with a reason, and no trouble for anybody else."""

from __future__ import annotations

import contextlib
import hmac
import json
import logging
import socket
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from keepworth.serving import application as module
from keepworth.serving.application import ServerLimits, application
from keepworth.serving.calls import NotServed, ServedCall, openai_error
from keepworth.serving.http_server import HttpServer

KEY = "sesame-1905"


class Counting(HttpServer):
    """Says how long the text of a call is. A call with `wait` is answered when `go` is set."""

    def __init__(self, limits: ServerLimits) -> None:
        self.reached, self.go = threading.Event(), threading.Event()

        def check(path: str, authorization: str) -> None:
            if not hmac.compare_digest(authorization.encode(), f"Bearer {KEY}".encode()):
                raise NotServed("The key is missing or wrong.", status=401)

        def count(call: ServedCall) -> dict[str, int]:
            if call.body.get("wait"):
                self.reached.set()
                assert self.go.wait(60)
            return {"count": len(call.body.get("text", ""))}

        table = {("POST", "/count"): count, ("GET", "/health"): lambda call: {}}
        shapes = {"/": openai_error}
        super().__init__(
            lambda workers: application(table, check, workers, limits, error_shapes=shapes), name="counting", patience=5
        )


@pytest.fixture
def server() -> Iterator[Counting]:
    with Counting(ServerLimits(body=2**16, bodies=3 * 2**16)) as server:
        yield server


@pytest.fixture
def client(server: Counting) -> Iterator[httpx.Client]:
    with client_of(server) as client:
        yield client


def client_of(server: Counting) -> httpx.Client:
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    return httpx.Client(base_url=server.url, trust_env=False, timeout=300, headers=headers)


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing that a caller does is worth a line of the log."""
    caplog.set_level(logging.INFO)
    yield
    assert [record for record in caplog.records if not record.name.startswith("httpx")] == []


def connected(server: Counting) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(server.url.rsplit(":", 1)[1])), 20)


def raw(server: Counting, *parts: bytes) -> bytes:
    """What comes back until the server hangs up."""
    answer = b""
    with connected(server) as connection, contextlib.suppress(ConnectionResetError, BrokenPipeError):
        for part in parts:
            connection.sendall(part)
        while more := connection.recv(65536):
            answer += more
    return answer


def head(path: str, *lines: str, key: bool = True, method: str = "POST") -> bytes:
    own = [f"Authorization: Bearer {KEY}"] if key else []
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *own, *lines, "", ""]).encode()


def refused(response: httpx.Response, status: int = 400) -> str:
    assert response.status_code == status, response.text
    return str(response.json()["error"]["message"])


def test_a_body_that_is_too_long_is_refused_by_its_announced_length(server: Counting, quiet: None) -> None:
    with connected(server) as connection:
        connection.sendall(head("/count", "Content-Type: application/json", "Content-Length: 999999999999"))
        assert connection.recv(65536).startswith(b"HTTP/1.1 413")


def test_a_body_of_chunks_is_read_and_bounded_too(client: httpx.Client, quiet: None) -> None:
    def chunks(count: int) -> Iterator[bytes]:
        yield b'{"text": "'
        yield from [b"x" * 1000] * count
        yield b'"}'

    assert client.post("/count", content=chunks(3)).json()["count"] == 3000
    assert "up to 65536 bytes" in refused(client.post("/count", content=chunks(100)), 413)
    assert client.post("/count", content=chunks(1)).json()["count"] == 1000


@pytest.mark.parametrize(
    ("lines", "body"),
    [
        (["Transfer-Encoding: chunked", "Content-Length: 30"], b"0\r\n\r\nGET /health HTTP/1.1\r\n\r\n"),
        (["Content-Length: 2", "Content-Length: 30"], b"{}GET /health HTTP/1.1\r\nHost: a\r\n\r\n"),
        (["Content-Length: \xb2"], b"{}"),
        (["Transfer-Encoding: chunked"], b"zz\r\n{}\r\n0\r\n\r\n"),
        (["Transfer-Encoding: chunked, chunked"], b"2\r\n{}\r\n0\r\n\r\n"),
    ],
)
def test_ambiguous_body_length_is_refused(server: Counting, quiet: Any, lines: Any, body: bytes) -> None:
    """Otherwise a body is read as the next request, by a proxy and here differently."""
    answer = raw(server, head("/count", "Content-Type: application/json", "Connection: close", *lines) + body)
    assert answer.count(b"HTTP/1.1") == 1
    assert answer.split()[1] in (b"400", b"501")


def test_non_http_input_is_refused_without_a_trace(server: Counting, quiet: None) -> None:
    assert raw(server, b"\x16\x03\x01\x02\x00\xff\xfe\r\n\r\n").startswith(b"HTTP/1.1 400")
    raw(server, b"GET / HTTP/1.1\r\n" + b"".join(b"X%d: y\r\n" % i for i in range(20_000)) + b"\r\n")
    assert raw(server, head("/health", "Connection: close", method="GET")).startswith(b"HTTP/1.1 200")


def test_a_body_that_trickles_in_is_not_waited_for(server: Counting, quiet: None, monkeypatch) -> None:
    monkeypatch.setattr(module, "BODY_SECONDS", 0.3)
    asked = head("/count", "Content-Type: application/json", "Content-Length: 100")
    assert raw(server, asked, b'{"tex').startswith(b"HTTP/1.1 408")


def test_the_bodies_that_are_answered_at_once_are_bounded_in_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAIT_SECONDS", 0.3)
    body = json.dumps({"text": "x" * 40_000, "wait": True}).encode()
    with Counting(ServerLimits(body=2**16, bodies=2**16)) as server, client_of(server) as client:
        first = threading.Thread(target=lambda: client.post("/count", content=body))
        first.start()
        assert server.reached.wait(20)
        late = client.post("/count", content=body)
        assert "at once" in refused(late, 503)
        assert late.headers["retry-after"] == "5"
        server.go.set()
        first.join(20)
        assert client.post("/count", content=body).status_code == 200


def test_callers_that_hang_up_leave_no_trace(
    server: Counting, client: httpx.Client, quiet: None, capfd: pytest.CaptureFixture[str]
) -> None:
    body = json.dumps({"text": "hi", "wait": True}).encode()
    whole = head("/count", "Content-Type: application/json", f"Content-Length: {len(body)}") + body
    pieces = [whole[: len(whole) * part // 7] for part in range(1, 8)]
    for piece in [*pieces, head("/count", "Content-Length: 9", key=False)] * 3:
        with connected(server) as connection:
            connection.sendall(piece)
            # Reset instead of a polite end.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    server.go.set()
    assert client.post("/count", json={"text": "hi"}).status_code == 200
    assert capfd.readouterr().err == ""


def test_closing_waits_for_computing_threads_only() -> None:
    """A thread that computes while the interpreter ends takes the whole process down with an abort."""
    server = Counting(ServerLimits())
    server.start()
    answers: list[bytes] = []
    body = json.dumps({"text": "hi", "wait": True}).encode()
    asked = head("/count", "Content-Type: application/json", f"Content-Length: {len(body)}", "Connection: close")
    caller = threading.Thread(target=lambda: answers.append(raw(server, asked + body)))
    caller.start()
    assert server.reached.wait(20)
    closing = threading.Thread(target=server.close)
    closing.start()
    assert closing.is_alive()
    server.go.set()
    closing.join(20)
    caller.join(20)
    assert not closing.is_alive()
    assert answers[0].startswith(b"HTTP/1.1 200")
    assert not any(each.name.startswith("counting") for each in threading.enumerate())
