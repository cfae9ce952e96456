"""The executor of operations. Any operation on any memory has a defined outcome, and a bad one changes nothing.

| operation | applies when | otherwise a no-op, with the reason |
| --- | --- | --- |
| ADD text | the text is sound, and no open item says all of it | empty, control characters, too long; duplicate |
| UPDATE one target, text | the target is open, the text is sound and different | unknown or closed target; unchanged; duplicate |
| SUPERSEDE targets, text | every target is open | as above; a text that another open item already has links to that item |
| DELETE targets | every target is known and not deleted | unknown target |
| MERGE two or more targets, text | every target is open | fewer than two different targets |
| LINK two targets, text = relation | both are open and not yet linked so | unknown target; already linked; linked to itself |
| NOOP | never | always "noop" |

What was said last holds, whenever it is written: where the new text of a SUPERSEDE or an UPDATE was said before a target, that
target stays as it is, and the text becomes an item that the target has closed. `as_of` finds it. SUPERSEDE may then also name
what a target has closed already, so that the new item takes its place between them. DELETE leaves what was said later.

Acts of earlier versions went by the order of writing alone. Their journal entries lead to the same items as then: see `RULES`.

`Assignment` and `Credit`, which no model asks for, are carried out in the same way, so that they can be undone too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from numbers import Real
from operator import attrgetter
from typing import Any, Protocol

from keepworth.memory.errors import InvalidReward
from keepworth.memory.item import (
    EVERYWHERE,
    UNKNOWN,
    Item,
    ItemKind,
    Link,
    Provenance,
    Scope,
    Status,
    indented_alike,
    is_before,
    later,
    text_problem,
)
from keepworth.records.episode import Operation, OperationKind

RULES = 3
"""The version of the rules by which acts are carried out; under 1, the order in which things were said did not count, and up to
2, what the old text of a reworded item had earned was the new one's (see `keepworth.memory.choose.wordings`). It is to be raised
where an act on file would lead to other items, or to other worths, and code for the rules of then has to stay."""


@dataclass(frozen=True, slots=True)
class Draft:
    """The fields, except for the text, of the item that an operation would write. Times are canonical text.

    With `deduplicate`, an item is not stored if `copies` open items say the same already (see `nothing_new`). The act is
    carried out by the `rules` of that version."""

    kind: ItemKind = ItemKind.FACT
    key: str = ""
    scope: Scope = EVERYWHERE
    event_time: str = ""
    valid_from: str = ""
    valid_to: str = ""
    expires_at: str = ""
    provenance: Provenance = UNKNOWN
    trust: float = 1.0
    status: Status = Status.ACTIVE
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    deduplicate: bool = True
    copies: int = 1
    rules: int = RULES


@dataclass(frozen=True, slots=True)
class Assignment:
    """Set fields of an open item that say nothing about the world, listed in ASSIGNABLE."""

    target: str
    fields: Mapping[str, Any]

    @property
    def targets(self) -> tuple[str, ...]:
        """Return the ids of the items that this concerns."""
        return (self.target,)


@dataclass(frozen=True, slots=True)
class Credit:
    """A reward for items that were shown, each given with the probability with which it was shown."""

    value: float
    items: tuple[tuple[str, float], ...]
    source: str = ""
    decision: str = ""

    @property
    def targets(self) -> tuple[str, ...]:
        """Return the ids of the items that this concerns."""
        return tuple(id for id, _ in self.items)


Act = Operation | Assignment | Credit
ASSIGNABLE = frozenset({"status", "trust", "expires_at", "metadata"})


@dataclass(frozen=True, slots=True)
class OperationOutcome:
    """What came of an operation."""

    applied: bool  # whether anything changed
    changed: tuple[str, ...] = ()  # ids of the items that were written, a new item last
    reason: str = "applied"  # or why nothing changed
    item: str = ""  # id of the item that now says what the operation asked for, for a duplicate the one already there


def renamed_act(act: Act, names: Mapping[str, str]) -> Act:
    """Return the same act with the ids of its items replaced by those in `names`."""
    if isinstance(act, Assignment):
        return replace(act, target=names.get(act.target, act.target))
    if isinstance(act, Credit):
        return replace(act, items=tuple((names.get(id, id), propensity) for id, propensity in act.items))
    return replace(act, targets=tuple(names.get(target, target) for target in act.targets))


class View(Protocol):
    """What the executor needs of a memory. `get` returns open and closed items of the view's scope and of no other."""

    def get(self, id: str) -> Item | None: ...

    def duplicates_of(self, item: Item) -> list[str]:
        """Return the ids of open items with the same `duplicate_key`, in order of writing."""
        ...

    def put(self, item: Item) -> None: ...


