"""What a command that fails leaves behind: nothing. What a search prints."""

from __future__ import annotations

import json
import re
from pathlib import Path

from keepworth.episodes.errors import KeepworthError
from keepworth.memory import errors
from keepworth.memory.memory import Memory
from tests.memory.helpers import command, largest_file


def test_an_export_that_finds_no_room_leaves_no_half(path: Path, tmp_path: Path):
    with Memory(path, encoder=None) as m:
        m.add_many([f"{number} " + "x" * 5000 for number in range(100)])
    (tmp_path / "there").mkdir()
    with largest_file(100_000):
        problem = command("export", tmp_path / "there" / "a.jsonl", "--file", path).exception
    assert isinstance(problem, KeepworthError)
    assert "a.jsonl" in str(problem)
    assert list((tmp_path / "there").iterdir()) == []


def test_a_search_shows_what_rewards_taught_and_explains_the_order_it_prints(path: Path):
    def run(*words: object) -> str:
        return command(*words, "--file", path).output

    search = ("search", "reset router", "--encoder", "hashing")
    with Memory(path, encoder="hashing", seed=1) as m:
        m.add_many(["reset router plug", "reset router hold"], user_id="ana")
        plain = [line.split()[1] for line in run(*search).splitlines()]
        assert plain == ["m2", "m1"], "of two values of the same, the newer"
        for _ in range(30):
            hits = m.search("reset router", top_k=1)
            m.reward(hits.decision, float("plug" in hits[0].text))
    before, taught, explained = run("stats", "--json"), run(*search), run(*search, "--explain")
    lines = taught.splitlines()
    assert [line.split()[1] for line in lines if "reset" in line] == ["m1", "m2"]
    assert re.search(r"right \d+ of \d+ times where this is asked", lines[1])
    assert [line for line in explained.splitlines() if " words: " not in line] == lines
    assert not re.search(r"\d\.\d{5}", explained), "numbers have three digits or four"
    assert run(*search, "--user", "ana") == taught
    assert run("stats", "--json") == before, "a look is not logged"


def test_searches_and_lists_take_filters(path: Path) -> None:
    with Memory(path, encoder=None) as memory:
        memory.add("red hat", metadata={"team": "red", "year": 2020})
        memory.add("red tea", metadata={"team": "red", "year": 2024, "code": "7"})
        memory.add("red news")
    shared = ["--file", path, "--json"]
    for where, expected in (
        (["team=red"], ["red hat", "red tea"]),
        (["team=red", '{"year": {"$gte": 2022}}'], ["red tea"]),
        (["year=2024"], ["red tea"]),
        (["code=7"], []),
        (['code="7"'], ["red tea"]),
        (['{"$not": {"team": "red"}}'], ["red news"]),
    ):
        options = [part for each in where for part in ("--where", each)]
        for verb in (["list"], ["search", "red"]):
            output = command(*verb, *options, *shared).stdout
            assert sorted(json.loads(line)["text"] for line in output.splitlines() if line[:1] == "{") == expected
    for bad in ("team", "=red", "{broken", '["team"]', '{"year": {"$near": 1}}', "year=NaN"):
        for verb in (["list"], ["search", "red"]):
            problem = command(*verb, "--where", bad, *shared).exception
            assert isinstance(problem, errors.InvalidFilter)
            assert str(problem).startswith("--where")
