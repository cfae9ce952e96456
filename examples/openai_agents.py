"""The OpenAI Agents SDK with conversations in one file, and a model that is told what earlier ones said."""

import asyncio

from openai import AsyncOpenAI
from stand_in import endpoint

from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner, set_tracing_disabled
from keepworth import Memory
from keepworth.memory.adapters.session import MemorySession


async def main(url, key, model):
    set_tracing_disabled(True)
    chat = OpenAIChatCompletionsModel(model=model, openai_client=AsyncOpenAI(base_url=url, api_key=key))
    agent = Agent(name="helper", instructions="Answer in one sentence.", model=chat)
    with Memory("sessions.mem", encoder="hashing") as memory:
        monday = MemorySession("monday", memory, user_id="ana")
        await Runner.run(agent, "I am allergic to peanuts.", session=monday)

        tuesday = MemorySession("tuesday", memory, user_id="ana")
        config = RunConfig(call_model_input_filter=tuesday.recalling(top_k=3))
        answer = await Runner.run(agent, "Can I have the allergic menu?", session=tuesday, run_config=config)
        print("items of tuesday:", len(await tuesday.get_items()))
        print("answer:", answer.final_output)


with endpoint() as (url, key, model):
    asyncio.run(main(url, key, model))
