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
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from benchmarks.serving.hook_signals import HOSTS, event_json
from keepworth import Client
from keepworth.memory.item import Item
from keepworth.memory.sensitive import HIDDEN
from keepworth.records.episode import Episode
from keepworth.serving import hook
from tests.serving.gate import until
from tests.serving.memory_process import TOKEN, MemoryProcess
from tests.serving.scripted import scripted

SESSION = {"session_id": "s1", "cwd": "/home/ana/website", "permission_mode": "default"}
SESSION |= {"transcript_path": "/home/ana/.claude/projects/-home-ana-website/s1.jsonl"}
PAGE = "The website's tests need the flag --network=none"
ERROR = "Command exited with non-zero status code 1: cannot connect to the network"
SECRET = "ghp_" + "a1B2" * 9


@dataclass
class Host:
    """A host that runs the command at the events of one session, of a person who is that of the test alone."""

    client: Client
    user: str
    environment: dict[str, str]

    def __call__(self, event: str, *words: str, **fields: Any) -> tuple[dict[str, Any], str]:
        """What the command printed at an event, and what it said on standard error."""
        return self.give({**SESSION, "hook_event_name": event, **fields}, *words)

    def give(self, event: dict[str, Any], *words: str, **variables: str) -> tuple[dict[str, Any], str]:
        user = ["--user", self.user] if self.user else []
        done = subprocess.run(
            [sys.executable, "-m", "keepworth", "hook", *user, "--seconds", "300", *words],
            input=json.dumps(event).encode(), capture_output=True, check=False, env={**self.environment, **variables},
            timeout=360,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stderr.count(b"Traceback") == 0
        return (json.loads(done.stdout) if done.stdout else {}), done.stderr.decode()

    def context(self, event: str, *words: str, **fields: Any) -> str:
        """What is added to the context of the model at an event."""
        answer, _ = self(event, *words, **fields)
        assert set(answer) == {"hookSpecificOutput"}
        assert set(answer["hookSpecificOutput"]) == {"hookEventName", "additionalContext"}
        assert answer["hookSpecificOutput"]["hookEventName"] == event
        text = answer["hookSpecificOutput"]["additionalContext"]
        assert text.startswith(hook.MARK + "\n- ")
        return str(text)

    def add(self, text: str) -> Item:
        return self.client.add(text, user_id=self.user)

    def texts(self) -> list[str]:
        return [item.text for item in self.client.get_all(user_id=self.user)]

    def rewards(self) -> list[tuple[str, float]]:
        """The signals of all episodes, without whose they are, and what they reward."""
        terms = [term for episode in self.records() for term in episode.rewards]
        return [(term.scorer.removesuffix(f":{self.user}"), term.value) for term in terms]

    def records(self) -> list[Episode]:
        return [self.client.episode_record(id) for id in self.client.episodes(user_id=self.user)]


@pytest.fixture
def host(process: MemoryProcess, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Host]:
    variables = {"KEEPWORTH_URL": process.url, "KEEPWORTH_TOKEN": TOKEN, "KEEPWORTH_HOOKS": str(tmp_path / "hooks")}
    with Client(process.url, TOKEN) as client:
        yield Host(client, request.node.name, {**os.environ, **variables})


def test_a_hook_without_a_person_shows_unowned_items_only(host: Host) -> None:
    host.client.add("Bob's tests of the harbour need the flag --bob", user_id="bob")
    mine = host.client.add("The tests of the harbour need the flag --tide")
    begun = Host(host.client, "", host.environment).context("SessionStart", source="startup", cwd="/home/ana/harbour")
    assert mine.text in begun
    assert "--bob" not in begun


def test_a_session_of_claude_code(host: Host) -> None:
    item = host.add(PAGE)
    host.client.add("Bob's tests of the website need another flag", user_id="bob")
    begun = host.context("SessionStart", source="startup")
    assert PAGE in begun
    assert "Bob" not in begun
    prompt = f"run the website's tests with {SECRET}"
    assert host("UserPromptSubmit", prompt=prompt) == ({}, ""), "what the context holds already is not said again"
    failed = {"tool_name": "Bash", "tool_input": {"command": "npm test"}, "error": f"{ERROR} PASSWORD={SECRET}"}
    advice = host.add("Where the network cannot be reached, npm test wants --offline")
    assert advice.text in host.context("PostToolUseFailure", **failed, is_interrupt=False)
    assert host("PostToolUseFailure", **failed, is_interrupt=True) == ({}, "")
    assert host("PostToolUse", tool_name="Read", tool_response={"content": "an error"}) == ({}, "")
    assert host("Stop", stop_hook_active=False) == ({}, "")
    assert host("SessionEnd", "SessionEnd", reason="other") == ({}, "")
    first, second = host.records()
    assert first.task == "Work in website"
    assert second.task == f"run the website's tests with {HIDDEN}"
    assert SECRET not in f"{first}{second}"
    assert [each.item for each in first.shown] == [item.id]
    assert item.id in [each.item for each in second.shown]
    assert item.id in host.client.reward(second.id, 1.0).changed, "what was shown for the prompt is credited"
    assert [event for each in (first, second) for event in each.errors] == []
    assert host.texts() != []


def test_failure_rewards_items_shown_before_it_only(host: Host) -> None:
    before = host.add("always use the network flag")
    after = host.add("cannot connect: ask for the proxy")
    one = ("--top-k", "1")
    assert host.context("UserPromptSubmit", *one, prompt="use the network flag").endswith(f"- {before.text}")
    failed = host.context("PostToolUseFailure", *one, tool_name="Bash", error="cannot connect")
    assert failed.endswith(f"- {after.text}")
    assert host("Stop") == ({}, "")
    client = host.client
    worth = [client.worth(before.id, "use the network flag"), client.worth(after.id, "Bash failed: cannot connect")]
    assert [(each.seen, round(each.earned, 2)) for each in worth] == [(1.0, 0.0), (0.0, 0.0)]
    assert host.rewards() == [("signal:tool-failed", 0.0)]


@pytest.mark.parametrize("name", HOSTS)
def test_each_host_sends_tool_and_user_outcomes(host: Host, name: str) -> None:
    def send(what: str, **fields: Any) -> None:
        host.give({**SESSION, **event_json(name, what, **fields)})

    host.add("Build the documentation with: mkdocs build --strict")
    send("prompt", prompt="Build the documentation please")
    send("passed", tool_input={"command": "mkdocs build --strict"})
    send("ends")
    send("prompt", prompt="No, that is the wrong folder. Build the documentation again")
    send("failed", tool_input={"command": "cd docs && mkdocs build"})
    send("passed", tool_input={"command": "ls docs"})
    send("ends")
    send("prompt", prompt="Thanks, that helps. Build the documentation of the other module")
    assert host.rewards() == [
        ("signal:check-passed", 1.0),
        ("signal:correction", 0.0),
        ("signal:check-failed", 0.0),
        ("signal:thanks", 1.0),
        ("signal:thanks", 1.0),  # of what was recalled at the failure, too
    ]
    assert {term.scorer.split(":")[2] for episode in host.records() for term in episode.rewards} == {host.user}
    assert [round(episode.reward, 2) for episode in host.records()[:2]] == [0.27, 0.72]


def test_no_signal_is_sent_without_a_recall_or_with_signals_off(host: Host) -> None:
    passed = {"tool_name": "Bash", "tool_response": {"stdout": ""}, "tool_input": {"command": "make test"}}
    host("UserPromptSubmit", prompt="Run the tests")
    host("PostToolUse", **passed)
    host.add("Run the tests with: make test")
    host("UserPromptSubmit", "--no-signals", prompt="Run the tests")
    host("PostToolUse", "--no-signals", **passed)
    host("UserPromptSubmit", "--no-signals", prompt="No, wrong")
    assert host.rewards() == []


def test_hook_does_not_wait_for_the_model_that_reads_the_next_prompt(tmp_path: Path) -> None:
    hooked = threading.Event()

    def answer(_: dict[str, Any]) -> dict[str, Any]:
        assert hooked.wait(60)
        return {"choices": [{"message": {"role": "assistant", "content": "thanks"}, "finish_reason": "stop"}]}

    with scripted((200, answer)) as model:
        process = MemoryProcess(tmp_path / "agent.mem", "--model-signals", "5")
        process.environment = {"OPENAI_BASE_URL": model.url, "OPENAI_MODEL": "judge"}
        variables = {"KEEPWORTH_TOKEN": TOKEN, "KEEPWORTH_HOOKS": str(tmp_path / "hooks")}
        with process, Client(process.url, TOKEN) as client:
            host = Host(client, "ana", {**os.environ, **variables, "KEEPWORTH_URL": process.url})
            host.add("Run the tests with: make test")
            host("UserPromptSubmit", prompt="Run the tests")
            host("Stop", stop_hook_active=False)
            host("UserPromptSubmit", prompt="two pages")
            assert host.rewards() == []
            hooked.set()
            until(host.rewards)
            assert host.rewards() == [("signal:model-thanks", 1.0)]
            assert len(model.asked) == 1


def test_a_turn_that_the_host_did_not_end_was_stopped_by_the_user(host: Host) -> None:
    host.add("Run the tests with: make test")
    host("UserPromptSubmit", prompt="Run the tests")
    host("UserPromptSubmit", prompt="Show me the folder first")
    assert host.rewards() == [("signal:interrupt", 0.0)]


@pytest.mark.parametrize("source", ["startup", "resume"])
def test_recall_at_session_start_is_not_ended_by_the_first_prompt(host: Host, source: str) -> None:
    host.add("Run the tests with: make test")
    assert "make test" in host.context("SessionStart", source=source)
    host("UserPromptSubmit", prompt="No, wrong: run the tests of the other folder")
    assert host.rewards() == []


def test_recall_is_repeated_after_compaction_and_not_after_resume(host: Host) -> None:
    host.add(PAGE)
    assert PAGE in host.context("SessionStart", source="startup")
    assert host("SessionStart", source="resume")[0] == {}
    assert PAGE in host.context("SessionStart", source="compact")


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
    codes = ({"exit_code": 0, "output": ERROR}, {"error": None})
    for fine in ("Exit code: 0\nok", "an error is a word", *codes, [ERROR], None):
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
    half = 'half a line of call_1 with "exit_code": {'
    file.write_text("\n".join([item("call_0", 0), other, item("call_1", 2), half]))

    def text(call: Any, **more: str) -> str:
        given = {"hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_response": f"{ERROR}\n"}
        return hook.event_of({**SESSION, **given, "transcript_path": str(file), "tool_use_id": call, **more}).text

    assert text("call_1") == ERROR
    assert text("call_1", tool_response="") == "it failed"
    assert text("call_0") == text("call_7") == text(7) == ""
    assert text("call_1", transcript_path=str(tmp_path)) == text("call_1", tool_name="apply_patch") == ""


def test_opencode_tool_results_are_read() -> None:
    def event(name: str, **fields: Any) -> hook.HookEvent:
        return hook.event_of({**SESSION, "hook_event_name": name, **fields})

    def ended(output: Any, args: dict[str, str] | None = None) -> hook.HookEvent:
        call = {"tool": "bash", "sessionID": "s1", "callID": "c", "args": args or {"command": "make test"}}
        return event("tool.execute.after", input=call, output=output)

    def shell(printed: str, exit_code: int | None) -> hook.HookEvent:
        return ended({"title": "t", "output": printed, "metadata": {"output": printed, "exit": exit_code}})

    assert [shell("ok", 0).failed, shell(ERROR, 2).failed] == [False, True]
    assert (shell(ERROR, 2).text, shell(ERROR, 2).command) == (ERROR, "make test")
    assert shell("<shell_metadata>\nUser aborted the command\n</shell_metadata>", None).failed is None
    assert shell("<shell_metadata>\nshell tool terminated command after exceeding timeout", None).failed is True
    of_server = ended({"content": [{"type": "text", "text": ERROR}], "isError": True}, {"path": "a"})
    assert (of_server.failed, of_server.text) == (True, ERROR)

    def broken(error: str) -> hook.HookEvent:
        state = {"status": "error", "input": {"filePath": "a"}, "error": error, "time": {"start": 1, "end": 2}}
        part = {"id": "prt_1", "type": "tool", "tool": "read", "callID": "c", "state": state}
        return event("message.part.updated", properties={"part": part})

    assert (broken("File not found: a").tool, broken("File not found: a").text) == ("read", "File not found: a")
    for error in ("The user rejected permission to use this specific tool call.", "Tool execution aborted"):
        assert (broken(error).failed, broken(error).text) == (None, "")
    aborted = event("session.error", properties={"error": {"name": "MessageAbortedError", "data": {}}})
    assert (aborted.what, aborted.failed) == (hook.TOOL, None)
    for fields in ({}, {"input": 3, "output": [1], "properties": "x"}, {"output": {"parts": [3, {"type": "file"}]}}):
        assert [event(name, **fields).prompt for name in hook.opencode.EVENTS] == [""] * len(hook.opencode.EVENTS)


def test_a_session_of_opencode(host: Host) -> None:
    item = host.add(PAGE)

    def send(name: str, **fields: Any) -> str:
        answer, said = host.give({**SESSION, "hook_event_name": name, **fields})
        assert said == ""
        return str(answer.get("hookSpecificOutput", {}).get("additionalContext", ""))

    def prompt(*parts: dict[str, Any]) -> str:
        return send(
            "chat.message", input={"sessionID": "s1"}, output={"message": {"id": "msg_1"}, "parts": list(parts)}
        )

    assert PAGE in send("session.created", properties={"info": {"id": "s1"}})
    words = {"type": "text", "text": '"run the website\'s tests"'}
    assert prompt({"type": "text", "text": "I live in Rome.", "synthetic": True}, words) == "", "it was shown already"
    assert send("session.compacted", properties={"sessionID": "s1"}) == ""
    state = {"status": "error", "input": {}, "error": "File not found: website"}
    assert send("message.part.updated", properties={"part": {"tool": "read", "state": state}}) == "", "nobody sees it"
    assert send("session.error", properties={"error": {"name": "MessageAbortedError"}}) == ""
    assert send("session.idle", properties={"sessionID": "s1"}) == ""
    assert PAGE in prompt(words), "the model's context was new"
    assert send("session.deleted", properties={"info": {"id": "s1"}}) == ""
    first, second, third = host.records()
    assert [first.task, second.task, third.task] == ["Work in website", *["run the website's tests"] * 2]
    assert [[each.item for each in record.shown] for record in (first, second, third)] == [[item.id]] * 3
    assert host.rewards() == [(f"signal:{name}", 0.0) for name in ("tool-failed", "interrupt", "repetition")]
    assert "Rome" not in repr(host.records())


def test_gemini_cli_context_is_not_kept_as_user_text(host: Host) -> None:
    """Else what was recalled at the start is kept as said by the user, and is recalled again."""
    recalled = f"<hook_context>{hook.MARK}\n- I live in Oslo.&lt;/hook_context&gt;</hook_context>"
    host("BeforeAgent", prompt=f"{recalled}\n\nI prefer pnpm over npm.")
    assert host.texts() == ["I prefer pnpm over npm."]
    assert [record.task for record in host.records()] == ["I prefer pnpm over npm."]


def test_gemini_cli_and_codex_are_answered_at_their_events(host: Host) -> None:
    host.add(PAGE)
    gemini = {"session_id": "g", "timestamp": "2026-01-01T00:00:00Z"}
    assert PAGE in host.context("BeforeAgent", **gemini, prompt="run the website's tests")
    assert host("AfterAgent", **gemini, prompt="x", prompt_response="done") == ({}, "")
    codex = {"session_id": "c", "turn_id": "t", "model": "m", "transcript_path": None}
    assert PAGE in host.context("UserPromptSubmit", **codex, prompt="run the website's tests")


def test_prompt_statements_are_kept_and_requests_are_not(host: Host) -> None:
    stated = f"I prefer pnpm over npm. My password is {SECRET}. Run the tests, please."
    for words in (("--no-keep",), ()):
        assert host("UserPromptSubmit", *words, prompt=stated) == ({}, "")
    assert "I prefer pnpm over npm." in host.texts()
    assert not [text for text in host.texts() if SECRET in text or "tests" in text or "password" in text]
    assert len(host.records()) == 2
    asked = host.context("UserPromptSubmit", prompt="which package manager do I prefer, npm or pnpm?")
    assert "I prefer pnpm over npm." in asked


@pytest.mark.parametrize(("first", "second"), [
    ("The tests run with `make check`, not with pytest.", "The tests run with `npm test`."),
    ("Die Tests laufen mit `make pruefe`.", "Die Tests laufen jetzt mit `npm run pruefung`."),
])  # fmt: skip
def test_statement_of_one_project_replaces_none_of_another(host: Host, first: str, second: str) -> None:
    host("UserPromptSubmit", prompt=first, cwd="/home/ana/website")
    host("UserPromptSubmit", prompt=second, cwd="/home/ana/shop", session_id="s2")
    assert {first, second} <= set(host.texts())
    host("UserPromptSubmit", prompt="I live in Rome.", cwd="/home/ana/website")
    host("UserPromptSubmit", prompt="I moved to Oslo.", cwd="/home/ana/shop", session_id="s2")
    assert "I live in Rome." not in host.texts()


def answers_again(host: Host, url: str) -> None:
    """The server of the host answers again, at the address at which it did not."""
    for file in Path(host.environment["KEEPWORTH_HOOKS"]).glob("*.json"):
        file.write_text(file.read_text().replace(host.environment["KEEPWORTH_URL"], url))
    host.environment["KEEPWORTH_URL"] = url


def test_prompts_are_kept_once_the_server_answers_again(host: Host) -> None:
    url = host.environment["KEEPWORTH_URL"]
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes the call, and never answers
        host.environment["KEEPWORTH_URL"] = f"http://127.0.0.1:{silent.getsockname()[1]}"
        _, errors = host("UserPromptSubmit", "--seconds", "0.5", prompt=f"I live in Oslo. My key is {SECRET}.")
        assert "the host goes on without" in errors
    assert SECRET not in "".join(file.read_text() for file in Path(host.environment["KEEPWORTH_HOOKS"]).iterdir())
    answers_again(host, url)
    host("Stop", "--user", "another person")
    assert host.texts() == []
    for _ in range(2):
        host("Stop")
        (item,) = host.client.get_all(user_id=host.user)
    assert (item.text, item.event_time[:10]) == ("I live in Oslo.", time.strftime("%Y-%m-%d", time.gmtime()))


def test_file_of_a_session_holds_no_secret(host: Host) -> None:
    for prompt in (f"Deploy with the key {SECRET}.", "once more: deploy"):
        host("UserPromptSubmit", prompt=prompt)
        assert SECRET not in "".join(file.read_text() for file in Path(host.environment["KEEPWORTH_HOOKS"]).iterdir())


def test_prompts_of_a_session_without_a_server_are_kept_in_the_next(host: Host) -> None:
    url = host.environment["KEEPWORTH_URL"]
    host.environment["KEEPWORTH_URL"] = "http://127.0.0.1:9"
    for event in ("SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"):
        host(event, prompt="I live in Bergen.")
    answers_again(host, url)
    host.give({**SESSION, "session_id": "s2", "hook_event_name": "SessionStart"})
    assert host.texts() == ["I live in Bergen."]


def test_statements_around_pastes_in_a_long_prompt_are_kept(host: Host) -> None:
    log = "2026-01-01T00:00:00Z INFO [http] GET /v1/orders 200 12ms\n" * 300
    host("UserPromptSubmit", prompt=f"Our deploy port is 8080.\n\n{log}\nThe client signs on Monday.\n\n{log}")
    assert [text.split(" (")[0] for text in host.texts()] == ["Our deploy port is 8080.", "The client signs on Monday."]


class RecordingMemory:
    """Answers a hook, and keeps what it was asked."""

    def __init__(self) -> None:
        self.bounds: dict[str, str] = {}
        self.searches: list[dict[str, Any]] = []

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if path.endswith("/search"):
            self.searches.append(body)
            return {
                "hits": [1],
                "text": "",
                "missing": [],
                "last": "",
                "lines": {f"m{len(self.searches)}": f"- note {len(self.searches)}"},
            }
        return {"id": "e1"}


def test_search_names_items_in_the_context_until_compaction() -> None:
    memory, session = RecordingMemory(), hook.HookSession()
    events = [
        *[("UserPromptSubmit", {"prompt": f"do {number}"}) for number in range(3)],
        ("SessionStart", {"source": "compact"}),
    ]
    for name, fields in events:
        event = hook.event_of({**SESSION, "hook_event_name": name, **fields})
        hook.HookWork(event, session, memory).block()  # type: ignore[arg-type]
    assert [search.get("present", []) for search in memory.searches] == [[], ["m1"], ["m1", "m2"], []]


NO_EVENTS = (b"", b"[]", b"\xff\xfe", b"null", b"[" * 100_000, b'{"hook_event_name": "Moon"}', b"{}")


@pytest.mark.parametrize("given", NO_EVENTS)
def test_malformed_event_gives_a_one_line_error(given: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KEEPWORTH_HOOKS", str(tmp_path / "hooks"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given), "utf-8"))
    with pytest.raises(hook.HookProblem) as refusal:
        hook._once(hook.parser().parse_args([]), 0.0, pytest.fail)
    assert "\n" not in str(refusal.value)


PROMPT = {**SESSION, "hook_event_name": "UserPromptSubmit", "prompt": "run the tests"}


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("KEEPWORTH_URL", "http://127.0.0.1:9", "gave no answer"),
        ("KEEPWORTH_TOKEN", "kw_wrong-secret-of-somebody", "Authorization: Bearer TOKEN"),
        ("KEEPWORTH_URL", "http://127.0.0.1:80000", "is no address of a server: set KEEPWORTH_URL"),
        ("KEEPWORTH_TOKEN", "kw_its\nsecret", "KEEPWORTH_TOKEN is no token"),
        ("KEEPWORTH_HOOKS", __file__, "is not a folder of this user alone"),
        ("KEEPWORTH_HOOKS", "/dev/null/hooks", "set KEEPWORTH_HOOKS to a folder"),
    ],
)
def test_failing_hook_lets_the_host_continue_with_a_line_without_the_token(
    host: Host, variable: str, value: str, said: str
) -> None:
    answer, errors = host.give(PROMPT, **{variable: value})
    assert answer == {}
    assert said in errors
    assert len(errors.splitlines()) == 1
    assert "secret" not in errors


