"""A bounded bank in parts, edited by calls: the writer answers a chunk of facts with any number of short calls.

    E2      fact 2 of the chunk is added to part E
    E0=2    fact 2 of the chunk replaces entry 0 of part E
    -E0     entry 0 of part E is deleted

A part that is `single` is one paragraph, pinned: `C2` rewrites it, `-C` clears it. All parts share one budget; where it is full,
the oldest entry that is not pinned is dropped. Any text is legal: invalid and impossible calls change nothing, are reported and
counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from keepworth.base.text import as_line
from keepworth.memory.importance import specificity
from keepworth.methods.recipes._bank.bounded_bank import BankEntry, BoundedBank

DONE = frozenset({"kept", "deleted", "shortened", "retrieved"})
"""Outcomes of calls that changed the bank, or the context where a course has one."""

_CALL = re.compile(r"(-?)([A-Z])([0-9]{1,3})?(?:=([0-9]{1,3}))?")
_NOTHING = frozenset({"", "none", "done"})


@dataclass(frozen=True, slots=True)
class BankCall:
    """A parsed call, with its original text. entry: the number of an entry of its part, None for a new one; fact: the number of a
    fact of the chunk, None for a deletion."""

    part: str
    entry: int | None
    fact: int | None
    text: str


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """The outcome of one call: kept, deleted, duplicate, refused or invalid. call: None where the text is no call. fact: the
    written or deleted fact; number: its order of arrival, -1 without one."""

    call: BankCall | None
    outcome: str
    fact: str = ""
    number: int = -1

    @property
    def changed(self) -> bool:
        return self.outcome in DONE


def calls_of(text: str) -> list[BankCall | None]:
    """Returns the calls of a response's first line, None for each invalid word. `none`, `done` and an empty line are no call."""
    first = next((line for line in text.splitlines() if line.strip()), "").strip()
    if first.lower() in _NOTHING:
        return []
    return [_call(word) for word in re.split(r"[\s,;]+", first) if word]


def _call(word: str) -> BankCall | None:
    match = _CALL.fullmatch(word)
    if match is None:
        return None
    gone, part, first, second = match.groups()
    number, other = (None if digits is None else int(digits) for digits in (first, second))
    if gone:
        return None if other is not None else BankCall(part, number, None, word)
    if number is None:
        return None
    return BankCall(part, None, number, word) if other is None else BankCall(part, number, other, word)


@dataclass(slots=True)
class PartedBank:
    """A bank with parts. bank: holds the entries of all parts. lists: the letters of parts with any number of entries; single:
    the letters of one-paragraph parts, with the length to which they are cut."""

    bank: BoundedBank
    lists: tuple[str, ...]
    single: Mapping[str, int] = field(default_factory=dict)

    def entries(self, part: str) -> list[BankEntry]:
        """Returns the entries of a part, the oldest first."""
        return sorted((entry for entry in self.bank.entries if entry.part == part), key=lambda item: item.number)

    def carry_out(self, call: BankCall | None, facts: Sequence[str], first: int) -> CallOutcome:
        """Executes a call. facts: those of the chunk; first: the order of arrival of the first of them."""
        invalid = CallOutcome(call, "invalid")
        if call is None or (call.part not in self.lists and call.part not in self.single):
            return invalid
        entries, single = self.entries(call.part), call.part in self.single
        if call.entry is not None and not single and call.entry >= len(entries):
            return invalid
        if call.fact is None:
            gone = entries[:1] if single else [] if call.entry is None else entries[call.entry : call.entry + 1]
            if not gone:
                return invalid
            self.bank.entries.remove(gone[0])
            return CallOutcome(call, "deleted", gone[0].text, gone[0].number)
        if call.fact >= len(facts):
            return invalid
        text, number = facts[call.fact], first + call.fact
        if single:
            text = cut(text, self.single[call.part], self.bank)
        if any(entry.text == text for entry in entries):
            return CallOutcome(call, "duplicate", text, number)
        before = list(self.bank.entries)
        if single or call.entry is not None:
            for old in entries[:1] if single else [entries[call.entry or 0]]:
                self.bank.entries.remove(old)
        outcome = self.bank.put(BankEntry(number, text, pinned=single, part=call.part))
        if outcome != "kept":
            self.bank.entries = before
        return CallOutcome(call, outcome, text, number)


CUT = " ..."


def cut(text: str, most: int, bank: BoundedBank) -> str:
    """Returns as many words as fit into `most`, in the bank's own measure, with a mark where some are left out."""
    if bank.measure(text) <= most:
        return text
    words = text.split()
    while len(words) > 1 and bank.measure(" ".join(words)) > most:
        words.pop()
    return " ".join(words) + CUT


