"""Memory and model in one process: the same routes, answered by the in-process model through the gateway.

It needs torch; the SDKs where they are."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from keepworth import Client
from keepworth.models.chat_format import TokenizerChat
from keepworth.models.drawing import Drawing
from keepworth.models.inprocess import InProcessModel
from keepworth.serving.call_formats import FORMATS, MARK
from keepworth.serving.memory_server import MemoryServer
from keepworth.training.model_server import upstream_of
from tests.end_to_end.tiny_folder import write_tiny_checkpoint
from tests.serving.callers import with_token

TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "


def tiny_model(folder: Path) -> InProcessModel:
    return InProcessModel.load(write_tiny_checkpoint(folder / "tiny"), name="tiny", precision="fp32")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryServer]:
    folder = tmp_path_factory.mktemp("served")
    model = tiny_model(folder)
    model.tokenizer.chat_template = TEMPLATE
    with MemoryServer(folder / "agent.mem", encoder="hashing", seed=0, upstream=upstream_of(model)) as server:
        with Client(server.url, server.token) as memory:
            memory.add("I am allergic to peanuts.", user_id="ana")
        yield server


@pytest.fixture
def http(server: MemoryServer) -> httpx.Client:
    return with_token(server, **{"X-Keepworth-User": "ana"})


def prompts(server: MemoryServer, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the model reads from now on."""
    model: Any = server.gateway.upstream.transport.model  # type: ignore[union-attr]
    seen: list[str] = []
    drawings = model.drawings

    def noted(prompts: Any, *given: Any) -> Any:
        seen.extend(model.decode(prompt) for prompt in prompts)
        return drawings(prompts, *given)

    monkeypatch.setattr(model, "drawings", noted)
    return seen


ASKED = {"model": "tiny", "temperature": 0}
QUESTION = {"role": "user", "content": "What am I allergic to?"}
CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {**ASKED, "messages": [QUESTION], "max_tokens": 5}


def test_local_model_reads_recalled_items(
    server: MemoryServer, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = prompts(server, monkeypatch)
    format = next(each for each in FORMATS if each.path == CHAT)
    whole = http.post(CHAT, json=BODY)
    assert whole.status_code == 200, whole.text
    assert whole.json()["choices"][0]["message"]["role"] == "assistant"
    assert f"{MARK}\n- I am allergic to peanuts." in seen[0]
    assert whole.headers["x-keepworth-model"] == "tiny"
    with Client(server.url, server.token) as memory:
        receipt = memory.receipt(whole.headers["x-keepworth-episode"])
    assert receipt["injected"] == receipt["recalled"] != []
    assert receipt["seen_in"] == "the rendered prompt"
    words = format.reply(whole.content, "application/json").words
    assert words, "greedy, so that it says the same again"
    streamed = http.post(CHAT, json={**BODY, "stream": True})
    kind = streamed.headers["content-type"]
    assert kind.startswith("text/event-stream")
    assert format.reply(streamed.content, kind).words == words
    assert seen[1] == seen[0]


def test_the_sdks_read_its_answers(server: MemoryServer) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key=server.token, max_retries=0)
    messages: Any = [QUESTION]
    assert client.models.list().data[0].id == "tiny"
    assert client.chat.completions.create(model="tiny", messages=messages, max_tokens=4).usage.completion_tokens <= 4
    asked: Any = {"model": "tiny", "messages": messages, "max_tokens": 4, "stream_options": {"include_usage": True}}
    chunks = list(client.chat.completions.create(**asked, stream=True))
    assert chunks[1].choices[0].finish_reason in ("stop", "length")
    assert chunks[2].usage.completion_tokens <= 4
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.chat.completions.create(model="gpt-5", messages=messages)
    with pytest.raises(openai.NotFoundError, match="no route POST /v1/embeddings"):
        client.embeddings.create(model="tiny", input="x")
    tools: Any = [{"type": "function", "function": {"name": "look"}}]
    both = client.chat.completions.create(model="tiny", messages=messages, tools=tools, n=2, max_tokens=4)
    assert [choice.index for choice in both.choices] == [0, 1]
    response = client.responses.create(model="tiny", input="What am I allergic to?", max_output_tokens=4)
    assert response.usage.output_tokens <= 4
    with pytest.raises(openai.BadRequestError, match="has no token for"):
        client.chat.completions.create(model="tiny", messages=messages, tools=tools, tool_choice="required")
    client.close()
    anthropic = pytest.importorskip("anthropic")
    claude = anthropic.Anthropic(base_url=server.url, api_key=server.token, max_retries=0)
    assert claude.messages.create(model="tiny", messages=messages, max_tokens=4).usage.output_tokens <= 4
    claude.close()


