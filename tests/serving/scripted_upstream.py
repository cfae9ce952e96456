"""An upstream that answers as it is told, over real HTTP, and keeps the bytes that it was sent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from keepworth.serving.http_server import HttpServer

RESPONSE = {
    "object": "response", "created_at": 1, "model": "scripted", "status": "completed", "error": None, "tools": [],
    "parallel_tool_calls": True, "tool_choice": "auto", "metadata": {}, "temperature": 1.0, "incomplete_details": None,
    "instructions": None, "top_p": 1.0,
}  # fmt: skip
RESPONSE_USAGE = {
    "input_tokens": 9, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 2, "total_tokens": 11,
    "output_tokens_details": {"reasoning_tokens": 0},
}  # fmt: skip
Reply = Callable[[dict[str, Any]], str]


@dataclass(slots=True)
class Sent:
    path: str
    headers: dict[str, str]
    content: bytes

    @property
    def messages(self) -> Any:
        return self.body["messages"]

    @property
    def body(self) -> Any:
        return json.loads(self.content)


@dataclass(slots=True)
class Script:
    """reply: the words of an answer. fails: statuses of the next answers. breaks: an answer ends after its first event. calls:
    names of tools that the next answers call, in place of words. kept: what it keeps of each response."""

    reply: Reply = lambda body: "Noted."
    fails: list[int] = field(default_factory=list)
    breaks: bool = False
    sent: list[Sent] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    kept: dict[str, list[Any]] = field(default_factory=dict)

    def name(self) -> str:
        """Of the answer to what was sent last: the same for the same bytes, and another for others."""
        return hashlib.sha256(self.sent[-1].content).hexdigest()[:12]


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    body = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "scripted", "choices": [choice]}
    return f"data: {json.dumps(body)}\n\n".encode()


def event(name: str, **body: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps({'type': name, **body})}\n\n".encode()


def upstream(script: Script) -> HttpServer:
    async def noted(request: Request) -> bytes:
        content = await request.body()
        script.sent.append(Sent(request.url.path, dict(request.headers), content))
        return content

    def failure(kind: str = "scripted", **more: Any) -> Response:
        status = script.fails.pop(0)
        body = {**more, "error": {"message": f"scripted {status}", "type": kind, "code": None, "param": None}}
        return JSONResponse(body, status, {"retry-after": "0", "x-request-id": "r1"})

    async def parts(*events: bytes) -> AsyncIterator[bytes]:
        """Byte by byte at their ends, as networks cut them."""
        for each in events:
            yield each[:7]
            if script.breaks:
                raise ConnectionResetError
            yield each[7:]

    async def responses(request: Request) -> Response:
        content = await noted(request)
        if script.fails:
            return failure()
        asked = json.loads(content)
        given = asked["input"]
        given = [{"role": "user", "content": given}] if isinstance(given, str) else given
        before = script.kept.get(asked.get("previous_response_id") or "", [])
        id = f"resp_{len(script.kept)}"
        if script.calls:
            call = {"type": "function_call", "call_id": f"call_{script.name()}", "name": script.calls.pop(0)}
            item: dict[str, Any] = {**call, "id": "f1", "arguments": "{}", "status": "completed"}
        else:
            text = script.reply({**asked, "input": [*before, *given]})
            part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
            item = {"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": [part]}
        script.kept[id] = [*before, *given, item]
        body = {"id": id, **RESPONSE}
        whole = {**body, "output": [item], "usage": RESPONSE_USAGE}
        if not asked.get("stream"):
            return JSONResponse(whole)
        begun = {**body, "status": "in_progress", "output": [], "usage": None}
        empty, blank = {**item, "content": []}, {**part, "text": ""}
        place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
        events = (
            event("response.created", response=begun, sequence_number=0),
            event("response.output_item.added", item=empty, output_index=0, sequence_number=1),
            event("response.content_part.added", **place, part=blank, sequence_number=2),
            event("response.output_text.delta", **place, delta=text, logprobs=[], sequence_number=3),
            event("response.output_text.done", **place, text=text, logprobs=[], sequence_number=4),
            event("response.content_part.done", **place, part=part, sequence_number=5),
            event("response.output_item.done", item=item, output_index=0, sequence_number=6),
            event("response.completed", response=whole, sequence_number=7),
        )
        return StreamingResponse(parts(*events), media_type="text/event-stream")

    async def messages(request: Request) -> Response:
        content = await noted(request)
        if script.fails:
            return failure("rate_limit_error", type="error")
        asked = json.loads(content)
        if script.calls:
            reason, call = "tool_use", {"id": f"call_{script.name()}", "name": script.calls.pop(0), "input": {}}
            part = {"type": "tool_use", **call}
        else:
            reason, part = "end_turn", {"type": "text", "text": script.reply(asked)}
        usage = {"input_tokens": 5, "cache_read_input_tokens": 4, "output_tokens": 1}
        about = {"id": f"msg_{script.name()}", "type": "message", "role": "assistant", "model": "scripted"}
        body = {**about, "stop_sequence": None}
        whole = {**body, "content": [part], "stop_reason": reason, "usage": usage}
        if not asked.get("stream"):
            return JSONResponse(whole, headers={"request-id": "req1"})
        delta = {"type": "text_delta", "text": part["text"]}
        ended = {"stop_reason": reason, "stop_sequence": None}
        begun: dict[str, Any] = {**body, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 0}}
        events = (
            event("message_start", message=begun),
            event("content_block_start", index=0, content_block={**part, "text": ""}),
            event("content_block_delta", index=0, delta=delta),
            event("content_block_stop", index=0),
            event("message_delta", delta=ended, usage={"output_tokens": 1}),
            event("message_stop"),
        )
        return StreamingResponse(parts(*events), media_type="text/event-stream")

    async def count(request: Request) -> Response:
        await noted(request)
        return JSONResponse({"input_tokens": 5})

    async def chat(request: Request) -> Response:
        content = await noted(request)
        if script.fails:
            return failure()
        asked = json.loads(content)
        text = script.reply(asked)
        if asked.get("stream"):
            words = [chunk({"content": word + " "}) for word in text.split(" ")]
            return StreamingResponse(
                parts(*words, chunk({}, "stop"), b"data: [DONE]\n\n"), media_type="text/event-stream"
            )
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        body = {"id": "c1", "object": "chat.completion", "created": 1, "model": "scripted"}
        return JSONResponse({**body, "choices": [choice], "usage": usage}, headers={"x-request-id": "r1"})

    async def models(request: Request) -> Response:
        await noted(request)
        listed = [{"id": "scripted", "object": "model", "created": 1, "owned_by": "tests"}]
        return JSONResponse({"object": "list", "data": listed})

    async def embeddings(request: Request) -> Response:
        model = json.loads(await noted(request))["model"]
        data = [{"object": "embedding", "index": 0, "embedding": [0.5, -0.25]}]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return JSONResponse({"object": "list", "data": data, "model": model, "usage": usage})

    async def other(request: Request) -> Response:
        await noted(request)
        return JSONResponse({})

    posts = {"chat/completions": chat, "responses": responses, "messages": messages, "embeddings": embeddings}
    routes = [Route(f"/v1/{path}", answers, methods=["POST"]) for path, answers in posts.items()]
    routes += [Route("/v1/messages/count_tokens", count, methods=["POST"]), Route("/v1/models", models)]
    app = Starlette(routes=[*routes, Route("/{path:path}", other, methods=["GET", "POST"])])
    return HttpServer(lambda workers: app, name="upstream", patience=1)
