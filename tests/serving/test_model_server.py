"""A model of this process behind chat completions: who may ask, what is refused, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from keepworth.models.inprocess import InProcessModel
from keepworth.serving.model_server import ModelTransport
from tests.models.tiny import ByteTokenizer, tiny_model, tiny_network

CHAT = "/v1/chat/completions"
ASKED: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}


class TalkingTokenizer(ByteTokenizer):
    chat_template = "{{ messages }}"

    def apply_chat_template(self, messages: list[dict[str, str]], add_generation_prompt: bool, tokenize: bool) -> str:
        assert add_generation_prompt
        assert not tokenize
        return "".join(f"<{message['role']}>{message['content']}" for message in messages) + "<assistant>"


Call = Callable[..., httpx.Response]


def calling(model: InProcessModel) -> Call:
    transport = ModelTransport(model)

    def call(method: str, path: str, **options: Any) -> httpx.Response:
        async def sent() -> httpx.Response:
            return await httpx.AsyncClient(transport=transport, base_url="http://model").request(
                method, path, **options
            )

        return asyncio.run(sent())

    return call


@pytest.fixture(scope="module")
def call() -> Call:
    return calling(InProcessModel(tiny_network(), TalkingTokenizer(), "tiny"))


def refused(response: httpx.Response, status: int = 400) -> str:
    assert response.status_code == status, response.text
    return str(response.json()["error"]["message"])


def test_a_conversation(call: Call) -> None:
    answer = call("POST", CHAT, json={**ASKED, "temperature": 0}).json()
    assert answer["choices"][0]["message"]["role"] == "assistant"
    assert answer["usage"]["completion_tokens"] <= 3
    assert call("POST", CHAT, json={**ASKED, "temperature": 0}).json()["choices"] == answer["choices"]
    assert [row["id"] for row in call("GET", "/v1/models").json()["data"]] == ["tiny"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"min_p": 0.9}, "min_p is not supported"),
        ({"tools": [{}]}, "tools is not supported"),
        ({"temperature": "hot"}, "temperature is not supported"),
        ({"top_p": 0}, "top_p"),
        ({"n": 2}, "n is not supported"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 600}, "past the 512"),
        ({"model": "gpt"}, "does not exist"),
        ({"messages": "x"}, "messages must be a list"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "both texts"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_reason(call: Call, body: dict[str, Any], message: str) -> None:
    assert message in refused(call("POST", CHAT, json={**ASKED, **body}), 404 if "model" in body else 400)


def test_a_model_without_a_chat_template_says_so() -> None:
    assert "chat template" in refused(calling(tiny_model())("POST", CHAT, json=ASKED))
