"""Fixed splits: a question's split follows from its id alone, and no conversation is in two splits.

Rule: sha256(question id) mod 10; 0 to 5 train, 6 dev, 7 to 9 test. Questions that share a mark (a session, a turn) are tied
together; a tied set goes to the split of its smallest question id (in code point order), so that adding a question never moves a
smaller one."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Mapping

SPLITS = ("train", "dev", "test")


def side(identifier: str) -> str:
    """Returns the split of one id taken alone: "train", "dev" or "test"."""
    last = int(hashlib.sha256(identifier.encode()).hexdigest(), 16) % 10
    return "train" if last < 6 else "dev" if last == 6 else "test"


def tied(marks: Mapping[str, Iterable[Hashable]]) -> dict[str, str]:
    """Returns for each id the smallest id of its tied set: ids with a mark in common, directly or through others (union-find)."""
    parent = {identifier: identifier for identifier in marks}

    def root(identifier: str) -> str:
        while parent[identifier] != identifier:
            parent[identifier] = parent[parent[identifier]]
            identifier = parent[identifier]
        return identifier

    first: dict[Hashable, str] = {}
    for identifier in sorted(marks):
        for mark in marks[identifier]:
            one, other = sorted((root(first.setdefault(mark, identifier)), root(identifier)))
            parent[other] = one
    return {identifier: root(identifier) for identifier in marks}


def draw_order(*parts: object) -> str:
    """Returns a sort key for seeded draws (sha256 of the parts), which is the same on every machine, Python version and hash
    seed.

    Sorting by `draw_order(seed, owner, member)` and taking the first n draws n members; a larger n only adds to a smaller one."""
    return hashlib.sha256("\x1f".join(map(str, parts)).encode()).hexdigest()
