"""Times leave with a zone, whichever door they leave by, and come in with one or without."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from keepworth import Client, Memory
from keepworth.adapters import formats
from keepworth.memory.item import Provenance
from keepworth.serving.access import ROLES, new_access
from keepworth.serving.memory_server import MemoryServer
from tests.memory.helpers import command
from tests.serving.callers import served

server = served(encoder="hashing")
BARE = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?")
"""A time without a zone."""
AT = "2026-01-01T07:00:00"


def bare(value: Any, place: str = "") -> Iterator[str]:
    """The places at which an answer holds a time without a zone."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from bare(part, f"{place}.{name}")
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from bare(part, f"{place}[{number}]")
    elif isinstance(value, str) and BARE.fullmatch(value):
        yield f"{place}: {value}"


def test_every_answer_of_a_served_memory_names_the_zone_of_its_times(server: MemoryServer) -> None:
    token = server.tokens.add(new_access(tenant="times", roles=ROLES, days=3))
    with Client(server.url, token) as client:
        times = {"event_time": f"{AT}Z", "valid_from": AT, "expires_at": "2100-01-01T01:00:00+01:00"}
        item = client.add("The ship leaves", valid_to="2099-01-01", **times)
        assert (item.event_time, item.valid_from, item.expires_at) == (AT, AT, "2100-01-01T00:00:00")
        assert client.get(item.id) == item
        episode = client.episode("when does the ship leave?")
        hits = episode.search()
        assert hits[0].item.event_time == AT
        episode.act("answered")
        episode.reward(1.0)
        newer = client.supersede(item.id, "The ship leaves at noon", event_time=f"{AT}Z")
        revision = client.history(item.id)[-1]
        assert not revision.at.endswith("Z")
        assert client.search("ship", as_of="2026-06-01T00:00:00Z")

        def answer(method: str, path: str, **options: Any) -> Any:
            given = client._http.request(method, f"/v1/memory{path}", **options)
            assert given.status_code == 200, given.text
            text = given.text
            return (
                json.loads(text)
                if "ndjson" not in given.headers["content-type"]
                else [*map(json.loads, text.splitlines())]
            )

        client.add_many(["The ferry leaves"], provenances=[Provenance(date=AT)])
        assert client.get_all()[-1].provenance.date == AT
        query = {"query": "ship"}
        for told in (
            answer("GET", "/items", params={"all_states": True}),
            answer("GET", f"/items/{item.id}"),
            answer("GET", f"/items/{item.id}/history"),
            answer("GET", f"/episodes/{episode.id}"),
            answer("GET", "/episode_summaries"),
            answer("GET", "/export"),
            answer("GET", "/access"),
            answer("GET", "/overview"),
            answer("POST", "/search", json=query),
            answer("POST", f"/items/{newer.id}/supersede", json={"text": "The ship stays", "event_time": AT}),
        ):
            assert list(bare(told)) == []
        assert answer("GET", f"/items/{item.id}")["event_time"] == f"{AT}Z"
        described = client._http.get("/openapi.json").json()["components"]["schemas"]
        assert described["Item"]["properties"]["event_time"] == {"type": "string", "format": "date-time"}
        assert {"type": "string", "format": "date-time"} in described["AddItems"]["properties"]["event_time"]["anyOf"]


def test_the_command_line_and_lines_of_an_export_name_the_zone(tmp_path: Path) -> None:
    file = str(tmp_path / "a.mem")
    with Memory(file, encoder=None) as memory:
        item = memory.add("The ship leaves", event_time=AT)
        memory.update(item.id, "The ship leaves late")
        (timed,) = memory.add_many(["The ferry leaves"], provenances=[Provenance(date=AT)])
        (dated,) = memory.add_many(["The train leaves"], provenances=[Provenance(date="2026-01-31")])
        lines = formats.write_lines(memory.get_all())
    assert json.loads(lines.splitlines()[0])["event_time"] == f"{AT}Z"
    assert '"date": "2026-01-31"' in command("show", dated.id, "--json", "--file", file).output
    verbs = (
        ["list"],
        ["show", item.id],
        ["show", timed.id],
        ["show", dated.id],
        ["history", item.id],
        ["search", "ship"],
    )
    for words in (*verbs, ["token", "add", "--days", "3"], ["token", "list"]):
        done = command(*words, "--json", "--file", file)
        assert done.exit_code == 0, done.output
        assert [place for line in done.output.splitlines() if line[0] == "{" for place in bare(json.loads(line))] == []
        plain = command(*words, "--file", file).output
        assert not re.search(rf"{BARE.pattern}(?![Z\d.:])", plain), plain
    (tmp_path / "lines.jsonl").write_text(lines)
    assert (
        command("import", str(tmp_path / "lines.jsonl"), "--from", "jsonl", "--file", str(tmp_path / "b.mem")).exit_code
        == 0
    )
    with Memory(tmp_path / "b.mem", encoder=None) as memory:
        assert memory.get_all()[0].event_time == AT
