"""A memory block of LlamaIndex over a memory.

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.memory import Memory
from keepworth import Memory as KeepworthMemory
from keepworth.adapters.llama_index import KeepworthBlock

block = KeepworthBlock(KeepworthMemory("agent.mem"), user_id="ana")
memory = Memory.from_defaults(session_id="my_session", memory_blocks=[block])
response = await FunctionAgent(llm=llm).run("Where do I live?", memory=memory)

LlamaIndex asks its blocks for their content before a call of the model, with the conversation so far, and does not say when a
turn ends. So what the user says is kept at once; the answer and the value of `reward` are recorded with the user's next message,
or where `memory.get()` is called after the answer. Needs the package `llama-index-core`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from keepworth.adapters.turns import CONVERSATIONS, RewardOf, Turns, load_host
from keepworth.base.recent import Recent
from keepworth.memory.search.passages import tokens_of

PACKAGE, LEAST = "llama-index-core", "0.14.25"
BaseMemoryBlock, PrivateAttr = load_host(
    PACKAGE, LEAST, ["llama_index.core.memory:BaseMemoryBlock", "llama_index.core.bridge.pydantic:PrivateAttr"]
)


class KeepworthBlock(BaseMemoryBlock[str]):  # type: ignore[misc, valid-type]
    """A block for `Memory.from_defaults(memory_blocks=[...])`.

    Args:
        memory: A `Memory` of keepworth, an `AsyncMemory`, or a `Client` of a served one.
        reward: A function from a finished turn to its reward, or to None; `turn.host` is the list of messages until then.
        user_id: The person whose conversations they are; "" for nobody.
        agent_id: The agent whose memory it is; "" for all.
        top_k: The most notes that a turn shows; "auto" for those that answer (`Memory.search`).
        options: Fields of `BaseMemoryBlock`: name, description, priority.
    """

    name: str = "keepworth"
    description: str | None = "What earlier conversations left behind."
    _turns: Turns = PrivateAttr()
    _newest: Recent[str, tuple[int, str]] = PrivateAttr(default_factory=lambda: Recent(CONVERSATIONS))

    def __init__(
        self,
        memory: Any,
        reward: RewardOf | None = None,
        *,
        user_id: str = "",
        agent_id: str = "",
        top_k: int | str = 5,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._turns = Turns(memory, PACKAGE, reward, user_id=user_id, agent_id=agent_id, top_k=top_k)

    async def _aget(self, messages: list[Any] | None = None, session_id: str = "", **_: Any) -> str:
        return await asyncio.to_thread(self._recall, messages or [], session_id)

    async def _aput(self, messages: list[Any]) -> None:
        """Messages leave the short-term memory: they were read when they came."""

    async def atruncate(self, content: str, tokens_to_truncate: int) -> str | None:
        """Return the best of the notes that fit when this many tokens are taken away; None for none."""
        lines, room = content.splitlines(), tokens_of(content) - tokens_to_truncate
        while len(lines) > 1 and tokens_of("\n".join(lines)) > room:
            lines.pop()
        return "\n".join(lines) if len(lines) > 1 else None

    def _recall(self, messages: Sequence[Any], conversation: str) -> str:
        """Return what the memory shows for the user's newest message; an answer behind it finishes the turn."""
        words = [
            (str(getattr(message.role, "value", message.role)), str(message.content or "")) for message in messages
        ]
        at = next((place for place in reversed(range(len(words))) if words[place][0] == "user"), None)
        if at is None:
            return ""
        answers = [text for role, text in words[at:] if role == "assistant" and text]
        turn, here = self._turns.newest(conversation=conversation), (at, words[at][1])
        if not answers and (turn is None or not turn.open or self._newest.get(conversation) != here):
            if turn is not None and turn.open:
                before = [text for role, text in words[:at] if role == "assistant" and text]
                self._turns.finish(turn, before[-1] if before else "", host=list(messages[:at]))
            turn = self._turns.begin(words[at][1], conversation=conversation)
            self._turns.keep(turn)
            self._newest[conversation] = here
        if turn is not None and answers:
            self._turns.finish(turn, answers[-1], host=list(messages))
        return turn.text if turn is not None else ""
