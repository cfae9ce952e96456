"""PolicyRecord: what a policy may know about items besides an order of candidates, and what the engine asks it.

A policy whose `record` is None says nothing of the kind: the engine then explains a hit by its place alone, and computes what an
item is worth, and the ledger, from the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from keepworth.memory.item import Item

if TYPE_CHECKING:
    from keepworth.base.arrays import Vectors
    from keepworth.memory.choose.ledger import Account
    from keepworth.memory.choose.slots import Query, Use
    from keepworth.memory.search.search import Hit, Worth

AdvicePieces: TypeAlias = "tuple[tuple[str, float, float], ...]"
"""Each (action, 1 for it or -1 against it, similarity of the question that this comes from)."""
QUORUM = 3
"""Of how many people the agreement counts for others by default: two could be of one mind by chance, see `consensus`."""


class PolicyRecord:
    """The answers of a policy that knows nothing besides its order. A policy with a record of rewards overrides them.

    What a valuer that is also a record estimated is not logged, a later reward of a decision comes as one more use with the same
    `use.decision`, and rewards reach it as they were given. It says at least how many rewards count (`__len__`).

    Attributes:
        bounds: The lowest and the highest possible reward, which the engine sets.
        newest: The most rewarded choices that it remembers.
        quorum: How many people must agree on a shared item before it counts for others; 0 for never.
        finds_sets: Whether the policy decides how many items are shown where `Query.size` is set.
        keeps_accounts: Whether it answers `worth`, `met`, `units` and `accounts`; else the engine computes them from the log.
    """

    bounds: tuple[float, float] = (0.0, 1.0)
    newest: int = 1_000_000_000
    quorum: int = 0
    finds_sets: bool = False
    keeps_accounts: bool = False

    def __len__(self) -> int:
        """Return the number of rewards that count. While it is 0, the order of the search is shown."""
        raise NotImplementedError(f"{type(self).__name__} does not say how many rewards count: give it __len__.")

    def __bool__(self) -> bool:
        """Return True, also for a record without rewards."""
        return True

    # While choosing.

    def proven(self, vector: Vectors) -> list[str]:
        """Return the ids of the items that rewards speak for at a question, the surest first."""
        return []

    def explain(self, hits: Sequence[Hit], use: Use) -> list[Hit]:
        """Return the hits that are shown, with what moved them. `hits` are the candidates in the order of the search."""
        moves = {place: "up" if place < index else "down" for place, index in enumerate(use.slate) if place != index}
        return [
            replace(hits[index], why=replace(hits[index].why, moved=moves[place])) if place in moves else hits[index]
            for place, index in enumerate(use.slate)
        ]

    def details(self, use: Use) -> dict[str, Any]:
        """Return what is to be logged with a choice so that its reward can be learned from: "expected" and "instead"."""
        return {}

    def advise(
        self,
        vector: Vectors,
        actions: Sequence[str],
        named: Mapping[str, Sequence[int]] | None = None,
        *,
        of_items: AdvicePieces = (),
        most: int = 0,
        person: str = "",
    ) -> tuple[AdvicePieces, str]:
        """Return the advice for a question with these actions, and lines for a prompt that say why.

        Args:
            vector: The question's vector.
            actions: What can be done.
            named: The roles of each action that items of the episode name; None if they name none.
            of_items: What the shown items advise.
            most: The largest number of pieces of advice of a policy that adds some.
            person: Whom the question is for.
        """
        return of_items, ""

    # After rewards.

    def has(self, decision: str, reward: float, source: str) -> bool:
        """Return whether the latest reward of a decision from this source is this one.

        Args:
            decision: The id of the choice.
            reward: The value that is compared.
            source: The channel through which it came.
        """
        return False

    def is_rewarded(self, decision: str) -> bool:
        """Return whether a reward of a decision is remembered, from whatever source."""
        return False

    def highest(self, source: str) -> float | None:
        """Return the highest reward that is remembered of a source; None if there is none."""
        return None

    def worth(self, query: Query, item: Item) -> Worth:
        """Return what showing an item adds at a question, according to rewards."""
        raise NotImplementedError

    @property
    def met(self) -> list[str]:
        """Return the ids of the items that were shown with a reward or were under test."""
        return []

    @property
    def units(self) -> int:
        """Return the number of rewarded episodes and single choices."""
        return 0

    def accounts(self, items: Iterable[str]) -> list[Account]:
        """Return the accounts of items in the ledger."""
        return []

    # Saving.

    @property
    def version(self) -> str:
        """Name the rules and settings by which rewards are weighed: a state that was saved under another name is learned anew."""
        return ""

    def save(self) -> Any:
        """Return all that was learned, as JSON has it, but that arrays may stand in it; None if it is always learned from the
        log. The engine saves it now and then, and the next process goes on from there. It is void once a reward behind it is
        rolled back or erased."""
        return None

    def load(self, state: Any) -> None:
        """Restore what `save` returned. Arrays are read-only, and tuples are lists."""


NO_RECORD = PolicyRecord()


def nearest_first(pieces: AdvicePieces, most: int) -> AdvicePieces:
    """Return the `most` pieces of advice that are most like the question."""
    return tuple(sorted(pieces, key=lambda piece: -piece[2])[:most])
