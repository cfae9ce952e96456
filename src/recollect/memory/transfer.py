"""Export and import: the whole memory as lines of JSON, without loss.

The first line says what it is. Then come scopes, journal, images, episodes, decisions and parameters: enough to rebuild
every snapshot. Vectors are left out; the importing memory makes its own.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import apsw

from recollect.memory import rows
from recollect.memory.database import scalar, select
from recollect.memory.errors import MemoryProblem, NotAMemoryFile
from recollect.memory.item import checked_text, from_record, to_record
from recollect.memory.migration import number_by_scope
from recollect.memory.scope import Scope
from recollect.memory.transaction import Transaction

if TYPE_CHECKING:
    from recollect.memory.store import Store

FORMAT = "recollect memory"
VERSION = 2
"""1: duplicates were numbered as in format 1 of the file; still imported."""
_TABLES = {
    "event": ("events", "seq, at, kind, scope, episode, source, payload, applied, reason, content, body"),
    "change": ("touches", "seq, n, changed, before"),
    "tombstone": ("tombstones", "n, scope, seq"),
    "episode": ("episodes", "id, scope, task, began, ended, outcome"),
    "decision": ("decisions", "n, id, at, scope, episode, step, kind, query, candidates, chosen, propensity, policy"),
}
_SAID = {"events": "(SELECT *, min(applied, 1) AS done FROM events)", "touches": "changes"}
"""Where more is said than a table holds: an export names every item that an event touched, the one it created too."""


def exported(store: Store) -> Iterator[str]:
    """Lines of JSON, each without its line break. One consistent moment, also while others write."""
    with store.database.reading() as connection:
        items = scalar(connection, "SELECT count(*) FROM items")
        yield _line({"format": FORMAT, "version": VERSION, "head": store.head(), "items": items})
        for id, *parts in select(connection, "SELECT id, tenant, user, agent, session FROM scopes ORDER BY id"):
            yield _line({"scope": [id, *parts]})
        for name, (table, columns) in _TABLES.items():
            said, place = columns.replace("applied", "done"), _SAID.get(table, table)
            for row in connection.execute(f"SELECT {said} FROM {place} ORDER BY 1, 2"):
                yield _line({name: [_encoded(value) for value in row]})
        for row in connection.execute(f"{rows.SELECT} ORDER BY n"):
            yield _line({"item": to_record(rows.to_item(row, store.scope_named(connection, row[1])))})


def imported(store: Store, lines: Iterable[str]) -> int:
    """Fill an empty memory from exported lines, in one transaction; returns the number of items. All or nothing."""
    if store.head():
        raise MemoryProblem(f"{store.database.path} is not empty: import needs a new file")

    def work(transaction: Transaction) -> int:
        connection = transaction.connection
        scopes: dict[int, int] = {}
        count = 0
        header: dict[str, Any] = {}
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                record: dict[str, Any] = json.loads(line)
                if number == 1:
                    _check_header(record)
                    header = record
                    continue
                ((name, value),) = record.items()
                if name == "scope":
                    scopes[value[0]] = transaction.book.row(Scope(*value[1:])).id
                elif name == "item":
                    item = from_record(value)
                    if rows.number_of(item.id) is None:
                        raise ValueError(f"{item.id!r:.40} is no item's id")
                    transaction.put(item)
                    count += 1
                else:
                    table, columns = _TABLES[name]
                    named = columns.split(", ")
                    values = [_decoded(cell) for cell in value]
                    if "scope" in named:
                        place = named.index("scope")
                        values[place] = scopes[values[place]]
                    marks = ",".join("?" * len(named))
                    connection.execute(f"INSERT INTO {table}({columns}) VALUES({marks})", values)
            except (ValueError, KeyError, TypeError, AttributeError, apsw.Error) as error:
                raise _no_export(number, error) from error
        last = scalar(connection, "SELECT max(seq) FROM events") or 0
        if not header or header.get("head") != last or header.get("items", count) != count:
            raise NotAMemoryFile(
                f"the import is incomplete: {last} of {header.get('head', 'an unknown number of')} journal entries and {count} "
                f"of {header.get('items', 'an unknown number of')} items are there: export again; nothing was imported"
            )
        if header.get("version", 0) < 2:
            transaction.finish()
            number_by_scope(connection)
        return count

    try:
        lines = list(lines)
    except UnicodeDecodeError as error:
        raise NotAMemoryFile(f"the import is not UTF-8 text ({error}): give a file that `export` wrote") from error
    texts: list[str] = []
    if store.embedder is not None:
        for number, line in enumerate(lines, start=1):
            if line.startswith('{"item"'):
                try:
                    record = json.loads(line)["item"]
                    texts.append(checked_text(record.get("key") or record["text"]))
                except (ValueError, KeyError, TypeError, AttributeError) as error:
                    raise _no_export(number, error) from error
    vectors: dict[str, bytes] = {}
    for start in range(0, len(texts), 512):
        vectors.update(store.encode(texts[start : start + 512]))
    result = store.change(Scope(), work, vectors)
    store.reset_caches()
    return int(result)


def _no_export(number: int, error: Exception) -> NotAMemoryFile:
    return NotAMemoryFile(
        f"line {number} of the import is not of an exported memory ({error}): give what `export` wrote; nothing was imported"
    )


def _check_header(record: dict[str, Any]) -> None:
    if record.get("format") != FORMAT:
        raise ValueError("the first line does not say so")
    if record.get("version", 0) > VERSION:
        raise ValueError(f"it has format {record['version']}, this version knows {VERSION}: upgrade recollect")


def _encoded(value: object) -> object:
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def _decoded(value: Any) -> Any:
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else value


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"))
