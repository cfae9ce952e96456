"""Puts a model of this process behind OpenAI's chat completions, as the upstream of a gateway.

An answer is always computed whole: the events of a stream come all at once. One call computes at a time.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

from keepworth.base.needs import needs_llm

import httpx
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from keepworth.base.errors import KeepworthError
from keepworth.models.attention import float32_products
from keepworth.models.chat_format import TokenizerChat, ends_of
from keepworth.models.drawing import uniforms
from keepworth.models.inprocess import InProcessModel
from keepworth.records.model import FinishReason, Sample, SamplingParams, Tokens
from keepworth.serving.call_formats import EVENTS, text_of
from keepworth.serving.calls import NotServed, ReadyAnswer, openai_error
from keepworth.serving.upstream import Upstream
from keepworth.worlds.chat import fold_system

MODEL_HEADER = "x-keepworth-model"
CHAT = "/v1/chat/completions"
_AT_ONCE = 64
_PASSED_OVER = {"stream", "stream_options", "user", "store", "metadata"}
"""Fields of a call that do not change what this model answers."""
Body = Mapping[str, Any]


class _Sampling(BaseModel):
    """The sampling options that a call may give."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    max_tokens: int = Field(256, ge=1, le=2**16)
    temperature: float = Field(1.0, ge=0, le=1000)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=-1)
    seed: int | None = Field(None, ge=0, lt=2**63)
    n: Literal[1] = 1


