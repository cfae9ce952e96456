"""What the slot of Pydantic AI does beyond the contract of all slots."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keepworth import Memory

pytest.importorskip("pydantic_ai.capabilities", reason="pydantic-ai-slim is not installed: make test-hosts")

from pydantic_ai import Agent, BinaryContent
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import FunctionModel

from keepworth.adapters.pydantic_ai import KeepworthCapability


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "agent.mem", encoder="hashing") as opened:
        opened.add("Run the tests with: make test", user_id="ana")
        yield opened


def prompt_of(messages: Any) -> Any:
    return [part.content for message in messages for part in message.parts if isinstance(part, UserPromptPart)][-1]


def test_all_requests_of_a_run_show_the_same_once_and_the_history_never(memory: Memory) -> None:
    prompts = []

    def reply(messages: Any, _: Any) -> ModelResponse:
        prompts.append(prompt_of(messages))
        done = any(isinstance(part, ToolReturnPart) for message in messages for part in message.parts)
        return ModelResponse(parts=[TextPart("It fails.") if done else ToolCallPart("shell", {"command": "make test"})])

    agent = Agent(FunctionModel(reply), capabilities=[KeepworthCapability(memory, user_id="ana")])

    @agent.tool_plain
    def shell(command: str) -> str:
        raise ToolFailed("2 failed")

    result = agent.run_sync("run the tests")
    assert prompts[0] == prompts[1]
    assert prompts[0].endswith("- Run the tests with: make test\n\nrun the tests")
    assert prompt_of(result.all_messages()) == "run the tests"
    (episode,) = memory.episodes()
    assert [reward.name for reward in memory.episode_record(episode).rewards] == ["signal:check-failed:ana"]


def test_a_prompt_with_a_picture_keeps_it(memory: Memory) -> None:
    prompts = []

    def reply(messages: Any, _: Any) -> ModelResponse:
        prompts.append(prompt_of(messages))
        return ModelResponse(parts=[TextPart("Yes.")])

    picture = BinaryContent(b"\x00", media_type="image/png")
    Agent(FunctionModel(reply), capabilities=[KeepworthCapability(memory, user_id="ana")]).run_sync(
        ["run the tests", picture]
    )
    assert "make test" in prompts[0][0]
    assert prompts[0][1:] == ["run the tests", picture]


def test_an_agent_serves_many_at_once(memory: Memory) -> None:
    prompts = {}

    def reply(messages: Any, _: Any) -> ModelResponse:
        words = prompt_of(messages)
        prompts[words.splitlines()[-1]] = words
        return ModelResponse(parts=[TextPart("Done.")])

    capability = KeepworthCapability(memory, user_id=lambda context: context.deps)
    agent = Agent(FunctionModel(reply), deps_type=str, capabilities=[capability])

    async def serve() -> None:
        runs = [agent.run(f"run the tests for {name}", deps=name) for name in ("ana", "bo", "cy")]
        await asyncio.gather(*runs)

    asyncio.run(serve())
    assert ["make test" in prompts[f"run the tests for {name}"] for name in ("ana", "bo", "cy")] == [True, False, False]
