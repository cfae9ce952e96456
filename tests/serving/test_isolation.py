"""Nobody learns of another through the tools of MCP or the gateway: what an id of somebody else is answered with is what an id of
nobody is answered with, and answers are the same with others beside as without."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("mcp")

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from keepworth.serving.http_server import HttpServer
from keepworth.serving.memory_server import MemoryServer
from tests.serving.callers import as_

TENANTS = itertools.count()
ASKED: list[str] = []


async def keeping(request: Request) -> Response:
    """Opens whatever it is asked for: it knows the gateway's key alone."""
    content = await request.body()
    ASKED.append(f"{request.method} {request.url.path} {content.decode()}")
    return JSONResponse({"id": "resp_1", "object": "response", "output": []})


@pytest.fixture(scope="module")
def keeper() -> Iterator[str]:
    app = Starlette(routes=[Route("/{path:path}", keeping, methods=["GET", "POST", "DELETE"])])
    with HttpServer(lambda workers: app, name="keeping", patience=1) as upstream:
        yield f"{upstream.url}/v1"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, keeper: str) -> Iterator[MemoryServer]:
    file = tmp_path_factory.mktemp("kept") / "a.mem"
    with MemoryServer(file, encoder="hashing", upstream=keeper, seed=0) as server:
        yield server


def calls(server: MemoryServer, tenant: str, **bounds: Any) -> httpx.Client:
    return as_(server, tenant, *bounds.pop("roles", ()), base="", **bounds)


KEPT = (
    ("POST", "/v1/responses", {"model": "m", "input": "and?"}),
    ("POST", "/v1/responses", {"model": "m", "input": "and?", "previous_response_id": "resp_1", "stream": True}),
    ("POST", "/v1/responses", {"model": "m", "input": "and?", "prompt": {"id": "pmpt_1"}}),
    ("POST", "/v1/responses", {"model": "m", "tools": [{"type": "file_search", "vector_store_ids": ["vs_1"]}]}),
    ("POST", "/v1/responses/input_tokens", {"model": "m", "previous_response_id": "resp_1"}),
    ("POST", "/v1/conversations", {"items": [{"type": "item_reference", "id": "msg_1"}]}),
    ("GET", "/v1/responses/resp_1", None),
    ("GET", "/v1/responses/resp_1/input_items", None),
    ("POST", "/v1/responses/resp_1/cancel", None),
    ("DELETE", "/v1/responses/resp_1", None),
    ("GET", "/v1/conversations/conv_1/items", None),
    ("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": [{"file": {"file_id": "file_1"}}]}]}),
    ("POST", "/v1/messages", {"messages": [{"role": "user", "content": [{"source": {"file_id": "file_1"}}]}]}),
    ("POST", "/v1/messages", {"messages": [{"role": "user", "content": "and?"}], "container": "cntr_1"}),
)


@pytest.mark.parametrize("memory", ["on", "off"])
def test_what_an_upstream_keeps_is_closed_to_whoever_shares_its_key(server: MemoryServer, memory: str) -> None:
    headers = {"X-Keepworth-Memory": memory}
    with (
        calls(server, "", user_id="ana") as ana,
        calls(server, "", agent_id="a1") as agent,
        calls(server, "acme") as other,
        calls(server, "") as program,
    ):
        for method, path, body in KEPT:
            ASKED.clear()
            for stranger in (ana, agent, other):
                answer = stranger.request(method, path, json=body, headers=headers)
                assert (answer.status_code, "upstream keeps" in answer.text) == (403, True), answer.text
            assert ASKED == [], "the upstream is not asked"
            assert program.request(method, path, json=body, headers=headers).status_code == 200
            assert len(ASKED) == 1
        chat = {"model": "m", "messages": [{"role": "user", "content": "and?"}]}
        assert ana.post("/v1/chat/completions", json=chat, headers=headers).status_code == 200


BODY = {"model": "m", "input": "and?", "messages": [{"role": "user", "content": "and?"}], "previous_response_id": "r1"}
PLAIN = json.dumps(BODY)


@pytest.mark.parametrize("memory", ["on", "off"])
@pytest.mark.parametrize(
    "raw",
    [
        *(PLAIN.encode(name) for name in ("utf-16", "utf-16-le", "utf-32", "utf-8-sig")),
        json.dumps({**BODY, "user": "\ud800"}).encode(),
        PLAIN[:-1].encode() + b', "x": ' + b"[" * 250 + b"]" * 250 + b"}",
        PLAIN[:-1].encode() + b', "x": "\xff"}',
        b"[1]",
        b'"x"',
        b"{",
        b"\xff",
    ],
)
def test_a_body_that_is_no_json_object_in_utf_8_goes_nowhere(server: MemoryServer, raw: bytes, memory: str) -> None:
    headers = {"Content-Type": "application/json", "X-Keepworth-Memory": memory}
    with calls(server, "") as program:
        for path in (
            "/v1/chat/completions",
            "/v1/responses",
            "/v1/completions",
            "/v1/messages",
            "/v1/embeddings",
            "/v1/responses/r1/cancel",
            "/v1/conversations",
        ):
            ASKED.clear()
            answer = program.post(path, content=raw, headers=headers)
            assert (answer.status_code, ASKED) == (400, []), path
            assert "error" in answer.json()


# -- tools, with another tenant beside and without ----------------------------------------------------------------------