class ModelTransport(httpx.AsyncBaseTransport):
    """A transport for httpx that answers requests with a model of this process instead of sending them over a network."""

    def __init__(self, model: InProcessModel) -> None:
        self.model, self._alone, self._closed = model, threading.Lock(), False
        self._workers = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="model")

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        left = threading.Event()
        given = request.method, request.url.path, request.content, left
        work = asyncio.get_running_loop().run_in_executor(self._workers, self.answer, *given)
        try:
            ready = await asyncio.shield(work)
        except asyncio.CancelledError:
            left.set()
            raise
        headers = {"content-type": ready.kind, **ready.headers}
        return httpx.Response(ready.status, headers=headers, stream=httpx.ByteStream(ready.content))

    async def aclose(self) -> None:
        self._closed = True
        self._workers.shutdown(wait=False)

    def answer(self, method: str, path: str, content: bytes, left: threading.Event) -> ReadyAnswer:
        """Answer one call; errors have OpenAI's form.

        Args:
            method: The method of the request.
            path: Its path, without the base URL.
            content: Its body.
            left: It is set once nobody waits for the answer, which then ends early.
        """
        try:
            if method == "GET" and path == "/v1/models":
                model = {"id": self.model.name, "object": "model", "created": 0, "owned_by": "keepworth"}
                return _json({"object": "list", "data": [model]})
            if (method, path) != ("POST", CHAT):
                raise NotServed(
                    f"in-process model {self.model.name} has no route {method} {path}.",
                    f"It answers POST {CHAT}.",
                    status=404,
                )
            body = json.loads(content or b"{}")  # the gateway has checked that it is an object
            whole, events = self._answer(body, left)
            headers = {MODEL_HEADER: self.model.name}
            if not body.get("stream"):
                return _json(whole, headers=headers)
            if not (body.get("stream_options") or {}).get("include_usage"):
                events.pop()
            lines = [f"data: {json.dumps(event)}\n\n" for event in events]
            return ReadyAnswer("".join([*lines, "data: [DONE]\n\n"]).encode(), EVENTS, headers=headers)
        except KeepworthError as error:
            status = error.status if isinstance(error, NotServed) else 400
            return _json(openai_error(status, str(error), type(error).__name__), status)

    def render(self, path: str, body: Body) -> str | None:
        """Return the prompt that the model reads for a call, or None for a call that it would refuse."""
        try:
            return self._prompt(body["messages"]) if path == CHAT else None
        except KeepworthError:
            return None

    def _prompt(self, messages: Sequence[Any]) -> str:
        chat = TokenizerChat(self.model.tokenizer, self.model.name)
        return chat.render_text(fold_system([_plain(message) for message in messages], chat))

    def _answer(self, body: Body, left: threading.Event) -> tuple[dict[str, Any], list[Any]]:
        """Return an answer as a whole, and as the events of a stream."""
        model = self.model
        asked = {name: value for name, value in body.items() if value is not None}
        if "max_completion_tokens" in asked:
            asked["max_tokens"] = asked.pop("max_completion_tokens")
        messages = asked.pop("messages", None)
        if not isinstance(messages, list) or not messages:
            raise NotServed("messages must be a list of at least one message with role and content.")
        name = asked.pop("model", "")
        if name not in ("", model.name):
            raise NotServed(f"The model {name!r:.80} does not exist.", f"Ask for {model.name}.", status=404)
        try:
            settings = _Sampling(**{key: value for key, value in asked.items() if key not in _PASSED_OVER})
        except ValidationError as error:
            (first, *_) = error.errors()
            field, fields = ".".join(map(str, first["loc"])), ", ".join(_Sampling.model_fields)
            raise NotServed(f"{field} is not supported: {first['msg']}.", f"This model takes {fields}.") from error
        text = self._prompt(messages)
        context = model.encode_continuation(text)  # a template writes its BOS itself
        end = getattr(model.tokenizer, "eos_token_id", None)
        ends = frozenset({*ends_of(model.network), *(() if end is None else (int(end),))})
        params = SamplingParams(
            settings.max_tokens if "max_tokens" in asked else max(1, min(256, model.context_limit - len(context))),
            1,
            settings.temperature,
            secrets.randbits(31) if settings.seed is None else settings.seed,
            ends or frozenset(model.tokenizer.all_special_ids),
            max(0, settings.top_k),
            settings.top_p,
        )
        sample = self._draw(context, params, left)
        words = model.decode(sample.ids[:-1] if sample.ids and sample.ids[-1] in params.stop_ids else sample.ids)
        head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": model.name}
        ended = "stop" if sample.finish is FinishReason.STOP else "length"
        read, written = len(context), len(sample.ids)
        usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
        message = {"role": "assistant", "content": words}
        choice = {"index": 0, "message": message, "finish_reason": ended, "logprobs": None}
        part = {**head, "object": "chat.completion.chunk"}
        return {**head, "object": "chat.completion", "choices": [choice], "usage": usage}, [
            {**part, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
            {**part, "choices": [{"index": 0, "delta": {}, "finish_reason": ended}]},
            {**part, "choices": [], "usage": usage},
        ]

    @torch.inference_mode()
    def _draw(self, context: Tokens, params: SamplingParams, left: threading.Event) -> Sample:
        """Sample an answer, one call at a time. Raises NotServed once its caller has left or the server closes."""
        self.model.check([context], params)
        draws = None if params.temperature == 0 else uniforms(params, [0])
        with self._alone, float32_products(self.model.dtype):
            ((_, _, drawing),) = self.model.drawings([context], params, draws)
            while not drawing.over:
                if self._closed or left.is_set():
                    raise NotServed("The request was aborted.", status=503)
                drawing.step()
            return drawing.sample(0)


def upstream_of(model: InProcessModel) -> Upstream:
    """Make a model of this process the upstream of a gateway."""
    transport = ModelTransport(model)
    name = f"in-process model {model.name}"
    return Upstream("http://127.0.0.1", transport=transport, name=name, render=transport.render)


def _plain(message: Any) -> dict[str, str]:
    """Return a message with its text parts joined to one text. Raises NotServed for other content."""
    message = message if isinstance(message, dict) else {}
    content, role = message.get("content"), message.get("role")
    parts = content if isinstance(content, list) else [{"text": content}]
    if not isinstance(role, str) or not all(
        isinstance(part, dict) and isinstance(part.get("text"), str) for part in parts
    ):
        raise NotServed(
            "A message must have role and content, both texts.", "Pictures and tool calls are not supported."
        )
    return {"role": role, "content": text_of(message)}


def _json(body: Body, status: int = 200, headers: Mapping[str, str] | None = None) -> ReadyAnswer:
    return ReadyAnswer(json.dumps(body).encode(), status=status, headers=headers or {})
