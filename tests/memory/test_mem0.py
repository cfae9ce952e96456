"""The drop-in for mem0: configurations, models, and mem0 itself beside it."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from keepworth.memory.adapters.mem0 import AsyncMemory, Memory
from keepworth.memory.adapters.mem0_config import FILE, InvalidConfig
from keepworth.memory.errors import InvalidFilter, MemoryProblem, NoWriter
from tests.memory.packages import mem0_story
from tests.serving.scripted import scripted

RAM = {"provider": "keepworth", "config": {"path": ":memory:"}}
HASHING = {"provider": "keepworth", "config": {"model": "hashing"}}
VARIABLES = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL", "VLLM_API_KEY", "KEEPWORTH_ENCODER_KEY")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def says(text: str) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]}


def test_without_a_model_what_is_told_is_stored_and_nothing_is_made_up(tmp_path: Path) -> None:
    with Memory.from_config({"embedder": HASHING}) as m:
        with pytest.raises(NoWriter, match=r"OPENAI_API_KEY.*infer=False"):
            m.add("I moved to Oslo.", user_id="ana")
        assert m.get_all(filters={"user_id": "ana"}) == {"results": []}
        m.add("I moved to Oslo.", user_id="ana", infer=False)
    assert (tmp_path / FILE).exists()
    with Memory() as again:
        assert [result["memory"] for result in again.get_all(filters={"user_id": "ana"})["results"]] == [
            "I moved to Oslo."
        ]
    with Memory.from_config({"llm": {"provider": "keepworth"}, "vector_store": RAM, "embedder": HASHING}) as rules:
        rules.add("I live in Bergen.", user_id="ana")
        rules.add([{"role": "user", "content": "I moved to Oslo."}], user_id="ana")
        assert [result["memory"] for result in rules.get_all(filters={"user_id": "ana"})["results"]] == [
            "I moved to Oslo."
        ]


def test_the_environment_s_key_is_a_model_as_in_mem0(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted((200, says('{"facts": ["Ana moved to Oslo."]}'))) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "k3y")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        with Memory.from_config({"vector_store": RAM, "embedder": HASHING}) as m:
            (found,) = m.add("I moved to Oslo.", user_id="ana")["results"]
        assert (found["memory"], found["event"]) == ("Ana moved to Oslo.", "ADD")
    asked = server.asked[0]
    assert (asked["model"], asked["key"], asked["max_completion_tokens"]) == ("gpt-5-mini", "Bearer k3y", 2000)
    assert "temperature" not in asked


def test_sections_for_models_behind_urls_take_effect() -> None:
    def embeddings(asked: dict[str, Any]) -> dict[str, Any]:
        return {"data": [{"index": n, "embedding": mem0_story.embedding(t)} for n, t in enumerate(asked["input"])]}

    with scripted((200, says('{"facts": ["Ana likes to sing."]}'))) as chat, scripted((200, embeddings)) as encoder:
        config = {
            "vector_store": RAM,
            "llm": {
                "provider": "vllm",
                "config": {"vllm_base_url": chat.url, "model": "m", "temperature": 0.7, "max_tokens": 99},
            },
            "embedder": {"provider": "ollama", "config": {"ollama_base_url": encoder.url, "embedding_dims": 64}},
            "custom_instructions": "Leave out food.",
            "version": "v1.1",
        }
        with Memory.from_config(config) as m:
            m.add("I sing, and like tofu.", user_id="ana")
            assert (
                m.search("who likes to sing", filters={"user_id": "ana"})["results"][0]["memory"]
                == "Ana likes to sing."
            )
            assert m.memory.store.encoder_identity().model == f"{encoder.url}/v1#nomic-embed-text"
    first = chat.asked[0]
    assert (first["temperature"], first["max_tokens"], first["key"]) == (0.7, 99, None)
    assert "Leave out food." in first["messages"][0]["content"]
    assert {(each["path"], each["model"]) for each in encoder.asked} == {("/v1/embeddings", "nomic-embed-text")}
    assert not any("dimensions" in each for each in encoder.asked), "ollama takes none"


REFUSED: dict[str, tuple[Any, str]] = {
    "a vector store": (
        {"vector_store": {"provider": "qdrant", "config": {"host": "x"}}},
        "'qdrant' has no effect here",
    ),
    "an option of it": ({"vector_store": {"provider": "keepworth", "config": {"on_disk": True}}}, "config.on_disk"),
    "a graph": ({"graph_store": {"provider": "neo4j"}}, "graph_store=.*no graph here"),
    "a reranker": ({"reranker": {"provider": "cohere"}}, "reranker=.*nothing reranks"),
    "a history": ({"history_db_path": "h.db"}, "history_db_path=.*memory's own file"),
    "a version": ({"version": "v1.0"}, "version='v1.0'"),
    "a misspelt section": ({"embeder": {}}, "did you mean 'embedder'"),
    "a misspelt option": ({"llm": {"provider": "openai", "config": {"modle": "m"}}}, "did you mean 'model'"),
    "another protocol": ({"llm": {"provider": "anthropic", "config": {}}}, "'anthropic' is not spoken to here"),
    "no key": ({"llm": {"provider": "openai", "config": {"model": "m"}}}, "OPENAI_API_KEY.*infer=False"),
    "no key of an encoder": ({"embedder": {"provider": "openai"}}, "embedder wants a key"),
    "no model": ({"llm": {"provider": "lmstudio"}}, "names no model for lmstudio"),
    "sampling": ({"llm": {"provider": "vllm", "config": {"top_p": 0.5}}}, "llm.config.top_p has no effect"),
    "instructions to nobody": ({"custom_instructions": "Be brief."}, "custom_instructions is for a language model"),
    "dimensions": (
        {"embedder": {"provider": "huggingface", "config": {"model": "hashing:64", "embedding_dims": 9}}},
        "9",
    ),
    "no dictionary": (7, "a configuration is a dictionary"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_of_a_configuration_has_no_effect_is_an_error(name: str, tmp_path: Path) -> None:
    config, message = REFUSED[name]
    with pytest.raises(InvalidFilter, match=message) as caught:
        Memory.from_config(config)
    assert name == "instructions to nobody" or isinstance(caught.value, InvalidConfig)
    assert not list(tmp_path.iterdir()), "there is no file yet"


def test_a_configuration_of_mem0_s_own_class_counts_for_what_was_set() -> None:
    class MemoryConfig:
        def model_dump(self, *, exclude_unset: bool) -> dict[str, Any]:
            assert exclude_unset
            return {"vector_store": RAM, "embedder": HASHING}

    with Memory(MemoryConfig()) as m:
        assert m.memory.path == ":memory:"
    with pytest.raises(InvalidFilter, match="encoder= has no effect"):
        Memory({"vector_store": RAM}, encoder="hashing")


def test_a_threshold_needs_an_encoder() -> None:
    with Memory(":memory:", encoder="hashing", policy=None) as m:
        m.add("likes tofu soup", user_id="ana", infer=False)
        m.add("plays chess", user_id="ana", infer=False)
        assert len(m.search("tofu soup", filters={"user_id": "ana"})["results"]) == 1
        assert len(m.search("tofu soup", filters={"user_id": "ana"}, threshold=0.0)["results"]) == 2
    with Memory(":memory:", encoder=None) as words:
        words.add("likes tofu", user_id="ana", infer=False)
        assert words.search("tofu", filters={"user_id": "ana"})["results"][0]["memory"] == "likes tofu"
        with pytest.raises(InvalidFilter, match="threshold has no effect without an encoder"):
            words.search("tofu", filters={"user_id": "ana"}, threshold=0.3)


def test_one_update_is_one_line_of_history_and_rewards_are_none() -> None:
    with Memory(":memory:", encoder="hashing") as m:
        (kept,) = m.add("likes tofu", user_id="ana", metadata={"a": 1}, infer=False)["results"]
        m.update(kept["id"], "likes tempeh", metadata={"b": 2})
        before = m.get(kept["id"])
        m.memory.reward(m.memory.search("tempeh", user_id="ana").decision, 1.0)
        assert [each["event"] for each in m.history(kept["id"])] == ["ADD", "UPDATE"]
        assert m.get(kept["id"]) == before
        assert before["updated_at"] > before["created_at"]


def test_a_memory_that_is_reset_is_empty_and_goes_on(tmp_path: Path) -> None:
    with Memory(str(tmp_path / "a.mem"), encoder="hashing") as m:
        m.add("my code is ZXQ", user_id="ana", infer=False)
        m.search("what is the code ZXQ", filters={"user_id": "ana"})
        m.reset()
        assert m.get_all(filters={"user_id": "ana"})["results"] == []
        m.add("a new start", user_id="ana", infer=False)
        assert [result["memory"] for result in m.search("start", filters={"user_id": "ana"})["results"]] == [
            "a new start"
        ]
    assert b"ZXQ" not in (tmp_path / "a.mem").read_bytes()


def test_the_awaited_one_does_the_same() -> None:
    async def story() -> None:
        async with AsyncMemory.from_config({"vector_store": RAM, "embedder": HASHING}) as m:
            done = await asyncio.gather(*(m.add(f"note {n}", user_id="ana", infer=False) for n in range(8)))
            assert {result["event"] for one in done for result in one["results"]} == {"ADD"}
            found = await m.get_all(filters={"user_id": "ana"}, top_k=5)
            assert len(found["results"]) == 5
            await m.update(found["results"][0]["id"], "another note")
            assert (await m.get(found["results"][0]["id"]))["memory"] == "another note"
            await m.delete_all(user_id="ana")
            assert (await m.search("note", filters={"user_id": "ana"})) == {"results": []}
            with pytest.raises(AttributeError, match="AsyncMemory has no 'chat'"):
                await m.chat("hello")

    asyncio.run(story())


RIVAL = os.environ.get("KEEPWORTH_RIVALS_PYTHON") or (sys.executable if importlib.util.find_spec("mem0") else "")


@pytest.mark.slow
@pytest.mark.skipif(not RIVAL, reason="mem0 is not installed: pip install mem0ai, or set KEEPWORTH_RIVALS_PYTHON")
def test_mem0_told_the_same_story_gives_the_same_answers(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"MEM0_TELEMETRY": "False", "MEM0_DIR": str(tmp_path)}
    done = subprocess.run(
        [RIVAL, mem0_story.__file__, str(tmp_path)], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr[-2000:]
    theirs = json.loads(done.stdout.splitlines()[-1])
    with mem0_story.models() as url:
        ours = json.loads(json.dumps(mem0_story.told(Memory.from_config(mem0_story.config(url, RAM)))))
    assert ours == theirs
    assert len(theirs) > 80


def test_our_side_of_the_story_holds_without_mem0() -> None:
    """What the story finds in mem0 beside it (see above), as far as it can be said without."""
    with mem0_story.models() as url:
        m = Memory.from_config(mem0_story.config(url, RAM))
        ours = mem0_story.told(m)
    assert ours["added"][0] == {
        "memory": "I like tofu soup.",
        "event": "ADD",
        "actor_id": "Ana",
        "role": "user",
    }
    assert [our["memory"] for our in ours["added"]] == ["I like tofu soup.", "Noted, tofu soup it is.", "Look here"]
    assert ours["get"] == {
        **dict.fromkeys(("id", "memory", "hash", "created_at", "updated_at", "user_id", "actor_id", "role"), "str"),
        "metadata": {"stars": "int", "topic": "str"},
        "score": "NoneType",
    }
    assert ours["infer"] == sorted(["ADD", text] for text in mem0_story.FACTS)
    assert ours["infer: who"] == sorted([who, text] for text, who in mem0_story.FACTS.items())
    assert ours["infer: nothing"] == {"results": []}
    assert all(outcome["raises"] for name, outcome in ours.items() if name.startswith("refused"))
    assert ours["reset: after"] == ours["delete_all: after"] == []


def test_errors_are_of_the_kinds_that_mem0_raises() -> None:
    with Memory(":memory:", encoder=None) as m:
        for call in (
            lambda: m.delete("m7"),
            lambda: m.update("m7", "x"),
            lambda: m.search(" ", filters={"user_id": "ana"}),
            lambda: m.delete_all(),
            lambda: m.add("x", user_id="ana", infer=False, prompt="Be brief."),
        ):
            with pytest.raises(ValueError, match=r"\w") as caught:
                call()
            assert isinstance(caught.value, MemoryProblem)
