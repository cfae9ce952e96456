"""The in-process model as a gateway's upstream: memory and model in one process, behind the same routes.

It answers chat completions. An answer is computed whole; asked for as a stream, it comes as the events of a stream, all at once.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

from keepworth.episodes.needs import needs_serve

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from keepworth.episodes.errors import KeepworthError
from keepworth.episodes.model import FinishReason, Sample, SamplingParams, Tokens
from keepworth.models.chat_format import TokenizerChat, ends_of
from keepworth.models.inprocess import InProcessModel
from keepworth.serving.call_formats import EVENTS, text_of
from keepworth.serving.calls import NotServed, ReadyAnswer, UpstreamAnswer, WaitingCaller, openai_error
from keepworth.serving.local_model import LocalModel

MODEL_HEADER = "x-keepworth-model"
CHAT = "/v1/chat/completions"
_AT_ONCE = 64
_PASSED_OVER = {"stream", "stream_options", "user", "store", "metadata"}
"""Fields of a call that change nothing of what this model answers."""
Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DrawnReply:
    """What a model drew for a call: all that training on it takes.

    Args:
        name: Of the adapter that answered, or of the model.
        words: What was drawn, without the token that ended it.
    """

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


class _Settings(BaseModel):
    """What a call may ask of sampling."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    max_tokens: int = Field(256, ge=1, le=2**16)
    temperature: float = Field(1.0, ge=0, le=1000)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=-1)
    seed: int | None = Field(None, ge=0, lt=2**63)
    n: Literal[1] = 1


class ModelUpstream:
    """Args:
    model: Taken over, see `LocalModel`.
    chosen: Names the adapter that answers a call which names the model itself, by tenant and episode; "" for none.
    records: Whether what is drawn is to be kept for training.
    """

    tenants_apart = True

    def __init__(
        self,
        model: InProcessModel,
        chosen: Callable[[str, str], str] = lambda tenant, episode: "",
        *,
        records: bool = False,
    ) -> None:
        self.model = model if isinstance(model, LocalModel) else LocalModel(model)
        self.url = f"in-process model {self.model.name}"
        self.chosen, self.records = chosen, records
        self._workers = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="model")

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
            self._workers, self.answer, method, path, content, caller, (tenant, episode)
        )
        try:
            ready, drawn = await asyncio.shield(work)
        except asyncio.CancelledError:
            caller.left = True
            raise

        async def parts() -> AsyncIterator[bytes]:
            yield ready.content

        return UpstreamAnswer(ready.status, {"content-type": ready.kind, **ready.headers}, parts, lambda: None, drawn)

    async def close(self) -> None:
        self.model.close()
        self._workers.shutdown(wait=False)

    def answer(
        self, method: str, path: str, content: bytes, caller: WaitingCaller, whose: tuple[str, str] = ("", "")
    ) -> tuple[ReadyAnswer, DrawnReply | None]:
        """What is answered, and what was drawn for it. whose: tenant and episode of the call."""
        try:
            if method == "GET" and path == "/v1/models":
                model = {"id": self.model.name, "object": "model", "created": 0, "owned_by": "keepworth"}
                return _json({"object": "list", "data": [model]}), None
            if (method, path) != ("POST", CHAT):
                raise NotServed(f"{self.url} has no route {method} {path}.", f"It answers POST {CHAT}.", status=404)
            body = _object(content)
            drawn = self._draw(body, whose, caller)
            whole, events = _chat(drawn)
            headers = {MODEL_HEADER: drawn.name}
            if not body.get("stream"):
                return _json(whole, headers=headers), drawn
            if not (body.get("stream_options") or {}).get("include_usage"):
                events.pop()
            lines = [f"data: {json.dumps(event)}\n\n" for event in events]
            content = "".join([*lines, "data: [DONE]\n\n"]).encode()
            return ReadyAnswer(content, EVENTS, headers=headers), drawn
        except KeepworthError as error:
            status = error.status if isinstance(error, NotServed) else 400
            return _json(openai_error(status, str(error), type(error).__name__), status), None

    def _draw(self, body: Body, whose: tuple[str, str], caller: WaitingCaller) -> DrawnReply:
        model = self.model
        asked = {name: value for name, value in body.items() if value is not None}
        if "max_completion_tokens" in asked:
            asked["max_tokens"] = asked.pop("max_completion_tokens")
        messages = asked.pop("messages", None)
        if not isinstance(messages, list) or not messages:
            raise NotServed("messages must be a list of at least one message with role and content.")
        name = asked.pop("model", "")
        if not isinstance(name, str) or (whose[0] and name not in ("", model.name)):  # adapters are of the tenant ""
            raise NotServed(f"The model {name!r:.80} does not exist.", f"Ask for {model.name}.", status=404)
        try:
            settings = _Settings(**{key: value for key, value in asked.items() if key not in _PASSED_OVER})
        except ValidationError as error:
            (first, *_) = error.errors()
            field = ".".join(map(str, first["loc"]))
            known = ", ".join(_Settings.model_fields)
            raise NotServed(f"{field} is not supported: {first['msg']}.", f"This model takes {known}.") from error
        text = TokenizerChat(model.tokenizer, model.name).rendered([_plain(message) for message in messages])
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
        with model.turn(caller):
            if name in ("", model.name):
                name = self.chosen(*whose) or model.name
            with model.answering_as(name):
                ((sample,),) = model.sample([context], params)
        said = sample.ids[:-1] if sample.ids and sample.ids[-1] in params.stop_ids else sample.ids
        return DrawnReply(name, context, sample, params.temperature, model.decode(said))


def _chat(drawn: DrawnReply) -> tuple[dict[str, Any], list[Any]]:
    """An answer whole, and as the events of a stream."""
    head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": drawn.name}
    ended = "stop" if drawn.sample.finish is FinishReason.STOP else "length"
    read, written = len(drawn.context), len(drawn.sample.ids)
    usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    message = {"role": "assistant", "content": drawn.words}
    choice = {"index": 0, "message": message, "finish_reason": ended, "logprobs": None}
    part = {**head, "object": "chat.completion.chunk"}
    return {**head, "object": "chat.completion", "choices": [choice], "usage": usage}, [
        {**part, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
        {**part, "choices": [{"index": 0, "delta": {}, "finish_reason": ended}]},
        {**part, "choices": [], "usage": usage},
    ]


def _plain(message: Any) -> dict[str, str]:
    """A message whose content is one text, where it was texts."""
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


def _object(content: bytes) -> dict[str, Any]:
    try:
        body = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise NotServed(f"The body is not JSON that can be used: {error}.") from error
    if not isinstance(body, dict):
        raise NotServed("A body must be a JSON object.")
    return body


def _json(body: Body, status: int = 200, headers: Mapping[str, str] | None = None) -> ReadyAnswer:
    return ReadyAnswer(json.dumps(body).encode(), status=status, headers=headers or {})
