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
Choice = Callable[[dict[str, Any]], "tuple[str, dict[str, Any]] | None"]


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
    names of tools that the next answers call, in place of words; chooses: the tool that a call is answered with, and its
    arguments, or None for words. kept: what it keeps of each response."""

    reply: Reply = lambda body: "Noted."
    fails: list[int] = field(default_factory=list)
    breaks: bool = False
    sent: list[Sent] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    chooses: Choice | None = None
    kept: dict[str, list[Any]] = field(default_factory=dict)

    def tool(self, asked: dict[str, Any]) -> tuple[str, str, dict[str, Any]] | None:
        """(id, name, arguments) of the tool that an answer calls."""
        chosen = (self.calls.pop(0), {}) if self.calls else self.chooses(asked) if self.chooses else None
        return None if chosen is None else (f"call_{self.name()}", *chosen)

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

    async def events(text: str, tools: list[dict[str, Any]] | None) -> AsyncIterator[bytes]:
        if tools:
            yield chunk({"role": "assistant", "tool_calls": [{"index": 0, **tool} for tool in tools]})
        for word in [] if tools else text.split(" "):
            yield chunk({"content": word + " "})
            if script.breaks:
                raise ConnectionResetError
        yield chunk({}, "tool_calls" if tools else "stop")
        yield b"data: [DONE]\n\n"

    def failure() -> Response:
        status = script.fails.pop(0)
        body = {"error": {"message": f"scripted {status}", "type": "scripted", "code": None, "param": None}}
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
        if (tool := script.tool(asked)) is not None:
            call = {"type": "function_call", "id": f"fc_{tool[0]}", "call_id": tool[0], "name": tool[1]}
            # As Codex lists those of MCP.
            spaces = [each for each in asked.get("tools") or () if each.get("type") == "namespace"]
            named = [space["name"] for space in spaces if tool[1] in [inside["name"] for inside in space["tools"]]]
            call |= {"namespace": named[0]} if named else {}
            item = {**call, "arguments": json.dumps(tool[2]), "status": "completed"}
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
        empty = {**item, "content": []} if "content" in item else item
        place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
        events = [
            event("response.created", response=begun, sequence_number=0),
            event("response.output_item.added", item=empty, output_index=0, sequence_number=1),
        ]
        if "content" in item:
            blank = {**item["content"][0], "text": ""}
            events += [
                event("response.content_part.added", **place, part=blank, sequence_number=2),
                event("response.output_text.delta", **place, delta=text, logprobs=[], sequence_number=3),
                event("response.output_text.done", **place, text=text, logprobs=[], sequence_number=4),
                event("response.content_part.done", **place, part=item["content"][0], sequence_number=5),
            ]
        events += [
            event("response.output_item.done", item=item, output_index=0, sequence_number=6),
            event("response.completed", response=whole, sequence_number=7),
        ]
        return StreamingResponse(parts(*events), media_type="text/event-stream")

    async def kept(request: Request) -> Response:
        await noted(request)
        return JSONResponse({"id": request.path_params["id"]})

    async def messages(request: Request) -> Response:
        content = await noted(request)
        if script.fails:
            status = script.fails.pop(0)
            wrong = {"type": "error", "error": {"type": "rate_limit_error", "message": f"scripted {status}"}}
            return JSONResponse(wrong, status, {"retry-after": "0"})
        asked = json.loads(content)
        tool = script.tool(asked)
        if tool is not None:
            part: dict[str, Any] = {"type": "tool_use", "id": tool[0], "name": tool[1], "input": tool[2]}
        else:
            part = {"type": "text", "text": script.reply(asked)}
        reason = "end_turn" if tool is None else "tool_use"
        usage = {"input_tokens": 5, "cache_read_input_tokens": 4, "output_tokens": 1}
        body = {"id": f"msg_{script.name()}", "type": "message", "role": "assistant", "model": "scripted"}
        body |= {"stop_sequence": None}
        whole = {**body, "content": [part], "stop_reason": reason, "usage": usage}
        if not asked.get("stream"):
            return JSONResponse(whole, headers={"request-id": "req1"})
        empty = {**part, "text": ""} if tool is None else {**part, "input": {}}
        delta = {"type": "text_delta", "text": part.get("text", "")}
        if tool is not None:
            delta = {"type": "input_json_delta", "partial_json": json.dumps(tool[2])}
        ended = {"stop_reason": reason, "stop_sequence": None}
        begun = {**body, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 0}}
        events = (
            event("message_start", message=begun),
            event("content_block_start", index=0, content_block=empty),
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
        tool = script.tool(asked)
        message: dict[str, Any] = {"role": "assistant", "content": None if tool else script.reply(asked)}
        if tool is not None:
            called = {"name": tool[1], "arguments": json.dumps(tool[2])}
            message["tool_calls"] = [{"id": tool[0], "type": "function", "function": called}]
        tools = message.get("tool_calls")
        if asked.get("stream"):
            return StreamingResponse(events(message["content"], tools), media_type="text/event-stream")
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if tools else "stop", "logprobs": None}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        body = {"id": "c1", "object": "chat.completion", "created": 1, "model": "scripted"}
        return JSONResponse({**body, "choices": [choice], "usage": usage}, headers={"x-request-id": "r1"})

    async def gemini(request: Request) -> Response:
        asked = json.loads(await noted(request))
        tool = script.tool(asked)
        said: dict[str, Any] = (
            {"text": script.reply(asked)} if tool is None else {"functionCall": {"name": tool[1], "args": tool[2]}}
        )
        candidate = {"index": 0, "finishReason": "STOP", "content": {"role": "model", "parts": [said]}}
        usage = {"promptTokenCount": 5, "candidatesTokenCount": 1, "totalTokenCount": 6}
        body = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "scripted"}
        if request.path_params["call"].endswith(":streamGenerateContent"):
            return StreamingResponse(parts(f"data: {json.dumps(body)}\n\n".encode()), media_type="text/event-stream")
        return JSONResponse(body)

    async def models(request: Request) -> Response:
        await noted(request)
        listed = [{"id": "scripted", "object": "model", "created": 1, "owned_by": "tests"}]
        return JSONResponse({"object": "list", "data": listed})

    async def embeddings(request: Request) -> Response:
        model = json.loads(await noted(request))["model"]
        data = [{"object": "embedding", "index": 0, "embedding": [0.5, -0.25]}]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return JSONResponse({"object": "list", "data": data, "model": model, "usage": usage})

    app = Starlette(
        routes=[
            Route("/v1/chat/completions", chat, methods=["POST"]),
            Route("/v1/models", models, methods=["GET"]),
            Route("/v1/responses", responses, methods=["POST"]),
            Route("/v1/responses/{id}", kept, methods=["GET"]),
            Route("/v1/messages", messages, methods=["POST"]),
            Route("/v1/messages/count_tokens", count, methods=["POST"]),
            Route("/v1/embeddings", embeddings, methods=["POST"]),
            Route("/v1beta/models/{call}", gemini, methods=["POST"]),
        ]
    )
    return HttpServer(lambda workers: app, name="upstream", patience=1)
