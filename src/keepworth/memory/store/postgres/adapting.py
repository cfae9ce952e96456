"""How values go to Postgres and come back, so that rows are what SQLite gives: whole numbers, floats, text and bytes."""

from __future__ import annotations

import json
from typing import Any

from keepworth.episodes.needs import needs_postgres

import psycopg
from psycopg.adapt import Buffer, Dumper, Loader

from keepworth.memory.store.connection import Listed


class PlainNumber(Dumper):  # type: ignore[misc]
    """A whole number whose type the statement says: for Postgres 1 is no truth, and a small number no large one."""

    oid = 0

    def dump(self, obj: Any) -> bytes:
        return str(int(obj)).encode()


class PlainBytes(Dumper):  # type: ignore[misc]
    """Where a column is text they stand there as they are written here, in hexadecimal digits after \\x."""

    oid = 0

    def dump(self, obj: Any) -> bytes:
        return b"\\x" + bytes(obj).hex().encode()


class PlainList(Dumper):  # type: ignore[misc]
    """Of numbers or of texts, also where they are `Listed`."""

    oid = 0

    def dump(self, obj: Any) -> bytes:
        values = json.loads(obj) if isinstance(obj, Listed) else obj
        return ("{" + ",".join(map(_element, values)) + "}").encode()


class Truth(Loader):  # type: ignore[misc]
    """As SQLite says it: 1 or 0."""

    def load(self, data: Buffer) -> int:
        return int(bytes(data) == b"t")


class Sum(Loader):  # type: ignore[misc]
    """Sums of whole numbers are whole."""

    def load(self, data: Buffer) -> int | float:
        text = bytes(data).decode()
        return int(text) if text.lstrip("-").isdigit() else float(text)


def _element(value: object) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return str(value)


def adapt(connection: psycopg.Connection[Any]) -> None:
    for kind, dumper in (
        (int, PlainNumber),
        (bool, PlainNumber),
        (bytes, PlainBytes),
        (list, PlainList),
        (Listed, PlainList),
    ):
        connection.adapters.register_dumper(kind, dumper)
    connection.adapters.register_loader("bool", Truth)
    connection.adapters.register_loader("numeric", Sum)
