"""Lines of CLAUDE.md and the like move into a memory while an experiment runs, hooks show them, and all of them come back."""

from __future__ import annotations

import json
import os
import random
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from keepworth import Client, Memory
from keepworth.adapters.formats import entries_of
from keepworth.adapters.instructions import running_at, split, start, why_it_stays
from keepworth.base.errors import KeepworthError
from keepworth.cli.main import app
from keepworth.memory.item import Status
from keepworth.serving import hook
from tests.serving.memory_process import TOKEN, MemoryProcess

TEXT = """\
# Shop

See @README.md for more.

## Style
- Use uv for packages
- Two spaces of indent
  - In YAML, too
* [x] Run `make lint` before a commit

Deploys:
1. Build with `make dist`
2. Never skip the smoke test

Ask Ana about
the warehouse.
"""
REST = """\
# Shop

See @README.md for more.

## Style

Deploys:
1. Build with `make dist`
2. Never skip the smoke test

"""
Run = Callable[[str], tuple[int, str, str]]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "CLAUDE.md").write_bytes(TEXT.encode())
    return tmp_path


@pytest.fixture
def run(project: Path) -> Run:
    def call(line: str) -> tuple[int, str, str]:
        result = CliRunner().invoke(app, ["memory", *shlex.split(line), "--file", "agent.mem"])
        error = result.exception if isinstance(result.exception, KeepworthError) else None
        return result.exit_code, result.stdout, f"{result.stderr}{error or ''}"

    return call


START = "experiment start CLAUDE.md --encoder hashing --without-hooks --yes"


def files_of(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file() and ".mem" not in path.name)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def test_lines_move_out_and_come_back_to_the_byte(run: Run, project: Path) -> None:
    rules = project / ".cursor" / "rules"
    rules.mkdir(parents=True)
    (rules / "a.mdc").write_bytes(
        b"\xef\xbb\xbf---\r\nalwaysApply: true\r\n---\r\n- Windows\r\n  too\r\n- Z\xc3\xa4hle\xe2\x80\xa8mit"
    )
    os.chmod(rules / "a.mdc", 0o640)
    (project / "AGENTS.md").symlink_to("CLAUDE.md")
    before = files_of(project)
    code, out, err = run(f"{START} AGENTS.md .cursor/rules/a.mdc")
    assert (code, out) == (0, "CLAUDE.md: 5 lines moved, 4 stayed.\n.cursor/rules/a.mdc: 2 lines moved, 0 stayed.\n")
    assert "it loads a file: See @README.md for more." in err
    assert "it is a step of a numbered list: Build with" in err
    assert "line 12 below it stays: Deploys:" in err
    assert "chance leaves it out" in err
    assert (project / "CLAUDE.md").read_text("utf-8") == REST
    assert (rules / "a.mdc").read_bytes() == b"\xef\xbb\xbf---\r\nalwaysApply: true\r\n---\r\n"
    with Memory("agent.mem", encoder="hashing") as memory:
        lines = {item.text: item.metadata for item in memory.get_all()}
    assert list(lines) == [
        *("Use uv for packages", "Two spaces of indent", "In YAML, too", "Run `make lint` before a commit"),
        *("Ask Ana about\nthe warehouse.", "Windows\ntoo", "Zähle\u2028mit"),
    ]
    assert lines["In YAML, too"] == {"file": "CLAUDE.md", "heading": "Shop > Style", "line": 8, "tested": 0.25}
    code, out, _ = run("experiment restore")
    assert (code, out) == (0, "CLAUDE.md is as it was.\n.cursor/rules/a.mdc is as it was.\n")
    assert files_of(project) == before
    assert ((rules / "a.mdc").stat().st_mode & 0o777, (project / "AGENTS.md").is_symlink()) == (0o640, True)


