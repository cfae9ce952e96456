"""What the benchmarks of the server share: an upstream that answers at once, a memory with 100 people in it, the server as a
process of its own, and what its clients send.

    python -m benchmarks.agents.load upstream|proxy ...    (what the benchmarks start)
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.record import arguments

ROOT = Path(__file__).parents[2]
TOKEN = "kw_benchmark"
USERS = 100
WORDS = 20_000
STATEMENTS = 4
"""Of so many turns one is a statement, which is kept; the others are questions."""
TICKS = os.sysconf("SC_CLK_TCK")


# -- an upstream that answers at once ---------------------------------------------------------------------------------

_MESSAGE = {"role": "assistant", "content": "Noted, and thank you."}
_REPLY = json.dumps(
    {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "instant",
        "choices": [{"index": 0, "message": _MESSAGE, "finish_reason": "stop", "logprobs": None}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
).encode()
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(_REPLY), _REPLY)


class InstantUpstream(asyncio.Protocol):
    """Reads requests with a Content-Length, and answers each with the same words."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.waiting = bytearray()

    def data_received(self, data: bytes) -> None:
        self.waiting += data
        while (end := self.waiting.find(b"\r\n\r\n")) >= 0:
            length = content_length(bytes(self.waiting[:end])) or 0
            if len(self.waiting) < end + 4 + length:
                return
            del self.waiting[: end + 4 + length]
            self.transport.write(_ANSWER)


def content_length(head: bytes) -> int | None:
    """What the head of a request or an answer says; None where it says nothing."""
    _, there, rest = head.lower().partition(b"content-length:")
    return int(rest.split(b"\r\n", 1)[0]) if there else None


async def _serve_upstream() -> None:
    server = await asyncio.get_running_loop().create_server(InstantUpstream, "127.0.0.1", 0, backlog=512)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


def _serve_proxy(upstream: str) -> None:
    """What a proxy of the same parts, and without any memory, costs: Starlette on uvicorn, httpx upstream."""
    import httpx
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    http = httpx.AsyncClient(trust_env=False, limits=httpx.Limits(max_connections=None))

    async def chat(request: Request) -> Response:
        answer = await http.post(upstream + request.url.path, content=await request.body())
        return Response(answer.content, answer.status_code, media_type="application/json")

    from keepworth.serving.http_server import bind

    listener = bind("127.0.0.1", 0)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    app = Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off")
    uvicorn.Server(config).run([listener])


# -- processes --------------------------------------------------------------------------------------------------------


class Started:
    """A process that runs from here on and prints its address, and what it has used."""

    def __init__(
        self, command: Sequence[str], environment: dict[str, str] | None = None, log: Path | None = None
    ) -> None:
        with open(log or os.devnull, "ab") as errors:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, "COLUMNS": "200", **(environment or {})},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self.process.stdout is not None
        self.url = next(line for line in self.process.stdout if line.startswith("http://")).split()[0]

    def cpu_seconds(self) -> float:
        """Of this process and those that it started so far, in user and in kernel mode."""
        spent, left = 0, [self.process.pid]
        while left:
            folder = Path(f"/proc/{left.pop()}")
            parts = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            spent += int(parts[11]) + int(parts[12])
            left += map(int, " ".join(file.read_text() for file in folder.glob("task/*/children")).split())
        return spent / TICKS

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                self.kill()

    def __enter__(self) -> Started:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def instant_upstream() -> Started:
    return Started([sys.executable, "-m", "benchmarks.agents.load", "upstream"])


def bare_proxy(upstream: Started) -> Started:
    return Started([sys.executable, "-m", "benchmarks.agents.load", "proxy", upstream.url])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def memory_server(file: Path, upstream: str, *options: str, port: int = 0, log: Path | None = None) -> Started:
    """`keepworth serve --memory` in front of the upstream at this address."""
    command = [sys.executable, "-m", "keepworth", "serve", "--memory", str(file), "--port", str(port), *options]
    command += ["--upstream", upstream]
    return Started(command, {"KEEPWORTH_API_KEY": TOKEN, "OPENAI_API_KEY": "sk-none"}, log)


# -- a memory, and what is asked of it --------------------------------------------------------------------------------


def name(user: int) -> str:
    return f"person{user}"


def fill(file: Path, items: int, people: int = USERS, encoder: Any = "hashing") -> None:
    """A memory of `items` texts from a Zipf vocabulary, an equal number for each person, by default with vectors of hashed
    words, which cost next to nothing to make."""
    from benchmarks.memory.engine import corpus
    from keepworth import Memory

    texts = corpus(items).texts
    with Memory(file, encoder=encoder) as memory:
        for user in range(people):
            memory.add_many(texts[user::people], user_id=name(user))


class Turns:
    """What people say, each turn a conversation of its own."""

    def __init__(self, seed: int = 0, people: int = USERS) -> None:
        self.seed, self.number, self.draw, self.people = seed, 0, random.Random(seed), people

    def next(self) -> tuple[str, bytes]:
        """(who, the body of a call)."""
        self.number += 1
        # Zipf's law with exponent 1: the logarithm of the rank is uniform.
        words = [f"w{int(WORDS ** self.draw.random()) - 1}" for _ in range(8)]
        ending = f"s{self.seed}n{self.number}" + ("." if self.number % STATEMENTS == 0 else "?")
        text = " ".join([*words, ending])
        messages = [{"role": "system", "content": "You are a helpful assistant."}, {"role": "user", "content": text}]
        body = json.dumps({"model": "instant", "messages": messages}).encode()
        return name(self.draw.randrange(self.people)), body


def request(url: str, user: str, body: bytes, *, mode: str = "on", path: str = "/v1/chat/completions") -> bytes:
    """The bytes of a call."""
    host = url.removeprefix("http://")
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
        f"X-Keepworth-User: {user}\r\nX-Keepworth-Memory: {mode}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def main() -> None:
    parser = arguments(__doc__, json=False)
    parser.add_argument("what", choices=["upstream", "proxy"])
    parser.add_argument("address", nargs="?", default="")
    options = parser.parse_args()
    if options.what == "upstream":
        asyncio.run(_serve_upstream())
    else:
        _serve_proxy(options.address)


if __name__ == "__main__":
    main()
