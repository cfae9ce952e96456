"""Who may not release what is in quarantine reads it by no way at all."""

from __future__ import annotations

from keepworth.memory.scan import scan_of
from keepworth.memory.store import notes
from keepworth.serving.access import new_access
from keepworth.serving.memory_server import MemoryServer
from tests.serving.callers import as_

PASSWORD = "swordfish7"
SAID = f"My password is {PASSWORD}."
PROGRAM = ("read", "write", "reward")


def test_duplicate_of_a_quarantined_item_does_not_reveal_it(server: MemoryServer, tenant: str) -> None:
    with as_(server, tenant) as admin, as_(server, tenant, *PROGRAM) as writer:
        first = {"content": SAID, "source": f"chat:{PASSWORD}9", "metadata": {"note": "only admins read this"}}
        held = admin.post("/items", json=first).json()["items"][0]
        assert held["status"] == "quarantined"
        turn = {"content": [{"role": "user", "content": SAID}]}
        for body in ({"content": SAID}, {"texts": [SAID, "I like tea"]}, turn, {**turn, "infer": True}):
            said = writer.post("/items", json=body)
            assert said.status_code == 200, said.text
            assert PASSWORD not in said.text
            assert "only admins" not in said.text
        assert admin.post("/items", json={"content": SAID}).json()["items"][0]["text"] == SAID
        for seen in (writer.get(f"/items/{held['id']}"), writer.get("/items?all_states=true")):
            assert PASSWORD not in seen.text, "nor its source"


def test_search_of_the_past_hides_quarantined_items(server: MemoryServer, tenant: str) -> None:
    with as_(server, tenant) as admin, as_(server, tenant, *PROGRAM) as reader:
        texts = [f"The gate of {name} is open" for name in "abc"]
        made = [admin.post("/items", json={"content": text}).json()["items"][0] for text in texts]
        admin.patch(f"/items/{made[0]['id']}", json={"text": f"The gate password is {PASSWORD}a"})
        admin.post(f"/items/{made[1]['id']}/supersede", json={"text": f"The gate password is {PASSWORD}b"})
        new = admin.post("/items", json={"content": f"The gate password is {PASSWORD}c"}).json()["items"][0]
        admin.post(f"/items/{new['id']}/supersede", json={"text": "The gate has no password any more"})
        admin.delete(f"/items/{made[2]['id']}")
        times = [made[0]["written_at"], made[1]["written_at"], new["written_at"], "2999-01-01T00:00:00"]
        for time in times:
            for more in ({}, {"explain": True}, {"mode": "lexical"}, {"top_k": 100}):
                found = reader.post("/search", json={"query": "gate password", "as_of": time, **more})
                assert found.status_code == 200
                assert PASSWORD not in found.text
        assert reader.post("/search", json={"query": "gate", "statuses": ["quarantined"]}).status_code == 403
        assert PASSWORD in admin.post("/search", json={"query": "gate password", "statuses": ["quarantined"]}).text


def test_waiting_turns_are_not_exposed_by_any_route(server: MemoryServer, tenant: str) -> None:
    """It holds what was said until its facts are found."""
    with as_(server, tenant, *PROGRAM) as reader:
        id = reader.post("/episodes", json={"task": "open"}).json()["id"]
        store = server.memories.of(new_access(tenant=tenant)).memory.store
        words = {"text": SAID, "scope": [tenant, "", "", ""], "at": "2026-01-01T00:00:00"}
        receipt = {"episode": id, "decision": "", "recalled": [], "injected": []}
        notes.begin_turn(store, "aa", {"episode": id, "lines": {}}, id, receipt, words, since=store.head())
        for path in (f"/episodes/{id}", f"/episodes/{id}/receipt", "/episodes", "/pending", "/items?all_states=true"):
            answer = reader.get(path)
            assert answer.status_code == 200
            assert PASSWORD not in answer.text
    assert scan_of("allow", "allow") is None