def test_experiment_notes_are_archived_and_revived_with_their_evidence(run: Run) -> None:
    run(START)
    with Memory("agent.mem", encoder="hashing") as memory:
        ids = [item.id for item in memory.get_all()]
        with memory.episode("packages") as episode:
            episode.search("which packages", top_k=1)
            episode.reward(1.0)
    assert "Use uv for packages" in run("experiment show")[1]
    run("experiment restore")
    with Memory("agent.mem", encoder="hashing") as memory:
        assert memory.get_all() == []
        assert {memory.get(id).status for id in ids} == {Status.ARCHIVED}
    run(START)
    with Memory("agent.mem", encoder="hashing") as memory:
        assert [item.id for item in memory.get_all()] == ids
        assert memory.get(ids[0]).values.shown == 1


def test_retired_and_reworded_lines_are_written_back_in_place(run: Run, project: Path) -> None:
    run(START)
    with Memory("agent.mem", encoder="hashing") as memory:
        ids = {item.text: item.id for item in memory.get_all()}
    run(f"review --retire {ids['Two spaces of indent']} --retire {ids['Run `make lint` before a commit']}")
    run(f"update {ids['In YAML, too']} 'Four in Python'")
    wanted = TEXT.replace("- Two spaces of indent\n", "").replace("* [x] Run `make lint` before a commit\n", "")
    wanted = wanted.replace("In YAML, too", "Four in Python")
    assert run("export kept.md --to markdown --like CLAUDE.md")[0] == 0
    assert (project / "kept.md").read_text("utf-8") == wanted
    (project / "kept.md").unlink()
    assert run("experiment restore --kept")[1] == "CLAUDE.md: 6 lines as they were, 2 left out, 1 reworded.\n"
    assert files_of(project) == {"CLAUDE.md": wanted.encode()}


def test_a_file_that_was_changed_meanwhile_is_named_with_its_line_and_left_alone(run: Run, project: Path) -> None:
    run(START)
    changed = REST.replace("## Style\n", "## Style\n- Ask before a deploy\n")
    (project / "CLAUDE.md").write_text(changed, "utf-8")
    code, _, err = run("experiment restore")
    assert code != 0
    assert "CLAUDE.md was changed while the experiment ran: first at line 6, '- Ask before a deploy'" in err
    assert (project / "CLAUDE.md").read_text("utf-8") == changed
    code, _, err = run(START)
    assert (code != 0, "An experiment with CLAUDE.md runs since" in err) == (True, True)
    code, out, _ = run("experiment restore --force")
    assert (code, out) == (0, "CLAUDE.md is as it was.\n")
    assert files_of(project) == {"CLAUDE.md": TEXT.encode(), "CLAUDE.md.keepworth-changed": changed.encode()}


def test_a_copy_that_was_changed_is_not_taken_unasked(run: Run, project: Path) -> None:
    run(START)
    (project / "CLAUDE.md.keepworth-copy").write_text("else", "utf-8")
    code, _, err = run("experiment restore")
    assert (code != 0, "CLAUDE.md.keepworth-copy is not what was copied there" in err) == (True, True)
    assert (project / "CLAUDE.md").read_text("utf-8") == REST


def test_a_start_that_was_killed_before_the_lines_moved_is_ended_or_begun_anew(run: Run, project: Path) -> None:
    run(START)
    (project / "CLAUDE.md").write_bytes(TEXT.encode())  # as it is after the copy was made, and before the lines moved
    assert run("experiment restore")[:2] == (0, "CLAUDE.md is as it was.\n")
    assert files_of(project) == {"CLAUDE.md": TEXT.encode()}
    run(START)
    (project / "CLAUDE.md").write_bytes(TEXT.encode())
    assert run(START)[0] == 0
    assert (project / "CLAUDE.md").read_text("utf-8") == REST
    Path("agent.mem").unlink()
    code, out, err = run("experiment restore")
    assert (code, out) == (0, "CLAUDE.md is as it was.\n"), "also without the memory"
    assert "The notes were left as they are" in err


def test_a_file_that_changes_while_the_experiment_begins_is_left_as_it_is(project: Path) -> None:
    with Memory("agent.mem", encoder="hashing") as memory:
        parted = split(Path("CLAUDE.md"), frozenset())
        Path("CLAUDE.md").write_text(f"{TEXT}- more\n", "utf-8")
        with pytest.raises(KeepworthError, match=r"changed while the experiment began: first at line 17, '- more'"):
            start(memory, [parted])
    assert Path("CLAUDE.md").read_text("utf-8") == f"{TEXT}- more\n"


