"""A conversation with an agent of Strands."""

from __future__ import annotations

from typing import Any

PACKAGE = "strands-agents"
SLOT = "keepworth.adapters.strands"
MODEL = "BedrockModel"


def talk_class() -> Any:
    from strands import Agent
    from strands.models import Model

    from keepworth.adapters.strands import KeepworthManager

    class Scripted(Model):
        def __init__(self) -> None:
            self.answer, self.prompts = "", []

        def update_config(self, **_: Any) -> None:
            raise NotImplementedError

        def get_config(self) -> dict[str, Any]:
            return {}

        def structured_output(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

        async def stream(self, messages: Any, *_: Any, **__: Any) -> Any:
            texts = [block.get("text", "") for message in messages for block in message["content"]]
            self.prompts.append("\n".join(texts))
            yield {"messageStart": {"role": "assistant"}}
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": self.answer}}}
            yield {"contentBlockStop": {}}
            yield {"messageStop": {"stopReason": "end_turn"}}

    class StrandsTalk:
        model = Scripted

        def __init__(self, memory: Any, reward: Any = None, *, user_id: str = "", top_k: int = 5) -> None:
            self.scripted = Scripted()
            manager = KeepworthManager(memory, reward, user_id=user_id, top_k=top_k)
            self.agent = Agent(model=self.scripted, memory_manager=manager, callback_handler=None)

        @property
        def prompts(self) -> list[str]:
            return self.scripted.prompts

        def say(self, message: str, answer: str) -> str:
            self.scripted.answer = answer
            return str(self.agent(message)).strip()

        async def say_async(self, message: str, answer: str) -> str:
            self.scripted.answer = answer
            return str(await self.agent.invoke_async(message)).strip()

    return StrandsTalk
