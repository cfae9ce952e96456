"""Access control: tokens, stored as hashes, and what each one allows.

The tenant, and the user and agent that a token is bound to, come from the token and never from a request. A token is 256 random
bits, so its SHA-256 does not reveal it and needs no salt.
"""

from __future__ import annotations

import codecs
import errno
import hashlib
import json
import logging
import re
import secrets
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

from filelock import FileLock

from keepworth.base.durable_files import PRIVATE, replacing
from keepworth.base.errors import KeepworthError, UnknownName, require_known
from keepworth.base.json_values import parse
from keepworth.memory.errors import InvalidScope, InvalidTime, StorageFailed, StorageFull
from keepworth.memory.item import ALL, EVERYWHERE, Scope, checked_name, later, now, one_spelling, timestamp, with_zone
from keepworth.serving.calls import NotServed

ROLES = ("read", "write", "reward", "admin")
"""read: search, list, and record episodes; write: add and change items; reward: give rewards; admin: undo, export, erase, and
make tokens."""
PERMISSIONS = ("read", "write")
"""What a token may do with items that are shared with it."""
LONGEST_DAYS = 100_000
_BEGINS = "kw_"
_LOG = logging.getLogger("keepworth.serving")


@dataclass(frozen=True, slots=True)
class Access:
    """What a token allows. `id` is its name in lists and logs, `until` the time at which it expires ("" for never). `shared` maps
    users that stand for teams, by name, to what a person's token may do with their items."""

    id: str
    tenant: str = ""
    user_id: str = ""
    agent_id: str = ""
    roles: tuple[str, ...] = ROLES
    name: str = ""
    made: str = ""
    until: str = ""
    shared: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        scope = Scope(self.tenant, self.user_id, self.agent_id)
        for part, name in (("tenant", scope.tenant), ("user_id", scope.user), ("agent_id", scope.agent)):
            object.__setattr__(self, part, name)
        for name, permissions in self.shared.items():
            self._check_shared(Scope(user=name).user, permissions)
        for role in self.roles:
            require_known("role", role, ROLES)
        if not self.roles:
            raise KeepworthError("A token without a role opens nothing.", f"Give it some of {', '.join(ROLES)}.")

    @property
    def whole(self) -> bool:
        """Whether the token sees everything of its tenant."""
        return not (self.user_id or self.agent_id)

    @property
    def everybody(self) -> bool:
        """Whether a call that names no person covers everything that the token sees. This is so for an admin and for a person's
        token; for others such a call covers only what was stored without a person."""
        return bool(self.user_id) or "admin" in self.roles

    def record(self) -> dict[str, Any]:
        """Return all of it as plain data, with times as they leave: with their zone."""
        shared = {name: list(permissions) for name, permissions in self.shared.items()}
        times = {"made": with_zone(self.made), "until": with_zone(self.until)}
        return {**asdict(self), "roles": list(self.roles), "shared": shared, **times}

    def person(self, by: str | None) -> str | None:
        """Return who judged a reward: the person of the token if there is one, else `by`. Raises NotServed if they differ."""
        if not self.user_id:
            return by
        if by and one_spelling(by) != self.user_id:
            raise NotServed(
                f"This token is of {self.user_id!r}, and gives nobody else's word.",
                "Leave by out.",
                status=403,
                about="by",
                value=by,
            )
        return self.user_id

    def _check_shared(self, name: str, permissions: Sequence[str]) -> None:
        """Raise KeepworthError if sharing the items of `name` with these permissions cannot take effect."""
        for permission in permissions:
            require_known("permission", permission, PERMISSIONS)
        what = f"{name!r:.60}"
        missing = next((permission for permission in permissions if permission not in self.roles), "")
        if not self.user_id:
            message = (
                f"{what} cannot be shared with a token of nobody, which reaches every person of its tenant already."
            )
            raise KeepworthError(message, "Bind it to a person: --user, or user_id.")
        if name in ("", self.user_id):
            message = f"{what} is no name of something to share with {self.user_id!r:.60}."
            raise KeepworthError(message, "Give one that stands for a team, such as team:read,write.")
        if "read" not in permissions:
            message = f"What is shared as {what} may be read, or read and written."
            raise KeepworthError(message, f"Give {name}:read or {name}:read,write.")
        if missing:
            message = f"This token has not the role {missing}, and cannot {missing} what is shared as {what}."
            raise KeepworthError(message, f"Give it the role {missing}, too.")

    def require(self, role: str) -> None:
        """Raise NotServed unless the token has this role."""
        if role not in self.roles:
            raise NotServed(
                f"This token has the {'role' if len(self.roles) == 1 else 'roles'} {', '.join(self.roles)}, not {role}.",
                f"Use a token with the role {role}.",
                status=403,
                about="Authorization",
            )