@dataclass(frozen=True, slots=True)
class ChunkTurn:
    """The effects of one response. calls: in their order; chunk: the facts it was about; before, after: the entries of the bank;
    arrived: how many facts had arrived before and after, where the bank's state depends on it."""

    chunk: tuple[str, ...]
    calls: tuple[CallOutcome, ...]
    before: tuple[BankEntry, ...]
    after: tuple[BankEntry, ...]
    arrived: tuple[int, int] = (0, 0)


class ChunkedWriting:
    """One stream written into a parted bank, chunk by chunk. facts: in the order of arrival; chunk: facts per chunk; recent: how
    many of the latest entries of each part the prompt shows, 0 for none of the bank; ask: the last line of the prompt. All turns
    have one state, so that an objective can compare all turns of a group."""

    state, stop = "turn", "\n"

    def __init__(self, facts: Sequence[str], bank: PartedBank, chunk: int, recent: int, ask: str) -> None:
        self.facts, self.bank, self.ask = tuple(facts), bank, ask
        self.turns: list[ChunkTurn] = []
        self.recent, self._chunk, self._next = recent, chunk, 0

    @property
    def waiting(self) -> tuple[str, ...]:
        """Returns the next chunk, or () after the last."""
        return self.rest[: self._chunk]

    @property
    def rest(self) -> tuple[str, ...]:
        """Returns all facts that are not written yet."""
        return self.facts[self._next :]

    @property
    def shown(self) -> tuple[BankEntry, ...]:
        """Returns the entries for the reader: paragraphs, then each part's entries, the oldest first."""
        parts = (*self.bank.single, *self.bank.lists)
        return tuple(entry for part in parts for entry in self.bank.entries(part))

    @property
    def stored(self) -> tuple[int, ...]:
        """Returns the numbers of the facts that are in the bank."""
        return self.bank.bank.numbers

    def prompt(self, most: int) -> str | None:
        """Returns the writer's prompt, with each fact cut to `most` words; None after the last chunk."""
        if not self.waiting:
            return None
        lines = []
        for part in (*self.bank.single, *self.bank.lists) if self.recent else ():
            entries = list(enumerate(self.bank.entries(part)))[-self.recent :]
            lines += [f"{part}{number} {short(entry.text, most)}" for number, entry in entries]
        lines += ["New:", *(f"{number} {short(fact, most)}" for number, fact in enumerate(self.waiting)), self.ask]
        return "\n".join(lines)

    def act(self, text: str) -> ChunkTurn:
        """Executes a response about the next chunk."""
        chunk, before = self.waiting, tuple(self.bank.bank.entries)
        calls = tuple(self.bank.carry_out(call, chunk, self._next) for call in calls_of(text))
        self._next += len(chunk)
        self.bank.bank.arrived = self._next
        self.bank.bank.invalid += sum(call.outcome == "invalid" for call in calls)
        self.turns.append(ChunkTurn(chunk, calls, before, tuple(self.bank.bank.entries)))
        return self.turns[-1]


def short(text: str, most: int) -> str:
    return " ".join(as_line(text).split()[:most])


def most_specific_calls(
    course: ChunkedWriting, share: int, part_of: Callable[[str], str], single: str = "", otherwise: str = ""
) -> str:
    """Returns a response by the rule `most specific`. A writer that does not see the bank stores the `share` most specific facts
    of the chunk. One that sees it fills it, and then replaces the least specific entries by more specific facts.

    part_of: the part of a fact; where that is `single` and taken, it is `otherwise`.
    """
    chunk, calls = course.waiting, list[str]()
    order = sorted(range(len(chunk)), key=lambda number: -specificity(chunk[number]))
    if not course.recent:
        return " ".join(f"{part_of(chunk[number])}{number}" for number in sorted(order[:share]))
    bank = replace(course.bank.bank, entries=list(course.bank.bank.entries))
    tried = PartedBank(bank, course.bank.lists, course.bank.single)
    for number in order:
        part, size = part_of(chunk[number]), bank.size(chunk[number])
        if part == single and tried.entries(single):
            part = otherwise
        lines: list[str] = []
        while sum(map(bank.size, bank.texts)) + size > bank.budget:
            least = min(bank.entries, key=lambda entry: specificity(entry.text), default=None)
            if least is None or specificity(least.text) >= specificity(chunk[number]):
                return " ".join(calls) or "none"
            lines.append(f"-{least.part}{tried.entries(least.part).index(least)}")
            bank.entries.remove(least)
        if len(lines) == 1 and lines[0][1] == part:
            lines = [f"{lines[0][1:]}={number}"]
        else:
            lines.append(f"{part}{number}")
        calls += lines
        for call in calls_of(f"{part}{number}"):
            tried.carry_out(call, chunk, bank.arrived)
    return " ".join(calls) or "none"
