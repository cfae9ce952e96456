"""The chain over the journal: a value stored with every event that depends on all events before it.

It names a state of a memory: two files, or a file and a copy of it that went its own way, share a value only where they
share everything up to it. What is derived from the journal carries the value of the entry it was made at.

chain(event) = digest(chain(event before), salt, event) || salt. The salt is random. Where an event's text is erased, its salt
is erased with it: what is left then proves no guess of the text, and later events still build on it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence

DIGEST = 16
SALT = 8

Fields = Sequence[object]
"""seq, at, kind, scope, episode, source, payload, applied, reason, body; as the table `events` has them."""

COLUMNS = "seq, at, kind, scope, episode, source, payload, applied, reason, body"
FORGOTTEN = f"substr(chain, 1, {DIGEST})"
"""SQL for the chain of an event whose content was erased."""


def linked(before: bytes | None, event: Fields, salt: bytes | None = None) -> bytes:
    """The chain of `event`; before: that of the event before it, None where it has none."""
    if salt is None:
        salt = os.urandom(SALT)
    seq, at, kind, scope, episode, source, payload, applied, reason, body = event
    text = f"{seq}\0{at}\0{kind}\0{scope}\0{episode}\0{source}\0{applied}\0{reason}\0{payload}"
    start = salt if before is None else before[:DIGEST] + salt
    digest = hashlib.blake2b(start + text.encode("utf-8", "surrogatepass"), digest_size=DIGEST)
    if body is not None:
        digest.update(b"\0")
        digest.update(body)  # type: ignore[arg-type]
    return digest.digest() + salt


def named(chain: bytes | None) -> bytes:
    """The part of a chain that stays when the event is erased: the state's name."""
    return (chain or b"")[:DIGEST]


def holds(before: bytes | None, event: Fields, chain: bytes | None) -> bool:
    """Whether `chain` is that of `event`. Also True where it cannot tell: an event from before chains, or an erased one."""
    if chain is None or (isinstance(chain, bytes) and len(chain) <= DIGEST):
        return True
    if not isinstance(chain, bytes) or not isinstance(event[-1], bytes | None):
        return False
    return linked(before, event, chain[DIGEST:]) == chain
