"""An adapter: the chat history that many frameworks ask for (`messages`, `add_message`, `clear`), kept in a memory.

    history = ChatHistory(memory, session_id="c1")
    history.add_message({"role": "user", "content": "I live in Oslo."})

What was said in any session is then found by `memory.search`, and a rollback or `erase` reaches it."""

from typing import Any

from keepworth.kit import Memory


class ChatHistory:
    """The messages of one session, oldest first."""

    def __init__(self, memory: Memory, session_id: str) -> None:
        self._memory = memory.within(session_id=session_id)

    @property
    def messages(self) -> list[dict[str, Any]]:
        items = self._memory.get_all(limit=1_000_000)
        return [{"role": item.metadata["role"], "content": item.text} for item in items if "role" in item.metadata]

    def add_message(self, message: dict[str, Any]) -> None:
        self._memory.add(message["content"], metadata={"role": message["role"]})

    def clear(self) -> None:
        for item in self._memory.get_all(limit=1_000_000):
            self._memory.delete(item.id)
