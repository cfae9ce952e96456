"""A conversation with an agent of the OpenAI Agents SDK."""

from __future__ import annotations

from typing import Any

PACKAGE = "openai-agents"
SLOT = "keepworth.adapters.openai_agents"
MODEL = "LitellmModel"


def talk_class() -> Any:
    from openai.types.responses import ResponseOutputMessage, ResponseOutputText

    from agents import Agent, Model, ModelResponse, Runner, Usage
    from keepworth.adapters.openai_agents import KeepworthSession

    class Scripted(Model):
        def __init__(self, **_: Any) -> None:
            self.answer, self.prompts = "", []

        async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> Any:
            self.prompts.append("\n".join(str(item.get("content")) for item in input))
            text = ResponseOutputText(text=self.answer, type="output_text", annotations=[])
            message = ResponseOutputMessage(
                id="m", type="message", role="assistant", status="completed", content=[text]
            )
            return ModelResponse(output=[message], usage=Usage(), response_id=None)

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    class OpenAIAgentsTalk:
        model = Scripted

        def __init__(self, memory: Any, reward: Any = None, *, user_id: str = "", top_k: int = 5) -> None:
            self.scripted = Scripted()
            self.agent = Agent(name="Assistant", model=self.scripted)
            self.session = KeepworthSession(memory, reward, user_id=user_id, top_k=top_k)
            self.session.run_config.tracing_disabled = True

        @property
        def prompts(self) -> list[str]:
            return self.scripted.prompts

        def say(self, message: str, answer: str) -> str:
            self.scripted.answer = answer
            run_config = self.session.run_config
            return Runner.run_sync(self.agent, message, session=self.session, run_config=run_config).final_output

        async def say_async(self, message: str, answer: str) -> str:
            self.scripted.answer = answer
            run_config = self.session.run_config
            return (await Runner.run(self.agent, message, session=self.session, run_config=run_config)).final_output

    return OpenAIAgentsTalk
