"""Training on logs: a file of conversations, or a memory whose episodes have rewards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from keepworth.adapters.logs.reading import WRONG, format_of
from keepworth.adapters.logs.spans import TraceReader
from keepworth.base.errors import KeepworthError
from keepworth.memory.errors import UnknownItem
from keepworth.memory.evaluations import grade
from keepworth.memory.item import Status
from keepworth.memory.memory import Memory
from keepworth.memory.store import kept_calls, log, notes
from keepworth.records.episode import DecisionKind, Shown
from keepworth.worlds.chat import add_memories
from keepworth.worlds.chat_logs import answers_of, make_rewarded_tasks
from keepworth.worlds.data_files import WrongFormat, rows_of
from keepworth.worlds.own import OwnTasks


def tasks_of(source: Any) -> OwnTasks:
    """Returns the rewarded answers of a file of conversations, a memory's file or an open memory, as tasks. Raises WrongFormat,
    MemoryProblem, KeepworthError."""
    if isinstance(source, Memory):
        return make_rewarded_tasks(_remembered(source), Path(source.path).name.split(".")[0] or "memory")
    if not isinstance(source, str | Path):
        raise KeepworthError(f"source is {source!r:.60}.", "Give the path of a file of conversations, or a memory.")
    path = Path(source).expanduser()
    if path.is_file():
        with path.open("rb") as file:
            if file.read(15) == b"SQLite format 3":
                with Memory(path, read_only=True, log="off") as memory:
                    return tasks_of(memory)
    rows = rows_of(path)
    chosen = format_of(rows[0][1])
    reader = chosen.make() if chosen is not None else None
    traced = _traced(rows, reader) if isinstance(reader, TraceReader) else rows
    return make_rewarded_tasks(traced, path.name.split(".")[0])


def _traced(rows: Iterable[tuple[str, dict[str, Any]]], reader: TraceReader) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the calls of a model in traces as conversations. Each has the mean of the scores of its trace as its reward."""
    reader.keeps_calls = True
    for place, row in rows:
        try:
            reader.read(row, place)
        except WRONG as error:
            raise WrongFormat(
                f"{place}: a part of it is not as {reader.format} has it ({error!s:.120}).", "Leave the line out."
            ) from error
    reader.close()
    for trace in sorted(reader.traces.values(), key=lambda trace: trace.started):
        scores = [score if isinstance(score, float) else grade(score, "", 0.0, 1.0) for score in trace.scores.values()]
        numbers = [score for score in scores if score is not None]
        for _, messages in sorted(trace.calls, key=lambda call: call[0]):
            reward = {"reward": fmean(numbers)} if numbers else {}
            yield (
                f"{trace.file}, trace {trace.id}",
                {
                    "messages": messages,
                    "session": trace.session or trace.id,
                    "user": trace.person,
                    **reward,
                },
            )


def _remembered(memory: Memory) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the conversations of a memory's episodes. Each episode is a question, the action that was taken, and its reward. Its
    prompt is the one that was sent where it is on file; else the question with those notes that were shown and are still there,
    behind what was said before in the session."""
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
            session, user = scope.session or id, scope.user or one.person
            place = f"{memory.path}, episode {id}"
            done = next((choice.action for choice in reversed(one.choices) if choice.action.strip()), "")
            reward = next((value for value, _ in reversed(one.rewards) if value == value), None)
            earlier = sessions.setdefault((user, session), [])
            question = _question_with_notes(memory, one)
            asked = {"role": "user", "content": one.task}
            whose = {"session": session, "user": user}
            if done and reward is not None:
                sent = _read_sent(memory, id, reward, place, whose)
                source = "rebuilt" if question["content"] != one.task else "question"
                answer = {"role": "assistant", "content": done, "reward": reward}
                yield place, sent or {"messages": [*earlier, question, answer], "source": source, **whose}
            earlier += [asked, *([{"role": "assistant", "content": done}] if done else [])]


def _read_sent(memory: Memory, id: str, reward: float, place: str, whose: dict[str, str]) -> dict[str, Any] | None:
    """Returns the last call of an episode as it was sent and answered; None where it is not on file, or cannot be read."""
    sent = kept_calls.read_call(memory.store, id)
    if sent is None:
        return None
    row = {"request": sent["request"], "response": sent["response"], "reward": reward, "source": "sent", **whose}
    try:
        return row if any(True for _ in answers_of(row, place)) else None
    except WrongFormat:  # such as a call that asks about a picture alone
        return None


def _question_with_notes(memory: Memory, one: log.Record) -> dict[str, Any]:
    """Returns the question of an episode as a message, with the notes that were shown for it and are still there."""
    receipt = notes.body(memory.store, notes.RECEIPT, one.id)
    searched = [choice.decision.chosen for choice in one.choices if choice.decision.kind is DecisionKind.SEARCH]
    ids = [id for chosen in searched for id in chosen] if receipt is None else receipt["injected"]
    shown = []
    for id in dict.fromkeys(ids):
        try:
            item = memory.get(id)
        except UnknownItem:
            continue
        if not item.deleted and item.status is not Status.QUARANTINED:
            shown.append(Shown(id, 0.0, item.text))
    return dict(add_memories([{"role": "user", "content": one.task}], shown)[0])