@pytest.mark.parametrize(
    "url", ["127.0.0.1", "ftp://x", "http://", "http://127.0.0.1:port", "http://[::1", f"http://{'a' * 70}.example"]
)
def test_invalid_server_address_is_refused(url: str) -> None:
    with pytest.raises(hook.HookProblem, match="is no address of a server: set KEEPWORTH_URL"):
        hook.ServedMemory(url, "", {}, 1.0)


def test_hook_does_not_wait_for_a_silent_server_or_open_input(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "keepworth", "hook", "--seconds", "0.3"]
    environment = {**os.environ, "KEEPWORTH_HOOKS": str(tmp_path / "hooks")}
    with socket.create_server(("127.0.0.1", 0)) as silent:
        environment["KEEPWORTH_URL"] = f"http://127.0.0.1:{silent.getsockname()[1]}"
        event = json.dumps(PROMPT).encode()
        done = subprocess.run(command, input=event, capture_output=True, env=environment, timeout=360, check=True)
        assert (done.stdout, b"no answer in 0.3 seconds" in done.stderr) == (b"", True)
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
        assert process.wait(timeout=300) == 0
        process.communicate()


def test_huge_prompt_is_cut_before_scanning(host: Host) -> None:
    host.add(PAGE)
    long = f"How do I run the tests? {'word ' * 1_000_000}{SECRET}"
    assert PAGE in host.context("UserPromptSubmit", prompt=long)
    (record,) = host.records()
    assert SECRET not in repr(record)
    answer, said = host("UserPromptSubmit", prompt="word " * 10_000_000)
    assert answer == {}
    assert "says more than 8 MB" in said


