"""What one caller can take of a server, and how a server stops."""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import logging
import os
import select
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from keepworth import Client
from keepworth.memory.errors import StorageFull
from keepworth.records.model import EncoderIdentity
from keepworth.serving import application, http_server, memory_server, open_memories
from keepworth.serving.access import Tokens, new_access
from keepworth.serving.application import ServerLimits
from keepworth.serving.memory_server import MemoryServer
from tests.serving.callers import with_token
from tests.serving.gate import until
from tests.serving.scripted_upstream import Script

MB = 2**20


def unfinished(server: MemoryServer, token: str, count: int) -> socket.socket:
    """A body of which `count` bytes come, and the rest does not."""
    connection = socket.create_connection(("127.0.0.1", int(server.url.rsplit(":", 1)[1])), 20)
    head = f"POST /v1/memory/items HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
    connection.sendall(f"{head}Content-Type: application/json\r\nContent-Length: {16 * MB}\r\n\r\n".encode())
    connection.sendall(b"x" * count)
    return connection


def test_a_request_of_more_headers_than_any_program_sends_is_refused(tmp_path: Path) -> None:
    with MemoryServer(tmp_path / "a.mem", encoder=None) as server:
        for count, status in ((100, b"HTTP/1.1 200"), (10_000, b"HTTP/1.1 431")):
            head = f"GET /v1/memory/items HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\n"
            head += "".join(f"X-{number}: y\r\n" for number in range(count))
            with socket.create_connection(("127.0.0.1", int(server.url.rsplit(":", 1)[1])), 20) as connection:
                connection.sendall(f"{head}\r\n".encode())
                assert connection.recv(100).startswith(status)


def test_unfinished_bodies_of_one_token_leave_room_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "WAIT_SECONDS", 1)
    limits = ServerLimits(body=16 * MB, bodies=40 * MB)
    with MemoryServer(tmp_path / "a.mem", encoder=None, limits=limits) as server:
        reader = server.tokens.passing(new_access(user_id="eve", roles=["read"]))
        first, second = unfinished(server, reader, 15 * MB), unfinished(server, reader, 30_000)  # which is not read
        with first, second, Client(server.url, server.token) as other:
            ((refused,), _, _) = select.select([first, second], [], [], 60)
            answer = refused.recv(1000)
            while b"of this token" not in answer and (more := refused.recv(1000)):  # it comes in pieces
                answer += more
            assert answer.startswith(b"HTTP/1.1 503")
            assert b"of this token" in answer
            assert other.add("tea", metadata={"long": "x" * 12 * MB}).text == "tea"


