"""Scope: whose memory it is. The narrow scope is written; a wider one reads everything inside it."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from keepworth.memory.errors import InvalidScope

LONGEST_NAME = 512
PARTS = ("tenant", "user", "agent", "session")


@dataclass(frozen=True, slots=True)
class Scope:
    """ "" means "not restricted" when reading and "not said" when writing. Names are compared exactly, after NFC."""

    tenant: str = ""
    user: str = ""
    agent: str = ""
    session: str = ""

    def __post_init__(self) -> None:
        for name in PARTS:
            value = getattr(self, name)
            if not isinstance(value, str):
                raise InvalidScope(
                    f"{name} of a scope must be text, got {type(value).__name__}: pass str(...), or leave it out for all"
                )
            if value == "":
                continue
            if len(value) > LONGEST_NAME:
                raise InvalidScope(
                    f"{name} of a scope is {len(value)} characters long: shorten it, the limit is {LONGEST_NAME}"
                )
            if any(ord(c) < 32 or 0xD800 <= ord(c) <= 0xDFFF for c in value):
                raise InvalidScope(
                    f"{name} of a scope has control characters or is not valid Unicode: {value!r:.80}: remove or decode them"
                )
            if not value.isascii():
                object.__setattr__(self, name, unicodedata.normalize("NFC", value))

    def parts(self) -> tuple[str, str, str, str]:
        return (self.tenant, self.user, self.agent, self.session)

    def contains(self, other: Scope) -> bool:
        """Whether everything in `other` may be seen from here. The tenant must always be equal: "" is a tenant too."""
        return (
            self.tenant == other.tenant
            and self.user in ("", other.user)
            and self.agent in ("", other.agent)
            and self.session in ("", other.session)
        )

    def narrowed(self, **parts: str) -> Scope:
        """This scope with some open parts filled in. A part that is already set cannot be changed."""
        chosen = dict(zip(PARTS, self.parts(), strict=True))
        for name, value in parts.items():
            if name not in chosen:
                raise InvalidScope(f"a scope has no part {name!r}: it has {', '.join(chosen)}")
            if chosen[name] not in ("", value):
                raise InvalidScope(f"{name} is already {chosen[name]!r} here and cannot become {value!r}")
            chosen[name] = value
        return Scope(**chosen)


EVERYWHERE = Scope()
