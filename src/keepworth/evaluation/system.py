"""Systems under test: anything that stores entries and shows some of them when it is asked. keepworth's memory, rivals, programs
and endpoints share one interface, and the settings that each can be measured under."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from keepworth.base.errors import KeepworthError
from keepworth.records.episode import Shown, Task
from keepworth.worlds.benchmark import haystack, place
from keepworth.worlds.entries import MemoryEntry
from keepworth.worlds.recall import format_entry

if TYPE_CHECKING:
    from keepworth.records.model import Encoder


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """A question to a system. `most` is the most items it may show; `asked_at` is ISO 8601, "" where it is not known."""

    text: str
    most: int
    asked_at: str = ""
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answered:
    """A system's reply to a question.

    Attributes:
        shown: The items found, best first, with the ids of their entries (`benchmark.place`), "" for a text of its own.
        answer: The answer of a system that answers by itself; None where the reader answers.
        calls: Calls of a language model since the last answer.
    """

    shown: tuple[Shown, ...] = ()
    answer: str | None = None
    calls: int = 0


class MemorySystem(Protocol):
    """A system under test.

    `begin` empties it. `write` stores entries, in order of time. `ask` returns an `Answered`. `learn` receives the last answer's
    reward, from 0 to 1, where the setting has rewards, and the ids of the items that fitted into the budget. `holds` returns
    which ids it still has, and `size` its bytes; both may be None."""

    def begin(self, seed: int) -> None: ...
    def write(self, entries: Sequence[MemoryEntry]) -> None: ...
    def ask(self, question: AskedQuestion) -> Answered: ...
    def learn(self, reward: float, shown: Sequence[str]) -> None: ...
    def holds(self, ids: Sequence[str]) -> frozenset[str] | None: ...
    def size(self) -> int | None: ...
    def close(self) -> None: ...


Maker = Callable[[], MemorySystem]


class NoMemory:
    """Stores and shows nothing, for the arm without memory."""

    def begin(self, seed: int) -> None: ...
    def write(self, entries: Sequence[MemoryEntry]) -> None: ...
    def ask(self, question: AskedQuestion) -> Answered:
        return Answered()

    def learn(self, reward: float, shown: Sequence[str]) -> None: ...
    def holds(self, ids: Sequence[str]) -> frozenset[str] | None:
        return frozenset()

    def size(self) -> int | None:
        return None

    def close(self) -> None: ...


class Listing(NoMemory):
    """A system that stores all entries unchanged. Subclasses choose which to show."""

    def begin(self, seed: int) -> None:
        self.entries: dict[str, MemoryEntry] = {}
        self.seed = seed

    def write(self, entries: Sequence[MemoryEntry]) -> None:
        self.entries.update((place(entry), entry) for entry in entries)

    def holds(self, ids: Sequence[str]) -> frozenset[str] | None:
        return frozenset(id for id in ids if id in self.entries)

    def _show(self, ids: Sequence[str]) -> Answered:
        return Answered(
            tuple(Shown(id, 1.0 / (1 + rank), as_remembered(self.entries[id])) for rank, id in enumerate(ids))
        )


class FullContext(Listing):
    """Shows the whole haystack, in order of time."""

    whole = True

    def ask(self, question: AskedQuestion) -> Answered:
        return self._show(list(self.entries))


class RandomEntries(Listing):
    """Shows random entries."""

    def ask(self, question: AskedQuestion) -> Answered:
        ids = list(self.entries)
        draws = random.Random(f"{self.seed}/{question.text}")
        return self._show(draws.sample(ids, min(question.most, len(ids))))


class LatestEntries(Listing):
    """Shows the newest entries, whatever is asked."""

    def ask(self, question: AskedQuestion) -> Answered:
        return self._show(list(self.entries)[::-1][: question.most])


class Dense(Listing):
    """Shows the nearest entries by cosine, computed with one matrix product."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    def begin(self, seed: int) -> None:
        super().begin(seed)
        self._ids: list[str] = []
        self._matrix = np.zeros((0, self._encoder.identity.dimension), dtype=np.float32)

    def write(self, entries: Sequence[MemoryEntry]) -> None:
        super().write(entries)
        if entries:
            self._ids += [place(entry) for entry in entries]
            texts = [as_remembered(entry) for entry in entries]
            self._matrix = np.concatenate([self._matrix, self._encoder.encode(texts)])

    def ask(self, question: AskedQuestion) -> Answered:
        near = self._matrix @ self._encoder.encode([question.text])[0]
        best = np.argsort(-near, kind="stable")[: question.most]
        return self._show([self._ids[row] for row in best])

    def size(self) -> int | None:
        return int(self._matrix.nbytes)


