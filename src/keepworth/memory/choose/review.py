"""What the notes of a memory are worth, on one screen: which earn something, which cost something, and what is not known yet; and
what is done with them then."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from keepworth.memory.choose.ledger import LEAST_EACH
from keepworth.memory.errors import InvalidFilter, UnknownItem
from keepworth.memory.item import PINNED, Item, Provenance
from keepworth.memory.operations import Act, Assignment, Draft, OperationOutcome
from keepworth.memory.search.search import several
from keepworth.memory.store import undo
from keepworth.memory.store.rows import ASSIGN
from keepworth.records.episode import Operation, OperationKind

if TYPE_CHECKING:
    from keepworth.memory.choose.ledger import Account, Balance
    from keepworth.memory.memory import Memory
    from keepworth.memory.store.transaction import Transaction

ALWAYS = "always shown"
GROUPS = ("costs", "earns", "undecided", "makes no difference", ALWAYS, "never needed")
"""What is said of a note, in the order of the list."""
REVIEW = "review"
"""The source of the changes that a review led to."""
KEPT = "kept"
"""The name in an item's metadata of the group in which it was when somebody decided to keep it."""
MANY = 100_000
"""More turns than this are not counted on."""


@dataclass(frozen=True, slots=True)
class ReviewedItem:
    """One note, and what rewards say of it.

    Args:
        group: One of `GROUPS`.
        points: By how much it changed the mean reward over all rewarded turns, in percent of the range of rewards.
        low, high: The 95 % interval of `points`; infinite where there is none.
        sentence: The evidence.
        needs: What a decision would need, "" where there is one.
        settled: Whether somebody decided to keep it when rewards said the same of it as now.
    """

    item: Item
    group: str
    points: float
    low: float
    high: float
    sentence: str
    needs: str = ""
    settled: bool = False


@dataclass(frozen=True, slots=True)
class Review:
    """The notes of a memory with what they are worth, those first that cost something. `rewarded` counts the rewarded turns, and
    `summary` is the sum in a sentence."""

    items: tuple[ReviewedItem, ...]
    rewarded: int
    summary: str

    def of(self, group: str) -> list[ReviewedItem]:
        """Return the notes of a group."""
        return [reviewed for reviewed in self.items if reviewed.group == group]

    def __str__(self) -> str:
        return self.summary


def review_items(items: Iterable[Item], balance: Balance) -> Review:
    """Return what a ledger says of items."""
    accounts: Mapping[str, Account] = {account.item: account for account in balance.accounts}
    reviewed = [_review(item, accounts.get(item.id), balance) for item in items]
    reviewed.sort(key=lambda one: (GROUPS.index(one.group), -abs(one.points), int(one.item.id[1:])))
    return Review(tuple(reviewed), balance.rewarded, _summary(reviewed, balance.rewarded))


def _summary(reviewed: Sequence[ReviewedItem], rewarded: int) -> str:
    if not reviewed:
        return "There are no notes."
    groups = {group: [one for one in reviewed if one.group == group] for group in GROUPS}
    parts = [_sum_up(groups["costs"], "cost you", -1.0), _sum_up(groups["earns"], "earned", 1.0)]
    counts = (
        ("undecided", "undecided"),
        ("makes no difference", "without effect"),
        (ALWAYS, ALWAYS),
        ("never needed", "never needed"),
    )
    parts += [f"{len(groups[group])} {words}" for group, words in counts if groups[group]]
    notes = "note" if len(reviewed) == 1 else "notes"
    return f"Of {len(reviewed)} {notes}, by {rewarded:,} rewarded turns: {', '.join(filter(None, parts))}."


def _sum_up(listed: Sequence[ReviewedItem], verb: str, sign: float) -> str:
    if not listed:
        return ""
    points, low, high = (
        sum(values) for values in zip(*((one.points, one.low, one.high) for one in listed), strict=True)
    )
    ends = sorted((sign * low, sign * high))
    return f"{len(listed)} {verb} {sign * points:.1f} points of 100 ({ends[0]:.1f} to {ends[1]:.1f})"


def _review(item: Item, account: Account | None, balance: Balance) -> ReviewedItem:
    if item.always:
        shown = f" It was shown in {_outcomes(account)}." if account and account.seen else ""
        pinned = "It is pinned" if item.pinned else "It is of the kind core"
        return ReviewedItem(item, ALWAYS, 0.0, 0.0, 0.0, f"{pinned}, and so it is always shown.{shown}")
    if account is None or not (account.seen or account.rows):
        return _file_under(
            item,
            "never needed",
            sentence="It was never shown in a turn that had an outcome.",
            needs="A decision needs turns with an outcome where it is shown.",
        )
    share = min(1.0, account.seen / balance.rewarded) if balance.rewarded else 0.0
    scale = 100.0 * share / balance.span if balance.span else 0.0
    ends = [scale * end if math.isfinite(end) else end for end in account.interval]
    shown = f"Shown in {_outcomes(account)}"
    if not math.isnan(account.success):
        shown += f", mean reward {account.success:.2f} ({account.usual:.2f} over all turns)"
    if account.clear:
        group = "earns" if account.low > 0.0 else "costs"
        sentence = (
            f"{shown}. With it {abs(account.effect):.2f} {'more' if group == 'earns' else 'less'} than without it "
            f"({account.low:+.2f} to {account.high:+.2f}), as chance decided in {account.rows:,} of them."
        )
        return _file_under(item, group, scale * account.effect, *ends, sentence=sentence)
    if account.negligible:
        sentence = f"{shown}. With it the reward is as without it."
        return _file_under(item, "makes no difference", 0.0, *ends, sentence=sentence)
    tested = f"Chance decided in {account.rows:,} of them." if account.rows else "It was never left out by chance."
    needs = _needs(account, balance.rewarded)
    return _file_under(item, "undecided", scale * account.effect, *ends, sentence=f"{shown}. {tested}", needs=needs)


