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

pytest.importorskip("aiohttp")
pytest.importorskip("mcp")

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from keepworth.memory.item import Scope
from keepworth.memory.store import injections
from keepworth.serving.access import new_access
from keepworth.serving.http_server import HttpServer
from keepworth.serving.memory_server import MemoryServer

NUMBERS, TENANTS = itertools.count(), itertools.count()
ASKED: list[str] = []


async def keeping(request: Request) -> Response:
    """Opens whatever it is asked for: it knows the gateway's key alone."""
    content = await request.body()
    ASKED.append(f"{request.method} {request.url.path} {content.decode()}")
    number = next(NUMBERS)
    message = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": []}
    body = json.loads(content) if content else {}
    if request.url.path.endswith("/conversations"):
        return JSONResponse({"id": f"conv_{number}", "object": "conversation"})
    if request.method == "GET" and request.url.path.endswith("items"):
        return JSONResponse({"object": "list", "data": [{**message, "id": f"listed_{number}"}]})
    if request.method != "POST" or not request.url.path.endswith("/responses"):
        return JSONResponse({"id": request.url.path.split("/")[3], "object": "response"})
    whole = {"id": f"resp_{number}", "object": "response", "output": [message], "status": "completed"}
    if not body.get("stream"):
        return JSONResponse(whole)

    async def events() -> Any:
        for name, told in (
            ("response.created", {"response": {**whole, "output": []}}),
            ("response.output_item.added", {"item": message}),
            ("response.completed", {"response": whole}),
        ):
            said = f"event: {name}\ndata: {json.dumps({'type': name, **told})}\n\n".encode()
            yield said[:9]
            yield said[9:]

    return StreamingResponse(events(), media_type="text/event-stream")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryServer]:
    app = Starlette(routes=[Route("/{path:path}", keeping, methods=["GET", "POST", "DELETE"])])
    with (
        HttpServer(lambda workers: app, name="keeping", patience=1) as upstream,
        MemoryServer(
            tmp_path_factory.mktemp("kept") / "a.mem", encoder="hashing", upstream=f"{upstream.url}/v1", seed=0
        ) as server,
    ):
        yield server


def calls(server: MemoryServer, tenant: str, **bounds: Any) -> httpx.Client:
    token = server.tokens.add(new_access(tenant=tenant, **bounds))
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.Client(base_url=server.url, headers=headers, trust_env=False, timeout=30)


def asks(client: httpx.Client, **more: Any) -> httpx.Response:
    """headers: of the call; memory: whether memory takes part."""
    headers = more.pop("headers", {})
    return client.post("/v1/responses", json={"model": "m", "input": "What do I like?", **more}, headers=headers)


def ids(answer: httpx.Response) -> tuple[str, str]:
    assert answer.status_code == 200, answer.text
    found = re.findall(r'"id": ?"((?:resp|msg)_\d+)"', answer.text)
    return (
        next(each for each in found if each.startswith("resp_")),
        next(each for each in found if each.startswith("msg_")),
    )


WAYS = (
    ("POST", "/v1/responses", {"model": "m", "input": "and?", "previous_response_id": "ID"}),
    ("POST", "/v1/responses", {"model": "m", "input": "and?", "previous_response_id": "ID", "stream": True}),
    ("POST", "/v1/responses", {"model": "m", "input": "and?", "conversation": "ID"}),
    ("POST", "/v1/responses", {"model": "m", "input": "and?", "conversation": {"id": "ID"}}),
    ("POST", "/v1/responses", {"model": "m", "input": [{"type": "item_reference", "id": "ID"}]}),
    ("POST", "/v1/responses", {"model": "m", "input": [{"id": "ID"}]}),
    ("POST", "/v1/responses/input_tokens", {"model": "m", "previous_response_id": "ID"}),
    ("POST", "/v1/conversations", {"items": [{"type": "item_reference", "id": "ID"}]}),
    ("GET", "/v1/responses/ID", None),
    ("GET", "/v1/responses/ID/input_items", None),
    ("POST", "/v1/responses/ID/cancel", None),
    ("DELETE", "/v1/responses/ID", None),
    ("GET", "/v1/conversations/ID", None),
    ("GET", "/v1/conversations/ID/items", None),
    ("POST", "/v1/conversations/ID", {"metadata": {}}),
)


