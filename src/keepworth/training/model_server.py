"""Puts a model of this process behind OpenAI's and Anthropic's interfaces, as the upstream of a gateway.

An answer is always computed whole: the events of a stream come all at once. One call computes at a time.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
from collections.abc import Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Any

from keepworth.base.needs import needs_llm

import httpx
import torch

from keepworth.base.errors import KeepworthError
from keepworth.models.attention import float32_products
from keepworth.models.drawing import uniforms
from keepworth.models.inprocess import InProcessModel
from keepworth.records.model import Grammar, Sample, SamplingParams, Tokens
from keepworth.serving.calls import NotServed, ReadyAnswer, json_object
from keepworth.serving.model_calls import ANSWERED, ModelAnswer, ModelCall, answer_error
from keepworth.serving.upstream import Upstream
from keepworth.worlds.conversations import Conversations, render_call
from keepworth.worlds.driver import end_at

MODEL_HEADER = "x-keepworth-model"
_AT_ONCE = 64
Body = Mapping[str, Any]


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
        self.close()

    def close(self) -> None:
        """Gives up answers that are being drawn, and takes no more calls."""
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
            if method != "POST" or (format := ANSWERED.get(path)) is None:
                raise NotServed(
                    f"in-process model {self.model.name} has no route {method} {path}.",
                    f"It answers POST {', '.join(ANSWERED)}.",
                    status=404,
                )
            call = format.read(json_object(content or b"{}"))
            return format.written(self._answer(call, left), call, {MODEL_HEADER: self.model.name})
        except KeepworthError as error:
            refusal = error if isinstance(error, NotServed) else NotServed(error.message, error.fix)
            return _json(refusal.shaped(answer_error, type(error).__name__), refusal.status)

    def render(self, path: str, body: Body) -> str | None:
        """Return the prompt that the model reads for a call, or None for a call that it would refuse."""
        try:
            return render_call(ANSWERED[path].read(body), self.model.chat) if path in ANSWERED else None
        except KeepworthError:
            return None

    def _answer(self, call: ModelCall, left: threading.Event) -> ModelAnswer:
        model, conversations = self.model, Conversations(self.model, "chat")
        if call.model not in ("", model.name):
            raise NotServed(f"The model {call.model!r:.80} does not exist.", f"Ask for {model.name}.", status=404)
        prompt = conversations.prompt(call)
        grammar = Grammar(call.grammar, tuple(sorted(prompt.chat.stop_ids))) if call.grammar else None
        if grammar is not None:
            model.check_grammar(grammar)
        params = SamplingParams(
            call.max_tokens or max(1, min(256, model.context_limit - len(prompt.ids))),
            call.n,
            call.temperature,
            secrets.randbits(31) if call.seed is None else call.seed,
            prompt.chat.stop_ids,
            max(0, call.top_k),
            call.top_p,
            grammar,
        )
        samples = [end_at(sample, call.stop, model.decode) for sample in self._draw(prompt.ids, params, left)]
        choices = tuple(conversations.answer(call, prompt, sample) for sample in samples)
        return ModelAnswer(model.name, choices, len(prompt.ids), sum(len(sample.ids) for sample in samples))

    @torch.inference_mode()
    def _draw(self, context: Tokens, params: SamplingParams, left: threading.Event) -> list[Sample]:
        """Sample answers, one call at a time. Raises NotServed once its caller has left or the server closes."""
        self.model.check([context], params)
        draws = None if params.temperature == 0 else uniforms(params, [0])
        samples: list[Sample] = []
        with self._alone, float32_products(self.model.dtype):
            for _, _, drawing in self.model.drawings([context], params, draws):
                while not drawing.over:
                    if self._closed or left.is_set():
                        raise NotServed("The request was aborted.", status=503)
                    drawing.step()
                samples += map(drawing.sample, range(drawing.group))
        return samples


class ModelServer:
    """Serves a model of this process, from now on, at an address on this machine that holds a secret.

    Attributes:
        url: The address, without a version.
    """

    def __init__(self, model: InProcessModel) -> None:
        from keepworth.serving.http_server import HttpServer

        self._transport, self._secret = ModelTransport(model), secrets.token_urlsafe(16)
        self._server = HttpServer(self._application, name="model", patience=1).start()
        self.url = f"{self._server.url}/{self._secret}"

    def close(self) -> None:
        """Ends the server. An answer that is being drawn is given up."""
        self._transport.close()
        self._server.close()

    def _application(self, workers: Executor) -> Any:
        from starlette.applications import Starlette
        from starlette.requests import Request
        from starlette.responses import Response
        from starlette.routing import Route

        async def answer(request: Request) -> Response:
            path = request.url.path.removeprefix(f"/{self._secret}")
            call = partial(self._transport.answer, request.method, path, await request.body(), threading.Event())
            ready = await asyncio.get_running_loop().run_in_executor(workers, call)
            return Response(ready.content, ready.status, dict(ready.headers), ready.kind)

        return Starlette(routes=[Route(f"/{self._secret}/{{path:path}}", answer, methods=["GET", "POST"])])


def upstream_of(model: InProcessModel) -> Upstream:
    """Make a model of this process the upstream of a gateway."""
    transport = ModelTransport(model)
    name = f"in-process model {model.name}"
    return Upstream("http://127.0.0.1", transport=transport, name=name, render=transport.render)


def _json(body: Body, status: int = 200, headers: Mapping[str, str] | None = None) -> ReadyAnswer:
    return ReadyAnswer(json.dumps(body).encode(), status=status, headers=headers or {})