def test_empty_user_name_is_refused(host: Host) -> None:
    host.user = "ana\u202e"
    answer, errors = host.give(PROMPT)
    assert answer == {}
    assert "user of a scope has control characters or others that cannot be seen" in errors


@dataclass
class SlowMemory:
    """A memory that gives no answer until it is `up`; a call about the task `holds` waits until it is let `go`."""

    up: bool = False
    holds: str = ""
    held: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)
    kept: list[str] = field(default_factory=list)

    def __call__(self, asked: dict[str, Any]) -> Any:
        if self.holds and asked.get("task") == self.holds:
            self.held.set()
            self.go.wait(60)
        if not self.up:
            return None
        if asked["path"].endswith("/items"):
            self.kept += [message["content"] for message in asked["content"]]
        return {"id": "e1", "items": [], "hits": [], "lines": {}, "missing": [], "last": ""}


def test_prompt_survives_other_hooks_of_its_session_that_are_under_way(host: Host) -> None:
    """A tool's hook that began before the prompt ends after it, while the memory gives no answer."""
    memory = SlowMemory(holds="Use Bash")
    failed = {**SESSION, "hook_event_name": "PostToolUseFailure", "tool_name": "Bash", "error": "exit code 1"}
    with scripted((200, memory)) as server, ThreadPoolExecutor(1) as beside:
        there = {"KEEPWORTH_URL": server.url}
        tool = beside.submit(host.give, failed, **there)
        assert memory.held.wait(60)
        said = {**SESSION, "hook_event_name": "UserPromptSubmit", "prompt": PAGE}
        assert "gave no answer" in host.give(said, **there)[1]
        memory.go.set()
        tool.result()
        memory.up, memory.holds = True, ""
        host.give({**SESSION, "hook_event_name": "UserPromptSubmit", "prompt": "Go on"}, **there)
    assert memory.kept == [PAGE, "Go on"]


