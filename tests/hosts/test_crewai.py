"""What the slot of CrewAI does beyond the contract of all slots."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from keepworth import Memory
from keepworth.memory.errors import InvalidFilter, UnknownItem
from tests.hosts.crewai_talk import talk_class

pytest.importorskip("crewai", reason="crewai is not installed: make test-hosts")

from crewai import Agent, Crew, Task
from crewai.memory.storage.backend import StorageBackend
from crewai.memory.types import MemoryRecord
from crewai.tools import tool

from keepworth.adapters.crewai import KeepworthMemory


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory(":memory:", encoder="hashing") as opened:
        opened.add("Run the tests with: make test", user_id="ana")
        yield opened


def use(name: str, arguments: str) -> str:
    return f"Thought: I use a tool.\nAction: {name}\nAction Input: {arguments}\n"


def rewards(memory: Memory, episode: str) -> list[tuple[str, float]]:
    return [(reward.name, reward.value) for reward in memory.episode_record(episode).rewards]


@pytest.mark.parametrize("broken", [False, True])
def test_a_tool_that_ends_in_a_turn_is_an_outcome(memory: Memory, broken: bool) -> None:
    @tool("shell")
    def shell(command: str) -> str:
        """Run a command."""
        if broken:
            raise RuntimeError("2 failed")
        return "2 passed"

    talk = talk_class()(memory, user_id="ana", tools=[shell])
    talk.scripted.calls = [use("shell", '{"command": "make test"}')]
    assert talk.say("run the tests", "Done.") == "Done."
    (episode,) = memory.episodes()
    assert rewards(memory, episode) == [
        ("signal:check-failed:ana", 0.0) if broken else ("signal:check-passed:ana", 1.0)
    ]


def test_tool_searches_and_writes_belong_to_the_turn(memory: Memory) -> None:
    memory.add("The invoices are in the drawer", user_id="ana")
    talk = talk_class()(memory, user_id="ana")
    talk.scripted.calls = [
        use("search_memory", '{"queries": ["where are the invoices"]}'),
        use("save_to_memory", '{"contents": ["The tests need Docker."]}'),
    ]
    talk.say("run the tests", "Done.")
    assert "- The invoices are in the drawer" in talk.prompts[1]
    assert "Saved to memory" in talk.prompts[2]
    (episode,) = memory.episodes()
    assert len(memory.episode_record(episode).decisions) == 2
    assert [item.text for item in memory.get_all(user_id="ana")][2:] == ["The tests need Docker."]


def test_the_tasks_of_a_crew_are_turns_and_the_next_kickoff_is_the_outcome_of_the_last(memory: Memory) -> None:
    talk = talk_class()(memory)
    slot = KeepworthMemory(memory, lambda turn: float(turn.answer == "Tested."), user_id="ana")
    agent = Agent(role="Helper", goal="Help", backstory="You help.", llm=talk.scripted)
    descriptions = ("{words}", "No, that is wrong: run the tests again")
    tasks = [Task(description=words, expected_output="A word", agent=agent) for words in descriptions]
    talk.scripted.answer = "Tested."
    for words in ("run the tests", "Thanks, that is right!"):
        Crew(agents=[agent], tasks=tasks, memory=slot).kickoff(inputs={"words": words})
    episodes = memory.episodes()
    assert [memory.episode_record(id).task for id in episodes] == [
        "run the tests",
        descriptions[1],
        "Thanks, that is right!",
        descriptions[1],
    ]
    given, thanked = [("own:ana", 1.0)], [("own:ana", 1.0), ("signal:thanks:ana", 1.0)]
    assert [rewards(memory, id) for id in episodes] == [given, thanked, given, given]
    assert ["make test" in prompt for prompt in talk.prompts[:2]] == [True, True]


def test_growing_conversation_is_read_from_its_new_messages(memory: Memory) -> None:
    talk = talk_class()(memory, user_id="ana")
    said = [{"role": "user", "content": "run the tests"}]
    talk.scripted.answer = "They pass. My cat is called Tom."
    talk.agent.kickoff(said)
    talk.scripted.answer = "Gladly."
    answer = {"role": "assistant", "content": "They pass. My cat is called Tom."}
    talk.agent.kickoff([*said, answer, {"role": "user", "content": "Thanks, that is right!"}])
    first, second = memory.episodes()
    assert rewards(memory, first) == [("signal:thanks:ana", 1.0)]
    assert memory.episode_record(second).task == "Thanks, that is right!"
    assert len(memory.get_all(user_id="ana")) == 1, "nothing that the model said is kept"


def test_statement_before_a_failed_kickoff_is_kept(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    talk = talk_class()(memory, user_id="ana")

    def fail(*_: Any, **__: Any) -> str:
        raise RuntimeError("the model is away")

    with monkeypatch.context() as down:
        down.setattr(type(talk.scripted), "call", fail)
        with pytest.raises(RuntimeError):
            talk.say("I live in Oslo.", "")
    talk.say("Where do I live?", "In Oslo.")
    assert "- I live in Oslo." in talk.prompts[-1]


def slot_of(memory: Memory, user_id: str = "ana", **options: Any) -> Any:
    return KeepworthMemory(memory, user_id=user_id, **options)


def test_crewais_own_calls_reach_the_records(memory: Memory) -> None:
    slot = slot_of(memory)
    assert isinstance(slot._storage, StorageBackend)
    about = {"categories": ["food"], "metadata": {"by": "cook"}, "importance": 0.9}
    bread = slot.remember("Bread is baked on Mondays.", "/kitchen/oven", **about)
    slot.remember_many(["Plates are washed by hand.", "Knives are sharp."], "/kitchen")
    assert slot.tree("/") == "/ (4 records)\n  /kitchen (3 records)\n    /kitchen/oven (1 records)"
    assert slot.list_categories() == {"food": 1}
    assert slot.info("/kitchen").child_scopes == ["/kitchen/oven"]
    newest = slot.list_records("/kitchen", limit=2)
    assert [record.content for record in newest] == ["Knives are sharp.", "Plates are washed by hand."]
    stored = slot._storage.get_record(bread.id)
    assert (stored.scope, stored.categories, stored.metadata) == ("/kitchen/oven", ["food"], {"by": "cook"})
    assert abs((stored.created_at - datetime.now(UTC).replace(tzinfo=None)).total_seconds()) < 60
    assert slot.update(bread.id, "Bread is baked on Fridays.", scope="/bakery").content == "Bread is baked on Fridays."
    assert slot.list_scopes() == ["/bakery", "/kitchen"]
    assert slot.forget(scope="/kitchen", older_than=datetime.now(UTC) - timedelta(days=1)) == 0
    assert slot.forget(scope="/kitchen", record_ids=[newest[0].id]) == 1
    assert slot.forget(categories=["food"], metadata_filter={"by": "cook"}) == 1
    slot.reset("/kitchen")
    assert [item.text for item in memory.get_all()] == ["Run the tests with: make test"]
    with pytest.raises(UnknownItem, match="no record 'm99'"):
        slot._storage.update(MemoryRecord(id="m99", content="Nothing."))


def test_recall_sees_its_scope_and_unscoped_items(memory: Memory) -> None:
    slot = slot_of(memory)
    slot.remember("Run the tests of the kitchen with: make kitchen", "/kitchen", categories=["food"])
    slot.remember("Run the tests of the garden with: make garden", "/garden", source="bo", private=True)

    def commands(view: Any, **options: Any) -> list[str]:
        matches = view.recall("How do I run the tests?", **options)
        return sorted(match.record.content.rpartition("make ")[2] for match in matches)

    assert commands(slot) == ["kitchen", "test"]
    assert commands(slot, source="bo") == ["garden", "kitchen", "test"]
    assert commands(slot.scope("/kitchen")) == commands(slot, scope="/kitchen") == ["kitchen", "test"]
    assert commands(slot.scope("/garden"), include_private=True) == ["garden", "test"]
    assert commands(slot, categories=["food"]) == ["kitchen"]
    assert commands(slot_of(memory, root_scope="/kitchen")) == ["kitchen", "test"]
    assert commands(slot, limit=1) != []
    assert memory.episode_record(memory.episodes()[0]).rewards == ()


def test_the_storage_searches_by_the_words_behind_its_vectors(memory: Memory) -> None:
    storage = slot_of(memory)._storage
    (vector,) = storage.embed(["How do I run the tests?"])
    ((record, score),) = storage.search(vector, limit=3)
    assert record.content == "Run the tests with: make test"
    assert storage.search(vector, min_score=score + 1) == []
    with pytest.raises(InvalidFilter, match=r"pass embedder=storage\.embed"):
        storage.search([0.0] * len(vector))


def test_person_reaches_only_own_items(memory: Memory) -> None:
    (item,) = memory.get_all()
    for person in ("bo", ""):
        slot = slot_of(memory, person)
        slot.reset()
        assert slot.forget(record_ids=[item.id]) == 0
        assert slot._storage.get_record(item.id) is None
        assert slot.list_records() == []
    assert memory.get_all() == [item]


def test_copies_share_the_memory_and_read_only_slots_do_not_store(memory: Memory) -> None:
    slot = slot_of(memory, read_only=True)
    assert deepcopy(slot) is slot
    assert slot.remember("The tests need Docker.") is None
    assert len(memory.get_all()) == 1
