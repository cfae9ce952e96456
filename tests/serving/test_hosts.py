"""Coding assistants and libraries as they are: what the page says of them, and, where they are installed, what they do."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from benchmarks.agents import hosts
from keepworth.serving import hook
from tests.serving.scripted_upstream import Script, Sent

INSTALLED = Path(os.environ.get("KEEPWORTH_HOSTS", ""))
WAYS = [(name, way) for name, ways in hosts.blocks().items() for way in ways]


def test_the_page_says_how_of_each_host_and_what_was_seen_of_it_is_of_that() -> None:
    found = hosts.blocks()
    assert set(found) == set(hosts.HOSTS)
    for name, ways in found.items():
        assert set(ways) <= set(hosts.WAYS)
        assert ("hooks" in ways) == (name in hook.HOSTS)
        for kind, block in ways.values():
            assert kind in ("sh", "toml", "json")
            if kind == "json":
                assert json.loads(block)
            for line in block.splitlines() if kind == "sh" else ():
                assert "keepworth" in shlex.split(line) or line.startswith("export ")
    stored = json.loads(Path(hosts.__file__).with_suffix(".json").read_text())
    for name, row in stored["hosts"].items():
        wanted = set(found.get(name, ["gateway"])) if row["version"] else set()
        assert set(row["seen"]) == wanted
        assert [check for checks in row["seen"].values() for check, seen in checks.items() if not seen] == []


@pytest.mark.parametrize("name", ["messages", "input", "contents"])
def test_what_is_looked_for_in_the_bytes_can_be_missing(name: str) -> None:
    def body(*texts: str, system: str = "Be brief.") -> dict[str, Any]:
        return {name: [{"role": "user", "content": [{"text": text}]} for text in texts], "system": system}

    shown = f"<hook_context>{hook.MARK}\n- {hosts.STATED}</hook_context>"
    assert hosts.remembers(body("x", shown))
    for text in (hosts.STATED, f"- {hosts.STATED}\n{hook.MARK}", f"{hook.MARK}\n- I prefer npm."):
        assert not hosts.remembers(body("x", text))
    assert hosts.begins(body("a", "b"), body("a"))
    assert not hosts.begins(body("a", "b"), body("b"))
    assert not hosts.begins(body("a", "b", system="!"), body("a"))
    script = Script(sent=[Sent("/v1/messages", {}, b"{}")])
    good = {"sha256": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a", "missing": [], "injected": []}
    shows = {**good, "injected": ["m1"]}
    assert hosts.proven([good, shows], script, 2)
    for wrong in (
        [good],
        [good, good],
        [shows, shows],
        [good, {**shows, "missing": ["m2"]}],
        [good, {**shows, "sha256": "0"}],
    ):
        assert not hosts.proven(wrong, script, 2)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "way"), WAYS)
def test_a_host_that_is_installed_remembers(name: str, way: str, tmp_path: Path) -> None:
    if not INSTALLED.name or not hosts.version(name, INSTALLED):
        pytest.skip(f"npm install --prefix DIR {hosts.HOSTS[name].package}, and set KEEPWORTH_HOSTS to DIR")
    seen = hosts.tried(name, way, INSTALLED.resolve(), tmp_path)
    assert [check for check, held in seen.items() if not held] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", list(hosts.LIBRARIES))
def test_a_library_that_is_installed_remembers_with_one_url_changed(name: str, tmp_path: Path) -> None:
    if not INSTALLED.name or not hosts.version(name, INSTALLED):
        pytest.skip(f"python -m venv DIR/venv; DIR/venv/bin/pip install {name}, and set KEEPWORTH_HOSTS to DIR")
    seen = hosts.tried_library(name, INSTALLED.resolve(), tmp_path)
    assert [check for check, held in seen.items() if not held] == []