def as_remembered(entry: MemoryEntry) -> str:
    """Returns the text of an entry as every system stores it: `8 May 2023, Caroline: I went ...`."""
    return format_entry(entry, dates=True)


# Failures.


class SystemFailed(KeepworthError):
    """A system raised, did not return in time, or gave an invalid answer."""


class NeverAnswered(SystemFailed):
    """A program never gave an answer, so that nothing of it can be measured."""


class Guarded:
    """Wraps a system and converts all its exceptions to SystemFailed."""

    def __init__(self, system: MemorySystem) -> None:
        self._system = system
        self.begin, self.write = partial(self._call, "begin"), partial(self._call, "write")
        self.learn, self.holds = partial(self._call, "learn"), partial(self._call, "holds")
        self.size, self.close = partial(self._call, "size"), partial(self._call, "close")

    def ask(self, question: AskedQuestion) -> Answered:
        reply = self._call("ask", question)
        if not isinstance(reply, Answered):
            raise SystemFailed(f"ask returned {reply!r:.80}.", "Return an Answered.")
        return reply

    @property
    def whole(self) -> bool:
        """Whether it shows everything it holds, which is never cut to a budget."""
        return bool(getattr(self._system, "whole", False))

    @property
    def versions(self) -> Mapping[str, str]:
        """The versions of packages that it reports."""
        versions: Mapping[str, str] = getattr(self._system, "versions", {})
        return versions

    def _call(self, operation: str, *given: Any) -> Any:
        try:
            return getattr(self._system, operation)(*given)
        except SystemFailed:
            raise
        except Exception as error:
            raise SystemFailed(f"{operation} raised {type(error).__name__}: {error!s:.200}", "") from error


# Settings that a system can be measured under, the same for every system.


SETTINGS: Mapping[str, str] = {
    "frozen": "it is written once and told no reward",
    "live": "it is told after each question what the answer earned",
    "shuffled": "live, with the reward of another question: what is left of a gain was not learned from rewards",
    "oracle": "shown is what holds the answer, and nothing else: what there is to gain",
    "another": "frozen, with the memory of another question: what is gained by any text at all",
}
LIVE = frozenset({"live", "shuffled"})
NEUTRAL = 0.5


def list_stored(tasks: Sequence[Task], words: int) -> list[MemoryEntry]:
    """Returns the entries that a system stores before the tasks of one haystack are asked, without their marks of evidence."""
    return [replace(entry, evidence=False) for entry in haystack(tasks[0], words)]


def evidence_of(task: Task, words: int) -> list[MemoryEntry]:
    """Returns the entries of turns that hold the answer, in order of time."""
    marked = []
    for session in task.sessions:
        turns = tuple(turn for turn in session.turns if turn.evidence)
        if turns:
            marked.append(replace(session, turns=turns))
    return haystack(replace(task, sessions=tuple(marked)), words)


def oracle(gold: Sequence[MemoryEntry]) -> Answered:
    """Shows the entries that hold the answer, in order of time."""
    return Answered(tuple(Shown(place(entry), 1.0, as_remembered(entry)) for entry in gold))


@dataclass(slots=True)
class Rewards:
    """Decides which rewards a system receives for its answers."""

    setting: str
    seed: int
    past: list[float] = field(default_factory=list)

    def passed_on(self, earned: float) -> float | None:
        """Returns the reward that the system receives; None where it receives none. With "shuffled" it is that of an earlier
        question, so that it does not depend on the answer; NEUTRAL before the first."""
        if self.setting not in LIVE:
            return None
        if self.setting == "live":
            return earned
        drawn = random.Random(f"{self.seed}/{len(self.past)}").choice(self.past) if self.past else NEUTRAL
        self.past.append(earned)
        return drawn
