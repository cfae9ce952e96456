"""A conversation with Claude, whose answers come from a stand-in for the network."""

from __future__ import annotations

import json
from typing import Any

PACKAGE = "anthropic"
SLOT = "keepworth.adapters.claude"
MODEL = "Anthropic"


def talk_class() -> Any:
    import anthropic
    import httpx2

    from keepworth.adapters.claude import AsyncKeepworthMemoryTool, KeepworthMemoryTool

    class Network:
        def __init__(self) -> None:
            self.answer, self.prompts = "", []

        def __call__(self, request: Any) -> Any:
            self.prompts.append("\n".join(_texts(json.loads(request.content)["messages"])))
            content = [{"type": "text", "text": self.answer}]
            usage = {"input_tokens": 1, "output_tokens": 1}
            message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-5-5"}
            return httpx2.Response(
                200,
                json={**message, "content": content, "stop_reason": "end_turn", "stop_sequence": None, "usage": usage},
            )

        async def later(self, request: Any) -> Any:
            return self(request)

    def client_of(network: Network) -> Any:
        transport = httpx2.MockTransport(network)
        return anthropic.Anthropic(api_key="none", http_client=anthropic.DefaultHttpxClient(transport=transport))

    def async_client_of(network: Network) -> Any:
        client = anthropic.DefaultAsyncHttpxClient(transport=httpx2.MockTransport(network.later))
        return anthropic.AsyncAnthropic(api_key="none", http_client=client)

    class ClaudeTalk:
        @staticmethod
        def model() -> Any:
            return client_of(Network())

        def __init__(self, memory: Any, reward: Any = None, *, user_id: str = "", top_k: int = 5) -> None:
            self.network, self.said = Network(), []
            self.tool = KeepworthMemoryTool(memory, reward, user_id=user_id, top_k=top_k)
            self.async_tool = AsyncKeepworthMemoryTool(memory, reward, user_id=user_id, top_k=top_k)
            self.options = {"model": "claude-sonnet-5-5", "max_tokens": 100, "messages": self.said}

        @property
        def prompts(self) -> list[str]:
            return self.network.prompts

        def say(self, message: str, answer: str) -> str:
            self.network.answer = answer
            self.said.append({"role": "user", "content": message})
            return self._answered(self.tool.run(client_of(self.network), **self.options))

        async def say_async(self, message: str, answer: str) -> str:
            self.network.answer = answer
            self.said.append({"role": "user", "content": message})
            return self._answered(await self.async_tool.run(async_client_of(self.network), **self.options))

        def _answered(self, last: Any) -> str:
            self.said.append({"role": "assistant", "content": last.content[0].text})
            return str(last.content[0].text)

    return ClaudeTalk


def _texts(messages: Any) -> Any:
    for message in messages:
        content = message["content"]
        yield from [content] if isinstance(content, str) else (part["text"] for part in content)