def execute(view: View, act: Act, draft: Draft, *, new_id: str, now: str) -> OperationOutcome:
    """Apply an act to a view. A bad operation raises nothing.

    Args:
        view: The items, which it changes.
        act: What is done.
        draft: The scope, the time and the source of a new item.
        new_id: The id of a new item.
        now: Its time.
    """
    if isinstance(act, Assignment):
        return _assign(view, act)
    if isinstance(act, Credit):
        return _credit(view, act)
    if problem := malformed(act):
        return OperationOutcome(False, reason=problem)
    if act.kind is OperationKind.NOOP:
        return OperationOutcome(False, reason="noop")
    return _HANDLERS[act.kind](view, act, draft, new_id, now)


def malformed(act: object) -> str | None:
    """Return why `act` is not even the form of an operation, or None. A malformed one is not journaled."""
    if isinstance(act, (Assignment, Credit)):
        return None
    if not isinstance(act, Operation) or not isinstance(act.kind, OperationKind):
        return f"not an operation: {act!r:.80}"
    if act.targets != () and not (
        isinstance(act.targets, (tuple, list)) and all(isinstance(target, str) for target in act.targets)
    ):
        return f"targets must be ids of items, got {act.targets!r:.80}"
    if not isinstance(act.text, str):
        return f"text must be str, got {type(act.text).__name__}: give a text"
    return None


LARGEST_REWARD = 1e100
SUPERSEDES = "supersedes"
"""What links an item to one that it has closed."""


def checked_reward(value: object, bounds: tuple[float, float] | None = None) -> float:
    """Return a reward as a float; True counts as 1. Raises InvalidReward if it lies outside `bounds`, or is so large that sums of
    squares of rewards might not be finite."""
    try:
        # NumPy's truth values are not `Real`, but a comparison of arrays yields them.
        plain = isinstance(value, Real) or type(value).__name__ in ("bool", "bool_")
        number = float(value) if plain else math.nan  # type: ignore[arg-type]
    except OverflowError:
        number = math.inf
    if bounds is not None and not bounds[0] <= number <= bounds[1]:
        raise InvalidReward(
            f"the reward must be a finite number in [{bounds[0]:g}, {bounds[1]:g}], got {value!r:.80}: nothing was learned.",
            "Scale it, or tell the file the range once: Memory(path, reward_range=(lowest, highest))."
            if plain and math.isfinite(number)
            else "Give a plain number, such as reward(hits.decision, 1.0).",
        )
    if not abs(number) <= LARGEST_REWARD:
        raise InvalidReward(
            f"a reward must be a finite number from -{LARGEST_REWARD:g} to {LARGEST_REWARD:g}, got {value!r:.40}: give 1 for "
            "success and 0 for failure"
        )
    return number


def new_item(text: str, draft: Draft, *, new_id: str, now: str) -> Item:
    """Return a new item.

    Args:
        text: What it says.
        draft: Its scope, its times and its source.
        new_id: The id that it gets, such as "m17".
        now: When it is written.
    """
    # Field by field, which takes half the time of what would read their names.
    return Item(
        new_id,
        text,
        kind=draft.kind,
        key=draft.key,
        scope=draft.scope,
        event_time=draft.event_time,
        written_at=now,
        valid_from=draft.valid_from,
        valid_to=draft.valid_to,
        expires_at=draft.expires_at,
        provenance=draft.provenance,
        trust=draft.trust,
        status=draft.status,
        metadata=draft.metadata,
    )