def _outcomes(account: Account) -> str:
    return f"{account.seen:,.0f} {'turn' if round(account.seen) == 1 else 'turns'} that had an outcome"


def _file_under(
    item: Item,
    group: str,
    points: float = 0.0,
    low: float = 0.0,
    high: float = 0.0,
    *,
    sentence: str,
    needs: str = "",
) -> ReviewedItem:
    return ReviewedItem(item, group, points, low, high, sentence, needs, item.metadata.get(KEPT) == group)


def _needs(account: Account, rewarded: int) -> str:
    """Say what a decision about a note would need."""
    if not account.rows:
        return f"A decision needs {LEAST_EACH} turns where chance shows it and {LEAST_EACH} where chance leaves it out."
    if not account.span:
        return "All outcomes were the same: a decision needs turns where they differ."
    with_it, without = (max(0, LEAST_EACH - count) for count in (account.shown, account.withheld))
    if with_it or without:
        lacking = [f"{with_it} where chance shows it"] if with_it else []
        lacking += [f"{without} where chance leaves it out"] if without else []
        rare = account.shown if with_it > without else account.withheld
        return f"A decision needs {' and '.join(_turns(lacking))}.{_pace(max(with_it, without), rare, rewarded)}"
    if account.needed >= MANY:
        return f"It makes so little of a difference that {MANY:,} more turns would not decide."
    many = f"about {account.needed:,} more turns where chance decides whether it is shown"
    return f"A decision needs {many}.{_pace(account.needed, account.rows, rewarded)}"


def _turns(lacking: list[str]) -> list[str]:
    """Return the counts of what is lacking, of which the first says what is counted."""
    number, _, where = lacking[0].partition(" ")
    return [f"{number} more {'turn' if number == '1' else 'turns'} {where}", *lacking[1:]]


def _pace(turns: int, counted: int, rewarded: int) -> str:
    """Say how many turns of any kind that takes, if they come as often as the `counted` ones came so far."""
    whole = math.ceil(turns * rewarded / counted) if counted else 0
    return f" As often as they came so far, that takes some {whole:,} turns." if turns < whole < 10 * MANY else ""


# -- what is done then ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Settlement:
    """What somebody decided about notes. See `Memory.settle`, whose arguments these are."""

    memory: Memory
    retire: Sequence[str]
    keep: Sequence[str]
    pin: Sequence[str]
    undo: Sequence[str]

    def carry_out(self) -> list[Item]:
        """Carry it out, and return the items as they are then."""
        lists = {name: several(getattr(self, name), name, "m1") for name in ("retire", "keep", "pin", "undo")}
        ids = [id for listed in lists.values() for id in listed]
        if not ids:
            raise InvalidFilter("settle was given no notes: pass ids as retire=, keep=, pin= or undo=")
        if twice := next((id for id in ids if ids.count(id) > 1), ""):
            raise InvalidFilter(f"{twice} is named twice: say one thing of it; nothing was done")
        memory, items = self.memory, {id: self.memory.get(id) for id in ids}
        for id in (*self.retire, *self.keep, *self.pin):
            if not items[id].current:
                state = items[id].standing or "closed"
                raise UnknownItem(f"{id} is {state}: name a note that is in use; nothing was done")
        groups = self._groups([items[id] for id in self.keep]) if self.keep else {}
        entries = [self._last_entry(id) for id in self.undo]

        def acts(transaction: Transaction) -> list[tuple[Act, Draft]]:
            drafts = {id: Draft(scope=memory.scopes.home(items[id]), provenance=Provenance(REVIEW)) for id in ids}
            listed: list[tuple[Act, Draft]] = [
                (Operation(OperationKind.DELETE, (id,)), drafts[id]) for id in self.retire
            ]
            marks: dict[str, dict[str, Any]] = {id: {KEPT: groups[id]} for id in self.keep}
            for id, mark in (marks | {id: {PINNED: True} for id in self.pin}).items():
                present: dict[str, Any] = dict((transaction.get(id) or items[id]).metadata)
                listed.append((Assignment(id, {"metadata": {**present, **mark}}), drafts[id]))
            return listed

        def check(outcome: OperationOutcome) -> None:
            if not outcome.applied and outcome.reason != "unchanged":  # somebody else deleted it just now
                raise UnknownItem(f"{outcome.reason} of settle: leave it out; nothing was done")

        if len(ids) > len(self.undo):
            memory.store.perform(memory.scopes.changeable, acts, check=check)
        if entries:
            undo.rollback(memory.store, memory.scope, numbers=entries)
        return [memory.get(id) for id in ids]

    def _groups(self, items: Sequence[Item]) -> dict[str, str]:
        """Return what rewards say of items, by their ids."""
        balance = self.memory.ledger(items=[item.id for item in items])
        return {reviewed.item.id: reviewed.group for reviewed in review_items(items, balance).items}

    def _last_entry(self, id: str) -> int:
        """Return the number of the journal entry of the last change that a review led to and that counts. Raises UnknownItem."""
        with self.memory.store.database.reading() as connection:
            gone = undo.cancelled(connection)
        kinds = (ASSIGN, OperationKind.DELETE.value)
        made = [
            revision.seq for revision in self.memory.history(id) if revision.source == REVIEW and revision.kind in kinds
        ]
        standing = [seq for seq in made if not undo.within(seq, gone)]
        if not standing:
            raise UnknownItem(
                f"no review has changed {id}, or that is undone already: `history` lists its changes; nothing was done"
            )
        return standing[-1]
