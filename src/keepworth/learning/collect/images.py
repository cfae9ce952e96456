"""Images of a memory: its file as it is at a moment, for processes that read it and never write it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class MemoryImage:
    """data: the file, b"" for a memory without one; time: for all who read it, whatever their clocks say; hash: of data."""

    data: bytes
    time: str
    hash: str

    @classmethod
    def of(cls, data: bytes, time: str) -> MemoryImage:
        return cls(data, time, hashlib.sha256(data).hexdigest())


class Imaged(Protocol):
    """A memory that is read elsewhere."""

    def image(self) -> MemoryImage:
        """As it is now; the same one until it changes."""
        ...


class ImageReader(Protocol):
    """A memory that is read here."""

    def read(self, image: MemoryImage) -> None:
        """From here on it is this."""
        ...