def nothing_new(item: Item, other: Item) -> bool:
    """Whether `other`, an item with the same words, adds nothing to the open `item`: no other time, metadata or indents, no
    higher trust, no later expiry, and no other status."""
    return (
        item.status is other.status
        and indented_alike(item.text, other.text)
        and item.trust >= other.trust
        and (not item.expires_at or (other.expires_at != "" and item.expires_at >= other.expires_at))
        and all(getattr(other, time) in ("", getattr(item, time)) for time in ("event_time", "valid_from", "valid_to"))
        and all(name in item.metadata and item.metadata[name] == value for name, value in other.metadata.items())
    )


def _duplicates(view: View, item: Item, but: str = "", most: int = 1) -> list[str]:
    """Return the ids of open items, other than `but`, that already say what `item` says, at most so many."""
    saying = (id for id in view.duplicates_of(item) if id != but and nothing_new(_known(view, id), item))
    return list(islice(saying, most))


def _add(view: View, operation: Operation, draft: Draft, new_id: str, now: str) -> OperationOutcome:
    if problem := draft_problem(operation.text, draft):
        return OperationOutcome(False, reason=problem)
    if operation.targets:
        return OperationOutcome(False, reason="ADD takes no targets")
    item = new_item(operation.text, draft, new_id=new_id, now=now)
    existing = _duplicates(view, item, most=draft.copies) if draft.deduplicate else []
    if draft.deduplicate and len(existing) == draft.copies:
        return OperationOutcome(False, reason=f"duplicate of {existing[-1]}", item=existing[-1])
    view.put(item)
    return OperationOutcome(True, (new_id,), item=new_id)


def _update(view: View, operation: Operation, draft: Draft, new_id: str, now: str) -> OperationOutcome:
    if len(operation.targets) != 1:
        return OperationOutcome(False, reason=f"UPDATE takes one target, got {len(operation.targets)}")
    if problem := text_problem(operation.text) or _targets_problem(view, operation.targets):
        return OperationOutcome(False, reason=problem)
    old = _known(view, operation.targets[0])
    if old.text == operation.text:
        return OperationOutcome(False, reason="unchanged", item=old.id)
    item = new_item(operation.text, draft, new_id=new_id, now=now)
    if draft.rules > 1 and _said_before(item, old):
        return _insert(view, replace(item, kind=old.kind, scope=old.scope), [old])
    # A reworded item keeps its id, interval, provenance and statistics.
    revised = replace(old, text=operation.text, revision=old.revision + 1)
    existing = next(iter(_duplicates(view, revised, but=old.id)), None) if draft.deduplicate else None
    if existing is not None:
        return OperationOutcome(False, reason=f"duplicate of {existing}", item=existing)
    view.put(revised)
    return OperationOutcome(True, (old.id,), item=old.id)


