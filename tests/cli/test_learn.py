"""`keepworth learn` makes of logs what later searches show, and counts nothing twice."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from keepworth import Memory
from keepworth.memory.evaluations import evaluations_in, reward_by
from keepworth.memory.headline import MARK
from keepworth.memory.store import notes
from tests.cli.conftest import CommandLine
from tests.memory.outcomes.test_samples import SAMPLES
from tests.serving.scripted import scripted

FILE = ("--memory", "a.mem", "--encoder", "hashing:64")


def learn(command: CommandLine, *words: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(command.done("learn", *words, *FILE, "--yes", "--json"))
    return record


def state(file: str = "a.mem") -> list[tuple[str, str]]:
    with Memory(file, encoder=None, policy=None) as memory:
        return [(item.id, item.text) for item in memory.get_all(limit=1000)]


def session(path: Path, *turns: tuple[str, list[tuple[str, bool, str]]], name: str = "s-1") -> None:
    """Write a session file of Claude Code: what was asked, and the commands with whether they failed and what they printed."""
    rows, clock = list[dict[str, Any]](), 0

    def row(kind: str, content: Any, **more: Any) -> None:
        nonlocal clock
        clock += 1
        base = {"sessionId": name, "uuid": f"{name}-{clock}", "cwd": "/home/ana/shop", "type": kind}
        time = f"2026-05-04T08:{clock // 60:02}:{clock % 60:02}Z"
        rows.append({**base, "timestamp": time, "message": {"role": kind, "content": content}, **more})

    for asked, steps in turns:
        row("user", asked)
        for command, failed, output in steps:
            row("assistant", [{"type": "tool_use", "id": f"t{clock}", "name": "Bash", "input": {"command": command}}])
            row(
                "user", [{"type": "tool_result", "tool_use_id": f"t{clock - 1}", "content": output, "is_error": failed}]
            )
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


@pytest.mark.parametrize("path", ["pipe.jsonl", "/dev/zero"])
def test_a_pipe_and_a_device_are_refused_as_logs(command: CommandLine, path: str) -> None:
    os.mkfifo("pipe.jsonl")
    assert f"{path} is a pipe or a device" in command.refused("learn", path, *FILE, "--yes")


def test_sessions_of_an_opencode_database_that_cannot_be_read_are_named(command: CommandLine) -> None:
    with closing(sqlite3.connect("opencode.db")) as database, database:
        database.execute("CREATE TABLE session (id, directory, revert, time_created, time_updated, parent_id)")
        database.execute("CREATE TABLE message (id, session_id, data, time_created)")
        database.execute("CREATE TABLE part (id, message_id, data)")
        rows = [("s1", "[[["), ("s2", None), ("s3", None), ("s4", None)]
        database.executemany("INSERT INTO session VALUES (?, '/x', ?, 1, 1, NULL)", rows)
        data = [("s2", "no JSON"), ("s3", "[" * 5000), ("s4", "5")]
        database.executemany("INSERT INTO message VALUES ('m', ?, ?, 1)", data)
    with closing(sqlite3.connect("other.db")) as database, database:
        database.executescript("CREATE TABLE session (a); CREATE TABLE message (a); CREATE TABLE part (a);")
    code, out, err = command("learn", "opencode.db", "other.db", *FILE, "--yes")
    said = " ".join((out + err).split())
    assert code == 0
    assert re.findall(r"the session '(s\d)' cannot be read", said) == ["s1", "s2", "s3", "s4"]
    assert re.search(r"other\.db: its sessions are not as opencode writes them \(no such column", said)


def test_the_same_logs_count_once(command: CommandLine) -> None:
    first = learn(command, str(SAMPLES))
    assert first["learned"]["new"] == first["read"]["turns"] > 0
    assert first["learned"]["problems"] == []
    before = state()
    again = learn(command, str(SAMPLES))["learned"]
    assert (again["new"], again["longer"], again["cases"], again["facts"]) == (0, 0, 0, 0)
    assert state() == before
    assert "Sound" in command.done("memory", "check", "--file", "a.mem")


def test_model_reads_next_messages_of_logs_once_and_only_with_the_option(
    command: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {"choices": [{"message": {"role": "assistant", "content": "correction"}, "finish_reason": "stop"}]}
    session(Path("s.jsonl"), ("Write the letter", [("cat letter", False, "Dear Sir")]), ("two pages", []))
    with scripted((200, said)) as model:
        monkeypatch.setenv("OPENAI_BASE_URL", model.url)
        monkeypatch.setenv("OPENAI_MODEL", "judge")
        command.done("learn", "s.jsonl", *FILE, "--model-signals", "5", "--dry-run")
        command.done("learn", "s.jsonl", "--memory", "b.mem", "--encoder", "none", "--yes")
        assert model.asked == []
        learn(command, "s.jsonl", "--model-signals", "5")
        learn(command, "s.jsonl", "--model-signals", "5")
        assert len(model.asked) == 1
    assert "a model says that the user's next message corrects the answer" in "".join(text for _, text in state())


def test_search_after_learning_shows_the_successful_action(command: CommandLine) -> None:
    checked = [("pytest -q", True, "1 failed"), ("pytest -q", False, "9 passed")]
    session(Path("s.jsonl"), ("Mend the size test", checked), ("thanks, perfect", []))
    learn(command, "s.jsonl", "--user", "ana")
    with Memory("a.mem") as memory:
        (hit,) = memory.search("the size test fails", user_id="ana", top_k=1)
    assert hit.item.text.splitlines() == [
        "Task: Mend the size test",
        "Done: pytest -q (failed); pytest -q",
        "Ended: well (a test, a build or a linter passed after it had failed in the same turn; the user's next message thanks or "
        "confirms).",
    ]
    assert hit.item.kind == "case"
    assert (hit.item.scope.user, hit.item.scope.agent) == ("ana", "/home/ana/shop")
    assert hit.item.event_time == "2026-05-04T08:00:01"
    assert hit.item.metadata["outcome"] == 1.0


def test_a_session_that_went_on_is_brought_up_to_date(command: CommandLine) -> None:
    session(Path("s.jsonl"), ("Ship version 2", [("make release", True, "no key")]))
    assert learn(command, "s.jsonl")["learned"]["new"] == 1
    steps = [("make release", True, "no key"), ("make key", False, "ok"), ("make test", False, "9 passed")]
    session(Path("s.jsonl"), ("Ship version 2", steps), ("great, that works", []))
    assert (more := learn(command, "s.jsonl")["learned"])["longer"] == 1
    assert more["new"] == 1
    cases = [text for _, text in state() if text.startswith("Task: ")]
    assert len(cases) == 1
    assert "make key" in cases[0]
    assert "Ended: well" in cases[0]
    shutil.copy("s.jsonl", "resumed.jsonl")
    assert learn(command, "resumed.jsonl", "s.jsonl")["learned"]["new"] == 0


def test_recalled_items_are_rewarded_once_from_the_log(command: CommandLine) -> None:
    with Memory("a.mem", encoder=None, log="at once") as memory:
        note = memory.add("Run make test before a release", user_id="ana")
        decision = memory.search("release", user_id="ana").decision
    found = json.dumps({"notes": [], "decision": decision})
    steps = [("make test", True, "2 failed"), ("recall", False, found), ("make test", False, "9 passed")]
    session(Path("s.jsonl"), ("Make a release", steps), ("thanks!", []))
    rewards = learn(command, "s.jsonl", "--user", "ana")["learned"]["rewards"]
    assert rewards == {"signal:check-mended": 1, "signal:thanks": 1}
    with Memory("a.mem", encoder=None) as memory:
        worth = memory.worth(note.id, "release")
    assert (worth.times, worth.earned) == (1.0, 1.0)
    assert not any(learn(command, "s.jsonl", "--user", "ana")["learned"]["rewards"].values())


def test_outcomes_sent_by_hooks_are_not_counted_twice(command: CommandLine) -> None:
    clock = "2026-05-04T08:00:00"
    with Memory("a.mem", encoder=None, clock=lambda: clock) as memory:
        memory.add("Run make test before a release", user_id="ana")
        episodes = [memory.episode("Make a release", user_id="ana"), memory.episode("Make a tag", user_id="ana")]
        decisions = [episode.search("release").decision for episode in episodes]
        episodes[0].signal("check-passed")
    block = f"{MARK}\n- Run make test before a release"
    checked = [("make test", False, "9 passed")]
    turns = (f"Make a release\n\n{block}", checked), ("Make a tag", checked), ("I live in Oslo.", checked)
    session(Path("s.jsonl"), *turns)
    record = learn(command, "s.jsonl", "--user", "ana")["learned"]
    assert record["messages"] == 1  # of the others the hooks kept what was said
    assert record["shown"] == 1
    assert record["rewards"] == {"signal:check-passed": 1}
    with Memory("a.mem", encoder=None) as memory:
        sent = [memory.episode_record(episode.id).rewards for episode in episodes]
    assert [len(rewards) for rewards in sent] == [1, 1]
    assert len(set(decisions)) == 2


def test_dry_run_reports_without_changes(command: CommandLine) -> None:
    dry = json.loads(command.done("learn", str(SAMPLES), *FILE, "--dry-run", "--json"))
    assert not Path("a.mem").exists()
    done = learn(command, str(SAMPLES))
    for name in ("new", "longer", "cases", "messages", "scores"):
        assert dry["learned"][name] == done["learned"][name], name
    before = state()
    assert json.loads(command.done("learn", str(SAMPLES), *FILE, "--dry-run", "--json"))["learned"]["new"] == 0
    assert state() == before


def test_learn_lists_logs_and_asks(command: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    code, out, err = command("learn", str(SAMPLES / "claude_code"), str(SAMPLES / "unknown"), *FILE)
    assert code == 2
    assert "--yes" in err
    assert not Path("a.mem").exists()
    assert "/home/ana/laden" in out
    assert "2026-05-04 to 2026-05-05" in out
    assert "cut.jsonl:4" in err
    assert "notes.txt: it is in no known form" in err
    monkeypatch.setattr("typer.confirm", lambda *_, **__: False)
    assert command("learn", str(SAMPLES / "claude_code"), *FILE)[0] != 0
    assert not Path("a.mem").exists()
    assert "There is no" in command.refused("learn", "nowhere.jsonl", *FILE)


def test_secrets_are_masked(command: CommandLine) -> None:
    key = "sk-ant-api03-" + "Ab3dE5fG7h" * 9
    session(Path("s.jsonl"), (f"Deploy it.\nMy key is {key}", [(f"export KEY={key}; make deploy", False, "ok")]))
    learn(command, "s.jsonl")
    assert key.encode() not in Path("a.mem").read_bytes()
    assert any("Deploy it." in text and "removed]" in text for _, text in state())


def test_a_file_is_a_source_and_a_person_is_erased(command: CommandLine) -> None:
    session(Path("s.jsonl"), ("I live in Oslo. Ship it.", [("make ship", True, "no key")]))
    Path("p.jsonl").write_text('{"task": "Print it", "steps": ["lpr a.txt"], "reward": 1, "person": "bo"}\n')
    learn(command, "s.jsonl", "p.jsonl", "--user", "ana")
    command.done("memory", "rollback", "--source", f"log:{Path('p.jsonl').absolute()}", "--file", "a.mem")
    texts = Counter(text.partition("\n")[0] for _, text in state())
    assert "Task: Print it" not in texts
    assert texts["Task: I live in Oslo. Ship it."] == 1
    assert learn(command, "p.jsonl", "--user", "ana")["learned"]["new"] == 0
    command.done("memory", "erase", "--user", "ana", "--file", "a.mem", "--yes")
    assert state() == []
    assert b"Oslo" not in Path("a.mem").read_bytes()
    learn(command, "s.jsonl", "--user", "ana")
    assert state() == []


def test_an_evaluation_that_names_a_search_rewards_it(command: CommandLine) -> None:
    with Memory("a.mem", encoder=None, log="at once") as memory:
        note = memory.add("Returns are free within thirty days", user_id="u-77")
        decision = memory.search("returns", user_id="u-77").decision
    for name in ("traces.jsonl", "logs.jsonl"):
        text = (SAMPLES / "otlp" / name).read_text(encoding="utf-8").replace("dec_0001", decision)
        Path("otlp").mkdir(exist_ok=True)
        Path("otlp", name).write_text(text, encoding="utf-8")
    record = learn(command, "otlp")
    assert record["read"]["of_nobody"] == 1
    assert record["learned"]["rewards"] == {"corrección": 1, "recuerdo_útil": 1}
    labelled = {"cortesía": 1}  # its label is "pass"
    assert record["learned"]["scores"] == {"corrección": 1, "recuerdo_útil": 1, "resuelto": 1, **labelled}
    assert record["learned"]["unusable"] == {}
    with Memory("a.mem", encoder=None) as memory:
        assert memory.worth(note.id, "returns").earned == pytest.approx(0.9, abs=0.01)


def test_an_evaluation_that_came_to_a_server_rewards_its_search_once(command: CommandLine) -> None:
    with Memory("a.mem", encoder=None, log="at once") as memory:
        memory.add("Returns are free within thirty days", user_id="u-77")
        decision = memory.search("returns", user_id="u-77").decision
        Path("otlp").mkdir()
        for name in ("traces.jsonl", "logs.jsonl"):
            text = (SAMPLES / "otlp" / name).read_text(encoding="utf-8").replace("dec_0001", decision)
            Path("otlp", name).write_text(text, encoding="utf-8")
        events = [event for line in text.splitlines() for event in evaluations_in(json.loads(line)) if event.targets]
        assert [reward_by(memory, events).rewarded.total() for _ in range(2)] == [1, 0]
    assert learn(command, "otlp", "--dry-run")["learned"]["rewards"] == {"corrección": 1}
    assert learn(command, "otlp")["learned"]["rewards"] == {"corrección": 1}
    with Memory("a.mem", encoder=None) as memory:
        given = [row.source for row in memory.outcomes() if "recuerdo" in row.source and row.rewards]
        assert given[0] == "evaluation:recuerdo_útil"
        assert reward_by(memory, events).repeated.total() == 1


def test_erasure_keeps_the_list_of_read_logs(command: CommandLine) -> None:
    session(Path("s.jsonl"), ("Ship it.", [("make ship", False, "shipped")]))
    assert learn(command, "s.jsonl")["learned"]["new"] == 1
    with Memory("a.mem", encoder=None) as memory:
        memory.forget(memory.add("the gate code is 4471").id, purge_history=True)
    assert learn(command, "s.jsonl")["learned"]["new"] == 0


def test_scores_that_are_no_rewards_are_counted(command: CommandLine) -> None:
    rows = [{"task": f"Count {number}", "steps": ["wc"], "reward": value} for number, value in enumerate((0.5, 7, -1))]
    Path("p.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    learned = learn(command, "p.jsonl")["learned"]
    assert (learned["scores"], learned["unusable"]) == ({"reward": 1}, {"reward": 2})
    assert [text.splitlines()[-1] for _, text in state() if text.startswith("Task: ")] == [
        "Ended: neither well nor badly (reward 0.5).",
        "Ended: not known (reward 7).",
        "Ended: not known (reward -1).",
    ]


def test_a_change_that_was_reverted_ended_badly(command: CommandLine) -> None:
    learn(command, str(SAMPLES / "opencode"), "--no-facts")
    (text,) = (text for _, text in state() if text.startswith("Task: 止めて"))
    assert "a change was taken back" in text
    assert "Ended: badly" in text


@pytest.mark.parametrize("calls", [0, 3, 7])
def test_a_run_that_was_killed_goes_on(command: CommandLine, monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    learn(command, str(SAMPLES / "codex"), str(SAMPLES / "plain"))
    whole = sorted(text for _, text in state())
    Path("a.mem").unlink()
    counted, keep = iter(range(calls)), notes.keep_learned

    def stop(*given: Any) -> None:
        if next(counted, None) is None:
            raise KeyboardInterrupt
        keep(*given)

    monkeypatch.setattr(notes, "keep_learned", stop)
    assert command("learn", str(SAMPLES / "codex"), str(SAMPLES / "plain"), *FILE, "--yes")[0] == 130
    monkeypatch.setattr(notes, "keep_learned", keep)
    again = learn(command, str(SAMPLES / "codex"), str(SAMPLES / "plain"))["learned"]
    assert again["new"] > 0
    assert sorted(text for _, text in state()) == whole
