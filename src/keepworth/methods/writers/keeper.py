"""A writer that keeps the most important facts within a budget, without a model.

`Keeper` wraps a writer that finds facts. The importance of a fact is linear in a few marks of its text (`importance.marks`), with
weights that were fitted to conversations whose questions are known (`importance.PRIOR`). Where there are more than `most` facts,
the least important is deleted, which may be a new one; that can be undone, and is logged as a choice.

Rewards change no weights. A method that learned them was tried and taken out: see `benchmarks.writing.telling`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from keepworth.memory.choose.pool import Advice
from keepworth.memory.choose.slots import Finished, Writer, need, written
from keepworth.memory.errors import InvalidAdvice, InvalidPolicy
from keepworth.memory.importance import MARKS, PRIOR, marks
from keepworth.memory.item import Item
from keepworth.records.episode import Decision, DecisionKind, Operation, OperationKind
from keepworth.registry import Method

NAME = "keeper"
"""The policy under which its deletions are logged."""


@dataclass(frozen=True, slots=True)
class Withdrawal(Operation):
    """The deletion of the least important item. key: its importance; most: the keeper's budget."""

    key: float = 0.0
    most: int = 0

    def decision(self, id: str, gone: str) -> tuple[Decision, str]:
        """Return the decision as it is logged, and its details. gone: the item's id in the memory."""
        details = {"key": self.key, "most": self.most}
        chosen = Decision(id, DecisionKind.WRITE, "", ((gone, self.key),), (gone,), 1.0, NAME)
        return chosen, json.dumps(details, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Keeper:
    """Keeps the `most` most important items that `facts` finds: `Memory(path, writer=Keeper(Facts(extract), most=200))`.

    Args:
        facts: The writer that finds facts.
        most: The budget of items in each scope.
        weights: What each of `importance.MARKS` adds to the log-odds that a fact is asked for.
        source: The source that its items get.

    An item with the metadata {"pinned": True} is never deleted, but counts.
    """

    facts: Writer
    most: int
    weights: tuple[float, ...] = PRIOR
    source: str = "writer"

    def __post_init__(self) -> None:
        need("a keeper", count={"most": self.most})
        if not callable(self.facts):
            raise InvalidAdvice(f"Keeper({self.facts!r:.40}) has nothing that finds facts.", "Give it Facts(extract).")
        if len(self.weights) != len(MARKS):
            raise InvalidPolicy(
                f"a keeper cannot have the weights {self.weights!r:.60}.", f"Give a number for each of {MARKS}."
            )

    def __call__(self, finished: Finished) -> Iterator[Advice | Operation]:
        if finished.memory is None or finished.bank is None:
            raise InvalidAdvice("a keeper writes for messages.", "Use it as Memory(path, writer=Keeper(...)).")
        if finished.source != self.source:
            raise InvalidAdvice(
                f"this keeper has a budget for source {self.source!r}, and would store under {finished.source!r:.60}.",
                "Leave source= out, or name it: Keeper(..., source=...).",
            )
        bank = finished.bank()
        items = {item.id: item for item in bank.items() if item.provenance.source == self.source}
        keys = dict(zip(items, self._scores(list(items.values())), strict=True))
        read_to = len(bank.journal)
        for operation in written(self.facts, finished):
            yield operation
            for id in (id for entry in bank.journal[read_to:] for id in entry.outcome.changed):
                item = bank.find(id)
                if item is not None and item.current and item.provenance.source == self.source:
                    items[id], keys[id] = item, self._scores([item])[0]
                else:
                    items.pop(id, None)
            while (gone := self._least(items, keys)) is not None:
                yield gone
                del items[gone.targets[0]]
            read_to = len(bank.journal)

    def _least(self, items: dict[str, Item], scores: dict[str, float]) -> Withdrawal | None:
        """Returns the next deletion; None where there is room, or all items are pinned."""
        free = [item for item in items.values() if not item.pinned]
        if len(items) <= self.most or not free:
            return None
        key, _, gone = min((scores[item.id], int(item.id[1:]), item.id) for item in free)
        return Withdrawal(OperationKind.DELETE, (gone,), "", key, self.most)

    def _scores(self, items: Sequence[Item]) -> list[float]:
        scores = marks([item.text for item in items]) @ np.array(self.weights)
        return [float(score) for score in scores]


METHOD = Method(
    kind="writer",
    name="keeper",
    title="Keeper",
    about="Keeps the facts that are likely to be asked for within a budget (ours)",
    tags=("token", "factual", "formation", "evolution"),
    claim="From the first day it keeps more of the evidence of later questions than the best one-line rule.",
    differs="Not published: this project's own.",
    make=Keeper,
)
