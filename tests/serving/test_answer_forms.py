"""Answers of a required form: JSON by a schema, and calls of a tool, from a model of this process through a gateway.

The model's weights are random, so what has the form has it by the grammar alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from keepworth.models.inprocess import InProcessModel
from keepworth.serving.memory_server import MemoryServer
from keepworth.training.model_server import upstream_of
from tests.learning.intercepted import write_chat_model
from tests.serving.callers import with_token

openai = pytest.importorskip("openai")

HELLO: Any = [{"role": "user", "content": "Hello."}]
COLOURS = ["red", "green"]
SCHEMA = {
    "type": "object",
    "properties": {
        "colour": {"enum": COLOURS},
        "count": {"type": "integer", "minimum": 10, "maximum": 40},
        "where": {
            "type": "object",
            "properties": {"x": {"type": "number", "minimum": 0, "maximum": 1}, "far": {"type": "boolean"}},
            "required": ["x", "far"],
            "additionalProperties": False,
        },
    },
    "required": ["colour", "count", "where"],
    "additionalProperties": False,
}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "thing", "schema": SCHEMA, "strict": True}}
LOOK: Any = {
    "name": "look",
    "parameters": {
        "type": "object",
        "properties": {"at": {"$ref": "#/$defs/place"}},
        "required": ["at"],
        "additionalProperties": False,
        "$defs": {"place": {"enum": ["door", "wall"]}},
    },
}
WAIT: Any = {"name": "wait", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}
TOOLS: Any = [{"type": "function", "function": tool} for tool in (LOOK, WAIT)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryServer]:
    folder = tmp_path_factory.mktemp("served")
    (write_chat_model(folder / "tiny") / "generation_config.json").write_text('{"eos_token_id": 0}')
    model = InProcessModel.load(folder / "tiny", name="tiny", precision="fp32")
    with MemoryServer(folder / "agent.mem", encoder=None, upstream=upstream_of(model)) as server:
        yield server


@pytest.fixture
def client(server: MemoryServer) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=server.token, max_retries=0) as client:
        yield client


def require_thing(text: str) -> None:
    """Fails unless a text is JSON of the schema."""
    thing = json.loads(text)
    assert list(thing) == ["colour", "count", "where"]
    assert thing["colour"] in COLOURS
    assert isinstance(thing["count"], int)
    assert 10 <= thing["count"] <= 40
    assert set(thing["where"]) == {"x", "far"}
    assert 0 <= thing["where"]["x"] <= 1
    assert isinstance(thing["where"]["far"], bool)


def test_each_answer_is_json_of_the_schema_or_is_cut_by_the_limit(client: Any) -> None:
    call = {"model": "tiny", "messages": HELLO, "max_tokens": 300, "response_format": FORMAT}
    several = client.chat.completions.create(**call, n=2, seed=3, logprobs=True)
    assert len({choice.message.content for choice in several.choices}) == 2
    for choice in several.choices:
        assert choice.finish_reason == "stop"
        require_thing(choice.message.content)
        tokens = choice.logprobs.content
        certain = [token.token for token in tokens if token.logprob == 0]
        assert "".join(certain).count("colour") == 1, "a key that no other stands beside is drawn for certain"
        assert any(token.logprob < 0 for token in tokens)
    for chunks in (client.chat.completions.create(**call, stream=True, temperature=0) for _ in range(2)):
        require_thing("".join(chunk.choices[0].delta.content or "" for chunk in chunks))
    cut = client.chat.completions.create(**{**call, "max_tokens": 12}).choices[0]
    assert (cut.finish_reason, len(cut.message.content)) == ("length", 12)
    stopped = client.chat.completions.create(**call, stop=['"count"']).choices[0]
    assert stopped.finish_reason == "stop"
    assert json.loads(stopped.message.content.rstrip().rstrip(",") + "}")["colour"] in COLOURS


def test_any_json_object_and_the_formats_of_responses_and_of_anthropic(client: Any, server: MemoryServer) -> None:
    free = client.chat.completions.create(
        model="tiny", messages=HELLO, max_tokens=60, response_format={"type": "json_object"}, n=4
    )
    for choice in free.choices:
        assert choice.message.content.startswith("{")
        if choice.finish_reason == "stop":
            assert isinstance(json.loads(choice.message.content), dict)
    format: Any = {"type": "json_schema", "name": "thing", "schema": SCHEMA}
    response = client.responses.create(model="tiny", input="Hello.", max_output_tokens=300, text={"format": format})
    require_thing(response.output_text)
    for field in ({"output_format": format}, {"output_config": {"format": format}}):
        answer = with_token(server).post(
            "/v1/messages", json={"model": "tiny", "messages": HELLO, "max_tokens": 300, **field}
        )
        require_thing(answer.json()["content"][0]["text"])


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("required", {"look", "wait"}),
        ({"type": "function", "function": {"name": "look"}}, {"look"}),
    ],
)
def test_a_tool_is_called_where_the_call_must_be_made(client: Any, choice: Any, names: set[str]) -> None:
    several = client.chat.completions.create(
        model="tiny", messages=HELLO, tools=TOOLS, tool_choice=choice, max_tokens=200, n=8, seed=1
    )
    called = [
        (call.function.name, json.loads(call.function.arguments))
        for c in several.choices
        for call in c.message.tool_calls
    ]
    assert {choice.finish_reason for choice in several.choices} == {"tool_calls"}
    assert {name for name, _ in called} == names
    assert all(arguments.get("at") in ("door", "wall") for name, arguments in called if name == "look")
    assert all(arguments == {} for name, arguments in called if name == "wait")


def test_the_other_formats_force_tools_too_and_json_goes_with_tools(client: Any, server: MemoryServer) -> None:
    look = {"type": "function", **LOOK}
    response = client.responses.create(
        model="tiny",
        input="Hello.",
        tools=[look],
        tool_choice={"type": "function", "name": "look"},
        max_output_tokens=200,
    )
    assert [item.name for item in response.output] == ["look"]
    tools = [{"name": tool["name"], "input_schema": tool["parameters"]} for tool in (LOOK, WAIT)]
    for choice, names in (({"type": "any"}, {"look", "wait"}), ({"type": "tool", "name": "wait"}, {"wait"})):
        body = {"model": "tiny", "messages": HELLO, "tools": tools, "tool_choice": choice, "max_tokens": 200}
        (used,) = with_token(server).post("/v1/messages", json=body).json()["content"]
        assert used["name"] in names
    several = client.chat.completions.create(
        model="tiny", messages=HELLO, tools=TOOLS, response_format=FORMAT, max_tokens=300, n=12, seed=2
    )
    assert {choice.finish_reason for choice in several.choices} == {"stop", "tool_calls"}
    for choice in several.choices:
        if choice.finish_reason == "stop":
            require_thing(choice.message.content)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {
                "properties": {"a": {"items": {"type": "array", "uniqueItems": True}}}}}}},
            "The schema at response_format.json_schema.schema.properties.a.items cannot be followed: "
            'Unimplemented keys: ["uniqueItems"]',
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {
                "$defs": {"b": {"type": "strang"}}, "properties": {"a": {"$ref": "#/$defs/b"}}}}}},
            "schema.$defs.b cannot be followed: Invalid type: strang",
        ),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema must be a JSON schema"),
        ({"response_format": {"type": "grammar"}}, "response_format.type = 'grammar' is not supported"),
        ({"tool_choice": "required"}, "wants a tool to be called that tools does not hold"),
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice = 'allowed_tools' is not supported"),
        (
            {"tool_choice": "required", "tools": [{"type": "function", "function": {
                "name": "look", "parameters": {"type": "object", "properties": {"at": {"format": "nowhere"}}}}}]},
            "The schema at tools[0].properties.at cannot be followed",
        ),
    ],
)  # fmt: skip
def test_a_form_that_cannot_be_had_is_refused_with_its_place(
    server: MemoryServer, fields: dict[str, Any], message: str
) -> None:
    answer: httpx.Response = with_token(server).post(
        "/v1/chat/completions", json={"model": "tiny", "messages": HELLO, "max_tokens": 5, **fields}
    )
    assert (answer.status_code, message in answer.json()["error"]["message"]) == (400, True), answer.text