def _replace_with_new(view: View, operation: Operation, draft: Draft, new_id: str, now: str) -> OperationOutcome:
    """Carry out SUPERSEDE or MERGE: close the targets, and write an item with the new text that is linked to them."""
    targets, merging = tuple(dict.fromkeys(operation.targets)), operation.kind is OperationKind.MERGE
    if not targets and not merging:
        return OperationOutcome(False, reason="SUPERSEDE needs a target")
    if len(targets) < 2 and merging:
        return OperationOutcome(False, reason=f"MERGE needs two different targets, got {len(targets)}")
    closed_among = {id for id in targets if (there := view.get(id)) is not None and there.superseded_by in targets}
    in_order = not merging and draft.rules > 1
    standing = [id for id in targets if not in_order or id not in closed_among]
    if problem := draft_problem(operation.text, draft) or _targets_problem(view, standing):
        return OperationOutcome(False, reason=problem)
    olds = [_known(view, target) for target in standing]
    # An agent that says "this fact changed" changes neither the kind of the item nor whose it is.
    scopes = {old.scope for old in olds}
    draft = replace(draft, kind=olds[0].kind, scope=scopes.pop() if len(scopes) == 1 else draft.scope)
    newest = max(old.written_at for old in olds)
    if newest > now:
        # The clock went back: the successor must still come after the items that it replaces.
        now = later(newest, 1e-6)
    item = new_item(operation.text, draft, new_id=new_id, now=now)
    if in_order and any(_said_before(item, old) for old in olds):
        return _insert(view, item, [*olds, *(_known(view, id) for id in targets if id in closed_among)])
    existing = next(iter(_duplicates(view, item)), None)
    if merging:
        # If the merged text is that of one of the targets, this one stays as it is.
        existing = next((id for id in view.duplicates_of(item) if id in targets), existing)
        # Merged items were the same fact in several wordings: the successor was said when the last of them was, and is valid over
        # their whole interval.
        last = max(olds, key=attrgetter("said_at"))
        if draft.rules > 1 and (not item.said_at or is_before(item.said_at, last.said_at)):
            date = last.provenance.date and last.said_at
            item = replace(item, event_time=last.event_time, provenance=replace(item.provenance, date=date))
        item = replace(
            item,
            event_time=item.event_time or max(old.event_time for old in olds),
            valid_from=draft.valid_from or min(old.valid_from or old.event_time or old.written_at for old in olds),
            trust=min(draft.trust, *(old.trust for old in olds)),
        )
    if existing is not None and targets == (existing,):
        return OperationOutcome(False, reason="unchanged", item=existing)
    survivor = existing if existing is not None else new_id
    closed = [old for old in olds if old.id != survivor]
    for old in closed:
        # A merge rewords: nothing became untrue, so no end of validity is known, only that the store closed the item.
        until = "" if merging else _end_of(old, item) if in_order else draft.valid_from or draft.event_time
        view.put(replace(old, ended_at=now, valid_to=until, superseded_by=survivor))
    changed = tuple(old.id for old in closed)
    if survivor == new_id:
        links = tuple(Link(old.id, "merged" if merging else SUPERSEDES) for old in closed)
        view.put(replace(item, links=links))
        changed += (new_id,)
    return OperationOutcome(True, changed, item=survivor)


def _said_before(new: Item, old: Item) -> bool:
    """Return whether `new`, which is not written yet, was said before `old`. If it only says when it happened, that counts beside
    a time that `old` states, not beside the time at which it was stored."""
    when = old.said_at or (old.written_at if new.provenance.date else "")
    return bool(new.said_at and when) and is_before(new.said_at, when)


def _end_of(old: Item, new: Item) -> str:
    """Return when `old` became untrue because of `new`; "" if that is not known but for when the store closed it."""
    start = old.valid_from or old.event_time or old.written_at
    stated = (new.valid_from, new.event_time, new.provenance.date and new.said_at)
    if old.provenance.date or old.event_time:
        return next((time for time in stated if time >= start), "")
    return next(filter(None, stated[:2]), "")


def _insert(view: View, item: Item, targets: Sequence[Item]) -> OperationOutcome:
    """Write an item that was said before some of `targets`: the earliest of those has closed it. The others give way to it."""
    later_said = [one for one in targets if _said_before(item, one)]
    successor = min(later_said, key=lambda one: one.said_at or one.written_at)
    before = [one for one in targets if one not in later_said]
    # The same statement may be told again, as where a conversation is imported twice.
    closed = [view.get(link.target) for link in successor.links if link.relation == SUPERSEDES]
    for one in (*before, *filter(None, closed)):
        if one.text == item.text and one.said_at == item.said_at:
            return OperationOutcome(False, reason=f"duplicate of {one.id}", item=one.id)
    until = successor.valid_from or successor.event_time
    start = item.valid_from or item.event_time or item.written_at
    until = until if until > start else successor.said_at or successor.written_at
    links = tuple(Link(one.id, SUPERSEDES) for one in before)
    item = replace(item, ended_at=item.written_at, valid_to=until, superseded_by=successor.id, links=links)
    for one in before:
        ended = one.ended_at or item.ended_at
        view.put(replace(one, ended_at=ended, valid_to=_end_of(one, item), superseded_by=item.id))
    view.put(item)
    view.put(replace(successor, links=(*successor.links, Link(item.id, SUPERSEDES))))
    return OperationOutcome(True, (*(one.id for one in before), item.id), item=item.id)


