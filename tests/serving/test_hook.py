"""The life cycle of a host, driven through the real command: what is shown, what is recorded, and that no host is held up."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from keepworth import Client
from keepworth.episodes.episode import Episode
from keepworth.memory.sensitive import HIDDEN
from keepworth.serving import hook
from tests.serving.memory_process import TOKEN, MemoryProcess

SESSION = {
    "session_id": "s1",
    "transcript_path": "/home/ana/.claude/projects/-home-ana-website/s1.jsonl",
    "cwd": "/home/ana/website",
    "permission_mode": "default",
}
PAGE = "The website's tests need the flag --network=none"
ERROR = "Command exited with non-zero status code 1: cannot connect to the network"
SECRET = "ghp_" + "a1B2" * 9


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryProcess]:
    with MemoryProcess(tmp_path_factory.mktemp("served") / "agent.mem") as server:
        yield server


Hook = Callable[..., tuple[dict[str, Any], str]]


@pytest.fixture
def hooked(server: MemoryProcess, tmp_path: Path, request: pytest.FixtureRequest) -> Hook:
    """Runs the command as a host does; gives what it printed, and what it said on standard error. Each test is a person."""

    def run(event: dict[str, Any] | str | bytes, *words: str, **variables: str) -> tuple[dict[str, Any], str]:
        given = (
            event
            if isinstance(event, bytes)
            else event.encode()
            if isinstance(event, str)
            else json.dumps(event).encode()
        )
        environment = {
            **os.environ,
            "KEEPWORTH_URL": server.url, "KEEPWORTH_TOKEN": TOKEN, "KEEPWORTH_HOOKS": str(tmp_path / "hooks"), **variables,
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", "keepworth", "hook", "--user", request.node.name, "--seconds", "300", *words],
            input=given, capture_output=True, check=False, env=environment, timeout=360,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stderr.count(b"Traceback") == 0
        return (json.loads(done.stdout) if done.stdout else {}), done.stderr.decode()

    return run


def context(answer: dict[str, Any], event: str) -> str:
    assert set(answer) == {"hookSpecificOutput"}
    assert set(answer["hookSpecificOutput"]) == {"hookEventName", "additionalContext"}
    assert answer["hookSpecificOutput"]["hookEventName"] == event
    text = answer["hookSpecificOutput"]["additionalContext"]
    assert text.startswith(hook.MARK + "\n- ")
    return str(text)


def records(server: MemoryProcess, user: str) -> list[Episode]:
    with Client(server.url, TOKEN) as client:
        return [client.episode_record(id) for id in client.episodes(user_id=user)]


def test_a_session_of_claude_code(server: MemoryProcess, hooked: Hook, request: pytest.FixtureRequest) -> None:
    user = request.node.name
    with Client(server.url, TOKEN) as client:
        item = client.add(PAGE, user_id=user)
        client.add("Bob's tests of the website need another flag", user_id="bob")
        begun, said = hooked({**SESSION, "hook_event_name": "SessionStart", "source": "startup"})
        assert PAGE in context(begun, "SessionStart")
        assert "Bob" not in context(begun, "SessionStart")
        assert said == ""
        prompt = {**SESSION, "hook_event_name": "UserPromptSubmit", "prompt": f"run the website's tests with {SECRET}"}
        assert hooked(prompt)[0] == {}, "what the context holds already is not said again"
        failed = {
            **SESSION, "hook_event_name": "PostToolUseFailure", "tool_name": "Bash", "tool_use_id": "toolu_1",
            "tool_input": {"command": "npm test"}, "error": f"{ERROR} PASSWORD={SECRET}", "is_interrupt": False,
        }  # fmt: skip
        advice = client.add("Where the network cannot be reached, npm test wants --offline", user_id=user)
        assert advice.text in context(hooked(failed)[0], "PostToolUseFailure")
        assert hooked({**failed, "is_interrupt": True}) == ({}, "")
        fine = {
            **SESSION,
            "hook_event_name": "PostToolUse",
            "tool_name": "Read",
            "tool_response": {"content": "an error"},
        }
        assert hooked(fine) == ({}, "")
        assert hooked({**SESSION, "hook_event_name": "Stop", "stop_hook_active": False}) == ({}, "")
        assert hooked({**SESSION, "hook_event_name": "SessionEnd", "reason": "other"}, "SessionEnd") == ({}, "")
        first, second = records(server, user)
        assert first.task == "Work in website"
        assert second.task == f"run the website's tests with {HIDDEN}"
        assert SECRET not in f"{first}{second}"
        assert [each.item for each in first.shown] == [item.id]
        assert item.id in [each.item for each in second.shown]
        assert item.id in client.reward(second.id, 1.0).changed, "what was shown for the prompt is credited"
        assert [event for each in (first, second) for event in each.errors] == []
        assert client.get_all(user_id=user) != []


def test_a_failure_is_a_reward_of_what_led_to_it_and_not_of_what_was_shown_after_it(
    server: MemoryProcess, hooked: Hook, request: pytest.FixtureRequest
) -> None:
    user = request.node.name
    with Client(server.url, TOKEN) as client:
        before = client.add("always use the network flag", user_id=user)
        after = client.add("cannot connect: ask for the proxy", user_id=user)
        one = ("--top-k", "1")
        prompt = {
            **SESSION,
            "session_id": user,
            "hook_event_name": "UserPromptSubmit",
            "prompt": "use the network flag",
        }
        assert context(hooked(prompt, *one)[0], "UserPromptSubmit").endswith(f"- {before.text}")
        failed = {**prompt, "hook_event_name": "PostToolUseFailure", "tool_name": "Bash", "error": "cannot connect"}
        assert context(hooked(failed, *one)[0], "PostToolUseFailure").endswith(f"- {after.text}")
        assert hooked({**SESSION, "session_id": user, "hook_event_name": "Stop"}) == ({}, "")
        client.reward(client.episodes(user_id=user)[-1], 1.0)
        worth = [client.worth(before.id, "use the network flag"), client.worth(after.id, "Bash failed: cannot connect")]
    assert [(each.seen, round(each.earned, 2)) for each in worth] == [(1.0, 0.0), (1.0, 1.0)]


def test_after_compaction_what_was_shown_is_said_again_and_after_a_resume_it_is_not(
    server: MemoryProcess, hooked: Hook, request: pytest.FixtureRequest
) -> None:
    with Client(server.url, TOKEN) as client:
        client.add(PAGE, user_id=request.node.name)
    start = {**SESSION, "session_id": request.node.name, "hook_event_name": "SessionStart"}
    assert PAGE in context(hooked({**start, "source": "startup"})[0], "SessionStart")
    assert hooked({**start, "source": "resume"})[0] == {}
    assert PAGE in context(hooked({**start, "source": "compact"})[0], "SessionStart")


@pytest.mark.parametrize(
    ("name", "response"),
    [
        ("AfterTool", {"llmContent": "...", "returnDisplay": "...", "error": {"message": ERROR}}),  # Gemini CLI
        ("PostToolUse", {"exit_code": 1, "output": ERROR}),  # Codex
        ("PostToolUse", f"Exit code: 1\n{ERROR}"),
        ("PostToolUse", json.dumps({"stderr": ERROR, "exitCode": 127})),
    ],
)
def test_a_failure_is_known_in_the_words_of_each_host(name: str, response: Any) -> None:
    given = {**SESSION, "hook_event_name": name, "tool_name": "shell", "tool_response": response}
    event = hook.event_of(given)
    assert (event.what, event.tool) == (hook.TOOL, "shell")
    assert ERROR in event.text
    for fine in (
        "Exit code: 0\nok",
        "an error is a word",
        {"exit_code": 0, "output": ERROR},
        {"error": None},
        [ERROR],
        None,
    ):
        assert hook.event_of({**given, "tool_response": fine}).text == ""


SHELL = "<untrusted_context>\nOutput: {output}\n{ended}Process Group PGID: 9706\n</untrusted_context>"
"""As Gemini CLI 0.61 tells its model, and its hooks, how a command went."""


def test_a_command_that_failed_in_gemini_cli_is_known_by_its_last_lines() -> None:
    given = {**SESSION, "hook_event_name": "AfterTool", "tool_name": "run_shell_command"}

    def text(output: str, ended: str) -> str:
        said = SHELL.format(output=output, ended=ended)
        return hook.event_of({**given, "tool_response": {"llmContent": said, "returnDisplay": output}}).text

    assert text(ERROR, "Exit Code: 2\n").startswith(f"Output: {ERROR}\nExit Code: 2")
    assert "Exit Code: 143" in text(ERROR, "Exit Code: 143\nSignal: 15\n")
    for output, ended in ((ERROR, ""), ("Exit Code: 2\nis what it said", ""), ("ok", "Exit Code: 0\n")):
        assert text(output, ended) == ""


def test_a_command_that_failed_in_codex_is_known_by_its_transcript(tmp_path: Path) -> None:
    """Codex 0.169 tells hooks the output alone."""
    file = tmp_path / "rollout.jsonl"

    def item(call: str, code: int | None) -> str:
        done = {"type": "CommandExecution", "id": call, "aggregated_output": ERROR, "exit_code": code}
        return json.dumps({"type": "event_msg", "payload": {"type": "item_completed", "item": done}})

    other = json.dumps({"type": "response_item", "payload": {"call_id": "call_1", "arguments": '"exit_code"'}})
    file.write_text(
        "\n".join([item("call_0", 0), other, item("call_1", 2), 'half a line of call_1 with "exit_code": {'])
    )
    given = {
        **SESSION, "hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_response": f"{ERROR}\n",
        "transcript_path": str(file),
    }  # fmt: skip
    assert hook.event_of({**given, "tool_use_id": "call_1"}).text == ERROR
    assert hook.event_of({**given, "tool_use_id": "call_1", "tool_response": ""}).text == "it failed"
    assert hook.event_of({**given, "tool_use_id": "call_0"}).text == ""
    for unknown in (
        {"tool_use_id": "call_7"},
        {"tool_use_id": 7},
        {"tool_use_id": "call_1", "transcript_path": str(tmp_path)},
        {"tool_use_id": "call_1", "tool_name": "apply_patch"},
    ):
        assert hook.event_of({**given, **unknown}).text == ""


def test_what_gemini_cli_puts_before_a_prompt_is_not_the_users(
    server: MemoryProcess, hooked: Hook, request: pytest.FixtureRequest
) -> None:
    """Else what was recalled at the start is kept as said by the user, and is recalled again."""
    prompt = {**SESSION, "hook_event_name": "BeforeAgent", "session_id": request.node.name}
    recalled = f"<hook_context>{hook.MARK}\n- I live in Oslo.&lt;/hook_context&gt;</hook_context>"
    hooked({**prompt, "prompt": f"{recalled}\n\nI prefer pnpm over npm."})
    with Client(server.url, TOKEN) as client:
        assert [item.text for item in client.get_all(user_id=request.node.name)] == ["I prefer pnpm over npm."]
    (record,) = records(server, request.node.name)
    assert record.task == "I prefer pnpm over npm."


def test_gemini_cli_and_codex_are_answered_at_their_events(
    server: MemoryProcess, hooked: Hook, request: pytest.FixtureRequest
) -> None:
    with Client(server.url, TOKEN) as client:
        client.add(PAGE, user_id=request.node.name)
    gemini = {"session_id": "g", "cwd": "/home/ana/website", "timestamp": "2026-01-01T00:00:00Z"}
    answer, _ = hooked({**gemini, "hook_event_name": "BeforeAgent", "prompt": "run the website's tests"})
    assert PAGE in context(answer, "BeforeAgent")
    assert hooked({**gemini, "hook_event_name": "AfterAgent", "prompt": "x", "prompt_response": "done"}) == ({}, "")
    codex = {"session_id": "c", "turn_id": "t", "cwd": "/home/ana/website", "model": "m", "transcript_path": None}
    answer, _ = hooked({**codex, "hook_event_name": "UserPromptSubmit", "prompt": "run the website's tests"})
    assert PAGE in context(answer, "UserPromptSubmit")


def test_what_a_prompt_states_is_kept_and_what_it_asks_is_not(
    server: MemoryProcess, hooked: Hook, request: pytest.FixtureRequest
) -> None:
    user = request.node.name
    prompt = {**SESSION, "hook_event_name": "UserPromptSubmit", "session_id": user}
    stated = f"I prefer pnpm over npm. My password is {SECRET}. Run the tests, please."
    for words in (("--no-keep",), ()):
        assert hooked({**prompt, "prompt": stated}, *words) == ({}, "")
    with Client(server.url, TOKEN) as client:
        texts = [item.text for item in client.get_all(user_id=user)]
        assert "I prefer pnpm over npm." in texts
        assert not [text for text in texts if SECRET in text or "tests" in text or "password" in text]
        assert len(client.episodes(user_id=user)) == 2
    answer, _ = hooked({**prompt, "prompt": "which package manager do I prefer, npm or pnpm?"})
    assert "I prefer pnpm over npm." in context(answer, "UserPromptSubmit")


# -- a host is never held up ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given", [b"", b"[]", b"\xff\xfe", b"null", b"[" * 100_000, b'{"hook_event_name": "Moon"}', b"{}"]
)
def test_what_is_no_event_is_a_mistake_of_one_line(
    given: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KEEPWORTH_HOOKS", str(tmp_path / "hooks"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given), "utf-8"))
    with pytest.raises(hook.HookProblem) as refusal:
        hook._once(hook.parser().parse_args([]), 0.0, pytest.fail)
    assert "\n" not in str(refusal.value)


PROMPT = {**SESSION, "hook_event_name": "UserPromptSubmit", "prompt": "run the tests"}


def test_without_a_server_with_a_wrong_token_or_with_another_program_there_the_host_goes_on(hooked: Hook) -> None:
    answer, said = hooked(PROMPT, KEEPWORTH_URL="http://127.0.0.1:9")
    assert answer == {}
    assert "gave no answer" in said
    answer, said = hooked(PROMPT, KEEPWORTH_TOKEN="kw_wrong-token-of-somebody")
    assert answer == {}
    assert "401" in said
    assert "kw_wrong" not in said


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("KEEPWORTH_URL", "http://127.0.0.1:80000", "is no address of a server: set KEEPWORTH_URL"),
        ("KEEPWORTH_TOKEN", "kw_its\nsecret", "KEEPWORTH_TOKEN is no token"),
        ("KEEPWORTH_HOOKS", __file__, "is not a folder of this user alone"),
        ("KEEPWORTH_HOOKS", "/dev/null/hooks", "set KEEPWORTH_HOOKS to a folder"),
    ],
)
def test_a_wrong_variable_is_named_in_a_line_that_shows_no_token(
    hooked: Hook, variable: str, value: str, said: str
) -> None:
    answer, errors = hooked({**SESSION, "hook_event_name": "UserPromptSubmit", "prompt": "hi"}, **{variable: value})
    assert answer == {}
    assert said in errors
    assert len(errors.splitlines()) == 1
    assert "secret" not in errors


@pytest.mark.parametrize(
    "url", ["127.0.0.1", "ftp://x", "http://", "http://127.0.0.1:port", "http://[::1", f"http://{'a' * 70}.example"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(hook.HookProblem, match="is no address of a server: set KEEPWORTH_URL"):
        hook.ServedMemory(url, "", {}, 1.0)


def test_who_does_not_answer_or_does_not_close_standard_input_is_not_waited_for(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "keepworth", "hook", "--seconds", "0.3"]
    environment = {**os.environ, "KEEPWORTH_HOOKS": str(tmp_path / "hooks")}
    with socket.create_server(("127.0.0.1", 0)) as silent:
        environment["KEEPWORTH_URL"] = f"http://127.0.0.1:{silent.getsockname()[1]}"
        done = subprocess.run(
            command, input=json.dumps(PROMPT).encode(), capture_output=True, env=environment, timeout=360, check=True
        )
        assert (done.stdout, b"no answer in 0.3 seconds" in done.stderr) == (b"", True)
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
        assert process.wait(timeout=300) == 0
        process.communicate()


def test_a_prompt_of_many_megabytes_is_cut_before_it_is_looked_through(
    server: MemoryProcess, hooked: Hook, request: pytest.FixtureRequest
) -> None:
    long = {**PROMPT, "prompt": f"How do I run the tests? {'word ' * 1_000_000}{SECRET}"}
    with Client(server.url, TOKEN) as client:
        client.add(PAGE, user_id=request.node.name)
        assert PAGE in context(hooked(long)[0], "UserPromptSubmit")
        (episode,) = client.episodes(user_id=request.node.name)
        assert SECRET not in repr(client.episode_record(episode))
    answer, said = hooked({**PROMPT, "prompt": "word " * 10_000_000})
    assert answer == {}
    assert "says more than 8 MB" in said


def test_a_mistake_in_the_command_is_no_refusal_of_what_the_user_wants() -> None:
    """Hosts take the exit code 2 for one."""
    for words in (["--no-such"], ["--top-k", "many"]):
        done = subprocess.run(
            [sys.executable, "-m", "keepworth", "hook", *words], capture_output=True, check=False, input=b""
        )
        assert done.returncode == 1
        assert b"usage: keepworth hook" in done.stderr


def test_the_state_of_a_session_is_its_owner_s_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEPWORTH_HOOKS", str(tmp_path / "hooks"))
    file = hook.session_file("ana", "s")
    assert file != hook.session_file("bob", "s")
    hook.write_session(file, hook.HookSession("e1", "task", True, ["m1"]))
    assert hook.read_session(file) == hook.HookSession("e1", "task", True, ["m1"])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    file.write_text("{")
    assert hook.read_session(file) == hook.HookSession()
    file.parent.chmod(0o777)
    with pytest.raises(hook.HookProblem, match="not a folder of this user alone"):
        hook.session_file("ana", "s")
    os.utime(file, (0, 0))
    hook.remove_old(file.parent, time.time())
    assert not file.exists()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    monkeypatch.setenv("KEEPWORTH_HOOKS", str(tmp_path / "link"))
    with pytest.raises(hook.HookProblem, match="not a folder of this user alone"):
        hook.session_file("ana", "s")


# -- settings ---------------------------------------------------------------------------------------------------------


Installed = Callable[..., tuple[int, str, str]]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Installed:
    """`keepworth hook --install` in a folder of its own: (exit code, what it printed, what it said)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KEEPWORTH_TOKEN", SECRET)

    def run(*words: str) -> tuple[int, str, str]:
        code = hook.run(["--install", *words])
        return code, *capsys.readouterr()

    return run


