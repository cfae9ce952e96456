"""How records of other formats come into a memory: what is new is added, and what was edited in an export is changed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from hashlib import blake2b
from typing import Any

from keepworth.base.errors import nearest
from keepworth.memory.errors import MemoryProblem
from keepworth.memory.item import (
    TIMES,
    Item,
    ItemKind,
    Provenance,
    checked_provenance,
    checked_text,
    duplicate_key,
    folded,
    timestamp,
    to_record,
    with_zone,
)
from keepworth.memory.memory import Memory
from keepworth.memory.operations import ASSIGNABLE, Act, Assignment, Draft, OperationOutcome, new_item, nothing_new
from keepworth.memory.store import purge
from keepworth.memory.store.rows import REWARD
from keepworth.memory.store.transaction import Transaction
from keepworth.records.episode import Operation, OperationKind

Record = dict[str, Any]
SCOPES = {"user_id": "user", "agent_id": "agent", "session_id": "session"}
KEPT = ("kind", "key", "event_time", "valid_from", "valid_to", "expires_at", "trust", "metadata")
"""The fields of an item that are written beside its text, scope and provenance."""
EDITED = "edited"
"""The source of a change that somebody made in an export."""
ORIGIN = tuple(field.name for field in fields(Provenance))
"""The fields of a provenance."""
PLACE = ("file", "line", "heading")
"""Names in the metadata that say where a text stands in a file, and nothing of the world."""


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """What a reader found in a file.

    Args:
        place: Where it stands, such as "line 3", for messages.
        record: The fields of `Memory.add`; or "problem" alone, why there are none.
        id: The item that it was written from, where the file is an export that people edit.
        exported: The `digest_of` that item when it was written.
        passed_over: Why it is not taken though nothing is wrong, "" where it is.
    """

    place: str
    record: Record
    id: str = ""
    exported: str = ""
    passed_over: str = ""


def take(
    memory: Memory,
    records: Iterable[FoundRecord],
    *,
    where: str = "the file",
    skip_bad: bool = False,
    gone: Mapping[str, str] | None = None,
    **bounds: str,
) -> tuple[list[Item], list[str]]:
    """Import records in one transaction. What the memory holds already is not stored again; a record that was written from an
    item and edited since changes that item. A record that the memory's scan refuses counts as bad. Raises MemoryProblem,
    InvalidScope, StorageFull.

    Args:
        memory: The memory that gets the items.
        records: What a reader found in the file, in its order.
        where: The name of the file in messages.
        skip_bad: Leave bad records out. Otherwise one bad record means that none is imported, and MemoryProblem is raised.
        gone: Ids of items to delete, each with its `digest_of` when it was exported. One that was changed since stays.
        bounds: user_id, agent_id and session_id of records that name none.

    Returns:
        The items that the records stand for, and a line for each record that was left out.
    """
    records = list(records)
    taken, wrong, sayings = list[_TakenRecord](), list[str](), Sayings()
    for record in records:
        if record.passed_over:
            continue
        try:
            if "problem" in record.record:
                raise ValueError(record.record["problem"])
            text, draft = _drafted(memory, record.record, bounds)
            candidate = new_item(text, draft, new_id="m0", now="")
            earlier = sayings.count(candidate)
            if not draft.deduplicate:  # as often as the file has it, also if it is imported twice
                draft = replace(draft, deduplicate=True, copies=earlier + 1)
            if draft.copies > 1 or not earlier:
                sayings.add(candidate)
            if memory.store.scan is not None:
                memory.store.scan.screened(Operation(OperationKind.ADD, text=text), draft)  # raises RefusedText
            taken.append(_change_of(memory, record, text, draft))
        except (ValueError, TypeError) as error:  # every error about a value is one of the two
            wrong.append(f"{record.place}: {error}")
    if wrong and not skip_bad:
        more = f"; and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        raise MemoryProblem(
            f"{where} has {len(wrong)} {'entries' if len(wrong) > 1 else 'entry'} that cannot be taken: "
            f"{'; '.join(wrong[:5])}{more}.",
            "Correct them, or take the others with --skip-bad; nothing was imported.",
        )
    left_out = [f"{record.place}: {record.passed_over}" for record in records if record.passed_over] + wrong
    deleted = [id for id, digest in (gone or {}).items() if _is_as_exported(memory, id, digest)]
    names: list[int | str] = []  # by record: the id of its item, or the number of the act that gives it

    def acts(transaction: Transaction) -> list[tuple[Act, Draft]]:
        names.clear()
        listed: list[tuple[Act, Draft]] = []
        lines = dict[str, int]()
        for record in taken:
            listed += record.acts
            if id := record.id or _place(transaction, record, listed):
                names.append(id)
                continue
            number = len(listed)
            if record.draft.metadata.get("file") and record.draft.copies == 1:  # which may say it twice
                number = lines.setdefault(_same(record), number)
            names.append(number)
            if number == len(listed):
                listed.append((Operation(OperationKind.ADD, text=record.text), record.draft))
        by = Draft(scope=memory.scope, provenance=Provenance(EDITED))
        listed += [(Operation(OperationKind.DELETE, (id,)), by) for id in deleted]
        return listed

    def check(outcome: OperationOutcome) -> None:
        if not outcome.applied and not outcome.item:
            raise MemoryProblem(f"{where} was not imported: {outcome.reason}.", "Correct it; nothing was imported.")

    if not taken and not deleted:
        return [], left_out
    vectors = memory.store.encode([record.draft.key or record.text for record in taken if record.acts or not record.id])
    done = memory.store.perform(memory.scope, acts, vectors=vectors, check=check)
    ids = [name if isinstance(name, str) else done[name][0].item for name in names]
    there = memory.store.fetch(memory.scopes.seen(), ids)
    return [item for id in ids if (item := there[id]) is not None], left_out


@dataclass(frozen=True, slots=True)
class _TakenRecord:
    """A record that can be taken: as a new item, or with what it changes of the item with this id."""

    text: str
    draft: Draft
    id: str = ""
    acts: tuple[tuple[Act, Draft], ...] = ()


def _same(record: _TakenRecord) -> str:
    draft = record.draft
    return "\0".join((*draft.scope.parts(), draft.kind.value, draft.key, folded(record.text)))


def _place(transaction: Transaction, record: _TakenRecord, listed: list[tuple[Act, Draft]]) -> str:
    """Return the id of the item that says what a line of a file says, which is not stored again where the line has only moved; ""
    if there is none. What says where it stands is kept up to date by an act that is added to `listed`."""
    file = record.draft.metadata.get("file")
    item = new_item(record.text, record.draft, new_id=f"m{transaction.seq}", now="")
    alike = [one for id in transaction.duplicates_of(item) if (one := transaction.get(id)) is not None] if file else []
    here = dict(record.draft.metadata)
    # Of several that were stored with `repeat`, the one that says it is this line, else one of this file.
    there = min(alike, key=lambda one: (dict(one.metadata) != here, one.metadata.get("file") != file), default=None)
    id = there.id if there is not None else ""
    if there is not None and there.metadata.get("file", file) == file:
        metadata = {name: value for name, value in there.metadata.items() if name not in PLACE}
        metadata |= dict(record.draft.metadata)
        if metadata != dict(there.metadata):
            listed.append((Assignment(id, {"metadata": metadata}), record.draft))
    return id


def _drafted(memory: Memory, record: Record, bounds: Mapping[str, str]) -> tuple[str, Draft]:
    options: Any = {**bounds, **{name: value for name, value in record.items() if value is not None}}
    for name in ("metadata", "provenance"):
        if not isinstance(options.get(name, {}), Mapping):
            raise ValueError(f"{name} must be an object, got {options[name]!r:.40}: give names and values")
    if "text" not in record:
        near = nearest("text", record)
        raise ValueError(f"it has no field 'text': {f'is it {near!r}? Rename it' if near else 'give it one'}")
    text = checked_text(options.pop("text", None))
    origin = options.pop("provenance", {})
    if unknown := next((name for name in origin if name not in ORIGIN), None):
        raise ValueError(f"provenance has no field {unknown!r:.40}: its fields are {', '.join(ORIGIN)}")
    source = checked_provenance(Provenance(**origin))
    return text, replace(memory._drafted(options), provenance=source)


# -- what was edited in an export -------------------------------------------------------------------------------------


def _change_of(memory: Memory, record: FoundRecord, text: str, draft: Draft) -> _TakenRecord:
    """Return what a record is to do. Raises ValueError if it was written from an item that cannot be changed so."""
    if not record.id or not _was_exported(memory, record.id, record.exported):
        if record.id and purge.is_tombstone(memory.store, memory.scopes.seen(), record.id):
            raise ValueError(f"{record.id} was erased on purpose: delete the line, or take its id away to add it anew")
        return _TakenRecord(text, draft)  # of another memory, or without an id
    there = memory.get(record.id)
    if digest_of(record.record) == record.exported or digest_of(record.record) == digest_of(record_of(there)):
        return _TakenRecord(text, draft, record.id)
    if not there.open:
        state = there.standing or "closed"
        raise ValueError(f"{record.id} is {state} by now: take the line back, or its id away to add it anew")
    if digest_of(record_of(there)) != record.exported:
        raise ValueError(f"{record.id} was changed in the memory since the export, too: export again, and edit that")
    home = memory.scopes.home(there)
    before, after = canonical(record_of(there)), canonical(record.record)
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)} - {"text"}
    if changed - ASSIGNABLE:
        listed = ", ".join(sorted(changed - ASSIGNABLE))
        raise ValueError(
            f"{listed} of {record.id} cannot be changed: delete the line, and write a new one without an id"
        )
    acts: list[tuple[Act, Draft]] = []
    by = Draft(scope=home, provenance=Provenance(EDITED), deduplicate=False)
    if before["text"] != after["text"]:
        acts.append((Operation(OperationKind.UPDATE, (record.id,), text), by))
    if changed:
        fields = {"trust": draft.trust, "metadata": dict(draft.metadata), "expires_at": draft.expires_at}
        acts.append((Assignment(record.id, {name: fields[name] for name in changed}), by))
    return _TakenRecord(text, draft, record.id, tuple(acts))


def _was_exported(memory: Memory, id: str, digest: str) -> bool:
    """Whether this memory's item of this id ever was as an export says, so that the export is of this memory."""
    there = memory.store.fetch(memory.scopes.seen(), [id])[id]
    if there is None or not digest:
        return False
    if digest_of(record_of(there)) == digest:
        return True
    states = (state for revision in memory.history(id) for state in (revision.before, revision.after))
    return any(state is not None and digest_of(record_of(state)) == digest for state in states)


