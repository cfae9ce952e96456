"""How values go to Postgres and back, so that rows hold the types that SQLite gives: integers, floats, text and bytes."""

from __future__ import annotations

import json
from typing import Any

from keepworth.base.needs import needs_postgres

import psycopg
from psycopg.adapt import Buffer, Dumper, Loader

from keepworth.memory.store.connection import Listed


class PlainNumber(Dumper):  # type: ignore[misc]
    """Sends an integer without a type, which the statement then decides: Postgres accepts a typed integer neither as a boolean
    nor always as one of another size."""

    oid = 0

    def dump(self, obj: Any) -> bytes:
        return str(int(obj)).encode()


class PlainBytes(Dumper):  # type: ignore[misc]
    """Sends bytes without a type, as \\x and hexadecimal digits: a text column stores just that."""

    oid = 0

    def dump(self, obj: Any) -> bytes:
        return b"\\x" + bytes(obj).hex().encode()


class PlainList(Dumper):  # type: ignore[misc]
    """Sends a list of numbers or texts, also a `Listed`, as an array."""

    oid = 0

    def dump(self, obj: Any) -> bytes:
        values = json.loads(obj) if isinstance(obj, Listed) else obj
        return ("{" + ",".join(map(_element, values)) + "}").encode()


class Truth(Loader):  # type: ignore[misc]
    """Loads a boolean as 1 or 0, as SQLite has it."""

    def load(self, data: Buffer) -> int:
        return int(bytes(data) == b"t")


class Sum(Loader):  # type: ignore[misc]
    """Loads a `numeric`, such as a sum of integers, as an integer where it has only digits."""

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
