"""A capability of Pydantic AI over a memory.

from pydantic_ai import Agent
from keepworth import Memory
from keepworth.adapters.pydantic_ai import KeepworthCapability

remembering = KeepworthCapability(Memory("agent.mem"), user_id="ana")
agent = Agent("openai:gpt-5.2", instructions="Be concise, reply with one sentence.", capabilities=[remembering])
result = agent.run_sync("Where do I live?")

What the memory shows stands in the newest prompt of each request to the model; the message history never holds it. A run is a
turn. Runs are one conversation if they go on with its messages (`message_history=result.all_messages()`) or name its
`conversation_id`. Needs the package `pydantic-ai` or `pydantic-ai-slim`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from keepworth.adapters.turns import HostTurn, RewardOf, Turns, load_host

PACKAGE, LEAST = "pydantic-ai-slim", "2.68"
AbstractCapability, UserPromptPart, ToolCallPart, ToolReturnPart = load_host(
    PACKAGE,
    LEAST,
    [
        "pydantic_ai.capabilities:AbstractCapability",
        "pydantic_ai.messages:UserPromptPart",
        "pydantic_ai.messages:ToolCallPart",
        "pydantic_ai.messages:ToolReturnPart",
    ],
)


class KeepworthCapability(AbstractCapability):  # type: ignore[misc, valid-type]
    """A capability for `Agent(capabilities=[...])`.

    Args:
        memory: A `Memory`, an `AsyncMemory`, or a `Client` of a served one.
        reward: A function from a finished turn to its reward, or to None; `turn.host` is the result of the run.
        user_id: The person whom the agent serves, or a function from the context of a run to its person, such as
            `lambda context: context.deps.user`; "" for nobody.
        agent_id: The agent whose memory it is; "" for all.
        top_k: The most notes that a turn shows; "auto" for those that answer (`Memory.search`).
    """

    def __init__(
        self,
        memory: Any,
        reward: RewardOf | None = None,
        *,
        user_id: str | Callable[[Any], str] = "",
        agent_id: str = "",
        top_k: int | str = 5,
    ) -> None:
        self.turns = Turns(memory, PACKAGE, reward, agent_id=agent_id, top_k=top_k)
        self._user_id = user_id

    async def for_run(self, ctx: Any) -> Any:
        """Return the capability of one run, so that each of several runs at once has its own turn."""
        return _RunCapability(self.turns, self._user_id(ctx) if callable(self._user_id) else self._user_id)


class _RunCapability(AbstractCapability):  # type: ignore[misc, valid-type]
    def __init__(self, turns: Turns, person: str) -> None:
        self._turns, self._person = turns, person
        self._turn: HostTurn | None = None

    async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
        """Put what the memory shows into the newest prompt of a request."""
        messages = list(request_context.messages)
        place = next(filter(None, map(_find_prompt, reversed(list(enumerate(messages))))), None)
        if place is None:
            return request_context
        (at, number), part = place, messages[place[0]].parts[place[1]]
        if self._turn is None:
            self._turn = await asyncio.to_thread(
                self._turns.go_on, _text(part.content), conversation=ctx.conversation_id or "", user_id=self._person
            )
        if not self._turn.text:
            return request_context
        words = part.content
        content = f"{self._turn.text}\n\n{words}" if isinstance(words, str) else [self._turn.text, *words]
        parts = list(messages[at].parts)
        parts[number] = replace(part, content=content)
        messages[at] = replace(messages[at], parts=parts)
        return replace(request_context, messages=messages)

    async def after_run(self, ctx: Any, *, result: Any) -> Any:
        """Record how the tools ended and what was answered, and keep what the user said."""
        if self._turn is not None:
            await asyncio.to_thread(self._finish, self._turn, result)
        return result

    def _finish(self, turn: HostTurn, result: Any) -> None:
        for command, failed, output in _tool_ends(result.new_messages()):
            self._turns.use_tool(turn, failed=failed, command=command, output=output)
        self._turns.finish(turn, str(result.output), host=result)


def _find_prompt(numbered: tuple[int, Any]) -> tuple[int, int] | None:
    """Return the places of a message and of its newest prompt with words; None if it has none."""
    at, message = numbered
    for number, part in reversed(list(enumerate(message.parts))):
        if isinstance(part, UserPromptPart) and _text(part.content):
            return at, number
    return None


def _tool_ends(messages: Iterable[Any]) -> Iterator[tuple[str, bool, str]]:
    """Yield the command, whether it failed, and the output of each tool that ran."""
    commands: dict[str, str] = {}
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                arguments = part.args if isinstance(part.args, dict) else {}
                commands[part.tool_call_id] = str(arguments.get("command") or "")
            elif isinstance(part, ToolReturnPart) and part.outcome in ("success", "failed"):
                yield commands.get(part.tool_call_id, ""), part.outcome == "failed", str(part.content)


def _text(content: Any) -> str:
    """Return the words of a prompt, which may have pictures beside them."""
    return content if isinstance(content, str) else "\n".join(part for part in content if isinstance(part, str))
