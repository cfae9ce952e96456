"""Logs as what is trained on: a file of conversations, or a memory, whose episodes have rewards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from keepworth.episodes.errors import KeepworthError
from keepworth.memory.memory import Memory
from keepworth.memory.store import log
from keepworth.tasks.chat_logs import ChatLog, chat_log, logged
from keepworth.tasks.unlabelled import MadeTasks, unlabelled

KINDS = ("cloze",)
"""What is trained where nothing is said."""
SETTINGS: Mapping[str, Any] = {
    "system": "Answer from memory, with the words that were asked for and no others.",
    "max_tokens": 16,
}
"""In the place of the defaults: answers are a few words."""
IMITATION: Mapping[str, Any] = {"method": "supervised"}
"""The same for what is imitated."""
_SQLITE = b"SQLite format 3\x00"
_PAGE = 1000


def tasks_of(source: Any, kinds: Sequence[str] | str = KINDS) -> MadeTasks:
    """Tasks from a file of conversations, a memory's file or an open memory. Raises WrongFormat, UnknownName, MemoryProblem."""
    chosen = (
        tuple(part.strip() for part in kinds.split(",") if part.strip()) if isinstance(kinds, str) else tuple(kinds)
    )
    return unlabelled(log_of(source), chosen)


def settings_of(kinds: Sequence[str] | str) -> Mapping[str, Any]:
    return IMITATION if "rewarded" in kinds else SETTINGS


def log_of(source: Any) -> ChatLog:
    if isinstance(source, Memory):
        return logged(_remembered(source), Path(source.path).name.split(".")[0] or "memory")
    if not isinstance(source, str | Path):
        raise KeepworthError(f"source is {source!r:.60}.", "Give the path of a file of conversations, or a memory.")
    path = Path(source).expanduser()
    if path.is_file():
        with path.open("rb") as file:
            if file.read(len(_SQLITE)) == _SQLITE:
                with Memory(path, read_only=True, log="off") as memory:
                    return log_of(memory)
    return chat_log(path)


def _remembered(memory: Memory) -> Iterator[tuple[str, dict[str, Any]]]:
    """What a memory knows of its conversations: episodes, each a question with what was done and its reward; and for sessions
    without any, its items in their order."""
    talks: dict[tuple[str, str], dict[str, Any]] = {}
    for id in _pages(lambda after: memory.episodes(limit=_PAGE, after=after)):
        with memory.store.database.reading() as connection:
            one = log.record(connection, lambda home, c=connection: memory.store.scope_named(c, home), id)  # type: ignore[misc]
        if one is None or not one.task.strip():
            continue
        row = _talk(talks, one.scope.user or one.person, one.scope.session or id)
        row["messages"].append({"role": "user", "content": one.task})
        done = next((choice.action for choice in reversed(one.choices) if choice.action.strip()), "")
        if done:
            reward = next((value for value, _ in reversed(one.rewards) if value == value), None)
            row["messages"].append({"role": "assistant", "content": done, "reward": reward})
    told = set(talks)
    found = []
    after = ""
    while page := memory.get_all(limit=_PAGE, after=after):
        found += page
        after = page[-1].id
    found.sort(key=lambda item: (item.provenance.date or item.event_time, item.provenance.turn, len(item.id), item.id))
    for item in found:
        session = item.provenance.session or item.scope.session or item.id
        if (item.scope.user, session) in told:
            continue  # its words stand in an episode
        time = item.provenance.date or item.event_time
        row = _talk(talks, item.scope.user, session, time)
        role = "assistant" if item.provenance.speaker == "assistant" else "user"
        row["messages"].append({"role": role, "content": item.text, **({"time": time} if time else {})})
    for (person, session), row in talks.items():
        yield f"{memory.path}, session {session}{f' of {person}' if person else ''}", row


def _talk(talks: dict[tuple[str, str], dict[str, Any]], person: str, session: str, time: str = "") -> dict[str, Any]:
    row: dict[str, Any] = {"messages": [], "session": session}
    row |= {"user": person} if person else {}
    return talks.setdefault((person, session), row | ({"time": time} if time else {}))


def _pages(page: Any) -> Iterator[str]:
    after = ""
    while listed := page(after):
        yield from listed
        after = listed[-1]
