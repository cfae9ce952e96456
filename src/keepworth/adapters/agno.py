"""Agno's `LearningStore` over a memory.

from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.learn import LearningMachine
from keepworth import Memory
from keepworth.adapters.agno import KeepworthLearningStore

store = KeepworthLearningStore(Memory("agent.mem"))
learning = LearningMachine(custom_stores={"keepworth": store})
agent = Agent(model="openai:gpt-5-mini", db=InMemoryDb(), learning=learning, post_hooks=[store])
agent.run("Where do I live?", user_id="ana", session_id="chat")

Agno asks its stores for what they know before it calls the model, and hands them the messages while the model works, without the
answer. So the store is a hook after the run as well, which hears how the turn ended: without `post_hooks` what the user says is
kept, and the answer is not. Needs the package `agno`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from keepworth.adapters.turns import RewardOf, Turns, load_host

PACKAGE, LEAST = "agno", "3.1"
LearningStore, BaseEval = load_host(
    PACKAGE, LEAST, ["agno.learn.stores.protocol:LearningStore", "agno.eval.base:BaseEval"]
)


class KeepworthLearningStore(LearningStore, BaseEval):  # type: ignore[misc, valid-type]  # the package is optional
    """A store for a `LearningMachine`, and a hook for `post_hooks`: a turn is a run, and a session is a conversation.

    Args:
        memory: A `Memory`, an `AsyncMemory`, or a `Client` of a served one.
        reward: A function from a finished turn to its reward, or to None; `turn.host` is the `RunOutput`.
        user_id: The person of runs that name no `user_id`; "" for nobody.
        agent_id: The agent whose memory it is; "" for all.
        top_k: The most notes that a turn shows; "auto" for those that answer (`Memory.search`).
    """

    learning_type, schema, was_updated = "keepworth", str, False

    def __init__(
        self,
        memory: Any,
        reward: RewardOf | None = None,
        *,
        user_id: str = "",
        agent_id: str = "",
        top_k: int | str = 5,
    ) -> None:
        self.turns = Turns(memory, PACKAGE, reward, user_id=user_id, agent_id=agent_id, top_k=top_k)

    def recall(
        self, message: str | None = None, user_id: str | None = None, session_id: str | None = None, **more: Any
    ) -> str:
        """Return what the memory shows for the message of a run, as a block for the prompt; "" for nothing.

        Args:
            message: What the user said.
            user_id: Who speaks.
            session_id: The conversation.
            more: What else Agno knows of the run.
        """
        if not message:
            return ""
        return self.turns.go_on(message, conversation=session_id or "", user_id=user_id or "").text

    async def arecall(self, **options: Any) -> str:
        return await asyncio.to_thread(self.recall, **options)

    def process(
        self, messages: list[Any], user_id: str | None = None, session_id: str | None = None, **more: Any
    ) -> None:
        """Keep what the user says in a run.

        Args:
            messages: The messages so far: what is kept is what `recall` was told.
            user_id: Who speaks.
            session_id: The conversation.
            more: What else Agno knows of the run.
        """
        turn = self.turns.current(conversation=session_id or "", user_id=user_id or "")
        if turn is not None:
            self.turns.keep(turn)

    async def aprocess(self, messages: list[Any], **options: Any) -> None:
        await asyncio.to_thread(self.process, messages, **options)

    def post_check(self, run_output: Any) -> None:
        """Record how the tools of a run ended and what was answered, and keep what the user said."""
        conversation, person = run_output.session_id or "", run_output.user_id or ""
        turn = self.turns.current(conversation=conversation, user_id=person)
        if turn is None:
            return
        for end in run_output.tools or ():
            command = str((end.tool_args or {}).get("command") or "")
            failed, output = bool(end.tool_call_error), str(end.result or "")
            self.turns.use_tool(turn, failed=failed, command=command, output=output)
        self.turns.finish(turn, _answer(run_output), host=run_output)

    async def async_post_check(self, run_output: Any) -> None:
        await asyncio.to_thread(self.post_check, run_output)

    def pre_check(self, run_input: Any) -> None:
        """Nothing: `recall` is what comes before a run."""

    async def async_pre_check(self, run_input: Any) -> None:
        """Nothing: `recall` is what comes before a run."""

    def build_context(self, data: Any) -> str:
        """Return what `recall` returned, which has its own headline."""
        return data or ""

    def instructions(self) -> str:
        return ""

    def get_tools(self, **_: Any) -> list[Callable[..., Any]]:
        return []

    async def aget_tools(self, **_: Any) -> list[Callable[..., Any]]:
        return []


def _answer(run_output: Any) -> str:
    content = run_output.content
    return content if isinstance(content, str) else "" if content is None else str(content)
