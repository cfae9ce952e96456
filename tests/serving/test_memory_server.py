"""A memory over HTTP: who may do what, what is refused and how it is said, and that no tenant learns of another."""

from __future__ import annotations

import json
import re
import socket
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keepworth import Client, Memory
from keepworth.cli.main import main
from keepworth.memory.store import notes as noted
from keepworth.serving.access import ROLES, Access, Tokens, new_access, tokens_of
from keepworth.serving.application import ServerLimits
from keepworth.serving.calls import NotServed
from keepworth.serving.memory_routes import BASE
from keepworth.serving.memory_server import MemoryServer
from keepworth.serving.verbs import VERBS
from tests.serving.callers import as_, served, with_token

JSON = {"Content-Type": "application/json"}


server = served(encoder="hashing", limits=ServerLimits(body=2**20))


def refused(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = response.json()
    assert set(problem) == {"type", "title", "status", "detail", "code", "field", "value", "fix"}
    assert problem["status"] == status
    assert problem["detail"]
    assert says_what_to_do(problem), problem
    return problem


DOING = re.compile(
    r"(?i)\b(send|give|use|say|leave|read|take|ask|try|call|start|name|restore|make|use|did you mean|get|write|look|decode|"
    r"remove|change|split|pass|undo|put|bind|open|shorten|delete|post|scale|declare|see|known|its log)\b"
)


def says_what_to_do(problem: dict[str, Any]) -> bool:
    """A fix that repeats what is wrong is none, nor is one that only says that nothing was done."""
    fix = problem["fix"]
    return fix != problem["detail"] and not fix.startswith("nothing was") and bool(DOING.search(fix))


@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer kw_wrong", "Basic a2V5", "Bearer \xff", "Bearer  "])
@pytest.mark.parametrize("path", ["/v1/memory/items", "/nowhere", "/openapi.json", "/health", "/v1/messages"])
def test_body_is_not_read_without_a_token(server: MemoryServer, authorization: str, path: str) -> None:
    """The length is announced, nothing follows: whoever reads first waits for ever."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\nAuthorization: {authorization}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", int(server.url.rsplit(":", 1)[1])), 20) as connection:
        connection.sendall(head.encode("latin-1"))
        assert connection.recv(65536).startswith(b"HTTP/1.1 401")


def test_a_page_of_another_site_is_refused_and_no_answer_is_for_pages(server: MemoryServer, tenant: str) -> None:
    with as_(server, tenant) as client:
        problem = refused(client.get("/items", headers={"Origin": "https://evil.example"}), 403)
        assert "pages of other sites" in problem["detail"]
        for name, values in (
            ("Origin", ("null", "http://127.0.0.1:1")),
            ("Sec-Fetch-Site", ("cross-site", "same-site")),
            ("Host", ("evil.example", "127.0.0.1.evil.example", "")),
        ):
            for value in values:
                refused(client.get("/items", headers={name: value}), 403)
        answered = client.get("/items", headers={"Origin": server.url, "Sec-Fetch-Site": "same-origin"})
        assert answered.status_code == 200
        assert not any(name.startswith("access-control") for name in answered.headers)
        assert refused(client.request("OPTIONS", "/items"), 405)


@pytest.mark.parametrize("role", ROLES)
def test_each_route_wants_its_role(server: MemoryServer, tenant: str, role: str) -> None:
    with as_(server, tenant, role) as client:
        for route in VERBS:
            path = route.path.replace("{id}", "m1")
            status = client.request(route.method, path, json={} if route.in_body else None).status_code
            assert (status == 403) == (route.role != role), (route, status)


def test_token_of_a_person_is_limited_to_that_person(server: MemoryServer, tenant: str) -> None:
    with as_(server, tenant) as all_, as_(server, tenant, user_id="ana") as ana:
        his = all_.post("/items", json={"content": "Bob likes cats", "user_id": "bob"}).json()["items"][0]
        hers = ana.post("/items", json={"content": "I like cats"}).json()["items"][0]
        assert hers["scope"]["user"] == "ana"
        assert [row["id"] for row in ana.get("/items").json()["items"]] == [hers["id"]]
        for path in ("/items/{}", "/items/{}/history", "/items/{}/worth?query=x"):
            theirs, nobodys = ana.get(path.format(his["id"])), ana.get(path.format("m999"))
            assert theirs.status_code == nobodys.status_code == 404
            assert theirs.text.replace(his["id"], "") == nobodys.text.replace("m999", "")
        refused(ana.post("/items", json={"content": "x", "user_id": "bob"}), 403)
        refused(ana.delete(f"/items/{his['id']}"), 404)
        episode = all_.post("/episodes", json={"task": "t", "user_id": "bob"}).json()["id"]
        refused(ana.post(f"/episodes/{episode}/reward", json={"value": 1.0}), 404)
        hits = ana.post("/search", json={"query": "cats"}).json()
        assert [hit["item"]["id"] for hit in hits["hits"]] == [hers["id"]]
        told = {"target": hits["decision"], "value": 1}
        assert refused(ana.post("/rewards", json={**told, "by": "bob"}), 403)["field"] == "by"
        assert ana.post("/rewards", json=told).status_code == 200
        assert [row["item"] for row in ana.get("/ledger").json()["accounts"]] == [hers["id"]]
        assert {row["item"] for row in all_.get("/ledger").json()["accounts"]} >= {hers["id"]}
        exported = [json.loads(line) for line in all_.get("/export?user_id=ana").text.splitlines()]
        assert [line["item"]["id"] for line in exported if "item" in line] == [hers["id"]]


def test_tokens_are_hashed_at_rest_and_taken_back(server: MemoryServer, tenant: str) -> None:
    made = new_access(tenant=tenant, roles=["read"], user_id="ana")
    token, file = server.tokens.add(made), tokens_of(server.memories.place.file)
    at_rest = file.read_text(encoding="utf-8")
    assert token not in at_rest
    assert made.id in at_rest
    assert file.stat().st_mode & 0o777 == 0o600
    with with_token(server, token, BASE) as client:
        assert client.get("/access").json()["user_id"] == "ana"
        Tokens(file).remove(made.id)
        refused(client.get("/access"), 401)


def test_quarantined_text_needs_the_admin_role(server: MemoryServer, tenant: str) -> None:
    key = "sk-proj-a1B2c3D4e5F6g7H8i9J0"
    writer, admin = as_(server, tenant, "read", "write", user_id="ana"), as_(server, tenant)
    made = writer.post("/items", json={"content": f"the deploy key is {key}"}).json()["items"][0]
    assert made["status"] == "quarantined"
    assert writer.post("/search", json={"query": "deploy key"}).json()["hits"] == []
    id = made["id"]
    for asked in (
        writer.get("/quarantine"),
        writer.post(f"/items/{id}/release"),
        writer.patch(f"/items/{id}", json={"status": "active"}),
        writer.post("/search", json={"query": "deploy key", "statuses": ["active", "quarantined"]}),
        writer.get(f"/items/{id}/history"),
    ):
        refused(asked, 403)
    episode = writer.post("/episodes", json={"task": "deploy"}).json()["id"]
    later = {"content": f"the other key is {key}", "episode": episode}
    assert writer.post("/items", json=later).json()["items"][0]["status"] == "quarantined"
    assert key in admin.get(f"/episodes/{episode}").text
    for seen in (
        writer.get(f"/items/{id}"),
        writer.get("/items", params={"all_states": True}),
        writer.patch(f"/items/{id}", json={"trust": 0.9}),
        writer.patch(f"/items/{id}", json={"expires_at": "2035-01-01"}),
        writer.get(f"/episodes/{episode}"),
    ):
        assert seen.status_code == 200
        assert key not in seen.text
        assert "(held in quarantine)" in seen.text
    listing = {"all_states": True, "where": '{"nothing": {"$exists": false}}'}
    assert id not in {row["id"] for row in writer.get("/items", params=listing).json()["items"]}
    assert id in {row["id"] for row in admin.get("/items", params=listing).json()["items"]}
    waiting = [row["text"] for row in admin.get("/quarantine").json()["items"]]
    assert waiting == [f"the deploy key is {key}", f"the other key is {key}"]
    assert admin.post(f"/items/{id}/release").json().get("status", "active") == "active"
    assert [row["id"] for row in admin.get("/quarantine").json()["items"]] != [id]
    assert [hit["item"]["id"] for hit in writer.post("/search", json={"query": "deploy key"}).json()["hits"]] == [id]
    refused(admin.post(f"/items/{id}/release"), 422)


def test_write_only_token_gets_no_item_text(server: MemoryServer, tenant: str) -> None:
    admin, blind = as_(server, tenant), as_(server, tenant, "write")
    id = admin.post("/items", json={"content": "Ana's diary", "metadata": {"of": "diary"}}).json()["items"][0]["id"]
    refused(blind.get(f"/items/{id}"), 403)
    for done in (
        blind.patch(f"/items/{id}", json={"trust": 0.9}),
        blind.post(f"/items/{id}/supersede", json={"text": "Ana has none"}),
    ):
        assert done.status_code == 200
        assert done.json()["id"]
        assert "diary" not in done.text


def test_number_of_hits_may_be_automatic(server: MemoryServer, recwarn: pytest.WarningsRecorder) -> None:
    with Client(server.url, server.token) as client:
        client.add("The gate code is 4471.", user_id="auto")
        assert len(client.search("What is the gate code?", top_k="auto", user_id="auto")) == 1
    assert [str(warning.message) for warning in recwarn if "erializ" in str(warning.message)] == []


def test_token_expires(server: MemoryServer, tenant: str) -> None:
    token = server.tokens.passing(Access("t0", tenant, until="2020-01-01T00:00:00"))
    assert refused(with_token(server, token, BASE).get("/items"), 401)["field"] == "Authorization"


def test_concurrent_token_additions_are_kept_and_a_damaged_file_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "agent.mem.tokens.json"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: Tokens(file).add(new_access()), range(8)))
    tokens = Tokens(file)
    assert len(tokens.all()) == 8
    passing = tokens.passing(Access("start"))
    file.write_text("{", encoding="utf-8")
    assert tokens.check("/", f"Bearer {passing}").id == "start"
    with pytest.raises(NotServed, match="cannot be read") as refusal:
        tokens.check("/", "Bearer kw_other")
    assert refusal.value.status == 500
    assert str(file) in caplog.text


def test_tokens_are_made_listed_and_removed_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "agent.mem"

    def token_command(*words: str) -> int:
        return main(["memory", "token", *words, "--file", str(file)])

    for words in (["add"], ["list"], ["remove", "t1"]):
        assert token_command(*words) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert f"There is no memory at {file}" in said.err
        assert f"keepworth serve --memory {file}" in said.err
    assert list(tmp_path.iterdir()) == [], "a mistyped name leaves nothing"
    Memory(file, encoder=None).close()
    assert token_command("add", "--tenant", "acme", "--role", "read") == 0
    said = capsys.readouterr()
    token = said.out.strip()
    access = Tokens(tokens_of(file)).check("/", f"Bearer {token}")
    assert (access.tenant, access.roles) == ("acme", ("read",))
    assert f"`keepworth memory token remove {access.id} --file {file}`" in said.err
    assert token_command("list") == 0
    assert capsys.readouterr().out == f"{access.id}  read  tenant acme\n"
    assert token_command("remove", access.id) == 0
    assert token_command("remove", access.id) == 2
    assert token_command("add", "--role", "reed") == 2
    assert "Did you mean 'read'" in capsys.readouterr().err


BAD: list[tuple[str, str, Any, int, str]] = [
    ("POST", "/items", {"content": "x", "trust": 3}, 422, "trust"),
    ("POST", "/items", {"content": "x", "trust": "high"}, 422, "trust"),
    ("POST", "/items", {"content": "x", "contents": 1}, 422, "contents"),
    ("POST", "/items", {"content": 5}, 422, "content"),
    ("POST", "/items", {"content": "x", "provenances": [{"turn": "first"}]}, 422, "provenances.0.turn"),
    ("POST", "/items", {"content": "x", "provenances": [{"turns": 1}]}, 422, "provenances.0.turns"),
    ("POST", "/items", {"content": "x", "ttl": -1}, 422, "ttl"),
    ("POST", "/items", {"content": ""}, 422, ""),
    ("POST", "/items", {"content": "x", "valid_from": "2025", "valid_to": "2024"}, 422, "valid_from"),
    ("POST", "/search", {"query": "x", "threshold": "high"}, 422, "threshold"),
    ("POST", "/search", {"query": "x", "kinds": ["thing"]}, 422, ""),
    ("POST", "/rewards", {"target": "e1", "value": 1e300}, 422, "value"),
    ("POST", "/erase", {}, 422, ""),
    ("POST", "/forget", {"ids": []}, 422, "ids"),
    ("POST", "/episodes/e1/act", {"action": "x"}, 404, "id"),
    ("POST", "/items", {}, 422, "content"),
    ("POST", "/items", {"content": "x", "texts": ["y"]}, 422, "content"),
    ("POST", "/items", {"content": "x", "kind": "thing"}, 422, "kind"),
    ("POST", "/items", {"content": "x", "event_time": "yesterday"}, 422, "event_time"),
    ("POST", "/items", {"content": "x", "user_id": "a" * 513}, 422, "user_id"),
    ("POST", "/items", {"content": [{"role": "user"}]}, 422, ""),
    ("POST", "/items", {"content": "x", "episode": "e1"}, 404, "episode"),
    ("POST", "/items", {"texts": ["x"] * 1001}, 422, "texts"),
    ("PATCH", "/items/m1", {"trust": 0.5}, 404, "id"),
    ("GET", "/items/m1", None, 404, "id"),
    ("GET", "/items?limit=0", None, 422, "limit"),
    ("GET", "/items?limit=many", None, 422, "limit"),
    ("GET", "/items?colour=red", None, 422, "colour"),
    ("GET", "/items?after=x", None, 404, "after"),
    ("GET", "/items", {"limit": 1}, 422, "body"),
    ("DELETE", "/items", None, 422, ""),
    ("POST", "/search", {"query": "x", "top_k": 10_000}, 422, "top_k"),
    ("POST", "/search", {"query": "x", "mode": "psychic"}, 422, "mode"),
    ("POST", "/search", {"query": "x", "where": "a"}, 422, "where"),
    ("POST", "/search", {"query": "x", "where": {"age": {"$near": 3}}}, 422, "where"),
    ("POST", "/search", {}, 422, "query"),
    ("POST", "/rewards", {"target": "e1", "value": 1}, 404, "target"),
    ("POST", "/rewards", {"target": "e1", "value": "1"}, 422, "value"),
    ("POST", "/rollbacks", {}, 422, ""),
    ("POST", "/snapshots", {"a": 1}, 422, "body"),
    ("GET", "/diff?one=s99", None, 404, "one"),
    ("GET", "/nowhere", None, 404, ""),
    ("PUT", "/items", {}, 405, ""),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "field"), BAD)
def test_invalid_request_names_field_value_and_fix(
    server: MemoryServer, method: str, path: str, body: Any, status: int, field: str
) -> None:
    with as_(server, "where nothing is ever written") as client:
        problem = refused(client.request(method, path, json=body), status)
        assert problem["field"] == field
        assert str(server.memories.place.file) not in problem["detail"]
        assert problem["value"] or field in ("", "content", "query", "body")
        assert client.get("/items").json()["items"] == []


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b"\xff\xfe", "application/json", 400),
        ('{"content": "a"}'.encode("utf-16"), "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b'{"metadata":' * 150 + b"1" + b"}" * 150, "application/json", 422),
        (b"[]", "application/json", 400),
        (b'{"content": "x", "trust": NaN}', "application/json", 422),
        (b'{"content": "x", "trust": 1e999}', "application/json", 422),
        (b'{"content": "x"}', "text/plain", 415),
        (b"content=x", "application/x-www-form-urlencoded", 415),
        (b'{"content": "' + b"x" * 2**20 + b'"}', "application/json", 413),
    ],
    ids=range(11),
)
def test_missing_or_malformed_bodies_are_refused(server: MemoryServer, content: bytes, kind: str, status: int) -> None:
    with as_(server, "where nothing is ever written") as client:
        refused(client.post("/items", content=content, headers={"Content-Type": kind}), status)
        assert client.get("/items").json()["items"] == []


def test_a_wrong_field_is_said_in_words(server: MemoryServer) -> None:
    with as_(server, "where nothing is ever written") as client:

        def about(method: str, path: str, body: Any = None) -> tuple[str, str]:
            problem = refused(client.request(method, path, json=body), 422)
            return problem["detail"], problem["fix"]

        assert about("GET", "/items?limit=0") == (
            'limit should be greater than or equal to 1, got "0".',
            "Change limit.",
        )
        named = about("POST", "/search", {"query": "x", "user_id": ["ana"]})
        assert named[1] == "Change user_id."
        assert about("POST", "/search", {}) == ("query is missing here.", "Send query.")
        assert about("POST", "/search", {"query": "x", "user": "ana"})[1].startswith("Did you mean 'user_id'?")


@pytest.mark.parametrize(
    ("method", "path", "status", "says"),
    [
        ("POST", "/v1/memory/episodes/e1", 405, "/v1/memory/episodes/e1 takes GET."),
        ("PUT", "/v1/memory/items", 405, "/v1/memory/items takes DELETE and GET and POST."),
        ("GET", "/v1/memory/item", 404, "Did you mean /v1/memory/items? GET /openapi.json lists the routes."),
        ("POST", "/mcp", 404, "The tools for hosts are off: start the server with --mcp."),
    ],
)  # fmt: skip
def test_unknown_route_is_answered_with_the_nearest(
    server: MemoryServer, method: str, path: str, status: int, says: str
) -> None:
    with as_(server, "where nothing is ever written") as client:
        assert refused(client.request(method, server.url + path), status)["fix"].startswith(says)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
def test_model_call_without_a_gateway_gets_an_openai_error(server: MemoryServer, path: str) -> None:
    answer = with_token(server).post(path, json={})
    assert answer.status_code == 404
    assert "The gateway is off: start the server with --upstream URL, such as " in answer.json()["error"]["message"]


def test_internal_error_hides_its_message(
    server: MemoryServer, tenant: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def breaks(*_: Any, **__: Any) -> Any:
        raise RuntimeError("the text of somebody else")

    monkeypatch.setattr(Memory, "search", breaks)
    with as_(server, tenant) as client:
        assert "somebody" not in client.post("/search", json={"query": "x"}).text
    assert "somebody" in caplog.text


def test_repeated_request_is_done_once(server: MemoryServer, tenant: str) -> None:
    with as_(server, tenant) as client, as_(server, tenant, user_id="ana") as ana:
        once = {"Idempotency-Key": "k1"}
        body = {"content": "x", "repeat": True}
        again = {"Idempotency-Key": "k2"}
        first, second = (client.post("/items", json=body, headers=once) for _ in range(2))
        assert first.json() == second.json()
        assert second.headers["idempotency-replayed"] == "true"
        assert "idempotency-replayed" not in first.headers
        assert len(client.get("/items").json()["items"]) == 1
        other = refused(client.post("/items", json={"content": "y"}, headers=once), 422)
        assert (other["field"], other["value"]) == ("Idempotency-Key", '"k1"')
        refused(client.delete(f"/items/{first.json()['items'][0]['id']}", headers=once), 422)
        assert ana.post("/items", json=body, headers=once).json() != first.json(), "keys are each person's own"
        refused(client.post("/items", json={"content": "", "repeat": True}, headers=again), 422)
        assert client.post("/items", json=body, headers=again).status_code == 200
        refused(client.post("/items", json=body, headers={"Idempotency-Key": "x" * 256}), 422)


def test_request_done_before_a_kill_is_not_repeated(
    server: MemoryServer, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the process had ended between the write and the note of the answer."""
    monkeypatch.setattr("keepworth.serving.memory_routes.keep_answer", lambda *_: None)
    with as_(server, tenant) as client:
        once = {"Idempotency-Key": "k"}
        item = client.post("/items", json={"content": "x"}, headers=once).json()["items"][0]
        gone = refused(client.post("/items", json={"content": "x"}, headers=once), 409)
        assert gone["code"] == "AnswerGone"
        hits = client.post("/search", json={"query": "x", "top_k": 1}).json()
        body = {"target": hits["decision"], "value": 1.0}
        assert client.post("/rewards", json=body, headers={"Idempotency-Key": "r"}).status_code == 200
        refused(client.post("/rewards", json=body, headers={"Idempotency-Key": "r"}), 409)
        assert client.get(f"/items/{item['id']}").json()["values"]["credited"] == 1


def test_stored_answers_expire_after_a_day_and_on_erasure(tmp_path: Path) -> None:
    time = ["2026-01-01T00:00:00"]
    with Memory(tmp_path / "m.mem", encoder=None, policy=None, clock=lambda: time[0]) as memory:
        for name in ("00", "ff"):
            with noted.noting(memory.store, name, "digest"):
                item = memory.add(f"text {name}", user_id="ana")
            noted.keep_answer(memory.store, name, "digest", f"text {name}")
        assert noted.noted_request(memory.store, "ff") == noted.NotedRequest("digest", "text ff")
        memory.forget(item.id, purge_history=True)
        assert noted.noted_request(memory.store, "ff") == noted.NotedRequest("digest", None)
        time[0] = "2026-01-02T00:00:01"
        assert noted.noted_request(memory.store, "ff") is None
        with noted.noting(memory.store, "01", "digest"), pytest.raises(ValueError, match="empty"):
            memory.add("")
        assert noted.noted_request(memory.store, "01") is None, "nothing was written"
        memory.add("what is written outside is not noted")
        for number in range(100):  # one of 16 looks at its neighbours
            noted.keep_answer(memory.store, f"{number:02x}1", "digest", "old ones go")
        with memory.store.database.reading() as connection:
            left = list(connection.execute("SELECT name FROM facts_of_file WHERE name GLOB 'request *'"))
        assert not {"request 00", "request ff"} & {name for (name,) in left}


TEXTS = st.sampled_from(["cats like milk", "dogs like bones", "milk", "rare words here", ""])
IDS = st.sampled_from(["m1", "m2", "m3", "e1", "s1", "s2", "d1", "last"])
CALLS = st.one_of(
    st.tuples(st.just("POST"), st.just("/items"), st.fixed_dictionaries({"content": TEXTS})),
    st.tuples(st.just("POST"), st.just("/search"), st.fixed_dictionaries({"query": TEXTS, "explain": st.just(True)})),
    st.tuples(st.just("GET"), st.just("/items/{}"), st.none()),
    st.tuples(st.just("GET"), st.just("/items/{}/history"), st.none()),
    st.tuples(st.just("DELETE"), st.just("/items/{}"), st.none()),
    st.tuples(st.just("PATCH"), st.just("/items/{}"), st.fixed_dictionaries({"text": TEXTS})),
    st.tuples(st.just("POST"), st.just("/episodes"), st.fixed_dictionaries({"task": TEXTS})),
    st.tuples(st.just("POST"), st.just("/episodes/{}/search"), st.fixed_dictionaries({"query": TEXTS})),
    st.tuples(st.just("POST"), st.just("/rewards"), st.fixed_dictionaries({"target": IDS, "value": st.just(1.0)})),
    st.tuples(st.just("POST"), st.just("/snapshots"), st.none()),
    st.tuples(st.just("POST"), st.just("/rollbacks"), st.fixed_dictionaries({"since": IDS})),
    st.tuples(st.just("GET"), st.just("/items?all_states=true"), st.none()),
    st.tuples(st.just("GET"), st.just("/export"), st.none()),
    st.tuples(st.just("GET"), st.just("/ledger"), st.none()),
)
RANDOM = re.compile(r"\b([edr])[0-9a-f]{16}\b")
TIMES = re.compile(r'"\d{4}-\d\d-\d\dT[\d:.]+Z?"')


alone, shared = served(encoder="hashing", seed=0), served(encoder="hashing", seed=0)


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(calls=st.lists(st.tuples(CALLS, IDS), min_size=1, max_size=12))
def test_answers_are_the_same_whether_another_tenant_is_there_or_not(
    alone: MemoryServer, shared: MemoryServer, calls: list[tuple[tuple[str, str, Any], str]]
) -> None:
    name = f"fuzzed {uuid.uuid4().hex}"
    with as_(alone, name) as one, as_(shared, name) as two, as_(shared, f"{name}, another") as other:
        answers: dict[httpx.Client, list[str]] = {one: [], two: []}
        for (method, path, body), id in calls:
            other.post("/items", json={"texts": ["cats like milk", "rare words here", "secret"], "repeat": True})
            other.post("/search", json={"query": "cats"})
            other.post("/episodes", json={"task": "theirs"})
            for client, listed in answers.items():
                own = re.findall(r'"id": "(\w+)"', "".join(listed))
                named = own[-1] if id == "last" and own else id
                said = json.loads(json.dumps(body).replace('"last"', json.dumps(named)))
                response = client.request(method, path.format(named), json=said)
                listed.append(f"{response.status_code} {response.text}")
        plain = []
        for listed in answers.values():
            names: dict[str, str] = {}
            text = RANDOM.sub(lambda found: names.setdefault(found[0], f"{found[1]}{len(names)}"), "\n".join(listed))  # noqa: B023
            plain.append(TIMES.sub('"a time"', text))
        assert plain[0] == plain[1]
        assert "secret" not in plain[1]


def test_the_description_names_every_route_and_every_reference_leads_somewhere(server: MemoryServer) -> None:
    document = with_token(server).get("/openapi.json").json()
    described = {(method.upper(), path) for path, each in document["paths"].items() for method in each}
    assert {(route.method, BASE + route.path) for route in VERBS} <= described
    names = [value["operationId"] for path in document["paths"].values() for value in path.values()]
    assert len(names) == len(set(names))
    for reference in re.findall(r'"\$ref": "#/components/schemas/(\w+)"', json.dumps(document)):
        assert reference in document["components"]["schemas"]
    for path, operations in document["paths"].items():
        for operation in operations.values():
            in_path = {parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "path"}
            assert in_path == set(re.findall(r"{(\w+)}", path))
            assert operation["summary"].endswith(".")


STRANGE = ["m1", "e1", "s1", "d1", "fact", "active", "\x00", "‮", "a" * 600, "2026-01-01", "-1", "1e400"]
SCALARS = st.one_of(
    *(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False)),
    *(st.text(max_size=20), st.sampled_from(STRANGE)),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


LIKELY = {"content": "words to keep", "query": "words", "texts": ["a text", "one"], "text": "new words", "value": 1.0}


@st.composite
def anything(draw: st.DrawFn) -> tuple[str, str, Any, dict[str, Any]]:
    """A request to any route, with fields that it knows and values that it need not."""
    route = draw(st.sampled_from(VERBS))
    id = draw(st.sampled_from(["m1", "m2", "e1", "s1", "é", "m-1", "m99999999999999999999"]))
    path = route.path.replace("{id}", quote(id))
    names = sorted(route.model.model_fields)
    body, query = None, {}
    if names and route.in_body:
        given_ = {name: LIKELY[name] for name in names if name in LIKELY and draw(st.integers(0, 3))}
        body = {**given_, **draw(st.dictionaries(st.sampled_from(names), VALUES, max_size=3))}
    elif names:
        values = st.text(max_size=8) | st.sampled_from(["1", "true", "m1", "s1"])
        query = draw(st.dictionaries(st.sampled_from(names), values, max_size=2))
    return route.method, path, body, query


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(requests=st.lists(anything(), min_size=1, max_size=8))
def test_any_request_is_done_or_refused_with_a_reason(
    server: MemoryServer, requests: list[tuple[str, str, Any, dict[str, Any]]]
) -> None:
    with as_(server, "anything") as client:
        for method, path, body, query in requests:
            content = None if body is None else json.dumps(body).encode()
            try:
                response = client.request(method, path, content=content, params=query, headers=JSON if content else {})
            except httpx.InvalidURL:
                continue
            if response.status_code != 200:
                assert 400 <= response.status_code < 500, (method, path, body, query, response.text)
                refused(response, response.status_code)
            elif path != "/export":
                response.json()
