"""The bounded bank: facts arrive one by one, the bank has no room for all of them, and a question follows the last one.

A writer answers each fact with a line. `ADD` stores the new fact, `ADD 7` also gives its importance, from 0 to 9; `UPDATE 2`
replaces entry 2 by it, `DELETE 2` deletes entry 2, `NOOP` skips the fact. Where the bank is full, the least important entry is
dropped, of equals the oldest: so a writer that always says `ADD` keeps the latest facts, and one that gives importances keeps the
most important ones. Any text is a legal action: invalid and impossible ones change nothing and are counted.

A reader answers from what is left in the bank and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from keepworth.records.episode import OperationKind, ParseStatus
from keepworth.records.operations import read_operation

USUAL = 5.0
"""The importance of a fact where the writer gives none."""
MOST = 9.0
Unit = Literal["items", "tokens"]
Measure = Callable[[str], int]
"""Returns the number of tokens of a text."""

_IMPORTANCE = re.compile(r"^\s*ADD\s+([0-9]+(?:\.[0-9]+)?)\s*$", re.IGNORECASE)


def words(text: str) -> int:
    """Counts words: the measure where no tokenizer is available."""
    return len(text.split())


@dataclass(frozen=True, slots=True)
class BankEntry:
    """A fact in the bank. number: its order of arrival; matters: its importance, from 0 to 9; pinned: whether it is never
    dropped; part: the part of the bank that holds it, where a bank has parts."""

    number: int
    text: str
    matters: float = USUAL
    pinned: bool = False
    part: str = ""


@dataclass(slots=True)
class BoundedBank:
    """A bank of at most `budget` items, or tokens, with `entries` in order of arrival. Its methods never raise: impossible
    requests change nothing, return the reason, and are counted.

    invalid: number of unparsable lines; refused: number of valid but impossible ones, because the fact does not fit beside pinned
    entries, or because the entry to replace is pinned.
    """

    budget: int
    unit: Unit = "items"
    measure: Measure = words
    entries: list[BankEntry] = field(default_factory=list)
    invalid: int = 0
    refused: int = 0
    arrived: int = 0

    @property
    def numbers(self) -> tuple[int, ...]:
        """Returns the numbers of the facts that are in the bank."""
        return tuple(entry.number for entry in self.entries)

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(entry.text for entry in self.entries)

    def size(self, text: str) -> int:
        return 1 if self.unit == "items" else self.measure(text)

    def write(self, line: str, fact: str) -> str:
        """Executes `line` for the next fact, and returns the outcome in a word."""
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
        before = list(self.entries)
        old = self.entries.pop(target)
        outcome = self.put(BankEntry(number, fact, old.matters))
        if outcome != "kept":
            self.entries = before
        return outcome

    def _size(self, entries: Iterable[BankEntry]) -> int:
        return sum(self.size(entry.text) for entry in entries)

    def put(self, new: BankEntry) -> str:
        """Stores an entry and returns "kept", "passed" or "refused". A fact not important enough drops no other fact."""
        if self._size([new, *(entry for entry in self.entries if entry.pinned)]) > self.budget:
            self.refused += 1
            return "refused"
        left = [*self.entries, new]
        given_up = sorted(
            (entry for entry in left if not entry.pinned), key=lambda entry: (entry.matters, entry.number)
        )
        while self._size(left) > self.budget:
            gone = given_up.pop(0)
            if gone is new:
                return "passed"
            left = [entry for entry in left if entry is not gone]
        self.entries = left
        return "kept"
