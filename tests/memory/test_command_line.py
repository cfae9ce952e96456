"""What a command that fails leaves behind: nothing. What a search prints."""

from __future__ import annotations

import json
import re
from pathlib import Path

from typer.testing import CliRunner

from keepworth.cli.memory import app
from keepworth.episodes.errors import KeepworthError
from keepworth.memory import errors
from keepworth.memory.memory import Memory
from tests.memory.helpers import largest_file


def problem_of(*arguments: str) -> BaseException | None:
    return CliRunner().invoke(app, list(arguments)).exception


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_an_export_that_finds_no_room_leaves_no_half(tmp_path: Path):
    path = tmp_path / "a.mem"
    with Memory(path, encoder=None) as m:
        m.add_many([f"{number} " + "x" * 5000 for number in range(100)])
    (tmp_path / "there").mkdir()
    with largest_file(100_000):
        problem = problem_of("export", str(tmp_path / "there" / "a.jsonl"), "--file", str(path))
    assert isinstance(problem, KeepworthError)
    assert "a.jsonl" in str(problem)
    assert names_in(tmp_path / "there") == []


def test_a_search_shows_what_rewards_taught_and_explains_the_order_it_prints(tmp_path: Path):
    path = tmp_path / "a.mem"
    search = ("search", "reset router", "--file", str(path), "--encoder", "hashing")
    with Memory(path, encoder="hashing", seed=1) as m:
        m.add_many(["reset router plug", "reset router hold"], user_id="ana")
        plain = [line.split()[1] for line in CliRunner().invoke(app, list(search)).output.splitlines()]
        assert plain == ["m2", "m1"], "of two values of the same, the newer"
        for _ in range(30):
            hits = m.search("reset router", top_k=1)
            m.reward(hits.decision, float("plug" in hits[0].text))
    stats = ["stats", "--file", str(path), "--json"]
    before = CliRunner().invoke(app, stats).output
    taught, explained = (CliRunner().invoke(app, [*search, *more]).output for more in ((), ("--explain",)))
    lines = taught.splitlines()
    assert [line.split()[1] for line in lines if "reset" in line] == ["m1", "m2"]
    assert re.search(r"right \d+ of \d+ times where this is asked", lines[1])
    assert [line for line in explained.splitlines() if " words: " not in line] == lines
    assert not re.search(r"\d\.\d{5}", explained), "numbers have three digits or four"
    assert CliRunner().invoke(app, [*search, "--user", "ana"]).output == taught
    assert CliRunner().invoke(app, stats).output == before, "a look is not logged"


def test_searches_and_lists_take_filters(tmp_path: Path) -> None:
    file = tmp_path / "a.mem"
    with Memory(file, encoder=None) as memory:
        memory.add("red hat", metadata={"team": "red", "year": 2020})
        memory.add("red tea", metadata={"team": "red", "year": 2024, "code": "7"})
        memory.add("red news")
    told = ["--file", str(file), "--json"]
    for where, expected in (
        (["team=red"], ["red hat", "red tea"]),
        (["team=red", '{"year": {"$gte": 2022}}'], ["red tea"]),
        (["year=2024"], ["red tea"]),
        (["code=7"], []),
        (['code="7"'], ["red tea"]),
        (['{"$not": {"team": "red"}}'], ["red news"]),
    ):
        options = [part for each in where for part in ("--where", each)]
        for command in (["list"], ["search", "red"]):
            output = CliRunner().invoke(app, [*command, *options, *told]).stdout
            assert sorted(json.loads(line)["text"] for line in output.splitlines() if line[:1] == "{") == expected
    for bad in ("team", "=red", "{broken", '["team"]', '{"year": {"$near": 1}}', "year=NaN"):
        for command in (["list"], ["search", "red"]):
            problem = problem_of(*command, "--where", bad, *told)
            assert isinstance(problem, errors.InvalidFilter)
            assert str(problem).startswith("--where")
