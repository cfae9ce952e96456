"""Images of a memory: its file as it is at a moment, for processes that read it and never write it.

An image travels once. After that only the parts of the file that have changed do, so what is sent of a memory that learns
follows what it learned, not its size.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from keepworth.episodes.errors import KeepworthError

PART = 4096
"""Bytes of a part: a page of the file."""


class ImageMismatch(KeepworthError):
    """A change that does not fit what is there, or does not give what it should."""


@dataclass(frozen=True, slots=True)
class MemoryImage:
    """data: the file, b"" for a memory without one; time: for all who read it, whatever their clocks say; hash: of data."""

    data: bytes
    time: str
    hash: str

    @classmethod
    def of(cls, data: bytes, time: str) -> MemoryImage:
        return cls(data, time, hashlib.sha256(data).hexdigest())

    def since(self, before: MemoryImage | None) -> ImageChange:
        """What makes this of `before`; None for nothing."""
        old = b"" if before is None else before.data
        starts = range(0, len(self.data), PART)
        parts = {
            start: part for start in starts if (part := self.data[start : start + PART]) != old[start : start + PART]
        }
        return ImageChange(parts, len(self.data), self.time, self.hash, "" if before is None else before.hash)


@dataclass(frozen=True, slots=True)
class ImageChange:
    """parts: by where they begin; length, time, hash: of the new image; before: the hash of the image that it changes, "" for a
    whole one."""

    parts: Mapping[int, bytes]
    length: int
    time: str
    hash: str
    before: str

    @property
    def bytes(self) -> int:
        """How many are sent."""
        return sum(map(len, self.parts.values()))

    def on(self, image: MemoryImage | None) -> MemoryImage:
        """The new image. Raises ImageMismatch."""
        here = "" if image is None else image.hash
        if self.before and here != self.before:
            raise ImageMismatch(f"A change of memory image {self.before[:12]} came to {here[:12] or 'none'}.")
        data = bytearray(image.data[: self.length] if image is not None and self.before else b"")
        data.extend(bytes(self.length - len(data)))
        for start, part in self.parts.items():
            data[start : start + len(part)] = part
        found = MemoryImage.of(bytes(data), self.time)
        if found.hash != self.hash:
            raise ImageMismatch(f"Memory image {self.hash[:12]} arrived as {found.hash[:12]}.")
        return found


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