def _delete(view: View, operation: Operation, draft: Draft, new_id: str, now: str) -> OperationOutcome:
    deleted: dict[str, Item] = {}
    for target in operation.targets:
        item = view.get(target)
        if item is None or item.deleted:
            return OperationOutcome(False, reason=f"unknown target {target!r:.80}")
        if draft.rules > 1 and _said_before(new_item("", draft, new_id=new_id, now=now), item):
            return OperationOutcome(False, reason=f"target {target} was said later")
        deleted[target] = replace(item, deleted=True, ended_at=item.ended_at or now)
    if not deleted:
        return OperationOutcome(False, reason="DELETE needs a target")
    for item in deleted.values():
        view.put(item)
    return OperationOutcome(True, tuple(deleted))


def _link(view: View, operation: Operation, draft: Draft, new_id: str, now: str) -> OperationOutcome:
    if len(operation.targets) != 2:
        return OperationOutcome(False, reason=f"LINK takes two targets, got {len(operation.targets)}")
    source, target = operation.targets
    if source == target:
        return OperationOutcome(False, reason="an item cannot be linked to itself")
    problem = _targets_problem(view, operation.targets) or (text_problem(operation.text) if operation.text else None)
    if problem is not None:
        return OperationOutcome(False, reason=problem)
    item = _known(view, source)
    link = Link(target, operation.text)
    if link in item.links:
        return OperationOutcome(False, reason="already linked", item=source)
    view.put(replace(item, links=(*item.links, link)))
    return OperationOutcome(True, (source,), item=source)


def _assign(view: View, act: Assignment) -> OperationOutcome:
    if problem := _targets_problem(view, (act.target,)):
        return OperationOutcome(False, reason=problem)
    if unknown := set(act.fields) - ASSIGNABLE:
        return OperationOutcome(False, reason=f"cannot assign {', '.join(sorted(unknown))}")
    fields = dict(act.fields)
    if "status" in fields:
        fields["status"] = Status(fields["status"])
    item = _known(view, act.target)
    assigned = replace(item, **fields)
    if assigned == item:
        return OperationOutcome(False, reason="unchanged", item=item.id)
    view.put(assigned)
    return OperationOutcome(True, (item.id,), item=item.id)


def _credit(view: View, act: Credit) -> OperationOutcome:
    """Credit the items of an act. Those that were closed meanwhile are credited too, as they were shown before the reward."""
    changed = []
    for id, propensity in act.items:
        item = view.get(id)
        if item is not None:
            view.put(replace(item, values=item.values.after(act.value, propensity)))
            changed.append(id)
    if not changed:
        return OperationOutcome(False, reason="no known item was shown")
    return OperationOutcome(True, tuple(dict.fromkeys(changed)))


def draft_problem(text: str, draft: Draft) -> str | None:
    """Return why this text, or the key of the draft, cannot be remembered; None if both can."""
    key_problem = text_problem(draft.key) if draft.key else None
    return text_problem(text) or (key_problem and f"key: {key_problem}")


def _targets_problem(view: View, targets: Iterable[str]) -> str | None:
    for target in targets:
        item = view.get(target) if isinstance(target, str) else None
        if item is None or item.deleted:
            return f"unknown target {target!r:.80}"
        if not item.open:
            return f"target {target} was superseded by {item.superseded_by}"
    return None


def _known(view: View, id: str) -> Item:
    item = view.get(id)
    assert item is not None
    return item


_HANDLERS = {
    OperationKind.ADD: _add,
    OperationKind.UPDATE: _update,
    OperationKind.SUPERSEDE: _replace_with_new,
    OperationKind.DELETE: _delete,
    OperationKind.MERGE: _replace_with_new,
    OperationKind.LINK: _link,
}