def test_calls_for_which_there_is_no_room_wait_for_it(tmp_path: Path, script: Script, upstream_url: str) -> None:
    """Eight at once through one token, each of nearly the size that a token may hold."""
    answered = list[int]()
    script.reply = lambda body: time.sleep(0.05) or "Noted."
    limits = ServerLimits(call=MB, bodies=2 * MB)
    with MemoryServer(tmp_path / "a.mem", encoder=None, limits=limits, upstream=upstream_url) as server:
        picture = {"type": "image_url", "image_url": {"url": "x" * (MB - 300)}}
        asked = {"model": "m", "messages": [{"role": "user", "content": [picture, {"type": "text", "text": "And?"}]}]}

        def call() -> None:
            with with_token(server) as client:
                answered.append(client.post("/v1/chat/completions", json=asked).status_code)

        callers = [threading.Thread(target=call) for _ in range(8)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(60)
        assert answered == [200] * 8
        with with_token(server) as client:
            assert client.post("/v1/chat/completions", json={**asked, "model": "m" * MB}).status_code == 413


def test_a_call_may_have_the_pictures_that_providers_take_and_the_memorys_own_routes_may_not(
    tmp_path: Path, script: Script, upstream_url: str
) -> None:
    with MemoryServer(tmp_path / "a.mem", encoder=None, upstream=upstream_url) as server, with_token(server) as client:
        body = {"model": "m", "messages": [{"role": "user", "content": "And?"}], "picture": "x" * 17 * MB}
        assert client.post("/v1/chat/completions", json=body).status_code == 200
        assert client.post("/v1/memory/search", json={"query": "x" * 17 * MB}).status_code == 413
    assert len(script.sent) == 1


def test_excess_connection_gets_an_error_in_the_form_of_its_route(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "MOST", 2)
    with MemoryServer(tmp_path / "a.mem", encoder=None, upstream="http://127.0.0.1:1") as server:
        port = int(server.url.rsplit(":", 1)[1])
        with contextlib.ExitStack() as idle:
            for _ in range(2):
                idle.enter_context(socket.create_connection(("127.0.0.1", port), 20))
            for path, field in (("/v1/memory/items", "detail"), ("/v1/models", "error"), ("/v1/messages", "error")):
                with with_token(server) as client:
                    answer = client.get(path)
                assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
                assert "connections" in str(answer.json()[field])

        def answers() -> bool:
            with with_token(server) as client:
                return client.get("/v1/memory/items").status_code == 200

        until(answers)


class Waiting:
    """An encoder that goes on when it is told to."""

    identity = EncoderIdentity("waiting", 8, True)

    def __init__(self) -> None:
        self.reached, self.go = threading.Event(), threading.Event()

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        self.reached.set()
        assert self.go.wait(60)
        return np.full((len(texts), 8), 8**-0.5, np.float32)


def test_stopping_server_answers_running_requests_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(memory_server, "PATIENCE", 1)
    encoder, answers = Waiting(), []
    server = MemoryServer(tmp_path / "a.mem", encoder=encoder).start()
    with with_token(server) as client:

        def ask() -> None:
            answers.append(client.post("/v1/memory/items", json={"content": "tea"}))
            encoder.go.set()  # what it computes for nobody goes on until it is done

        caller = threading.Thread(target=ask)
        caller.start()
        assert encoder.reached.wait(60)
        with caplog.at_level(logging.INFO):
            server.close()
        caller.join(60)
    (answer,) = answers
    assert answer.status_code == 503
    assert "closing" in answer.json()["detail"]
    assert not [record for record in caplog.records if record.exc_info]


EVENT = b'data: {"choices": [{"delta": {"content": "No"}}]}\n\n'
BEGINS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + EVENT


@pytest.mark.parametrize(
    ("path", "says"),
    [
        *(("chat/completions", says) for says in ("nothing", "something", "more than is read")),
        *((path, "something") for path in ("messages", "embeddings")),
    ],
)
def test_stopping_gateway_answers_waiting_calls_and_ends_their_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, path: str, says: str
) -> None:
    monkeypatch.setattr(memory_server, "PATIENCE", 1)
    with socket.create_server(("127.0.0.1", 0)) as upstream:
        url = f"http://127.0.0.1:{upstream.getsockname()[1]}/v1"
        server = MemoryServer(tmp_path / "a.mem", encoder=None, upstream=url, upstream_key="k").start()
        body = json.dumps({"model": "x", "messages": [{"role": "user", "content": "I like tea."}]}).encode()
        head = f"POST /v1/{path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\n"
        with socket.create_connection(("127.0.0.1", int(server.url.rsplit(":", 1)[1])), 60) as caller:
            caller.sendall(f"{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            upstream.settimeout(60)
            with upstream.accept()[0] as asked, caplog.at_level(logging.INFO):
                got = b""
                if says != "nothing":
                    asked.sendall(BEGINS)
                    while EVENT not in got:
                        got += caller.recv(65536)
                if says == "more than is read":
                    asked.settimeout(1)
                    with contextlib.suppress(TimeoutError):
                        while True:
                            asked.sendall(EVENT * 10_000)
                server.close()
                if says != "more than is read":
                    got += b"".join(iter(lambda: caller.recv(65536), b""))
                gc.collect()  # an error that nobody took is said when its task goes
    assert got.startswith(b"HTTP/1.1 503") == (says == "nothing")
    assert got.endswith(b"0\r\n\r\n") == (says == "something")
    assert (b"The server is closing" in got) == (says != "more than is read")
    assert not [record for record in caplog.records if record.exc_info]
    with MemoryServer(tmp_path / "a.mem", encoder=None) as again:
        listed = with_token(again).get("/v1/memory/episode_summaries").json()["episodes"]
    outcomes = [episode["outcome"] for episode in listed]
    by = "caller" if says == "more than is read" else "gateway"
    assert outcomes == ([] if path == "embeddings" else [f"stopped by the {by}"])


def test_token_that_does_not_fit_on_disk_leaves_others_intact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    tokens = Tokens(tmp_path / "a.mem.tokens.json")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StorageFull, match="free some space"):
            tokens.add(new_access(user_id="ana"))
    assert tokens.all() == []


def test_log_growth_by_read_only_tokens_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_memories, "SHARE", MB, raising=False)
    path = tmp_path / "a.mem"

    def size() -> int:
        return sum(file.stat().st_size for file in tmp_path.glob("a.mem*"))

    with MemoryServer(path, encoder="hashing:64") as server, Client(server.url, server.token) as owner:
        owner.add_many([f"fact {n} about tea" for n in range(30)], user_id="eve")
        reader = server.tokens.passing(new_access(user_id="eve", roles=["read"]))
        with with_token(server, reader, "/v1/memory") as eve:
            first = eve.post("/search", json={"query": "tea"}).json()
            assert first["decision"]
            before = size()
            for number in range(120):
                answer = eve.post("/search", json={"query": f"tea {number} " + "wört " * 2400, "top_k": 20})
                assert answer.status_code == 200
                assert answer.json()["hits"]
                begun = eve.post("/episodes", json={"task": "x" * 100_000})
                assert begun.status_code in (200, 429)
            assert begun.status_code == 429
            assert begun.json()["fix"]
            assert not answer.json()["decision"], "what is not logged cannot be rewarded"
        owner.reward(first["decision"], 1.0)
        assert size() - before < 5 * MB
        writer = server.tokens.passing(new_access(user_id="eve", roles=["read", "write"]))
        with with_token(server, writer, "/v1/memory") as other:
            assert other.post("/search", json={"query": "tea"}).json()["decision"]