@pytest.mark.parametrize("host", list(hook.HOSTS))
def test_the_settings_that_are_printed_run_this_program_at_known_events(
    host: str, tmp_path: Path, installed: Installed
) -> None:
    code, printed, _ = installed(host, "--user", "ana b")
    assert code == 0
    assert SECRET not in printed
    settings = json.loads(printed)
    for name, entries in settings["hooks"].items():
        assert name in hook.EVENTS
        (entry,) = entries
        (handler,) = entry["hooks"]
        assert handler["type"] == "command"
        at_end = {"gemini-cli": 10_000, "codex": 3}.get(host, 10)  # Codex gives no more, and says so
        assert handler["timeout"] == (at_end if name == "SessionEnd" else 10_000 if host == "gemini-cli" else 10)
        words = shlex.split(handler["command"])
        assert words[-3:] == ["--user", "ana b", name]
        if (host, name) == ("claude-code", "Stop"):
            done = subprocess.run(
                handler["command"], shell=True, capture_output=True, check=False, input=b"{}", timeout=300
            )
            assert (done.returncode, done.stdout) == (0, b"")
    assert list(tmp_path.glob(".c*")) == list(tmp_path.glob(".g*")) == [], "nothing is written without --write"


def test_who_installs_hooks_in_codex_is_told_to_trust_them(installed: Installed) -> None:
    """It runs none before, and says nothing."""
    for host, told in (("codex", True), ("claude-code", False)):
        assert ("trust" in installed(host, "--write")[1]) is told


