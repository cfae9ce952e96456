"""The in-process model as a gateway's upstream: memory and model in one process, behind the same routes.

It answers chat completions, responses, completions and Anthropic's messages, each as a conversation that the model's chat
template writes down. An answer is computed whole; asked for as a stream, it comes as the events of a stream, all at once.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from keepworth.episodes.needs import needs_serve

from pydantic_core import from_json

from keepworth.episodes.errors import KeepworthError
from keepworth.episodes.model import FinishReason, Sample, Tokens
from keepworth.models.inprocess import InProcessModel
from keepworth.serving.call_formats import EVENTS, text_of
from keepworth.serving.calls import NotServed, ServedCall, WaitingCaller, anthropic_error, openai_error
from keepworth.serving.generation import chat_draw, completions, name_in
from keepworth.serving.routes import models
from keepworth.serving.served_model import ServedModel
from keepworth.serving.upstream import UpstreamAnswer

_KEPT = 1000
"""Responses that calls may go on from."""
_AT_ONCE = 64
MODEL_HEADER = "x-keepworth-model"
Body = Mapping[str, Any]
Whose = tuple[str, str]
"""Tenant and episode of a call."""


@dataclass(frozen=True, slots=True)
class DrawnReply:
    """What a model drew for a call: all that training on it takes. name: of the adapter that answered, or of the model."""

    name: str
    context: Tokens
    sample: Sample
    temperature: float
    words: str

    def record(self) -> dict[str, Any]:
        sample = self.sample
        return {
            "context": list(self.context),
            "ids": list(sample.ids),
            "logprobs": list(sample.logprobs),
            "temperature": self.temperature,
            "finish": sample.finish.value,
            "text": self.words,
        }


@dataclass(frozen=True, slots=True)
class _Answered:
    """words, and how they ended: "stop" or "length"."""

    words: str
    ended: str
    read: int
    written: int
    name: str


class ModelUpstream:
    """model: taken over, see `ServedModel`. chosen: names the adapter that answers a call which names the model itself, by
    tenant and episode; "" for none. It is asked once for each call. records: whether what is drawn is to be kept for training."""

    tenants_apart = True

    def __init__(
        self,
        model: InProcessModel,
        chosen: Callable[[str, str], str] = lambda tenant, episode: "",
        *,
        records: bool = False,
    ) -> None:
        self.model = model if isinstance(model, ServedModel) else ServedModel(model)
        self.url = f"in-process model {self.model.name}"
        self.chosen, self.records = chosen, records
        self._workers = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="model")
        # By tenant and id: what one tenant said is nothing that another can go on from.
        self._responses: OrderedDict[tuple[str, str], list[dict[str, str]]] = OrderedDict()

    async def send(
        self,
        method: str,
        path: str,
        query: str,
        headers: Mapping[str, str],
        content: bytes,
        *,
        episode: str,
        tenant: str = "",
    ) -> UpstreamAnswer:
        caller = WaitingCaller()
        work = asyncio.get_running_loop().run_in_executor(
            self._workers, self._answered, method, path, (tenant, episode), content, caller
        )
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            self.model.leave(caller)
            raise

    async def close(self) -> None:
        self.model.close()
        self._workers.shutdown(wait=False)

    def _answered(self, method: str, path: str, whose: Whose, content: bytes, caller: WaitingCaller) -> UpstreamAnswer:
        try:
            if method == "GET" and path == "/v1/models":
                listed = models(self.model, ServedCall({}, {}, caller), owner="keepworth")
                own = listed["data"] if not whose[0] else listed["data"][:1]  # adapters are of the tenant ""
                return _whole({**listed, "data": own})
            route = _ROUTES.get(path) if method == "POST" else None
            if route is None:
                raise NotServed(f"{self.url} has no route {method} {path}.", status=404)
            return route(self, _object(content), whose, caller)
        except KeepworthError as error:
            status = error.status if isinstance(error, NotServed) else 400
            shape = anthropic_error if path.startswith("/v1/messages") else openai_error
            return _whole(shape(status, str(error), type(error).__name__), status)

    # -- routes -------------------------------------------------------------------------------------------------------

    def chat(self, body: dict[str, Any], whose: Whose, caller: WaitingCaller) -> UpstreamAnswer:
        asked = {name: value for name, value in body.items() if name not in ("stream", "stream_options", "user")}
        if isinstance(asked.get("messages"), list):
            asked["messages"] = [_plain(message) for message in asked["messages"]]
        said, drawn = self._said(asked, whose, caller)
        head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": said.name}
        usage = _usage(said, "prompt_tokens", "completion_tokens")
        if not body.get("stream"):
            choice = {"index": 0, "message": _message(said), "finish_reason": said.ended, "logprobs": None}
            return _whole({**head, "object": "chat.completion", "choices": [choice], "usage": usage}, drawn=drawn)
        head["object"] = "chat.completion.chunk"
        options = body.get("stream_options")
        parts = [
            {**head, "choices": [{"index": 0, "delta": _message(said), "finish_reason": None}]},
            {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": said.ended}]},
        ]
        if isinstance(options, dict) and options.get("include_usage"):
            parts.append({**head, "choices": [], "usage": usage})
        return _stream([*parts, "[DONE]"], drawn)

    def completions(self, body: dict[str, Any], whose: Whose, caller: WaitingCaller) -> UpstreamAnswer:
        asked = {name: value for name, value in body.items() if name not in ("stream", "stream_options", "user")}
        asked["model"] = self._name(asked, whose)
        whole = completions(self.model, ServedCall(asked, {}, caller))
        headers = {MODEL_HEADER: asked["model"]}
        return _stream([whole, "[DONE]"], headers=headers) if body.get("stream") else _whole(whole, headers=headers)

    def responses(self, body: dict[str, Any], whose: Whose, caller: WaitingCaller) -> UpstreamAnswer:
        before, tenant = name_in(body, "previous_response_id"), whose[0]
        if before and (tenant, before) not in self._responses:
            raise NotServed(
                f"Previous response with id {before!r:.80} not found.", "This server keeps the latest 1,000."
            )
        given = body.get("input")
        given = [{"role": "user", "content": given}] if isinstance(given, str) else given
        if not isinstance(given, list) or not all(isinstance(item, dict) for item in given):
            raise NotServed("input must be a text or a list of items.")
        if odd := next((item for item in given if item.get("type", "message") != "message"), None):
            raise NotServed(f"An item of the type {odd.get('type')!r:.40} is not supported: messages are.")
        history = [*self._responses.get((tenant, before), []), *map(_plain, given)]
        told = [{"role": "system", "content": body["instructions"]}] if body.get("instructions") else []
        asked = {
            **{name: body[name] for name in ("model", "temperature", "seed") if body.get(name) is not None},
            "messages": [*told, *history],
            "max_tokens": body.get("max_output_tokens"),
        }
        if body.get("tools"):
            raise NotServed("tools are not supported by the in-process model.", "Leave tools out.")
        said, drawn = self._said(asked, whose, caller)
        id = f"resp_{uuid.uuid4().hex}"
        if body.get("store", True):
            self._responses[tenant, id] = [*history, {"role": "assistant", "content": said.words}]
            while len(self._responses) > _KEPT:
                self._responses.popitem(last=False)
        return _responded(body, id, said, drawn)

    def messages(self, body: dict[str, Any], whose: Whose, caller: WaitingCaller) -> UpstreamAnswer:
        if body.get("tools") or body.get("stop_sequences"):
            raise NotServed("tools and stop_sequences are not supported by the in-process model.", "Leave them out.")
        given = body.get("messages")
        if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
            raise NotServed("messages must be a list of messages.")
        system = text_of({"content": body.get("system")})
        told = [{"role": "system", "content": system}] if system else []
        asked = {
            **{name: body[name] for name in ("model", "max_tokens", "temperature") if body.get(name) is not None},
            "messages": [*told, *map(_plain, given)],
        }
        said, drawn = self._said(asked, whose, caller)
        reason = "end_turn" if said.ended == "stop" else "max_tokens"
        part = {"type": "text", "text": said.words}
        usage = {"input_tokens": said.read, "output_tokens": said.written}
        head = {"id": f"msg_{uuid.uuid4().hex}", "type": "message", "role": "assistant", "model": said.name}
        ended = {"stop_reason": reason, "stop_sequence": None}
        if not body.get("stream"):
            return _whole({**head, "content": [part], **ended, "usage": usage}, drawn=drawn)
        begun: dict[str, Any] = {**head, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        delta = {"type": "text_delta", "text": said.words}
        events: list[Any] = [
            {"type": "message_start", "message": begun},
            {"type": "content_block_start", "index": 0, "content_block": {**part, "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": ended, "usage": {"output_tokens": said.written}},
            {"type": "message_stop"},
        ]
        return _stream(events, drawn)

    # -- the model ----------------------------------------------------------------------------------------------------

    def _name(self, body: Body, whose: Whose) -> str:
        """Of what answers: a call that names the model itself is answered by the adapter that is chosen for it."""
        name = name_in(body, "model")
        if name in ("", self.model.name):
            return self.chosen(*whose) or self.model.name
        if whose[0]:  # adapters are of the tenant ""
            raise NotServed(f"There is no model {name!r:.80} here.", f"Ask for {self.model.name}.", status=404)
        return name

    def _said(self, body: dict[str, Any], whose: Whose, caller: WaitingCaller) -> tuple[_Answered, DrawnReply]:
        name = self._name(body, whose)
        asked = {key: value for key, value in body.items() if value is not None}
        if asked.get("n", 1) != 1:
            raise NotServed("The in-process model behind a gateway gives one answer at a time: n must be 1.")
        drawn = chat_draw(self.model, ServedCall({**asked, "model": name}, {}, caller))
        (sample,) = drawn.samples
        if sample.finish is FinishReason.ABORTED:
            raise NotServed("The request was aborted.", status=503)
        ended = "stop" if sample.finish is FinishReason.STOP else "length"
        words = drawn.words[0]
        said = _Answered(words, ended, len(drawn.prompt), len(sample.ids), name)
        return said, DrawnReply(name, drawn.prompt, sample, drawn.temperature, words)


_ROUTES: Mapping[str, Callable[[ModelUpstream, dict[str, Any], Whose, WaitingCaller], UpstreamAnswer]] = {
    "/v1/chat/completions": ModelUpstream.chat,
    "/v1/completions": ModelUpstream.completions,
    "/v1/responses": ModelUpstream.responses,
    "/v1/messages": ModelUpstream.messages,
}


def _responded(body: Body, id: str, said: _Answered, drawn: DrawnReply) -> UpstreamAnswer:
    part = {"type": "output_text", "text": said.words, "annotations": [], "logprobs": []}
    item = {"type": "message", "id": f"msg_{id[5:]}", "role": "assistant", "status": "completed", "content": [part]}
    usage: dict[str, Any] = _usage(said, "input_tokens", "output_tokens")
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    short = said.ended == "length"
    head: dict[str, Any] = {
        "id": id,
        "object": "response",
        "created_at": int(time.time()),
        "model": said.name,
        "error": None,
        "instructions": body.get("instructions"),
        "previous_response_id": body.get("previous_response_id"),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "metadata": {},
        "top_p": 1.0,
        "temperature": drawn.temperature,
        "incomplete_details": {"reason": "max_output_tokens"} if short else None,
    }
    whole = {**head, "status": "incomplete" if short else "completed", "output": [item], "usage": usage}
    if not body.get("stream"):
        return _whole(whole, drawn=drawn)
    place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    begun = {**head, "status": "in_progress", "output": [], "usage": None}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
        {"type": "response.output_text.delta", **place, "delta": said.words, "logprobs": []},
        {"type": "response.output_text.done", **place, "text": said.words, "logprobs": []},
        {"type": "response.content_part.done", **place, "part": part},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": f"response.{whole['status']}", "response": whole},
    ]
    return _stream([{**event, "sequence_number": number} for number, event in enumerate(events)], drawn)


def _plain(message: Any) -> Any:
    """A message whose content is one text, where it is texts; anything else is the model's to refuse."""
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list):
        return {name: message[name] for name in ("role", "content")} if isinstance(content, str) else message
    if not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in content):
        return message
    return {"role": message.get("role"), "content": text_of(message)}


