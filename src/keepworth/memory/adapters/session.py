"""The session protocol of the OpenAI Agents SDK over a memory: conversation history that can be searched and undone.

session = MemorySession("conversation-1", memory)
await Runner.run(agent, "hello", session=session)
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from keepworth.memory.item import Item, ItemKind

AGENT = "sessions"


class MemorySession:
    """One conversation. Items are the SDK's dictionaries and come back exactly as they were given. memory: a `Memory`, or a
    `Client` of one that is served."""

    session_settings = None

    def __init__(self, session_id: str, memory: Any, *, user_id: str = "") -> None:
        self.session_id = session_id
        self._memory = memory
        self._bounds: dict[str, Any] = {
            "agent_id": AGENT,
            "session_id": session_id,
            **({"user_id": user_id} if user_id else {}),
        }

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """All items in order, or the latest `limit`."""
        found = await asyncio.to_thread(self._all)
        chosen = found if limit is None else found[-limit:] if limit > 0 else []
        return [item.metadata["item"] for item in chosen]

    async def add_items(self, items: list[Any]) -> None:
        await asyncio.to_thread(self._add, items)

    async def pop_item(self) -> Any | None:
        """Take the latest item back; None where there is none."""
        return await asyncio.to_thread(self._pop)

    async def clear_session(self) -> None:
        await asyncio.to_thread(self._memory.delete_all, **self._bounds)

    def _all(self) -> list[Item]:
        found = self._memory.get_all(limit=1_000_000, **self._bounds)
        return [item for item in found if "item" in item.metadata]

    def _add(self, items: list[Any]) -> None:
        for item in items:
            text = _text(item)
            self._memory.add(text, kind=ItemKind.EPISODE, metadata={"item": item}, repeat=True, **self._bounds)

    def _pop(self) -> Any | None:
        found = self._all()
        if not found:
            return None
        self._memory.delete(found[-1].id)
        return found[-1].metadata["item"]


def _text(item: Any) -> str:
    """What a search reads of an item: its words where it has any, else all of it."""
    content = item.get("content") if isinstance(item, dict) else None
    if isinstance(content, list):
        content = "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    if isinstance(content, str) and content.strip():
        printable = "".join(c for c in content if c in "\n\t\r" or c.isprintable() or c == " ")
        if printable.strip():
            return printable
    return json.dumps(item, ensure_ascii=True)
