"""A conversation with an agent of Pydantic AI."""

from __future__ import annotations

from typing import Any

PACKAGE = "pydantic-ai-slim"
SLOT = "keepworth.adapters.pydantic_ai"
MODEL = "OpenAIChatModel"


def talk_class() -> Any:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart
    from pydantic_ai.models.function import FunctionModel

    from keepworth.adapters.pydantic_ai import KeepworthCapability

    def scripted(_: str) -> Any:
        return FunctionModel(lambda messages, info: ModelResponse(parts=[TextPart("Noted.")]))

    class PydanticAITalk:
        model = staticmethod(scripted)

        def __init__(self, memory: Any, reward: Any = None, *, user_id: str = "", top_k: int = 5) -> None:
            self.answer, self.prompts, self.messages = "", [], []
            capability = KeepworthCapability(memory, reward, user_id=lambda context: context.deps, top_k=top_k)
            self.agent, self.person = (
                Agent(FunctionModel(self._reply), deps_type=str, capabilities=[capability]),
                user_id,
            )

        def _reply(self, messages: Any, info: Any) -> Any:
            parts = [part for message in messages for part in message.parts]
            self.prompts.append("\n".join(str(part.content) for part in parts))
            return ModelResponse(parts=[TextPart(self.answer)])

        def say(self, message: str, answer: str) -> str:
            self.answer = answer
            return self._go_on(self.agent.run_sync(message, deps=self.person, message_history=self.messages))

        async def say_async(self, message: str, answer: str) -> str:
            self.answer = answer
            return self._go_on(await self.agent.run(message, deps=self.person, message_history=self.messages))

        def _go_on(self, result: Any) -> str:
            self.messages = result.all_messages()
            return str(result.output)

    return PydanticAITalk
