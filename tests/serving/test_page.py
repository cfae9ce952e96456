"""The page over a memory: what it is made of, who gets it, and what it may do. How it looks and works is tested in a browser."""

from __future__ import annotations

import re
import shlex
from importlib.resources import files
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from keepworth import Memory
from keepworth.memory.errors import InvalidFilter, UnknownEpisode
from keepworth.serving.memory_routes import BASE
from keepworth.serving.memory_server import MemoryServer
from keepworth.serving.page_routes import page_table
from tests.serving.callers import as_

INDEX = (files("keepworth.serving") / "page" / "index.html").read_text(encoding="utf-8")
PATHS = sorted(path for _, path in page_table())
SCRIPTS = {
    path.removeprefix("/page/"): answers(None).content.decode()  # type: ignore[arg-type]
    for (_, path), answers in page_table().items()
    if path.endswith(".js")
}


@pytest.mark.parametrize("path", PATHS)
def test_a_file_of_the_page_needs_no_token_and_has_its_policy(server: MemoryServer, path: str) -> None:
    answer = httpx.get(server.url + path, trust_env=False)
    assert answer.status_code == 200
    policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "connect-src", "img-src")} == {"'self'"}
    assert policy["require-trusted-types-for"] == "'script'"
    assert policy["frame-ancestors"] == "'none'"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert "charset=utf-8" in answer.headers["content-type"]
    assert httpx.head(server.url + path, trust_env=False).status_code == 200


def test_health_route_needs_no_token_and_has_no_body(server: MemoryServer) -> None:
    answer = httpx.get(server.url + "/health", trust_env=False)
    assert (answer.status_code, answer.content) == (200, b"")
    assert httpx.post(server.url + "/health", trust_env=False).status_code == 401
    assert httpx.get(server.url + "/health", headers={"Host": "evil.example"}, trust_env=False).status_code == 403


@pytest.mark.parametrize("path", ["/page/nothing.js", "/page/", "/page/../serving/access.py", "/page", "/index.html"])
def test_only_page_files_are_served_without_a_token(server: MemoryServer, path: str) -> None:
    for method, url, content in (("GET", path, b""), ("POST", "/", b"{}"), ("GET", "/", b"x" * 10)):
        assert httpx.request(method, server.url + url, content=content, trust_env=False).status_code == 401


def test_a_link_of_another_site_opens_the_page_and_no_route(server: MemoryServer) -> None:
    there = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert httpx.get(server.url + "/", headers=there, trust_env=False).status_code == 200
    assert httpx.get(server.url + BASE + "/items", headers=there, trust_env=False).status_code == 403
    assert httpx.get(server.url + "/", headers={"Host": "evil.example"}, trust_env=False).status_code == 403


def test_the_page_may_call_a_server_that_others_reach(tmp_path: Path) -> None:
    with MemoryServer(tmp_path / "a.mem", encoder=None, host="0.0.0.0", token="kw_t") as server:
        port = server.url.rsplit(":", 1)[1]
        url, headers = f"http://127.0.0.1:{port}{BASE}/items", {"Authorization": "Bearer kw_t"}
        for origin, status in (
            (f"http://memory.example:{port}", 200),
            (f"https://memory.example:{port}", 200),  # behind a proxy with TLS
            ("http://evil.example", 403),
            (f"http://evil.example:{port}", 403),
        ):
            asked = {**headers, "Host": f"memory.example:{port}", "Origin": origin}
            assert httpx.get(url, headers=asked, trust_env=False).status_code == status, origin


def test_page_scripts_use_no_html_sinks_or_foreign_hosts() -> None:
    """The policy would refuse it in a browser; this finds it before."""
    sinks = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|srcdoc|DOMParser|\.style\s*=|javascript:"
    for name, text in SCRIPTS.items():
        assert re.findall(sinks, text) == [], name
        assert set(re.findall(r"https?://[\w.]+", text)) <= {"http://www.w3.org"}, name
    for path in PATHS:
        if path.endswith(".css"):
            name = path.rpartition("/")[2]
            package = "keepworth.charts" if name == "style.css" else "keepworth.serving"
            text = (files(package) / ("" if name == "style.css" else "page") / name).read_text(encoding="utf-8")
            assert re.findall(r"url\(|@import|@font-face", text) == []


