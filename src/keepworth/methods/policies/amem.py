"""A-MEM: notes with links, whose neighbours are revised."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from keepworth.memory.choose.case_policies import of_cases, require_part
from keepworth.memory.choose.pool import Pool
from keepworth.memory.choose.ready_slots import NOTHING, MostSimilar, Unvalued, eligible, top
from keepworth.memory.choose.selection import AllRetrieved
from keepworth.memory.choose.slots import Candidates, Policy, Query, Use, Valuer
from keepworth.methods.writers.notes import Notes, note_key
from keepworth.registry import Method

LINKS, REVISIONS = 5, 5
"""The most links of a new note, and the most revisions of a note."""


@dataclass(frozen=True, slots=True)
class WithLinked:
    """Retrieves `k` notes: the `near` most similar, those that they link to, then the next most similar (arXiv 2502.12110)."""

    k: int = 4
    near: int = 2

    def __call__(self, query: Query, pool: Pool) -> Candidates:
        rows = eligible(query, pool)
        similar = top(pool.similarities(query.vector, rows), rows, self.k).rows.tolist()
        if not similar:
            return NOTHING
        may = set(rows.tolist())
        linked = [
            other for row in similar[: self.near] for other in pool.items[row].metadata.get("links", ()) if other in may
        ]
        chosen = np.array(list(dict.fromkeys([*similar[: self.near], *linked, *similar]))[: self.k], dtype=np.intp)
        return Candidates(chosen, pool.similarities(query.vector, chosen))


@dataclass(slots=True)
class LinkAndEvolve:
    """A-MEM's two steps for each new note, as rules: link it to similar notes, and give the most similar ones its tags.

    Neighbours are addressed by id, links are to items that exist, revisions are versioned, capped, and embedded at once: four
    repairs of faults in the released library.
    """

    link_above: float
    evolve_above: float
    _seen: int = 0

    def __call__(self, pool: Pool, valuer: Valuer, use: Use | None, time: int) -> None:
        if use is not None:
            return
        for row in range(self._seen, len(pool)):
            self._arrived(pool, row)
        self._seen = len(pool)

    def _arrived(self, pool: Pool, row: int) -> None:
        rows = pool.active()
        rows = rows[rows < row]
        near = top(pool.similarities(pool.vectors[row], rows), rows, LINKS, self.link_above)
        if not len(near.rows) or "tags" not in pool.items[row].metadata:
            return
        pool.revise(row, links=tuple(int(other) for other in near.rows))
        mine = pool.items[row].metadata
        for other, similarity in zip(near.rows.tolist(), near.similarities, strict=True):
            data = pool.items[other].metadata
            if "tags" not in data:
                continue  # an observation, or a record from outside, which has nothing to share
            fresh = [tag for tag in mine["tags"] if tag not in data["tags"]]
            if similarity < self.evolve_above or not fresh or pool.revisions.get(other, 0) >= REVISIONS:
                continue
            tags = (*data["tags"], *fresh)
            key = note_key(data["content"], data["keywords"], tags, data["context"])
            pool.revise(other, key=key, tags=tags)


PARTS = ("links",)


def amem(
    *,
    k: int = 4,
    near: int = 2,
    link_above: float = 0.6,
    evolve_above: float = 0.75,
    failures: bool = True,
    steps: bool = False,
    without: str = "",
) -> Policy:
    """Returns A-MEM: the most similar notes, those that they link to, then the next most similar.

    Args:
        k: The most that is shown.
        near: The most similar notes whose links are followed.
        link_above: Cosine from which a new note is linked to an existing one.
        evolve_above: Cosine from which the existing one gets the new note's tags.
        failures: Whether failed cases are kept and shown, too.
        steps: Whether each step of an episode is a case.
        without: "links" leaves notes as they were written, and shows the most similar ones.
    """
    require_part(without, PARTS)
    linking = () if without else (LinkAndEvolve(link_above, evolve_above),)
    retriever = MostSimilar(k) if without else WithLinked(k, near)
    return of_cases("amem", retriever, Unvalued(), AllRetrieved(k), Notes(failures, steps), *linking)


METHOD = Method(
    kind="policy",
    name="amem",
    title="A-MEM",
    paper="arXiv 2502.12110",
    about="Stores notes with links to similar notes, and revises the neighbours of each new note",
    tags=("token", "factual", "formation", "evolution"),
    claim="DialSim F1 is 3.45, where LoCoMo's method has 2.55 and MemGPT 1.18.",
    differs=(
        "Rules replace both model calls; 4 notes are shown, linked ones among them, where the paper reads 10 and their links "
        "beside them."
    ),
    make=amem,
    parts=PARTS,
    notes="It learns by writing and linking notes of episodes, and ranks by similarity alone.",
)