TEXTS = st.sampled_from(["cats like milk", "dogs like bones", "milk", "rare words here", ""])
IDS = st.sampled_from(["m1", "m2", "m3", "e1", "d1", "last", "newest"])
TOOLS = st.one_of(
    st.tuples(st.just("add_memory"), st.fixed_dictionaries({"text": TEXTS})),
    st.tuples(st.just("search_memories"), st.fixed_dictionaries({"query": TEXTS}, optional={"episode": IDS})),
    st.tuples(st.just("get_memory"), st.fixed_dictionaries({"id": IDS})),
    st.tuples(st.just("list_memories"), st.fixed_dictionaries({}, optional={"after": IDS})),
    st.tuples(st.just("update_memory"), st.fixed_dictionaries({"id": IDS, "text": TEXTS})),
    st.tuples(st.just("supersede_memory"), st.fixed_dictionaries({"id": IDS, "text": TEXTS})),
    st.tuples(st.just("delete_memory"), st.fixed_dictionaries({"id": IDS})),
    st.tuples(st.just("memory_history"), st.fixed_dictionaries({"id": IDS})),
    st.tuples(st.just("start_episode"), st.fixed_dictionaries({"task": TEXTS})),
    st.tuples(st.just("report_outcome"), st.fixed_dictionaries({"target": IDS, "value": st.just(1.0)})),
    st.tuples(st.just("rollback_episode"), st.fixed_dictionaries({"episode": IDS})),
)
RANDOM = re.compile(r"\b([edr])[0-9a-f]{16}\b")
TIMES = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryServer]:
    with MemoryServer(tmp_path_factory.mktemp("alone") / "a.mem", encoder="hashing", seed=0, mcp=True) as server:
        yield server


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryServer]:
    with MemoryServer(tmp_path_factory.mktemp("beside") / "a.mem", encoder="hashing", seed=0, mcp=True) as server:
        yield server


def called(client: httpx.Client, tool: str, arguments: dict[str, Any]) -> str:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}
    answer = client.post("/mcp", json=body, headers=headers)
    return f"{answer.status_code} {json.dumps(answer.json().get('result', answer.json()), sort_keys=True)}"


def without_random_ids(text: str) -> str:
    """With a number in the place of each, by when it was first seen."""
    names: dict[str, str] = {}
    return RANDOM.sub(lambda found: names.setdefault(found[0], f"{found[1]}{len(names)}"), text)


def same_answers(alone: MemoryServer, beside: MemoryServer, history: list[tuple[str, dict[str, Any]]]) -> None:
    name = f"tools {next(TENANTS)}"
    with calls(alone, name) as one, calls(beside, name) as two, calls(beside, f"{name}, another") as other:
        answers: dict[httpx.Client, list[str]] = {one: [], two: []}
        theirs = ["e1"]
        for tool, arguments in history:
            for text in ("cats like milk", "rare words here", "their secret"):
                called(other, "add_memory", {"text": text})
            begun = called(other, "start_episode", {"task": "theirs"})
            theirs += re.findall(r"\be[0-9a-f]{16}\b", begun)
            called(other, "search_memories", {"query": "cats", "episode": theirs[-1]})
            for client, listed in answers.items():
                made = re.findall(r"\b[ed][0-9a-f]{16}\b", "".join(listed))
                own = {"last": made[-1] if made else "e0", "newest": theirs[-1]}
                given_ = {key: own.get(value, value) if key != "text" else value for key, value in arguments.items()}
                listed.append(called(client, tool, given_).replace(theirs[-1], "THEIRS"))
        plain = [without_random_ids(TIMES.sub("a time", "\n".join(listed))) for listed in answers.values()]
        assert plain[0] == plain[1]
        assert "secret" not in plain[1]


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(TOOLS, min_size=1, max_size=8))
def test_tools_answer_the_same_with_another_tenant_beside(
    alone: MemoryServer, beside: MemoryServer, history: list[tuple[str, dict[str, Any]]]
) -> None:
    same_answers(alone, beside, history)


# -- people of one tenant: what is another's is not there -----------------------------------------------------------------


def test_a_call_of_another_person_s_is_not_there(server: MemoryServer) -> None:
    """Episodes, receipts and items that a call through the gateway made."""
    tenant = f"tenant {next(TENANTS)}"
    with calls(server, tenant, user_id="ana") as ana, calls(server, tenant, user_id="bo") as bo:
        said = {"model": "m", "messages": [{"role": "user", "content": "I like green tea."}]}
        answer = ana.post("/v1/chat/completions", json=said)
        episode = answer.headers["x-keepworth-episode"]
        assert server.gateway is not None
        while server.gateway._finishing:
            pass
        (item,) = [row["id"] for row in ana.get("/v1/memory/items").json()["items"]]
        for method, path, body in (
            ("GET", "/v1/memory/episodes/{}/receipt", None),
            ("GET", "/v1/memory/episodes/{}", None),
            ("POST", "/v1/memory/episodes/{}/reward", {"value": 1.0}),
            ("POST", "/v1/memory/episodes/{}/end", {"outcome": "x"}),
            ("POST", "/v1/memory/rewards", {"target": "{}", "value": 1.0}),
            ("GET", "/v1/memory/items/{}", None),
            ("GET", "/v1/memory/items/{}/history", None),
            ("DELETE", "/v1/memory/items/{}", None),
            ("POST", "/v1/memory/items", {"content": "x", "episode": "{}"}),
        ):
            kinds = (episode, "e" + "0" * 16) if "items/" not in path else (item, "m999")
            told = []
            for id in kinds:
                said = json.loads(json.dumps(body).replace("{}", id))
                answer = bo.request(method, path.format(id), json=said)
                told.append((answer.status_code, answer.text.replace(id, "ID")))
            assert told[0] == told[1]
            assert told[0][0] == 404
