"""Memory and model in one process: the same routes, answered by the in-process model through the gateway.

It needs torch; the SDKs where they are."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from keepworth import Client
from keepworth.models.drawing import Drawing
from keepworth.models.inprocess import InProcessModel
from keepworth.serving.call_formats import FORMATS, MARK
from keepworth.serving.memory_server import MemoryServer
from tests.end_to_end.tiny_folder import write_tiny_checkpoint

TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "


def tiny_model(folder: Path) -> InProcessModel:
    model = InProcessModel.load(write_tiny_checkpoint(folder / "tiny"), name="tiny", precision="fp32")
    model.tokenizer.chat_template = TEMPLATE
    return model


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MemoryServer]:
    with MemoryServer(tmp_path / "agent.mem", encoder="hashing", seed=0, model=tiny_model(tmp_path)) as server:
        with Client(server.url, server.token) as memory:
            memory.add("I am allergic to peanuts.", user_id="ana")
        yield server


@pytest.fixture
def http(server: MemoryServer) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {server.token}", "X-Keepworth-User": "ana"}
    with httpx.Client(base_url=server.url, headers=headers, trust_env=False, timeout=60) as client:
        yield client


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


def test_the_model_reads_what_memory_recalls(
    server: MemoryServer, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = prompts(server, monkeypatch)
    format = next(each for each in FORMATS if each.path == CHAT)
    whole = http.post(CHAT, json=BODY)
    assert whole.status_code == 200, whole.text
    assert f"{MARK}\n- I am allergic to peanuts." in seen[0]
    assert whole.headers["x-keepworth-model"] == "tiny"
    with Client(server.url, server.token) as memory:
        receipt = memory.receipt(whole.headers["x-keepworth-episode"])
    assert receipt["injected"] == receipt["recalled"] != []
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
    with pytest.raises(openai.BadRequestError, match="tools"):
        client.chat.completions.create(
            model="tiny", messages=messages, tools=[{"type": "function", "function": {"name": "look"}}]
        )
    client.close()


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


def test_a_gateway_has_one_upstream(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="one upstream"):
        MemoryServer(tmp_path / "agent.mem", encoder=None, upstream="http://127.0.0.1:1", model=tiny_model(tmp_path))


def test_bodies_that_are_wrong_are_refused_as_the_route_refuses(http: httpx.Client) -> None:
    for path, wrong in (("/v1/chat/completions", b"{"), ("/v1/chat/completions", b'{"messages": 5}')):
        answer = http.post(path, content=wrong, headers={"Content-Type": "application/json"})
        assert answer.status_code == 400, (path, wrong, answer.text)
        assert answer.json()["error"]["message"]
    assert json.loads(http.get("/v1/models").content)["data"][0]["id"] == "tiny"
