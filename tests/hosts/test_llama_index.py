"""What the slot of LlamaIndex does beyond the contract of all slots."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from keepworth import Memory

pytest.importorskip("llama_index.core.memory", reason="llama-index-core is not installed: make test-hosts")

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import Memory as LlamaMemory

from keepworth.adapters.llama_index import KeepworthBlock


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory(":memory:", encoder="hashing") as opened:
        yield opened


def conversation(block: Any, **options: Any) -> LlamaMemory:
    return LlamaMemory.from_defaults(memory_blocks=[block], tokenizer_fn=str.split, **options)


def put(conversation: LlamaMemory, role: str, words: str) -> str:
    conversation.put(ChatMessage(role=role, content=words))
    return "\n".join(str(message.content) for message in conversation.get())


def test_statement_is_kept_at_once_and_the_turn_ends_with_the_answer(memory: Memory) -> None:
    talk = conversation(KeepworthBlock(memory, lambda turn: float(turn.answer == "In Oslo."), user_id="ana"))
    put(talk, "user", "I live in Oslo.")
    assert [item.text for item in memory.get_all(user_id="ana")] == ["I live in Oslo."]
    put(talk, "assistant", "Noted.")
    assert "<keepworth>" in put(talk, "user", "Where do I live?")
    talk.put(ChatMessage(role="assistant", content="In Oslo."))
    put(talk, "user", "Where do I live?")
    ends = [memory.episode_record(id).rewards for id in memory.episodes()]
    assert len(ends) == 3, "the same question after an answer is a turn of its own"
    assert {reward.name: reward.value for reward in ends[1]}["signal:repetition:ana"] == 0.0
    assert 1.0 in [reward.value for reward in ends[1]]


def test_a_turn_is_one_however_often_its_memory_is_read(memory: Memory) -> None:
    memory.add("Ana lives in Oslo.", user_id="ana")
    talk = conversation(KeepworthBlock(memory, user_id="ana"))
    assert put(talk, "user", "Where does Ana live?") == "\n".join(str(message.content) for message in talk.get())
    assert len(memory.episodes()) == 1


def test_conversations_at_once_have_turns_of_their_own(memory: Memory) -> None:
    block = KeepworthBlock(memory, user_id="ana")
    one, two = conversation(block, session_id="one"), conversation(block, session_id="two")
    put(one, "user", "Where do I live?")
    put(two, "user", "What do I eat?")
    one.get()
    assert len(memory.episodes()) == 2


def test_items_without_room_are_dropped_from_the_end(memory: Memory) -> None:
    for number in range(5):
        memory.add(f"Ana's note about the garden, number {number}.", user_id="ana")
    block = KeepworthBlock(memory, user_id="ana", priority=1)
    whole = put(conversation(block), "user", "What does Ana note about the garden?")
    less = put(conversation(block, token_limit=50), "user", "What does Ana note about the garden?")
    assert whole.count("- Ana's note") == 5
    assert 0 < less.count("- Ana's note") < 5
    assert "<keepworth>" not in put(conversation(block, token_limit=20), "user", "What does Ana note about the garden?")
