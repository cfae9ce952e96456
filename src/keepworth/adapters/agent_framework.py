"""Microsoft Agent Framework's `ContextProvider` over a memory.

from agent_framework import Agent
from agent_framework.openai import OpenAIChatClient
from keepworth import Memory
from keepworth.adapters.agent_framework import KeepworthProvider

memory = Memory("agent.mem")
agent = Agent(client=OpenAIChatClient(), context_providers=[KeepworthProvider(memory, user_id="ana")])
session = agent.create_session()
await agent.run("I live in Oslo.", session=session)

What the memory shows is a message of the user's before the model is called. The state of the session holds the id of the turn, so
that the next message is its outcome also in another process. Needs the package `agent-framework-core`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from keepworth.adapters.turns import HostTurn, Turns, load_host

PACKAGE, LEAST = "agent-framework-core", "1.20"
ContextProvider, Message = load_host(PACKAGE, LEAST, ["agent_framework:ContextProvider", "agent_framework:Message"])


class KeepworthProvider(ContextProvider):  # type: ignore[misc, valid-type]  # the package is optional
    """A provider for one agent: a turn is a run of the agent.

    Args:
        memory: A `Memory`, an `AsyncMemory`, or a `Client` of a served one.
        reward: A function from a finished turn to its reward, or to None; `turn.host` is the run's `SessionContext`.
        user_id: The person whom the agent serves, or a function from a session to its person; "" for nobody.
        agent_id: The agent whose memory it is; "" for all.
        top_k: The most notes that a turn shows; "auto" for those that answer (`Memory.search`).
        source_id: The name of the provider, under which the framework keeps its state.
    """

    def __init__(
        self,
        memory: Any,
        reward: Callable[[HostTurn], float | None] | None = None,
        *,
        user_id: str | Callable[[Any], str] = "",
        agent_id: str = "",
        top_k: int | str = 5,
        source_id: str = "keepworth",
    ) -> None:
        super().__init__(source_id)
        self.turns = Turns(memory, "agent-framework", reward, agent_id=agent_id, top_k=top_k)
        self._user_id = user_id

    async def before_run(self, *, agent: Any, session: Any, context: Any, state: dict[str, Any]) -> None:
        """Take the user's message for the outcome of the turn before, and put what the memory shows before the model.

        Args:
            agent: The agent that runs; nothing of it is read.
            session: The conversation, whose id keeps it apart from others.
            context: What goes to the model.
            state: What the session keeps for this provider.
        """
        turn = await asyncio.to_thread(
            self.turns.begin,
            _words(message for message in context.input_messages if message.role == "user"),
            conversation=session.session_id,
            user_id=self._user_id(session) if callable(self._user_id) else self._user_id,
            before=state.get("turn", ""),
        )
        state["turn"] = turn.id
        if turn.text:
            context.extend_messages(self, [Message(role="user", contents=[turn.text])])
        context.metadata[self.source_id] = turn

    async def after_run(self, *, agent: Any, session: Any, context: Any, state: dict[str, Any]) -> None:
        """Record how the tools of the run ended and what was answered, and keep what the user said.

        Args:
            agent: The agent that runs; nothing of it is read.
            session: The conversation, whose id keeps it apart from others.
            context: The messages of the run, with the response.
            state: What the session keeps for this provider.
        """
        turn = context.metadata.get(self.source_id)
        if turn is not None:
            await asyncio.to_thread(self._finish, turn, context)

    def _finish(self, turn: HostTurn, context: Any) -> None:
        messages = context.response.messages if context.response is not None else []
        for message in messages:
            for content in message.contents:
                if content.type == "function_result":
                    self.turns.use_tool(turn, failed=bool(content.exception), output=str(content.result or ""))
        self.turns.finish(turn, _words(message for message in messages if message.role == "assistant"), host=context)


def _words(messages: Any) -> str:
    return "\n".join(message.text for message in messages if message.text)
