"""Recall: selects the memories that an agent is shown for a task. There is one function per way; each returns a `Recall`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from keepworth.base.errors import KeepworthError
from keepworth.memory.item import Item, Provenance
from keepworth.memory.overlay import Bank
from keepworth.records.episode import Decision, DecisionKind, Shown, Task
from keepworth.records.model import Encoder
from keepworth.worlds.entries import MemoryEntry, candidates, entries, everybody


@dataclass(frozen=True, slots=True)
class Recalled:
    """Items in the order they are shown, the memory they came from, and the recorded decisions."""

    shown: tuple[Shown, ...]
    snapshot: str
    decisions: tuple[Decision, ...] = ()


Recall = Callable[[Task], Recalled]


def nothing(task: Task) -> Recalled:
    """Recalls nothing, for the arm without memory."""
    return Recalled((), "empty")


def recall_evidence(count: int, seed: int, words: int = 60, dates: bool = False) -> Recall:
    """Recalls the evidence plus distractors, in order of time, to measure how well memories are *used*, not found.

    Args:
        count: The number of entries, evidence included.
        seed: The seed of the distractors and of the order in which they are considered.
        words: The most words of an entry.
        dates: Whether each entry begins with its date.
    """
    return _remember(lambda task: _recall(candidates(task, count, seed, words), "given", dates))


def evidence_only(words: int = 60, dates: bool = False) -> Recall:
    """Recalls exactly the windows that hold the evidence, for the oracle arm."""

    def recall(task: Task) -> Recalled:
        return _recall([entry for entry in candidates(task, 64, 0, words) if entry.evidence], "evidence", dates)

    return _remember(recall)


def another(recall: Recall, tasks: Sequence[Task]) -> Recall:
    """Recalls for each task what `recall` shows another task without shared evidence, for the control arm. Raises KeepworthError
    where there is none."""
    other = strangers(tasks)
    return lambda task: recall(other[task.key])


def strangers(tasks: Sequence[Task]) -> dict[str, Task]:
    """Returns, by each task's key, the next task of the list without shared evidence. Raises KeepworthError where there is
    none."""
    other: dict[str, Task] = {}
    for index, task in enumerate(tasks):
        rest = [*tasks[index + 1 :], *tasks[:index]]
        stranger = next((other for other in rest if not set(task.evidence) & set(other.evidence)), None)
        if stranger is None:
            raise KeepworthError(
                f"No other question's memory can be shown to {task.key}: all {len(tasks)} share its evidence.",
                "Measure on more questions.",
            )
        other[task.key] = stranger
    return other


def recall_by_search(
    count: int, encoder: Encoder | None, mode: str = "hybrid", words: int = 60, dates: bool = False
) -> Recall:
    """Retrieves some of the haystack's windows, which are all in a bank, and shows them in order of time.

    In a user's conversation with an assistant only the user's turns are stored, whatever the question, because the questions
    are not known when something is stored. Between people, everybody's turns are stored. Tasks about one conversation (the same
    sessions) share one bank.

    Args:
        count: The number of windows that are shown, at most.
        encoder: The encoder of the bank; None where the mode is "lexical".
        mode: "lexical", "dense" or "hybrid", as for a search.
        words: The most words of a window.
        dates: Whether each window begins with its date.
    """
    banks: dict[tuple[str, ...], Bank] = {}

    def recall(task: Task) -> Recalled:
        ids = tuple(session.id for session in task.sessions)
        if ids not in banks:
            banks.clear()  # tasks of a conversation come one after the other: one bank at a time is enough
            banks[ids] = Bank.empty(encoder)
            present = everybody(task)
            for entry in entries(task, words, {"user"} if "user" in present else present):
                source = Provenance("conversation", entry.session, entry.turn, entry.speaker, entry.date)
                banks[ids].add(format_entry(entry, dates), provenance=source, event_time=entry.date)
        bank = banks[ids]
        hits = bank.search(task.input, count, mode=mode)
        shown = sorted(hits, key=lambda hit: _said_at(hit.item))
        decision = Decision(
            id=f"{task.key}#search",
            kind=DecisionKind.SEARCH,
            query=task.input,
            candidates=tuple((hit.item.id, hit.score) for hit in hits),
            chosen=tuple(hit.item.id for hit in shown),
            propensity=1.0,
            policy=f"{mode}-top{count}",
        )
        return Recalled(
            tuple(Shown(hit.item.id, hit.score, hit.item.text) for hit in shown), bank.content_hash(), (decision,)
        )

    return _remember(recall)


def _said_at(item: Item) -> tuple[str, str, int, int, str]:
    """Returns a key that sorts hits by time; m10 comes after m9."""
    source = item.provenance
    return (source.date, source.session, source.turn, len(item.id), item.id)


def format_entry(entry: MemoryEntry, dates: bool) -> str:
    """Returns the text of an entry as it is stored: `8 May 2023, Caroline: I went ...`. The user's own turns have no name."""
    year, month, day = entry.date[:10].split("-") if dates and entry.date else ("", "", "")
    parts = [f"{int(day)} {_MONTHS[int(month) - 1]} {year}"] if day else []
    if entry.speaker != "user":
        parts.append(entry.speaker)
    return f"{', '.join(parts)}: {entry.text}" if parts else entry.text


_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def _remember(recall: Recall) -> Recall:
    """Caches a task's recall, so that every member of a group, and every step, starts from the same memory."""
    cache: dict[str, Recalled] = {}

    def lookup(task: Task) -> Recalled:
        if task.key not in cache:
            cache[task.key] = recall(task)
        return cache[task.key]

    return lookup


def _recall(chosen: Sequence[MemoryEntry], how: str, dates: bool) -> Recalled:
    ordered = sorted(chosen, key=lambda entry: (entry.date, entry.session, entry.turn, entry.window))
    digest = hashlib.sha256("\n".join((how, *(format_entry(entry, dates) for entry in ordered))).encode()).hexdigest()[
        :16
    ]
    shown = tuple(
        Shown(f"{entry.session}/{entry.turn}.{entry.window}", 1.0, format_entry(entry, dates)) for entry in ordered
    )
    return Recalled(shown, f"{how}-{digest}")
