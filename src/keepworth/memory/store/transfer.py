"""Export and import: the whole memory as lines of JSON, without loss.

The first line describes the export. Then come scopes, journal, images, episodes, decisions and parameters: enough to rebuild
every snapshot. Vectors are left out; the importing memory makes its own.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Generator, Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from keepworth.base.errors import KeepworthError
from keepworth.memory.errors import MemoryProblem, NotAMemoryFile
from keepworth.memory.item import Scope, Status, checked_text, compact_json, from_record, to_record
from keepworth.memory.operations import Assignment, Draft
from keepworth.memory.scan import HELD_FOR, Scan
from keepworth.memory.store import notes, rows
from keepworth.memory.store.checks import journal_problems
from keepworth.memory.store.connection import AnyConnection, first, scalar, select
from keepworth.memory.store.decision_log import as_json, packed, unpacked
from keepworth.memory.store.transaction import Transaction
from keepworth.records.model import EncoderIdentity

if TYPE_CHECKING:
    from keepworth.memory.store.store import Store

FORMAT = "keepworth memory"
VERSION = 3
TABLES = {
    "event": ("events", "seq, at, kind, scope, episode, source, payload, applied, reason, content, body"),
    "change": ("touches", "seq, n, changed, before"),
    "tombstone": ("tombstones", "n, scope, seq"),
    "episode": ("episodes", "id, scope, task, began, ended, outcome, person"),
    "decision": (
        "decisions",
        "n, id, at, scope, episode, step, kind, query, candidates, chosen, propensity, policy, details",
    ),
}
CANDIDATES = TABLES["decision"][1].split(", ").index("candidates")
"""Index of the candidates in a decision's row; an export has them in JSON."""
_SAID = {
    "events": "(SELECT *, CASE applied WHEN 0 THEN 0 ELSE 1 END AS done FROM events) AS said",
    "touches": "changes",
}
"""What is exported in place of a table: an export names every item that an event touched, also the one it created."""


def exported(store: Store) -> Generator[str, None, None]:
    """Yield the lines of an export, JSON without line breaks, from one snapshot even while others write."""
    with store.database.reading() as connection:
        items = scalar(connection, "SELECT count(*) FROM items")
        identity = store.encoder_identity()
        encoder = None if identity is None else asdict(identity)
        tables = ["scopes", "items", *(_SAID.get(table, table) for table, _ in TABLES.values())]
        size = sum(scalar(connection, f"SELECT count(*) FROM {table}") for table in tables)
        header = {"format": FORMAT, "version": VERSION, "head": store.head(), "items": items, "lines": size}
        bounds = notes.reward_range(store, None)
        yield compact_json(
            {**header, "encoder": encoder, **({} if bounds == notes.USUAL_RANGE else {"reward_range": bounds})}
        )
        for id, *parts in select(connection, f"SELECT id, {rows.SCOPE} FROM scopes ORDER BY id"):
            yield compact_json({"scope": [id, *parts]})
        for name, (table, columns) in TABLES.items():
            selected, source = columns.replace("applied", "done"), _SAID.get(table, table)
            for row in connection.execute(f"SELECT {selected} FROM {source} ORDER BY 1, 2"):
                yield compact_json({name: _plain_row(name, row)})
        for row in connection.execute(f"{rows.SELECT} ORDER BY n"):
            yield compact_json({"item": to_record(rows.to_item(row, store.scope_named(connection, row[1])))})


