"""What is measured beside the engine: stores that are there are filled and asked, absent ones are named, ratios are of adds."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from keepworth.cli.main import app
from keepworth.evaluation import peers
from keepworth.evaluation.peers import ENGINE, MEM0, POWER_SAFE, STORES, Bounds, Keepworth, PeerStore


def record(name: str, add: float, **more: object) -> dict[str, object]:
    end = {
        "items": 40,
        "add": (add, 2 * add),
        "n_adds": 40,
        "search one user": (1.0, 2.0),
        "reading limit": 0.1,
        **more,
    }
    return {"name": name, "versions": {}, "seconds of adding": 5.0, "syncs per add": 8.0, "at the end": end}


@pytest.fixture
def uncounted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Without the runs that count syncs, which take most of the time."""
    monkeypatch.setattr(peers, "syncs_per_add", lambda store: None)
    yield
    gc.freeze()  # the benchmark thaws what the tests that follow would walk through


def test_the_engine_is_filled_and_asked_in_a_process_of_its_own():
    (one,) = peers.beside(Bounds(60, common=20, seconds=60), [POWER_SAFE])
    assert one["at common size"]["items"] == 20
    assert one["at the end"]["items"] == 60
    assert {"add", "search", "search one user", "reading limit"} <= set(one["at the end"])
    assert one["syncs per add"] is None or one["syncs per add"] == pytest.approx(1.0, abs=0.2)


def test_a_store_whose_time_is_up_says_how_far_it_came(uncounted):
    (one,) = peers.beside(Bounds(5000, common=100, seconds=0.05), [ENGINE])
    assert one["at the end"]["items"] < 5000
    assert one["seconds of adding"] >= 0.05


def test_a_store_that_is_not_installed_is_named_with_what_to_install():
    absent = PeerStore("Nothing", ("apsw", "no-such-package"), Keepworth)
    (one,) = peers.beside(Bounds(100), [absent])
    assert one == {"name": "Nothing", "did not run": "not installed: pip install no-such-package"}
    assert list(peers.lines([one], 1.0)) == []


def test_lines_and_ratios_are_those_of_the_records():
    records = [record(ENGINE.name, 0.2, search=(3.0, 4.0)), record(POWER_SAFE.name, 4.0), record(MEM0.name, 40.0)]
    found = {line.name: line for line in peers.lines(records, 0.5)}
    assert found["keepworth: search by meaning"].p50 == 3.0
    assert "keepworth, power-safe: search by meaning" not in found
    assert found[f"{MEM0.name}: add one"].limit == 4.0
    assert found["add: mem0 / this engine, as each comes"].p50 == pytest.approx(200.0)
    assert found["add: mem0 / this engine, both power-safe"].p50 == pytest.approx(10.0)
    assert peers.ratio(records[:2], ENGINE) is None


def test_the_command_line_prints_one_table_with_the_stores_that_are_there(uncounted, tmp_path: Path):
    target = tmp_path / "figures.json"
    options = ["--size", "1000", "--encoder", "none", "--peers", "--peer-seconds", "1", "--out", str(target)]
    done = CliRunner(env={"COLUMNS": "250"}).invoke(app, ["bench", "memory", *options])
    assert done.exit_code == 0, done.output
    whole = json.loads(target.read_text())
    assert [one["name"] for one in whole["stores"]] == [store.name for store in STORES]
    names = {row["name"] for row in whole["figures"]}
    assert {"add one", "keepworth: add one", "keepworth, power-safe: search one user"} <= names
    for one in whole["stores"]:
        if "did not run" in one:
            assert f"did not run: {one['did not run']}" in " ".join(done.output.split())


def test_seconds_without_other_stores_are_refused():
    done = CliRunner().invoke(app, ["bench", "memory", "--peer-seconds", "5"])
    assert done.exit_code == 2
    assert "only with --peers" in done.output