def _is_as_exported(memory: Memory, id: str, digest: str) -> bool:
    """Whether an item is as it was exported, or as it was edited there since."""
    there = memory.store.fetch(memory.scopes.seen(), [id])[id]
    if there is None or not there.current:
        return False
    for revision in reversed(memory.history(id)):
        if revision.after is not None and digest_of(record_of(revision.after)) == digest:
            return True
        if revision.source != EDITED and revision.kind != REWARD:
            return False
    return False


def canonical(record: Mapping[str, Any]) -> Record:
    """Return a record so that two which mean the same are equal: white space at the ends of lines says nothing."""
    plain = {
        name: value
        for name, value in record.items()
        if value not in (None, "", {}) and (name, value) not in _USUAL and name != "repeat"
    }
    lines = str(record.get("text", "")).strip().split("\n")
    plain |= {name: with_zone(timestamp(plain[name])) for name in TIMES if name in plain}
    return {**plain, "text": "\n".join(line.rstrip() for line in lines)}


_USUAL: Sequence[tuple[str, Any]] = (("kind", "fact"), ("trust", 1.0))


def digest_of(record: Mapping[str, Any]) -> str:
    """Return a short digest of a record."""
    text = json.dumps(canonical(record), ensure_ascii=False, sort_keys=True, default=str)
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


