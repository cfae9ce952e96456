"""Files of the user who runs the program: the cache, and a key that signs the program's own files."""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from keepworth.base.errors import KeepworthError

_KEY = 32


class UnusableCache(KeepworthError):
    """The folder of files that can be made again is missing and cannot be made, or cannot be read or written."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            problem, "Set the environment variable KEEPWORTH_CACHE to a folder that this user can write to."
        )


def cache_folder() -> Path:
    """Returns the folder of files that can be fetched or made again. Does not create it. Raises UnusableCache where this user has
    no home folder and nothing else is named."""
    chosen, caches = os.environ.get("KEEPWORTH_CACHE"), os.environ.get("XDG_CACHE_HOME")
    try:
        if chosen:
            return Path(chosen).expanduser().absolute()
        return (Path(caches).expanduser() if caches else Path.home() / ".cache") / "keepworth"
    except RuntimeError as error:
        raise UnusableCache("There is no folder for model files, as this user has no home folder.") from error


@contextmanager
def using_cache() -> Iterator[Path]:
    """Makes the cache's folder, and gives it. What the operating system refuses inside the block becomes an UnusableCache."""
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
    except OSError as error:
        place = error.filename or folder
        raise UnusableCache(f"The cache of model files cannot be used: {place}: {error.strerror or error}.") from error


def signature(content: bytes) -> bytes:
    """Signs content, in 32 bytes that only programs of this user can make. The key is in the cache; the first call makes it.
    Raises UnusableCache where the key cannot be read or made."""
    with using_cache() as folder:
        file = folder / "key"
        if not file.exists():
            part = file.with_name(f"key.{os.getpid()}")
            with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
                out.write(secrets.token_bytes(_KEY))
                out.flush()
                os.fsync(out.fileno())
            # It is made as a link, so that the key of the first process stays.
            with suppress(FileExistsError):
                os.link(part, file)
            part.unlink()
        key = file.read_bytes()
    if len(key) != _KEY:
        raise UnusableCache(f"{file} is no key: delete it.")
    return hmac.digest(key, content, "sha256")
