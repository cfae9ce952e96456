"""Agents as people write them, with the clients of OpenAI and Anthropic and a tool: nothing in them is of this package."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import openai

TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Adds two numbers.",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                "required": ["a", "b"],
            },
        },
    }
]


def add(a: int, b: int) -> str:
    return str(a + b)


def chats(row: dict[str, Any], **how: Any) -> str:
    """An agent as people write it with OpenAI's client."""
    client = openai.OpenAI()
    messages: list[Any] = [{"role": "system", "content": "Use the tool."}, {"role": "user", "content": row["prompt"]}]
    while True:
        answer = client.chat.completions.create(model="gpt-5", messages=messages, tools=TOOLS, **how)
        message = answer.choices[0].message
        messages.append(message)
        if not message.tool_calls:
            return str(message.content)
        for call in message.tool_calls:
            result = add(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


async def streams(row: dict[str, Any]) -> str:
    client = openai.AsyncOpenAI()
    messages: list[Any] = [{"role": "system", "content": "Use the tool."}, {"role": "user", "content": row["prompt"]}]
    while True:
        words, calls = "", list[Any]()
        async for chunk in await client.chat.completions.create(
            model="tiny", messages=messages, tools=TOOLS, stream=True
        ):
            delta = chunk.choices[0].delta
            words, calls = words + (delta.content or ""), calls + (delta.tool_calls or [])
        if not calls:
            return words
        called = [{"id": call.id, "type": "function", "function": call.function.model_dump()} for call in calls]
        messages.append({"role": "assistant", "content": words, "tool_calls": called})
        for call in calls:
            result = add(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


def responds(row: dict[str, Any]) -> str:
    client = openai.OpenAI()
    items: list[Any] = [{"role": "user", "content": row["prompt"]}]
    tools: Any = [{"type": "function", **TOOLS[0]["function"], "strict": False}]
    for streamed in (False, True, False, True):
        asked: dict[str, Any] = {"model": "tiny", "input": items, "instructions": "Use the tool.", "tools": tools}
        if streamed:
            with client.responses.stream(**asked) as stream:
                response = stream.get_final_response()
        else:
            response = client.responses.create(**asked)
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            return str(response.output_text)
        items += [item.model_dump(exclude_none=True) for item in response.output]
        items += [
            {"type": "function_call_output", "call_id": call.call_id, "output": add(**json.loads(call.arguments))}
            for call in calls
        ]
    raise AssertionError


def claude(row: dict[str, Any]) -> str:
    client = anthropic.Anthropic()
    tools: Any = [{"name": "add", "description": "Adds.", "input_schema": TOOLS[0]["function"]["parameters"]}]
    messages: list[Any] = [{"role": "user", "content": row["prompt"]}]
    for streamed in (True, False):
        asked: dict[str, Any] = {"model": "tiny", "messages": messages, "max_tokens": 100, "tools": tools}
        if streamed:
            with client.messages.stream(**asked, system="Use the tool.") as stream:
                message = stream.get_final_message()
        else:
            message = client.messages.create(**asked, system=[{"type": "text", "text": "Use the tool."}])
        if message.stop_reason != "tool_use":
            return str(message.content[0].text)
        messages.append({"role": "assistant", "content": message.content})
        results = [
            {"type": "tool_result", "tool_use_id": part.id, "content": add(**part.input)}
            for part in message.content
            if part.type == "tool_use"
        ]
        messages.append({"role": "user", "content": results})
    raise AssertionError


def claude_runs(row: dict[str, Any]) -> str:
    """The loop that Anthropic's client brings; newer ones ask the server to hold the conversation, and go on without."""

    @anthropic.beta_tool(name="add", description="Adds.")
    def tool(a: int, b: int) -> str:
        return add(a, b)

    runner = anthropic.Anthropic().beta.messages.tool_runner(
        model="tiny",
        max_tokens=100,
        tools=[tool],
        messages=[{"role": "user", "content": row["prompt"]}],
        system="Use the tool.",
    )
    return "".join(part.text for part in runner.until_done().content if part.type == "text")
