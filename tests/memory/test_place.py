"""Addresses of memories on a server; no server is needed."""

from __future__ import annotations

import pytest

from keepworth.memory.errors import NotAMemoryFile
from keepworth.memory.place import address


def test_what_an_address_says() -> None:
    path, conninfo, schema, *_ = address(
        "postgres://ann:se%20cret@db.example:5433/agents?schema=team_a&sslmode=require&password=x"
    )
    assert schema == "team_a"
    assert path == "postgresql://ann@db.example:5433/agents?sslmode=require&schema=team_a"
    assert conninfo == "postgresql://ann:se%20cret@db.example:5433/agents?sslmode=require&password=x"
    assert address("postgresql:///agents").schema == "keepworth"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:secret@host/db?schema=",
        "postgresql://ann:secret@host/db?schema=a-b",
        "postgresql://ann:secret@host/db?schema=pg_mine",
        "postgresql://ann:secret@host:port/db",
        "postgresql://ann:secret/more@host/db",
        "postgresql://ann:secret#more@host/db",
        "postgresql://ann:1?secret@host/db",
        "postgresql://ann:1/secret@host/db",
        "postgresql://host:secret/db?password=secret",
        "postgresql://ann:secret@host/db?options=-cfoo",
        "postgresql://ann:secret@host/\ud800",
    ],
)
def test_addresses_that_cannot_be_are_refused_without_their_password(url: str) -> None:
    with pytest.raises(NotAMemoryFile) as caught:
        address(url)
    assert "secret" not in str(caught.value)
