"""Files of the user who runs the program: the cache, and a key that signs the program's own files."""

from __future__ import annotations

import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path

_KEY = 32


def cache_folder() -> Path:
    """Returns the folder of files that can be fetched or made again. Does not create it."""
    chosen = os.environ.get("KEEPWORTH_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "keepworth"


def signature(content: bytes) -> bytes:
    """Signs content, in 32 bytes that only programs of this user can make. The key is in the cache; the first call makes it.
    Raises OSError where it cannot be read or made."""
    file = cache_folder() / "key"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f"key.{os.getpid()}")
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
            out.write(secrets.token_bytes(_KEY))
            out.flush()
            os.fsync(out.fileno())
        # A link, so that the key of the first process stays.
        with suppress(FileExistsError):
            os.link(part, file)
        part.unlink()
    key = file.read_bytes()
    if len(key) != _KEY:
        raise OSError(f"{file} is no key: delete it")
    return hmac.digest(key, content, "sha256")
