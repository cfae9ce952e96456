"""A tool that fails in a turn is an outcome of what the turn showed, and the model's own search belongs to the turn."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from keepworth import Memory


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory(":memory:", encoder="hashing") as opened:
        opened.add("Deploy with: make ship", user_id="ana")
        opened.add("The invoices are in the drawer", user_id="ana")
        yield opened


def rewards(memory: Memory) -> list[tuple[str, float]]:
    (episode,) = memory.episodes()
    return [(reward.name, reward.value) for reward in memory.episode_record(episode).rewards]


@pytest.mark.parametrize("broken", [False, True])
def test_a_tool_of_agent_framework(memory: Memory, broken: bool) -> None:
    framework = pytest.importorskip("agent_framework", reason="agent-framework-core is not installed: make test-hosts")
    from keepworth.adapters.agent_framework import KeepworthProvider

    def deploy() -> str:
        """Deploy the service."""
        if broken:
            raise RuntimeError("no such target")
        return "deployed"

    class Scripted(framework.FunctionInvocationLayer, framework.BaseChatClient):
        calls = 0

        async def _inner_get_response(self, *, messages: Any, options: Any, stream: bool = False, **_: Any) -> Any:
            self.calls += 1
            call = framework.Content.from_function_call("c1", "deploy", arguments="{}")
            contents = [call] if self.calls == 1 else ["Done."]
            return framework.ChatResponse(messages=[framework.Message(role="assistant", contents=contents)])

    provider = KeepworthProvider(memory, user_id="ana")
    agent = framework.Agent(client=Scripted(), context_providers=[provider], tools=[deploy])
    assert asyncio.run(agent.run("How do I deploy?")).text == "Done."
    assert rewards(memory) == ([("signal:tool-failed:ana", 0.0)] if broken else [])


@pytest.mark.parametrize("broken", [False, True])
def test_a_tool_of_strands_and_the_models_own_search(memory: Memory, broken: bool) -> None:
    strands = pytest.importorskip("strands", reason="strands-agents is not installed: make test-hosts")
    from keepworth.adapters.strands import KeepworthManager

    @strands.tool
    def deploy() -> str:
        """Deploy the service."""
        if broken:
            raise RuntimeError("no such target")
        return "deployed"

    class Scripted(strands.models.Model):
        script = (("search_memory", '{"query": "where are the invoices"}'), ("deploy", "{}"))

        def update_config(self, **_: Any) -> None:
            raise NotImplementedError

        def get_config(self) -> dict[str, Any]:
            return {}

        def structured_output(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

        async def stream(self, messages: Any, *_: Any, **__: Any) -> Any:
            turn = sum(message["role"] == "assistant" for message in messages)
            yield {"messageStart": {"role": "assistant"}}
            if turn < len(self.script):
                name, arguments = self.script[turn]
                yield {"contentBlockStart": {"start": {"toolUse": {"name": name, "toolUseId": f"t{turn}"}}}}
                yield {"contentBlockDelta": {"delta": {"toolUse": {"input": arguments}}}}
            else:
                yield {"contentBlockStart": {"start": {}}}
                yield {"contentBlockDelta": {"delta": {"text": "Done."}}}
            yield {"contentBlockStop": {}}
            yield {"messageStop": {"stopReason": "tool_use" if turn < len(self.script) else "end_turn"}}

    manager = KeepworthManager(memory, user_id="ana")
    agent = strands.Agent(model=Scripted(), memory_manager=manager, tools=[deploy], callback_handler=None)
    assert str(agent("How do I deploy?")).strip() == "Done."
    results = str([message for message in agent.messages if message["role"] == "user"])
    assert "invoices are in the drawer" in results
    assert rewards(memory) == ([("signal:tool-failed:ana", 0.0)] if broken else [])
    (episode,) = memory.episodes()
    assert [decision.query for decision in memory.episode_record(episode).decisions][1].endswith(
        "where are the invoices"
    )
