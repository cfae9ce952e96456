"""An upstream that answers as it is told, over real HTTP, and keeps the bytes that it was sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from keepworth.serving.http_server import HttpServer

Reply = Callable[[dict[str, Any]], str]


@dataclass(slots=True)
class Sent:
    path: str
    headers: dict[str, str]
    content: bytes

    @property
    def messages(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.content)["messages"]
        return found


@dataclass(slots=True)
class Script:
    """reply: the words of an answer. fails: statuses of the next answers, 0 for a connection that is closed. stalls: set where
    an answer hangs after its first event; hung_up: set once the caller of such an answer left."""

    reply: Reply = lambda body: "Noted."
    fails: list[int] = field(default_factory=list)
    stalls: bool = False
    breaks: bool = False
    sent: list[Sent] = field(default_factory=list)
    hung_up: asyncio.Event | None = None
    left: bool = False


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    body = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "scripted", "choices": [choice]}
    return f"data: {json.dumps(body)}\n\n".encode()


def upstream(script: Script) -> HttpServer:
    async def noted(request: Request) -> bytes:
        content = await request.body()
        script.sent.append(Sent(request.url.path, dict(request.headers), content))
        return content

    async def events(text: str) -> AsyncIterator[bytes]:
        try:
            for word in text.split(" "):
                yield chunk({"content": word + " "})
                if script.breaks:
                    raise ConnectionResetError
                while script.stalls:
                    await asyncio.sleep(0.01)
            yield chunk({}, "stop")
            yield b"data: [DONE]\n\n"
        finally:
            script.left = True

    async def chat(request: Request) -> Response:
        content = await noted(request)
        if script.fails:
            status = script.fails.pop(0)
            body = {"error": {"message": f"scripted {status}", "type": "scripted", "code": None, "param": None}}
            return Response(json.dumps(body), status, {"retry-after": "0", "x-request-id": "r1"}, "application/json")
        asked = json.loads(content)
        text = script.reply(asked)
        if asked.get("stream"):
            return StreamingResponse(events(text), media_type="text/event-stream")
        while script.stalls:
            await asyncio.sleep(0.01)
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        body = {"id": "c1", "object": "chat.completion", "created": 1, "model": "scripted"}
        return Response(
            json.dumps({**body, "choices": [choice], "usage": usage}), 200, {"x-request-id": "r1"}, "application/json"
        )

    async def models(request: Request) -> Response:
        await noted(request)
        listed = [{"id": "scripted", "object": "model", "created": 1, "owned_by": "tests"}]
        return Response(json.dumps({"object": "list", "data": listed}), media_type="application/json")

    async def embeddings(request: Request) -> Response:
        content = await noted(request)
        data = [{"object": "embedding", "index": 0, "embedding": [0.5, -0.25]}]
        body = {
            "object": "list",
            "data": data,
            "model": json.loads(content)["model"],
            "usage": {"prompt_tokens": 1, "total_tokens": 1},
        }
        return Response(json.dumps(body), media_type="application/json")

    app = Starlette(
        routes=[
            Route("/v1/chat/completions", chat, methods=["POST"]),
            Route("/v1/models", models, methods=["GET"]),
            Route("/v1/embeddings", embeddings, methods=["POST"]),
        ]
    )
    return HttpServer(lambda workers: app, name="upstream", patience=1)
