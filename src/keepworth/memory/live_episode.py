"""LiveEpisode: one attempt at a task, while it happens. Made by `Memory.episode`."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from keepworth.episodes.operation import Operation
from keepworth.memory.item import Item
from keepworth.memory.operations import Outcome
from keepworth.memory.ranking import Hits
from keepworth.memory.scope import Scope

if TYPE_CHECKING:
    from keepworth.memory.memory import Memory


class LiveEpisode:
    """id: for `reward` and `rollback`, also long afterwards. Every search is on disk before it returns."""

    def __init__(self, memory: Memory, id: str, scope: Scope, task: str) -> None:
        self.id = id
        self.scope = scope
        self.task = task
        self._memory = memory
        self._steps = 0

    def search(self, query: str, *, top_k: int = 10, **options: Any) -> Hits:
        """As `Memory.search`, in this episode's scope, recorded as its next decision."""
        step, self._steps = self._steps, self._steps + 1
        return self._memory.search(query, top_k=top_k, episode=self.id, step=step, **{**self._bounds(), **options})

    def remember(self, text: str, **options: Any) -> Item:
        """As `Memory.add`, as part of this episode."""
        return self._memory.add_many([text], episode=self.id, **{"source": "episode", **self._bounds(), **options})[0]

    add = remember

    def apply(self, operation: Operation, **options: Any) -> Outcome:
        """As `Memory.apply`, as part of this episode."""
        return self._memory.apply(operation, episode=self.id, **{"source": "episode", **self._bounds(), **options})

    def reward(self, value: float, *, source: str = "user") -> Outcome:
        """Credit everything this episode showed."""
        return self._memory.reward(self.id, value, source=source)

    def end(self, outcome: str = "") -> None:
        """Note that it is over. Rewards may still come."""
        memory = self._memory

        def close(transaction: Any) -> None:
            transaction.connection.execute(
                "UPDATE episodes SET ended = ?, outcome = ? WHERE id = ?", (memory.store.clock(), outcome, self.id)
            )

        memory.store.change(self.scope, close)

    def __enter__(self) -> LiveEpisode:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.end("completed" if kind is None else f"stopped by {kind.__name__}")

    def _bounds(self) -> dict[str, Any]:
        return {"user_id": self.scope.user, "agent_id": self.scope.agent, "session_id": self.scope.session}