def encoder_of(first_line: str) -> EncoderIdentity | None:
    """Return the identity of the encoder that made an exported memory's vectors, or None if its first line names none."""
    try:
        return EncoderIdentity(**json.loads(first_line)["encoder"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def imported(store: Store, lines: Iterable[str]) -> int:
    """Fill an empty memory from exported lines, all or nothing in one transaction; return the number of items.

    Open items in which the store's scan finds a secret go into quarantine, except those that were released from it before; the
    journal is taken as it is. Raises MemoryProblem if the memory is not empty, NotAMemoryFile, RefusedText.
    """
    if store.head():
        raise MemoryProblem(f"{store.database.path} is not empty: import needs a new file")

    header, records = _parsed(lines)
    items = [value for _, name, value in records if name == "item"]
    refused: tuple[type[Exception], ...] = (*_NOT_OURS, *store.database.errors)

    def work(transaction: Transaction) -> int:
        scopes: dict[int, int] = {}
        for number, name, value in records:
            try:
                _insert(transaction, name, value, scopes)
            except refused as error:
                raise _no_export(number, error) from error
        _check_whole(transaction.connection, header, len(records), len(items))
        if "reward_range" in header:
            notes.keep_range(transaction.connection, header["reward_range"])
        _finish(store, transaction)
        if store.scan is not None:
            # A transaction that continues after the newest imported entry.
            _hold(Transaction(transaction.connection, Scope(), set_id=store.set_id), store.scan, store.clock())
        return len(items)

    vectors: dict[str, bytes] = {}
    for start in range(0, len(items), 512):
        vectors.update(store.encode(item.searched_text for item in items[start : start + 512]))
    try:
        result = store.change(Scope(), work, vectors)
    except KeepworthError:
        raise
    except refused as error:
        raise NotAMemoryFile(
            f"the import is not of an exported memory ({error}): give what `export` wrote; nothing was imported"
        ) from error
    store.reset_caches()
    return result


_NOT_OURS = (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError)
"""What reading a line can raise that no export wrote."""


def _parsed(lines: Iterable[str]) -> tuple[dict[str, Any], list[tuple[int, str, Any]]]:
    """Return the header, and (number, name, value) of each line; items are decoded already. Raises NotAMemoryFile."""
    try:
        lines = list(lines)
    except UnicodeDecodeError as error:
        raise NotAMemoryFile(f"the import is not UTF-8 text ({error}): give a file that `export` wrote") from error
    header: dict[str, Any] = {}
    records: list[tuple[int, str, Any]] = []
    for number, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        try:
            record: dict[str, Any] = json.loads(text)
            if number == 1:
                _check_header(record)
                header = record
                continue
            ((name, value),) = record.items()
            if name == "item":
                value = from_record(value)
                checked_text(value.searched_text)
                if rows.number_of(value.id) is None:
                    raise ValueError(f"{value.id!r:.40} is no item's id")
            records.append((number, name, value))
        except _NOT_OURS as error:
            raise _no_export(number, error) from error
    return header, records


def _insert(transaction: Transaction, name: str, value: Any, scopes: dict[int, int]) -> None:
    """Write what a line holds to the file. `scopes` maps scope ids of the export to those of this file."""
    if name == "scope":
        scopes[value[0]] = transaction.scope_row(Scope(*value[1:])).id
        return
    if name == "item":
        transaction.put(value)
        return
    table, columns = TABLES[name]
    values: list[Any] = [base64.b64decode(cell["base64"]) if isinstance(cell, dict) else cell for cell in value]
    named = columns.split(", ")
    if name == "decision":
        values[CANDIDATES] = packed(unpacked(values[CANDIDATES]))
    if "scope" in named:
        column = named.index("scope")
        values[column] = scopes[values[column]]
    marks = ",".join("?" * len(named))
    transaction.connection.execute(f"INSERT INTO {table}({', '.join(named)}) VALUES({marks})", values)


def _check_whole(connection: AnyConnection, header: dict[str, Any], lines: int, items: int) -> None:
    """Raise NotAMemoryFile if lines are missing."""
    last, entries = first(connection, "SELECT coalesce(max(seq), 0), count(*) FROM events")
    there = {"lines": lines, "head": last, "items": items}
    announced = {"lines": lines, "items": items, **{name: header[name] for name in there if name in header}}
    if announced != there or entries != last:
        raise NotAMemoryFile(
            f"the import is incomplete: it has {lines} lines, {entries} journal entries up to number {last} and {items} "
            f"items, and says {announced}: export again; nothing was imported"
        )


def _hold(transaction: Transaction, scan: Scan, now: str) -> None:
    """Put into quarantine what a write with this scan would; what was released from quarantine before stays out."""
    held_once = "SELECT DISTINCT n FROM touches WHERE json_extract(before, '$.status') = 'quarantined'"
    released = {f"m{n}" for (n,) in select(transaction.connection, held_once)}
    open_ones = select(transaction.connection, "SELECT n FROM items WHERE content IS NOT NULL AND status = 'active'")
    for (n,) in open_ones:
        item = transaction.load(f"m{n}")
        if item is None or item.id in released:
            continue
        kinds = scan.holds(item)
        if kinds:
            fields = {"status": Status.QUARANTINED.value, "metadata": {**item.metadata, HELD_FOR: kinds}}
            transaction.perform(Assignment(item.id, fields), Draft(scope=item.scope), now=now)
    transaction.finish()


def _finish(store: Store, transaction: Transaction) -> None:
    """Finish what was imported. Raises NotAMemoryFile where its journal cannot be read or does not make its items."""
    try:
        transaction.finish()
        problems = journal_problems(store, transaction.connection)
    except rows.Unreadable as error:
        problems = [str(error)]
    if problems:
        raise NotAMemoryFile(
            f"the import does not agree with itself ({problems[0]}): run `keepworth memory check` on the memory it came "
            "from, and restore a backup of it or `export --to jsonl`, which has no history; nothing was imported"
        )


def _no_export(number: int, error: Exception) -> NotAMemoryFile:
    return NotAMemoryFile(
        f"line {number} of the import is not of an exported memory ({error}): give what `export` wrote, or name another format "
        "with --from; nothing was imported"
    )


def _check_header(record: dict[str, Any]) -> None:
    if record.get("format") != FORMAT:
        raise ValueError("the first line does not say so")
    version = record.get("version", 0)
    if version > VERSION:
        raise ValueError(f"it has format {version}, this version knows {VERSION}: upgrade keepworth")
    if version < VERSION:
        raise ValueError(
            f"it has format {version}, this version reads {VERSION}: import what `export --to jsonl` wrote"
        )
    low, high = map(float, record.get("reward_range", notes.USUAL_RANGE))
    if not -math.inf < low < high < math.inf:
        raise ValueError(f"its range of rewards, {low:g} to {high:g}, holds none")


def _plain_row(name: str, row: Iterable[Any]) -> list[object]:
    """Return the values of a row, called `name` in the export, as JSON can hold them: bytes as base64. Raises rows.Unreadable for
    malformed candidates of a decision."""
    values = list(row)
    if name == "decision":
        with rows.readable(f"the candidates of decision {values[1]!r:.40}"):
            values[CANDIDATES] = as_json(unpacked(values[CANDIDATES]))
    return [{"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value for value in values]