class Tokens:
    """The tokens of a memory: those in the JSON file beside it, and those that end with this server.

    The file is read again whenever it has changed, so that new and removed tokens count at once."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._lock = threading.Lock()
        self._passing: dict[str, Access] = {}
        self._at_rest: dict[str, Access] = {}
        self._read_at: tuple[int, int] | None = None

    def passing(self, access: Access, token: str = "") -> str:
        """Add a token, by default a new one, that is valid until this server ends, and return it."""
        token = token or new_token()
        with self._lock:
            self._passing[_digest(token)] = access
        return token

    def check(self, path: str, authorization: str) -> Access:
        """Return what the token in the header `authorization` allows. Raises NotServed if it is not valid."""
        scheme, _, token = authorization.partition(" ")
        digest, access = _digest(token.strip()), None
        if scheme.lower() == "bearer":
            try:
                with self._lock:
                    access = self._passing.get(digest) or self._read().get(digest)
            except KeepworthError as error:
                _LOG.error("%s", error)
                raise NotServed(
                    "The tokens of this server cannot be read.", "Its log says why.", status=500, about="Authorization"
                ) from error
        if access is None or (access.until and access.until <= timestamp(now())):
            # The answer is the same for a missing, a wrong and an expired token: nobody learns that one was once valid.
            raise NotServed(
                "The token is missing, wrong or expired.",
                "Send it as: Authorization: Bearer TOKEN. `keepworth memory token add --file MEMORY` makes one.",
                status=401,
                about="Authorization",
            )
        return access

    def add(self, access: Access) -> str:
        """Store a new token as a hash and return it. It cannot be shown again."""
        token = new_token()
        with self._changing():
            tokens = self._read()
            tokens[_digest(token)] = access
            self._write(tokens)
        return token

    def all(self) -> list[Access]:
        """Return the access of all stored tokens."""
        with self._lock:
            return list(self._read().values())

    def remove(self, id: str) -> None:
        """Remove the stored token with this id. Raises UnknownName."""
        with self._changing():
            tokens = self._read()
            left = {digest: access for digest, access in tokens.items() if access.id != id}
            if len(left) == len(tokens):
                raise UnknownName("token", id, [value.id for value in tokens.values()])
            self._write(left)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Lock the file, which the server and the command line may change at once. Raises StorageFull, StorageFailed."""
        with self._lock:
            try:
                with FileLock(self.file.with_name(f"{self.file.name}.lock"), mode=PRIVATE):
                    yield
            except OSError as error:
                full = error.errno in (errno.ENOSPC, errno.EDQUOT)
                raise (StorageFull if full else StorageFailed)(
                    f"{self.file} cannot be written ({error.strerror}): "
                    f"{'free some space' if full else 'look at its folder'}; the tokens are as they were"
                ) from error

    def _read(self) -> dict[str, Access]:
        try:
            status = self.file.stat()
        except FileNotFoundError:
            return {}
        state = (status.st_mtime_ns, status.st_ino)
        if state != self._read_at:
            try:
                self._at_rest = dict(_access(row) for row in parse(self.file.read_bytes())["tokens"])
            except (ValueError, KeyError, TypeError) as error:
                raise KeepworthError(
                    f"{self.file} holds no tokens that can be read ({type(error).__name__}).",
                    "Restore it, or delete it and give new tokens.",
                ) from error
            self._read_at = state
        return dict(self._at_rest)

    def _write(self, tokens: dict[str, Access]) -> None:
        body = [{"sha256": digest, **asdict(access)} for digest, access in tokens.items()]
        with replacing(self.file) as out:
            out.write(json.dumps({"tokens": body}, indent=1).encode())


def tokens_of(memory: Path) -> Path:
    """Return the path of the file that holds the tokens of a memory."""
    return memory.with_name(f"{memory.name}.tokens.json")


def new_token() -> str:
    return f"{_BEGINS}{secrets.token_urlsafe(32)}"


