"""What one caller can take of a server, and how a server stops."""

from __future__ import annotations

import errno
import gc
import logging
import os
import select
import socket
import threading
from collections.abc import Sequence
from pathlib import Path

import httpx
import numpy as np
import pytest

from keepworth import Client
from keepworth.episodes.model import EncoderIdentity
from keepworth.memory.errors import StorageFull
from keepworth.serving import memory_server
from keepworth.serving.access import Tokens, new_access
from keepworth.serving.application import ServerLimits
from keepworth.serving.memory_server import MemoryServer

MB = 2**20


def unfinished(server: MemoryServer, token: str, count: int) -> socket.socket:
    """A body of which `count` bytes come, and the rest does not."""
    connection = socket.create_connection(("127.0.0.1", int(server.url.rsplit(":", 1)[1])), 20)
    head = f"POST /v1/memory/items HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
    connection.sendall(f"{head}Content-Type: application/json\r\nContent-Length: {16 * MB}\r\n\r\n".encode())
    connection.sendall(b"x" * count)
    return connection


def test_unfinished_bodies_of_one_token_leave_room_for_others(tmp_path: Path) -> None:
    limits = ServerLimits(body=16 * MB, bodies=40 * MB)
    with MemoryServer(tmp_path / "a.mem", encoder=None, limits=limits) as server:
        reader = server.tokens.passing(new_access(user_id="eve", roles=["read"]))
        first, second = unfinished(server, reader, 15 * MB), unfinished(server, reader, 15 * MB)
        with first, second, Client(server.url, server.token) as other:
            ((refused,), _, _) = select.select([first, second], [], [], 60)
            answer = refused.recv(1000)
            while b"of this token" not in answer and (more := refused.recv(1000)):  # it comes in pieces
                answer += more
            assert answer.startswith(b"HTTP/1.1 503")
            assert b"of this token" in answer
            assert other.add("tea", metadata={"long": "x" * 12 * MB}).text == "tea"


class Waiting:
    """An encoder that goes on when it is told to."""

    identity = EncoderIdentity("waiting", 8, True)

    def __init__(self) -> None:
        self.reached, self.go = threading.Event(), threading.Event()

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        self.reached.set()
        assert self.go.wait(60)
        return np.full((len(texts), 8), 8**-0.5, np.float32)


def test_who_is_still_being_answered_when_it_stops_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(memory_server, "PATIENCE", 1)
    encoder, answers = Waiting(), []
    server = MemoryServer(tmp_path / "a.mem", encoder=encoder).start()
    with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {server.token}"}, timeout=300) as client:

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


def test_who_waits_for_a_silent_upstream_when_it_stops_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(memory_server, "PATIENCE", 1)
    answers = []
    with socket.create_server(("127.0.0.1", 0)) as upstream:
        url = f"http://127.0.0.1:{upstream.getsockname()[1]}/v1"
        server = MemoryServer(tmp_path / "a.mem", encoder=None, upstream=url, upstream_key="k").start()

        def ask() -> None:
            body = {"model": "x", "messages": [{"role": "user", "content": "I like tea."}]}
            headers = {"Authorization": f"Bearer {server.token}"}
            answers.append(httpx.post(f"{server.url}/v1/chat/completions", json=body, headers=headers, timeout=300))

        caller = threading.Thread(target=ask)
        caller.start()
        upstream.settimeout(60)
        with upstream.accept()[0], caplog.at_level(logging.INFO):
            server.close()
            caller.join(60)
            gc.collect()  # an error that nobody took is said when its task goes
    assert [answer.status_code for answer in answers] == [503]
    assert not [record for record in caplog.records if record.exc_info]


def test_a_token_for_which_there_is_no_room_leaves_the_others_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    tokens = Tokens(tmp_path / "a.mem.tokens.json")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StorageFull, match="free some space"):
            tokens.add(new_access(user_id="ana"))
    assert tokens.all() == []
