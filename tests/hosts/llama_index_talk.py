"""A conversation with an agent of LlamaIndex, whose memory is read after each answer, which finishes the turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

PACKAGE = "llama-index-core"
SLOT = "keepworth.adapters.llama_index"
MODEL = "OpenAI"


def talk_class() -> Any:
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.core.base.llms.types import ChatMessage, ChatResponse
    from llama_index.core.llms import MockLLM
    from llama_index.core.llms.function_calling import FunctionCallingLLM
    from llama_index.core.memory import Memory
    from pydantic import Field

    from keepworth.adapters.llama_index import KeepworthBlock

    class Scripted(MockLLM, FunctionCallingLLM):
        answer: str = ""
        prompts: list[str] = Field(default_factory=list)

        @property
        def metadata(self) -> Any:
            return super().metadata.model_copy(update={"is_function_calling_model": True})

        async def achat_with_tools(self, tools: Any, chat_history: Any = (), **_: Any) -> Any:
            self.prompts.append("\n".join(str(message.content) for message in chat_history))
            return ChatResponse(message=ChatMessage(role="assistant", content=self.answer))

        async def astream_chat_with_tools(self, tools: Any, chat_history: Any = (), **_: Any) -> Any:
            response = await self.achat_with_tools(tools, chat_history)

            async def stream() -> AsyncIterator[Any]:
                yield response

            return stream()

        def _prepare_chat_with_tools(self, tools: Any, **_: Any) -> Any:
            return {}

        def get_tool_calls_from_response(self, response: Any, **_: Any) -> list[Any]:
            return []

    class LlamaIndexTalk:
        @staticmethod
        def model(model: str) -> Any:
            return Scripted()

        def __init__(self, memory: Any, reward: Any = None, *, user_id: str = "", top_k: int = 5) -> None:
            self.scripted = Scripted()
            self.agent = FunctionAgent(llm=self.scripted)
            self.memory = Memory.from_defaults(
                memory_blocks=[KeepworthBlock(memory, reward, user_id=user_id, top_k=top_k)], tokenizer_fn=str.split
            )

        @property
        def prompts(self) -> list[str]:
            return self.scripted.prompts

        def say(self, message: str, answer: str) -> str:
            return asyncio.run(self.say_async(message, answer))

        async def say_async(self, message: str, answer: str) -> str:
            self.scripted.answer = answer
            response = await self.agent.run(message, memory=self.memory)
            await self.memory.aget()
            return str(response)

    return LlamaIndexTalk
