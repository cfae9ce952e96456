"""Who may do what: tokens, hashed at rest, and what each one opens.

The tenant, and every other bound, comes from the token and from nothing that a request says. A token is 256 random bits, so its
SHA-256 tells nobody what it is, and needs no salt.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from keepworth.episodes.errors import KeepworthError, UnknownName, require_known
from keepworth.memory.durable_file import PRIVATE, replacing
from keepworth.memory.item import Scope, later, now, timestamp
from keepworth.serving.calls import NotServed

ROLES = ("read", "write", "reward", "admin")
"""read: search, list, and record what was read; write: add and change; reward: say what came of it; admin: undo, export, erase,
and give tokens."""
_BEGINS = "kw_"
_LOG = logging.getLogger("keepworth.serving")


@dataclass(frozen=True, slots=True)
class Access:
    """What a token opens. id: its name in lists and logs; until: when it ends, "" for never."""

    id: str
    tenant: str = ""
    user_id: str = ""
    agent_id: str = ""
    roles: tuple[str, ...] = ROLES
    name: str = ""
    made: str = ""
    until: str = ""

    def __post_init__(self) -> None:
        Scope(self.tenant, self.user_id, self.agent_id)  # raises InvalidScope
        for role in self.roles:
            require_known("role", role, ROLES)
        if not self.roles:
            raise KeepworthError("A token without a role opens nothing.", f"Give it some of {', '.join(ROLES)}.")

    @property
    def whole(self) -> bool:
        """Whether it sees all of its tenant."""
        return not (self.user_id or self.agent_id)

    @property
    def operates(self) -> bool:
        """Whether it is of whoever runs the server: it gives tokens of every tenant, and sees what the server counts."""
        return self.tenant == "" and self.whole and "admin" in self.roles

    def require(self, role: str) -> None:
        """Raises NotServed."""
        if role not in self.roles:
            raise NotServed(
                f"This token has the {'role' if len(self.roles) == 1 else 'roles'} {', '.join(self.roles)}, not {role}.",
                f"Use a token with the role {role}.",
                status=403,
                about="Authorization",
            )


class Tokens:
    """The tokens of a memory: those in the file beside it, and those of this server's life alone.

    file: JSON, read anew whenever it changed, so that what is given or taken back counts at once; None for none at rest."""

    def __init__(self, file: Path | None) -> None:
        self.file = file
        self._lock = threading.Lock()
        self._passing: dict[str, Access] = {}
        self._at_rest: dict[str, Access] = {}
        self._read_at: tuple[int, int] | None = None

    def passing(self, access: Access, token: str = "") -> str:
        """A token, by default a new one, that is good until this server ends."""
        token = token or new_token()
        with self._lock:
            self._passing[_digest(token)] = access
        return token

    def check(self, path: str, authorization: str) -> Access:
        """Whose request this is. Raises NotServed."""
        scheme, _, token = authorization.partition(" ")
        access = self._known(_digest(token.strip())) if scheme.lower() == "bearer" else None
        if access is None or (access.until and access.until <= timestamp(now())):
            # One answer for a missing, a wrong and an expired one: nobody learns that a token was once good.
            raise NotServed(
                "The token is missing, wrong or expired.",
                "Send it as: Authorization: Bearer TOKEN. `keepworth memory token add --file MEMORY` makes one.",
                status=401,
                about="Authorization",
            )
        return access

    def add(self, access: Access) -> str:
        """A new token at rest; the only time that it is seen."""
        token = new_token()
        with self._changing():
            known = self._read()
            known[_digest(token)] = access
            self._write(known)
        return token

    def all(self) -> list[Access]:
        """Those at rest."""
        with self._lock:
            return list(self._read().values())

    def remove(self, id: str) -> None:
        """Raises UnknownName."""
        with self._changing():
            known = self._read()
            left = {digest: each for digest, each in known.items() if each.id != id}
            if len(left) == len(known):
                raise UnknownName("token", id, [each.id for each in known.values()])
            self._write(left)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """The server and the command line may change the file at once."""
        with self._lock:
            if self.file is None:
                yield
            else:
                with FileLock(self.file.with_name(f"{self.file.name}.lock"), mode=PRIVATE):
                    yield

    def _known(self, digest: str) -> Access | None:
        with self._lock:
            try:
                return self._passing.get(digest) or self._read().get(digest)
            except KeepworthError as error:
                raise NotServed(
                    "The tokens of this server cannot be read.", "Its log says why.", status=500, about="Authorization"
                ) from _logged(error)

    def _read(self) -> dict[str, Access]:
        if self.file is None:
            return self._at_rest
        try:
            found = self.file.stat()
        except FileNotFoundError:
            return {}
        state = (found.st_mtime_ns, found.st_ino)
        if state != self._read_at:
            self._at_rest = dict(_access(each) for each in _listed(self.file))
            self._read_at = state
        return dict(self._at_rest)

    def _write(self, known: dict[str, Access]) -> None:
        if self.file is None:
            self._at_rest = known
            return
        body = [{"sha256": digest, **asdict(access)} for digest, access in known.items()]
        with replacing(self.file) as out:
            out.write(json.dumps({"tokens": body}, indent=1).encode())


def _logged(error: KeepworthError) -> KeepworthError:
    _LOG.error("%s", error)
    return error


def tokens_of(memory: Path) -> Path:
    """The file that holds the tokens of a memory."""
    return memory.with_name(f"{memory.name}.tokens.json")


def new_token() -> str:
    return f"{_BEGINS}{secrets.token_urlsafe(32)}"


def new_access(
    *,
    tenant: str = "",
    user_id: str = "",
    agent_id: str = "",
    roles: Iterable[str] = ROLES,
    name: str = "",
    days: float | None = None,
) -> Access:
    """days: until it ends; None for never. Raises InvalidScope, UnknownName, InvalidTime."""
    made = timestamp(now())
    until = "" if days is None else later(made, days * 86_400.0)
    return Access(f"t{secrets.token_hex(4)}", tenant, user_id, agent_id, tuple(dict.fromkeys(roles)), name, made, until)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def _listed(file: Path) -> Sequence[dict[str, Any]]:
    try:
        listed = json.loads(file.read_bytes())["tokens"]
        assert isinstance(listed, list)
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        raise KeepworthError(
            f"{file} holds no tokens that can be read ({type(error).__name__}).",
            "Restore it, or delete it and give new tokens.",
        ) from error
    return listed


def _access(record: dict[str, Any]) -> tuple[str, Access]:
    body = dict(record)
    return str(body.pop("sha256")), Access(**{**body, "roles": tuple(body["roles"])})
