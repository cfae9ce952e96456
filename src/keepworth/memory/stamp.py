"""Stamp: which state of which memory a file beside it was made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


class Unfit(Exception):
    """A file beside a memory that cannot be used, and why. Whoever reads it makes the file again."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """store, vector_set, made, model, dimension: which vectors; head, chain: the newest journal entry, and its chain in hex."""

    store: str
    vector_set: int
    made: str
    model: str
    dimension: int
    head: int
    chain: str

    def record(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Stamp:
        """Raises Unfit."""
        try:
            stamp = cls(**record)
        except TypeError as error:
            raise Unfit("it does not say what it was made from") from error
        numbers = (stamp.vector_set, stamp.dimension, stamp.head)
        names = (stamp.store, stamp.made, stamp.model, stamp.chain)
        if not all(type(number) is int for number in numbers) or not all(isinstance(name, str) for name in names):
            raise Unfit("it does not say what it was made from")
        return stamp

    def same_vectors(self, other: Stamp) -> bool:
        """Whether both are of one vector set of one memory, at whatever journal entry."""
        return self._vectors() == other._vectors()

    def _vectors(self) -> tuple[object, ...]:
        return (self.store, self.vector_set, self.made, self.model, self.dimension)
