"""The drop-in for mem0: configurations, models, and mem0 itself beside it."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from keepworth.adapters.mem0 import AsyncMemory, Memory
from keepworth.memory import memory as engine
from keepworth.memory.errors import InvalidFilter
from keepworth.methods.policies.default import default
from keepworth.methods.recipes._memory_r1.memory_manager import Manager
from tests.memory.helpers import WordEncoder
from tests.memory.packages import mem0_story
from tests.serving.scripted import scripted

RAM = {"provider": "keepworth", "config": {"path": ":memory:"}}
HASHING = {"provider": "keepworth", "config": {"model": "hashing"}}
ANA = {"user_id": "ana"}
VARIABLES = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL", "KEEPWORTH_ENCODER_KEY")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def says(text: str) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]}


def memories(result: dict[str, Any]) -> list[str]:
    return [found["memory"] for found in result["results"]]


def test_mem0_add_keeps_and_replaces_statements_without_a_model(tmp_path: Path) -> None:
    with Memory.from_config({"embedder": HASHING}) as m:
        m.add("I live in Bergen.", user_id="ana")
        m.add([{"role": "user", "content": "I moved to Oslo."}], user_id="ana")
    assert (tmp_path / "keepworth.mem").exists()
    with Memory() as again:
        assert memories(again.get_all(filters=ANA)) == ["I moved to Oslo."]


def test_sections_for_models_behind_urls_take_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    def embeddings(asked: dict[str, Any]) -> dict[str, Any]:
        return {"data": [{"index": n, "embedding": mem0_story.embedding(t)} for n, t in enumerate(asked["input"])]}

    monkeypatch.setenv("OPENAI_API_KEY", "k3y")
    with scripted((200, says('{"facts": ["Ana likes to sing."]}'))) as chat, scripted((200, embeddings)) as encoder:
        model = {"openai_base_url": f"{chat.url}/v1", "model": "m", "temperature": 0.7, "max_tokens": 99}
        vectors = {"openai_base_url": f"{encoder.url}/v1", "embedding_dims": 64}
        config = {
            "vector_store": RAM,
            "llm": {"provider": "openai", "config": model},
            "embedder": {"provider": "openai", "config": vectors},
            "custom_instructions": "Leave out food.",
        }
        with Memory.from_config(config) as m:
            m.add("I sing, and like tofu.", user_id="ana")
            assert memories(m.search("who likes to sing", filters=ANA))[0] == "Ana likes to sing."
            assert m.memory.store.encoder_identity().model == f"{encoder.url}/v1#text-embedding-3-small?dimensions=64"
    first = chat.asked[0]
    assert (first["temperature"], first["max_tokens"], first["key"]) == (0.7, 99, "Bearer k3y")
    assert "Leave out food." in first["messages"][0]["content"]
    assert {each["dimensions"] for each in encoder.asked} == {64}


REFUSED: dict[str, tuple[Any, str]] = {
    "a vector store": ({"vector_store": {"provider": "qdrant", "config": {}}}, "vector_store.provider"),
    "a graph": ({"graph_store": {"provider": "neo4j"}}, "graph_store"),
    "an option": ({"llm": {"provider": "openai", "config": {"top_p": 0.5}}}, "llm.config.top_p"),
    "another protocol": ({"llm": {"provider": "anthropic", "config": {}}}, "llm.provider"),
    "instructions to nobody": ({"custom_instructions": "Be brief."}, "custom_instructions is for a language model"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_mem0_settings_without_effect_are_refused(name: str, tmp_path: Path) -> None:
    config, message = REFUSED[name]
    with pytest.raises(InvalidFilter, match=message):
        Memory.from_config(config)
    assert not list(tmp_path.iterdir()), "there is no file yet"


def test_mem0_history_lists_updates_and_no_rewards() -> None:
    with Memory(engine.Memory(encoder="hashing")) as m:
        (kept,) = m.add("likes tofu", user_id="ana", metadata={"a": 1}, infer=False)["results"]
        m.update(kept["id"], "likes tempeh", metadata={"b": 2})
        before = m.get(kept["id"])
        m.memory.reward(m.memory.search("tempeh", user_id="ana").decision, 1.0)
        assert [each["event"] for each in m.history(kept["id"])] == ["ADD", "UPDATE"]
        assert m.get(kept["id"]) == before
        assert before["updated_at"] > before["created_at"]


def test_mem0_reset_empties_the_memory(path: Path) -> None:
    with Memory(engine.Memory(path, encoder="hashing")) as m:
        m.add("my code is ZXQ", user_id="ana", infer=False)
        m.search("what is the code ZXQ", filters=ANA)
        m.reset()
        assert memories(m.get_all(filters=ANA)) == []
        m.add("a new start", user_id="ana", infer=False)
        assert memories(m.search("start", filters=ANA)) == ["a new start"]
    assert b"ZXQ" not in path.read_bytes()


def test_async_mem0_behaves_like_the_sync_one() -> None:
    async def story() -> None:
        async with AsyncMemory.from_config({"vector_store": RAM, "embedder": HASHING}) as m:
            done = await asyncio.gather(*(m.add(f"note {n}", user_id="ana", infer=False) for n in range(8)))
            assert {result["event"] for one in done for result in one["results"]} == {"ADD"}
            found = await m.get_all(filters={"user_id": "ana"}, top_k=5)
            await m.update(found["results"][0]["id"], "another note")
            assert (await m.get(found["results"][0]["id"]))["memory"] == "another note"
            with pytest.raises(AttributeError, match="AsyncMemory has no 'chat'"):
                await m.chat("hello")

    asyncio.run(story())


RIVAL = os.environ.get("KEEPWORTH_RIVALS_PYTHON") or (sys.executable if importlib.util.find_spec("mem0") else "")


@pytest.mark.slow
@pytest.mark.skipif(not RIVAL, reason="mem0 is not installed: pip install mem0ai, or set KEEPWORTH_RIVALS_PYTHON")
def test_mem0_itself_gives_the_same_answers(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"MEM0_TELEMETRY": "False", "MEM0_DIR": str(tmp_path)}
    command = [RIVAL, mem0_story.__file__, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    theirs = json.loads(done.stdout.splitlines()[-1])
    with mem0_story.models() as url:
        ours = json.loads(json.dumps(mem0_story.told(Memory.from_config(mem0_story.config(url, RAM)))))
    assert ours == theirs
    assert len(theirs) > 60


def test_adapter_answers_hold_without_mem0_installed() -> None:
    """What the story finds in mem0 beside it (see above), as far as it can be said without."""
    with mem0_story.models() as url:
        ours = mem0_story.told(Memory.from_config(mem0_story.config(url, RAM)))
    assert ours["added"] == [["ADD", "I like tofu soup."], ["ADD", "Noted, tofu soup it is."], ["ADD", "Look here"]]
    assert ours["get"] == {
        **dict.fromkeys(("id", "memory", "hash", "created_at", "updated_at", "user_id", "role"), "str"),
        "metadata": {"stars": "int", "topic": "str"},
        "score": "NoneType",
    }
    assert ours["infer"] == sorted(["ADD", text] for text in mem0_story.FACTS)
    assert ours["infer: who"] == sorted([who, text] for text, who in mem0_story.FACTS.items())
    assert ours["infer: nothing"] == {"results": []}
    assert all(outcome["raises"] for name, outcome in ours.items() if name.startswith("refused"))
    assert ours["reset: after"] == ours["delete_all: after"] == []


# Other libraries' interfaces, and what must not get through them.


def memory(**options: object) -> engine.Memory:
    return engine.Memory(":memory:", encoder=WordEncoder(32), **options)


FOOD_OR_GAME = [{"topic": "food"}, {"topic": "game"}]
FILTERS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "equal": ({"topic": "food"}, {"tofu", "soup"}),
    "eq": ({"topic": {"eq": "food"}}, {"tofu", "soup"}),
    "ne": ({"topic": {"ne": "food"}}, {"chess"}),
    "in": ({"topic": {"in": ["game", "music"]}}, {"chess"}),
    "nin": ({"topic": {"nin": ["game", "music"]}}, {"tofu", "soup"}),
    "range": ({"stars": {"gte": 2, "lt": 5}}, {"tofu"}),
    "gt": ({"stars": {"gt": 3}}, {"soup"}),
    "lte": ({"stars": {"lte": 3}}, {"tofu", "chess"}),
    "contains": ({"note": {"contains": "Oslo"}}, {"soup"}),
    "icontains": ({"note": {"icontains": "oslo"}}, {"tofu", "soup"}),
    "contains of a list": ({"tags": {"contains": "old"}}, {"chess"}),
    "any value": ({"topic": "*"}, {"tofu", "soup", "chess"}),
    "a list": ({"topic": ["game", "music"]}, {"chess"}),
    "AND": ({"AND": [{"topic": "food"}, {"stars": {"gte": 4}}]}, {"soup"}),
    "OR": ({"OR": [{"topic": "game"}, {"stars": {"gte": 4}}]}, {"soup", "chess"}),
    "NOT": ({"NOT": [{"topic": "game"}, {"stars": 5}]}, {"tofu", "plain"}),
    "nested": (
        {"AND": [{"OR": FOOD_OR_GAME}, {"NOT": [{"tags": {"contains": "old"}}]}], "stars": "*"},
        {"tofu", "soup"},
    ),
    "nobody has it": ({"topic": "war"}, set()),
}


@pytest.mark.parametrize("name", FILTERS)
def test_mem0_filters_match_their_documentation(name: str):
    filters, expected = FILTERS[name]
    m = Memory(memory())
    for text, metadata in {
        "tofu": {"topic": "food", "stars": 3, "note": "an oslo dish"},
        "soup": {"topic": "food", "stars": 5, "note": "Oslo"},
        "chess": {"topic": "game", "stars": 1, "tags": ["old"]},
        "plain": None,
    }.items():
        m.add(text, user_id="ana", metadata=metadata, infer=False)
    m.add("another's", user_id="bo", metadata={"topic": "food", "stars": 3}, infer=False)
    whole = {**ANA, **filters}
    for found in (
        m.search("tofu soup chess plain", filters=whole),
        m.search("tofu", filters=whole, threshold=-1.0),
        m.get_all(filters=whole),
    ):
        assert set(memories(found)) == expected


def test_an_operator_that_mem0_does_not_have_is_refused():
    with pytest.raises(InvalidFilter, match="no operator 'near'"):
        Memory(memory()).search("tofu", user_id="ana", filters={"topic": {"near": ["food"]}})


def test_mem0_events_report_operations_of_the_writer():
    lines = iter(["ADD", "UPDATE 0", "UPDATE 0", "NOOP", "UPDATE 0", "DELETE 0"])
    m = Memory(memory(writer=Manager(lambda states: [next(lines)])))
    tell = partial(m.add, user_id="ana", metadata={"topic": "home"})

    def events(said: str | list[dict[str, str]]) -> list[tuple[str, str]]:
        return [(result["event"], result["memory"]) for result in tell(said)["results"]]

    both = [{"role": "user", "content": "Ana lives in Bergen."}, {"role": "user", "content": "Ana moved to Oslo."}]
    assert events(both) == [("ADD", "Ana moved to Oslo.")]
    (result,) = m.get_all(user_id="ana")["results"]
    assert (result["memory"], result["metadata"]) == ("Ana moved to Oslo.", {"topic": "home"})
    assert events("Ana moved to Oslo in May.") == [("UPDATE", "Ana moved to Oslo in May.")]
    assert events("Ana moved.") == []
    assert events("Ana lives in Rome.") == [("UPDATE", "Ana lives in Rome.")]
    assert events("Forget it.") == [("DELETE", "Ana lives in Rome.")]
    assert m.get_all(user_id="ana") == {"results": []}


def test_adapters_search_beside_a_policy_that_ranks_items_itself():
    """Their callers have no rewards to give, so nothing is tried out on them, and a person's memory is searched alone."""
    from keepworth.adapters.langgraph import _Entries

    learning = memory(policy="memrl")
    m = Memory(learning)
    m.add("likes tofu", user_id="ana", infer=False)
    assert memories(m.search("tofu", filters=ANA)) == ["likes tofu"]
    entries = _Entries(learning, lambda value, path: [str(value[path])])
    entries.put(("mem", "ana"), "food", {"text": "likes tempeh"}, index=["text"])
    assert [item.key for item, _ in entries.search(("mem", "ana"), "tempeh", {}, 1, 0)] == ["likes tempeh"]
    withholding = memory(policy=partial(default, withhold=1.0, least=1.0))
    m = Memory(withholding)
    m.add("likes tofu", user_id="ana", infer=False)
    for _ in range(3):
        withholding.reward(withholding.search("tofu", user_id="ana").decision, 1.0)
    assert all(m.search("tofu", user_id="ana")["results"] for _ in range(5))