def test_experiment_needs_consent_and_hooks(run: Run, project: Path) -> None:
    code, _, err = run(START.replace(" --yes", ""))
    assert (code != 0, "Add --yes" in err) == (True, True)
    code, _, err = run(START.replace(" --without-hooks", ""))
    assert (code != 0, "No coding assistant runs the hooks here" in err) == (True, True)
    code, _, err = run("experiment restore")
    assert (code != 0, "No experiment runs in this folder" in err) == (True, True)
    code, _, err = run("experiment show CLAUDE.md")
    assert (code != 0, "No experiment runs with CLAUDE.md" in err) == (True, True)
    (project / "CLAUDE.md").write_text("- Never push to main\n", "utf-8")
    code, _, err = run(START)
    assert (code != 0, "No line may move" in err) == (True, True)
    assert files_of(project) == {"CLAUDE.md": b"- Never push to main\n"}


def test_experiment_notes_belong_to_the_user_of_the_hooks(
    run: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = START.replace(" --without-hooks", "")
    assert hook.install("claude-code", ["--user", "ana"], write=True)
    code, _, err = run(f"{start} --user bo")
    assert (code != 0, "The hooks here search the notes of ana" in err) == (True, True)
    assert run(start)[0] == 0
    with Memory("agent.mem", encoder="hashing") as memory:
        assert {item.scope.user for item in memory.get_all()} == {"ana"}
    run("experiment restore")
    hook.install("claude-code", [], write=True)
    monkeypatch.setenv("KEEPWORTH_USER", "cy")
    assert run(start)[0] == 0
    with Memory("agent.mem", encoder="hashing") as memory:
        assert {item.scope.user for item in memory.get_all()} == {"cy"}


def test_the_notes_of_another_memory_are_not_touched(run: Run) -> None:
    run(START)
    with Memory("other.mem", encoder="hashing") as other:
        other.add_many([f"note {number}" for number in range(9)])
    result = CliRunner().invoke(app, ["memory", "experiment", "restore", "--file", "other.mem"])
    assert "Say --file" in str(result.exception)
    assert running_at(Path("CLAUDE.md")) is not None


STAYS = {
    "Never push to main": "it says 'never'",
    "You mustn\u2019t skip it": 'it says "mustn\'t"',
    "Keep credentials out of logs": "it says 'credentials'",
    "Niemals direkt deployen": "it says 'niemals'",
    "Ne pas pousser sur main": "it says 'ne pas'",
    "不要直接推送": "it says '不要'",
    "See @docs/style.md": "it loads a file",
    "The key is ghp_" + "a1B2" * 9: "it holds a secret",
    "Answer in Norwegian": "it is pinned",
    "Use uv for packages": "",
    "Mail ana@example for help": "",
    "Tests come first": "",
}


@pytest.mark.parametrize("text", STAYS)
def test_a_line_that_forbids_something_or_is_pinned_stays(text: str) -> None:
    entries = entries_of(f"- {text}\n")
    assert why_it_stays(entries[0], entries, frozenset({"Answer in Norwegian"})) == STAYS[text]


def test_lines_below_a_warning_stay_in_the_file() -> None:
    entries = entries_of("# Never\n- push\n\n# Do\n- lint\n\nBefore production:\n- test\n  - slowly\n\n- ship\n")
    reasons = [why_it_stays(entry, entries) for entry in entries]
    assert [(entry.text, bool(reason)) for entry, reason in zip(entries, reasons, strict=True)] == [
        *(
            ("push", True),
            ("lint", False),
            ("Before production:", True),
            ("test", True),
            ("slowly", True),
            ("ship", True),
        ),
    ]


def test_pinned_lines_stay_in_the_file(run: Run, project: Path) -> None:
    with Memory("agent.mem", encoder="hashing") as memory:
        memory.add("Two spaces of indent", metadata={"pinned": True})
    run(START)
    assert "- Two spaces of indent\n" in (project / "CLAUDE.md").read_text("utf-8")


def test_a_tested_note_is_left_out_in_its_share_of_turns_until_its_worth_is_known() -> None:
    draw = random.Random(5)
    with Memory(encoder="hashing", seed=2) as memory:
        note = memory.add("Use uv for packages", metadata={"tested": 0.25})
        memory.add("The warehouse is in Oslo")
        shown = []
        for _ in range(240):
            with memory.episode("install packages") as episode:
                hits = episode.search(f"install packages for service {draw.random()}", top_k=2)
                shown.append(any(hit.id == note.id for hit in hits))
                episode.reward(float(draw.random() < (0.9 if shown[-1] else 0.2)))
        account = memory.ledger(items=[note.id]).accounts[0]
        (reviewed,) = memory.review().of("earns")
    assert 15 <= shown.count(False) <= 0.35 * len(shown)
    assert reviewed.item.id == note.id
    assert account.low > 0.0
    assert account.low <= 0.7 <= account.high
    assert all(shown[-20:]), "what is known is tested no more"


def test_note_already_in_the_context_is_not_withheld() -> None:
    with Memory(encoder="hashing", seed=2) as memory:
        note = memory.add("Use uv for packages", metadata={"tested": 0.5})
        memory.add("The warehouse is in Oslo")

        def turns(present: list[str]) -> int:
            count = 0
            for number in range(40):
                with memory.episode("install packages") as episode:
                    hits = episode.search(f"install packages for service {number}", top_k=2, present=present)
                    count += any(hit.id == note.id for hit in hits)
                    episode.reward(number % 2)
            return count

        assert turns([]) < 35
        rows = memory.ledger(items=[note.id]).accounts[0].rows
        assert turns([note.id]) == 40
        assert memory.ledger(items=[note.id]).accounts[0].rows == rows, "nor does it count as tested"


def test_hooks_show_the_lines_of_a_running_experiment_where_they_fit(project: Path) -> None:
    def experiment(line: str) -> None:
        done = CliRunner().invoke(app, ["memory", "experiment", *shlex.split(line), "--file", "agent.mem"])
        assert done.exit_code == 0, done.output

    with MemoryProcess(project / "agent.mem") as process, Client(process.url, TOKEN) as client:
        variables = {"KEEPWORTH_URL": process.url, "KEEPWORTH_TOKEN": TOKEN, "KEEPWORTH_HOOKS": str(project / "hooks")}

        def send(event: str, **fields: Any) -> str:
            body = {"session_id": "s1", "cwd": str(project), "hook_event_name": event, **fields}
            command = [sys.executable, "-m", "keepworth", "hook", "--seconds", "60"]
            done = subprocess.run(
                command,
                input=json.dumps(body).encode(),
                capture_output=True,
                check=True,
                env={**os.environ, **variables},
            )
            answer = json.loads(done.stdout) if done.stdout else {}
            return str(answer.get("hookSpecificOutput", {}).get("additionalContext", ""))

        assert send("SessionStart", source="startup") == ""
        experiment(START.removeprefix("experiment "))
        told = send("UserPromptSubmit", prompt="install packages with uv")
        assert "Use uv for packages" in told
        assert "smoke test" not in told, "what stayed in the file is not said twice"
        command = {"tool_name": "Bash", "tool_input": {"command": "make test"}, "tool_response": {"stdout": "1 passed"}}
        send("PostToolUse", **command)
        send("Stop")
        (item,) = (item for item in client.get_all() if item.text == "Use uv for packages")
        assert item.values.credited == 1
        experiment("restore")
        assert send("SessionStart", source="clear") == ""
        assert send("UserPromptSubmit", prompt="install packages with uv once more") == ""
    assert (project / "CLAUDE.md").read_text("utf-8") == TEXT


@pytest.fixture(autouse=True)
def no_names_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KEEPWORTH_USER", "KEEPWORTH_MEMORY"):
        monkeypatch.delenv(name, raising=False)
