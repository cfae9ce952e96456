"""The naive model that a night is compared with: a list of what was done, folded into a dictionary of items.

It knows nothing of SQLite, indexes, vectors, images or closures: what holds after some entry of the journal is what comes out
when all entries up to it are carried out in order on an empty dictionary, without those that are rolled back then and those that
are erased by then.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

NEVER = 2**62


@dataclass(frozen=True, slots=True)
class Note:
    """An item: `born` and `died` are times, "" for not yet; `credits` are the values of the rewards for it, sorted, as an item
    has their number and their sum, and not their order; `revision` is how often it was reworded, which is part of an item: where
    the first of two updates is undone, the item differs in that alone."""

    text: str
    user: str
    metadata: tuple[tuple[str, Any], ...] = ()
    status: str = "active"
    open: bool = True
    deleted: bool = False
    born: str = ""
    died: str = ""
    credits: tuple[float, ...] = ()
    revision: int = 0

    @property
    def current(self) -> bool:
        return self.open and not self.deleted and self.status == "active"


@dataclass(slots=True)
class Entry:
    """An entry of the journal: what was done at which time to which items, and when it was erased."""

    seq: int
    at: str
    kind: str
    user: str = ""
    text: str = ""
    targets: tuple[str, ...] = ()
    metadata: tuple[tuple[str, Any], ...] = ()
    status: str = ""
    value: float = 0.0
    source: str = ""
    episode: str = ""
    cancels: frozenset[int] = frozenset()
    erased_at: int = NEVER


State = dict[str, Note]


@dataclass(slots=True)
class Model:
    entries: list[Entry] = field(default_factory=list)
    erasures: list[int] = field(default_factory=list)
    secrets: dict[str, int] = field(default_factory=dict)
    """Words that may not be on the disk any more, by the entry that erased them."""

    @property
    def head(self) -> int:
        return self.entries[-1].seq if self.entries else 0

    def cancelled(self, until: int) -> set[int]:
        """Return the entries that do not count as of an entry. A newer rollback may cancel an older one."""
        out: set[int] = set()
        for entry in reversed(self.entries):
            if entry.kind == "rollback" and entry.seq <= until and entry.seq not in out:
                out |= entry.cancels
        return out

    def counting(self, until: int) -> list[Entry]:
        """Return the entries that count as of an entry."""
        gone = self.cancelled(until)
        return [
            entry for entry in self.entries if entry.seq <= until and entry.seq not in gone and entry.erased_at > until
        ]

    def fold(self, until: int) -> State:
        """Return the items as of an entry."""
        items: State = {}
        for entry in self.counting(until):
            _carry_out(items, entry)
        return items

    def rewards(self, until: int) -> list[float]:
        """Return the rewards that count as of an entry."""
        return [entry.value for entry in self.counting(until) if entry.kind == "reward"]

    def erase(self, dead: set[str], user: str, seq: int) -> None:
        """Take out of all entries what concerns these items, or, with a user, all that is that user's."""
        for entry in self.entries:
            made = f"m{entry.seq}" in dead or (user != "" and entry.user == user)
            concerned = {*entry.targets} & dead
            if entry.kind == "reward":
                # The values of other items stay.
                if concerned and not {*entry.targets} - dead:
                    made = True
                concerned = set()
            if made or concerned:
                entry.erased_at = min(entry.erased_at, seq)
        self.erasures.append(seq)


def _carry_out(items: State, entry: Entry) -> None:
    id = f"m{entry.seq}"
    there = [items.get(target) for target in entry.targets]
    if entry.kind == "add":
        same = [note for note in items.values() if note.current and note.text == entry.text and note.user == entry.user]
        if not same:
            items[id] = Note(entry.text, entry.user, entry.metadata, born=entry.at)
    elif entry.kind == "reward":
        for target in entry.targets:  # perhaps the same one several times
            if target in items:
                items[target] = replace(items[target], credits=tuple(sorted((*items[target].credits, entry.value))))
    elif entry.kind == "delete":
        for target, note in zip(entry.targets, there, strict=True):
            if note is not None and not note.deleted:
                items[target] = replace(note, deleted=True, died=note.died or entry.at)
    elif entry.kind in ("update", "metadata", "status", "supersede", "merge"):
        if any(note is None or note.deleted or not note.open for note in there):
            return
        notes = [note for note in there if note is not None]
        if entry.kind == "update":
            items[entry.targets[0]] = replace(notes[0], text=entry.text, revision=notes[0].revision + 1)
        elif entry.kind == "metadata":
            items[entry.targets[0]] = replace(notes[0], metadata=entry.metadata)
        elif entry.kind == "status":
            items[entry.targets[0]] = replace(notes[0], status=entry.status)
        else:
            for target, note in zip(entry.targets, notes, strict=True):
                items[target] = replace(note, open=False, died=entry.at)
            # What is merged was one fact in several wordings, true since the first of them.
            born = min(note.born for note in notes) if entry.kind == "merge" else entry.at
            items[id] = Note(entry.text, notes[0].user, born=born)
