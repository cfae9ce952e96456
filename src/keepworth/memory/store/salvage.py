"""What can still be read of a damaged memory file, as an export that `import --unsound` takes.

The file is opened read-only and read in ranges of keys. A range that cannot be read is halved until only the rows that are gone
are left out, so one bad page costs the rows on it. Items whose rows are gone are made again from the journal; where an entry that
is gone changed them later, they go into quarantine. Entries that are gone leave a place-holder without content, as erased ones
do: nothing can be undone past them.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw

from keepworth.episodes.episode import OperationKind
from keepworth.episodes.model import EncoderIdentity
from keepworth.memory.errors import MemoryProblem, NotAMemoryFile, OlderFile
from keepworth.memory.item import Item, Scope, Status, timestamp, to_record
from keepworth.memory.store import rows, schema, undo
from keepworth.memory.store.connection import first, scalar, select
from keepworth.memory.store.database import check_version, refuse_strangers
from keepworth.memory.store.rows import Entry
from keepworth.memory.store.transfer import FORMAT, TABLES, VERSION, checked, line, plain, plain_row

CHUNK = 512
"""Keys looked up at once."""
BEYOND = 4096
"""Keys looked up after the newest that is known, where the end of the journal cannot be read."""
NAMED = 20
"""Ranges of keys that are named."""
GONE = "could not be read"
"""The reason that a place-holder gives."""
_BAD = (apsw.CorruptError, apsw.NotADBError, apsw.IOError, apsw.MismatchError, UnicodeDecodeError)
Row = tuple[Any, ...]


def salvaged(path: Path, lost: list[str]) -> Generator[str, None, None]:
    """Lines of JSON as `exported` gives them, without their line breaks. lost: to it is added, in words, what could not be read;
    it is whole after the last line. Nothing is written to the file. Raises NotAMemoryFile where its tables cannot be found."""
    refuse_strangers(str(path))
    with contextlib.closing(_opened(path)) as connection:
        try:
            connection.execute("BEGIN")
            found = check_version(str(path), connection)
        except apsw.Error as error:
            raise NotAMemoryFile(
                f"the first page of {path} is damaged ({error}), and it says where everything is: restore a backup"
            ) from error
        if found < schema.VERSION:
            raise OlderFile(
                f"{path} has format {found}, and only {schema.VERSION} is salvaged: take the version of keepworth that wrote it"
            )
        yield from _Reader(connection, os.path.getsize(path), lost).lines()


def _opened(path: Path) -> apsw.Connection:
    where = os.path.abspath(path)
    try:
        connection = apsw.Connection(where, flags=apsw.SQLITE_OPEN_READONLY)
        select(connection, "SELECT 1 FROM sqlite_schema LIMIT 1")
    except apsw.Error:  # its log cannot be used: what is in the file itself may be readable
        uri = f"file:{quote(where)}?immutable=1"
        connection = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    return connection


NULLABLE = {"payload", "content", "body", "before"}
"""Columns that may be empty."""
KEYS = {"change": ("seq", "n"), "tombstone": ("n",), "episode": ("id",), "decision": ("n", "id")}
"""What no two rows share: the first two columns together, else each by itself."""


class _Reader:
    """scopes: by their numbers in the file; erased: numbers of items that were erased on purpose; unread: journal entries that
    are gone; doubted: numbers of items that these changed, None where that is not known."""

    def __init__(self, connection: apsw.Connection, size: int, lost: list[str]) -> None:
        self.connection, self.size, self.lost = connection, size, lost
        self.scopes: dict[int, Scope] = {}
        self.erased: set[int] = set()
        self.unread: set[int] = set()
        self.doubted: set[int] | None = set()

    def lines(self) -> Iterator[str]:
        ends = {
            table: self.newest(table, key) for table, key in (("events", "seq"), ("items", "n"), ("touches", "seq"))
        }
        end = max((each for each in ends.values() if each is not None), default=self.size // 64)
        if None in ends.values():
            end += BEYOND
        # A look at the keys alone: the first line says how long the journal is.
        seqs = {seq for (seq,) in self.rows("events", "seq", "seq", end, [])}
        numbers = {n for (n,) in self.rows("items", "n", "n", end, [])}
        head = max(seqs | numbers | {seq for (seq,) in self.rows("touches", "seq", "seq", end, [])}, default=0)
        encoder = self.identity()
        yield line({"format": FORMAT, "version": VERSION, "head": head, "encoder": encoder and asdict(encoder)})
        yield from self.named_scopes(head)
        created = yield from self.events(head)
        yield from self.table("change", "seq", head, self.sound_change)
        if ends["events"] is None and ends["touches"] is None:
            self.doubted = None
            self.lost.append(f"what came after journal entry {head}, if anything did")
        for number in sorted(created | (numbers & self.unread)):
            yield line({"change": [number, number, 1, None]})
        yield from self.table("tombstone", "n", head, self.note_erased)
        yield from self.table("episode", "rowid", self.newest("episodes", "rowid"))
        yield from self.table("decision", "n", self.newest("decisions", "n"))
        yield from self.items(head)

    def newest(self, table: str, key: str) -> int | None:
        """The highest key; 0 of an empty table, None where the end cannot be read."""
        try:
            return scalar(self.connection, f"SELECT max({key}) FROM {table}") or 0
        except _BAD:
            return None

    def identity(self) -> EncoderIdentity | None:
        try:
            row = first(self.connection, "SELECT model, dimension, normalised FROM vector_sets WHERE state = 'serving'")
            return None if row is None else EncoderIdentity(row[0], row[1], bool(row[2]))
        except _BAD:
            self.lost.append("the name of the encoder: import with --encoder")
            return None

    def rows(self, table: str, columns: str, key: str, end: int | None, gone: list[int]) -> Iterator[Row]:
        """Rows in order of their keys, up to `end`. gone: to it are added the keys at which nothing can be read."""
        if end is None:
            end = self.size // 64  # no row is smaller
        query = f"SELECT {columns} FROM {table} WHERE {key} BETWEEN ? AND ? ORDER BY {key}"
        for start in range(1, end + 1, CHUNK):
            ranges = [(start, min(start + CHUNK - 1, end))]
            while ranges:
                low, high = ranges.pop()
                try:
                    found = select(self.connection, query, (low, high))
                except _BAD:
                    if low == high:
                        gone.append(low)
                    else:
                        middle = (low + high) // 2
                        ranges += [(middle + 1, high), (low, middle)]
                    continue
                yield from found

    def named_scopes(self, head: int) -> Iterator[str]:
        last = self.newest("scopes", "id")
        for id, *parts in self.rows("scopes", "id, tenant, user, agent, session", "id", last, []):
            with contextlib.suppress(MemoryProblem):
                self.scopes[id] = Scope(*parts)
        with contextlib.suppress(*_BAD, MemoryProblem):  # the index by name says the same
            for id, *parts in self.connection.execute(
                "SELECT id, tenant, user, agent, session FROM scopes ORDER BY tenant, user, agent, session"
            ):
                self.scopes.setdefault(id, Scope(*parts))
        homes = {
            home
            for table, key in (("events", "seq"), ("items", "n"))
            for (home,) in self.rows(table, "scope", key, head, [])
            if isinstance(home, int)
        }
        unnamed = sorted(homes - set(self.scopes))
        for home in unnamed:
            # Whose it was is not known, so it becomes nobody else's.
            self.scopes[home] = Scope(user=f"unreadable scope {home}")
        self.say("names of scopes", unnamed, "what is in them is in user 'unreadable scope N'")
        for id, scope in sorted(self.scopes.items()):
            yield line({"scope": [id, *scope.parts()]})

    def events(self, head: int) -> Generator[str, None, set[int]]:
        """The journal without gaps. Returns the numbers of the entries that created an item."""
        created: set[int] = set()
        expected, at, home = 1, timestamp(0), min(self.scopes, default=0)

        def missing(end: int) -> Iterator[str]:
            for number in range(expected, end):
                self.unread.add(number)
                yield line({"event": [number, at, OperationKind.NOOP.value, home, "", "", None, 0, GONE, None, None]})

        for row in self.rows("events", TABLES["event"][1], "seq", head, []):
            if row[0] < expected or self.entry(row) is None:
                continue
            yield from missing(row[0])
            expected, at = row[0] + 1, row[1]
            if row[7] == schema.CREATED:
                created.add(row[0])
            yield line({"event": [plain(value) for value in (*row[:7], min(row[7], 1), *row[8:])]})
        yield from missing(head + 1)
        self.say("journal entries", self.unread, "nothing can be undone past them")
        return created

    def entry(self, row: Row) -> Entry | None:
        """A row of the journal, None where it is not one that a memory wrote."""
        seq, at, kind, scope, episode, source, payload, applied, reason, content, body = row
        texts = all(isinstance(each, str) for each in (at, kind, episode, source, reason))
        if not texts or scope not in self.scopes or applied not in (0, 1, schema.CREATED):
            return None
        if (
            not isinstance(payload, str | None)
            or not isinstance(content, int | None)
            or not isinstance(body, bytes | None)
        ):
            return None
        entry = Entry(seq, at, kind, self.scopes[scope], episode, source, payload, bool(applied), reason)
        try:
            if entry.act() is None and payload is not None:
                said = json.loads(payload)
                _ = [(low, high) for low, high in said["ranges"]] if kind == rows.ROLLBACK else []
                _ = said["ids"] if kind == rows.PURGE else said["name"] if kind == rows.PARAMETERS else []
        except (rows.Unreadable, KeyError, TypeError, ValueError, RecursionError):
            return None
        return entry

    def table(self, name: str, key: str, end: int | None, sound: Callable[[Row], None] | None = None) -> Iterator[str]:
        """A table as it is exported. sound: raises rows.Unreadable for a row that no memory wrote."""
        table, columns = TABLES[name]
        named = columns.split(", ")
        gone: list[int] = []
        seen: set[tuple[Any, ...]] = set()
        for row in self.rows(table, columns if key != "rowid" else f"rowid, {columns}", key, end, gone):
            number, values = row[0], dict(zip(named, row[1:] if key == "rowid" else row, strict=True))
            keys = (
                [tuple(values[each] for each in KEYS[name])]
                if name == "change"
                else [(k, values[k]) for k in KEYS[name]]
            )
            try:
                if any(value is None and column not in NULLABLE for column, value in values.items()):
                    raise rows.Unreadable("a row that no memory wrote")
                if seen.intersection(keys) or ("scope" in values and values["scope"] not in self.scopes):
                    raise rows.Unreadable("a row that no memory wrote")
                if sound is not None:
                    sound(tuple(values.values()))
                said = plain_row(name, values.values())
            except rows.Unreadable:
                gone.append(number if isinstance(number, int) else 0)
                continue
            seen.update(keys)
            yield line({name: said})
        self.say(f"places in the table {table}", gone)
        if name == "change" and self.unread.intersection(gone):
            self.doubted = None

    def sound_change(self, row: Row) -> None:
        if not all(isinstance(each, int) for each in row[:3]):
            raise rows.Unreadable("a row that no memory wrote")
        rows.image(row[3])
        if row[0] in self.unread and self.doubted is not None:
            self.doubted.add(row[1])

    def note_erased(self, row: Row) -> None:
        self.erased.add(row[0])

    def items(self, head: int) -> Iterator[str]:
        gone: list[int] = []
        for row in self.rows("items", rows.COLUMNS.rsplit(",", 1)[0], "n", head, gone):
            try:
                yield line({"item": to_record(checked(rows.to_item(row, self.scopes[row[1]])))})
            except (rows.Unreadable, KeyError, ValueError, TypeError):
                gone.append(row[0])
        if not gone:
            return
        again = self.replayed(head)
        made = {n: item for n in set(gone) - self.erased if (item := again.get(f"m{n}")) is not None}
        doubted = set(made) if self.doubted is None else set(made) & self.doubted
        for n, item in sorted(made.items()):
            held = replace(item, status=Status.QUARANTINED) if n in doubted and item.current else item
            yield line({"item": to_record(held)})
        self.say("items", set(made) - doubted, "they were made again from the journal")
        self.say(
            "items", doubted, "they were made again, but what the journal says last of them is gone: in quarantine"
        )
        self.say(
            "items", set(gone) & self.unread - self.erased, "at most; nor could the journal entries that wrote them"
        )

    def replayed(self, head: int) -> dict[str, Item]:
        """The items that the readable entries of the journal lead to."""
        found = self.rows("events", TABLES["event"][1], "seq", head, [])
        entries = [entry for row in found if (entry := self.entry(row)) is not None]
        ranges = [
            (entry.seq, tuple((low, high) for low, high in json.loads(entry.payload)["ranges"]))
            for entry in entries
            if entry.kind == rows.ROLLBACK and entry.payload is not None
        ]
        cancelled = undo.active_ranges(ranges)
        return undo.replay(entry for entry in entries if not undo.within(entry.seq, cancelled))[0].items

    def say(self, what: str, keys: Iterable[int], more: str = "") -> None:
        ranges = undo.ranges_of(keys)
        if ranges:
            listed = [str(low) if low == high else f"{low} to {high}" for low, high in ranges]
            rest = f" and {len(listed) - NAMED} more ranges" if len(listed) > NAMED else ""
            count = sum(high - low + 1 for low, high in ranges)
            said = f"{count:,} {what} ({', '.join(listed[:NAMED])}{rest})"
            self.lost.append(f"{said}: {more}" if more else said)
