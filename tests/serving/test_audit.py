"""Who did what, when, by which token and with what outcome: beside the memory, and never what was said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from keepworth.cli.main import main
from keepworth.serving import audit as module
from keepworth.serving.access import new_access
from keepworth.serving.audit import audit_of, entries
from keepworth.serving.memory_server import MemoryServer


def noted(file: Path) -> list[dict[str, Any]]:
    return list(entries(audit_of(file)))


def client(server: MemoryServer, **given: Any) -> tuple[httpx.Client, str]:
    access = new_access(**given)
    headers = {"Authorization": f"Bearer {server.tokens.add(access)}"}
    return httpx.Client(base_url=f"{server.url}/v1/memory", headers=headers, trust_env=False), access.id


def test_changes_and_refusals_are_noted_and_no_word_of_anybody(tmp_path: Path) -> None:
    file = tmp_path / "agent.mem"
    with MemoryServer(file, encoder=None) as server:
        ana, token = client(server, user_id="ana", roles=("read", "write"))
        made = ana.post("/items", json={"content": "a word of mine"}).json()["items"][0]["id"]
        ana.post("/search", json={"query": "what was my word"})
        ana.get(f"/items/{made}")
        ana.delete(f"/items/{made}")
        ana.delete("/items/m999")
        ana.post("/erase", json={"user_id": "ana"})
        ana.get("/quarantine")
        httpx.get(
            f"{server.url}/v1/memory/items?text=knock", headers={"Authorization": "Bearer kw_no"}, trust_env=False
        )
    found = noted(file)
    base = "/v1/memory"
    assert [(each["what"], each["status"], each.get("ids", [])) for each in found] == [
        (f"POST {base}/items", 200, [made]),
        (f"DELETE {base}/items/{{id}}", 200, [made]),
        (f"DELETE {base}/items/{{id}}", 404, ["m999"]),
        (f"POST {base}/erase", 403, []),
        (f"GET {base}/quarantine", 403, []),
        ("GET (refused)", 401, []),
    ]
    assert {(each["token"], each["user"]) for each in found[:-1]} == {(token, "ana")}
    text = audit_of(file).read_text()
    assert not any(word in text for word in ("word of mine", "my word", "knock", "kw_"))
    assert audit_of(file).stat().st_mode & 0o777 == 0o600


def test_words_in_a_path_are_not_noted(tmp_path: Path) -> None:
    file = tmp_path / "agent.mem"
    with MemoryServer(file, encoder=None) as server:
        own, _ = client(server)
        own.delete("/items/my%20secret%20word")
        own.delete("/nowhere/my-secret-word")
        own.request("SECRETWORD", "/items")
        own.delete("/items/m7")
        httpx.request("SECRETWORD", f"{server.url}/v1/memory/items", trust_env=False)
    assert [(each["what"], each["status"], each.get("ids", [])) for each in noted(file)] == [
        ("DELETE /v1/memory/items/{id}", 404, []),
        ("DELETE (no such route)", 404, []),
        ("(other) /v1/memory/items", 405, []),
        ("DELETE /v1/memory/items/{id}", 404, ["m7"]),
        ("(other) (refused)", 401, []),
    ]
    assert "secret" not in audit_of(file).read_text().lower()


def test_knocking_fills_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([f"2026-01-01T00:00:0{second}.000000+00:00" for second in [0] * 30 + [1]])
    monkeypatch.setattr(module, "timestamp", lambda at: next(times))
    log = module.AuditLog(tmp_path / "log")
    for _ in range(31):
        log.refused("GET", 401)
    found = list(entries(tmp_path / "log"))
    assert len(found) == 12
    assert found[10] == {"at": "2026-01-01T00:00:01.000000+00:00", "what": "(refused)", "times": 20}


def test_half_a_line_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text(json.dumps({"what": "one"}) + '\n{"what": "tw\n' + json.dumps({"what": "three"}) + "\n")
    assert [entry["what"] for entry in entries(file)] == ["one", "three"]


def test_the_command_line_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "agent.mem"
    with MemoryServer(file, encoder=None) as server:
        ana, token = client(server, user_id="ana")
        ana.post("/items", json={"content": "tea"})
    main(["memory", "audit", "--file", str(file)])
    shown = capsys.readouterr().out
    assert f"{token}  ana  POST /v1/memory/items  200  m1" in shown
