"""What every slot does for its framework, without any of them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from keepworth import Memory
from keepworth.adapters import turns
from keepworth.adapters.turns import HostTurn, Turns, load_host
from keepworth.base.extras import MissingExtra
from keepworth.memory.async_memory import AsyncMemory
from keepworth.memory.errors import InvalidFilter, StorageFull


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory(":memory:", encoder="hashing") as opened:
        yield opened


def take_turn(agent: Turns, said: str, answer: str, **options: Any) -> HostTurn:
    turn = agent.begin(said, **options)
    agent.finish(turn, answer)
    return turn


def rewards(memory: Memory, turn: HostTurn) -> list[tuple[str, float]]:
    return [(reward.name, reward.value) for reward in memory.episode_record(turn.id).rewards]


def test_the_next_message_is_the_outcome_of_the_turn_before_and_of_no_other(memory: Memory) -> None:
    agent = Turns(memory, "host", user_id="ana")
    take_turn(agent, "I live in Oslo.", "Noted.", conversation="one")
    asked = take_turn(agent, "Where do I live?", "In Rome.", conversation="one")
    assert "- I live in Oslo." in asked.text
    take_turn(agent, "No, that is wrong.", "Sorry.", conversation="two")
    take_turn(agent, "No, that is wrong.", "Sorry.", conversation="one", user_id="bo")
    assert rewards(memory, asked) == []
    take_turn(agent, "No, that is wrong.", "Sorry.", conversation="one")
    assert rewards(memory, asked) == [("signal:correction:ana", 0.0)]


def test_a_host_that_keeps_the_id_finds_the_turn_in_another_process(memory: Memory) -> None:
    memory.add("Ana lives in Oslo.", user_id="ana")
    asked = take_turn(Turns(memory, "host", user_id="ana"), "Where does Ana live?", "In Oslo.")
    take_turn(Turns(memory, "host", user_id="ana"), "Thanks, that is right!", "Gladly.", before=asked.id)
    assert rewards(memory, asked) == [("signal:thanks:ana", 1.0)]


def test_tools_and_the_function_reward_a_turn(memory: Memory) -> None:
    memory.add("Run the tests with: make test")
    agent = Turns(memory, "host", lambda turn: 1.0 if turn.answer == "done" else None)
    turn = agent.begin("run the tests")
    agent.use_tool(turn, failed=True, command="make test", output="2 failed")
    assert rewards(memory, turn) == [("signal:check-failed", 0.0)]
    agent.finish(turn, "done")
    assert ("host", 1.0) in rewards(memory, turn)
    agent.finish(turn, "done again")
    assert len(memory.episode_record(turn.id).rewards) == 2


def test_items_of_a_person_are_hidden_from_others(memory: Memory) -> None:
    memory.add("Ana lives in Oslo.", user_id="ana")
    memory.add("The office is in Oslo.")
    assert Turns(memory, "host").begin("Who lives in Oslo?").text.count("\n- ") == 1
    assert "Ana" in Turns(memory, "host", user_id="ana").begin("Who lives in Oslo?").text
    assert "Ana" not in Turns(memory, "host", user_id="bo").begin("Who lives in Oslo?").text


def test_turns_hold_no_text_of_an_erased_person(memory: Memory) -> None:
    agent = Turns(memory, "host", user_id="ana")
    turn = agent.begin("I live in Oslo.")
    memory.erase(user_id="ana")
    agent.finish(turn, "Noted.")
    assert take_turn(agent, "Where do I live?", "?").text == ""
    assert memory.get_all(user_id="ana") == []


def test_statements_during_an_outage_are_written_afterwards(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise StorageFull("no room")

    agent = Turns(memory, "host", lambda turn: 1.0, user_id="ana")
    with monkeypatch.context() as down, caplog.at_level(logging.WARNING, "keepworth.adapters"):
        down.setattr(Memory, "episode", fail)
        down.setattr(Memory, "add", fail)
        turn = take_turn(agent, "I live in Oslo.", "Noted.")
    assert turn.id == ""
    assert "no room" in caplog.text
    take_turn(agent, "Good morning!", "Good morning.")
    assert [item.text for item in memory.get_all(user_id="ana")] == ["I live in Oslo."]


def test_statement_of_a_broken_turn_is_kept_once(memory: Memory) -> None:
    agent = Turns(memory, "host", user_id="ana")
    broken = agent.begin("I live in Oslo.")
    assert "- I live in Oslo." in agent.begin("Where do I live?").text
    agent.finish(broken, "Noted, at last.")
    assert [item.text for item in memory.get_all(user_id="ana")] == ["I live in Oslo."]
    assert memory.episode_record(broken.id).exchanges[0].done == "Noted, at last."


def test_a_search_outside_all_conversations_is_no_turn_of_one(memory: Memory) -> None:
    memory.add("Ana lives in Oslo.", user_id="ana")
    agent = Turns(memory, "host", user_id="ana")
    asked = take_turn(agent, "Where does Ana live?", "In Oslo.")
    assert "Oslo" in agent.begin("No, that is wrong.", conversation=None, heard=False).text
    assert agent.newest() is asked
    assert rewards(memory, asked) == []


def test_a_reward_that_fails_is_said_and_does_not_stop_the_agent(
    memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "keepworth.adapters"):
        take_turn(Turns(memory, "host", lambda turn: 1.0 / len(turn.answer)), "Hello there, who are you?", "")
    assert "ZeroDivisionError" in caplog.text


def test_only_the_newest_conversations_are_held(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "CONVERSATIONS", 2)
    agent = Turns(memory, "host")
    for name in ("one", "two", "three"):
        agent.begin("Hello", conversation=name)
    assert [agent.current(conversation=name) is None for name in ("one", "two", "three")] == [True, False, False]


def test_slot_accepts_async_memories_and_refuses_other_types(memory: Memory) -> None:
    assert Turns(AsyncMemory(memory), "host").memory is memory
    with pytest.raises(InvalidFilter, match="takes an open Memory or a Client, got str"):
        Turns("agent.mem", "host")
    with pytest.raises(InvalidFilter, match="reward takes a function"):
        Turns(memory, "host", 1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("package", "least", "names", "says"),
    [
        ("no-such-framework", "1.2", [], r'needs no-such-framework, .* pip install "no-such-framework>=1.2"'),
        ("pytest", "1000.1", [], r"needs pytest 1000.1 or newer, and \d+"),
        ("pytest", "7", ["pytest:no_such_slot"], r"has no such slot any more"),
    ],
)
def test_a_framework_that_is_missing_or_too_old_is_named(package: str, least: str, names: list[str], says: str) -> None:
    assert load_host("pytest", "7", ["pytest:fixture"]) == [pytest.fixture]
    with pytest.raises(MissingExtra, match=says):
        load_host(package, least, names)
