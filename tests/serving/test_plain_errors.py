"""What goes wrong is said so that it can be put right: by the command line, the server, its tools and the hooks."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from keepworth import Memory
from keepworth.cli.main import main
from keepworth.serving import application
from keepworth.serving.application import ServerLimits
from keepworth.serving.hook import HookProblem, ServedMemory
from keepworth.serving.http_server import reachable_here_alone
from keepworth.serving.memory_server import MemoryServer
from tests.serving.callers import with_token

MCP = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}


@pytest.mark.parametrize("days", ["-1", "nan", "inf", "1e300"])
def test_invalid_age_is_refused(tmp_path: Path, days: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.mem"
    with Memory(file, encoder=None) as memory:
        memory.add("I like tea")
    assert main(["memory", "forget", "--older-than", days, "--file", str(file)]) == 2
    said = capsys.readouterr().err
    assert "--older-than takes a number of days from 0 to 100,000, got" in said
    assert main(["memory", "token", "add", "--days", days, "--file", str(file)]) == 2
    assert "days must be a number above 0, 100000 at most, got" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--user", "ana\u202e"], ["--user", "ana", "--shared", "te\u00adam:read"]])
def test_token_with_an_empty_name_is_refused(
    tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["memory", "token", "add", *words, "--file", str(tmp_path / "a.mem")]) == 2
    assert "user of a scope has control characters or others that cannot be seen" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", "localhost", "::1"])
def test_every_name_of_this_machine_is_served_to_it_alone(tmp_path: Path, host: str) -> None:
    assert reachable_here_alone(host) is True
    if host == "::1":
        with socket.socket(socket.AF_INET6) as attempt:
            try:
                attempt.bind((host, 0))
            except OSError:
                pytest.skip("no IPv6 here")
    with MemoryServer(tmp_path / "a.mem", encoder=None, host=host) as server:
        assert with_token(server).get("/health").status_code == 200
        refused = with_token(server, Host="evil.example").get("/health")
        assert refused.status_code == 403, "a page of another site may name any host"


def test_reachable_addresses_are_not_local() -> None:
    assert not any(map(reachable_here_alone, ("0.0.0.0", "192.168.1.5", "::", "example.org", "localhost.evil.example")))


def test_tools_are_bounded_as_routes_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "WAIT_SECONDS", 0.3)
    pytest.importorskip("mcp")
    limits = ServerLimits(body=50_000, bodies=60_000)
    with MemoryServer(tmp_path / "a.mem", encoder=None, mcp=True, limits=limits) as server:
        client = with_token(server, **MCP)
        tool = {"name": "add_memory", "arguments": {"text": "I like tea"}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": tool}
        assert client.post("/mcp", json=body).status_code == 200
        chunks = client.post("/mcp", content=(b"x" * 10_000 for _ in range(9)))
        assert (chunks.status_code, chunks.json()["code"]) == (413, "RequestEntityTooLarge")

        held, more = threading.Event(), threading.Event()

        def slow() -> Any:
            yield b"x" * 40_000
            held.set()
            more.wait(20)
            yield b"}"

        first = threading.Thread(target=client.post, args=("/mcp",), kwargs={"content": slow()})
        first.start()
        assert held.wait(20)
        statuses = set[int]()
        for _ in range(200):
            kind = {"Content-Type": "application/json"}
            statuses.add(client.post("/mcp", content=b"y" * 30_000, headers=kind).status_code)
            if 503 in statuses:
                break
        more.set()
        first.join(20)
        assert 503 in statuses, "bytes of all requests together are bounded"


def test_hook_reconnects_after_a_broken_connection() -> None:
    """The first request has no answer in time; the second was CannotSendRequest."""
    listener = socket.create_server(("127.0.0.1", 0))
    answers = [b"", b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{"id": "e1"}']
    there: list[socket.socket] = []

    def serve() -> None:
        for answer in answers:
            connection, _ = listener.accept()
            there.append(connection)
            connection.recv(65536)
            connection.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    with listener:
        memory = ServedMemory(f"http://127.0.0.1:{listener.getsockname()[1]}", "t", {}, 0.5)
        with pytest.raises(HookProblem, match="gave no answer"):
            memory.post("episodes", {"task": "x"})
        memory._http.timeout = 60.0  # the second is answered, however long this machine takes
        assert memory.post("episodes", {"task": "x"})["id"] == "e1"
    for connection in there:
        connection.close()
