"""A conversation with an agent of Agno."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

PACKAGE = "agno"
SLOT = "keepworth.adapters.agno"
MODEL = "OpenAIChat"
if find_spec(PACKAGE) is not None:  # it reports home unless it is told not to
    os.environ["AGNO_TELEMETRY"] = "false"


def talk_class() -> Any:
    from agno.agent import Agent
    from agno.db.in_memory import InMemoryDb
    from agno.learn import LearningMachine
    from agno.models.base import Model
    from agno.models.response import ModelResponse

    from keepworth.adapters.agno import KeepworthLearningStore

    class Scripted(Model):
        def __init__(self, id: str = "scripted") -> None:
            super().__init__(id=id)
            self.answer, self.prompts, self.calls = "Noted.", [], []

        def invoke(self, messages: Any, **_: Any) -> Any:
            self.prompts.append("\n".join(str(message.content) for message in messages))
            if self.calls:
                name, arguments = self.calls.pop(0)
                call = {"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}
                return ModelResponse(role="assistant", tool_calls=[call])
            return ModelResponse(role="assistant", content=self.answer)

        async def ainvoke(self, messages: Any, **options: Any) -> Any:
            return self.invoke(messages, **options)

        def invoke_stream(self, messages: Any, **options: Any) -> Any:
            yield self.invoke(messages, **options)

        async def ainvoke_stream(self, messages: Any, **options: Any) -> Any:
            yield self.invoke(messages, **options)

        def _parse_provider_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

        def _parse_provider_response_delta(self, *_: Any) -> Any:
            raise NotImplementedError

    class AgnoTalk:
        model = Scripted

        def __init__(
            self, memory: Any, reward: Any = None, *, user_id: str = "", top_k: int = 5, **options: Any
        ) -> None:
            self.scripted, self.user_id = Scripted(), user_id or None
            store = KeepworthLearningStore(memory, reward, top_k=top_k)
            learning = LearningMachine(custom_stores={"keepworth": store})
            self.agent = Agent(model=self.scripted, db=InMemoryDb(), learning=learning, post_hooks=[store], **options)

        @property
        def prompts(self) -> list[str]:
            return self.scripted.prompts

        def say(self, message: str, answer: str) -> str:
            self.scripted.answer = answer
            return self.agent.run(message, user_id=self.user_id, session_id="s").content

        async def say_async(self, message: str, answer: str) -> str:
            self.scripted.answer = answer
            return (await self.agent.arun(message, user_id=self.user_id, session_id="s")).content

    return AgnoTalk