@pytest.mark.parametrize(("memory", "stream"), [("on", True), ("off", True), ("off", False)])
def test_what_an_upstream_keeps_opens_to_whom_it_was_given_alone(
    server: MemoryServer, stream: bool, memory: str
) -> None:
    tenant, headers = f"tenant {next(TENANTS)}", {"X-Keepworth-Memory": memory}
    with (
        calls(server, tenant, user_id="ana") as ana,
        calls(server, tenant, user_id="bo") as bo,
        calls(server, f"{tenant}, another") as other,
        calls(server, tenant) as program,
    ):
        response, message = ids(asks(ana, stream=stream, headers=headers))
        conversation = ana.post("/v1/conversations", json={}, headers=headers).json()["id"]
        listed = ana.get(f"/v1/conversations/{conversation}/items").json()["data"][0]["id"]
        for kept in (response, message, conversation, listed):
            for method, path, body in WAYS:

                def asked(
                    client: httpx.Client, id: str, method: str = method, path: str = path, body: Any = body
                ) -> Any:
                    said = json.loads(json.dumps(body).replace("ID", id))
                    answer = client.request(method, path.replace("ID", id), json=said, headers=headers)
                    told = {
                        name: value
                        for name, value in answer.headers.items()
                        if name not in ("date", "x-keepworth-episode")
                    }
                    length = told.pop("content-length", "")
                    return answer.status_code, answer.text.replace(id, "ID"), told, length

                ASKED.clear()
                for stranger, more in ((bo, {}), (other, {})):
                    theirs, nobodys = asked(stranger, kept, **more), asked(stranger, f"no{kept[2:]}")
                    assert theirs == nobodys
                    assert theirs[0] == (404 if "ID" in path else 400)
                    assert "not found" in theirs[1]
                assert ASKED == [], "the upstream is not asked"
                assert asked(ana, kept)[0] == 200
                assert asked(program, kept)[0] == 200, "a program may name every person of its tenant"
        as_bo = {**headers, "X-Keepworth-User": "bo"}
        assert asks(program, previous_response_id=response, headers=as_bo).status_code == 400
        assert asks(ana, previous_response_id=response, headers=as_bo).status_code == 403


def test_what_was_given_is_forgotten_with_its_person_and_after_a_month(
    server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant = f"tenant {next(TENANTS)}"
    with calls(server, tenant, user_id="ana") as ana, calls(server, tenant, user_id="bo") as bo:
        first, second = ids(asks(ana))[0], ids(asks(bo))[0]
        store = server.memories.of(new_access(tenant=tenant)).memory.store
        with store.database.reading() as connection:
            noted = "".join(name for (name,) in connection.execute("SELECT name FROM facts_of_file"))
        assert first not in noted
        with calls(server, tenant, roles=("read", "write", "admin")) as admin:
            assert admin.post("/v1/memory/erase", json={"user_id": "ana"}).status_code == 200
        assert asks(ana, previous_response_id=first).status_code == 400
        assert asks(bo, previous_response_id=second).status_code == 200, "an erasure leaves what others go on with"
        monkeypatch.setattr(injections, "KEPT_SECONDS", 1e-6)
        third = ids(asks(bo))[0]
        assert asks(bo, previous_response_id=third).status_code == 400


def test_what_is_given_after_an_erasure_is_not_noted(server: MemoryServer) -> None:
    """A call that was under way when its person was erased leaves no name behind."""
    scope = Scope("x", "ana")
    memory = server.memories.of(new_access(tenant=f"tenant {next(TENANTS)}")).memory
    memory.add("I like tea", user_id="ana")
    begun = memory.store.head()
    memory.erase(user_id="ana")
    injections.keep_given(memory.store, ["d1"], scope, since=begun)
    assert injections.given_to(memory.store, ["d1"]) == {}
    injections.keep_given(memory.store, ["d1"], scope, since=memory.store.head())
    assert injections.given_to(memory.store, ["d1"]) == {"d1": scope}


def test_who_was_given_it_first_stays_its_owner(server: MemoryServer) -> None:
    tenant = f"tenant {next(TENANTS)}"
    with calls(server, tenant, user_id="ana") as ana, calls(server, tenant) as program:
        response = ids(asks(ana))[0]
        assert asks(program, previous_response_id=response).status_code == 200
        assert asks(ana, previous_response_id=response).status_code == 200
    store = server.memories.of(new_access(tenant=tenant)).memory.store
    with store.database.reading() as connection:
        found = list(connection.execute("SELECT value FROM facts_of_file WHERE name GLOB 'given *'"))
    owners = {json.loads(value)["scope"][1] for (value,) in found}
    assert owners == {"ana", ""}, "what the program was given itself is the program's"


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5) | st.just("resp_1"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "type", "conversation", "data", "output", "input", "items"]), inner, max_size=3
        )
    ),
    max_leaves=10,
)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.dictionaries(
        st.sampled_from(["id", "previous_response_id", "conversation", "input", "items", "output"]), JSON_VALUES
    )
)
def test_any_body_is_read_for_ids_and_none_breaks_it(server: MemoryServer, body: dict[str, Any]) -> None:
    with calls(server, "fuzzed") as client:
        for path in ("/v1/responses", "/v1/responses/resp_1/cancel", "/v1/conversations"):
            answer = client.post(path, json=body)
            assert answer.status_code in (200, 400, 404), answer.text


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


@pytest.mark.slow
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(TOOLS, min_size=1, max_size=12))
def test_tools_answer_the_same_over_many_histories(
    alone: MemoryServer, beside: MemoryServer, history: list[tuple[str, dict[str, Any]]]
) -> None:
    same_answers(alone, beside, history)


# -- people of one tenant: what is another's is not there -----------------------------------------------------------------


def test_a_call_of_another_person_s_is_not_there(server: MemoryServer) -> None:
    """Episodes, receipts and items that a call through the gateway made."""
    tenant = f"tenant {next(TENANTS)}"
    with calls(server, tenant, user_id="ana") as ana, calls(server, tenant, user_id="bo") as bo:
        answer = asks(ana, input="I like green tea.")
        episode = answer.headers["x-keepworth-episode"]
        assert server.gateway is not None
        while server.gateway._finishing:
            pass
        (item,) = [each["id"] for each in ana.get("/v1/memory/items").json()["items"]]
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