class Sayings:
    """Items, counted by what they say: a second one that says the same is only stored with `repeat`."""

    def __init__(self) -> None:
        self._alike: dict[bytes, dict[str, tuple[Item, int]]] = {}

    def count(self, item: Item) -> int:
        """Return how many of the items say all that this one says."""
        alike = self._alike.get(duplicate_key(item), {})
        return sum(number for other, number in alike.values() if nothing_new(other, item))

    def add(self, item: Item) -> None:
        """Count an item, too."""
        alike = self._alike.setdefault(duplicate_key(item), {})
        form = json.dumps(record_of(replace(item, provenance=Provenance())), sort_keys=True, default=str)
        alike[form] = (item, alike.get(form, (item, 0))[1] + 1)


def record_of(item: Item) -> Record:
    """Return an item as a record without the fields that have their default values."""
    filed, record = to_record(item), Record(text=item.text)
    record |= {name: value for name, part in SCOPES.items() if (value := getattr(item.scope, part))}
    record |= {name: with_zone(filed[name]) if name in TIMES else filed[name] for name in KEPT if name in filed}
    if item.kind is ItemKind.FACT:
        del record["kind"]
    if "provenance" in filed:
        record["provenance"] = {name: value for name, value in filed["provenance"].items() if value not in ("", -1)}
    return record
