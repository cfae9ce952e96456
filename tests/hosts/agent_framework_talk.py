"""A conversation with an agent of Microsoft Agent Framework."""

from __future__ import annotations

import asyncio
from typing import Any

PACKAGE = "agent-framework-core"
SLOT = "keepworth.adapters.agent_framework"
MODEL = "OpenAIChatClient"


def talk_class() -> Any:
    from agent_framework import Agent, BaseChatClient, ChatResponse, Message

    from keepworth.adapters.agent_framework import KeepworthProvider

    class Scripted(BaseChatClient):
        def __init__(self) -> None:
            super().__init__()
            self.answer, self.prompts = "", []

        async def _inner_get_response(self, *, messages: Any, options: Any, stream: bool = False, **_: Any) -> Any:
            self.prompts.append("\n".join(message.text for message in messages))
            return ChatResponse(messages=[Message(role="assistant", contents=[self.answer])])

    class AgentFrameworkTalk:
        model = Scripted

        def __init__(self, memory: Any, reward: Any = None, *, user_id: str = "", top_k: int = 5) -> None:
            self.client = Scripted()
            provider = KeepworthProvider(memory, reward, user_id=user_id, top_k=top_k)
            self.agent = Agent(client=self.client, context_providers=[provider])
            self.session = self.agent.create_session()

        @property
        def prompts(self) -> list[str]:
            return self.client.prompts

        def say(self, message: str, answer: str) -> str:
            return asyncio.run(self.say_async(message, answer))

        async def say_async(self, message: str, answer: str) -> str:
            self.client.answer = answer
            return (await self.agent.run(message, session=self.session)).text

    return AgentFrameworkTalk
