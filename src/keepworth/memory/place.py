"""Where a memory is stored: in a file, or in a schema of a Postgres database. Messages never show the password of an address."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from keepworth.memory.errors import MemoryProblem, NotAMemoryFile

SERVERS = ("postgresql://", "postgres://")
"""The beginnings of an address of a memory on a server."""
SCHEMA = "keepworth"
"""The schema of a memory whose address names none."""
LONGEST_SCHEMA = 63
SECRET = ("password", "sslpassword")
_OTHER = re.compile(r"([a-z][a-z0-9+.-]*):/", re.IGNORECASE)


def on_server(path: object) -> bool:
    """Whether `path` is the address of a memory on a server."""
    return isinstance(path, str) and path.startswith(SERVERS)


@dataclass(frozen=True)
class MemoryPlace:
    """Where a memory is stored. `given` is a file, or an address with its password; `str()` of a place shows no password."""

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
        """The path or address that `Memory` is opened with."""
        return self.given if self.on_server else self.file

    @property
    def file(self) -> Path:
        """The path of the file. Raises MemoryProblem for an address, which `Path` would change ("//" becomes "/")."""
        if self.on_server:
            raise MemoryProblem(f"{self} is an address, and this is about files.", "Name a file.")
        return Path(self.given)

    @property
    def base(self) -> Path:
        """The path after which files that belong to the memory are named, such as the tokens of a server: the memory's own file,
        or, for an address, a name in the present folder that no other memory has."""
        if not self.on_server:
            return self.file
        parts = address(self.given)
        readable = re.sub(r"[^A-Za-z0-9_]+", "_", parts.database)[:60] or "postgres"
        return Path(f"{readable}-{parts.schema}-{_digest(parts.identity, 8)}")

    def of_tenant(self, tenant: str) -> MemoryPlace:
        """Return the place of a tenant's own memory: a file in the folder FILE.tenants, or another schema of the same database.
        The tenant "" has this place itself."""
        if not tenant:
            return self
        # Names of tenants may be any text. A digest is a valid name on every file system, and does not reveal the name.
        name = _digest(tenant, 32)
        if not self.on_server:
            return MemoryPlace(str(self.file.with_name(f"{self.file.name}.tenants") / f"{name}.mem"))
        parts = address(self.given)
        whole = f"{parts.schema}_{name}"
        # Two long names must not be cut to the same schema.
        schema = whole if len(whole) <= LONGEST_SCHEMA else f"tenant_{_digest(whole, 32)}"
        return MemoryPlace(f"{parts.conninfo}{'&' if '?' in parts.conninfo else '?'}schema={schema}")


def place_of(path: str | os.PathLike[str] | MemoryPlace) -> MemoryPlace:
    """Return the place of a path or an address. Raises NotAMemoryFile for one that cannot be right."""
    if isinstance(path, MemoryPlace):
        return path
    given = os.fspath(path)
    if on_server(given):
        address(given)
        return MemoryPlace(given)
    other = _OTHER.match(given)
    if other and (given.startswith(other[0] + "/") or other[1].lower() in ("postgresql", "postgres")):
        # The message shows only its beginning: there may be a password in the rest.
        raise NotAMemoryFile(
            f"{other[1]}:// begins no address of a memory.",
            "Write postgresql://user@host/database, in small letters, or name a file.",
        )
    if not Path(given).name:  # such as "", from a variable that is not set
        raise NotAMemoryFile(f"{given!r} is no path of a file.", "Name a file, such as agent.mem.")
    return MemoryPlace(str(Path(given)))


def file_of(path: str | os.PathLike[str]) -> Path:
    """Return the path of something that must be a file. Raises MemoryProblem for an address."""
    given = os.fspath(path)
    if on_server(given):
        raise MemoryProblem(
            f"{place_of(given)} is an address, and this is a file.",
            "Name a file; `keepworth memory export` and `import` take a memory to a server and back.",
        )
    return Path(given)


class Address(NamedTuple):
    """The parts of an address. `shown` is for messages, without a password; `conninfo` is what libpq connects with."""

    shown: str
    conninfo: str
    schema: str
    database: str
    identity: str
    """Host, port, database and schema: equal for all users that open this memory under the same name of its host."""


def address(url: str) -> Address:
    """Split the address of a memory into its parts. Raises NotAMemoryFile, whose message holds no password."""
    try:
        url.encode()
        parts = urlsplit(url)
        port = parts.port
        asked = parse_qsl(parts.query, keep_blank_values=True)
        if "@" in parts.path + parts.query or parts.fragment:
            raise ValueError
    except ValueError:
        # urllib's own message is left out: it quotes what it takes for a port, which may be half of a password.
        raise NotAMemoryFile(
            f"{_cut(url)!r:.80} is no address of a database: write postgresql://user@host:port/database, and characters such "
            "as / ? # @ in a name or a password as %2F %3F %23 %40"
        ) from None
    named = [value for name, value in asked if name == "schema"]
    rest = [(name, value) for name, value in asked if name != "schema"]
    schema = named[-1] if named else SCHEMA
    if not re.fullmatch(rf"(?!pg_)[A-Za-z0-9_]{{1,{LONGEST_SCHEMA}}}", schema):
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
    return Address(shown, conninfo, schema, database, identity)


def _cut(url: str) -> str:
    """Return the parts of an unreadable address that cannot belong to a password."""
    scheme, _, rest = url.partition("://")
    _, at, after = rest.rpartition("@")
    host = re.split(r"[?#]", after)[0]
    return f"{scheme}://...@{host}" if at else f"{scheme}://{host.partition(':')[0]}..."


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]
