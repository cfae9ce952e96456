"""A chat model behind an OpenAI-compatible URL, for work that is not trained, such as judging answers.

It returns text, not token ids; samples for training come from an engine (`keepworth.models.http_engine`)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from keepworth.base.http_client import JsonClient
from keepworth.base.model_errors import BadAnswer, ChatError, NoJsonObject, NoWholeAnswer

Message = Mapping[str, Any]
_EXCERPT = 200
_DECODER = json.JSONDecoder()
BASE_URL, API_KEY, MODEL = "OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENAI_MODEL"
"""Environment variables that OpenAI's own clients read."""
_REASONING = re.compile(r"(?:.*/)?(?:gpt-5|o[1-9])(?![0-9]).*")
"""Reasoning models of OpenAI. They take no temperature, and have another name for the limit of tokens."""


class ChatModel:
    """A chat model. `complete` continues a conversation; calling it with a text sends one user message. It is thread-safe.

    Transient failures (busy server, broken connection) are repeated with growing pauses. temperature and seed are sent as they
    are; whether equal requests give equal answers depends on the server. The key is in no message, log or repr.

    Args:
        url: The server's, with or without `/v1`.
        model: The server's name of the model.
        api_key: Is sent as a bearer token.
        key_variable: The environment variable that holds the key, where it is not given.
        reasoning: Whether the model reasons before it answers, as OpenAI's o3 and gpt-5 do; then no temperature is sent, and
            max_tokens includes the reasoning. None decides by the model's name.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        api_key: str | None = None,
        key_variable: str = "",
        temperature: float = 0.0,
        max_tokens: int = 512,
        seed: int | None = None,
        reasoning: bool | None = None,
    ) -> None:
        if api_key is None and key_variable:
            api_key = os.environ.get(key_variable)
            if not api_key:
                raise ChatError(
                    f"The environment variable {key_variable} is not set: {model} at {url} would be asked without a key.",
                    f"Set {key_variable}, or hand api_key over.",
                )
        base = url.rstrip("/").removesuffix("/v1")
        self._client = JsonClient(base, api_key, seconds=120.0)
        self.model = model
        self.temperature = temperature
        self.max_tokens = max_tokens
        self.seed = seed
        self.reasoning = _REASONING.fullmatch(model) is not None if reasoning is None else reasoning

    def __repr__(self) -> str:
        return f"ChatModel({self._client.url!r}, {self.model!r})"

    def close(self) -> None:
        self._client.close()

    def complete(self, messages: Sequence[Message]) -> str:
        """Returns the assistant's next message. Each message has a role ("system", "user", "assistant") and a content.

        Raises:
            NoWholeAnswer: The answer is empty or was cut at max_tokens.
            EngineError: EngineUnreachable, EngineTimeout, EngineDied or EngineRefused.
        """
        body: dict[str, Any] = {"model": self.model, "messages": [dict(message) for message in messages]}
        if self.reasoning:
            body["max_completion_tokens"] = self.max_tokens
        else:
            body |= {"temperature": self.temperature, "max_tokens": self.max_tokens}
        if self.seed is not None:
            body["seed"] = self.seed
        answer = self._client.post("/v1/chat/completions", body, idempotent=True)
        try:
            choice = answer["choices"][0]
            content, reason = choice["message"]["content"], choice.get("finish_reason")
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise BadAnswer(f"{self._client.url} answered no choices[0].message.content.") from error
        text = content if isinstance(content, str) else ""
        if reason == "length":
            raise NoWholeAnswer(
                f"{self.model} was cut after {self.max_tokens} tokens: {_excerpt(text)!r}.",
                "Raise max_tokens, or ask for less.",
                text=text,
            )
        if not text.strip():
            raise NoWholeAnswer(f"{self.model} answered nothing (finish reason {reason!r}).")
        return text

    def __call__(self, text: str) -> str:
        return self.complete([{"role": "user", "content": text}])

    def complete_json(self, messages: Sequence[Message]) -> dict[str, Any]:
        """Returns the first JSON object of the answer. An answer without one is shown to the model, which may try once more.
        Raises NoJsonObject where the second has none either, and what `complete` raises."""
        text = self.complete(messages)
        try:
            return json_object(text)
        except NoJsonObject:
            asked = {"role": "user", "content": "Answer with one JSON object and nothing else."}
            return json_object(self.complete([*messages, {"role": "assistant", "content": text}, asked]))


def from_environment(model: str, what: str, **settings: Any) -> ChatModel:
    """Returns the chat model behind the URL in OPENAI_BASE_URL, with the key in OPENAI_API_KEY where it is set. Raises ChatError
    where no URL is set.

    Args:
        model: The name by which the endpoint knows the model.
        what: The part that needs the model, as the subject of the error's sentence.
        settings: Further arguments of `ChatModel`.
    """
    url = os.environ.get(BASE_URL, "")
    if not url:
        raise ChatError(
            f"{what} needs a chat model behind a URL, and {BASE_URL} is not set.",
            f"Set {BASE_URL} to an OpenAI-compatible server, such as http://localhost:8000/v1, and {API_KEY} if it wants a key.",
        )
    return ChatModel(url, model, api_key=os.environ.get(API_KEY) or None, **settings)


def model_in_environment(what: str) -> str:
    """Returns the name of the chat model in OPENAI_MODEL. Raises ChatError where it is not set.

    Args:
        what: The part that needs the model, as the subject of the error's sentence.
    """
    if not (name := os.environ.get(MODEL, "")):
        raise ChatError(f"{what} needs a chat model, and {MODEL} is not set.", "Set it to the model's name.")
    return name


def json_object(text: str) -> dict[str, Any]:
    """Returns the first JSON object of `text`, whatever prose or code fences surround it. An object that is cut is not searched
    for smaller ones: a part of an answer is not the answer. Raises NoJsonObject."""
    start = text.find("{")
    while start >= 0:
        try:
            value: dict[str, Any] = _DECODER.raw_decode(text, start)[0]
            return value
        except json.JSONDecodeError as error:
            start = text.find("{", max(error.pos, start + 1))
        except RecursionError:
            break
    raise NoJsonObject(
        f"There is no whole JSON object in {_excerpt(text)!r}.", "Ask for one in the prompt, or raise max_tokens."
    )


def _excerpt(text: str) -> str:
    return text if len(text) <= _EXCERPT else text[:_EXCERPT] + "..."
