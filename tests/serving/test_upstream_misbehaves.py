"""An upstream that does what upstreams do on bad days, over real sockets: the agent gets the right status, in the shape of its
own SDK, and is told whether the upstream or memory failed; nothing is asked twice that may cost something; what the user said is
kept."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import http.client
import json
import re
import select
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from keepworth import Client
from keepworth.memory.memory import Memory
from keepworth.serving.access import new_access
from keepworth.serving.memory_server import MemoryServer
from keepworth.serving.upstream import Upstream
from tests.serving.callers import with_token
from tests.serving.gate import finished, until, user

SECONDS = 0.6
"""How long the gateway waits for this upstream, by a clock that stands still until the upstream lets time pass."""
TEXT = "I like green tea."
STATED = user(TEXT)
CHAT = "/v1/chat/completions"
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [STATED]},
    "/v1/responses": {"input": TEXT},
    "/v1/messages": {"max_tokens": 5, "messages": [STATED]},
}
Behaviour = Callable[["Misbehaving", socket.socket], None]


@dataclass
class Misbehaving:
    """Answers each request as `behaves` does.

    Attributes:
        asked: Heads of requests.
        reached: Set once it was asked.
        heard: Released for every part of an answer that has come to the caller.
        gone: Set once a caller that it was answering hung up.
        let_pass: Lets seconds pass for whoever waits for it.
    """

    behaves: Behaviour = lambda upstream, connection: None
    asked: list[bytes] = field(default_factory=list)
    reached: threading.Event = field(default_factory=threading.Event)
    heard: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    gone: threading.Event = field(default_factory=threading.Event)
    let_pass: Callable[[float], None] = lambda seconds: None

    def __post_init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.accepting = threading.Thread(target=self._accept, daemon=True)
        self.accepting.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            # Wakes who waits for a caller: the number of what is closed may soon be another's.
            self.listener.shutdown(socket.SHUT_RDWR)
        self.accepting.join(20)
        self.listener.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}/v1"

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(20)
            while (head := read_request(connection)) is not None:
                self.asked.append(head)
                self.reached.set()
                self.behaves(self, connection)
                if self.behaves not in KEPT_ALIVE:
                    return

    def watch(self, connection: socket.socket) -> None:
        """Lets time pass until the caller hangs up."""
        while not select.select([connection], [], [], 0.01)[0]:
            self.let_pass(SECONDS)
        self.gone.set()

    def wait_until_heard(self) -> None:
        assert self.heard.acquire(timeout=60)


def read_request(connection: socket.socket) -> bytes | None:
    got = b""
    while b"\r\n\r\n" not in got:
        more = connection.recv(65536)
        if not more:
            return None
        got += more
    head, _, body = got.partition(b"\r\n\r\n")
    announced = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
    while announced and len(body) < int(announced[1]):
        body += connection.recv(65536)
    return head


CLOSES = "Connection: close"
"""What hangs up after an answer says so: whether a connection is still there is another race, and none of these tests."""


def answer(status: str, kind: str, body: bytes, *lines: str, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    head = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {size}", CLOSES, *lines, "", ""]
    return "\r\n".join(head).encode() + body


def stream(*events: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
    head += f"{CLOSES}\r\n\r\n".encode()
    return head + b"".join(b"%x\r\n%s\r\n" % (len(event), event) for event in events)


EVENT = b'data: {"id": "c1", "choices": [{"index": 0, "delta": {"content": "No"}}]}\n\n'
DONE = b'{"id": "c1", "choices": [{"index": 0, "message": {"role": "assistant", "content": "Noted."}}]}'
WHEN = ("Retry-After: 7", "x-ratelimit-reset: 9")
LIMIT = b'{"error": {"message": "slow down", "type": "rate_limit_error"}}'


def sends(content: bytes) -> Behaviour:
    return lambda upstream, connection: connection.sendall(content)


def silent(upstream: Misbehaving, connection: socket.socket) -> None:
    upstream.watch(connection)


def stalls_in_a_body(upstream: Misbehaving, connection: socket.socket) -> None:
    connection.sendall(answer("200 OK", "application/json", DONE[:20], length=len(DONE)))
    upstream.watch(connection)


def stalls_in_a_stream(upstream: Misbehaving, connection: socket.socket) -> None:
    connection.sendall(stream(EVENT))
    upstream.wait_until_heard()
    upstream.watch(connection)


def breaks_after_an_event(upstream: Misbehaving, connection: socket.socket) -> None:
    connection.sendall(stream(EVENT))
    upstream.wait_until_heard()


def spoils_after_an_event(upstream: Misbehaving, connection: socket.socket) -> None:
    breaks_after_an_event(upstream, connection)
    connection.sendall(b"zz\r\n")


def drips(upstream: Misbehaving, connection: socket.socket) -> None:
    """Says something often enough, for longer than the gateway waits for one part."""
    connection.sendall(stream(EVENT))
    for _ in range(6):
        upstream.wait_until_heard()
        upstream.let_pass(SECONDS / 3)
        connection.sendall(b"%x\r\n%s\r\n" % (len(EVENT), EVENT))
    connection.sendall(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")


well = sends(answer("200 OK", "application/json", DONE))
limited = sends(answer("429 Too Many Requests", "application/json", LIMIT, *WHEN))
stays = sends(answer("200 OK", "application/json", DONE).replace(f"{CLOSES}\r\n".encode(), b""))
KEPT_ALIVE: tuple[Behaviour, ...] = (stays,)


def pours(upstream: Misbehaving, connection: socket.socket) -> None:
    """Announces no length, and does not end by itself."""
    connection.sendall(CHUNKED)
    part = b"%x\r\n%s\r\n" % (2**20, b" " * 2**20)
    while True:
        connection.sendall(part)


CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
MUCH = answer("200 OK", "application/json", b"", length=10**12)
BREAKS: dict[str, tuple[Behaviour, int, str]] = {
    "hangs up at once": (lambda upstream, connection: None, 502, "RemoteProtocolError"),
    "half a head": (sends(b"HTTP/1.1 200 OK\r\nContent-Ty"), 502, ""),
    "no HTTP": (sends(b"\x16\x03\x01 what is this\r\n\r\n"), 502, ""),
    "a head without an end": (sends(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000), 502, ""),
    "a length that is no number": (sends(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"), 502, ""),
    "less than it announced": (sends(answer("200 OK", "application/json", DONE[:9], length=500)), 502, ""),
    "a broken chunk": (sends(CHUNKED + b"zz\r\n"), 502, ""),
    "silence": (silent, 504, "Timeout"),
    "silence in a body": (stalls_in_a_body, 504, "Timeout"),
}
PASSES: dict[str, tuple[bytes, int]] = {
    "malformed JSON": (answer("200 OK", "application/json", b'{"choices": [{'), 200),
    "JSON of another shape": (answer("200 OK", "application/json", b'{"choices": 5, "id": [], "usage": "x"}'), 200),
    "a list": (answer("200 OK", "application/json", b"[1, 2]"), 200),
    "a page": (answer("200 OK", "text/html", b"<h1>Welcome</h1>"), 200),
    "no kind at all": (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}", 200),
    "nothing": (answer("200 OK", "application/json", b""), 200),
    "bytes that are no text": (answer("200 OK", "application/json", b'{"id": "\xff\xfe"}'), 200),
    "a redirect": (answer("302 Found", "text/plain", b"", "Location: http://127.0.0.1:9/steal"), 302),
    "a page of an error": (answer("500 Internal Server Error", "text/html", b"<h1>Oops</h1>"), 500),
    "overloaded": (answer("529 ", "application/json", b'{"error": {"message": "overloaded"}}'), 529),
    "a limit": (answer("429 Too Many Requests", "application/json", LIMIT, *WHEN), 429),
    "unknown key": (answer("401 Unauthorized", "application/json", b'{"error": {"message": "bad key"}}'), 401),
    "compressed": (answer("200 OK", "application/json", gzip.compress(DONE), "Content-Encoding: gzip"), 200),
    "a stream of nonsense": (stream(b"\x00\xff\n\n", b"data: {\n\n", b"data: 5\n\n") + b"0\r\n\r\n", 200),
}


class StoppedServer(MemoryServer):
    """Its event loop has a clock that stands still until a test lets time pass: no limit is met by chance."""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time()
        self._loop.time = lambda: self._now  # type: ignore[method-assign]
        async with super().running():
            yield

    def let_pass(self, seconds: float) -> None:
        """To be called from any thread, once a request has come."""
        self._now += seconds
        self._loop.call_soon_threadsafe(lambda: None)  # so that the loop looks at its clock

    def close(self) -> None:
        vars(self._loop).pop("time", None)  # it ends by its clock
        self.let_pass(0)
        super().close()


@pytest.fixture(scope="module")
def upstream() -> Iterator[Misbehaving]:
    made = Misbehaving()
    yield made
    made.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, upstream: Misbehaving) -> Iterator[MemoryServer]:
    file = tmp_path_factory.mktemp("bad") / "a.mem"
    with StoppedServer(file, encoder=None, upstream=upstream.url, upstream_key="k", seed=0) as server:
        assert server.gateway is not None
        server.gateway.upstream = Upstream(upstream.url, "k", seconds=SECONDS)
        yield server


@pytest.fixture(autouse=True)
def afresh(upstream: Misbehaving, server: StoppedServer) -> None:
    upstream.asked.clear()
    upstream.reached.clear()
    upstream.heard = threading.Semaphore(0)
    upstream.gone.clear()
    upstream.let_pass = server.let_pass


class Agent:
    """Whoever asks through the gateway: a person of its own in each test."""

    def __init__(self, server: MemoryServer, upstream: Misbehaving, name: str) -> None:
        self.server, self.upstream, self.name = server, upstream, name

    def request(self, path: str, **more: Any) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.server.token}", "X-Keepworth-User": self.name}
        return {"json": {"model": "m", **BODIES[path], **more}, "headers": headers}

    def ask(self, path: str = CHAT) -> httpx.Response:
        return httpx.post(f"{self.server.url}{path}", **self.request(path), trust_env=False, timeout=20)

    def streamed(self, path: str) -> httpx.Response:
        """The answer, of whose parts the upstream hears when they come."""
        url, request = f"{self.server.url}{path}", self.request(path, stream=True)
        with httpx.stream("POST", url, **request, trust_env=False, timeout=20) as response:
            content = b""
            for part in response.iter_bytes():
                content += part
                self.upstream.heard.release()
        return httpx.Response(response.status_code, content=content)

    def kept(self) -> list[str]:
        """What is remembered, once what is under way is written."""
        client = Client(self.server.url, self.server.token)
        until(lambda: client.get_all(user_id=self.name) and finished(self.server))
        return [item.text for item in client.get_all(user_id=self.name)]


@pytest.fixture
def agent(server: MemoryServer, upstream: Misbehaving, request: pytest.FixtureRequest) -> Agent:
    return Agent(server, upstream, request.node.name)


def shaped(path: str, response: httpx.Response) -> str:
    """The message of an error, as the SDK of this route reads it."""
    body = response.json()
    if path == "/v1/messages":
        assert body["type"] == "error"
        assert body["error"]["type"] in ("api_error", "timeout_error")
    else:
        assert body["error"]["code"] == response.status_code
    return str(body["error"]["message"])


@pytest.mark.parametrize("name", BREAKS)
@pytest.mark.parametrize("path", BODIES)
def test_an_upstream_that_breaks_is_named_asked_once_and_the_turn_is_kept(agent: Agent, name: str, path: str) -> None:
    agent.upstream.behaves, status, says = BREAKS[name]
    response = agent.ask(path)
    assert response.status_code == status, response.text
    message = shaped(path, response)
    assert says in message
    assert f"The upstream {agent.upstream.url} gave no answer" in message
    assert "The gateway and its memory are well" in message, "the agent is told which of them failed"
    assert len(agent.upstream.asked) == 1, "a call may cost something: it is not repeated"
    assert agent.kept() == [TEXT]


@pytest.mark.parametrize("behaves", [pours, sends(MUCH)])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
def test_an_answer_without_end_is_broken_off_and_the_turn_is_kept(agent: Agent, behaves: Behaviour, path: str) -> None:
    agent.upstream.behaves = behaves
    body = {"model": "m", "input": "x", "messages": [STATED]}
    response = with_token(agent.server, **{"X-Keepworth-User": agent.name}).post(path, json=body)
    assert response.status_code == 502
    message = response.json()["error"]["message"]
    assert f"The upstream {agent.upstream.url} answered with more than 67108864 bytes" in message
    if path == CHAT:
        assert agent.kept() == [TEXT]


def test_an_upstream_that_is_not_there_and_one_that_has_no_name(tmp_path: Path, upstream: Misbehaving) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    for url in (f"http://127.0.0.1:{port}/v1", "http://no-such-host.invalid/v1"):
        with MemoryServer(tmp_path / "a.mem", encoder=None, upstream=url, upstream_key="k") as server:
            response = Agent(server, upstream, "ana").ask()
            assert response.status_code == 502
            assert url in shaped(CHAT, response)


@pytest.mark.parametrize("name", PASSES)
def test_other_upstream_answers_pass_unchanged(agent: Agent, name: str) -> None:
    content, status = PASSES[name]
    agent.upstream.behaves = sends(content)
    raw = content.partition(b"\r\n\r\n")[2]
    for path in BODIES:
        request = agent.request(path)
        with httpx.stream("POST", f"{agent.server.url}{path}", **request, trust_env=False, timeout=20) as response:
            got = b"".join(response.iter_raw())
            assert response.status_code == status
            assert response.headers["x-keepworth-memory"] == "on", "memory did not fail"
            assert got == raw or name == "a stream of nonsense"
            assert response.headers.get("location", "").startswith("http://127.0.0.1:9") == (status == 302)
            assert (response.headers.get("retry-after") == "7") == (status == 429)
            assert (response.headers.get("x-ratelimit-reset") == "9") == (status == 429)
            if b"Content-Type" in content:
                assert response.headers["content-type"].encode() in content
    assert len(agent.upstream.asked) == len(BODIES), "a redirect is not followed, and nothing is repeated"
    assert agent.kept() == [TEXT]


@pytest.mark.parametrize("behaves", [stalls_in_a_stream, breaks_after_an_event, spoils_after_an_event])
@pytest.mark.parametrize("path", BODIES)
def test_a_stream_that_breaks_off_ends_with_an_error_the_sdk_reads(agent: Agent, behaves: Behaviour, path: str) -> None:
    agent.upstream.behaves = behaves
    response = agent.streamed(path)
    assert response.status_code == 200
    first, *_, last = [part for part in response.text.split("\n\n") if part.strip()]
    assert first == EVENT.decode().strip()
    told = json.loads(last.rpartition("data: ")[2])
    assert "gave no answer" in str(told)
    if path in ("/v1/messages", "/v1/responses"):
        assert last.startswith("event: error")
    assert len(agent.upstream.asked) == 1
    assert agent.kept() == [TEXT]


def test_a_stream_that_is_slow_but_alive_is_waited_for(agent: Agent) -> None:
    agent.upstream.behaves = drips
    response = agent.streamed(CHAT)
    assert response.text.endswith("data: [DONE]\n\n")
    assert response.text.count('"No"') == 7


@pytest.mark.parametrize("behaves", [silent, stalls_in_a_body, stalls_in_a_stream])
@pytest.mark.parametrize("path", [CHAT, "/v1/messages"])
def test_a_caller_that_leaves_takes_the_upstreams_answer_along(agent: Agent, behaves: Behaviour, path: str) -> None:
    upstream = agent.upstream
    upstream.behaves, upstream.let_pass = behaves, lambda seconds: None  # nobody hangs up for having waited too long
    request = agent.request(path, stream=behaves is stalls_in_a_stream)
    headers = {"Content-Type": "application/json", **request["headers"]}
    caller = http.client.HTTPConnection(agent.server.url.removeprefix("http://"))
    caller.request("POST", path, json.dumps(request["json"]), headers)
    assert upstream.reached.wait(60)
    if behaves is stalls_in_a_stream:
        with caller.getresponse() as response:
            assert response.read1() == EVENT
            upstream.heard.release()
    caller.close()
    assert upstream.gone.wait(60), "nothing is computed for nobody"
    assert agent.kept() == [TEXT]


def test_a_listing_is_asked_again_once_at_most(agent: Agent, upstream: Misbehaving) -> None:
    """A connection that the upstream closed meanwhile is no failure of its own. A call may cost something: it is not repeated."""
    for asks, most in ((lambda: with_token(agent.server).get("/v1/models"), 2), (agent.ask, 1)):
        upstream.behaves = stays
        assert asks().status_code == 200
        upstream.asked.clear()
        upstream.behaves = BREAKS["hangs up at once"][0]
        assert asks().status_code == 502
        assert len(upstream.asked) in (1, most)


def test_response_header_says_that_memory_failed(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no disk")

    monkeypatch.setattr(Memory, "_unwritten_episode", fails)
    for behaves, status in ((well, 200), (limited, 429)):
        agent.upstream.behaves = behaves
        response = agent.ask()
        assert (response.status_code, response.headers["x-keepworth-memory"]) == (status, "failed")


def test_a_token_of_one_person_is_no_key_of_the_upstream(server: MemoryServer, upstream: Misbehaving) -> None:
    """Whatever it answers, it is never shown the caller's token."""
    token = server.tokens.add(new_access(user_id="ana"))
    upstream.behaves = well
    with_token(server, token, **{"X-Api-Key": token}).post(CHAT, json={"model": "m", **BODIES[CHAT]})
    assert token.encode() not in b"".join(upstream.asked)
