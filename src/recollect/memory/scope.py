"""Scope: whose memory it is. The narrow scope is written; a wider one reads everything inside it."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, fields

from recollect.memory.errors import InvalidScope

LONGEST_NAME = 512


@dataclass(frozen=True, slots=True)
class Scope:
    """ "" means "not restricted" when reading and "not said" when writing. Names are compared exactly, after NFC."""

    tenant: str = ""
    user: str = ""
    agent: str = ""
    session: str = ""

    def __post_init__(self) -> None:
        for part in fields(self):
            value = getattr(self, part.name)
            if not isinstance(value, str):
                raise InvalidScope(f"{part.name} of a scope must be text, got {type(value).__name__}: pass str(...)")
            if len(value) > LONGEST_NAME:
                raise InvalidScope(
                    f"{part.name} of a scope is {len(value)} characters long; the limit is {LONGEST_NAME}"
                )
            if any(ord(c) < 32 or 0xD800 <= ord(c) <= 0xDFFF for c in value):
                raise InvalidScope(f"{part.name} of a scope contains control characters or lone surrogates: {value!r}")
            object.__setattr__(self, part.name, unicodedata.normalize("NFC", value))

    def parts(self) -> tuple[str, str, str, str]:
        return (self.tenant, self.user, self.agent, self.session)

    def contains(self, other: Scope) -> bool:
        """Whether everything in `other` may be seen from here. The tenant must always be equal: "" is a tenant too."""
        return self.tenant == other.tenant and all(
            mine in ("", theirs) for mine, theirs in zip(self.parts()[1:], other.parts()[1:], strict=True)
        )

    def narrowed(self, **parts: str) -> Scope:
        """This scope with some open parts filled in. A part that is already set cannot be changed."""
        chosen = {part.name: getattr(self, part.name) for part in fields(self)}
        for name, value in parts.items():
            if name not in chosen:
                raise InvalidScope(f"a scope has no part {name!r}: it has {', '.join(chosen)}")
            if chosen[name] not in ("", value):
                raise InvalidScope(f"{name} is already {chosen[name]!r} here and cannot become {value!r}")
            chosen[name] = value
        return Scope(**chosen)


EVERYWHERE = Scope()