def new_access(
    *,
    tenant: str = ALL,
    user_id: str = ALL,
    agent_id: str = ALL,
    roles: Iterable[str] = ROLES,
    name: str = "",
    days: float | None = None,
    shared: Mapping[str, Iterable[str]] | None = None,
) -> Access:
    """Make the access of a new token.

    Args:
        tenant, user_id, agent_id: The only one that the token opens; `ALL` for every one.
        roles: What it allows, of "read", "write", "reward" and "admin".
        name: A label for whoever lists tokens.
        days: After how many days it expires; None for never.
        shared: By team, what the token allows in the team's memory.

    Raises:
        InvalidScope: If the name of a tenant, a user, an agent or a team cannot be one.
        UnknownName: If a role or a permission does not exist.
        InvalidTime: If `days` is no number of days.
    """
    made = timestamp(now())
    if days is not None and not 0 < days <= LONGEST_DAYS:
        raise InvalidTime(
            f"days must be a number above 0, {LONGEST_DAYS} at most, got {days!r:.40}: give one, or leave it out for a token "
            "without end"
        )
    until = "" if days is None else later(made, days * 86_400.0)
    permitted = {name: tuple(dict.fromkeys(permissions)) for name, permissions in (shared or {}).items()}
    distinct = tuple(dict.fromkeys(roles))
    scope = EVERYWHERE.narrowed(tenant=tenant, user=user_id, agent=agent_id)  # raises InvalidScope
    for team in permitted:
        EVERYWHERE.narrowed(user=team)
    bounds = (scope.tenant, scope.user, scope.agent)
    return Access(f"t{secrets.token_hex(4)}", *bounds, distinct, name, made, until, permitted)


def parse_shared(permitted: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Parse texts such as "team:read,write" into permissions by name. Raises KeepworthError."""
    permissions_of: dict[str, tuple[str, ...]] = {}
    for text in permitted:
        name, _, permissions = text.rpartition(":")
        listed = tuple(part.strip() for part in permissions.split(",") if part.strip())
        if not name or not listed or name in permissions_of:
            raise KeepworthError(
                f"{text!r:.80} does not say what is shared{' once' if name in permissions_of else ''}.",
                "Say NAME:read or NAME:read,write.",
            )
        permissions_of[name] = listed
    return permissions_of


def bounds_in(headers: Mapping[str, str]) -> dict[str, str]:
    """Read user_id, agent_id and session_id from the headers X-Keepworth-User and so on: those that are there. Raises
    NotServed, also for an empty one."""
    named = ((f"{part}_id", f"X-Keepworth-{part.capitalize()}") for part in ("user", "agent", "session"))
    return {bound: _name(headers, header) for bound, header in named if header.lower() in headers}


def _name(headers: Mapping[str, str], header: str) -> str:
    """Read a name from a header, in UTF-8 or, for clients whose headers are ASCII, as RFC 8187 writes it. Raises NotServed."""
    value = headers[header.lower()].encode("latin-1")
    try:
        name = _decoded(value).decode().strip(" \t")  # of a plain value, HTTP takes these away
    except ValueError as error:
        raise NotServed(
            f"{header} cannot be read: {value!r:.80}.", "Send UTF-8, or write it as in UTF-8''Zo%C3%AB (RFC 8187)."
        ) from error
    if not name:
        raise NotServed(
            f"{header} is empty.",
            "Send a name, also for somebody without one, or leave the header out, which means all.",
        )
    try:
        return checked_name(name, header)
    except InvalidScope as error:
        raise NotServed(error.message, error.fix) from error


def _decoded(value: bytes) -> bytes:
    """Return the bytes of a name that may be written as RFC 8187 says: CHARSET'LANGUAGE'TEXT. Raises ValueError if it has
    another charset than UTF-8 or broken escapes, or is written as in mail."""
    if value.startswith(b"=?") and value.endswith(b"?="):
        raise ValueError("an encoded word")
    coded = _CODED.fullmatch(value)
    try:
        charset = codecs.lookup(coded[1].decode()).name if coded else ""
    except LookupError:  # names such as O'Brien's begin with no charset
        return value
    if coded is None:
        return value
    if charset != "utf-8" or _BROKEN_ESCAPE.search(coded[2]):
        raise ValueError(charset)
    return unquote_to_bytes(coded[2])


_CODED = re.compile(rb"([\w.:-]{1,40})'[^']*'(.*)", re.DOTALL)
_BROKEN_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def _access(record: dict[str, Any]) -> tuple[str, Access]:
    body = dict(record)
    shared = {name: tuple(permissions) for name, permissions in body.get("shared", {}).items()}
    return str(body.pop("sha256")), Access(**{**body, "roles": tuple(body["roles"]), "shared": shared})
