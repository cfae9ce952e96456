"""What memory gives, as JSON and back: what the server sends and `Client` reads.

Numbers that JSON has no word for, such as the infinite ends of an interval that is not known yet, are the texts "inf", "-inf"
and "nan".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from keepworth.memory.item import Item, from_record, to_record
from keepworth.memory.operations import OperationOutcome
from keepworth.memory.search.search import Explanation, Hit, Hits, Worth
from keepworth.memory.store.purge import Erased
from keepworth.memory.store.store import Difference, Revision
from keepworth.memory.store.undo import Rollback

if TYPE_CHECKING:
    from keepworth.memory.policy.ledger import Balance

Record = dict[str, Any]
Kind = TypeVar("Kind")


def plain(value: Any) -> Any:
    """As `json.dumps` takes it."""
    if isinstance(value, Item):
        return to_record(value)
    if isinstance(value, Hits):
        return {
            "hits": [plain(hit) for hit in value],
            "decision": value.decision,
            "propensity": value.propensity,
            "policy": value.policy,
            "text": value.text,
            "advice": plain(value.advice),
        }
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value


def item_from(record: Record) -> Item:
    return from_record(record)


def hits_from(record: Record) -> Hits:
    return Hits(
        [_hit(each) for each in record["hits"]],
        record["decision"],
        text=record["text"],
        advice=tuple((action, _number(weight), _number(near)) for action, weight, near in record["advice"]),
        propensity=record["propensity"],
        policy=record["policy"],
    )


def revision_from(record: Record) -> Revision:
    return Revision(**{**record, "before": _maybe(record["before"]), "after": _maybe(record["after"])})


def difference_from(record: Record) -> Difference:
    return Difference(record["id"], _maybe(record["before"]), _maybe(record["after"]))


def outcome_from(record: Record) -> OperationOutcome:
    return OperationOutcome(**{**record, "changed": tuple(record["changed"])})


def rollback_from(record: Record) -> Rollback:
    no_ops = tuple((number, reason) for number, reason in record["no_ops"])
    return Rollback(**{**record, "changed": tuple(record["changed"]), "no_ops": no_ops})


def erased_from(record: Record) -> Erased:
    return Erased(**{**record, "ids": tuple(record["ids"])})


def balance_from(record: Record) -> Balance:
    from keepworth.memory.policy.ledger import Account, Balance

    accounts = tuple(_numbers(Account, each) for each in record["accounts"])
    return _numbers(Balance, {**record, "accounts": accounts})


def worth_from(record: Record) -> Worth:
    from keepworth.memory.policy.ledger import Account

    overall = record["overall"]
    return _numbers(Worth, {**record, "overall": None if overall is None else _numbers(Account, overall)})


def _hit(record: Record) -> Hit:
    why = record["why"]
    if why is not None:
        worth = why["worth"]
        why = Explanation(**{**why, "worth": None if worth is None else worth_from(worth)})
    span, conflicts = record["span"], tuple(record["conflicts"])
    placed = {"span": None if span is None else tuple(span), "conflicts": conflicts}
    return Hit(**{**record, **placed, "item": from_record(record["item"]), "why": why})


def _maybe(record: Record | None) -> Item | None:
    return None if record is None else from_record(record)


def _numbers(kind: Callable[..., Kind], record: Record) -> Kind:
    return kind(**{name: _number(value) for name, value in record.items()})


def _number(value: Any) -> Any:
    return float(value) if value in ("inf", "-inf", "nan") else value
