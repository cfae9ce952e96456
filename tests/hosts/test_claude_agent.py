"""What the slot of the Claude Agent SDK does beyond the contract of all slots, with the SDK's own Claude Code."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keepworth import Memory

pytest.importorskip("claude_agent_sdk", reason="claude-agent-sdk is not installed: make test-hosts")

from claude_agent_sdk import HookMatcher

from keepworth.adapters.claude_agent import KeepworthHooks
from tests.hosts import claude_agent_talk


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory(":memory:", encoder="hashing") as opened:
        opened.add("Run the tests with: make test", user_id="ana")
        opened.add("The invoices are in the drawer", user_id="ana")
        yield opened


def converse(memory: Memory, *calls: tuple[str, dict[str, Any]], makefile: str = "") -> Any:
    """Return a talk in which Claude used tools before it answered, in a folder with this Makefile."""
    talk = claude_agent_talk.talk_class()(memory, user_id="ana")
    talk.answers.calls = list(calls)
    (Path(talk.options.cwd) / "Makefile").write_text(makefile, encoding="utf-8")
    assert talk.say("run the tests", "Done.") == "Done."
    return talk


def rewards(memory: Memory) -> list[tuple[str, float]]:
    (episode,) = memory.episodes()
    return [(reward.name, reward.value) for reward in memory.episode_record(episode).rewards]


@pytest.mark.parametrize(("end", "outcome"), [("true", ("check-passed", 1.0)), ("false", ("check-failed", 0.0))])
def test_a_check_that_claude_runs_is_an_outcome(memory: Memory, end: str, outcome: tuple[str, float]) -> None:
    makefile = f"test:\n\t@echo tests && {end}\n"
    converse(memory, ("Bash", {"command": "make test", "description": "Run the tests"}), makefile=makefile)
    assert rewards(memory) == [(f"signal:{outcome[0]}:ana", outcome[1])]


def test_tool_searches_and_writes_belong_to_the_turn(memory: Memory) -> None:
    talk = converse(
        memory,
        ("mcp__keepworth__search_memory", {"query": "where are the invoices"}),
        ("mcp__keepworth__add_memory", {"text": "The tests need Docker."}),
        ("mcp__keepworth__add_memory", {"text": ""}),
    )
    assert "- The invoices are in the drawer" in talk.prompts[1]
    assert "It is remembered." in talk.prompts[2]
    assert "It was not remembered" in talk.prompts[3]
    assert "The tests need Docker." in [item.text for item in memory.get_all(user_id="ana")]
    (episode,) = memory.episodes()
    queries = [decision.query for decision in memory.episode_record(episode).decisions]
    assert queries[1].endswith("where are the invoices")
    assert rewards(memory) == []


def hook(keepworth: Any, name: str, session: str = "s", **event: Any) -> Any:
    (matcher,) = keepworth.hooks[name]
    return asyncio.run(matcher.hooks[0]({"session_id": session, "hook_event_name": name, **event}, None, None))


def test_interrupted_tool_gives_no_signal(memory: Memory) -> None:
    keepworth = KeepworthHooks(memory, user_id="ana")
    hook(keepworth, "UserPromptSubmit", prompt="run the tests")
    end = {"tool_name": "Bash", "tool_input": {"command": "make test"}, "error": "stopped", "is_interrupt": True}
    hook(keepworth, "PostToolUseFailure", **end)
    assert rewards(memory) == []
    hook(keepworth, "PostToolUseFailure", **{**end, "is_interrupt": False})
    assert rewards(memory) == [("signal:check-failed:ana", 0.0)]


def test_sessions_at_once_have_turns_of_their_own(memory: Memory) -> None:
    keepworth = KeepworthHooks(memory, lambda turn: float(turn.answer == "Done."), user_id="ana")
    hook(keepworth, "UserPromptSubmit", "one", prompt="run the tests")
    hook(keepworth, "UserPromptSubmit", "two", prompt="where are the invoices")
    assert "make test" in keepworth._search("run the tests")
    hook(keepworth, "Stop", "two", last_assistant_message="In the drawer.")
    hook(keepworth, "Stop", "one", last_assistant_message="Done.")
    records = [memory.episode_record(id) for id in memory.episodes()]
    assert [len(record.decisions) for record in records] == [1, 1, 1], "a search of one of two sessions is of neither"
    assert [[reward.value for reward in record.rewards] for record in records] == [[1.0], [0.0], []]


def test_hooks_work_beside_other_hooks(memory: Memory) -> None:
    other = HookMatcher(hooks=[])
    hooks = KeepworthHooks(memory).add_to({"Stop": [other], "PreToolUse": [other]})
    assert hooks["PreToolUse"] == [other]
    assert hooks["Stop"][0] is other
    assert len(hooks["Stop"]) == 2
