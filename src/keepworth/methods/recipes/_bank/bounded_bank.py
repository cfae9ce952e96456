"""The bounded bank: facts come one by one, the bank holds less than all of them, and a question comes after the last one.

Any writer plays it that can write a line. `ADD` keeps the new fact, `ADD 7` says beside it how much it matters, from 0 to 9;
`UPDATE 2` puts it in the place of entry 2, `DELETE 2` gives entry 2 up, `NOOP` lets the fact pass. Where the bank is full, what
matters least goes first, and of equals the oldest: so a writer that always says `ADD` keeps the latest facts, and one that says
how much each matters keeps the most important ones. Any text is a legal action: what makes no sense changes nothing and is
counted, and so is what cannot be done.

What is left in the bank is all that a reader has to answer with.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from keepworth.episodes.episode import OperationKind, ParseStatus
from keepworth.episodes.errors import KeepworthError
from keepworth.tasks.operations import read_operation

USUAL = 5.0
"""How much a fact matters where the writer does not say."""
MOST = 9.0
Unit = Literal["items", "tokens"]
Measure = Callable[[str], int]
"""The tokens of a text."""

_IMPORTANCE = re.compile(r"^\s*ADD\s+([0-9]+(?:\.[0-9]+)?)\s*$", re.IGNORECASE)


def words(text: str) -> int:
    """Tokens where no tokenizer is at hand."""
    return len(text.split())


@dataclass(frozen=True, slots=True)
class BankEntry:
    """A fact in the bank. number: of its arrival; matters: how much, from 0 to 9; pinned: it stays, whatever is
    asked for; part: of the bank that it stands in, where a bank has parts."""

    number: int
    text: str
    matters: float = USUAL
    pinned: bool = False
    part: str = ""


@dataclass(slots=True)
class BoundedBank:
    """At most `budget` items, or tokens. entries: in the order of their arrival. Every method is total: what cannot be done
    changes nothing, says why, and is counted.

    invalid: lines that made no sense; refused: what made sense and cannot be done, because the fact is longer than what is not
    pinned, or because the entry that it should replace is pinned. Raises KeepworthError for a budget below 1 and for
    entries that are more than it."""

    budget: int
    unit: Unit = "items"
    measure: Measure = words
    entries: list[BankEntry] = field(default_factory=list)
    invalid: int = 0
    refused: int = 0
    arrived: int = 0

    def __post_init__(self) -> None:
        if self.budget < 1:
            raise KeepworthError(
                f"a bank of {self.budget} {self.unit} holds nothing.", "Give it a budget of at least 1."
            )
        if (full := self._size(self.entries)) > self.budget:
            raise KeepworthError(
                f"a bank of {self.budget} {self.unit} was given entries of {full}.",
                "Give it fewer, or a larger budget.",
            )

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the facts that are in the bank."""
        return tuple(entry.number for entry in self.entries)

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(entry.text for entry in self.entries)

    def size(self, text: str) -> int:
        return 1 if self.unit == "items" else self.measure(text)

    def write(self, line: str, fact: str) -> str:
        """Carry out what `line` asks for about the next fact; what was done, in a word."""
        number, self.arrived = self.arrived, self.arrived + 1
        first = next((part for part in line.splitlines() if part.strip()), "")
        if importance := _IMPORTANCE.match(first):
            return self.put(BankEntry(number, fact, min(MOST, float(importance[1]))))
        kind, target, status = read_operation(line, shown=len(self.entries))
        if status is ParseStatus.INVALID:
            self.invalid += 1
            return "invalid"
        if kind is OperationKind.ADD:
            return self.put(BankEntry(number, fact))
        if target is None:
            return "passed"
        if self.entries[target].pinned:
            self.refused += 1
            return "refused"
        if kind is OperationKind.DELETE:
            del self.entries[target]
            return "deleted"
        if kind is OperationKind.UPDATE:
            before = list(self.entries)
            old = self.entries.pop(target)
            outcome = self.put(BankEntry(number, fact, old.matters))
            if outcome != "kept":
                self.entries = before
            return outcome
        return "passed"

    def _size(self, entries: Iterable[BankEntry]) -> int:
        return sum(self.size(entry.text) for entry in entries)

    def put(self, new: BankEntry) -> str:
        """kept, passed or refused. A fact that matters too little to get in pushes nothing out either."""
        if self._size([new, *(entry for entry in self.entries if entry.pinned)]) > self.budget:
            self.refused += 1
            return "refused"
        given_up = sorted((entry for entry in [*self.entries, new] if not entry.pinned), key=_least_first)
        left = [*self.entries, new]
        while self._size(left) > self.budget:
            gone = given_up.pop(0)
            if gone is new:
                return "passed"
            left = [entry for entry in left if entry is not gone]
        self.entries = left
        return "kept"


def _least_first(entry: BankEntry) -> tuple[float, int]:
    return entry.matters, entry.number
