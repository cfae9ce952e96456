"""The session protocol of the OpenAI Agents SDK over a memory: conversations that can be searched and undone, and that know what
was said in earlier ones.

session = MemorySession("conversation-1", memory, user_id="ana")
await Runner.run(agent, "hello", session=session, run_config=RunConfig(call_model_input_filter=session.recalling()))
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from keepworth.episodes.text import as_line
from keepworth.memory.errors import InvalidFilter, InvalidScope, InvalidText, UnknownItem
from keepworth.memory.item import LONGEST_TEXT, Item, ItemKind, plain_metadata

AGENT = "sessions"
SESSION = "session"
"""The key of an item's metadata that says of which session it is."""
_QUERY = 2000
"""Characters of what the user says that are searched for."""


class MemorySession:
    """One conversation. Items are the SDK's dictionaries and come back exactly as they were given, in order. What one call adds
    is there as a whole or not at all, also where several processes write to one session.

    memory: a `Memory`, or a `Client` of one that is served. user_id: whose conversation it is. session_settings: the SDK's
    `SessionSettings`, of which `limit` says how many of the latest items are read where a call does not say it."""

    def __init__(self, session_id: str, memory: Any, *, user_id: str = "", session_settings: Any = None) -> None:
        if session_settings is not None and not hasattr(session_settings, "limit"):
            raise InvalidFilter(
                f"session_settings must be a SessionSettings of the SDK, got {session_settings!r:.60}: give "
                "SessionSettings(limit=...)"
            )
        self.session_id = session_id
        self.session_settings = session_settings
        self._memory = memory
        self._user = user_id
        self._bounds: dict[str, Any] = {
            "agent_id": AGENT,
            "session_id": session_id,
            **({"user_id": user_id} if user_id else {}),
        }

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """All items in order, or the latest `limit`."""
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        found = await asyncio.to_thread(self._all)
        chosen = found if limit is None else found[-limit:] if limit > 0 else []
        return [_given(item) for item in chosen]

    async def add_items(self, items: Sequence[Any]) -> None:
        """Raises InvalidText for what is not plain data; then nothing is added."""
        if items:
            await asyncio.to_thread(self._add, items)

    async def pop_item(self) -> Any | None:
        """Take the latest item back; None where there is none. Two that pop at once get two items."""
        return await asyncio.to_thread(self._pop)

    async def clear_session(self) -> None:
        await asyncio.to_thread(self._memory.delete_all, **self._bounds)

    def recalling(self, top_k: int = 5, threshold: float = 0.0) -> Callable[[Any], Awaitable[Any]]:
        """What `RunConfig(call_model_input_filter=...)` takes: before a model is called, the instructions are told what the
        memory knows of this user that fits what the user said last, from other sessions and from what was added about them.
        It is in no session's history.

        top_k: items at most; threshold: the least score of one. Raises InvalidScope without a user_id."""
        if not self._user:
            raise InvalidScope("recalling needs to know whose conversations to search: MemorySession(..., user_id=...)")
        latest: tuple[str, str] = ("", "")

        async def with_recalled(call: Any) -> Any:
            nonlocal latest
            data = call.model_data
            asked = _asked(data.input)
            if not asked:
                return data
            if latest[0] != asked:  # a model is called again for every tool that it uses
                latest = asked, await asyncio.to_thread(self._recalled, asked, top_k, threshold)
            if not latest[1]:
                return data
            told = f"What is remembered of this user from before:\n{latest[1]}"
            return replace(data, instructions=f"{data.instructions}\n\n{told}" if data.instructions else told)

        return with_recalled

    def _recalled(self, asked: str, top_k: int, threshold: float) -> str:
        """Lines, best first; "" where nothing fits."""
        elsewhere = {SESSION: {"$ne": self.session_id}}
        hits = self._memory.search(asked, top_k=top_k, user_id=self._user, where=elsewhere)
        return "\n".join(f"- {as_line(hit.item.text)}" for hit in hits if hit.score >= threshold)

    def _all(self) -> list[Item]:
        found = self._memory.get_all(limit=1_000_000, **self._bounds)
        return [item for item in found if "item" in item.metadata or "json" in item.metadata]

    def _add(self, items: Sequence[Any]) -> None:
        messages = [
            {
                "role": _role(item),
                "content": _text(item)[:LONGEST_TEXT],
                "metadata": {SESSION: self.session_id, **_kept_as(item)},
            }
            for item in items
        ]
        self._memory.add(messages, kind=ItemKind.EPISODE.value, repeat=True, **self._bounds)

    def _pop(self) -> Any | None:
        while found := self._all():
            try:
                self._memory.delete(found[-1].id)
            except UnknownItem:  # somebody else took it
                continue
            return _given(found[-1])
        return None


def _kept_as(item: Any) -> dict[str, Any]:
    """Raises InvalidText for what is not plain data."""
    try:
        return plain_metadata({"item": item})
    except InvalidText:
        try:  # half a character, NaN, or deeper than metadata may be
            return {"json": json.dumps(item)}
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidText(
                f"an item of a session is not plain data ({error}): give the SDK's dictionaries; nothing was stored"
            ) from error


def _given(item: Item) -> Any:
    plain = item.metadata.get("json")
    return json.loads(plain) if isinstance(plain, str) else item.metadata["item"]


def _role(item: Any) -> str:
    role = item.get("role") or item.get("type") if isinstance(item, Mapping) else ""
    return role if isinstance(role, str) and role.isprintable() else ""


def _words(content: Any) -> str:
    if isinstance(content, list):
        content = "\n".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return content if isinstance(content, str) else ""


def _asked(items: Sequence[Any]) -> str:
    """What the user said last."""
    for item in reversed(items):
        if isinstance(item, Mapping) and item.get("role") == "user" and (said := _words(item.get("content")).strip()):
            return said[:_QUERY]
    return ""


def _text(item: Any) -> str:
    """What a search reads of an item: its words where it has any, else all of it."""
    words = _words(item.get("content")) if isinstance(item, Mapping) else ""
    printable = "".join(c for c in words if c in "\n\t\r" or c.isprintable() or c == " ")
    return printable if printable.strip() else json.dumps(item, ensure_ascii=True, default=str)
