"""Encoder: text to vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class EncoderIdentity:
    """Stored with every vector set: vectors of different identities are never compared."""

    model: str
    dimension: int
    normalised: bool


class Encoder(Protocol):
    @property
    def identity(self) -> EncoderIdentity: ...

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Shape (len(texts), dimension), float32, rows of unit length where `identity.normalised`."""
        ...
