"""Where a memory lies: a file, or a schema of a database on a server. What is said of an address never holds its password."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from keepworth.memory.errors import MemoryProblem, NotAMemoryFile

SERVERS = ("postgresql://", "postgres://")
"""How the address of a memory on a server begins."""
SCHEMA = "keepworth"
"""Where a memory lies whose address names no schema."""
LONGEST_SCHEMA = 63
SECRET = ("password", "sslpassword")
_OTHER = re.compile(r"([a-z][a-z0-9+.-]*):/", re.IGNORECASE)


def on_server(path: object) -> bool:
    """Whether `path` is the address of a memory on a server."""
    return isinstance(path, str) and path.startswith(SERVERS)


@dataclass(frozen=True)
class MemoryPlace:
    """given: a file, or an address with its password. str() of it is for messages."""

    given: str

    def __str__(self) -> str:
        return address(self.given).shown if self.on_server else self.given

    def __repr__(self) -> str:
        return f"MemoryPlace({str(self)!r})"

    @property
    def on_server(self) -> bool:
        return on_server(self.given)

    @property
    def opens(self) -> str | Path:
        """What `Memory` is given."""
        return self.given if self.on_server else self.file

    @property
    def has_password(self) -> bool:
        return self.on_server and address(self.given).has_password

    @property
    def file(self) -> Path:
        """Raises MemoryProblem for an address, which `Path` would spoil."""
        if self.on_server:
            raise MemoryProblem(f"{self} is an address, and this is about files.", "Name a file.")
        return Path(self.given)

    @property
    def base(self) -> Path:
        """What files that go with the memory are named after, such as the tokens of a server: the memory's own file, or, of an
        address, a name in the present folder that no other memory has."""
        if not self.on_server:
            return self.file
        parts = address(self.given)
        readable = re.sub(r"[^A-Za-z0-9_]+", "_", parts.database)[:60] or "postgres"
        return Path(f"{readable}-{parts.schema}-{_digest(parts.identity, 8)}")

    def of_tenant(self, tenant: str) -> MemoryPlace:
        """A memory of its own for each tenant: beside the file, in a folder that bears its name; or another schema of the same
        database. The tenant "" has this place itself."""
        if not tenant:
            return self
        # Names of tenants are any text: a digest is a name everywhere, and tells none of them from the folder.
        name = _digest(tenant, 32)
        if not self.on_server:
            return MemoryPlace(str(self.file.with_name(f"{self.file.name}.tenants") / f"{name}.mem"))
        parts = address(self.given)
        whole = f"{parts.schema}_{name}"
        # Two long names must not lead to one schema.
        schema = whole if len(whole) <= LONGEST_SCHEMA else f"tenant_{_digest(whole, 32)}"
        return MemoryPlace(f"{parts.conninfo}{'&' if '?' in parts.conninfo else '?'}schema={schema}")


def place_of(path: str | os.PathLike[str] | MemoryPlace) -> MemoryPlace:
    """Raises NotAMemoryFile for an address that cannot be."""
    if isinstance(path, MemoryPlace):
        return path
    given = os.fspath(path)
    if on_server(given):
        address(given)
        return MemoryPlace(given)
    other = _OTHER.match(given)
    if other and (given.startswith(other[0] + "/") or other[1].lower() in ("postgresql", "postgres")):
        # Nothing but its beginning is said of it: there may be a password in it.
        raise NotAMemoryFile(
            f"{other[1]}:// begins no address of a memory.",
            "Write postgresql://user@host/database, in small letters, or name a file.",
        )
    if not Path(given).name:  # such as "", of a variable that is not set
        raise NotAMemoryFile(f"{given!r} is no path of a file.", "Name a file, such as agent.mem.")
    return MemoryPlace(str(Path(given)))


def file_of(path: str | os.PathLike[str]) -> Path:
    """What is a file and cannot be anything else. Raises MemoryProblem for an address."""
    given = os.fspath(path)
    if on_server(given):
        raise MemoryProblem(
            f"{place_of(given)} is an address, and this is a file.",
            "Name a file; `keepworth memory export` and `import` take a memory to a server and back.",
        )
    return Path(given)


class Address(NamedTuple):
    """shown: in messages, without a password. conninfo: what libpq is given."""

    shown: str
    conninfo: str
    schema: str
    database: str
    identity: str
    """Host, port, database and schema: the same for everybody who opens this memory by this name of its host."""
    has_password: bool


def address(url: str) -> Address:
    """Raises NotAMemoryFile, without a password in what it says."""
    try:
        url.encode()
        parts = urlsplit(url)
        port = parts.port
        asked = parse_qsl(parts.query, keep_blank_values=True)
        if "@" in parts.path + parts.query or parts.fragment:
            raise ValueError
    except ValueError:
        # Not what urllib says of it: it quotes what it takes for a port, which may be half of a password.
        raise NotAMemoryFile(
            f"{_cut(url)!r:.80} is no address of a database: write postgresql://user@host:port/database, and characters such "
            "as / ? # @ in a name or a password as %2F %3F %23 %40"
        ) from None
    named = [value for name, value in asked if name == "schema"]
    rest = [(name, value) for name, value in asked if name != "schema"]
    schema = named[-1] if named else SCHEMA
    if (
        not schema
        or not schema.replace("_", "a").isalnum()
        or not schema.isascii()
        or len(schema) > LONGEST_SCHEMA
        or schema.startswith("pg_")
    ):
        raise NotAMemoryFile(
            f"{schema!r:.80} is no name of a schema for a memory: use letters, digits and underscores, {LONGEST_SCHEMA} at most"
        )
    if any(key == "options" for key, _ in rest):
        raise NotAMemoryFile(
            "an address with options= cannot take effect, as they are set for each connection: leave it out"
        )
    conninfo = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(rest, quote_via=quote), ""))
    user = unquote(parts.username or "")
    where = parts.netloc.rpartition("@")[2]
    open_to_all = [(key, value) for key, value in rest if key not in SECRET] + [("schema", schema)] * bool(named)
    query = urlencode(open_to_all, quote_via=quote, safe="/")
    shown = urlunsplit(("postgresql", f"{user}@{where}" if user else where, parts.path, query, ""))
    more = dict(rest)
    host = more.get("host") or more.get("hostaddr") or parts.hostname or ""
    database = more.get("dbname") or unquote(parts.path.strip("/")) or more.get("user") or user
    identity = "\0".join([host, str(more.get("port") or port or ""), database, schema])
    has_password = bool(parts.password) or any(more.get(key) for key in SECRET)
    return Address(shown, conninfo, schema, database, identity, has_password)


def _cut(url: str) -> str:
    """Of what cannot be read as an address, that which cannot be a part of a password."""
    scheme, _, rest = url.partition("://")
    _, at, after = rest.rpartition("@")
    host = re.split(r"[?#]", after)[0]
    return f"{scheme}://...@{host}" if at else f"{scheme}://{host.partition(':')[0]}..."


def _digest(text: str, length: int) -> str:
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()[:length]