def test_a_caller_that_leaves_takes_its_request_along(
    server: MemoryServer, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends with the token that is drawn, and the next call need not wait for the rest."""
    step, drawn = Drawing.step, list[Drawing]()

    def slow(drawing: Drawing) -> list[int]:
        drawn.append(drawing)
        time.sleep(0.05)
        return step(drawing)

    monkeypatch.setattr(Drawing, "step", slow)
    with pytest.raises(httpx.ReadTimeout):
        http.post(CHAT, json={**BODY, "max_tokens": 200}, timeout=0.5)
    assert http.post(CHAT, json=BODY).status_code == 200
    assert len(drawn) < 100


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"min_p": 0.9}, "min_p is not supported"),
        ({"temperature": "hot"}, "temperature is not supported"),
        ({"top_p": 0}, "top_p"),
        ({"n": 0}, "n is not supported"),
        ({"top_logprobs": 3}, "top_logprobs is not supported"),
        ({"response_format": {"type": "json_object"}}, "has no token for '\"' that does not end its answers"),
        ({"messages": [QUESTION, {"role": "assistant", "content": "To"}]}, "is not continued"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 4000}, "past the 2048"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "both texts"),
        ({"messages": 5}, "messages must be a list"),
    ],
)
def test_unsupported_options_are_refused_with_a_reason(http: httpx.Client, body: Any, message: str) -> None:
    answer = http.post(CHAT, json={**BODY, **body})
    assert (answer.status_code, message in answer.json()["error"]["message"]) == (400, True), answer.text


def test_a_body_that_is_no_json_and_a_model_without_a_chat_template(http: httpx.Client, tmp_path: Path) -> None:
    answer = http.post(CHAT, content=b"{", headers={"Content-Type": "application/json"})
    assert (answer.status_code, bool(answer.json()["error"]["message"])) == (400, True)
    with MemoryServer(tmp_path / "agent.mem", encoder=None, upstream=upstream_of(tiny_model(tmp_path))) as server:
        answer = with_token(server).post(CHAT, json=BODY)
        assert (answer.status_code, "chat template" in answer.text) == (400, True)


NO_SYSTEM = "{% for m in messages if m['role'] == 'system' %}{{ raise_exception('no system') }}{% endfor %}"
ALTERNATES = (
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate') }}"
    "{% endif %}{% endfor %}"
)
FIRST = "{% for m in messages[1:] if m['role'] == 'system' %}{{ raise_exception('first') }}{% endfor %}"


@pytest.mark.parametrize("strict", [NO_SYSTEM + ALTERNATES, FIRST])
@pytest.mark.parametrize("parts", [False, True])
def test_a_model_with_a_strict_template_takes_memory_and_a_system_prompt(
    server: MemoryServer, http: httpx.Client, monkeypatch: pytest.MonkeyPatch, strict: str, parts: bool
) -> None:
    model: Any = server.gateway.upstream.transport.model  # type: ignore[union-attr]
    monkeypatch.setattr(model.tokenizer, "chat_template", strict + TEMPLATE)
    monkeypatch.setattr(model, "chat", TokenizerChat(model.tokenizer, "tiny"))
    seen = prompts(server, monkeypatch)
    text = f"What am I allergic to, {len(strict)} {parts}?"
    asked = {"role": "user", "content": [{"type": "text", "text": text}] if parts else text}
    history = [{"role": "system", "content": "Be brief."}, asked]
    for turn in range(2):
        answer = http.post(CHAT, json={**BODY, "messages": history})
        assert answer.status_code == 200, answer.text
        assert f"{MARK}\n- I am allergic to peanuts." in seen[turn]
        assert "Be brief." in seen[turn]
        history += [
            {"role": "assistant", "content": "Hm."},
            {"role": "user", "content": "To which of them most of all?"},
        ]


NESTED = "[" * 1100
CALLED = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": NESTED}}
ANSWERED = {"role": "tool", "tool_call_id": "c1", "content": "none"}
NESTED_CALLS = [
    (CHAT, {**BODY, "messages": [QUESTION, {"role": "assistant", "content": None, "tool_calls": [CALLED]}, ANSWERED]}),
    (
        "/v1/responses",
        {
            **ASKED,
            "max_output_tokens": 4,
            "input": [
                QUESTION,
                {"type": "function_call", "call_id": "c1", "name": "look", "arguments": NESTED},
                {"type": "function_call_output", "call_id": "c1", "output": "none"},
            ],
        },
    ),
]


@pytest.mark.parametrize(("path", "body"), NESTED_CALLS)
def test_arguments_that_nest_without_end_are_a_text(http: httpx.Client, path: str, body: Any) -> None:
    """A model that was cut off while it repeated itself wrote them; the caller sends its call back with the conversation."""
    response = http.post(path, json=body)
    assert response.status_code == 200, response.text
