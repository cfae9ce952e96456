"""Memory and model in one process: the same routes, answered by the in-process model through the gateway.

It needs aiohttp (the extra `gateway`) and torch; the SDKs where they are."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp")

import httpx

from keepworth import Client
from keepworth.models.inprocess import InProcessModel
from keepworth.serving.access import new_access
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
    model: Any = server.gateway.upstream.model  # type: ignore[union-attr]
    seen: list[str] = []
    drawn = model.sample_as

    def noted(name: str, request: str, prompts: Any, *rest: Any) -> Any:
        seen.extend(model.decode(prompt) for prompt in prompts)
        return drawn(name, request, prompts, *rest)

    monkeypatch.setattr(model, "sample_as", noted)
    return seen


ASKED = {"model": "tiny", "temperature": 0}
QUESTION = {"role": "user", "content": "What am I allergic to?"}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {**ASKED, "messages": [QUESTION], "max_tokens": 5},
    "/v1/responses": {**ASKED, "input": "What am I allergic to?", "max_output_tokens": 5},
    "/v1/messages": {**ASKED, "messages": [QUESTION], "max_tokens": 5},
    "/v1/completions": {**ASKED, "prompt": "What am I allergic to?", "max_tokens": 5},
}


@pytest.mark.parametrize("path", BODIES)
def test_the_model_reads_what_memory_recalls(
    server: MemoryServer, http: httpx.Client, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = prompts(server, monkeypatch)
    format = next(each for each in FORMATS if each.path == path)
    whole = http.post(path, json=BODIES[path])
    assert whole.status_code == 200, whole.text
    assert f"{MARK}\n- I am allergic to peanuts." in seen[0]
    assert whole.headers["x-keepworth-model"] == "tiny"
    with Client(server.url, server.token) as memory:
        receipt = memory.receipt(whole.headers["x-keepworth-episode"])
    assert receipt["injected"] == receipt["recalled"] != []
    words = format.reply(whole.content, "application/json").words
    assert words, "greedy, so that it says the same again"
    streamed = http.post(path, json={**BODIES[path], "stream": True})
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
    first = client.responses.create(model="tiny", input="I like tea.", max_output_tokens=4, instructions="Be brief.")
    second = client.responses.create(model="tiny", input="Why?", max_output_tokens=4, previous_response_id=first.id)
    assert second.previous_response_id == first.id
    with client.responses.stream(model="tiny", input="Why tea?", max_output_tokens=4) as events:
        assert [event.sequence_number for event in events] == list(range(8))
    with pytest.raises(openai.BadRequestError, match="not found"):
        client.responses.create(model="tiny", input="Why?", previous_response_id="resp_none")
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.chat.completions.create(model="gpt-5", messages=messages)
    with pytest.raises(openai.NotFoundError, match="no route POST /v1/embeddings"):
        client.embeddings.create(model="tiny", input="x")
    with pytest.raises(openai.BadRequestError, match="tools"):
        client.chat.completions.create(
            model="tiny", messages=messages, tools=[{"type": "function", "function": {"name": "look"}}]
        )
    client.close()


def test_anthropics_sdk_reads_its_answers(server: MemoryServer) -> None:
    anthropic = pytest.importorskip("anthropic")
    client = anthropic.Anthropic(base_url=server.url, api_key=server.token, max_retries=0)
    asked: Any = {"model": "tiny", "max_tokens": 4, "system": "Be brief.", "messages": [QUESTION]}
    whole = client.messages.create(**asked)
    assert whole.stop_reason in ("end_turn", "max_tokens")
    with client.messages.stream(**asked) as events:
        assert events.get_final_message().usage.output_tokens <= 4
    with pytest.raises(anthropic.BadRequestError, match="tools"):
        client.messages.create(**asked, tools=[{"name": "look", "input_schema": {"type": "object"}}])
    client.close()


def test_what_responses_keep_is_what_the_model_reads(
    server: MemoryServer, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The block of the first call stands in the second's prompt where it stood, and nothing is twice in it."""
    seen = prompts(server, monkeypatch)
    first = http.post("/v1/responses", json=BODIES["/v1/responses"]).json()
    http.post(
        "/v1/responses", json={**ASKED, "input": "And allergic to what else?", "previous_response_id": first["id"]}
    )
    assert seen[1].startswith(seen[0]), "the prompt grows at its end"
    assert seen[1].count("I am allergic to peanuts.") == 1


def test_nobody_goes_on_from_what_another_tenant_was_answered(server: MemoryServer, http: httpx.Client) -> None:
    first = http.post("/v1/responses", json=BODIES["/v1/responses"]).json()
    goes_on = {**ASKED, "input": "And what else?", "previous_response_id": first["id"]}
    acme = {"Authorization": f"Bearer {server.tokens.add(new_access(tenant='acme'))}"}
    refused = http.post("/v1/responses", json=goes_on, headers=acme)
    never = http.post("/v1/responses", json={**goes_on, "previous_response_id": "resp_" + "0" * 32}, headers=acme)
    assert refused.status_code == never.status_code == 400
    assert refused.text.replace(first["id"], "resp_" + "0" * 32) == never.text
    assert http.post("/v1/responses", json=goes_on).status_code == 200


def test_a_caller_that_leaves_takes_its_request_along(
    server: MemoryServer, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Any = server.gateway.upstream.model  # type: ignore[union-attr]
    left: list[Any] = []
    monkeypatch.setattr(model, "leave", lambda caller, leave=model.leave: (left.append(caller), leave(caller)))
    model.pause("wait")
    with pytest.raises(httpx.ReadTimeout):
        http.post("/v1/chat/completions", json=BODIES["/v1/chat/completions"], timeout=0.5)
    for _ in range(2000):
        if left:
            break
        time.sleep(0.005)
    assert [caller.left for caller in left] == [True]
    model.resume()
    assert http.post("/v1/chat/completions", json=BODIES["/v1/chat/completions"]).status_code == 200


def test_a_gateway_has_one_upstream(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="one upstream"):
        MemoryServer(tmp_path / "agent.mem", encoder=None, upstream="http://127.0.0.1:1", model=tiny_model(tmp_path))


def test_bodies_that_are_wrong_are_refused_as_the_route_refuses(http: httpx.Client) -> None:
    for path, wrong in (
        ("/v1/chat/completions", b"{"),
        ("/v1/chat/completions", b'{"messages": 5}'),
        ("/v1/responses", b'{"input": [1]}'),
        ("/v1/responses", b'{"input": [{"type": "function_call_output", "output": "x", "call_id": "c"}]}'),
        ("/v1/messages", b'{"messages": "x"}'),
        ("/v1/messages", b"[]"),
        ("/v1/completions", b'{"prompt": {}}'),
    ):
        answer = http.post(path, content=wrong, headers={"Content-Type": "application/json"})
        assert answer.status_code == 400, (path, wrong, answer.text)
        assert answer.json()["error"]["message"]
        assert ("type" in answer.json()) == (path == "/v1/messages")
    assert json.loads(http.get("/v1/models").content)["data"][0]["id"] == "tiny"
