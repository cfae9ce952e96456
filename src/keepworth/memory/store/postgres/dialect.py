"""The statements of the store, which are written in the SQL of SQLite, in that of Postgres.

Few constructs differ, and each is one line here. What is not among them both understand; the whole test-suite of the memory runs
on both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

KEYS = {
    "items": ("n",),
    "facts_of_file": ("name",),
    "former_vectors": ("set_id", "n", "hash"),
    "vectors_": ("n",),
}
"""By which columns a row replaces another."""
COLUMNS = {
    "facts_of_file": ("name", "value"),
    "former_vectors": ("set_id", "n", "hash", "vector"),
    "vectors_": ("n", "hash", "vector"),
}
"""Of tables that rows are put into without naming them."""

_LIST = re.compile(r"(?P<of>[\w.]+) IN \(SELECT value FROM json_each\(\?(?P<at>\d*)\)\)")
_INSIDE = re.compile(r"json_each\((?P<of>[\w.]+), '\$\.(?P<path>\w+)'\) AS (?P<name>\w+)")
_GLOB = re.compile(r"(?P<of>[\w.]+) GLOB '(?P<start>[^'*]*)\*'")
_GLOB_VALUE = re.compile(r"(?P<of>[\w.]+) GLOB \?")
_REPLACE = re.compile(r"INSERT OR REPLACE INTO (?P<table>\w+)\s*(?P<columns>\([^()]*\))?(?P<rest>.*)", re.DOTALL)
_IGNORE = re.compile(r"INSERT OR IGNORE INTO (?P<rest>.*)", re.DOTALL)
_BARE = re.compile(
    r"SELECT (?P<columns>[\w, ]+), min\((?P<by>\w+)\) FROM (?P<rest>.*) GROUP BY (?P<group>\w+)$", re.DOTALL
)
_LISTED = re.compile(r"group_concat\((?P<of>\w+)\)")
_PIECES = re.compile(r"'(?:[^']|'')*'|\?\[\]\d*|\?\d*|%|\buser\b")
_TYPES = (
    (r"\b(deleted|changed) INTEGER\b", r"\1 BOOLEAN"),
    (r"\bINTEGER\b", "BIGINT"),
    (r"\bREAL\b", "DOUBLE PRECISION"),
    (r"\bBLOB\b", "BYTEA"),
    (r"\bTEXT\b", 'TEXT COLLATE "C"'),
    (r"\s*WITHOUT ROWID\b", ""),
    (r"UNION ALL SELECT seq, seq, 1, NULL FROM", "UNION ALL SELECT seq, seq, true, NULL FROM"),
)


@dataclass(frozen=True, slots=True)
class Translated:
    """text: for psycopg. lists: places, or numbers, of values that are lists in JSON; by_number: whether values are named by
    their numbers."""

    text: str
    lists: tuple[int, ...]
    by_number: bool

    def values(self, given: Sequence[Any]) -> Any:
        """As psycopg takes them."""
        if self.lists:
            given = [json.loads(value) if place in self.lists else value for place, value in enumerate(given)]
        return {f"v{place + 1}": value for place, value in enumerate(given)} if self.by_number else given


@lru_cache(maxsize=1000)
def translated(statement: str) -> Translated:
    """A statement of the store, as Postgres takes it."""
    text = statement.strip()
    if text.startswith("CREATE"):
        for pattern, instead in _TYPES:
            text = re.sub(pattern, instead, text)
    text = _LIST.sub(r"\g<of> = ANY(?[]\g<at>)", text)
    text = _INSIDE.sub(r"json_array_elements_text(json_of(\g<of>) -> '\g<path>') AS \g<name>(value)", text)
    text = _GLOB.sub(r"starts_with(\g<of>, '\g<start>')", text)
    text = _GLOB_VALUE.sub(r"starts_with(\g<of>, rtrim(?::text, '*'))", text)
    if (put := _REPLACE.fullmatch(text)) is not None:
        text = _replacing(put["table"], put["columns"], put["rest"])
    elif (put := _IGNORE.fullmatch(text)) is not None:
        text = f"INSERT INTO {put['rest']} ON CONFLICT DO NOTHING"
    if (bare := _BARE.fullmatch(text)) is not None:
        group, by = bare["group"], bare["by"]
        text = f"SELECT DISTINCT ON ({group}) {bare['columns']}, {by} FROM {bare['rest']} ORDER BY {group}, {by}"
    text = _LISTED.sub(r"string_agg(\g<of>::text, ',')", text)
    text = text.replace("char(10)", "chr(10)").replace("CROSS JOIN", "JOIN").replace("INDEXED BY items_current ", "")
    text = text.replace("LIMIT ?", "LIMIT nullif(?::bigint, -1)").replace("LIMIT -1 ", "")
    lists: list[int] = []
    count = 0
    by_number = False

    def piece(match: re.Match[str]) -> str:
        nonlocal count, by_number
        said = match[0]
        if said == "user":
            return '"user"'  # a word of Postgres: the role
        if not said.startswith("?"):
            return said.replace("%", "%%")
        number = said.removeprefix("?").removeprefix("[]")
        place = int(number) - 1 if number else count
        count += 1
        if said.startswith("?[]"):
            lists.append(place)
        if number:
            by_number = True
            return f"%(v{number})s"
        return "%s"

    text = _PIECES.sub(piece, text)
    return Translated(text, tuple(lists), by_number)


def _replacing(table: str, columns: str | None, rest: str) -> str:
    kind = "vectors_" if table.startswith("vectors_") else table
    listed = COLUMNS[kind] if columns is None else tuple(each.strip() for each in columns.strip("()").split(","))
    news = ", ".join(f"{each} = excluded.{each}" for each in listed if each not in KEYS[kind])
    return f"INSERT INTO {table}({', '.join(listed)}) {rest.strip()} ON CONFLICT ({', '.join(KEYS[kind])}) DO UPDATE SET {news}"