def test_prompt_of_a_session_that_is_over_survives_a_hook_that_is_stopped(host: Host) -> None:
    """The next session begins while the memory hangs, and its hook ends when its time is up."""
    memory = SlowMemory()
    with scripted((200, memory)) as server:
        there = {"KEEPWORTH_URL": server.url}
        host.give({**SESSION, "hook_event_name": "UserPromptSubmit", "prompt": PAGE}, **there)
        host.give({**SESSION, "hook_event_name": "SessionEnd"}, **there)
        begins = {**SESSION, "hook_event_name": "SessionStart", "source": "startup"}
        memory.holds = "Work in website"
        assert "no answer" in host.give({**begins, "session_id": "s2"}, "--seconds", "2", **there)[1]
        memory.go.set()
        memory.up, memory.holds = True, ""
        host.give({**begins, "session_id": "s2"}, **there)
    assert memory.kept == [PAGE]


def test_prompt_of_a_session_that_its_host_never_ended_is_kept_by_a_later_one(host: Host) -> None:
    memory = SlowMemory()
    with scripted((200, memory)) as server:
        there = {"KEEPWORTH_URL": server.url}
        host.give({**SESSION, "hook_event_name": "UserPromptSubmit", "prompt": PAGE}, **there)
        memory.up = True
        begins = {**SESSION, "hook_event_name": "SessionStart", "source": "startup"}
        host.give({**begins, "session_id": "s2"}, **there)
        assert memory.kept == [], "it may still be at work"
        (file,) = [
            file for file in Path(host.environment["KEEPWORTH_HOOKS"]).glob("*.json") if PAGE in file.read_text()
        ]
        os.utime(file, (time.time() - 2 * 86_400,) * 2)
        host.give({**begins, "session_id": "s3"}, **there)
    assert memory.kept == [PAGE]


