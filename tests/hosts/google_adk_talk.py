"""A conversation with an agent of Google ADK, which loads memory before each call and saves its session after each turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

PACKAGE = "google-adk"
SLOT = "keepworth.adapters.google_adk"
MODEL = "Gemini"


def talk_class() -> Any:
    from google.adk.agents import Agent
    from google.adk.models.base_llm import BaseLlm
    from google.adk.models.llm_response import LlmResponse
    from google.adk.runners import Runner
    from google.adk.sessions import InMemorySessionService
    from google.adk.tools.preload_memory_tool import PreloadMemoryTool
    from google.genai import types
    from pydantic import Field

    from keepworth.adapters.google_adk import KeepworthMemoryService

    class Scripted(BaseLlm):
        answer: str = ""
        prompts: list[str] = Field(default_factory=list)

        async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncIterator[Any]:
            parts = [part for content in llm_request.contents for part in content.parts or ()]
            self.prompts.append("\n".join(part.text or "" for part in parts))
            yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=self.answer)]))

    async def save(callback_context: Any) -> None:
        await callback_context.add_session_to_memory()

    class GoogleAdkTalk:
        model = Scripted

        def __init__(self, memory: Any, reward: Any = None, *, user_id: str = "", top_k: int = 5) -> None:
            self.scripted, self.user_id, self.sessions = Scripted(model="scripted"), user_id, InMemorySessionService()
            self.agent = Agent(
                name="helper", model=self.scripted, tools=[PreloadMemoryTool()], after_agent_callback=save
            )
            self.runner = Runner(
                agent=self.agent,
                app_name="app",
                session_service=self.sessions,
                memory_service=KeepworthMemoryService(memory, reward, apps_apart=False, top_k=top_k),
                auto_create_session=True,
            )

        @property
        def prompts(self) -> list[str]:
            return self.scripted.prompts

        def say(self, message: str, answer: str) -> str:
            return asyncio.run(self.say_async(message, answer))

        async def say_async(self, message: str, answer: str) -> str:
            self.scripted.answer, words = answer, ""
            content = types.Content(role="user", parts=[types.Part(text=message)])
            async for event in self.runner.run_async(user_id=self.user_id, session_id="s", new_message=content):
                words = event.content.parts[0].text if event.content else words
            return words

    return GoogleAdkTalk
