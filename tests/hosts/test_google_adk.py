"""What the slot of Google ADK does beyond the contract of all slots."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from keepworth import Memory
from keepworth.memory.errors import UnknownItem

pytest.importorskip("google.adk", reason="google-adk is not installed: make test-hosts")

from google.adk.events.event import Event
from google.adk.sessions import Session
from google.genai import types

from keepworth.adapters.google_adk import KeepworthMemoryService, MemoryEntry


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory(":memory:", encoder="hashing") as opened:
        yield opened


def spoken(author: str, *parts: types.Part, at: float = 1_700_000_000.0) -> Event:
    return Event(author=author, timestamp=at, content=types.Content(role="user", parts=list(parts)))


def search(service: Any, query: str, app: str = "app", person: str = "ana") -> list[str]:
    found = asyncio.run(service.search_memory(app_name=app, user_id=person, query=query))
    return [entry.content.parts[0].text for entry in found.memories]


def save(service: Any, *events: Event) -> None:
    session = Session(id="s", app_name="app", user_id="ana", events=list(events))
    asyncio.run(service.add_session_to_memory(session))


def rewards(memory: Memory, episode: str) -> list[tuple[str, float]]:
    return [(reward.name, reward.value) for reward in memory.episode_record(episode).rewards]


def test_a_session_that_is_saved_again_is_read_from_where_it_went_on(memory: Memory) -> None:
    service = KeepworthMemoryService(memory)
    first = spoken("user", types.Part(text="I live in Oslo."))
    save(service, first)
    memory.delete(memory.get_all(user_id="ana")[0].id)
    save(service, first, spoken("user", types.Part(text="I work in Bergen.")))
    assert [item.text for item in memory.get_all(user_id="ana")] == ["I work in Bergen."]


def test_saving_an_old_session_again_revives_no_old_facts(memory: Memory) -> None:
    old = spoken("user", types.Part(text="I live in Oslo."))
    new = spoken("user", types.Part(text="I moved to Bergen, and I live in Bergen now."), at=1_700_086_400.0)
    save(KeepworthMemoryService(memory), old, new)
    before = search(KeepworthMemoryService(memory), "Where do I live?")
    save(KeepworthMemoryService(memory), old)
    assert search(KeepworthMemoryService(memory), "Where do I live?") == before
    assert "Bergen" in before[1]


def test_tool_searches_belong_to_the_turn(memory: Memory) -> None:
    memory.add("Run the tests with: make test", agent_id="app", user_id="ana")
    service = KeepworthMemoryService(memory)
    for query in ("run the tests", "run the tests", "which command runs tests"):
        assert search(service, query)[1:] == ["- Run the tests with: make test"]
    call = types.Part(function_call=types.FunctionCall(id="1", name="shell", args={"command": "make test"}))
    end = types.Part(function_response=types.FunctionResponse(id="1", name="shell", response={"error": "2 failed"}))
    save(service, spoken("user", types.Part(text="run the tests")), spoken("helper", call), spoken("helper", end))
    (episode,) = memory.episodes()
    assert len(memory.episode_record(episode).decisions) == 2, (
        "the second search of the tool that preloads is the first"
    )
    assert ("signal:check-failed:ana", 0.0) in rewards(memory, episode)


def test_turn_without_a_search_credits_no_items(memory: Memory) -> None:
    memory.add("Ana lives in Oslo.", agent_id="app", user_id="ana")
    service = KeepworthMemoryService(memory, lambda turn: 1.0)
    save(service, spoken("user", types.Part(text="Where do I live?")), spoken("helper", types.Part(text="In Oslo.")))
    (episode,) = memory.episodes()
    assert memory.episode_record(episode).decisions == ()


def test_apps_and_persons_are_apart_unless_they_share(memory: Memory) -> None:
    service = KeepworthMemoryService(memory)
    entry = MemoryEntry(content=types.Content(parts=[types.Part(text="The door code is 4711.")]))
    asyncio.run(service.add_memory(app_name="app", user_id="ana", memories=[entry], custom_metadata={"place": "hall"}))
    (item,) = memory.get_all()
    assert item.metadata["place"] == "hall"
    asked = "What is the door code?"
    assert search(service, asked)[1:] == ["- The door code is 4711."]
    assert search(service, asked, app="other") == search(service, asked, person="bo") == []
    assert search(KeepworthMemoryService(memory, apps_apart=False), asked)[1:] == ["- The door code is 4711."]


def test_person_deletes_only_own_items(memory: Memory) -> None:
    service = KeepworthMemoryService(memory)
    item = memory.add("The door code is 4711.", user_id="ana", agent_id="app")
    for app, person in (("app", "bo"), ("other", "ana")):
        with pytest.raises(UnknownItem, match="has no memory"):
            asyncio.run(service.delete_memory(app_name=app, user_id=person, memory_id=item.id))
    search(service, "What is the door code?")
    asyncio.run(service.delete_memory(app_name="app", user_id="ana", memory_id=item.id))
    assert search(service, "What is the door code?") == [], "the same search again in the turn does not bring it back"
