"""Stages: functions that change the hits of a search before a policy chooses among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from keepworth.base.errors import called_as
from keepworth.memory.errors import InvalidFilter

if TYPE_CHECKING:
    from keepworth.memory.search.search import Hit, Request


@dataclass(frozen=True, slots=True)
class StageRequest:
    """What a stage knows of a search.

    Attributes:
        query: The text that is searched for.
        time: The present time of the memory, in canonical form.
        options: What the search was told: how many hits, its mode and its filters.
    """

    query: str
    time: str
    options: Request


class Stage(Protocol):
    """Returns some of the hits, best first: all of them in another order, or without those that nobody should see.

    It gets more hits than are asked for, so that others take the places of those that it leaves out. It adds none, so a filter
    holds whatever it does. Its order counts: the first hit gets the highest score, and so on."""

    def __call__(self, request: StageRequest, hits: Sequence[Hit]) -> Sequence[Hit]: ...


@dataclass(frozen=True, slots=True)
class NamedStage:
    """A stage with the name that explanations and errors call it by."""

    name: str
    stage: Stage

    def __call__(self, request: StageRequest, hits: Sequence[Hit]) -> list[Hit]:
        """Return the hits of the stage, with their scores in its order. Raises InvalidFilter for hits that it was not given."""
        with called_as(f"The stage {self.name}"):
            answer = list(self.stage(request, list(hits)))
        places = {hit.id: place for place, hit in enumerate(hits)}
        ids = [getattr(hit, "id", None) for hit in answer]
        if not places.keys() >= set(ids) or len(set(ids)) < len(ids):
            strange = next(id for place, id in enumerate(ids) if id not in places or id in ids[:place])
            raise InvalidFilter(
                f"the stage {self.name} gave {strange!r:.40}, which it was not given or gave twice: it must give some of its hits"
            )
        remaining = sorted(ids, key=lambda id: places[str(id)])
        scores = sorted((hit.score for hit in answer), reverse=True)
        return [
            replace(hit, score=score)
            if hit.id == former
            else replace(hit, score=score, why=replace(hit.why, stages=(*hit.why.stages, self.name)))
            for hit, former, score in zip(answer, remaining, scores, strict=True)
        ]
