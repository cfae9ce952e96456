"""The session of the OpenAI Agents SDK: what the protocol asks, and the SDK's own runner on top of it."""

from __future__ import annotations

import asyncio
import multiprocessing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from keepworth import Memory
from keepworth.memory.adapters.session import MemorySession
from keepworth.memory.errors import InvalidFilter, InvalidScope, InvalidText

from ..serving.scripted import scripted
from .stub_encoder import WordEncoder


def memory(path: Any = ":memory:") -> Memory:
    return Memory(path, encoder=WordEncoder(32), policy=None)


def said(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


@dataclass
class Settings:
    limit: int | None = None


def test_items_come_back_as_they_were_given_and_in_order() -> None:
    async def story() -> None:
        session = MemorySession("one", memory(), session_settings=Settings(limit=2))
        items = [
            said("hello"),
            {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c1"},
            {"type": "function_call_output", "call_id": "c1", "output": "half a sign \ud800 and \x00"},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "hi", "logprobs": []}],
            },
            {"deep": float("inf")},
        ]
        await session.add_items(items)
        await session.add_items([])
        await session.add_items([said("hello")])
        assert await session.get_items(100) == [*items, said("hello")]
        assert await session.get_items() == [items[-1], said("hello")]
        assert await session.get_items(0) == []
        assert await session.pop_item() == said("hello")
        with pytest.raises(InvalidText, match="nothing was stored"):
            await session.add_items([said("first"), {"x": object()}])
        assert await session.get_items(100) == items

    asyncio.run(story())
    with pytest.raises(InvalidFilter, match="SessionSettings"):
        MemorySession("one", memory(), session_settings=7)


def _add_then_pop(path: str, name: str, written: Any, out: Any) -> None:
    with memory(path) as m:
        session = MemorySession("shared", m)
        for turn in range(8):
            asyncio.run(session.add_items([{"turn": turn, "part": part, "by": name} for part in range(3)]))
        written.wait(60)  # the test reads what is there
        written.wait(60)
        taken = []
        while (item := asyncio.run(session.pop_item())) is not None:
            taken.append(item)
        out.put(taken)


def test_processes_add_whole_turns_in_order_and_pop_each_item_once(tmp_path: Path) -> None:
    path = str(tmp_path / "a.mem")
    memory(path).close()
    context = multiprocessing.get_context("spawn")
    written, out = context.Barrier(3), context.Queue()
    processes = [context.Process(target=_add_then_pop, args=(path, name, written, out)) for name in "ab"]
    for each in processes:
        each.start()
    written.wait(60)
    with memory(path) as m:
        items = asyncio.run(MemorySession("shared", m).get_items())
    written.wait(60)
    popped = [out.get(timeout=60) for _ in processes]
    for each in processes:
        each.join(60)
    turns = [items[start : start + 3] for start in range(0, len(items), 3)]
    assert [[each["part"] for each in turn] for turn in turns] == [[0, 1, 2]] * 16
    for name in "ab":
        assert [turn[0]["turn"] for turn in turns if turn[0]["by"] == name] == list(range(8))
        assert all(each["by"] == turn[0]["by"] for turn in turns for each in turn)

    def known(item: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(item.values())

    assert sorted(known(each) for taken in popped for each in taken) == sorted(map(known, items)), "each once"


@dataclass
class Model:
    input: list[Any]
    instructions: str | None = None


@dataclass
class Call:
    model_data: Model


def test_what_was_said_in_other_sessions_is_told_and_not_kept() -> None:
    async def story() -> None:
        m = memory()
        m.add("Ana likes tofu soup", user_id="ana")
        m.add("Bo likes tofu soup", user_id="bo")
        earlier, now = (MemorySession(name, m, user_id="ana") for name in ("earlier", "now"))
        await earlier.add_items([said("my soup needs tofu"), said("tofu soup noted", "assistant")])
        await now.add_items([said("tofu soup please")])
        recall = now.recalling(top_k=3)
        call = Call(Model([*await now.get_items(), {"type": "function_call"}], "Be brief."))
        told = (await recall(call)).instructions
        assert told.startswith("Be brief.\n\nWhat is remembered of this user from before:\n- ")
        assert sorted(told.split("\n- ")[1:]) == ["Ana likes tofu soup", "my soup needs tofu", "tofu soup noted"]
        assert call.model_data.instructions == "Be brief.", "what was given is not changed"
        assert len(await now.get_items()) == 1
        assert await recall(Call(Model([{"type": "function_call"}]))) == Model([{"type": "function_call"}])
        assert (await now.recalling(threshold=2.0)(Call(Model([said("tofu")])))).instructions is None

    asyncio.run(story())
    with pytest.raises(InvalidScope, match="user_id"):
        MemorySession("now", memory()).recalling()


def test_the_sdk_s_runner_goes_on_with_a_session() -> None:
    agents = pytest.importorskip("agents", reason="the OpenAI Agents SDK is not installed: pip install openai-agents")
    openai = pytest.importorskip("openai", reason="openai is not installed: pip install openai")
    agents.set_tracing_disabled(True)

    def answer(asked: dict[str, Any]) -> dict[str, Any]:
        called = any(each["role"] == "tool" for each in asked["messages"])
        message: dict[str, Any] = {"role": "assistant", "content": f"{len(asked['messages'])} messages"}
        if "weather" in str(asked["messages"][-1]["content"]) and not called:
            call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}

    @agents.function_tool
    def weather(city: str) -> str:
        """The weather in a city."""
        return f"rain in {city}"

    async def story(url: str) -> list[Any]:
        m = memory()
        earlier = MemorySession("earlier", m, user_id="ana")
        await earlier.add_items([said("I never carry an umbrella")])
        client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k")
        model = agents.OpenAIChatCompletionsModel(model="m", openai_client=client)
        agent = agents.Agent(name="helper", instructions="Be brief.", model=model, tools=[weather])
        session = MemorySession("now", m, user_id="ana", session_settings=agents.SessionSettings(limit=50))
        assert isinstance(session, agents.Session)
        config = agents.RunConfig(call_model_input_filter=session.recalling(top_k=1))
        first = await agents.Runner.run(agent, "the weather, and an umbrella?", session=session, run_config=config)
        again = MemorySession("now", m, user_id="ana")
        second = await agents.Runner.run(agent, "and tomorrow?", session=again)
        assert first.final_output == "4 messages"
        assert second.final_output == "6 messages", "system, question, call, output, answer, question"
        assert await earlier.get_items() == [said("I never carry an umbrella")]
        return await session.get_items()

    with scripted((200, answer)) as server:
        items = asyncio.run(story(server.url))
    assert [each.get("type") or each["role"] for each in items] == [
        "user",
        "function_call",
        "function_call_output",
        "message",
        "user",
        "message",
    ]
    system = [each["messages"][0]["content"] for each in server.asked]
    assert ["umbrella" in each for each in system] == [True, True, False]
    assert "umbrella" not in str(items[1:])
