"""The drop-in for mem0: configurations, models, and what its calls answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from keepworth.memory import memory as engine
from keepworth.memory.adapters.mem0 import Memory
from keepworth.memory.errors import InvalidFilter
from tests.serving.scripted import scripted

RAM = {"provider": "keepworth", "config": {"path": ":memory:"}}
HASHING = {"provider": "keepworth", "config": {"model": "hashing"}}
VARIABLES = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL", "KEEPWORTH_ENCODER_KEY")
ANA = {"user_id": "ana"}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def says(text: str) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]}


def test_without_a_model_facts_are_found_by_rules(tmp_path: Path) -> None:
    with Memory.from_config({"embedder": HASHING}) as m:
        m.add("I live in Bergen.", user_id="ana")
        m.add([{"role": "user", "content": "I moved to Oslo."}], user_id="ana")
    assert (tmp_path / "keepworth.mem").exists()
    with Memory() as again:
        assert [result["memory"] for result in again.get_all(filters={"user_id": "ana"})["results"]] == [
            "I moved to Oslo."
        ]


def test_a_section_for_a_model_behind_a_url_takes_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k3y")
    with scripted((200, says('{"facts": ["Ana likes to sing."]}'))) as chat:
        server = {"openai_base_url": f"{chat.url}/v1", "model": "m", "temperature": 0.7, "max_tokens": 99}
        config = {"vector_store": RAM, "llm": {"provider": "openai", "config": server}, "embedder": HASHING}
        with Memory.from_config(config) as m:
            (done,) = m.add("I sing, and like tofu.", user_id="ana")["results"]
            assert (done["event"], done["memory"]) == ("ADD", "Ana likes to sing.")
            assert m.search("who likes to sing", filters=ANA)["results"][0]["memory"] == "Ana likes to sing."
    first = chat.asked[0]
    assert (first["temperature"], first["max_tokens"], first["key"]) == (0.7, 99, "Bearer k3y")


REFUSED: dict[str, tuple[Any, str]] = {
    "a vector store": ({"vector_store": {"provider": "qdrant", "config": {}}}, "vector_store.provider"),
    "a graph": ({"graph_store": {"provider": "neo4j"}}, "graph_store"),
    "an option": ({"llm": {"provider": "openai", "config": {"top_p": 0.5}}}, "llm.config.top_p"),
    "another protocol": ({"llm": {"provider": "anthropic", "config": {}}}, "llm.provider"),
    "an encoder of others": ({"embedder": {"provider": "openai"}}, "embedder.provider"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_of_a_configuration_has_no_effect_is_an_error(name: str, tmp_path: Path) -> None:
    config, message = REFUSED[name]
    with pytest.raises(InvalidFilter, match=message):
        Memory.from_config(config)
    assert not list(tmp_path.iterdir()), "there is no file yet"


def test_one_update_is_one_line_of_history_and_rewards_are_none() -> None:
    with Memory(engine.Memory(encoder="hashing")) as m:
        (kept,) = m.add("likes tofu", user_id="ana", metadata={"a": 1}, infer=False)["results"]
        m.update(kept["id"], "likes tempeh", metadata={"b": 2})
        before = m.get(kept["id"])
        m.memory.reward(m.memory.search("tempeh", user_id="ana").decision, 1.0)
        assert [each["event"] for each in m.history(kept["id"])] == ["ADD", "UPDATE"]
        assert m.get(kept["id"]) == before
        assert before["updated_at"] > before["created_at"]


def test_a_memory_that_is_reset_is_empty_and_goes_on(tmp_path: Path) -> None:
    with Memory(engine.Memory(tmp_path / "a.mem", encoder="hashing")) as m:
        m.add("my code is ZXQ", user_id="ana", infer=False)
        m.search("what is the code ZXQ", filters={"user_id": "ana"})
        m.reset()
        assert m.get_all(filters={"user_id": "ana"})["results"] == []
        m.add("a new start", user_id="ana", infer=False)
        assert [result["memory"] for result in m.search("start", filters={"user_id": "ana"})["results"]] == [
            "a new start"
        ]
    assert b"ZXQ" not in (tmp_path / "a.mem").read_bytes()


def test_calls_answer_with_the_dictionaries_of_mem0() -> None:
    talk = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "I like tofu soup."},
        {"role": "assistant", "content": "Noted, tofu soup it is."},
    ]
    with Memory.from_config({"vector_store": RAM, "embedder": HASHING}) as m:
        added = m.add(talk, user_id=" ana ", metadata={"topic": "food"}, infer=False)["results"]
        assert [(each["event"], each["memory"]) for each in added] == [("ADD", each["content"]) for each in talk[1:]]
        assert (
            m.add("I like tofu soup.", user_id="ana", metadata={"topic": "food"}, infer=False)["results"][0]["event"]
            == "NONE"
        )
        m.add("I play chess.", user_id="bo", infer=False)
        first = added[0]["id"]
        kept = m.get(first)
        assert kept is not None
        assert set(kept) == {
            *("id", "memory", "hash", "metadata", "created_at", "updated_at", "user_id", "role", "score"),
        }
        assert (kept["metadata"], kept["user_id"], kept["role"], kept["score"]) == (
            {"topic": "food"},
            "ana",
            "user",
            None,
        )
        scores = [each["score"] for each in m.search(" tofu soup ", filters=ANA)["results"]]
        assert scores == sorted(scores, reverse=True) != []
        assert len(m.get_all(filters=ANA, top_k=1)["results"]) == 1
        m.delete(first)
        assert m.get(first) is m.get("11111111") is None
        assert [each["event"] for each in m.history(first)] == ["ADD", "DELETE"]
        assert m.history("11111111") == []
        refused: list[Callable[[], Any]] = [
            lambda: m.add("x", infer=False),
            lambda: m.add("x", user_id="  ", infer=False),
            lambda: m.add(7, user_id="ana", infer=False),  # type: ignore[arg-type]
            lambda: m.search("tofu"),
            lambda: m.search("tofu", filters={"topic": "food"}),
            lambda: m.search("  ", filters=ANA),
            lambda: m.get_all(),
            lambda: m.update(added[1]["id"]),
            lambda: m.update("11111111", "x"),
            lambda: m.delete(first),
            lambda: m.delete_all(),
        ]
        for call in refused:
            with pytest.raises(ValueError):  # noqa: PT011
                call()
        m.delete_all(user_id="ana")
        assert m.get_all(filters=ANA)["results"] == []
        assert [each["memory"] for each in m.get_all(filters={"user_id": "bo"})["results"]] == ["I play chess."]