def test_usage_error_does_not_block_the_host() -> None:
    """Hosts take the exit code 2 for one."""
    for words in (["--no-such"], ["--top-k", "many"]):
        command = [sys.executable, "-m", "keepworth", "hook", *words]
        done = subprocess.run(command, capture_output=True, check=False, input=b"")
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


Installed = Callable[..., tuple[int, str, str]]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Installed:
    """`keepworth hook` in a folder of its own: (exit code, what it printed, what it said)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KEEPWORTH_TOKEN", SECRET)

    def run(*words: str) -> tuple[int, str, str]:
        code = hook.run(words)
        return code, *capsys.readouterr()

    return run


RUN_COMMANDS = [name for name, host in hook.HOSTS.items() if not host.plugin]


@pytest.mark.parametrize("host", RUN_COMMANDS)
def test_the_settings_that_are_printed_run_this_program_at_known_events(
    host: str, installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    code, printed, _ = installed("--install", host, "--user", "ana b")
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
        assert shlex.split(handler["command"]) == ["keepworth", "hook", "--user", "ana b", name]
        if (host, name) == ("claude-code", "Stop"):
            done = subprocess.run(handler["command"], shell=True, capture_output=True, input=b"{}", timeout=300)
            assert (done.returncode, done.stdout) == (0, b"")
    assert [*Path().glob(".c*"), *Path().glob(".g*")] == [], "nothing is written without --write"


def test_unknown_host_is_answered_with_the_nearest_name(installed: Installed) -> None:
    for words in (["--install", "clode-code", "--write"], ["--uninstall", "clode-code"]):
        code, printed, said = installed(*words)
        assert (code, printed) == (2, "")
        assert said.startswith("keepworth hook: There is no host 'clode-code'. Did you mean 'claude-code'? Known: ")


def test_codex_install_says_to_trust_the_hooks(installed: Installed) -> None:
    """It runs none before, and says nothing."""
    for host, told in (("codex", True), ("claude-code", False)):
        assert ("trust" in installed("--install", host, "--write")[1]) is told


OTHER = {"matcher": "Bash", "hooks": [{"type": "command", "command": "./check.sh keepworth hook"}]}
"""A hook of somebody else, which names this program."""
OLDER = {"type": "command", "command": "/home/ana/.venv/bin/keepworth hook --user ana Stop", "timeout": 10}
"""A hook as earlier versions wrote it."""


def test_the_hooks_of_one_machine_stand_in_the_file_of_its_user(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, own = Path(".claude/settings.json"), Path(".claude/settings.local.json")
    shared.parent.mkdir()
    both = {"hooks": [OLDER, {"type": "command", "command": "./notify.sh"}]}
    shared.write_text(json.dumps({"model": "opus", "hooks": {"Stop": [OTHER, both], "PreToolUse": [OTHER]}}, indent=4))
    monkeypatch.setenv("PATH", "/nowhere")
    for user in ("ana", "bob", "bob"):
        code, said, _ = installed("--install", "claude-code", "--user", user, "--write")
        assert code == 0
        assert f"{own} runs" in said
        assert "KEEPWORTH_TOKEN must be set" in said
        (entry,) = json.loads(own.read_text())["hooks"]["Stop"]
        command = entry["hooks"][0]["command"]
        assert command.endswith(f"-m keepworth hook --user {user} Stop")
        assert Path(shlex.split(command)[0]).is_absolute(), "it is on no PATH, and this file is of one machine"
    others = {"model": "opus", "hooks": {"Stop": [OTHER, {"hooks": both["hooks"][1:]}], "PreToolUse": [OTHER]}}
    assert json.loads(shared.read_text()) == others, "a prompt is recalled for once"
    own.write_text("{ not json")
    code, _, said = installed("--install", "claude-code", "--write")
    assert code == 2
    assert "was not changed" in said
    assert own.read_text() == "{ not json"
    assert installed("--install", "emacs")[0] == 2


@pytest.mark.parametrize("host", ["codex", "gemini-cli"])
def test_a_file_that_a_team_shares_has_no_name_and_no_path_of_one_machine(
    host: str, installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Path(hook.HOSTS[host].settings)
    code, _, said = installed("--install", host, "--user", "ana", "--write")
    assert code == 2
    assert "set KEEPWORTH_USER" in said
    assert not file.exists()
    monkeypatch.setenv("PATH", "/nowhere")
    code, told, _ = installed("--install", host, "--tokens", "300", "--write")
    assert code == 0
    assert "there is no keepworth on the PATH" in told
    first = file.read_text()
    for event, entries in json.loads(first)["hooks"].items():
        assert [each["command"] for entry in entries for each in entry["hooks"]] == [
            f"keepworth hook --tokens 300 {event}"
        ]
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert "on the PATH" not in installed("--install", host, "--tokens", "300", "--write")[1]
    assert file.read_text() == first


@pytest.mark.parametrize("host", RUN_COMMANDS)
@pytest.mark.parametrize("indent", ["\t", "    "])
def test_uninstall_restores_the_settings_file(host: str, indent: str, installed: Installed) -> None:
    assert "No hook of this program" in installed("--uninstall", host)[1]
    assert installed("--install", host, "--write")[0] == 0
    code, told, _ = installed("--uninstall", host)
    assert code == 0
    assert "were taken out of" in told
    files = hook.HOSTS[host].files
    assert [file for file in files if file.exists()] == []
    text = json.dumps({"model": "für alle", "hooks": {"Stop": [OTHER], "Empty": []}}, indent=indent, ensure_ascii=False)
    for file in files:
        file.write_text(f"{text}\n")
    for _ in range(2):
        installed("--install", host, "--write")
    assert files[0].read_text() != f"{text}\n"
    for _ in range(2):
        assert installed("--uninstall", host)[0] == 0
    assert [file.read_text() for file in files] == [f"{text}\n"] * len(files)


def test_opencode_gets_a_plugin_which_a_team_may_share(installed: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Path(".opencode/plugins/keepworth.js")
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    code, printed, _ = installed("--install", "opencode", "--tokens", "300")
    assert code == 0
    assert 'const COMMAND = ["keepworth", "hook", "--tokens", "300"];' in printed
    assert not file.exists(), "nothing is written without --write"
    code, _, said = installed("--install", "opencode", "--user", "ana", "--write")
    assert code == 2
    assert "set KEEPWORTH_USER" in said
    for words in (("--top-k", "2"), ("--tokens", "300")):
        code, told, _ = installed("--install", "opencode", *words, "--write")
        assert code == 0
        assert f"{file} runs `keepworth hook {' '.join(words)}`" in told
    assert file.read_text() == printed.removesuffix("\n")
    assert "were taken out of .opencode/plugins/keepworth.js" in installed("--uninstall", "opencode")[1]
    assert not file.exists()
    assert "No hook of this program" in installed("--uninstall", "opencode")[1]
    file.write_text("export const Mine = async () => ({});\n")
    assert installed("--uninstall", "opencode")[0] == 0
    code, _, said = installed("--install", "opencode", "--write")
    assert code == 2
    assert "was not changed" in said
    assert file.read_text() == "export const Mine = async () => ({});\n"


def test_installing_and_taking_out_at_once_is_a_mistake(installed: Installed) -> None:
    assert installed("--install", "codex", "--uninstall", "codex")[0] == 2
    assert installed("--uninstall", "codex", "--write")[0] == 2


LONG = f"{'All went well in the room of the team. ' * 4000}The staging port is 8443.{' It rained all day.' * 3000}"


def test_of_a_long_note_the_passage_is_recalled_that_fits_the_prompt(host: Host) -> None:
    item = host.add(LONG)
    said = host.context("UserPromptSubmit", prompt="which port does staging use?")
    assert "The staging port is 8443." in said
    assert len(said) < 4600
    assert host("UserPromptSubmit", prompt="which port does staging use?")[0] == {}, "the context holds it already"
    again = host.context("UserPromptSubmit", "--tokens", "150", prompt="did it rain?")
    assert "It rained" in again, "another passage of the same note"
    assert len(again) < 500
    assert item.text == LONG


NOTHING = ("ok", "hi", "thanks", "?!", "👍", "Danke!", "merci beaucoup", "спасибо", "谢谢", "はい", "go on")


def test_courtesy_prompt_recalls_no_items(host: Host) -> None:
    host.add("Hi, I am Ana, and I say ok and thanks, danke, merci, спасибо, 谢谢")
    for words in NOTHING:
        assert host("UserPromptSubmit", "--no-keep", prompt=words)[0] == {}, words
    assert "I am Ana" in host.context("UserPromptSubmit", "--no-keep", prompt="who says merci to whom?")


def test_automatic_search_has_a_score_floor(host: Host) -> None:
    host.add(PAGE)
    for body, found in ({"query": "ok"}, True), ({"query": "ok", "automatic": True}, False):
        answer = host.client._http.post("/v1/memory/search", json={**body, "user_id": host.user}).json()
        assert (bool(answer["hits"]), bool(answer["text"])) == (found, found)


def test_hook_lists_items_without_room(host: Host) -> None:
    for number in range(5):
        host.add(f"{number}: the tests of part {number} need the flag --network=none and take {number} minutes. " * 9)
    said = host.context("UserPromptSubmit", "--tokens", "120", prompt="run the tests of the parts")
    missing = re.search(r"There was no room for (\d) more: (m\d+(?:, m\d+)*)", said)
    assert missing is not None
    assert int(missing[1]) == len(missing[2].split(", ")) >= 2


def test_the_person_may_be_named_where_the_host_is_started(host: Host) -> None:
    """Then no file has to name anybody."""
    host.add(PAGE)
    command = [sys.executable, "-m", "keepworth", "hook", "--seconds", "300"]
    event = json.dumps({**PROMPT, "prompt": "run the website's tests"}).encode()
    environment = {**host.environment, "KEEPWORTH_USER": host.user}
    done = subprocess.run(command, input=event, capture_output=True, env=environment, timeout=360, check=True)
    assert PAGE in json.loads(done.stdout)["hookSpecificOutput"]["additionalContext"]
    assert len(host.records()) == 1


def test_no_package_is_loaded_that_a_hook_does_not_need() -> None:
    code = (
        "import sys, keepworth.serving.hook, keepworth.cli.program; "
        "print(sorted({n.split('.')[0] for n in sys.modules} & {'typer', 'rich', 'numpy', 'pydantic', 'httpx', 'apsw'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
