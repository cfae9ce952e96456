"""What the slot of the OpenAI Agents SDK does beyond the contract of all slots."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from keepworth import Memory

pytest.importorskip("agents.memory", reason="openai-agents is not installed: make test-hosts")

from agents.run import ModelInputData

from agents import SQLiteSession
from keepworth.adapters.openai_agents import KeepworthSession


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory(":memory:", encoder="hashing") as opened:
        opened.add("Run the tests with: make test", user_id="ana")
        yield opened


def recall(session: Any, *items: Any) -> list[Any]:
    data = SimpleNamespace(model_data=ModelInputData(input=list(items), instructions="Be brief."))
    sent = asyncio.run(session.recall(data))
    assert sent.instructions == "Be brief."
    return list(sent.input)


def hear(session: Any, *items: Any) -> None:
    asyncio.run(session.add_items(list(items)))


def rewards(memory: Memory, episode: str) -> list[tuple[str, float]]:
    return [(reward.name, reward.value) for reward in memory.episode_record(episode).rewards]


ASKED = {"role": "user", "content": "run the tests"}
CALL = {"type": "shell_call", "call_id": "1", "action": {"commands": ["make test"]}, "status": "completed"}
ENDED = {
    "type": "shell_call_output",
    "call_id": "1",
    "output": [{"stdout": "2 failed", "stderr": "", "outcome": {"type": "exit", "exit_code": 1}}],
}
FAILED = {"type": "function_call_output", "call_id": "2", "output": "An error occurred while running the tool: no file"}


def test_all_calls_of_a_turn_show_the_same_once_and_the_history_never(memory: Memory) -> None:
    session = KeepworthSession(memory, user_id="ana")
    first = recall(session, ASKED)
    hear(session, ASKED, CALL)
    again = recall(session, ASKED, CALL, ENDED)
    assert first[0] == again[0]
    assert first[0]["content"].endswith("- Run the tests with: make test\n\nrun the tests")
    assert again[1:] == [CALL, ENDED]
    assert asyncio.run(session.get_items(1)) == [CALL]
    assert asyncio.run(session.pop_item()) == CALL
    assert asyncio.run(session.get_items()) == [ASKED]
    assert len(memory.episodes()) == 1
    asyncio.run(session.clear_session())
    assert asyncio.run(session.get_items()) == []


def test_a_message_with_a_picture_keeps_it(memory: Memory) -> None:
    picture = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}
    words = {"type": "input_text", "text": "run the tests"}
    (sent,) = recall(KeepworthSession(memory, user_id="ana"), {"role": "user", "content": [picture, words]})
    assert sent["content"][1:] == [picture, words]
    assert "make test" in sent["content"][0]["text"]


@pytest.mark.parametrize(
    ("end", "signal"),
    [(ENDED, "signal:check-failed:ana"), (FAILED, "signal:tool-failed:ana")],
    ids=["shell", "function"],
)
def test_a_tool_that_fails_is_an_outcome(memory: Memory, end: Any, signal: str) -> None:
    session = KeepworthSession(memory, user_id="ana")
    recall(session, ASKED)
    hear(session, ASKED, CALL, end)
    (episode,) = memory.episodes()
    assert rewards(memory, episode) == [(signal, 0.0)]


def test_failed_run_is_retried_in_its_turn_and_statements_are_kept(memory: Memory) -> None:
    session = KeepworthSession(memory, user_id="ana")
    recall(session, {"role": "user", "content": "I live in Oslo."})
    recall(session, {"role": "user", "content": "I live in Oslo."})
    assert len(memory.episodes()) == 1
    recall(session, ASKED)
    assert "I live in Oslo." in [item.text for item in memory.get_all(user_id="ana")]


def test_the_history_stands_where_the_caller_wants_it(memory: Memory) -> None:
    history = SQLiteSession("conversation")
    session = KeepworthSession(memory, user_id="ana", history=history)
    hear(session, ASKED)
    assert session.session_id == "conversation"
    assert asyncio.run(history.get_items()) == [ASKED]
