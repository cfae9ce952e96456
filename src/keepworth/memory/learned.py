"""The methods of `Memory` about what its policy has learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from keepworth.memory.errors import InvalidPolicy, check_keywords
from keepworth.memory.item import Item, Scope, checked_source
from keepworth.memory.search.search import Worth, checked_query, several
from keepworth.memory.store.decision_log import DecisionLog
from keepworth.memory.store.log import check_source

if TYPE_CHECKING:
    from keepworth.memory.policy.learning import Learning
    from keepworth.memory.policy.ledger import Balance
    from keepworth.memory.policy.pool import Advice
    from keepworth.memory.store.store import Store


@check_keywords
class Learned:
    """The methods of `Memory` about what its policy has learned."""

    store: Store
    learning: Learning | None
    _decisions: DecisionLog

    if TYPE_CHECKING:

        @property
        def scope(self) -> Scope: ...
        def get(self, id: str) -> Item: ...

    @property
    def policy(self) -> str | None:
        """The name of the policy; None if there is none."""
        return None if self.learning is None else self.learning.policy

    def worth(self, id: str, query: str) -> Worth:
        """Estimate from rewards how much showing an item adds for `query`, and over all queries (`.overall`, with its
        `.interval`). Raises UnknownItem, InvalidPolicy."""
        self._decisions.flush()
        return self._learns("worth").worth(self.get(id), checked_query(query))

    def ledger(self, *, items: Sequence[str] | None = None, source: str = "", everything: bool = False) -> Balance:
        """Estimate how much showing each item added, from episodes in which chance decided whether it was shown, and what those
        random choices cost. Raises UnknownItem, InvalidFilter, InvalidPolicy.

        Args:
            items: Ids of items; by default all current ones that were shown with a reward.
            source: Only items from this source.
            everything: Include items that were never shown with a reward, or that are no longer current.
        """
        learning = self._learns("ledger")
        self._decisions.flush()
        if items is not None:
            items = [self.get(id).id for id in several(items, "items", "m1")]
        if source:
            checked_source(source, "source")
            listed = self.store.items(self.scope, current=not everything)
            there = [item.id for item in listed if item.provenance.source == source]
            if not there:
                with self.store.database.reading() as connection:
                    check_source(connection, self.scope, source)
            items = there if items is None else [id for id in items if id in set(there)]
        return learning.ledger(items, everything=everything)

    def propose(self, advice: Advice) -> str:
        """Store advice from outside as an item, and return its id. `advice.source` says where it comes from, and may not claim to
        be the memory's own experience. Raises InvalidAdvice, InvalidPolicy."""
        return self._learns("propose").propose(advice)

    def _learns(self, verb: str) -> Learning:
        if self.learning is None:
            raise InvalidPolicy(
                f"{verb} is a verb of a policy, and this memory was opened with policy=None.", "Name one."
            )
        self.store.database.check_open()  # before taking a lock: in a forked process it may be held by a thread of the parent
        return self.learning
