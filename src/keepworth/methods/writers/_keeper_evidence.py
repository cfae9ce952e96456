"""The data a keeper learns from: facts that were stored and deleted, and the rewards since."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import TYPE_CHECKING

import numpy as np

from keepworth.base.arrays import Bools, Floats, Rows
from keepworth.memory.item import Item
from keepworth.memory.store import log

if TYPE_CHECKING:
    from keepworth.memory.memory import Memory


NEWEST, LEAST = 5_000, 20
"""The most rewards that are learned from (the newest), and the fewest."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Facts (n) and rewards (t) of a memory, in order of the journal.

    items: n; came, left, ended: [n], the journal entries at which each was added, removed, and superseded by another fact
    regardless of the keeper, or infinity; scope: [n], a number. entry, reward: [t]; inside, question: for each reward the
    searched scopes, and the query, "" without one.
    """

    items: Sequence[Item]
    came: Floats
    left: Floats
    ended: Floats
    scope: Rows
    entry: Floats
    reward: Floats
    inside: Sequence[frozenset[int]]
    question: Sequence[str]

    def sums(self, values: Floats) -> tuple[Floats, Floats]:
        """Returns [t, c] twice: for each reward, the sum of `values` ([n, c]) over the facts in memory, and over the facts
        deleted, but not superseded, before it."""
        inside_sum, out = np.zeros((2, len(self.entry), values.shape[1]))
        for scope in np.unique(self.scope):
            mine = np.flatnonzero(self.scope == scope)
            rows = np.array([row for row, inside in enumerate(self.inside) if scope in inside], dtype=np.intp)
            until = []
            for entries in (self.came[mine], self.left[mine], self.ended[mine]):
                order = np.argsort(entries, kind="stable")
                running = np.concatenate([np.zeros((1, values.shape[1])), values[mine[order]].cumsum(axis=0)])
                until.append(running[np.searchsorted(entries[order], self.entry[rows])])
            inside_sum[rows] += until[0] - until[1]
            out[rows] += until[1] - until[2]
        return inside_sum, out

    def rows(self, use: Bools) -> Evidence:
        """Returns the evidence with the selected rewards only."""
        return replace(
            self,
            entry=self.entry[use],
            reward=self.reward[use],
            inside=list(compress(self.inside, use)),
            question=list(compress(self.question, use)),
        )


def evidence(memory: Memory, source: str) -> Evidence:
    """Reads the evidence from the log. Deletions by others than the keeper are left out."""
    with memory.store.database.reading() as connection:
        gone = {item: float(head) for head, item in log.withdrawals(connection, memory.scope)}
        questions = log.questions(connection, memory.scope)
        news = log.news(connection, memory.scope, log.cancelled(connection))
    # A later reward of the same decision replaces the earlier one.
    latest = {(reward.episode, reward.decision): reward for reward in news if math.isfinite(reward.value)}
    rewards = sorted(latest.values(), key=lambda reward: reward.seq)[-NEWEST:]
    items = [
        item
        for item in memory.store.items(memory.scope)
        if item.provenance.source == source and (item.open or item.superseded_by or item.id in gone)
    ]
    scopes = {scope: number for number, scope in enumerate(dict.fromkeys(item.scope for item in items))}
    searched = [
        questions.get(reward.decision) or questions.get(reward.episode) or ("", reward.scope) for reward in rewards
    ]
    within = {
        where: frozenset(number for scope, number in scopes.items() if where.contains(scope)) for _, where in searched
    }
    ended = np.array([float(item.superseded_by[1:]) if item.superseded_by else math.inf for item in items])
    # An item that was deleted and is open has been restored.
    left = np.array([gone.get(item.id, math.inf) if item.deleted else math.inf for item in items])
    return Evidence(
        items=items,
        came=np.array([float(item.id[1:]) for item in items]),
        left=np.minimum(left, ended),
        ended=ended,
        scope=np.array([scopes[item.scope] for item in items], dtype=np.intp),
        entry=np.array([float(reward.seq) for reward in rewards]),
        reward=np.array([reward.value for reward in rewards]),
        inside=[within[where] for _, where in searched],
        question=[text for text, _ in searched],
    )
