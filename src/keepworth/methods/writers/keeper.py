"""A writer that keeps the most important facts within a budget, and learns importance from rewards, without a model.

`Keeper` wraps a writer that finds facts. The importance of a fact is linear in a few marks of its text (`importance.marks`);
where there are more than `most` facts, the least important is deleted, which may be a new one; that can be undone, and is logged
as a choice. `_keeper_learning` describes how rewards change the weights of the marks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from keepworth.memory.choose.pool import Advice
from keepworth.memory.choose.slots import Finished, Writer, need, written
from keepworth.memory.errors import InvalidAdvice, InvalidPolicy
from keepworth.memory.importance import MARKS, PRIOR, marks
from keepworth.memory.item import Item
from keepworth.methods.writers._keeper_evidence import evidence
from keepworth.methods.writers._keeper_learning import KeeperCheck, learn
from keepworth.records.episode import Decision, DecisionKind, Operation, OperationKind
from keepworth.registry import Method

if TYPE_CHECKING:
    from keepworth.memory.memory import Memory

NAME, CHECK = "keeper", "keeper's check"
"""Keys under which a memory file stores the weights in use, and the latest check."""


@dataclass(frozen=True, slots=True)
class Withdrawal(Operation):
    """The deletion of the least important item. key: its importance; version: that of the weights, 0 for the first ones; most:
    the keeper's budget."""

    key: float = 0.0
    version: int = 0
    most: int = 0

    def decision(self, id: str, gone: str, head: int) -> tuple[Decision, str]:
        """Returns the decision as it is logged, and its details.

        Args:
            id: The id of the decision.
            gone: The item's id in the memory.
            head: The newest entry of the journal.
        """
        details = {"key": self.key, "most": self.most, "head": head}
        chosen = Decision(id, DecisionKind.WRITE, "", ((gone, self.key),), (gone,), 1.0, f"keeper:{self.version}")
        return chosen, json.dumps(details, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of `MARKS`, with their version, 0 for the first ones, and the version before."""

    values: tuple[float, ...]
    version: int = 0
    before: int = 0


@dataclass(frozen=True, slots=True)
class Keeper:
    """Keeps the `most` most important items that `facts` finds: `Memory(path, writer=Keeper(Facts(extract), most=200))`.

    Args:
        facts: The writer that finds facts.
        most: The budget of items in each scope.
        begin: The first weights of `importance.MARKS`.
        source: The source that its items get.

    An item with the metadata {"pinned": True} is never deleted, but counts.
    """

    facts: Writer
    most: int
    begin: tuple[float, ...] = PRIOR
    source: str = "writer"

    def __post_init__(self) -> None:
        need("a keeper", count={"most": self.most})
        if not callable(self.facts):
            raise InvalidAdvice(f"Keeper({self.facts!r:.40}) has nothing that finds facts.", "Give it Facts(extract).")
        if len(self.begin) != len(MARKS):
            raise InvalidPolicy(
                f"a keeper cannot begin with {self.begin!r:.60}.", f"Give a number for each of {MARKS}."
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
        weights = self._weights(finished.memory)
        items = {item.id: item for item in bank.items() if item.provenance.source == self.source}
        keys = dict(zip(items, self._scores(list(items.values()), weights), strict=True))
        read_to = len(bank.journal)
        for operation in written(self.facts, finished):
            yield operation
            for id in (id for entry in bank.journal[read_to:] for id in entry.outcome.changed):
                item = bank.find(id)
                if item is not None and item.current and item.provenance.source == self.source:
                    items[id], keys[id] = item, self._scores([item], weights)[0]
                else:
                    items.pop(id, None)
            while (gone := self._least(items, keys, weights.version)) is not None:
                yield gone
                del items[gone.targets[0]]
            read_to = len(bank.journal)

    def _least(self, items: dict[str, Item], scores: dict[str, float], version: int) -> Withdrawal | None:
        """Returns the next deletion; None where there is room, or all items are pinned."""
        free = [item for item in items.values() if not item.pinned]
        if len(items) <= self.most or not free:
            return None
        key, _, gone = min((scores[item.id], int(item.id[1:]), item.id) for item in free)
        return Withdrawal(OperationKind.DELETE, (gone,), "", key, version, self.most)

    def _scores(self, items: Sequence[Item], weights: Weights) -> list[float]:
        scores = marks([item.text for item in items]) @ np.array(weights.values)
        return [float(score) for score in scores]

    # Learning.

    def weights(self, memory: Memory) -> dict[str, float]:
        """Returns the weights in use, by mark: what each adds to the log-odds that a fact is asked for."""
        return dict(zip(MARKS, self._weights(memory).values, strict=True))

    def check(self, memory: Memory) -> KeeperCheck | None:
        """Returns the latest check; None where there was none."""
        on_file = memory.store.parameters(memory.scope, CHECK)
        if on_file is None:
            return None
        body, names = json.loads(on_file[1]), {field.name for field in fields(KeeperCheck)}
        return KeeperCheck(**{name: value for name, value in body.items() if name in names})

    def demote(self, memory: Memory) -> None:
        """Restores the weights before the last promotion. Raises InvalidPolicy where there are none."""
        now = self._weights(memory)
        if not now.version:
            raise InvalidPolicy("no weights were promoted in this memory.", "There is nothing to go back to.")
        before = self._weights(memory, now.before)
        _keep(memory, before.values if before.version else (), before.before)

    def learned(self, memory: Memory) -> KeeperCheck:
        """Learns weights from all rewards so far, uses them from now on, and returns their estimated gain."""
        now = self._weights(memory)
        rewarded = evidence(memory, self.source)
        check, values = learn(rewarded, np.array(now.values), self.begin, self.most)
        if check.promoted:
            _keep(memory, [float(f"{value:.6g}") for value in values], now.version)
        check = replace(check, against="the weights in use" if now.version else "those that it began with")
        memory.store.put_parameters(memory.scope, CHECK, json.dumps(asdict(check)).encode())
        return check

    def _weights(self, memory: Memory, version: int | None = None) -> Weights:
        """Returns the weights in use, or those of a version, without weights of marks that no longer exist."""
        if version == 0:
            return Weights(self.begin)
        on_file = memory.store.parameters(memory.scope, NAME, None if version is None else f"s{version}")
        body = {} if on_file is None else json.loads(on_file[1])
        if on_file is None or not body.get("marks"):
            return Weights(self.begin)
        values = tuple(float(body["marks"].get(name, first)) for name, first in zip(MARKS, self.begin, strict=True))
        return Weights(values, on_file[0], int(body["before"]))


def _keep(memory: Memory, values: Sequence[float], before: int) -> None:
    """Stores the weights in use; no values stand for the first weights."""
    body = {"marks": dict(zip(MARKS, values, strict=False)), "before": before}
    memory.store.put_parameters(memory.scope, NAME, json.dumps(body).encode())


METHOD = Method(
    kind="writer",
    name="keeper",
    title="Keeper",
    about="Keeps the facts that are likely to be asked for within a budget, and learns from rewards which those are (ours)",
    tags=("token", "factual", "formation", "evolution"),
    claim="From the first day it keeps more of the evidence of later questions than the best one-line rule.",
    differs="Not published: this project's own.",
    make=Keeper,
)
