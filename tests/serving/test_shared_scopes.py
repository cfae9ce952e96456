"""What a team shares: a token of a person that may read, or read and write, what lies under the team's name, too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from keepworth import Client, Memory
from keepworth.base.errors import KeepworthError
from keepworth.cli.main import main
from keepworth.memory.errors import InvalidScope, SharedReadOnly, UnknownEpisode, UnknownItem
from keepworth.memory.item import ALL
from keepworth.memory.search.scope_words import LARGEST
from keepworth.memory.store import derived as store_module
from keepworth.memory.store.checks import check
from keepworth.serving.access import Tokens, new_access, parse_shared, tokens_of
from keepworth.serving.memory_server import MemoryServer
from tests.serving.callers import as_
from tests.serving.gate import EPISODE, Gate, finished, until, user

READS, WRITES = {"team": ("read",)}, {"team": ("read", "write")}


def token(server: MemoryServer, tenant: str, user: str, **more: Any) -> str:
    return server.tokens.add(new_access(tenant=tenant or ALL, user_id=user, **more))


def client(server: MemoryServer, tenant: str, user: str, **more: Any) -> Client:
    return Client(server.url, token(server, tenant, user, **more))


def texts(found: Any) -> set[str]:
    return {each.text for each in found}


@pytest.mark.parametrize("encoder", ["hashing", None])
def test_handle_sees_shared_items_and_writes_to_its_own_scope(encoder: str | None) -> None:
    memory = Memory(encoder=encoder, seed=0)
    memory.add("The team may deploy on Friday", user_id="team")
    memory.add("Bo may deploy on Monday", user_id="bo")
    ann = memory.within(user_id="ann", shared={"team": False})
    ann.add("I deploy on Sunday")
    both = {"I deploy on Sunday", "The team may deploy on Friday"}
    for _ in range(3):  # from the file, and from what is held of a scope that was asked before
        assert texts(ann.search("who may deploy when")) == both
    assert texts(ann.search("who may deploy when", as_of="2999-01-01")) == both
    assert texts(ann.search("deploy", user_id="team")) == {"The team may deploy on Friday"}
    assert texts(ann.search("deploy", user_id="ann")) == {"I deploy on Sunday"}
    with ann.episode("deploy") as episode:
        assert texts(episode.search("when to deploy")) == both
    assert texts(ann.get_all()) == both
    assert texts(memory.get_all(user_id="ann")) == {"I deploy on Sunday"}
    with pytest.raises(InvalidScope, match="already 'ann'"):
        ann.search("deploy", user_id="bo")
    with pytest.raises(UnknownItem):
        ann.get("m2")


def test_a_large_shared_scope_is_found_by_the_index_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "LARGEST", 3)
    assert LARGEST > 3
    memory = Memory(encoder=None, seed=0)
    for name in ("team", "bo", "ann"):
        memory.add_many([f"{name} has plan {number}" for number in range(50)], user_id=name)
    ann = memory.within(user_id="ann", shared={"team": False, "nobody wrote here": False})
    for _ in range(2):
        found = {each.item.scope.user for each in ann.search("plan", top_k=200)}
        assert found == {"ann", "team"}
    assert len(ann.search("plan 7", top_k=200)) == 100


def test_read_only_shared_items_cannot_be_changed(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "a.mem", encoder="hashing", seed=0)
    memory.add("The gate is 5", user_id="team")
    before = memory.store.sums(memory.scope)
    ann = memory.within(user_id="ann", shared={"team": False})
    for change in (
        lambda: ann.update("m1", "The gate is 7"),
        lambda: ann.update("m1", metadata={"x": 1}),
        lambda: ann.supersede("m1", "The gate is 7"),
        lambda: ann.delete("m1"),
        lambda: ann.forget("m1"),
        lambda: ann.add("The gate is 7", user_id="team"),
        lambda: ann.add([{"role": "user", "content": "My gate is 7."}], infer=True, user_id="team"),
        lambda: ann.episode("find the gate", user_id="team"),
        lambda: ann.delete_all(user_id="team"),
        lambda: ann.within(user_id="team"),
    ):
        with pytest.raises(SharedReadOnly, match="reading alone"):
            change()
    with pytest.raises(InvalidScope):
        ann.erase(user_id="team")
    with pytest.raises(UnknownItem):
        ann.forget("m1", purge_history=True)
    ann.rollback(since="s0")
    ann.delete_all(user_id="ann")
    assert memory.store.sums(memory.scope) == before


def test_writable_shared_items_are_changed_in_place_and_can_be_undone(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "a.mem", encoder="hashing", seed=0)
    memory.add("The gate is 5", user_id="team")
    ann = memory.within(user_id="ann", agent_id="coder", shared={"team": True})
    assert ann.update("m1", "The gate is 6").scope.user == "team"
    new = ann.supersede("m1", "The gate is 7")
    assert (new.scope.user, new.scope.agent) == ("team", "")
    mine = ann.add("I like tea")
    assert (mine.scope.user, mine.scope.agent) == ("ann", "coder")
    theirs = ann.add("The door is red", user_id="team")
    assert (theirs.scope.user, theirs.scope.agent) == ("team", "coder")
    ann.forget(mine.id, theirs.id)
    with ann.episode("open the door", user_id="team") as live:
        live.remember("The door is blue")
    assert texts(memory.get_all(user_id="team")) == {"The gate is 7", "The door is blue"}
    with pytest.raises(InvalidScope):  # what is erased is gone for good, for everybody
        ann.erase(user_id="team")
    memory.rollback(since="s1")
    assert texts(memory.get_all()) == {"The gate is 5"}
    assert check(memory.store) == []


def test_shared_episode_is_open_to_its_writers() -> None:
    memory = Memory(encoder="hashing", seed=0)
    bo = memory.within(user_id="bo", shared={"team": True})
    ann = memory.within(user_id="ann", shared={"team": False})
    cy = memory.within(user_id="cy")
    id = bo.episode("open the door", user_id="team").id
    bo.reopen(id).end("done")
    for other in (ann, cy):
        with pytest.raises(UnknownEpisode):
            other.reopen(id)
        with pytest.raises(UnknownEpisode):
            other.reward(id, 1.0)


def test_reward_changes_only_own_items_and_learns_about_shared_ones() -> None:
    memory = Memory(encoder="hashing", seed=0)
    memory.add("The gate is 5", user_id="team")
    ann = memory.within(user_id="ann", shared={"team": False})
    ann.add("My gate is green")
    with ann.episode("find the gate") as live:
        assert len(live.search("gate")) == 2
        live.act("went there")
        assert live.reward(1.0).changed == ("m2",)
    assert len(ann.episode_record(live.id).shown) == 2


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"shared": READS}, "token of nobody"),
        ({"user_id": "ann", "shared": {"ann": ("read",)}}, "no name of something to share"),
        ({"user_id": "ann", "shared": {"": ("read",)}}, "user of a scope is empty"),
        ({"user_id": "ann", "shared": {"team": ("write",)}}, "may be read, or read and written"),
        ({"user_id": "ann", "shared": {"team": ()}}, "may be read, or read and written"),
        ({"user_id": "ann", "shared": {"team": ("admin",)}}, "permission"),
        ({"user_id": "ann", "roles": ("read",), "shared": WRITES}, "has not the role write"),
    ],
)
def test_ineffective_sharing_options_are_refused(more: dict[str, Any], says: str) -> None:
    with pytest.raises(KeepworthError, match=says):
        new_access(**more)


@pytest.mark.parametrize("said", ["team", "team:", ":read", "team:read;write", ""])
def test_shared_option_is_parsed_as_name_and_permissions(said: str) -> None:
    with pytest.raises(KeepworthError, match=r"read|permission"):
        new_access(user_id="ann", shared=parse_shared([said]))
    assert parse_shared(["team:read", "a:b:read, write"]) == {"team": ("read",), "a:b": ("read", "write")}


def test_token_command_grants_and_lists_sharing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "agent.mem"
    Memory(file, encoder=None).close()
    main(["memory", "token", "add", "--file", str(file), "--user", "ann", "--shared", "team:read,write"])
    made = capsys.readouterr().out.strip()
    main(["memory", "token", "list", "--file", str(file)])
    assert "user ann  shared team:read,write" in capsys.readouterr().out
    assert Tokens(tokens_of(file)).check("", f"Bearer {made}").shared == WRITES


def test_served_recall_sees_team_items_and_writes_go_to_the_named_scope(server: MemoryServer, tenant: str) -> None:
    ann = client(server, tenant, "ann", shared=WRITES)
    bo = client(server, tenant, "bo", shared=READS)
    cy = client(server, tenant, "cy")
    mine, ours = ann.add("I deploy on Sunday"), ann.add("We deploy on Friday", user_id="team")
    assert (mine.scope.user, ours.scope.user) == ("ann", "team")
    assert texts(ann.search("deploy")) == {mine.text, ours.text}
    assert texts(bo.search("deploy")) == texts(bo.get_all()) == {ours.text}
    assert texts(cy.search("deploy")) == texts(cy.get_all()) == set()
    with bo.episode("deploy") as live:
        assert texts(live.search()) == {ours.text}
        live.reward(1.0)
    with pytest.raises(SharedReadOnly, match="reading alone"):
        bo.update(ours.id, "We deploy on Monday")
    assert ann.update(ours.id, "We deploy on Monday").scope.user == "team"
    assert bo.get(ours.id).text == "We deploy on Monday"
    exported = as_(server, tenant, user_id="ann", shared=WRITES).get("/export").text
    assert "Sunday" in exported
    assert "Monday" not in exported


def test_signal_on_a_team_episode_counts_for_its_sender(server: MemoryServer, tenant: str) -> None:
    ann, bo = (client(server, tenant, name, shared=WRITES) for name in ("ann", "bo"))
    ann.add("Deploy the site with: make deploy", user_id="team")
    episode = ann.episode("deploy the site", user_id="team")
    episode.search()
    episode.signal("thanks")
    assert not bo.reopen(episode.id).signal("revert").applied  # the search is Ann's
    shared = bo.reopen(episode.id)
    shared.search("deploy the site")
    shared.signal("correction")
    rewards = [(term.name, term.value) for term in bo.episode_record(episode.id).rewards]
    assert rewards == [("signal:thanks:ann", 1.0), ("signal:correction:bo", 0.0)]
    with pytest.raises(KeepworthError, match="gives nobody else's word"):
        bo.reopen(episode.id).signal("correction", by="ann")


ITEMS = ("{item}", "m999999")
PROBES = (
    ("POST", "/items", {"content": "x", "user_id": "team"}),
    ("GET", "/items?user_id=team", None),
    ("GET", "/items?user_id=team&all_states=true", None),
    ("DELETE", "/items?user_id=team", None),
    ("POST", "/search", {"query": "gate", "user_id": "team"}),
    ("POST", "/search", {"query": "gate"}),
    ("POST", "/episodes", {"task": "gate", "user_id": "team"}),
    ("GET", "/episodes?user_id=team", None),
    ("GET", "/episodes", None),
    ("GET", "/items", None),
    ("GET", "/pending", None),
    ("GET", "/export?user_id=team", None),
    ("POST", "/erase", {"user_id": "team"}),
    *(("GET", f"/items/{id}{more}", None) for id in ITEMS for more in ("", "/history", "/worth?query=x")),
    *(("PATCH", f"/items/{id}", {"text": "x"}) for id in ITEMS),
    *(("POST", f"/items/{id}/supersede", {"text": "x"}) for id in ITEMS),
    *(("DELETE", f"/items/{id}", None) for id in ITEMS),
    ("POST", "/forget", {"ids": ["{item}"]}),
    ("GET", "/episodes/{episode}", None),
    ("GET", "/episodes/{episode}/receipt", None),
    ("POST", "/episodes/{episode}/search", {"query": "gate"}),
    ("POST", "/episodes/{episode}/act", {"action": "x"}),
    ("POST", "/episodes/{episode}/reward", {"value": 1.0}),
    ("POST", "/episodes/{episode}/signal", {"name": "thanks"}),
    ("POST", "/episodes/{episode}/end", {}),
    ("POST", "/rewards", {"target": "{episode}", "value": 1.0}),
    ("POST", "/items", {"content": "x", "episode": "{episode}"}),
)


def test_missing_permission_looks_like_a_missing_scope(tmp_path: Path) -> None:
    """Two tenants: in one a team has shared items and episodes, in the other none was ever there."""
    answers = []
    with MemoryServer(tmp_path / "agent.mem", encoder="hashing", seed=0) as server:
        for tenant in ("with", "without"):
            stranger = as_(server, tenant, user_id="cy")
            item, episode = "m77", "e00000000000000a0"
            if tenant == "with":
                bo = client(server, tenant, "bo", shared=WRITES)
                item = bo.add("The gate is 5", user_id="team").id
                live = bo.episode("find the gate", user_id="team")
                live.search()
                episode = live.id
            seen = []
            for method, path, body in PROBES:
                named = json.dumps([path, body]).replace("{item}", item).replace("{episode}", episode)
                place, content = json.loads(named)
                said = stranger.request(method, place, json=content)
                text = said.text.replace(item, "ITEM").replace(episode, "EPISODE")
                seen.append((method, path, said.status_code, text))
            answers.append(seen)
    for one, other in zip(*answers, strict=True):
        stripped = [
            (*each[:3], each[3] if '"hits": ' not in each[3] else len(each[3].split('"hits": ')[1].split("]")[0]))
            for each in (one, other)
        ]
        assert stripped[0] == stripped[1]


def test_gateway_recalls_team_items_and_writes_to_the_person(gate: Gate) -> None:
    ann, bo = gate.token(user_id="ann", shared=WRITES), gate.token(user_id="bo", shared=READS)
    Client(gate.server.url, ann).add("We deploy on Friday", user_id="team")

    def ask(who: str, text: str, **names: str) -> httpx.Response:
        answer = gate.ask(user(text), token=who, **names)
        until(lambda: finished(gate.server))
        return answer

    for who in (ann, bo):
        answer = ask(who, "When do we deploy?")
        assert Client(gate.server.url, who).receipt(answer.headers[EPISODE])["injected"] == ["m1"]
    ask(bo, "I deploy on Sundays.")
    ask(ann, "Our office is in Bergen.", user="team")
    listed = {(item.scope.user, item.text) for item in gate.memory.get_all()}
    assert ("bo", "I deploy on Sundays.") in listed
    assert any(name == "team" and "Bergen" in text for name, text in listed)
    assert ask(bo, "Our office is in Oslo.", user="team").status_code == 403
    strange = ask(bo, "Hello there", user="other")
    assert (strange.status_code, strange.json()["error"]["code"]) == (403, 403)


def test_tools_see_own_and_team_items(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    import anyio

    from tests.serving.test_mcp_tools import call, connected, mistake

    async def used(server: MemoryServer, ann: str, bo: str) -> None:
        async with connected(server, ann) as client:
            await call(client, "add_memory", text="I deploy on Sunday")
            found = await call(client, "search_memories", query="deploy")
            assert {note["text"] for note in found["notes"]} == {"I deploy on Sunday", "We deploy on Friday"}
            await call(client, "update_memory", id="m1", text="We deploy on Monday")
        async with connected(server, bo) as client:
            assert [note["id"] for note in (await call(client, "list_memories"))["notes"]] == ["m1"]
            assert "reading alone" in await mistake(client, "delete_memory", id="m1")
        async with connected(server, ann, **{"X-Keepworth-User": "team"}) as client:
            await call(client, "add_memory", text="We meet on Tuesday")
            listed = (await call(client, "list_memories"))["notes"]
            assert {each["text"] for each in listed} == {"We deploy on Monday", "We meet on Tuesday"}

    with MemoryServer(tmp_path / "m.mem", encoder="hashing", seed=0, mcp=True) as server:
        ann, bo = token(server, "", "ann", shared=WRITES), token(server, "", "bo", shared=READS)
        Client(server.url, ann).add("We deploy on Friday", user_id="team")
        anyio.run(used, server, ann, bo)