def test_every_module_that_is_named_is_there() -> None:
    assert {f"/{match}" for match in re.findall(r'(?:src|href)="([^"]+)"', INDEX)} <= set(PATHS)
    assert re.findall(r"<script(?! type=\"module\" src=)", INDEX) == [], "the policy allows none inside the page"
    for text in SCRIPTS.values():
        assert set(re.findall(r'from "\./([\w.]+)"', text)) <= set(SCRIPTS)
    views = re.findall(r'\{ name: "(\w+)"', SCRIPTS["page.js"])
    assert views
    assert {f"{view}.js" for view in views} <= set(SCRIPTS)


def test_commands_named_on_the_page_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from keepworth.cli.main import app

    monkeypatch.chdir(tmp_path)
    with Memory("agent.mem", encoder="hashing") as memory:
        memory.add_many([f"Ana cannot eat number {number}." for number in range(16)])
        memory.update(memory.add("Ana eats tofu.").id, text="Ana eats smoked tofu.")
    told = re.search(r"<noscript>.*?<pre>(.*?)</pre>", INDEX, re.S)
    assert told
    lines = [*told[1].splitlines(), *re.findall(r'"(keepworth memory .*?)"', "".join(SCRIPTS.values()))]
    assert any("ledger" in line for line in lines)
    assert any("token add" in line for line in lines)
    for line in lines:
        program, *words = shlex.split(line)
        assert program == "keepworth"
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, (line, done.output)


def test_the_newest_come_first_a_page_at_a_time(server: MemoryServer, tenant: str) -> None:
    with as_(server, tenant) as client:
        ids = [client.post("/items", json={"content": f"number {n}"}).json()["items"][0]["id"] for n in range(5)]
        first = client.get("/items", params={"newest": True, "limit": 2}).json()
        assert [item["id"] for item in first["items"]] == ids[:2:-1]
        rest = client.get("/items", params={"newest": True, "limit": 4, "after": first["next"]}).json()
        assert [item["id"] for item in rest["items"]] == ids[2::-1]
        assert rest["next"] == ""


def test_newest_first_holds_with_filters() -> None:
    m = Memory(encoder=None)
    for n in range(600):
        m.add(f"number {n}", metadata={"even": n % 2 == 0}, user_id="a" if n % 3 else "b")
    asked = {"limit": 1000, "where": {"even": True}, "user_id": "a"}
    there, newest = m.get_all(**asked), m.get_all(**asked, newest=True)
    assert [each.id for each in newest] == [each.id for each in reversed(there)]


def test_episodes_are_found_by_the_words_of_their_tasks(server: MemoryServer, tenant: str) -> None:
    with as_(server, tenant) as client:
        for task in ("Plan the dinner", "plan a 100% safe trip", "book a_train"):
            client.post("/episodes", json={"task": task})

        def found(words: str) -> list[str]:
            listed = client.get("/episode_summaries", params={"words": words}).json()["episodes"]
            return [each["task"] for each in listed]

        assert found("PLAN") == ["plan a 100% safe trip", "Plan the dinner"]
        assert found("dinner plan") == ["Plan the dinner"]
        assert found("100% trip") == ["plan a 100% safe trip"]
        assert found("a_t") == ["book a_train"]
        assert found("%") == ["plan a 100% safe trip"]
        assert found("lunch") == []


def test_single_change_can_be_undone_and_redone(server: MemoryServer, tenant: str) -> None:
    with as_(server, tenant) as client, as_(server, tenant, "read", "write") as writer:
        item = client.post("/items", json={"content": "Ana lives in Rome"}).json()["items"][0]["id"]
        client.patch(f"/items/{item}", json={"text": "Ana lives in Rome, Italy"})
        other = client.post("/items", json={"content": "Ana has a dog"}).json()["items"][0]["id"]
        history = client.get(f"/items/{item}/history").json()["revisions"]
        assert writer.post("/rollbacks", json={"entry": history[-1]["seq"]}).status_code == 403
        undone = client.post("/rollbacks", json={"entry": history[-1]["seq"]}).json()
        assert undone["changed"] == [item]
        assert client.get(f"/items/{item}").json()["text"] == "Ana lives in Rome"
        assert client.get(f"/items/{other}").json()["text"] == "Ana has a dog"
        client.post("/rollbacks", json={"target": undone["id"]})
        assert client.get(f"/items/{item}").json()["text"] == "Ana lives in Rome, Italy"