def test_settings_are_merged_with_those_of_others_and_older_ones_of_ours_are_replaced(
    tmp_path: Path, installed: Installed
) -> None:
    file = tmp_path / ".claude" / "settings.json"
    file.parent.mkdir()
    other = {"matcher": "Bash", "hooks": [{"type": "command", "command": "./check.sh"}]}
    file.write_text(json.dumps({"model": "opus", "hooks": {"Stop": [other], "PreToolUse": [other]}}))
    for user in ("ana", "bob"):
        code, said, _ = installed("claude-code", "--user", user, "--write")
        assert code == 0
        assert ".claude/settings.json" in said
        assert "KEEPWORTH_TOKEN must be set" in said
    settings = json.loads(file.read_text())
    assert settings["model"] == "opus"
    assert settings["hooks"]["PreToolUse"] == [other]
    assert settings["hooks"]["Stop"][0] == other
    assert len(settings["hooks"]["Stop"]) == 2
    assert "--user bob Stop" in settings["hooks"]["Stop"][1]["hooks"][0]["command"]
    file.write_text("{ not json")
    code, _, said = installed("claude-code", "--write")
    assert code == 2
    assert "was not changed" in said
    assert file.read_text() == "{ not json"
    assert installed("emacs")[0] == 1


def test_the_first_line_is_that_of_the_gateway_and_no_package_is_loaded_that_a_hook_does_not_need() -> None:
    source = Path(hook.__file__).parent / "call_formats.py"
    assert re.search(r'^MARK = "(.*)"$', source.read_text(encoding="utf-8"), re.M)[1] == hook.MARK  # type: ignore[index]
    code = (
        "import sys, keepworth.serving.hook, keepworth.cli.program; "
        "print(sorted({n.split('.')[0] for n in sys.modules} & {'typer', 'rich', 'numpy', 'pydantic', 'httpx', 'apsw'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
