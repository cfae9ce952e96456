"""Training on logs: a file of conversations, or a memory whose episodes have rewards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from keepworth.episodes.errors import KeepworthError
from keepworth.memory.memory import Memory
from keepworth.memory.store import log
from keepworth.tasks.chat_logs import rewarded_tasks
from keepworth.tasks.data_files import rows_of
from keepworth.tasks.own import OwnTasks


def tasks_of(source: Any) -> OwnTasks:
    """Returns the rewarded answers of a file of conversations, a memory's file or an open memory, as tasks. Raises WrongFormat,
    MemoryProblem, KeepworthError."""
    if isinstance(source, Memory):
        return rewarded_tasks(_remembered(source), Path(source.path).name.split(".")[0] or "memory")
    if not isinstance(source, str | Path):
        raise KeepworthError(f"source is {source!r:.60}.", "Give the path of a file of conversations, or a memory.")
    path = Path(source).expanduser()
    if path.is_file():
        with path.open("rb") as file:
            if file.read(15) == b"SQLite format 3":
                with Memory(path, read_only=True, log="off") as memory:
                    return tasks_of(memory)
    return rewarded_tasks(rows_of(path), path.name.split(".")[0])


def _remembered(memory: Memory) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the sessions of a memory's episodes. Each episode is a question, the action that was taken, and its reward."""
    sessions: dict[tuple[str, str], list[dict[str, Any]]] = {}
    after = ""
    while listed := memory.episodes(limit=1000, after=after):
        after = listed[-1]
        for id in listed:
            with memory.store.database.reading() as connection:
                one = log.record(connection, id)
                if one is None or not one.task.strip():
                    continue
                scope = memory.store.scope_named(connection, one.home)
            messages = sessions.setdefault((scope.user or one.person, scope.session or id), [])
            messages.append({"role": "user", "content": one.task})
            done = next((choice.action for choice in reversed(one.choices) if choice.action.strip()), "")
            if done:
                reward = next((value for value, _ in reversed(one.rewards) if value == value), None)
                messages.append({"role": "assistant", "content": done, "reward": reward})
    for (user, session), messages in sessions.items():
        yield f"{memory.path}, session {session}", {"messages": messages, "session": session, "user": user}
