"""Systems under test: whatever keeps what it is told and shows some of it when it is asked. One interface for our own memory, the
rivals, a command and an endpoint, and the settings that each of them can be measured under."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from keepworth.agents.recall import spoken
from keepworth.episodes.episode import Shown, Task
from keepworth.episodes.errors import KeepworthError
from keepworth.tasks.benchmark import haystack, place
from keepworth.tasks.entries import MemoryEntry

if TYPE_CHECKING:
    from keepworth.episodes.model import Encoder


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """What a system is asked. most: how many items it may show at most; asked_at: ISO 8601, "" where it is not known."""

    text: str
    most: int
    asked_at: str = ""
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answered:
    """shown: what the system found, the best first, with the ids it was given (`benchmark.place`), "" for a text of its own.

    answer: of a system that answers by itself, None of one that leaves that to the reader. calls: of a language model, those
    since the last answer."""

    shown: tuple[Shown, ...] = ()
    answer: str | None = None
    calls: int = 0


class MemorySystem(Protocol):
    """begin: forget everything, somebody else follows; write: keep these, in order of time; ask: see `Answered`; learn: what the
    last answer earned, from 0 to 1, told only where the setting says so; holds: which of these ids it still has, and size: bytes
    that it takes, both None where it cannot tell. shown: ids of what fitted into the budget, and was read."""

    def begin(self, seed: int) -> None: ...
    def write(self, entries: Sequence[MemoryEntry]) -> None: ...
    def ask(self, question: AskedQuestion) -> Answered: ...
    def learn(self, reward: float, shown: Sequence[str]) -> None: ...
    def holds(self, ids: Sequence[str]) -> frozenset[str] | None: ...
    def size(self) -> int | None: ...
    def close(self) -> None: ...


Maker = Callable[[], MemorySystem]


class NoMemory:
    """The arm without memory."""

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
    """A system that holds all that it was told as it is. Below it: what to show of it."""

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
    """The whole haystack, in order of time."""

    whole = True

    def ask(self, question: AskedQuestion) -> Answered:
        return self._show(list(self.entries))


class RandomEntries(Listing):
    """Entries at random."""

    def ask(self, question: AskedQuestion) -> Answered:
        ids = list(self.entries)
        draws = random.Random(f"{self.seed}/{question.text}")
        return self._show(draws.sample(ids, min(question.most, len(ids))))


class LatestEntries(Listing):
    """The newest entries, whatever is asked."""

    def ask(self, question: AskedQuestion) -> Answered:
        return self._show(list(self.entries)[::-1][: question.most])


class Dense(Listing):
    """The nearest entries by cosine: a matrix and a product, no engine of ours."""

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
    """An entry as it is remembered by every system: `8 May 2023, Caroline: I went ...`."""
    return spoken(entry, dates=True)


# Trouble.


class SystemFailed(KeepworthError):
    """A system raised, hung, or answered what is no answer."""


class NeverAnswered(SystemFailed):
    """A program that never comes so far as to answer: nothing of it can be measured."""


class Guarded:
    """A system whose mistakes are its own: what it raises is SystemFailed."""

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
        """Whether it shows all there is, which is never cut to a budget."""
        return bool(getattr(self._system, "whole", False))

    @property
    def versions(self) -> Mapping[str, str]:
        """Of the packages that it says it runs with."""
        versions: Mapping[str, str] = getattr(self._system, "versions", {})
        return versions

    def _call(self, operation: str, *given: Any) -> Any:
        try:
            return getattr(self._system, operation)(*given)
        except SystemFailed:
            raise
        except Exception as error:
            raise SystemFailed(f"{operation} raised {type(error).__name__}: {error!s:.200}", "") from error


# Settings: under what a system is measured. One word each, for every system alike.


SETTINGS: Mapping[str, str] = {
    "frozen": "it is written once and told no reward",
    "live": "it is told after each question what the answer earned",
    "shuffled": "live, with the reward of another question: what is left of a gain was not learned from rewards",
    "oracle": "shown is what holds the answer, and nothing else: what there is to gain",
    "another": "frozen, with the memory of another question: what is gained by any text at all",
}
LIVE = frozenset({"live", "shuffled"})
NEUTRAL = 0.5


def written(tasks: Sequence[Task], words: int) -> list[MemoryEntry]:
    """What a system is told before tasks over one haystack are asked. The hidden marks are taken off."""
    return [replace(entry, evidence=False) for entry in haystack(tasks[0], words)]


def evidence_of(task: Task, words: int) -> list[MemoryEntry]:
    """The entries of turns that hold the answer, in order of time."""
    marked = []
    for session in task.sessions:
        turns = tuple(turn for turn in session.turns if turn.evidence)
        if turns:
            marked.append(replace(session, turns=turns))
    return haystack(replace(task, sessions=tuple(marked)), words)


def oracle(gold: Sequence[MemoryEntry]) -> Answered:
    """What holds the answer, in order of time."""
    return Answered(tuple(Shown(place(entry), 1.0, as_remembered(entry)) for entry in gold))


@dataclass(slots=True)
class Rewards:
    """What a system is told its answers earned."""

    setting: str
    seed: int
    past: list[float] = field(default_factory=list)

    def passed_on(self, earned: float) -> float | None:
        """None where it is told nothing. Shuffled: an earlier question's, so that nothing it is told is about what it did; before
        the first, NEUTRAL."""
        if self.setting not in LIVE:
            return None
        if self.setting == "live":
            return earned
        drawn = random.Random(f"{self.seed}/{len(self.past)}").choice(self.past) if self.past else NEUTRAL
        self.past.append(earned)
        return drawn
