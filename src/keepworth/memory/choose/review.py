"""What the notes of a memory are worth, on one screen: which earn something, which cost something, and what is not known yet."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keepworth.memory.choose.ledger import Account, Balance
    from keepworth.memory.item import Item

GROUPS = ("costs", "earns", "undecided", "makes no difference", "never needed")
"""What is said of a note, in the order of the list."""


@dataclass(frozen=True, slots=True)
class ReviewedItem:
    """One note, and what rewards say of it.

    Args:
        group: One of `GROUPS`.
        points: By how much it changed the mean reward over all rewarded turns, in percent of the range of rewards.
        low, high: The 95 % interval of `points`; infinite where there is none.
        sentence: The evidence.
    """

    item: Item
    group: str
    points: float
    low: float
    high: float
    sentence: str


@dataclass(frozen=True, slots=True)
class Review:
    """The notes of a memory with what they are worth, those first that cost something. `rewarded` counts the rewarded turns."""

    items: tuple[ReviewedItem, ...]
    rewarded: int

    def of(self, group: str) -> list[ReviewedItem]:
        """Return the notes of a group."""
        return [reviewed for reviewed in self.items if reviewed.group == group]

    def __str__(self) -> str:
        """Return the sum in a sentence."""
        number = len(self.items)
        if not number:
            return "There are no notes."
        parts = [self._sum_up("costs", "cost you"), self._sum_up("earns", "earned")]
        counts = (
            ("undecided", "undecided"),
            ("makes no difference", "without effect"),
            ("never needed", "never needed"),
        )
        parts += [f"{len(self.of(group))} {words}" for group, words in counts if self.of(group)]
        notes = "note" if number == 1 else "notes"
        return f"Of {number} {notes}, by {self.rewarded:,} rewarded turns: {', '.join(filter(None, parts))}."

    def _sum_up(self, group: str, verb: str) -> str:
        listed = self.of(group)
        low, high = (
            (sum(end) for end in zip(*((one.low, one.high) for one in listed), strict=True)) if listed else (0.0, 0.0)
        )
        points, sign = sum(one.points for one in listed), -1.0 if group == "costs" else 1.0
        ends = sorted((sign * low, sign * high))
        return (
            f"{len(listed)} {verb} {sign * points:.1f} points of 100 ({ends[0]:.1f} to {ends[1]:.1f})" if listed else ""
        )


def review_items(items: Iterable[Item], balance: Balance) -> Review:
    """Return what a ledger says of items."""
    accounts: Mapping[str, Account] = {account.item: account for account in balance.accounts}
    reviewed = [_review(item, accounts.get(item.id), balance) for item in items]
    reviewed.sort(key=lambda one: (GROUPS.index(one.group), -abs(one.points), int(one.item.id[1:])))
    return Review(tuple(reviewed), balance.rewarded)


def _review(item: Item, account: Account | None, balance: Balance) -> ReviewedItem:
    if account is None or not (account.seen or account.rows):
        return ReviewedItem(item, "never needed", 0.0, 0.0, 0.0, "It was never shown in a turn that had an outcome.")
    share = min(1.0, account.seen / balance.rewarded) if balance.rewarded else 0.0
    scale = 100.0 * share / balance.span if balance.span else 0.0
    low, high = (scale * end if math.isfinite(end) else end for end in account.interval)
    shown = f"Shown in {account.seen:,.0f} turns that had an outcome"
    if not math.isnan(account.success):
        shown += f", mean reward {account.success:.2f} ({account.usual:.2f} over all turns)"
    if account.clear:
        group = "earns" if account.low > 0.0 else "costs"
        sentence = (
            f"{shown}. With it {abs(account.effect):.2f} {'more' if group == 'earns' else 'less'} than without it "
            f"({account.low:+.2f} to {account.high:+.2f}), as chance decided in {account.rows:,} of them."
        )
        return ReviewedItem(item, group, scale * account.effect, low, high, sentence)
    if account.negligible:
        return ReviewedItem(
            item, "makes no difference", 0.0, low, high, f"{shown}. With it the reward is as without it."
        )
    needed = f"About {account.needed:,} more tested turns would decide." if 0 < account.needed < 100_000 else ""
    tested = f"Chance decided in {account.rows:,} of them." if account.rows else "It was never left out by chance."
    sentence = " ".join(filter(None, (f"{shown}.", tested, needed)))
    return ReviewedItem(item, "undecided", scale * account.effect, low, high, sentence)
