"""A conversation with an agent of CrewAI."""

from __future__ import annotations

import os
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PACKAGE = "crewai"
SLOT = "keepworth.adapters.crewai"
MODEL = "LLM"
if find_spec(PACKAGE) is not None:  # it reports home, and keeps what tasks put out, unless it is told not to
    os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false", "OTEL_SDK_DISABLED": "true"}
    os.environ["CREWAI_STORAGE_DIR"] = str(Path(tempfile.gettempdir()) / f"keepworth-crewai-{os.getpid()}")


def talk_class() -> Any:
    from crewai import Agent, BaseLLM
    from pydantic import Field

    from keepworth.adapters.crewai import KeepworthMemory

    class Scripted(BaseLLM):
        answer: str = "Noted."
        prompts: list[str] = Field(default_factory=list)
        calls: list[str] = Field(default_factory=list)

        def __init__(self, model: str = "scripted", **fields: Any) -> None:
            super().__init__(model=model, **fields)

        def call(self, messages: Any, *_: Any, **__: Any) -> str:
            self.prompts.append("\n".join(str(message["content"]) for message in messages))
            return self.calls.pop(0) if self.calls else f"Thought: I know.\nFinal Answer: {self.answer}"

        async def acall(self, messages: Any, *_: Any, **__: Any) -> str:
            return self.call(messages)

        def supports_function_calling(self) -> bool:
            return False

    class CrewAITalk:
        model = Scripted

        def __init__(
            self, memory: Any, reward: Any = None, *, user_id: str = "", top_k: int = 5, **options: Any
        ) -> None:
            self.scripted = Scripted()
            self.memory = KeepworthMemory(memory, reward, user_id=user_id, top_k=top_k)
            about = {"role": "Helper", "goal": "Help", "backstory": "You help."}
            self.agent = Agent(**about, llm=self.scripted, memory=self.memory, **options)

        @property
        def prompts(self) -> list[str]:
            return self.scripted.prompts

        def say(self, message: str, answer: str) -> str:
            self.scripted.answer = answer
            return self.agent.kickoff(message).raw

        async def say_async(self, message: str, answer: str) -> str:
            self.scripted.answer = answer
            return (await self.agent.kickoff_async(message)).raw

    return CrewAITalk
