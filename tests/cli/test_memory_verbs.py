"""`keepworth memory` has the verbs of `Memory`, and each does what it does there."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from keepworth import Memory
from keepworth.base.errors import KeepworthError
from keepworth.cli.memory import app
from keepworth.memory.errors import InvalidFilter, InvalidReward
from tests.cli.test_command import commands
from tests.memory.helpers import command, largest_file

CALLED = {  # where the words of a command line are not the name in Python
    "get": "show", "get_all": "list", "add_many": "add", "delete": "forget", "delete_all": "erase", "release": "quarantine",
    "quarantined": "quarantine", "reopen": "episode", "episodes": "episode", "episode_record": "episode", "path": "stats",
    "settle": "review",
}  # fmt: skip
IN_PYTHON_ALONE = {  # handles and functions, which no command line can hand over
    "answer", "apply", "bank", "close", "commit", "flush", "policy", "propose", "read_only", "scope", "within",
}  # fmt: skip


def test_every_verb_of_memory_has_a_command() -> None:
    there = {words[1] for words, _ in commands() if words[:1] == ("memory",) and len(words) > 1}
    verbs = {name for name in dir(Memory) if not name.startswith("_")} - IN_PYTHON_ALONE
    missing = {name for name in verbs if CALLED.get(name, name.replace("_", "-")) not in there}
    assert missing == set()
    assert set(CALLED) <= verbs
    assert all(hasattr(Memory, name) for name in IN_PYTHON_ALONE)


def test_every_command_has_help_and_examples() -> None:
    for words, made in commands():
        if words[:1] == ("memory",) and not hasattr(made, "commands"):
            assert made.epilog, words
            assert (made.help or "").strip().endswith("."), words


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Any]:
    """A command on one file; what it printed, of --json the records."""

    def call(*words: str, code: int = 0, text: str = "") -> Any:
        ran = CliRunner().invoke(app, [*words, "--file", str(tmp_path / "a.mem")], input=text)
        assert ran.exit_code == code, ran.output + repr(ran.exception)
        return [json.loads(line) for line in ran.stdout.splitlines()] if "--json" in words else ran.output

    call("add", "Ana likes tofu", "--user", "ana", "--encoder", "hashing:64")
    call("add", "Ana lives in Oslo", "--user", "ana", "--at", "2026-01-01")
    return call


def test_duplicate_add_is_reported(run: Callable[..., Any]) -> None:
    given = "Ana likes tofu\nBo likes tea\n"
    said = run("add", "-", "--user", "ana", text=given)
    assert "m1 says that already: nothing was stored." in said
    assert said.count("nothing was stored") == 1
    again = run("add", "-", "--user", "ana", "--json", text=f"{given}new\n")
    assert [each["known"] for each in again] == [True, True, False]


def test_long_notes_take_little_room_in_lists(tmp_path: Path) -> None:
    file, note = str(tmp_path / "m.mem"), " ".join(["Check the valve again."] * 5_000)
    with Memory(file, encoder=None) as memory:
        memory.add(note)
        memory.add(f"{note} Always.", kind="core")
    for words in (("list",), ("history", "m1"), ("search", "valve"), ("diff", "s0")):
        lines = command(*words, "--file", file).output
        assert "Check the valve again." in lines
        assert len(lines) < 4_000, words
    (first, _) = command("list", "--json", "--file", file).output.splitlines()
    assert json.loads(first)["text"] == note
    assert len(command("show", "m1", "--file", file).output) > len(note)


def test_changes_by_commands_can_be_undone(run: Callable[..., Any]) -> None:
    (named,) = run("snapshot", "--json")
    snapshot = named["snapshot"]
    assert run("update", "m1", "Ana likes smoked tofu", "--json")[0]["id"] == "m1"
    assert run("update", "m1", "--trust", "0.5", "--json")[0]["trust"] == 0.5
    (after,) = run("supersede", "m2", "Ana lives in Bergen", "--at", "2026-06-01", "--json")
    assert (after["text"], after["event_time"]) == ("Ana lives in Bergen", "2026-06-01T00:00:00Z")
    assert [each["id"] for each in run("diff", snapshot, "--json")] == ["m1", "m2", after["id"]]
    assert "- " in run("diff", snapshot)
    assert "superseded by" in run("diff", snapshot)
    assert "Ana lives in Oslo" in run("search", "Oslo", "--as-of", "2026-05-01")
    (undone,) = run("rollback", "--since", snapshot, "--json")
    assert set(undone["changed"]) == {"m1", "m2", after["id"]}
    assert "Nothing differs." in run("diff", snapshot)
    run("rollback", undone["id"])
    assert [each["text"] for each in run("list", "--json")] == ["Ana likes smoked tofu", "Ana lives in Bergen"]


def test_reward_command_credits_items_of_the_episode(run: Callable[..., Any], tmp_path: Path) -> None:
    (begun,) = run("episode", "begin", "what to cook", "--user", "ana", "--json")
    id = begun["episode"]
    shown = run("episode", "search", id, "tofu", "--top-k", "1", "--json")
    assert run("pending", "--json") == []
    run("episode", "act", id, "tofu curry")
    assert [each["episode"] for each in run("pending", "--json")] == [id]
    assert "none yet" in run("episode", "show", id)
    (done,) = run("reward", id, "0.5", "--json")
    assert done == {"target": id, "value": 0.5, "applied": True, "reason": "applied"}
    assert run("pending", "--json") == []
    run("episode", "end", id)
    (listed,) = run("episode", "list", "--json")
    assert (listed["reward"], listed["shown"]) == (0.5, [each["id"] for each in shown])
    text = run("episode", "show", id)
    assert all(part in text for part in ("what to cook", "tofu curry", "0.500", *(each["text"] for each in shown)))
    assert run("episode", "show", id, "--json")[0]["exchanges"] == [{"seen": "tofu", "done": "tofu curry"}]
    with Memory(tmp_path / "a.mem") as memory:
        assert all(memory.get(each["id"]).values.mean == 0.5 for each in shown)
        worth = memory.worth("m1", "tofu")
    assert run("worth", "m1", "tofu", "--json")[0]["with_it"] == worth.with_it
    assert run("ledger", "--json")[-1]["rewarded"] == 1


def test_a_negative_reward_is_no_option(run: Callable[..., Any], tmp_path: Path) -> None:
    (begun,) = run("episode", "begin", "what to cook", "--json")
    run("episode", "search", begun["episode"], "tofu")
    refused = CliRunner().invoke(app, ["reward", begun["episode"], "-0.5", "--file", str(tmp_path / "a.mem")])
    assert isinstance(refused.exception, InvalidReward)
    run("reward", begun["episode"], "1", "--nonsense", code=2)


@pytest.mark.parametrize(
    "words", [("forget", "m1", "--purge"), ("erase", "--user", "ana"), ("compact", "--keep-decisions", "0")]
)
def test_irreversible_commands_ask_first(words: tuple[str, ...], run: Callable[..., Any], tmp_path: Path) -> None:
    before = run("stats", "--json")
    refused = CliRunner().invoke(app, [*words, "--file", str(tmp_path / "a.mem")], input="")
    assert isinstance(refused.exception, KeepworthError)
    assert refused.exception.fix == "Add --yes."
    assert "Nothing was done." in run(*words, code=1, text="n\n")
    assert run("stats", "--json") == before
    assert "for good?" in run(*words, text="y\n")
    if words[0] != "compact":
        assert run("stats", "--json") != before


def test_show_omits_unknown_fields(run: Callable[..., Any]) -> None:
    kept = run("add", "I am allergic to peanuts", "--user", "ana", "--infer", "--json")
    assert any("peanuts" in each["text"] for each in kept)
    shown = run("show", "m1")
    assert re.search(r"^ +scope  user ana$", shown, re.M), shown
    assert re.search(r"^ +provenance  source command line$", shown, re.M), shown


def test_a_memory_that_lies_beside_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def refused() -> str:
        with pytest.raises(KeepworthError, match=r"There is no memory at keepworth\.mem") as found:
            CliRunner().invoke(app, ["search", "router"], catch_exceptions=False)
        return found.value.fix

    assert "memory add" in refused()
    Memory("agent.mem", encoder="hashing").close()
    assert "--file agent.mem" in refused()
    assert "export KEEPWORTH_MEMORY=agent.mem" in refused()
    for number in range(6):
        Memory(f"other {number}.mem", encoder="hashing").close()
    assert "agent.mem, other 0.mem" in refused()
    assert "2 more" in refused()


def test_commands_print_results_as_json(run: Callable[..., Any], tmp_path: Path) -> None:
    (begun,) = run("episode", "begin", "what to cook", "--user", "ana", "--json")
    named = begun["episode"]
    assert run("episode", "search", named, "tofu", "--json")
    assert run("episode", "act", named, "cooked", "--json") == [{"episode": named, "action": "cooked"}]
    assert run("episode", "end", named, "--json") == [{"episode": named, "outcome": "completed"}]
    assert run("reembed", "hashing:32", "--json")[0]["encoder"] == "hashing:32"
    (copied,) = run("backup", str(tmp_path / "b.mem"), "--json")
    assert Path(copied["file"]).is_file()
    all_of_it, now = tmp_path / "all.jsonl", tmp_path / "now.jsonl"
    (whole,) = run("export", str(all_of_it), "--json")
    assert whole["lines"] == len(all_of_it.read_text().splitlines())
    (items,) = run("export", str(now), "--to", "jsonl", "--json")
    assert items["items"] == 2
    assert run("import", str(now), "--from", "jsonl", "--json")[0]["known"] == 2
    (token,) = run("token", "add", "--user", "ana", "--json")
    assert token["token"].startswith("kw_")
    assert run("token", "remove", token["id"], "--json") == [{"removed": token["id"]}]
    with pytest.raises(KeepworthError, match="standard output"):
        CliRunner().invoke(app, ["export", "-", "--json", "--file", str(tmp_path / "a.mem")], catch_exceptions=False)


def test_empty_results_suggest_a_command(run: Callable[..., Any], tmp_path: Path) -> None:
    assert "leave options out" in run("list", "--user", "bob")
    assert "keepworth" in run("token", "list")
    assert run("token", "list", "--json") == []
    assert "episode begin" in run("episode", "list")
    assert "Nothing is held back." in run("quarantine")
    run("forget", "m1", "m2")
    assert "all 2 items of" in run("list")
    run("rollback", "--since", "s2")
    run("forget", "m1", "m2", "--purge", "--yes")
    assert "is empty. `keepworth memory add TEXT`" in run("list")
    assert "is empty. `keepworth memory add TEXT`" in run("search", "tofu")


def test_list_search_and_maintenance_commands_work(run: Callable[..., Any]) -> None:
    assert "go on with --after m1" in run("list", "--limit", "1")
    assert "--after" not in run("list", "--limit", "2")
    assert "m1  Ana likes tofu" in run("search", "tofu", "-k", "1", "--explain")
    assert "ADD" in run("history", "m1")
    assert "Deleted m1" in run("forget", "m1")
    assert (run("list").count("Ana"), run("list", "--all").count("Ana")) == (1, 2)
    assert "items changed" in run("rollback", "--since", "s2")
    assert run("list").count("Ana") == 2
    assert "Erased m2" in run("forget", "m2", "--purge", "--yes")
    assert "Sound." in run("check")
    assert "hashing" in run("stats")
    assert run("stats", "--json")[0]["current"] == 1
    assert "MB" in run("compact")


def test_an_export_that_finds_no_room_leaves_no_half(tmp_path: Path) -> None:
    path = tmp_path / "a.mem"
    with Memory(path, encoder=None) as m:
        m.add_many([f"{number} " + "x" * 5000 for number in range(100)])
    (tmp_path / "there").mkdir()
    with largest_file(100_000):
        problem = command("export", tmp_path / "there" / "a.jsonl", "--file", path).exception
    assert isinstance(problem, KeepworthError)
    assert "a.jsonl" in str(problem)
    assert list((tmp_path / "there").iterdir()) == []


def test_search_command_shows_and_explains_the_learned_order(tmp_path: Path) -> None:
    path = tmp_path / "a.mem"

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


def test_searches_and_lists_take_filters(tmp_path: Path) -> None:
    path = tmp_path / "a.mem"
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
            assert isinstance(problem, InvalidFilter)
            assert str(problem).startswith("--where")
