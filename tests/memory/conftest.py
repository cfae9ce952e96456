"""What tests of the memory share."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from keepworth.memory.memory import Memory
from keepworth.memory.store import transaction
from keepworth.memory.store.checks import check
from tests.memory import on_postgres

EXAMPLES = 8
"""Of a property, in Postgres."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of a memory that is not there yet."""
    return tmp_path / "a.mem"


@pytest.fixture
def m() -> Iterator[Memory]:
    """A memory in this process, without an encoder. It has to be sound in the end."""
    with Memory(encoder=None) as memory:
        yield memory
        assert check(memory.store) == []


@pytest.fixture(params=[1, 3, transaction.TAIL], ids="index at most {} behind".format)
def behind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How far the full-text index may be behind."""
    monkeypatch.setattr(transaction, "TAIL", request.param)
    return int(request.param)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of an empty database on a server of our own."""
    server = pytest.importorskip("pgserver", reason="Postgres is not installed: make test-postgres")
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: make test-postgres")
    # Not below pytest's own folder: other runs of pytest clear away what is older than three of them.
    folder = Path(os.environ.get("KEEPWORTH_TEST_SERVER") or tempfile.mkdtemp(prefix="keepworth-postgres-"))
    there = server.get_server(folder, cleanup_mode="stop")
    address = there.get_uri()
    name = f"tests_{uuid.uuid4().hex}"
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET fsync = off")  # of a server that is thrown away
        connection.execute("SELECT pg_reload_conf()")
        connection.execute(f"CREATE DATABASE {name}")
    yield address.replace("/postgres?", f"/{name}?")
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    if "KEEPWORTH_TEST_SERVER" not in os.environ:
        there.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


if on_postgres.wanted():

    @pytest.fixture(scope="session", autouse=True)
    def stores(postgres: str) -> None:
        """Every store of these tests lies in Postgres."""
        os.environ[on_postgres.ADDRESS] = postgres
        beside = [str(Path(__file__).with_name("children")), str(Path(__file__).parents[2])]
        os.environ["PYTHONPATH"] = os.pathsep.join([*beside, *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
        on_postgres.redirect()

    def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
        """What is about files is left out by name. A new memory takes a server far longer than a file: fewer examples each."""
        for item in items:
            about = on_postgres.about_files(item.path, item.name)
            if about is not None:
                item.add_marker(pytest.mark.skip(reason=f"in Postgres there are no files: {about}"))
            known = getattr(getattr(item, "obj", None), "_hypothesis_internal_use_settings", None)
            if known is not None:
                item.obj._hypothesis_internal_use_settings = settings(  # type: ignore[attr-defined]
                    known, max_examples=min(known.max_examples, EXAMPLES)
                )