def test_change_in_another_scope_cannot_be_undone(server: MemoryServer, tenant: str) -> None:
    with as_(server, tenant) as all_, as_(server, tenant, user_id="ana") as ana:
        item = all_.post("/items", json={"content": "Bob likes cats", "user_id": "bob"}).json()["items"][0]["id"]
        entry = all_.get(f"/items/{item}/history").json()["revisions"][0]["seq"]
        theirs = ana.post("/rollbacks", json={"entry": entry})
        nobodys = ana.post("/rollbacks", json={"entry": 10_000})
        assert theirs.status_code == nobodys.status_code == 404
        assert theirs.json()["detail"].replace(str(entry), "N") == nobodys.json()["detail"].replace("10000", "N")


def test_rollback_of_an_unknown_change_is_refused() -> None:
    m = Memory(encoder=None)
    item = m.add("a cat")
    with pytest.raises(UnknownEpisode):
        m.rollback(entry=99)
    with pytest.raises(InvalidFilter, match="one thing"):
        m.rollback("e1", entry=m.history(item.id)[0].seq)
    with pytest.raises(InvalidFilter):
        m.rollback(entry=-1)


def test_overview_counts_items_visible_to_the_token(server: MemoryServer, tenant: str) -> None:
    with as_(server, tenant) as all_, as_(server, tenant, user_id="ana") as ana, as_(server, tenant, "read") as plain:
        for n in range(4):
            whose = {"user_id": "ana"} if n else {}
            all_.post("/items", json={"content": f"number {n}", **whose})
            episode = all_.post("/episodes", json={"task": f"task {n}", **whose}).json()["id"]
            all_.post(f"/episodes/{episode}/reward", json={"value": n / 4})
        seen = {name: client.get("/overview").json() for name, client in (("all", all_), ("ana", ana), ("none", plain))}
    counted = [(value["items"], value["episodes"], value["rewards"]) for value in seen.values()]
    assert counted == [(4, 4, 4), (3, 3, 3), (1, 1, 1)]
    assert seen["all"]["curve"]["data"]["along"] == "reward", "from left to right are rewards, not steps of a run"
    assert seen["all"]["mean"] == pytest.approx(0.375)
    assert seen["ana"]["mean"] == pytest.approx(0.5)
    (until, blocks) = seen["all"]["curve"]["data"]["series"]
    assert blocks["values"] == [0.0, 0.25, 0.5, 0.75]
    assert until["values"] == [0.0, 0.125, 0.25, 0.375]
    assert seen["none"]["curve"] is None


def test_episodes_in_one_line_each_the_newest_first(server: MemoryServer, tenant: str) -> None:
    with as_(server, tenant) as client, as_(server, tenant, user_id="bo") as bo:
        client.post("/items", json={"content": "cats like milk"})
        ids = [client.post("/episodes", json={"task": f"task {n}", "user_id": "ana"}).json()["id"] for n in range(5)]
        client.post(f"/episodes/{ids[4]}/search", json={"query": "milk"})
        client.post("/items", json={"content": "milk is white", "user_id": "ana"})
        client.post(f"/episodes/{ids[4]}/search", json={"query": "milk"})
        client.post(f"/episodes/{ids[4]}/reward", json={"value": 0.5, "source": "first"})
        client.post(f"/episodes/{ids[4]}/reward", json={"value": 0.25, "source": "second"})
        first = client.get("/episode_summaries", params={"limit": 2}).json()
        newest, before = first["episodes"]
        assert (newest["id"], before["id"]) == (ids[4], ids[3])
        assert (newest["searches"], newest["shown"], newest["reward"]) == (2, 1, 0.25)
        assert (before["searches"], before["shown"], before["reward"]) == (0, 0, None)
        assert newest["scope"]["user"] == "ana"
        rest = client.get("/episode_summaries", params={"limit": 9, "after": first["next"]}).json()
        assert [episode["id"] for episode in rest["episodes"]] == ids[2::-1]
        assert rest["next"] == ""
        assert client.post("/rollbacks", json={"source": "second"}).json()["cancelled"] == 1
        assert client.get("/episode_summaries").json()["episodes"][0]["reward"] == 0.5
        assert bo.get("/episode_summaries").json()["episodes"] == []
        assert bo.get("/episode_summaries", params={"after": ids[0]}).status_code == 404