def _message(said: _Answered) -> dict[str, str]:
    return {"role": "assistant", "content": said.words}


def _usage(said: _Answered, read: str, written: str) -> dict[str, int]:
    return {read: said.read, written: said.written, "total_tokens": said.read + said.written}


def _object(content: bytes) -> dict[str, Any]:
    try:
        body = from_json(content)
    except ValueError as error:
        raise NotServed(f"The body is not JSON that can be used: {error}.") from error
    if not isinstance(body, dict):
        raise NotServed("A body must be a JSON object.")
    return body


def _whole(
    body: Body, status: int = 200, *, drawn: DrawnReply | None = None, headers: Mapping[str, str] | None = None
) -> UpstreamAnswer:
    return _made(json.dumps(body).encode(), "application/json", status, drawn, headers)


def _stream(
    events: Sequence[Any], drawn: DrawnReply | None = None, headers: Mapping[str, str] | None = None
) -> UpstreamAnswer:
    lines = []
    for event in events:
        named = f"event: {event['type']}\n" if isinstance(event, dict) and "type" in event else ""
        lines.append(f"{named}data: {event if isinstance(event, str) else json.dumps(event)}\n\n")
    return _made("".join(lines).encode(), EVENTS, 200, drawn, headers)


def _made(
    content: bytes, kind: str, status: int, drawn: DrawnReply | None, headers: Mapping[str, str] | None
) -> UpstreamAnswer:
    async def parts() -> AsyncIterator[bytes]:
        yield content

    named = {} if drawn is None else {MODEL_HEADER: drawn.name}
    return UpstreamAnswer(status, {"content-type": kind, **named, **(headers or {})}, parts, lambda: None, drawn)
